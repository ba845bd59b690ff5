"""The curves of runs: every measure of every epoch, a line for each run, a band over its seeds."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from coteach.report.figures import FORMATS, Style, as_svg, draw_line, line_styles, name_lines, new_figure, save
from coteach.report.run_files import Run
from coteach.report.run_groups import Group
from coteach.report.svg import inline

MEASURES = {
    "test_accuracy": ("test accuracy (%)", 100.0),
    "label_precision": ("label precision (%)", 100.0),
    "disagreement": ("disagreement (%)", 100.0),
    "total_variation": ("total variation", 1.0),
    "keep_rate": ("keep rate λ", 1.0),
}
WITHOUT_KEEP_RATE = (
    "standard",
    "decoupling",
    "f_correction",
    "f_correction_known",
    "iterative",
)  # rules without λ
LONGEST = 40  # letters of a name in a figure
SIZE = (5.6, 2.9)  # inches of a panel


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
    if measure == "keep_rate" and run.experiment.method in WITHOUT_KEEP_RATE:
        return False
    return any(row[measure] is not None for row in run.rows)


@contextmanager
def any_script() -> Iterator[None]:
    """Without a word on letters that the font lacks: a browser has others."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def in_a_line(name: str) -> str:
    """Short enough to leave room for the lines, cut out of the middle."""
    name = "".join(c if c.isprintable() else " " for c in name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 16]}…{name[-15:]}"


def draw_panel(ax: Any, group: Group, measure: str, styles: dict[str, Style]) -> None:
    text, top = MEASURES[measure]
    for label, run in group.runs.items():
        if has(run, measure):
            draw_line(ax, in_a_line(label), styles[label], *curve(run, measure), top)
    ax.set_ylabel(text)
    ax.set_xlabel("epoch")


@any_script()
def panel_svg(group: Group, measure: str, prefix: str) -> str:
    """One measure of one group, for a page."""
    figure, axes = new_figure(1, 1, SIZE)
    draw_panel(axes[0, 0], group, measure, line_styles(group.runs))
    name_lines(figure, axes)
    title = f"{MEASURES[measure][0]} by epoch, {group.title}: {', '.join(group.runs)}"
    return inline(as_svg(figure), prefix, title)


@any_script()
def write_curves(group: Group, folder: Path) -> list[Path]:
    """All measures of a group, below each other, in all formats."""
    measures = measured(group)
    figure, axes = new_figure(len(measures), 1, SIZE, sharex=True, sharey=False)
    styles = line_styles(group.runs)
    for ax, measure in zip(axes[:, 0], measures, strict=True):
        draw_panel(ax, group, measure, styles)
        ax.label_outer()
    axes[0, 0].set_title(in_a_line(group.title), parse_math=False)
    name_lines(figure, axes)
    paths = [folder / f"curves-{group.file_name}.{suffix}" for suffix in FORMATS]
    save(
        figure,
        paths,
        f"Mean over seeds, band: ± 1 standard deviation.{f' All: {group.common}.' if group.common else ''}",
    )
    return paths
