"""`coteach audit` in the terminal: what was read, how long it will take, what was found and where it is."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coteach.audit.decisions import CORRECTED, apply_decisions
from coteach.audit.request import Audit
from coteach.audit.samples import Samples, Skipped, printable, shown, usable
from coteach.runs.folder import claim_folder
from coteach.terminal import console, progress_bars

OTHERWISE = Path("runs/audit")
MOST_LINES = 10
MOST_NAMES = 3  # of what was skipped for one reason
LONG = 3600.0  # seconds


def audit_command(audit: Audit) -> None:
    """What may go wrong does so before the long training: the reading, the settings, a folder to write to."""
    if audit.apply is not None:
        apply_command(audit.apply, audit.out or OTHERWISE)
        return
    began = time.perf_counter()
    with claimed(audit.out) as folder:
        from coteach.audit.judge import classifier_for, forecast, judge
        from coteach.audit.write import write_findings
        from coteach.runs.setup import chosen_device

        classifier = classifier_for(audit)
        say(f"reading {audit.source}")
        samples = usable(read_samples(audit))
        tell_samples(samples)
        read = time.perf_counter()
        say("timing an epoch")
        seconds = forecast(classifier, samples)
        timed = time.perf_counter()
        where = {"cpu": "the CPU"}.get(device := chosen_device(audit.device), device)
        say(f"training {classifier.method} on {where}: about {duration(seconds)}")
        if device == "cpu" and audit.kind == "images" and seconds > LONG:
            say("note: that is long for a CPU: a smaller --size, or embeddings with --npz, take much less")
        with expected(classifier.method, seconds):
            findings = judge(classifier, samples, audit.share)
        spent = {
            "reading": read - began,
            "forecast": timed - read,
            "training": findings.seconds,
            "expected": seconds,
        }
        summary = write_findings(findings, audit, folder, spent)
        tell_findings(summary, findings.notes[len(samples.notes) :])
        say(f"written to {folder}: {', '.join(written(folder))}")
        if summary["suspects"]:
            say(f"look at the suspects: open {folder / 'review.html'} in a browser")


def apply_command(decisions: Path, folder: Path) -> None:
    done = apply_decisions(decisions, folder)
    say(
        f"{done['keep']:,} kept, {done['relabel']:,} relabelled, {done['drop']:,} dropped, "
        f"{done['undecided']:,} not decided and left out"
    )
    say(f"written to {folder / CORRECTED}: {done['rows']:,} labels")
    say("next: put them into your own files, by their ids; docs/own-data.md has the lines that do it")


def read_samples(audit: Audit) -> Samples:
    """Images with a progress bar, since there may be many."""
    if audit.kind == "table":
        from coteach.audit.tables import read_rows

        assert audit.label is not None
        return read_rows(audit.source, audit.label, audit.text, audit.id, audit.ignore, audit.seed)
    if audit.kind == "arrays":
        from coteach.audit.arrays import read_arrays

        return read_arrays(audit.source)
    from coteach.audit.images import read_images

    with progress_bars() as bars:
        task = bars.add_task("reading", total=None, note="")
        return read_images(
            audit.source, audit.size, lambda done, total: bars.update(task, completed=done, total=total)
        )


@contextmanager
def claimed(wanted: Path | None) -> Iterator[Path]:
    """A folder to write to; what was made of it is taken away again if it stays empty."""
    there = [path for path in (wanted or OTHERWISE).parents if path.exists()]
    was_there = wanted is not None and wanted.exists()
    folder = claim_folder(wanted, OTHERWISE)
    try:
        yield folder
    except KeyboardInterrupt:
        files = ", ".join(written(folder)) or "nothing"
        print(f"coteach: stopped; written to {folder}: {files}.", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        if not was_there:
            for path in (folder, *(path for path in folder.parents if path not in there)):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def tell_samples(samples: Samples) -> None:
    shape = "×".join(map(str, samples.x.shape[1:]))
    say(f"{len(samples):,} {samples.what} of {len(samples.counts)} classes, {shape} numbers each")
    for note in samples.notes:
        say(f"note: {note}")
    lines = skipped_lines(samples.skipped)
    for line in lines[:MOST_LINES]:
        say(f"skipped: {line}")
    if len(lines) > MOST_LINES:
        say(f"skipped: more for {len(lines) - MOST_LINES:,} other reasons, all named in summary.json")


def skipped_lines(skipped: tuple[Skipped, ...]) -> list[str]:
    """One for each reason."""
    by_reason: dict[str, list[str]] = {}
    for one in skipped:
        by_reason.setdefault(printable(one.why), []).append(printable(one.where))
    lines = []
    for why, places in by_reason.items():
        some, more = "; ".join(places[:MOST_NAMES]), len(places) - MOST_NAMES
        if len(places) == 1:
            lines.append(f"{some} ({why})")
        else:
            lines.append(f"{len(places):,} ({why}): {some}" + f"; {more:,} more, see summary.json" * (more > 0))
    return lines


def tell_findings(summary: dict[str, Any], notes: tuple[str, ...]) -> None:
    for note in notes:
        say(f"note: {note}")
    rate = f"{100 * summary['noise_rate']:.1f} %"
    if summary["noise_interval"] is not None:
        low, high = (100 * bound for bound in summary["noise_interval"])
        rate += f", between {low:.1f} and {high:.1f} %"
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("wrong labels, estimated" if summary["noise_rate_estimated"] else "wrong labels, as given", rate)
    table.add_row("suspects", f"{summary['suspects']:,} of {summary['samples']:,}")
    for pair in summary["pairs"][:5]:
        line = f"{shown(pair['given'])} → {shown(pair['suggested'])}"
        table.add_row("given → suggested", Text(f"{line}: {pair['suspects']:,}"))
    console.print(table)


class Expected(ProgressColumn):
    """A bar that fills with time: the training tells nothing while it estimates the noise rate."""

    def render(self, task: Task) -> ProgressBar:
        seconds = task.fields["seconds"]
        done = seconds if task.fields["done"] else min(task.elapsed or 0, seconds)
        return ProgressBar(total=seconds, completed=done, width=40)


class Clock(ProgressColumn):
    def render(self, task: Task) -> Text:
        spent = duration(task.elapsed or 0)
        return Text(
            f"took {spent}" if task.fields["done"] else f"{spent} of about {duration(task.fields['seconds'])}"
        )


@contextmanager
def expected(name: str, seconds: float) -> Iterator[None]:
    with Progress(TextColumn("{task.description}"), Expected(), Clock(), console=console) as progress:
        task = progress.add_task(name, total=None, seconds=max(seconds, 1e-3), done=False)
        yield
        progress.update(task, done=True)


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def say(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)
