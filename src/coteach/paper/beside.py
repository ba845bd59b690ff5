"""Ours and the published numbers as dots: a panel for each label set, a line for each method."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from coteach.figures import COLOURS, add_legend, name_panel, new_figure, over_seeds, save, tell
from coteach.names import METHOD_FACTS, METHOD_LABELS
from coteach.paper.compare import Target, compared

LINE = 0.4  # inches from one method to the next
DARK, GREY = "#333333", "#666666"


@dataclass(frozen=True)
class Mark:
    """How a number looks, what the legend says of it, and how far above its method's line it stands."""

    meaning: str
    shape: str
    above: float
    size: float = 5.5
    hollow: bool = True

    def look(self, colour: str) -> dict[str, Any]:
        inside = "white" if self.hollow else colour
        return {"marker": self.shape, "markersize": self.size, "color": colour, "markerfacecolor": inside}


OUR_MARKS = {  # by the key of a run
    "last": Mark("ours, last epoch", "o", 0.2, hollow=False),
    "ensemble": Mark("ours, mean of the last ten epochs", "o", 0.04),
}
KNOWN_MARKS = {  # by source
    "best": Mark("published, best test epoch", "D", -0.14, 4.5),
    "rerun": Mark("re-run by others, mean of their last ten epochs", "s", -0.28, 4.5),
}


def comparable(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The plain cells of each method on labels that people gave."""
    return [
        r
        for r in records
        if r["summary"]["noise"] == "human" and r["row"] == METHOD_LABELS[r["summary"]["method"]]
    ]


def draw_beside(records: list[dict[str, Any]], paths: list[Path]) -> None:
    """Draws the last epoch of each cell, its last ten, and the published numbers of its method."""
    methods = [name for name in METHOD_FACTS if name in {r["summary"]["method"] for r in records}]
    place = {name: -i for i, name in enumerate(methods)}
    columns = list(dict.fromkeys(r["column"] for r in records))
    lines = compared(records)
    figure, axes = new_figure(1, len(columns), LINE * len(methods) + 1.4)
    for ax, column in zip(axes[0], columns, strict=True):
        name_panel(ax, column)
        ax.set_xlabel("test accuracy (%)")
        ax.margins(x=0.08)
        ax.tick_params(axis="y", length=0)
        for record in records:
            if record["column"] == column:
                y = place[record["summary"]["method"]]
                draw_ours(ax, y, record)
                draw_known(ax, y, [line.target for line in lines if line.cell is record["summary"]])
    first = axes[0, 0]
    first.set_yticks(list(place.values()), [METHOD_LABELS[name] for name in place])
    first.set_ylim(0.5 - len(methods), 0.5)
    used = {line.target.source for line in lines if line.target}
    for mark in (*OUR_MARKS.values(), *(mark for source, mark in KNOWN_MARKS.items() if source in used)):
        first.plot([], [], linestyle="none", label=mark.meaning, **mark.look(DARK))  # for the legend
    spread = over_seeds([len(r["runs"]) for r in records], "± 1 standard deviation")
    message = "Labels that people gave: ours beside the published numbers"
    tell(figure, message, f"Ours: the networks' mean softmax. {spread}. Published: other networks.")
    add_legend(figure, axes, columns=2)
    save(figure, paths)


def draw_ours(ax: Any, y: float, record: dict[str, Any]) -> None:
    for key, mark in OUR_MARKS.items():
        values = [run[key] for run in record["runs"] if run.get(key) is not None]
        if values:
            spread = stdev(values) if len(values) > 1 else 0
            look = mark.look(COLOURS[record["summary"]["method"]])
            ax.errorbar(fmean(values), y + mark.above, xerr=spread, capsize=2, elinewidth=1.2, **look)


def draw_known(ax: Any, y: float, known: list[Target | None]) -> None:
    for target in filter(None, known):
        mark = KNOWN_MARKS[target.source]
        ax.plot(target.mean, y + mark.above, **mark.look(GREY))
