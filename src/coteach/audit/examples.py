"""Trusted samples to hold beside a suspect: three of its given class, and three of the suggested one.

Each class has a few at hand, and each suspect is shown those that are most like it. S suspects, P samples at hand.
"""

from dataclasses import dataclass

import numpy as np

from coteach.audit.oddities import of_length_one
from coteach.audit.samples import LabelledSamples
from coteach.labels.ledger import Suspects

BESIDE = 3  # of each class
AT_HAND, MOST_AT_HAND = 12, 600  # of a class, and of all


@dataclass(frozen=True, eq=False)
class Examples:
    """Numbers of samples (P); for each suspect places among these, of its given and of its suggested class."""

    index: np.ndarray
    given: list[list[int]]
    suggested: list[list[int]]


def trusted_examples(
    samples: LabelledSamples, suspects: Suspects, trusted_M: np.ndarray, quality_M: np.ndarray
) -> Examples:
    """From the better half of what is trusted of each class; nobody is an example for itself."""
    classes = np.union1d(suspects.given, suspects.suggested).tolist()
    free_M = trusted_M.copy()
    free_M[suspects.index] = False
    each = max(BESIDE, min(AT_HAND, MOST_AT_HAND // max(1, len(classes))))
    of_class = {c: best_of(np.flatnonzero(free_M & (samples.y == c)), quality_M, each) for c in classes}
    index = np.concatenate([*of_class.values(), np.array([], dtype=np.int64)])
    first = dict(zip(classes, np.cumsum([0, *map(len, of_class.values())]).tolist(), strict=False))
    seen_SF, at_hand_PF = unit_vectors(samples.x, suspects.index, index)

    def beside(labels: np.ndarray) -> list[list[int]]:
        found: list[list[int]] = [[]] * len(suspects)
        for c in np.unique(labels).tolist():
            rows, places = np.flatnonzero(labels == c), slice(first[c], first[c] + len(of_class[c]))
            order = np.argsort(-(seen_SF[rows] @ at_hand_PF[places].T), axis=1, kind="stable")[:, :BESIDE]
            for s, nearest in zip(rows.tolist(), (first[c] + order).tolist(), strict=True):
                found[s] = nearest
        return found

    return Examples(index, beside(suspects.given), beside(suspects.suggested))


def best_of(index: np.ndarray, quality_M: np.ndarray, n: int) -> np.ndarray:
    """So many, evenly over the better half, so that they are not all alike."""
    best = index[np.argsort(-quality_M[index], kind="stable")][: max(n, len(index) // 2)]
    return best[np.unique(np.linspace(0, len(best) - 1, min(n, len(best))).astype(np.int64))]


def unit_vectors(x: np.ndarray, suspects: np.ndarray, at_hand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of features from their mean, so that products say what is alike (SF, PF); zeros for pixels."""
    if x.ndim != 2 or not len(at_hand):
        return np.zeros((len(suspects), 1)), np.zeros((len(at_hand), 1))
    some = x[at_hand]
    mean, scale = some.mean(0), some.std(0)
    scale = np.where(scale > 0, scale, 1)
    return of_length_one((x[suspects] - mean) / scale), of_length_one((some - mean) / scale)
