"""Two figures of all presets together: every method on every data set, and what we recommend, in one setting.

OUT/overview.svg and OUT/default.svg, from whatever cells are in the folder.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coteach.figures import (
    COLOURS,
    INK,
    MARKERS,
    TEXT,
    Style,
    draw_line,
    new_figure,
    numbered,
    over_seeds,
    save,
    spread_out,
    tell,
)
from coteach.paper.compare import UNUSUAL
from coteach.paper.figures import CellRecords, points
from coteach.paper.heat import NEITHER, HeatCell, colour_of, draw_heat, signed

THEN = {"loss": "softmax_twice", "warmup_loss": "cross_entropy"}


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of one data set, and how a fidelity is written there; None where it has other data, too."""

    label: str
    presets: tuple[str, ...]
    dataset: str
    usual: str = "authors"
    authors: str | None = "authors"
    warmup: int | None = None  # epochs with cross-entropy before another loss, if they had to be said


@dataclass(frozen=True)
class MethodRow:
    """A method as it is run in all columns, by what its cells have; `told`: it knows what nobody knows."""

    label: str
    method: str
    has: dict[str, Any] = field(default_factory=dict, hash=False)
    reading: str = "usual"
    told: bool = False

    def fits(self, s: dict[str, Any], group: ColumnGroup) -> bool:
        """Whether a summary is of this row: nothing is unusual but what is said."""
        fidelity = {"usual": group.usual, "authors": group.authors, "paper": "paper"}[self.reading]
        wanted = dict.fromkeys(UNUSUAL) | {"fidelity": fidelity} | self.has
        if group.warmup is not None and s.get("warmup_loss"):
            wanted["warmup"] = group.warmup
        if self.method.startswith("f_correction"):
            wanted["held_out"] = 0
        return s["method"] == self.method and all(s.get(key) == value for key, value in wanted.items())


STANDARD = MethodRow("Standard (%)", "standard")
RECOMMENDED = MethodRow("Co-teaching, recommended loss", "coteaching", THEN)
AS_AUTHORS = MethodRow("Co-teaching+, authors' code", "coteaching_plus", reading="authors")
METHOD_ROWS = (
    MethodRow("Decoupling", "decoupling"),
    MethodRow("F-correction", "f_correction"),
    MethodRow("F-correction, true matrix", "f_correction_known", told=True),
    MethodRow("MentorNet", "mentornet"),
    MethodRow("JoCoR", "jocor"),
    MethodRow("Co-teaching", "coteaching"),
    MethodRow("Co-teaching+, as published", "coteaching_plus", reading="paper"),
    AS_AUTHORS,
    MethodRow("Standard, recommended loss", "standard", THEN),
    MethodRow("Co-teaching, softmax twice", "coteaching", {"loss": "softmax_twice"}),
    RECOMMENDED,
)
COLUMN_GROUPS = (
    ColumnGroup("MNIST", ("mnist", "jocor", "ablation"), "mnist", warmup=20),
    ColumnGroup("CIFAR-10", ("cifar10", "jocor", "ablation"), "cifar10"),
    ColumnGroup("CIFAR-100", ("cifar100", "jocor", "ablation"), "cifar100"),
    ColumnGroup("NEWS\n(spaCy)", ("news", "ablation"), "news", "paper", None),
    ColumnGroup("NEWS\n(GloVe)", ("news-glove100",), "news", "paper", None),
    ColumnGroup("Tiny-ImageNet", ("tiny-imagenet",), "tiny-imagenet", *2 * ("authors-listed_classes",)),
    ColumnGroup("open set", ("openset",), "openset-cifar100", "paper", None),
)
COLUMN_NOISES = (("pair", 0.45), ("symmetric", 0.5), ("symmetric", 0.2), ("openset", 0.4))


def write_overview(records: CellRecords, out: Path) -> list[Path]:
    """Those of the two that there are cells for."""
    written = []
    if any(column_cells(records, group, noise) for group in COLUMN_GROUPS for noise in COLUMN_NOISES):
        draw_overview(records, out / "overview.svg")
        written.append(out / "overview.svg")
    if lines := recommended(records):
        draw_recommended(lines, out / "default.svg")
        written.append(out / "default.svg")
    return written


# ---- every method on every data set ---------------------------------------------------------------------------


def column_cells(
    records: CellRecords, group: ColumnGroup, noise: tuple[str, float]
) -> dict[MethodRow, dict[str, Any]]:
    """The summary of each row that was measured there, of several the one with the most seeds."""
    mine = [
        r["summary"]
        for r in records
        if r["preset"] in group.presets
        and r["summary"]["dataset"] == group.dataset
        and (r["summary"]["noise"], r["summary"]["rate"]) == noise
    ]
    found = {row: [s for s in mine if row.fits(s, group)] for row in (STANDARD, *METHOD_ROWS)}
    most = {row: max(some, key=lambda s: len(s["seeds"])) for row, some in found.items() if some}
    return most if STANDARD in most else {}


def draw_overview(records: CellRecords, path: Path) -> None:
    """Points over the network that learns every label, whose own accuracy is above."""
    known = {(g, n): cells for g in COLUMN_GROUPS for n in COLUMN_NOISES if (cells := column_cells(records, g, n))}
    rows = (STANDARD, *METHOD_ROWS)
    figure, axes = new_figure(1, 1, 4.7)
    cells = {
        (i, k): heat_cell(row, some)
        for k, some in enumerate(known.values())
        for i, row in enumerate(rows)
        if row in some
    }
    kinds = {"symmetric": "sym.", "openset": "open"}
    noises = [f"{kinds.get(kind, kind)} {100 * rate:g} %" for _, (kind, rate) in known]
    draw_heat(axes[0, 0], cells, [row.label for row in rows], noises)
    axes[0, 0].set_xticks(axes[0, 0].get_xticks(), noises, rotation=90, fontsize=TEXT)
    axes[0, 0].get_yticklabels()[rows.index(RECOMMENDED)].set_weight("bold")
    name_groups(axes[0, 0], known)
    tell(figure, overview_message(list(known.values())), OVERVIEW_CAPTION)
    save(figure, [path])


OVERVIEW_CAPTION = (
    "Points of test accuracy over Standard (in per cent), mean of the last ten epochs. Bold: the best method that "
    "does not know the true matrix. Empty: not measured, or not on the same data. Recommended loss: cross-entropy "
    "first (MNIST 20 epochs, CIFAR-10 19, CIFAR-100 4, open set 55; the default is 10), then softmax twice."
)


def overview_message(settings: list[dict[MethodRow, dict[str, Any]]]) -> str:
    """What the recommended row gains, and how often it is the best."""
    fair = [points_over(some) for some in settings if RECOMMENDED in some]
    if not fair:
        return ""
    gains = [over[RECOMMENDED] for over in fair]
    best = sum(over[RECOMMENDED] == max(over.values()) for over in fair)
    return (
        f"Recommended training: {min(gains):+.0f} to {max(gains):+.0f} points over a plain network, "
        f"the best in {best} of {len(fair)} settings"
    )


def heat_cell(row: MethodRow, some: dict[MethodRow, dict[str, Any]]) -> HeatCell:
    if row == STANDARD:
        return HeatCell(f"{some[row]['mean']:.0f}", NEITHER)
    over = points_over(some, told=True)
    fair = points_over(some)
    return HeatCell(signed(over[row]), colour_of(over[row]), best=fair.get(row) == max(fair.values()))


def points_over(some: dict[MethodRow, dict[str, Any]], *, told: bool = False) -> dict[MethodRow, float]:
    """Points of each method over Standard, of those alone that know what a user can know."""
    return {
        row: s["mean"] - some[STANDARD]["mean"]
        for row, s in some.items()
        if row != STANDARD and (told or not row.told)
    }


def name_groups(ax: Any, known: dict[tuple[ColumnGroup, Any], dict[MethodRow, dict[str, Any]]]) -> None:
    """The data sets under their columns, with a gap between, and how many seeds each cell has."""
    places: dict[ColumnGroup, list[int]] = {}
    for k, (group, _) in enumerate(known):
        places.setdefault(group, []).append(k)
    for group, columns in places.items():
        left, right = columns[0], columns[-1] + 1
        seeds = numbered([len(s["seeds"]) for k in columns for s in list(known.values())[k].values()], "seed")
        narrow = len(columns) == 1
        ax.annotate(
            f"{group.label}\n{seeds.replace(' to ', '–')}", ((left + right) / 2, len(METHOD_ROWS) + 1), (0, -3),
            textcoords="offset points", ha="center", va="top", fontsize=TEXT, color=INK,
            rotation=90 if narrow else 0, linespacing=1.1,
        )  # fmt: skip
        if left:
            ax.axvline(left, color="#777777", linewidth=0.8)


# ---- what we recommend, in one setting ------------------------------------------------------------------------

# Not the setting where it gains most: the one whose wrong labels are the authors' own, which others have published
# numbers for, and where its lead over Co-teaching+ is the smallest of the three.
SHOWN = COLUMN_GROUPS[1], ("symmetric", 0.2)
LINES = {
    RECOMMENDED: "Co-teaching,\nrecommended loss",
    AS_AUTHORS: "Co-teaching+,\nauthors' code",
    STANDARD: "Standard: learns\nevery label",
}
NAMES_APART = 33.0  # points from one name to the next, each of three lines


def recommended(records: CellRecords) -> CellRecords:
    """The records of the three lines, or nothing where one is missing."""
    chosen = column_cells(records, *SHOWN)
    lines = [next(r for r in records if r["summary"] is chosen[row]) for row in LINES if row in chosen]
    return lines if len(lines) == len(LINES) else []


def draw_recommended(lines: CellRecords, path: Path) -> None:
    figure, axes = new_figure(1, 1, 3.2)
    ax = axes[0, 0]
    ends = [r["summary"]["mean"] for r in lines]
    for row, record in zip(LINES, lines, strict=True):
        width = 2.2 if row == RECOMMENDED else 1.5
        style = Style(COLOURS[row.method], "-", MARKERS[row.method], width)
        draw_line(ax, row.label, style, *points(record, "test_accuracy"))
    last = len(points(lines[0], "test_accuracy")[0])
    ax.set_xlim(0, last)
    ax.set_xticks(range(0, last + 2, 50))
    ax.set_xlabel("epoch")
    ax.set_ylabel("test accuracy (%)")
    tell(figure, recommended_message(lines), recommended_caption(lines))
    name_ends(ax, ends, last)
    save(figure, [path])


def name_ends(ax: Any, ends: list[float], last: int) -> None:
    """In the colours of the lines, as near to their ends as they can be without touching."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    a_point = (high - low) / (72 * 2.0)  # the panel is about two inches high
    places = spread_out(np.array(ends[::-1]), NAMES_APART * a_point, low, high)[::-1]
    for (row, text), end, place in zip(LINES.items(), ends, places, strict=True):
        ax.annotate(
            f"{text}\n{end:.1f} %", (last, end), (12, (place - end) / a_point), textcoords="offset points",
            va="center", fontsize=TEXT, color=COLOURS[row.method],
            weight="bold" if row == RECOMMENDED else "normal",
            annotation_clip=False, arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": COLOURS[row.method]},
        )  # fmt: skip


def recommended_message(lines: CellRecords) -> str:
    """Whether what the networks knew in their best epoch is still there at the end."""
    ours, _, plain = lines
    stays = "stays at" if best_epoch(ours) - ours["summary"]["mean"] < 1 else "ends at"
    return (
        f"One label in five is wrong: a plain network falls from {best_epoch(plain):.0f} to "
        f"{plain['summary']['mean']:.0f} % test accuracy, "
        f"the recommended training {stays} {ours['summary']['mean']:.0f} %"
    )


def best_epoch(record: dict[str, Any]) -> float:
    """The highest mean over the seeds."""
    return float(points(record, "test_accuracy")[1].mean(0).max())


def recommended_caption(lines: CellRecords) -> str:
    spread = over_seeds(len(r["runs"]) for r in lines)
    return (
        f"CIFAR-10, symmetric 20 %, the paper's small CNN. {spread}; numbers: means of the last ten epochs. "
        "Recommended loss: cross-entropy for 19 epochs (the default has 10), then softmax twice. "
        "Of three kinds of noise, this one has the smallest lead over Co-teaching+."
    )
