"""Figures in the manner of the paper's: a panel for each noise, a line for each method, a band over the seeds."""

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coteach.files import write_atomically
from coteach.names import MEASURES, METHOD_FACTS, METHOD_LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLOURS = {name: facts.colour for name, facts in METHOD_FACTS.items()}
MARKERS = {name: facts.marker for name, facts in METHOD_FACTS.items()}
# Figures are drawn at the width of a page, so that a point of type is a point.
WIDTH = 7.0  # inches
TITLE, TEXT = 9.0, 8.0  # points
INK, MUTED, GREY, GRID = "#222222", "#555555", "#8a8a8a", "#e3e3e3"
# Where a figure says something, these are what it says it of; every other line is grey.
COLOURED = ("standard", "coteaching", "coteaching_plus")
FEW_LINES = 4  # that need no grey
# Variants of a method differ in the dash.
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)), (0, (8, 4)), (0, (3, 1, 1, 1)))
MARKS_PER_LINE = 6
LONGEST_LABEL = 48  # letters
BAND_POINTS = 40  # of a band after its first epochs, in which most happens: it is only to be seen, not read
FIGURE_FORMATS = ("svg", "pdf", "png")

# Text stays text, and the same y_values give the same bytes.
SETTINGS = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "coteach",
    "path.simplify_threshold": 0.5,
    "font.sans-serif": ["DejaVu Sans"],
}
FONTS = "DejaVu Sans, sans-serif"
# What a reader with a dark screen sees instead, of a figure that has its own ground.
ON_DARK = {
    "#000000": "#e6e9ec", INK: "#e6e9ec", MUTED: "#b4bcc4", "#ffffff": "#15191d",
    GRID: "#2c343b", "#0072b2": "#3d9fdc", "#882255": "#cc5f94", "#332288": "#8f83e0",
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How a line looks."""

    colour: str
    dash: Any
    marker: str
    width: float = 1.4  # points

    def marked(self, n: int) -> tuple[int, int]:
        """The first of n points with a marker, and the step: lines on top of each other show both theirs."""
        step = max(1, n // MARKS_PER_LINE)
        return step * list(MARKERS.values()).index(self.marker) // len(MARKERS), step


def new_figure(
    rows: int, columns: int, height: float, width: float = WIDTH, **shared: Any
) -> tuple["Figure", np.ndarray]:
    """A grid of panels that fills so many inches, those of a row on one scale."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    options: dict[str, Any] = {"sharey": "row", "squeeze": False, "layout": "constrained"} | shared
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), **options)
    for ax in axes.flat:
        plain_panel(ax)
    return figure, axes


def plain_panel(ax: "Axes") -> None:
    """Small type, thin axes, a grid that stays behind what is drawn."""
    ax.grid(color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    for spine in ax.spines.values():
        spine.set(linewidth=0.6, color=MUTED)
    ax.tick_params(labelsize=TEXT, width=0.6, length=2.5, color=MUTED, labelcolor=INK)
    for text in (ax.xaxis.label, ax.yaxis.label):
        text.set(fontsize=TEXT, color=INK)
    ax.margins(x=0.01)


def name_panel(ax: "Axes", title: str) -> None:
    ax.set_title(short_label(title), fontsize=TEXT, color=INK, parse_math=False)


def draw_line(
    ax: "Axes", label: str, style: Style, epochs: list[int], values: np.ndarray, top: float = 100
) -> None:
    """The mean of seeds × epochs, and a band of one standard deviation that stays from 0 to `top`.

    A single seed is a thin line, and has no band.
    """
    alone = len(values) < 2
    mean, spread = values.mean(0), np.zeros(len(epochs)) if alone else values.std(0, ddof=1)
    ax.plot(
        epochs, mean, color=style.colour, linestyle=style.dash, label=short_label(label),
        linewidth=style.width * (0.65 if alone else 1), zorder=2.1 if style.colour == GREY else 2.3,
        marker=style.marker, markersize=3.6, markeredgewidth=0, markevery=style.marked(len(epochs)),
    )  # fmt: skip
    places: Any = ax.xaxis.get_major_locator()
    places.set_params(integer=True)
    if alone:
        return
    some = thinned(len(epochs))
    low, high = np.clip(mean - spread, 0, top), np.clip(mean + spread, 0, top)
    ax.fill_between(np.array(epochs)[some], low[some], high[some], color=style.colour, alpha=0.15, linewidth=0)


def short_label(name: str, most: int = LONGEST_LABEL) -> str:
    """Short enough to leave room for the lines, cut out of the middle."""
    name = "".join(c if c.isprintable() else " " for c in name)
    return name if len(name) <= most else f"{name[: most - most // 3]}…{name[1 - most // 3 :]}"


def thinned(n: int) -> np.ndarray:
    """Which of so many epochs a band is visible at."""
    return np.union1d(np.arange(min(n, 12)), np.linspace(0, n - 1, min(n, BAND_POINTS)).round().astype(int))


def tell(figure: "Figure", message: str, caption: str) -> None:
    """What a figure says above it, how it was measured below; before its lines are named, for it takes room."""
    if message:
        lines = wrapped(message, TITLE, "bold")
        figure.text(
            0.004, 1 - 2 / points_high(figure), lines, va="top", fontsize=TITLE, weight="bold", color=INK,
            parse_math=False, in_layout=False,
        )  # fmt: skip
        take_from_top(figure, 1.25 * TITLE * (1 + lines.count("\n")) + 4)
    if caption:
        lines = wrapped(caption, TEXT)
        figure.supxlabel(lines, x=0.004, ha="left", fontsize=TEXT, color=MUTED, parse_math=False)


def points_high(figure: "Figure") -> float:
    return 72 * figure.get_size_inches()[1]


def take_from_top(figure: "Figure", points: float) -> float:
    """Keep panels out of so many points below what was taken before; where that ended, from 0 to 1."""
    engine: Any = figure.get_layout_engine()
    left, bottom, width, height = engine.get()["rect"]
    engine.set(rect=(left, bottom, width, height - points / points_high(figure)))
    return bottom + height


def wrapped(text: str, size: float, weight: str = "normal") -> str:
    """In lines no wider than a page."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=SETTINGS["font.sans-serif"], weight=weight, size=size)
    lines = [""]
    for word in re.sub(r"± (?=\d)", "±\N{NO-BREAK SPACE}", text).split(" "):
        longer = f"{lines[-1]} {word}".strip()
        width, _, _ = text_to_path.get_text_width_height_descent(longer, font, ismath=False)
        if width > 0.95 * 72 * WIDTH and lines[-1]:  # hinted letters are a little wider
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def name_lines(figure: "Figure", axes: np.ndarray, columns: int = 4) -> None:
    """At their ends beside a single column of panels, if they are few enough; else in a legend."""
    if axes.shape[1] > 1 or not label_ends(figure, axes):
        add_legend(figure, axes, columns)


def add_legend(figure: "Figure", axes: np.ndarray, columns: int = 4) -> None:
    """One for all panels, above them, no wider than the figure: a method may be missing in some."""
    found: dict[str, Any] = {}
    for ax in axes.flat:
        handles, names = ax.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    columns = min(len(found), columns)
    legend = figure.legend(
        list(found.values()),
        list(found),
        loc="upper left",
        ncols=columns,
        frameon=False,
        fontsize=TEXT,
        labelcolor=INK,
        handlelength=2.6,
        columnspacing=1.6,
        borderpad=0.1,
        borderaxespad=0.2,
    )
    if columns > 1 and legend.get_window_extent().width > figure.bbox.width:
        legend.remove()
        add_legend(figure, axes, columns - 1)
        return
    legend.set_in_layout(False)
    points = 72 / figure.dpi * legend.get_window_extent().height + 6
    legend.set_bbox_to_anchor((0, take_from_top(figure, points)))


def line_styles(labels: Iterable[str], coloured: Iterable[str] | None = None) -> dict[str, Style]:
    """Its method's colour and marker for each label; variants, "method, variant", differ in the dash.

    If some methods are said to be coloured, the others are grey, where lines are more than a few.
    """
    labels = list(labels)
    of_method: dict[str, list[str]] = {}
    for label in labels:
        of_method.setdefault(method_of(label), []).append(label)
    spare = [name for name in COLOURS if name not in of_method] or list(COLOURS)
    looks = {name: name if name in COLOURS else spare[i % len(spare)] for i, name in enumerate(of_method)}
    grey = coloured is not None and len(labels) > FEW_LINES
    in_colour = set(coloured or ()) if grey else set(looks)
    return {
        label: Style(COLOURS[looks[method]], DASHES[k % len(DASHES)], MARKERS[looks[method]])
        if method in in_colour
        else Style(GREY, DASHES[k % len(DASHES)], MARKERS[looks[method]], 0.9)
        for method, same in of_method.items()
        for k, label in enumerate(same)
    }


def method_of(label: str) -> str:
    """The method that a label begins with, by its name or as tables have it; else what stands before the comma."""
    known = {text: name for name in COLOURS for text in (name, METHOD_LABELS[name])}
    fitting = [text for text in known if label == text or label.startswith(f"{text},")]
    return known[max(fitting, key=len)] if fitting else label.split(",")[0]


# ---- names at the ends of lines, each with a piece of its line, so that grey will do --------------------------

APART = 10.0  # points, as all lengths here, from one name to the next
SAMPLE = (9, 25)  # from the edge of the panel, where the piece of line begins and ends
NAME_AT = 28


def label_ends(figure: "Figure", axes: np.ndarray) -> bool:
    """Write the names of all lines at their ends; False, and nothing done, where they are too many for a panel."""
    figure.draw_without_rendering()  # so that panels have their height
    heights = {ax: 72 * ax.get_position().height * figure.get_size_inches()[1] for ax in axes.flat}
    if any(APART * (len(named_lines(ax)) - 2) > height for ax, height in heights.items()):
        return False
    for ax, height in heights.items():
        label_panel(figure, ax, height)
    return True


def named_lines(ax: "Axes") -> list["Line2D"]:
    """The lines that have a name and at least one point."""
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    return [line for line in lines if np.isfinite(y_values(line)).any()]


def y_values(line: "Line2D") -> np.ndarray:
    return np.asarray(line.get_ydata(), float)


def label_panel(figure: "Figure", ax: "Axes", height: float) -> None:
    ax.set_xlim(ax.get_xlim())  # a name must not move the panel
    ax.set_ylim(ax.get_ylim())
    lines = sorted(named_lines(ax), key=lambda line: -end(line)[1])
    wanted = [height * to_panel(ax, end(line))[1] for line in lines]
    places = spread_out(np.array(wanted[::-1]), APART, -APART / 2, height + APART / 2)[::-1]
    for line, place in zip(lines, places, strict=True):
        write_name(figure, ax, line, place / height)


def end(line: "Line2D") -> tuple[float, float]:
    last = np.flatnonzero(np.isfinite(y_values(line)))[-1]
    return float(np.asarray(line.get_xdata())[last]), float(y_values(line)[last])


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
    ax.text(
        1,
        place,
        str(line.get_label()),
        transform=beside(NAME_AT),
        va="center",
        fontsize=TEXT,
        color=INK,
        parse_math=False,
    )


# ---- files ----------------------------------------------------------------------------------------------------


def save(figure: "Figure", paths: Iterable[Path]) -> None:
    import matplotlib.pyplot as plt

    try:
        for path in paths:
            write_atomically(
                path, svg_file(figure) if path.suffix == ".svg" else drawn_as(figure, path.suffix[1:])
            )
    finally:  # pyplot would keep it, where a file cannot be written
        plt.close(figure)


def drawn_as(figure: "Figure", kind: str) -> bytes:
    """As pdf or png, without a date."""
    import matplotlib.pyplot as plt

    drawn = io.BytesIO()
    with plt.rc_context(SETTINGS):
        figure.savefig(drawn, format=kind, dpi=150, metadata={"CreationDate": None} if kind == "pdf" else None)
    return drawn.getvalue()


def svg_file(figure: "Figure") -> str:
    """With the colours that it has on a dark screen."""
    rules = "".join(
        f'[style*="{what}:{colour}"]{{{what}:{dark}!important}}'
        for colour, dark in ON_DARK.items()
        for what in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme:dark){{text,use{{fill:{ON_DARK[INK]}}}{rules}}}</style>"
    return re.sub(r"(<svg [^>]*>)", lambda found: f"{found[1]}\n{style}", svg_of(figure), count=1)


def svg_of(figure: "Figure") -> str:
    import matplotlib.pyplot as plt

    written = io.StringIO()
    with plt.rc_context(SETTINGS):
        figure.savefig(written, format="svg", dpi=150, metadata={"Date": None, "Creator": None})
    return compact(written.getvalue())


def compact(svg: str) -> str:
    """Places to a tenth of a point and nothing that only looks good in an editor: it is kept with the results."""

    def rounded(number: re.Match) -> str:
        return f"{round(float(number[0]), 1 if len(number[1]) > 1 else 2):g}"  # markers are of a few points

    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?(\d+)\.\d{3,}", rounded, tag[0]), svg)
    svg = re.sub(r' style="[^"]*"', lambda style: re.sub(r";? ?font-family:[^;\"]*|(?<=[:;]) ", "", style[0]), svg)
    svg = svg.replace("<svg ", f'<svg font-family="{FONTS}" ', 1)
    svg = svg.replace(" \nL ", "L").replace(' \n"', '"').replace('z\n"', 'z"')
    svg = re.sub(r"^ +", "", svg, flags=re.MULTILINE)
    found = 1
    while found:  # groups of nothing in common, from the innermost
        svg, found = re.subn(r"<g>\n((?:(?!</?g\b).)*?)</g>\n", r"\1", svg, flags=re.DOTALL)
    return svg


# ---- test accuracy over label precision, from rows of metrics.jsonl -------------------------------------------

Curves = dict[str, dict[str, list[dict]]]  # panel → label → rows of metrics.jsonl


def curves(panels: Curves, paths: list[Path], caption: str = "", coloured: Iterable[str] | None = None) -> None:
    """Test accuracy over label precision against the epoch, written to each path (its suffix is the format)."""
    figure, axes = new_figure(2, len(panels), 5.2, sharex=True)
    styles = line_styles(next(iter(panels.values())), coloured)
    for column, (panel, by_label) in enumerate(panels.items()):
        for row, measure in enumerate((accuracy, precision)):
            for label, style in styles.items():
                draw_line(axes[row, column], label, style, *by_epoch(by_label[label], measure))
        name_panel(axes[0, column], panel)
        axes[1, column].set_xlabel("epoch")
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("label precision (%)")
    tell(figure, "", caption)
    name_lines(figure, axes)
    save(figure, paths)


def accuracy(row: dict) -> float:
    return 100 * sum(row["test_accuracy"]) / len(row["test_accuracy"])


def precision(row: dict) -> float:
    return np.nan if row["label_precision"] is None else 100 * row["label_precision"]


def by_epoch(rows: list[dict], measure: Callable[[dict], float]) -> tuple[list[int], np.ndarray]:
    """The epochs, and the measure as an array of seeds × epochs."""
    seeds = sorted({row["seed"] for row in rows})
    epochs = sorted({row["epoch"] for row in rows})
    table = {(row["seed"], row["epoch"]): measure(row) for row in rows}
    return epochs, np.array([[table[seed, epoch] for epoch in epochs] for seed in seeds])


# ---- a row for each measure, a column for each noise ----------------------------------------------------------

Lines = dict[str, tuple[list[int], np.ndarray]]  # label → epochs, and seeds × epochs


@dataclass(frozen=True)
class Grid:
    """Rows of panels, each with all measures, and columns; `lines` of a row, a column and a measure."""

    rows: list[str]
    columns: list[str]
    measures: list[str]
    labels: list[str]
    lines: Callable[[str, str, str], Lines]
    words: Callable[[str], str] = str  # what a label is called


PANEL_HEIGHT = 1.4  # inches
AROUND = 1.1  # what legend, titles, epochs and caption take


def draw_grid(
    grid: Grid, paths: Iterable[Path], caption: str, message: str = "", coloured: Iterable[str] | None = None
) -> None:
    rows, columns = len(grid.rows) * len(grid.measures), len(grid.columns)
    figure, axes = new_figure(rows, columns, rows * PANEL_HEIGHT + AROUND, sharex="row", sharey=False)
    styles = line_styles(grid.labels, coloured)
    for row, block in zip(grid.rows, np.split(axes, len(grid.rows)), strict=True):
        for column, panels in zip(grid.columns, block.T, strict=True):
            for measure, ax in zip(grid.measures, panels, strict=True):
                lines = grid.lines(row, column, measure)
                for label, (epochs, values) in lines.items():
                    draw_line(ax, grid.words(label), styles[label], epochs, values, MEASURES[measure][1])
                if not lines:  # not measured (yet)
                    ax.set_axis_off()
                widen(ax, 0.02 * MEASURES[measure][1])
            name_column(panels, ", ".join(filter(None, (row, column))))
        for measure, panels in zip(grid.measures, block, strict=True):
            for ax in visible(panels)[:1]:
                ax.set_ylabel(MEASURES[measure][0])
    tell(figure, message, caption)
    name_lines(figure, axes, columns=4 if len(grid.labels) <= FEW_LINES else 3)
    save(figure, paths)


def widen(ax: Any, least: float) -> None:
    """An axis of at least that span: nearer by, the chance in a line that is flat looks like a mountain range."""
    low, high = ax.get_ylim()
    if high - low < least:
        middle = (low + high) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def name_column(panels: np.ndarray, title: str) -> None:
    """A title above, and epochs below."""
    for ax in visible(panels)[:1]:
        name_panel(ax, title)
    for ax in visible(panels)[:-1]:
        ax.tick_params(labelbottom=False)
    for ax in visible(panels)[-1:]:
        ax.set_xlabel("epoch")


def visible(panels: np.ndarray) -> list[Any]:
    return [ax for ax in panels if ax.axison]


def over_seeds(counts: Iterable[int], spread: str = "band: ± 1 standard deviation", alone: str = "thin") -> str:
    """What lines and bands are, or whatever else shows the spread, from how many seeds each has."""
    counts = list(counts)
    if max(counts) == 1:
        return "One seed"
    return f"Mean of {numbered(counts, 'seed')}, {spread}" + (f"; {alone}: one seed" if min(counts) == 1 else "")


def numbered(counts: Iterable[int], what: str) -> str:
    """3 seeds, or 1 to 3 seeds."""
    counts = list(counts)
    low, high = min(counts), max(counts)
    return f"{'' if low == high else f'{low} to '}{high} {what}{'s' * (high > 1)}"
