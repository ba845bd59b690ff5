"""Histograms of the losses at some epochs, right labels against wrong ones, as small drawings for a page."""

import html
import math
from dataclasses import dataclass

import numpy as np

from coteach.labels.histograms import BINS, EDGES
from coteach.report.run_files import Run

MOST, KEY = 24, 6  # epochs that can be looked at, and those of them that are printed
WIDTH, HEIGHT, FOOT = 300, 150, 22
TICKS = (0.001, 0.01, 0.1, 1, 10)


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
    if place == 0:
        return f"below {EDGES[1]:.2g}"
    if place == BINS - 1:
        return f"above {EDGES[-2]:.2g}"
    return f"{math.sqrt(EDGES[place] * EDGES[place + 1]):.2g}"


def wrong_is_larger(frame: Frame) -> float:
    """The share of pairs; half of those within a bin."""
    below = frame.right.cumsum() - frame.right / 2
    return float((frame.wrong * below).sum() / (frame.wrong.sum() * frame.right.sum()))


def drawing(frame: Frame, truth_known: bool, title: str) -> str:
    """An SVG of both histograms, on one scale of counts: right filled, wrong an outline."""
    parts = {"right": frame.right, "wrong": frame.wrong} if truth_known else {"all": frame.right + frame.wrong}
    top = max(1, *(int(counts.max()) for counts in parts.values()))
    lines = "".join(f'<path class="{name}" d="{outline(counts, top)}"/>' for name, counts in parts.items())
    ticks = "".join(
        f'<path class="tick" d="M{x:.1f} {HEIGHT}v4"/><text x="{x:.1f}" y="{HEIGHT + 16}">{tick:g}</text>'
        for tick, x in ((tick, place_of(tick)) for tick in TICKS)
    )
    return (
        f'<svg class="histogram" viewBox="-4 -4 {WIDTH + 8} {HEIGHT + FOOT + 4}" role="img" '
        f'aria-label="{html.escape(title)}">{lines}<path class="tick" d="M0 {HEIGHT}H{WIDTH}"/>{ticks}</svg>'
    )


def place_of(loss: float) -> float:
    """Across: bins are equally wide, their edges ascend by factors."""
    return WIDTH * float(np.interp(math.log(loss), np.log(EDGES), np.arange(len(EDGES)))) / BINS


def outline(counts: np.ndarray, top: int) -> str:
    width = WIDTH / len(counts)
    heights = HEIGHT - HEIGHT * counts / top
    steps = "".join(f"V{height:.1f}h{width:.2f}" for height in heights)
    return f"M0 {HEIGHT}{steps}V{HEIGHT}"
