"""Histograms of a run's losses at some epochs, right labels against wrong ones, as small drawings for the page.

They are drawn here and not by matplotlib: a page may have hundreds of them, which follow its colours.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coteach.names import LOSS_BINS, LOSS_EDGES
from coteach.report.read import Run

MOST_FRAMES, KEY_FRAMES = 24, 6  # epochs that can be looked at, and those of them that are printed
WIDTH, HEIGHT, FOOT = 300, 150, 22
LEFT, CUT = 38, 20  # room for the scale, and above it for bars that are cut off
VIEW_BOX = f"{-LEFT} {-CUT} {LEFT + WIDTH + 4} {CUT + HEIGHT + FOOT}"
TICKS = {0.001: "", 0.01: "0.01", 0.1: "0.1", 1: "1", 10: ""}  # the open bins' words need the room of two
OPEN_BINS = {0: f"below {LOSS_EDGES[1]:.2g}", LOSS_BINS - 1: f"above {LOSS_EDGES[-2]:.2g}"}
CUT_ABOVE = 1.5  # times the highest inner bin: an open bin above that is cut off


@dataclass(frozen=True, eq=False)
class Frame:
    """One epoch: how many losses, over networks and seeds, fall into each bin; `key` if it is printed."""

    epoch: int
    right: np.ndarray
    wrong: np.ndarray
    key: bool

    @property
    def total(self) -> int:
        return int(self.right.sum() + self.wrong.sum())


def frames_of(run: Run) -> list[Frame]:
    """Evenly over the epochs that are there, the first and the last among them."""
    by_epoch: dict[int, list[dict]] = {}
    for row in run.losses or []:
        by_epoch.setdefault(row["epoch"], []).append(row)
    epochs = sorted(by_epoch)
    shown = evenly_spaced(len(epochs), MOST_FRAMES)
    key = {int(shown[i]) for i in evenly_spaced(len(shown), KEY_FRAMES)}
    return [
        Frame(
            epochs[i],
            np.sum([row["right"] for row in by_epoch[epochs[i]]], 0),
            np.sum([row["wrong"] for row in by_epoch[epochs[i]]], 0),
            int(i) in key,
        )
        for i in shown
    ]


def evenly_spaced(n: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.zeros(0, int)


# ---- in words -------------------------------------------------------------------------------------------------


def frame_caption(frame: Frame, truth_known: bool) -> str:
    cuts = cut_off(frame, truth_known).items()
    return "; ".join(
        [
            medians(frame, truth_known),
            *(f"the bar {OPEN_BINS[place]} is cut off (of all samples: {share})" for place, share in cuts),
        ]
    )


def medians(frame: Frame, truth_known: bool) -> str:
    """Medians, and how well the loss tells wrong labels from right ones."""
    if not truth_known or not frame.wrong.sum() or not frame.right.sum():
        both = frame.right + frame.wrong
        return f"median {median_words(both)}" if both.sum() else "no finite loss"
    return (
        f"median {median_words(frame.right)} for right and {median_words(frame.wrong)} for wrong labels; "
        f"the wrong label has the larger loss in {100 * wrong_is_larger(frame):.1f} % of pairs"
    )


def median_words(counts: np.ndarray) -> str:
    """Within its bin, geometrically in the middle."""
    place = int(np.searchsorted(counts.cumsum(), counts.sum() / 2))
    return OPEN_BINS.get(place) or f"{math.sqrt(LOSS_EDGES[place] * LOSS_EDGES[place + 1]):.2g}"


def wrong_is_larger(frame: Frame) -> float:
    """The share of pairs; half of those within a bin."""
    below = frame.right.cumsum() - frame.right / 2
    return float((frame.wrong * below).sum() / (frame.wrong.sum() * frame.right.sum()))


# ---- drawing --------------------------------------------------------------------------------------------------


class SvgText(NamedTuple):
    """A word of a drawing; `anchor` is a class of the page's style: start, middle or end."""

    anchor: str
    x: float
    y: int
    words: str


class CutMark(NamedTuple):
    """Two strokes across a bar that is cut off, and what it holds beside it."""

    strokes: str
    text: SvgText


@dataclass(frozen=True)
class Histogram:
    """What an SVG of both histograms is made of, on one scale of shares: right filled, wrong an outline."""

    bars: dict[str, str]  # class → path
    cuts: list[CutMark]
    axes: str
    texts: list[SvgText]


def histogram(frame: Frame, truth_known: bool) -> Histogram:
    counts = shown_counts(frame, truth_known)
    top = top_of(counts)
    return Histogram(
        {name: outline(some, top) for name, some in counts.items()},
        [cut_mark(place, words) for place, words in cut_off(frame, truth_known).items()],
        f"M-4 0h4V{HEIGHT}h-4M0 {HEIGHT}H{WIDTH}" + "".join(f"M{x_of(tick):.1f} {HEIGHT}v4" for tick in TICKS),
        axis_texts(top / max(1, frame.total)),
    )


def shown_counts(frame: Frame, truth_known: bool) -> dict[str, np.ndarray]:
    return {"right": frame.right, "wrong": frame.wrong} if truth_known else {"all": frame.right + frame.wrong}


def top_of(counts: dict[str, np.ndarray]) -> int:
    """The count at the top of the scale: of the inner bins, where an open one would dwarf them."""
    every = np.array(list(counts.values()))
    highest, inner = int(every.max()), int(every[:, 1:-1].max())
    return inner if highest > CUT_ABOVE * inner > 0 else max(1, highest)


def cut_off(frame: Frame, truth_known: bool) -> dict[int, str]:
    """The open bins that are too high for the scale, and what they hold of all samples."""
    counts = shown_counts(frame, truth_known)
    found: dict[int, list[str]] = {}
    for name, some in counts.items():
        for place in OPEN_BINS:
            if some[place] > top_of(counts):
                share = percentage(some[place] / frame.total)
                found.setdefault(place, []).append(f"{share} {name}" if truth_known else share)
    return {place: ", ".join(words) for place, words in found.items()}


def percentage(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def cut_mark(place: int, words: str) -> CutMark:
    x, width = WIDTH * place / LOSS_BINS, WIDTH / LOSS_BINS
    strokes = f"M{x - 3:.1f} {6 - CUT}l{width + 6:.1f} -4m0 5l{-width - 6:.1f} 4"
    at, anchor = (x + width + 6, "start") if place == 0 else (x - 6, "end")
    return CutMark(strokes, SvgText(anchor, at, 11 - CUT, words))


def axis_texts(top: float) -> list[SvgText]:
    """Below the losses, on the left the shares."""
    below = [("middle", x_of(tick), words) for tick, words in TICKS.items() if words]
    below += [("start", 0.0, f"< {LOSS_EDGES[1]:.2g}"), ("end", float(WIDTH), f"≥ {LOSS_EDGES[-2]:.2g}")]
    beside = [SvgText("end", -7, y + 4, words) for y, words in ((0, percentage(top)), (HEIGHT, "0"))]
    return [SvgText(anchor, x, HEIGHT + 16, words) for anchor, x, words in below] + beside


def x_of(loss: float) -> float:
    """Across: bins are equally wide, their edges ascend by factors."""
    return WIDTH * float(np.interp(math.log(loss), np.log(LOSS_EDGES), np.arange(len(LOSS_EDGES)))) / LOSS_BINS


def outline(counts: np.ndarray, top: int) -> str:
    width = WIDTH / len(counts)
    heights = np.where(counts > top, -CUT, HEIGHT - HEIGHT * counts / top)
    steps = "".join(f"V{height:.1f}h{width:.2f}" for height in heights)
    return f"M0 {HEIGHT}{steps}V{HEIGHT}"
