"""The curves of runs: every measure of every epoch, a line for each run, a band over its seeds."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from coteach.figures import (
    FIGURE_FORMATS,
    Grid,
    Lines,
    draw_grid,
    numbered,
    over_seeds,
    short_label,
)
from coteach.names import MEASURES, METHOD_FACTS
from coteach.report.groups import Group
from coteach.report.read import Run
from coteach.turns import own_warning_filters


def curve(run: Run, measure: str) -> tuple[list[int], np.ndarray]:
    """The epochs, and seeds × epochs of a measure; NaN for what a method does not have.

    Of an unfinished run, the seeds that are finished; if none is, the epochs that all seeds have that were begun.
    """
    by_seed: dict[int, dict[int, float]] = {}
    for row in run.rows:
        value = row[measure]
        point = np.nan if value is None else float(np.mean(value))
        by_seed.setdefault(row["seed"], {})[row["epoch"]] = point
    complete = [points for points in by_seed.values() if len(points) == run.epochs]
    shown = complete or list(by_seed.values())
    if not shown:
        return [], np.zeros((0, 0))
    epochs = sorted(set.intersection(*map(set, shown)))
    return epochs, MEASURES[measure][1] * np.array([[points[epoch] for epoch in epochs] for points in shown])


def measured(group: Group) -> list[str]:
    """The measures that any run of the group has."""
    return [name for name in MEASURES if any(has(run, name) for run in group.runs.values())]


def has(run: Run, measure: str) -> bool:
    facts = METHOD_FACTS.get(run.experiment.method)
    if measure == "keep_rate" and facts is not None and not facts.has_keep_rate:
        return False
    return any(row[measure] is not None for row in run.rows)


@contextmanager
def any_script() -> Iterator[None]:
    """Without a word on letters that the font lacks: a browser has others."""
    with own_warning_filters():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


# ---- for a paper ----------------------------------------------------------------------------------------------


@any_script()
def write_curves(groups: list[Group], measures: list[str], folder: Path) -> list[Path]:
    """Writes a column for each noise of a data set, in all formats; nothing if no run has any of the measures."""
    there = [name for name in measures if any(name in measured(group) for group in groups)]
    shown = {group.noise: group for group in groups if set(there) & set(measured(group))}
    if not shown:
        return []

    def lines(_: str, noise: str, measure: str) -> Lines:
        runs = shown[noise].runs.items()
        return {label: curve(run, measure) for label, run in runs if has(run, measure)}

    labels = list(dict.fromkeys(label for group in shown.values() for label in group.runs))
    paths = [folder / f"curves-{file_name(groups[0].data)}.{suffix}" for suffix in FIGURE_FORMATS]
    draw_grid(Grid([""], list(shown), there, labels, lines), paths, caption(list(shown.values())))
    return paths


def caption(groups: list[Group]) -> str:
    """The data, how many seeds and epochs, and what is not usual."""
    shapes = [curve(run, "test_accuracy")[1].shape for group in groups for run in group.runs.values() if run.rows]
    seeds, epochs = zip(*shapes, strict=True)
    words = f"{short_label(groups[0].data)}. {over_seeds(seeds)}; {numbered(epochs, 'epoch')}."
    common = ", ".join(text for name, text in groups[0].common.items() if name != "epochs")
    return f"{words} All: {common}." if common else words


def file_name(text: str) -> str:
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in text).split())[:80] or "runs"
