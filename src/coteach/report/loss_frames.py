"""Histograms of the losses at some epochs, right labels against wrong ones, as small drawings for a page."""

import html
import math
from dataclasses import dataclass

import numpy as np

from coteach.metrics import LOSS_BINS, LOSS_EDGES
from coteach.report.run_files import Run

MOST, KEY = 24, 6  # epochs that can be looked at, and those of them that are printed
WIDTH, HEIGHT, FOOT = 300, 150, 22
LEFT, CUT = 38, 20  # room for the scale, and above it for bars that are cut off
TICKS = {0.001: "", 0.01: "0.01", 0.1: "0.1", 1: "1", 10: ""}  # the open bins' words need the room of two
OPEN = {0: f"below {LOSS_EDGES[1]:.2g}", LOSS_BINS - 1: f"above {LOSS_EDGES[-2]:.2g}"}
FAR = 1.5  # times the highest inner bin: an open bin above that is cut off


@dataclass(frozen=True, eq=False)
class Frame:
    """One epoch: how many losses, over networks and seeds, fall into each bin."""

    epoch: int
    right: np.ndarray
    wrong: np.ndarray
    key: bool


def frames_of(run: Run) -> list[Frame]:
    """Evenly over the epochs that are there, the first and the last among them."""
    by_epoch: dict[int, list[dict]] = {}
    for row in run.losses or []:
        by_epoch.setdefault(row["epoch"], []).append(row)
    epochs = sorted(by_epoch)
    shown = some_of(len(epochs), MOST)
    key = {int(shown[i]) for i in some_of(len(shown), KEY)}
    return [
        Frame(
            epochs[i],
            np.sum([row["right"] for row in by_epoch[epochs[i]]], 0),
            np.sum([row["wrong"] for row in by_epoch[epochs[i]]], 0),
            int(i) in key,
        )
        for i in shown
    ]


def some_of(n: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.zeros(0, int)


def in_words(frame: Frame, truth_known: bool) -> str:
    """Medians, and how well the loss tells wrong labels from right ones."""
    if not truth_known or not frame.wrong.sum() or not frame.right.sum():
        both = frame.right + frame.wrong
        return f"median {median_words(both)}" if both.sum() else "no finite loss"
    return (
        f"median {median_words(frame.right)} of right, {median_words(frame.wrong)} of wrong labels; "
        f"of a right and a wrong one, the wrong has the larger loss in "
        f"{100 * wrong_is_larger(frame):.1f} % of pairs"
    )


def median_words(counts: np.ndarray) -> str:
    """Within its bin, geometrically in the middle."""
    place = int(np.searchsorted(counts.cumsum(), counts.sum() / 2))
    return OPEN.get(place) or f"{math.sqrt(LOSS_EDGES[place] * LOSS_EDGES[place + 1]):.2g}"


def wrong_is_larger(frame: Frame) -> float:
    """The share of pairs; half of those within a bin."""
    below = frame.right.cumsum() - frame.right / 2
    return float((frame.wrong * below).sum() / (frame.wrong.sum() * frame.right.sum()))


# ---- drawing --------------------------------------------------------------------------------------------------


def drawing(frame: Frame, truth_known: bool, title: str) -> str:
    """An SVG of both histograms, on one scale of shares: right filled, wrong an outline."""
    parts = parts_of(frame, truth_known)
    top = highest(parts)
    bars = "".join(f'<path class="{name}" d="{outline(counts, top)}"/>' for name, counts in parts.items())
    cuts = "".join(cut_mark(place, words) for place, words in cut_off(frame, truth_known).items())
    return (
        f'<svg class="histogram" viewBox="{-LEFT} {-CUT} {LEFT + WIDTH + 4} {CUT + HEIGHT + FOOT}" role="img" '
        f'aria-label="{html.escape(title)}">{bars}{cuts}{scale(top / max(1, total(frame)))}</svg>'
    )


def parts_of(frame: Frame, truth_known: bool) -> dict[str, np.ndarray]:
    return {"right": frame.right, "wrong": frame.wrong} if truth_known else {"all": frame.right + frame.wrong}


def total(frame: Frame) -> int:
    return int(frame.right.sum() + frame.wrong.sum())


def highest(parts: dict[str, np.ndarray]) -> int:
    """The count at the top of the scale: of the inner bins, where an open one would dwarf them."""
    counts = np.array(list(parts.values()))
    every, inner = int(counts.max()), int(counts[:, 1:-1].max())
    return inner if every > FAR * inner > 0 else max(1, every)


def cut_off(frame: Frame, truth_known: bool) -> dict[int, str]:
    """The open bins that are too high for the scale, and what they hold of all samples."""
    parts = parts_of(frame, truth_known)
    found: dict[int, list[str]] = {}
    for name, counts in parts.items():
        for place in OPEN:
            if counts[place] > highest(parts):
                share = per_cent(counts[place] / total(frame))
                found.setdefault(place, []).append(f"{share} {name}" if truth_known else share)
    return {place: ", ".join(words) for place, words in found.items()}


def per_cent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def cut_mark(place: int, words: str) -> str:
    """Two strokes across a bar, and what it holds beside it."""
    x, width = WIDTH * place / LOSS_BINS, WIDTH / LOSS_BINS
    strokes = f"M{x - 3:.1f} {6 - CUT}l{width + 6:.1f} -4m0 5l{-width - 6:.1f} 4"
    at, anchor = (x + width + 6, "start") if place == 0 else (x - 6, "end")
    text = f'<text class="{anchor}" x="{at:.1f}" y="{11 - CUT}">{words}</text>'
    return f'<path class="gap" d="{strokes}"/><path class="tick" d="{strokes}"/>{text}'


def scale(top: float) -> str:
    """Below the losses, on the left the shares."""
    marks = "".join(f"M{place_of(tick):.1f} {HEIGHT}v4" for tick in TICKS)
    texts = [(place_of(tick), "middle", words) for tick, words in TICKS.items() if words]
    texts += [(0, "start", f"&lt; {LOSS_EDGES[1]:.2g}"), (WIDTH, "end", f"≥ {LOSS_EDGES[-2]:.2g}")]
    below = "".join(f'<text class="{at}" x="{x:.1f}" y="{HEIGHT + 16}">{words}</text>' for x, at, words in texts)
    beside = "".join(
        f'<text class="end" x="-7" y="{y + 4}">{words}</text>' for y, words in ((0, per_cent(top)), (HEIGHT, "0"))
    )
    return f'<path class="tick" d="M-4 0h4V{HEIGHT}h-4M0 {HEIGHT}H{WIDTH}{marks}"/>{below}{beside}'


def place_of(loss: float) -> float:
    """Across: bins are equally wide, their edges ascend by factors."""
    return WIDTH * float(np.interp(math.log(loss), np.log(LOSS_EDGES), np.arange(len(LOSS_EDGES)))) / LOSS_BINS


def outline(counts: np.ndarray, top: int) -> str:
    width = WIDTH / len(counts)
    heights = np.where(counts > top, -CUT, HEIGHT - HEIGHT * counts / top)
    steps = "".join(f"V{height:.1f}h{width:.2f}" for height in heights)
    return f"M0 {HEIGHT}{steps}V{HEIGHT}"
