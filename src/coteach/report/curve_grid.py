"""Curves in a grid, a row for each measure and a column for each noise: the figures of presets and of runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coteach.report.figures import draw_line, in_a_line, line_styles, name_lines, new_figure, save

MEASURES = {  # what an axis says, and where it ends
    "test_accuracy": ("test accuracy (%)", 100.0),
    "label_precision": ("label precision (%)", 100.0),
    "disagreement": ("disagreement (%)", 100.0),
    "total_variation": ("total variation", 1.0),
    "keep_rate": ("keep rate λ", 1.0),
}

Lines = dict[str, tuple[list[int], np.ndarray]]  # label → epochs, and seeds × epochs


@dataclass(frozen=True)
class Grid:
    """Rows of panels, each with all measures, and columns; `lines` of a row, a column and a measure."""

    rows: list[str]
    columns: list[str]
    measures: list[str]
    labels: list[str]
    lines: Callable[[str, str, str], Lines]


def draw_grid(grid: Grid, paths: Iterable[Path], caption: str) -> None:
    wide = len(grid.columns) > 1
    shape, size = (len(grid.rows) * len(grid.measures), len(grid.columns)), (4.8, 2.7) if wide else (8.2, 2.9)
    figure, axes = new_figure(*shape, size, sharex="row", sharey=False)
    styles = line_styles(grid.labels)
    for row, block in zip(grid.rows, np.split(axes, len(grid.rows)), strict=True):
        for column, panels in zip(grid.columns, block.T, strict=True):
            for measure, ax in zip(grid.measures, panels, strict=True):
                lines = grid.lines(row, column, measure)
                for label, (epochs, values) in lines.items():
                    draw_line(ax, label, styles[label], epochs, values, MEASURES[measure][1])
                if not lines:  # not measured (yet)
                    ax.set_axis_off()
                keep_away(ax, 0.02 * MEASURES[measure][1])
            name_column(panels, ", ".join(filter(None, (row, column))))
        for measure, panels in zip(grid.measures, block, strict=True):
            for ax in drawn(panels)[:1]:
                ax.set_ylabel(MEASURES[measure][0])
    name_lines(figure, axes, columns=4 if wide else 2)
    save(figure, paths, caption)


def keep_away(ax: Any, least: float) -> None:
    """An axis of at least that span: nearer by, the chance in a line that is flat looks like a mountain range."""
    low, high = ax.get_ylim()
    if high - low < least:
        middle = (low + high) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def name_column(panels: np.ndarray, title: str) -> None:
    """A title above, and epochs below."""
    for ax in drawn(panels)[:1]:
        ax.set_title(in_a_line(title), fontsize=10, parse_math=False)
    for ax in drawn(panels)[:-1]:
        ax.tick_params(labelbottom=False)
    for ax in drawn(panels)[-1:]:
        ax.set_xlabel("epoch")


def drawn(panels: np.ndarray) -> list[Any]:
    return [ax for ax in panels if ax.axison]


# ---- in words -------------------------------------------------------------------------------------------------


def over_seeds(counts: Iterable[int], spread: str = "band: ± 1 standard deviation") -> str:
    """What lines and bands are, or whatever else shows the spread, from how many seeds each has."""
    counts = list(counts)
    if max(counts) == 1:
        return "One seed"
    return f"Mean of {numbered(counts, 'seed')}, {spread}"


def numbered(counts: Iterable[int], what: str) -> str:
    """3 seeds, or 1 to 3 seeds."""
    counts = list(counts)
    low, high = min(counts), max(counts)
    return f"{'' if low == high else f'{low} to '}{high} {what}{'s' * (high > 1)}"
