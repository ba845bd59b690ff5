"""`coteach demo`: all methods on scikit-learn's digits, two noises, several seeds, in about a minute."""

from dataclasses import replace
from pathlib import Path

from rich.table import Table

from coteach import data
from coteach.names import METHODS
from coteach.report.figures import Curves, curves
from coteach.report.terminal import console, epoch_bar, progress_bars
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.runs.run import Result, run_together

NOISES = {"pair 45 %": ("pair", 0.45), "symmetric 50 %": ("symmetric", 0.5)}
VARIANTS = {name: Experiment(method=name) for name in METHODS} | {
    "coteaching_plus, authors": Experiment(method="coteaching_plus", fidelity="authors"),
    "coteaching, softmax_twice": Experiment(method="coteaching", loss="softmax_twice"),
}


def demo_command(seeds: tuple[int, ...], epochs: int | None, out: Path | None) -> None:
    out = files.claim_folder(out, Path("runs/demo"))
    dataset = data.load("digits")
    results: dict[str, list[Result]] = {}
    notes: dict[str, str] = {}
    with progress_bars() as progress:
        whole = progress.add_task("all methods", total=len(VARIANTS), note="")
        for label, variant in VARIANTS.items():
            experiments = [
                replace(
                    variant, noise=kind, rate=rate, seeds=seeds, epochs=epochs, device="cpu",
                    out=out / label.replace(", ", "-") / f"{kind}-{rate:g}",
                )  # fmt: skip
                for kind, rate in NOISES.values()
            ]
            task, advance = epoch_bar(progress, label, experiments[0])
            results[label] = run_together(
                experiments, dataset, say=lambda line, label=label: notes.setdefault(line, label), on_epoch=advance
            )
            progress.remove_task(task)
            progress.advance(whole)
    console.print(table(results, len(seeds)))
    for line, label in notes.items():
        console.print(f"[dim]{label}: {line}[/dim]")
    figure = [out / "demo.png", out / "demo.svg"]
    curves(panels(results), figure, f"scikit-learn digits, MLP 64-256-10, {len(seeds)} seeds, band: ± 1 standard deviation")
    console.print(f"figure: {figure[0]}", soft_wrap=True)
    console.print(f"everything: {out}", soft_wrap=True)


def table(results: dict[str, list[Result]], n_seeds: int) -> Table:
    grid = Table(
        title=f"digits: test accuracy, mean of both networks over the last ten epochs ± std over {n_seeds} seeds; "
        "and the share of right labels among those learnt from",
        title_justify="left",
    )
    grid.add_column("method", no_wrap=True)
    for noise in NOISES:
        grid.add_column(noise, justify="right")
        grid.add_column("label precision", justify="right")
    for label, cells in results.items():
        row = [label]
        for cell in cells:
            s = cell.summary
            row.append(f"{s['mean']:.1f}" + ("" if s["std"] is None else f" ± {s['std']:.1f}"))
            row.append("–" if s["label_precision"] is None else f"{s['label_precision']:.1f}")
        grid.add_row(*row)
    return grid


def panels(results: dict[str, list[Result]]) -> Curves:
    return {
        noise: {label: cells[i].rows for label, cells in results.items()} for i, noise in enumerate(NOISES)
    }
