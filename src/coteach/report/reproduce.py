"""`coteach reproduce`: the list, the progress, and at the end the comparison. Torch is loaded only to train."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from coteach.paper import compare
from coteach.paper.compare import Line
from coteach.paper.measured import in_folder, path_of, read, taken_over
from coteach.paper.presets import Cell, asked_for, preset_names, refuse_too_few
from coteach.report.preset_page import sources, write_page
from coteach.report.screen import console, progress_bars

Seeds = tuple[int, ...] | None

MARKS = "✓ nearer than the bar, or else than the larger spread over seeds; ✗ not; neither where no spread is known"


def list_command(out: Path, seeds: Seeds, epochs: int | None, then: bool) -> None:
    table = Table("name", "what it is", box=None, pad_edge=False)
    for column in ("cells", "there", "runs"):
        table.add_column(column, justify="right")
    for name in preset_names():
        wanted = asked_for(name, seeds, epochs, then=then)
        there = sum(is_there(cell, out) for cell in wanted)
        runs = sum(len(cell.seeds) for cell in wanted)
        table.add_row(name, wanted[0].title if wanted else "", str(len(wanted)), str(there), str(runs))
    console.print(table)
    console.print(f"there: cells whose seeds are all in {out}", soft_wrap=True, markup=False, style="dim")


def is_there(cell: Cell, out: Path) -> bool:
    """Whether every seed of a cell was measured."""
    record = read(path_of(cell, out), cell.hash)
    return record is not None and set(cell.seeds) <= set(record["summary"]["seeds"])


def reproduce_command(
    name: str,
    seeds: Seeds = None,
    epochs: int | None = None,
    out: Path = Path("results"),
    device: str = "auto",
    data_dir: Path | None = None,
    *,
    then: bool = False,
    only: str | None = None,
    only_report: bool = False,
    processes: str | None = None,
    ray: str | None = None,
) -> None:
    """Measure what is missing, then report all that is there, be it of this call or of earlier ones."""
    if not only_report:
        refuse_too_few(name, epochs, then=then, only=only)
    wanted = asked_for(name, seeds, epochs, device, then=then, only=only)
    for cell in wanted:
        replace(cell.experiment, seeds=cell.seeds).check()  # before torch is loaded
    known = in_folder(out)
    for cell in asked_for(name, None, epochs, then=True):
        taken_over(cell, out, known)  # what was measured for another figure
    missing = [cell for cell in wanted if not is_there(cell, out)]
    if missing and not only_report:
        how = {"then": then, "only": only, "processes": processes, "ray": ray}
        train_missing(name, seeds, epochs, out, device, data_dir, **how)
    else:
        console.print(f"{len(wanted) - len(missing)} of {len(wanted)} cells are in {out}", markup=False)
    report(name, epochs, out)


def train_missing(
    name: str, seeds: Seeds, epochs: int | None, out: Path, device: str, data_dir: Path | None, **how: Any
) -> None:
    from coteach.paper.reproduce import Progress, reproduce
    from coteach.report.terminal import progress_note

    try:
        with progress_bars() as bars:
            task = bars.add_task(name, total=None, note="")
            told: set[str] = set()

            def show(p: Progress) -> None:
                method = p.label.partition(" (")[0]
                bars.update(task, completed=p.done, total=p.total, description=method, note=progress_note(p))

            def say(line: str) -> None:
                if line not in told:  # every stack would say it again
                    told.add(line)
                    bars.console.print(f"note: {line}", markup=False)

            reproduce(name, seeds, epochs, out, device, data_dir, say=say, on_progress=show, **how)
    except KeyboardInterrupt:
        print(
            f"coteach: stopped; the cells that were finished are in {out}: the same command goes on from there, "
            "and with the rest from the last epochs.",
            file=sys.stderr,
        )
        raise SystemExit(130) from None


def report(name: str, epochs: int | None, out: Path) -> None:
    records = in_order(name, epochs, out)
    if not records:
        if epochs is None:
            raise ValueError(f"no cell of {name} is in {out}: leave --only-report out, and they are measured.")
        raise ValueError(
            f"no cell of {name} with --epochs {epochs} is in {out}: "
            "leave --epochs out for the paper's, or --only-report, and they are measured."
        )
    written = [*write_page(name, epochs, records, out / name), compare.write_summary(out)]
    lines = compare.beside(records)
    for table in comparison_tables(lines):
        console.print(table)
    for text in (MARKS, *sources(lines)) if any(line.target for line in lines) else ():
        console.print(text, style="dim", markup=False)
    for path in written:
        console.print(f"written: {path}", soft_wrap=True, markup=False)


def in_order(name: str, epochs: int | None, out: Path) -> list[dict[str, Any]]:
    """The records of a preset that are there, whatever the number of seeds, as it has them."""
    found = ((path_of(cell, out), cell.hash) for cell in asked_for(name, None, epochs, then=True))
    return [r | {"file": path.relative_to(out).as_posix()} for path, wanted in found if (r := read(path, wanted))]


def comparison_tables(lines: list[Line]) -> list[Table]:
    """One for each column of the paper's, so that they fit into a terminal."""
    tables = []
    for column in dict.fromkeys(line.column for line in lines):
        table = Table(title=column, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("test accuracy (%) of", min_width=24, overflow="fold")
        for name in ("ours", "n", "known", "differs by"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("source", no_wrap=True)
        before = None
        for line in lines:
            if line.column == column:
                _, method, _, ours, n, known, difference, _, _ = line.texts()
                again = line.cell is before
                style = {True: "green", False: "red", None: ""}[line.within]
                source = "" if line.target is None else line.target.source
                verdict = difference + {True: " ✓", False: " ✗", None: "  "}[line.within] if difference else ""
                texts = ("", "", "") if again else (method, ours, n)
                table.add_row(*texts, known, f"[{style}]{verdict}[/]" if style else verdict, source)
                before = line.cell
        tables.append(table)
    return tables
