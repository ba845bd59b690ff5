"""Names at the ends of lines: each with a piece of its line, so that grey will do, and none on another."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FONT = 7.5  # points, as all lengths here
APART = 9.5  # from one name to the next
SAMPLE = (9, 25)  # from the edge of the panel, where the piece of line begins and ends
NAME = 28


def label_ends(figure: "Figure", axes: np.ndarray) -> bool:
    """Write the names of all lines at their ends; False, and nothing done, where they are too many for a panel."""
    figure.draw_without_rendering()  # so that panels have their height
    heights = {ax: 72 * ax.get_position().height * figure.get_size_inches()[1] for ax in axes.flat}
    if any(APART * (len(named(ax)) - 2) > height for ax, height in heights.items()):
        return False
    for ax, height in heights.items():
        label_panel(figure, ax, height)
    return True


def named(ax: "Axes") -> list["Line2D"]:
    """The lines that have a name and at least one point."""
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    return [line for line in lines if np.isfinite(numbers(line)).any()]


def numbers(line: "Line2D") -> np.ndarray:
    return np.asarray(line.get_ydata(), float)


def label_panel(figure: "Figure", ax: "Axes", height: float) -> None:
    ax.set_xlim(ax.get_xlim())  # a name must not move the panel
    ax.set_ylim(ax.get_ylim())
    lines = sorted(named(ax), key=lambda line: -end(line)[1])
    wanted = [height * to_panel(ax, end(line))[1] for line in lines]
    places = spread_out(np.array(wanted[::-1]), APART, -APART / 2, height + APART / 2)[::-1]
    for line, place in zip(lines, places, strict=True):
        write_name(figure, ax, line, place / height)


def end(line: "Line2D") -> tuple[float, float]:
    last = np.flatnonzero(np.isfinite(numbers(line)))[-1]
    return float(np.asarray(line.get_xdata())[last]), float(numbers(line)[last])


def to_panel(ax: "Axes", point: tuple[float, float]) -> np.ndarray:
    """From data to 0–1 across and upwards."""
    return ax.transAxes.inverted().transform(ax.transData.transform(point))


def spread_out(wanted: np.ndarray, apart: float, low: float, high: float) -> np.ndarray:
    """The places nearest to the wanted ones, which ascend, that are so far apart and inside the bounds.

    Less (i × apart) from the i-th they must not descend: the least squares are means of blocks.
    """
    steps = apart * np.arange(len(wanted))
    blocks: list[list[float]] = []  # [mean, how many]
    for value in wanted - steps:
        blocks.append([float(value), 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, n = blocks.pop()
            before, m = blocks[-1]
            blocks[-1] = [(before * m + mean * n) / (m + n), m + n]
    level = np.repeat([mean for mean, _ in blocks], [int(n) for _, n in blocks])
    return np.clip(level, low, high - steps[-1] if len(steps) else high) + steps


def write_name(figure: "Figure", ax: "Axes", line: "Line2D", place: float) -> None:
    """A thin line from the end, a piece of the line itself, and the name."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import ConnectionPatch
    from matplotlib.transforms import ScaledTranslation

    def beside(points: float) -> Any:
        return ax.transAxes + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)

    colour: Any = line.get_color()
    thin = ConnectionPatch(
        end(line),
        (1, place),
        ax.transData,
        beside(SAMPLE[0]),
        color=colour,
        linewidth=0.5,
        alpha=0.6,
        clip_on=False,
    )
    begin, middle, stop = SAMPLE[0], sum(SAMPLE) / 2, SAMPLE[1]
    piece = ConnectionPatch(
        (1, place), (1, place), beside(begin), beside(stop), color=colour, linestyle=line.get_linestyle(),
        linewidth=line.get_linewidth(), clip_on=False,
    )  # fmt: skip
    mark = Line2D(
        [1], [place], marker=line.get_marker(), markersize=line.get_markersize(), color=colour,
        markeredgewidth=0, linestyle="none", transform=beside(middle),
    )  # fmt: skip
    for artist in (thin, piece, mark):
        artist.set_in_layout(False)
        figure.add_artist(artist)
    ax.text(1, place, str(line.get_label()), transform=beside(NAME), va="center", fontsize=FONT, parse_math=False)
