"""Tables as pictures: a number in every cell, and behind it a colour that says how much is gained or lost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coteach.figures import TEXT

# Grounds of text, so the same in the dark, where lines are brighter.
GAIN, LOSS, NEITHER = "#0a6fae", "#dd6f1c", "#fdfdfd"
FULL = 30.0  # points that have the whole colour


@dataclass(frozen=True)
class HeatCell:
    """A text, and the colour behind it."""

    text: str
    ground: str
    best: bool = False
    hatched: bool = False


def draw_heat(
    ax: Any, cells: dict[tuple[int, int], HeatCell], rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Each cell at its row and column, from the top left; what is not there stays empty."""
    from matplotlib.patches import Rectangle

    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, pad=3)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.xaxis.tick_top()
    ax.set_xticks([x + 0.5 for x in range(len(columns))], columns, fontsize=TEXT)
    ax.set_yticks([y + 0.5 for y in range(len(rows))], rows, fontsize=TEXT)
    for (row, column), cell in cells.items():
        box = Rectangle((column + 0.03, row + 0.04), 0.94, 0.92, facecolor=cell.ground, linewidth=0)
        if cell.hatched:
            box.set(hatch="////", hatch_linewidth=0.5, edgecolor=blended("#ffffff", cell.ground, 0.6))
        ax.add_patch(box)
        ax.text(
            column + 0.5, row + 0.52, cell.text, ha="center", va="center", fontsize=TEXT,
            color=readable_on(cell.ground), weight="bold" if cell.best else "normal", parse_math=False,
        )  # fmt: skip


def signed(points: float) -> str:
    """To the point, and nothing is neither more nor less."""
    return f"{points:+.0f}".replace("-", "−") if round(points) else "0"


def colour_of(points: float) -> str:
    """The more, the bluer; the less, the redder."""
    share = min(abs(points) / FULL, 1.0)
    return blended(GAIN if points > 0 else LOSS, NEITHER, share)


def blended(one: str, other: str, share: float) -> str:
    pairs = zip(channels(one), channels(other), strict=True)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def channels(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return red, green, blue


def readable_on(ground: str) -> str:
    """Ink that stays what it is where the page is dark, or white."""
    dark, light = "#020202", "#fefefe"
    return max((dark, light), key=lambda ink: contrast(ink, ground))


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    red, green, blue = (
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in channels(colour))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
