"""Figures in the manner of the paper's: a panel for each noise, a line for each method, a band over the seeds."""

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coteach.names import LABELS, METHOD_FACTS
from coteach.report.line_ends import label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {name: facts.colour for name, facts in METHOD_FACTS.items()}
MARKERS = {name: facts.marker for name, facts in METHOD_FACTS.items()}
# Variants of a method differ in the dash.
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 3)), (0, (8, 4)), (0, (3, 1, 1, 1)))
MARKS = 6  # of a line
BAND_POINTS = 40  # of a band after its first epochs, in which most happens: it is only to be seen, not read

LONGEST = 48  # letters of a name

FORMATS = ("svg", "pdf", "png")

# Text stays text, and the same numbers give the same bytes.
SETTINGS = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "coteach",
    "path.simplify_threshold": 0.5,
    "font.sans-serif": ["DejaVu Sans"],
}
FONTS = "DejaVu Sans, sans-serif"

Curves = dict[str, dict[str, list[dict]]]  # panel → label → rows of metrics.jsonl


@dataclass(frozen=True)
class Style:
    """How a line looks."""

    colour: str
    dash: Any
    marker: str

    def marked(self, n: int) -> tuple[int, int]:
        """The first of n points with a marker, and the step: lines on top of each other show both theirs."""
        step = max(1, n // MARKS)
        return step * list(MARKERS.values()).index(self.marker) // len(MARKERS), step


def curves(panels: Curves, paths: list[Path], title: str = "") -> None:
    """Test accuracy over label precision against the epoch, written to each path (its suffix is the format)."""
    figure, axes = new_figure(2, len(panels), (4.6, 3.2), sharex=True)
    styles = line_styles(next(iter(panels.values())))
    for column, (panel, by_label) in enumerate(panels.items()):
        for row, measure in enumerate((accuracy, precision)):
            for label, style in styles.items():
                draw_line(axes[row, column], label, style, *by_epoch(by_label[label], measure))
        axes[0, column].set_title(panel)
        axes[1, column].set_xlabel("epoch")
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("label precision (%)")
    name_lines(figure, axes)
    save(figure, paths, title)


def new_figure(rows: int, columns: int, size: tuple[float, float], **shared: Any) -> tuple["Figure", np.ndarray]:
    """A grid of panels of this size in inches, those of a row on one scale."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    inches = (size[0] * columns, size[1] * rows)
    options: dict[str, Any] = {"sharey": "row", "squeeze": False, "layout": "constrained"} | shared
    figure, axes = plt.subplots(rows, columns, figsize=inches, **options)
    for ax in axes.flat:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0.01)
    return figure, axes


def draw_line(
    ax: "Axes", label: str, style: Style, epochs: list[int], values: np.ndarray, top: float = 100
) -> None:
    """The mean of seeds × epochs, and a band of one standard deviation that stays from 0 to `top`."""
    mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(epochs))
    ax.plot(
        epochs, mean, color=style.colour, linestyle=style.dash, label=in_a_line(label), linewidth=1.4,
        marker=style.marker, markersize=4.5, markeredgewidth=0, markevery=style.marked(len(epochs)),
    )  # fmt: skip
    places: Any = ax.xaxis.get_major_locator()
    places.set_params(integer=True)
    some = thinned(len(epochs))
    low, high = np.clip(mean - spread, 0, top), np.clip(mean + spread, 0, top)
    ax.fill_between(np.array(epochs)[some], low[some], high[some], color=style.colour, alpha=0.12, linewidth=0)


def in_a_line(name: str) -> str:
    """Short enough to leave room for the lines, cut out of the middle."""
    name = "".join(c if c.isprintable() else " " for c in name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 16]}…{name[-15:]}"


def thinned(n: int) -> np.ndarray:
    """Which of so many epochs a band is drawn at."""
    return np.union1d(np.arange(min(n, 12)), np.linspace(0, n - 1, min(n, BAND_POINTS)).round().astype(int))


def name_lines(figure: "Figure", axes: np.ndarray, columns: int = 4) -> None:
    """At their ends, or where they are too many for that in a legend."""
    if not label_ends(figure, axes):
        add_legend(figure, axes, columns)


def add_legend(figure: "Figure", axes: np.ndarray, columns: int = 4) -> None:
    """One for all panels, above them: a method may be missing in some."""
    found: dict[str, Any] = {}
    for ax in axes.flat:
        handles, names = ax.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside upper center",
        ncols=min(len(found), columns),
        frameon=False,
        fontsize=9,
    )


def save(figure: "Figure", paths: Iterable[Path], title: str = "") -> None:
    import matplotlib.pyplot as plt

    if title:
        figure.supxlabel(title, fontsize=8, color="#555555", parse_math=False)
    for path in paths:
        if path.suffix == ".svg":
            path.write_text(svg_of(figure), encoding="utf-8")
        else:
            with plt.rc_context(SETTINGS):
                figure.savefig(path, dpi=150, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    plt.close(figure)


def as_svg(figure: "Figure") -> str:
    """Without a ground of its own, to be put into a page."""
    import matplotlib.pyplot as plt

    text = svg_of(figure, transparent=True)
    plt.close(figure)
    return text


def svg_of(figure: "Figure", **options: Any) -> str:
    import matplotlib.pyplot as plt

    written = io.StringIO()
    with plt.rc_context(SETTINGS):
        figure.savefig(written, format="svg", dpi=150, metadata={"Date": None, "Creator": None}, **options)
    return shortened(written.getvalue())


def shortened(svg: str) -> str:
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


def line_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Its method's colour and marker for each label; variants, "method, variant", differ in the dash."""
    of_method: dict[str, list[str]] = {}
    for label in labels:
        of_method.setdefault(method_of(label), []).append(label)
    spare = [name for name in COLOURS if name not in of_method] or list(COLOURS)
    looks = {name: name if name in COLOURS else spare[i % len(spare)] for i, name in enumerate(of_method)}
    return {
        label: Style(COLOURS[looks[method]], DASHES[k % len(DASHES)], MARKERS[looks[method]])
        for method, same in of_method.items()
        for k, label in enumerate(same)
    }


def method_of(label: str) -> str:
    """The method that a label begins with, by its name or as tables have it; else what stands before the comma."""
    known = {text: name for name in COLOURS for text in (name, LABELS[name])}
    fitting = [text for text in known if label == text or label.startswith(f"{text},")]
    return known[max(fitting, key=len)] if fitting else label.split(",")[0]


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
