"""Which labels are suspect, by the quality that a ledger gave them. No torch: the report reads this too.

M samples, K suspects, C classes.
"""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from coteach.checks import is_whole


def checked_share(share: Any) -> float:
    """A share of the samples, or a sentence on what it should be."""
    if not (isinstance(share, Real) and 0 <= float(share) <= 1):
        hint = f"; the {share} worst are suspects(1).index[:{share}]" if is_whole(share) and share > 1 else ""
        raise ValueError(f"share is {share!r}: give a share of the samples from 0 to 1{hint}.")
    return float(share)


def lowest_quality(quality_M: np.ndarray, share: float) -> np.ndarray:
    """Indices of the `share` of samples of lowest quality, the worst first; ties go to the earlier sample."""
    return np.argsort(quality_M, kind="stable")[: round(share * len(quality_M))]


def average_precision(quality_M: np.ndarray, wrong_M: np.ndarray) -> float | None:
    """How well the labels of lowest quality are the wrong ones: precision averaged over the recall, 1 at best.

    Labels of the same quality are found together. None where no label is wrong.

    >>> average_precision(np.array([0.1, 0.2, 0.9]), np.array([True, False, True]))
    0.8333333333333333
    """
    if not wrong_M.any():
        return None
    order_M = np.argsort(quality_M, kind="stable")
    last_K = np.flatnonzero(np.diff(quality_M[order_M], append=np.inf))  # of those of the same quality
    found_K = wrong_M[order_M].cumsum()[last_K]
    return float((np.diff(found_K, prepend=0) * found_K / (last_K + 1)).sum() / found_K[-1])


@dataclass(frozen=True)
class Suspects:
    """The samples with doubtful labels, the worst first: arrays of shape (K,).

    Parameters
    ----------
    index : int array
        Their numbers among the training samples.
    given, suggested : array
        Their labels, and for each the likeliest other class.
    quality : float array
        From 0 (wrong) to 1.

    Examples
    --------
    >>> worst = suspects(np.array([0, 1, 1]), np.array([0.9, 0.2, 0.1]), np.array([1, 0, 0]), share=2 / 3)
    >>> len(worst), worst.index.tolist(), worst.suggested.tolist()
    (2, [2, 1], [0, 0])
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    quality: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


def suspects(given_M: np.ndarray, quality_M: np.ndarray, suggested_M: np.ndarray, share: float) -> Suspects:
    """The `share` of samples with the lowest quality; ties go to the earlier sample."""
    worst = lowest_quality(quality_M, share)
    return Suspects(worst, given_M[worst], suggested_M[worst], quality_M[worst])


def starved(share_C: np.ndarray, counts_C: np.ndarray) -> np.ndarray:
    """Marks classes (C) that are rarer than others, and whose kept share is under half the average.

    Neither by chance: a few samples say little, and where nothing can be learnt common classes may be left out.
    """
    known_C = np.isfinite(share_C)
    if not known_C.any():
        return known_C
    average = np.average(share_C[known_C], weights=counts_C[known_C])
    chance_C = np.sqrt(average * (1 - average) / np.maximum(counts_C, 1))
    rare_C = counts_C < counts_C.mean() - 2 * np.sqrt(counts_C.mean())
    return known_C & rare_C & (np.nan_to_num(share_C) < np.minimum(average / 2, average - 2 * chance_C))
