"""What figures call things, in words instead of flags, and what they say: read off the numbers they show."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from coteach.names import DATASET_LABELS, LOSS_LABELS

READINGS = {"paper": "as published", "authors": "authors' code"}
READING_PHRASES = {"as published": "as published", "authors' code": "with the authors' code"}
NETWORK_WORDS = {
    "mlp": "one hidden layer",
    "mlp3": "two hidden layers",
    "small_cnn": "small CNN",
    "cnn7": "7-layer CNN",
    "cnn7_printed": "7-layer CNN as printed",
    "cnn7_dense": "7-layer CNN, dense",
}
DETAILS = {"Q known": "true matrix", "warmup 0": "no warm-up"}


def plain_words(label: str) -> str:
    """A label of tables in words.

    >>> plain_words("Co-teaching+, paper+softmax_twice, network cnn7")
    'Co-teaching+, as published + softmax twice'
    >>> plain_words("Co-teaching, softmax_twice after cross_entropy")
    'Co-teaching, cross-entropy, then softmax twice'
    """
    words = (in_words(part) for part in label.split(", "))
    return ", ".join(word for word in words if word)


def in_words(part: str) -> str:
    if part.startswith("network ") or part == "last epoch":  # in the title of a panel; as all are measured
        return ""
    loss, _, before = part.partition(" after ")
    if loss in LOSS_LABELS:
        return f"{LOSS_LABELS[before]}, then {LOSS_LABELS[loss]}" if before else LOSS_LABELS[loss]
    if part.partition("+")[0].partition("-")[0] in READINGS:
        return reading_words(part)
    if found := re.fullmatch(r"Q̂ after (\d+) epochs", part):
        return f"estimate of epoch {found[1]}"
    known = DETAILS | DATASET_LABELS | NETWORK_WORDS
    return known.get(part, part)


def reading_words(fidelity: str) -> str:
    """A fidelity with what was added to it, or taken away; the order of Tiny-ImageNet's classes is no reading."""
    base, *turns = re.split(r"(?=[+-])", fidelity.removesuffix("-listed_classes"))
    signs = {"+": "+", "-": "−"}
    return " ".join([READINGS[base], *(f"{signs[turn[0]]} {turn[1:].replace('_', ' ')}" for turn in turns)])


def noise_of(s: dict[str, Any]) -> str:
    kind = {"openset": "open set"}.get(s["noise"], s["noise"])
    return f"{kind} {100 * s['rate']:g} %" if s["rate"] is not None else kind


def points_words(points: Iterable[float]) -> str:
    """One difference, or from the lowest to the highest.

    >>> points_words([0.24, -14.6])
    '−14.6 to +0.2'
    """
    low, high = min(points := list(points)), max(points)
    texts = list(dict.fromkeys(f"{value:+.1f}".replace("-", "−") for value in (low, high)))
    return " to ".join(texts)


# ---- messages -------------------------------------------------------------------------------------------------

Settings = Iterable[list[dict[str, Any]]]  # the records of each panel


def over_coteaching(settings: Settings) -> str:
    """What Co-teaching+ is worth against Co-teaching beside it, in either reading; nothing without both."""
    gains: dict[str, list[float]] = {}
    for panel in settings:
        plain = [r["summary"] for r in panel if r["summary"].get("loss") is None]
        base = [s["mean"] for s in plain if s["method"] == "coteaching"]
        for s in plain:
            if base and s["method"] == "coteaching_plus":
                gains.setdefault(reading_words(s["fidelity"]), []).append(s["mean"] - base[0])
    known = [
        f"{points_words(gains[name])} points {READING_PHRASES[name]}" for name in READING_PHRASES if name in gains
    ]
    return f"Co-teaching+ against Co-teaching: {', '.join(known)}" if known else ""


def apart_again(curves: Iterable[np.ndarray]) -> str:
    """Whether networks that converge stay together, of curves of their distance, seeds × epochs."""
    times = [float(curve.mean(0)[-10:].mean() / curve.mean(0).min()) for curve in curves]
    if not times or min(times) < 1.2:
        return ""
    low, high = f"{min(times):.1f}", f"{max(times):.1f}"
    how = low if low == high else f"{low} to {high}"
    return f"Co-teaching's networks do not converge: they end {how} times as far apart as at their closest"


def best_pair(cells: dict[tuple[str, str], dict[str, float]]) -> str:
    """Which pair of rule and loss is the best in most settings, from the accuracy of each by setting."""
    settings = list(dict.fromkeys(name for by_setting in cells.values() for name in by_setting))
    winners = [
        max((pair for pair in cells if name in cells[pair]), key=lambda p: cells[p][name]) for name in settings
    ]
    often = max(winners, key=winners.count)
    if winners.count(often) * 2 > len(settings):
        return f"{often[0]} with {often[1]} is the best of these in {of_all(winners.count(often), len(settings))}"
    rules = [rule for rule, _ in winners]
    rule = max(rules, key=rules.count)
    return (
        f"{rule} is the best of these in {of_all(rules.count(rule), len(settings))}, not always with the same loss"
    )


def of_all(some: int, n: int) -> str:
    return f"all {n} settings" if some == n else f"{some} of {n} settings"


def share_of_the_gap(begin: Iterable[float], there: Iterable[float], end: Iterable[float]) -> str:
    """How much of the gain from the paper to the authors' code comes from one switch alone."""
    shares = [100 * (b - a) / (c - a) for a, b, c in zip(begin, there, end, strict=True)]
    return f"softmax twice alone closes {min(shares):.0f} to {max(shares):.0f} % of the gap to the authors' code"
