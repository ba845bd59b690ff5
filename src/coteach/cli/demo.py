"""`coteach demo`: all methods on scikit-learn's digits, two noises, several seeds."""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from coteach.cli.run import progress_note
from coteach.names import METHOD_FACTS, METHOD_LABELS, Flag
from coteach.plan import two_loss_warmup
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.runs.parallel import Send, in_processes
from coteach.terminal import console, progress_bars

DEMO_EXAMPLES = """
examples:
  # about a minute on two cores; ends with a table and a figure
  coteach demo
  # a first look
  coteach demo --seeds 1
"""

DEMO_NOISES = {"pair 45 %": ("pair", 0.45), "symmetric 50 %": ("symmetric", 0.5)}
DIGITS_STEPS = 20  # of an epoch of the digits
ENOUGH = 30  # epochs, after which the wrong labels begin to show
VARIANTS = {name: Experiment(method=name) for name, facts in METHOD_FACTS.items() if facts.in_demo} | {
    "coteaching_plus, authors": Experiment(method="coteaching_plus", fidelity="authors"),
    "coteaching, softmax_twice": Experiment(method="coteaching", loss="softmax_twice"),
    # The losses of RobustClassifier, trained as long and as fast as the others.
    "coteaching, our default": Experiment(
        method="coteaching",
        loss="softmax_twice",
        warmup_loss="cross_entropy",
        warmup=two_loss_warmup(50, DIGITS_STEPS),
    ),
}
REFERENCE_METHOD = "standard"


@dataclass(frozen=True)
class Demo:
    """Compare all methods on handwritten digits with about half of the labels wrong."""

    out: Annotated[Path | None, Flag("PATH", "runs/demo, numbered if taken")] = None
    """Folder to write to; must be new or empty."""
    seeds: Annotated[tuple[int, ...], Flag("N [N ...]", "1 2 3")] = (1, 2, 3)
    """Seeds of the random numbers in training, one run each."""
    epochs: Annotated[int | None, Flag("N", "50")] = None
    """Epochs: how often each sample is learnt."""


@dataclass(frozen=True)
class Variant:
    """One line of the table: a method under each noise, trained together."""

    label: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class FinishedRun:
    """What a run left in its folder."""

    rows: list[dict]
    summary: dict


def demo_command(demo: Demo) -> None:
    seeds, epochs = demo.seeds, demo.epochs
    for variant in variants(seeds, epochs, Path()):
        variant.experiments[0].check()  # before torch is loaded
    from coteach.figures import COLOURED, curves, over_seeds

    was_there = demo.out is not None and demo.out.exists()
    out = files.claim_folder(demo.out, Path("runs/demo"))
    todo = variants(seeds, epochs, out)
    console.print(
        f"{len(todo)} methods, {len(DEMO_NOISES)} noises, {plural(len(seeds))} each, one process for each core"
    )
    try:
        with progress_bars() as progress:
            bars = Bars(progress, todo)
            for variant in in_processes(train_variant, todo, bars.show):
                bars.finish(variant)
    except KeyboardInterrupt:
        print(f"coteach: stopped; {what_is_left(out)}.", file=sys.stderr)
        if not was_there and not any(out.iterdir()):
            out.rmdir()
        raise SystemExit(130) from None
    cells = {v.label: [read_finished(e.out) for e in v.experiments if e.out] for v in todo}
    console.print(results_table(cells, len(seeds), min(10, todo[0].experiments[0].plan().epochs)))
    if epochs is not None and epochs < ENOUGH:
        console.print(
            f"{plural(epochs, 'epoch')} are too few to tell methods apart: all are still learning", style="dim"
        )
    for text, label in bars.notes.items():
        console.print(f"note, {label}: {text}", markup=False, style="dim")
    figure = [out / "demo.png", out / "demo.svg"]
    curves(
        {
            noise: {in_figure(label): row[i].rows for label, row in cells.items()}
            for i, noise in enumerate(DEMO_NOISES)
        },
        figure,
        f"scikit-learn's digits, MLP 64-256-10. {over_seeds([len(seeds)])}.",
        COLOURED,
    )
    console.print(f"figure: {figure[0]}", soft_wrap=True, markup=False)
    console.print(f"everything: {out}", soft_wrap=True, markup=False)
    console.print("next: ", end="", style="dim")
    console.print(
        f"coteach report {out} --open, or with your own labels coteach audit --help", soft_wrap=True, markup=False
    )


def what_is_left(out: Path) -> str:
    """After Ctrl-C: the runs that were finished can be looked at."""
    if finished := list(out.glob("*/*/summary.json")):
        return f"{plural(len(finished), 'run')} of the demo finished: coteach report {out} shows what they found"
    return "no run of the demo was finished"


def in_figure(label: str) -> str:
    """A variant's name in words."""
    from coteach.paper.words import in_words

    method, _, variant = label.partition(", ")
    return ", ".join(filter(None, (METHOD_LABELS[method], in_words(variant))))


def plural(n: int, what: str = "seed") -> str:
    return f"{n} {what}" + "s" * (n != 1)


def what_a_mean_is_of(n_seeds: int) -> str:
    return f"mean ± std of {plural(n_seeds)}" if n_seeds > 1 else "one seed"


def explanation(note: str) -> str:
    """What a note says of an event, wherever it happened; a note without an explanation is all it says."""
    return note[note.find("(") :] if "(" in note else note


class Bars:
    """One bar over everything and one for each method at work, moved by messages from its process."""

    def __init__(self, progress: Progress, todo: list[Variant]):
        from coteach.runs.prepare import n_epochs

        self.progress = progress
        self.epochs = {variant.label: n_epochs(variant.experiments[0]) for variant in todo}
        self.overall = progress.add_task("all methods", total=sum(self.epochs.values()), note="")
        self.at_work: dict[str, TaskID] = {}
        self.notes: dict[str, str] = {}  # each once, with the first method that said it

    def show(self, message: tuple[str, str, str]) -> None:
        kind, label, text = message
        if kind == "note":
            if explanation(text) not in map(explanation, self.notes):
                self.notes[text] = label
            return
        if label not in self.at_work:
            self.at_work[label] = self.progress.add_task(label, total=self.epochs[label], note="")
        self.progress.update(self.at_work[label], advance=1, note=text)
        self.progress.advance(self.overall)

    def finish(self, variant: Variant) -> None:
        self.progress.remove_task(self.at_work.pop(variant.label))


def shortened(base: Experiment, epochs: int | None) -> Experiment:
    """With a warm-up that leaves epochs after it; of a single epoch the warm-up is all there could be."""
    if base.warmup_loss is None or epochs is None:
        return base
    if epochs < 2:
        return VARIANTS["coteaching"]
    return replace(base, warmup=two_loss_warmup(epochs, DIGITS_STEPS))


def variants(seeds: tuple[int, ...], epochs: int | None, out: Path) -> list[Variant]:
    return [
        Variant(
            label,
            tuple(
                replace(
                    shortened(base, epochs),
                    noise=kind,
                    rate=rate,
                    seeds=seeds,
                    epochs=epochs,
                    device="cpu",
                    out=out / label.replace(", ", "-").replace(" ", "-") / f"{kind}-{rate:g}",
                )
                for kind, rate in DEMO_NOISES.values()
            ),
        )
        for label, base in VARIANTS.items()
    ]


def train_variant(variant: Variant, send: Send) -> None:
    """In a process of its own."""
    from coteach.runs.run import run_together

    run_together(
        list(variant.experiments),
        say=lambda line: send(("note", variant.label, line)),
        on_epoch=lambda epoch: send(("epoch", variant.label, progress_note(epoch))),
    )


def read_finished(folder: Path) -> FinishedRun:
    return FinishedRun(
        files.read_rows(folder / "metrics.jsonl"), json.loads((folder / "summary.json").read_text("utf-8"))
    )


def results_table(cells: dict[str, list[FinishedRun]], n_seeds: int, last: int = 10) -> Table:
    grid = Table(
        title=f"digits: test accuracy (%) over the last {last} epochs, {what_a_mean_is_of(n_seeds)};\n"
        "gain: points over standard; prec.: right labels among those learnt from (%)",
        title_justify="left",
        caption="* the best; f_correction_known knows the true transition matrix, so it does not count",
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    grid.add_column("method", no_wrap=True)
    for noise in DEMO_NOISES:
        for heading in (noise, "gain", "prec."):
            grid.add_column(heading, justify="right", no_wrap=True)
    best = [best_label(cells, i) for i in range(len(DEMO_NOISES))]
    for label, row in cells.items():
        texts = [Text(label, "bold" if label in best else "")]
        for i, cell in enumerate(row):
            s, style = cell.summary, "bold" if best[i] == label else ""
            accuracy = f"{s['mean']:.1f}" + ("" if s["std"] is None else f" ± {s['std']:.1f}")
            gain = f"{s['mean'] - cells[REFERENCE_METHOD][i].summary['mean']:+.1f}".replace("-", "−")
            precision = "–" if s["label_precision"] is None else f"{s['label_precision']:.0f}"
            texts.append(Text(f"{accuracy}{' *' if style else '  '}", style))
            texts += [Text("" if label == REFERENCE_METHOD else gain, style), Text(precision)]
        grid.add_row(*texts)
    return grid


def best_label(cells: dict[str, list[FinishedRun]], noise: int) -> str:
    """The highest mean under a noise, of the methods that one could use on labels of one's own."""
    rivals = [label for label in cells if not METHOD_FACTS[label.partition(",")[0]].told_the_truth]
    return max(rivals, key=lambda label: cells[label][noise].summary["mean"])
