"""From opinions of labels to matrices: given against suggested, and how labels seem to flip.

M samples, C classes.
"""

import numpy as np

from coteach.labels.ledger import lowest_quality
from coteach.report.run_files import Run


def believed(given_M: np.ndarray, quality_M: np.ndarray, suggested_M: np.ndarray, share: float) -> np.ndarray:
    """class_M that each label is believed to be: of the most doubted the suggested one, else the given."""
    worst = lowest_quality(quality_M, share)
    true_M = given_M.copy()
    true_M[worst] = suggested_M[worst]
    return true_M


def counted(rows_M: np.ndarray, columns_M: np.ndarray, classes: int) -> np.ndarray:
    """count_CC of samples by two labels."""
    return np.bincount(rows_M * classes + columns_M, minlength=classes**2).reshape(classes, classes)


def shares(counts_CC: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; NaN in a row without samples."""
    totals_C1 = counts_CC.sum(1, keepdims=True)
    return np.divide(counts_CC, totals_C1, out=np.full(counts_CC.shape, np.nan), where=totals_C1 > 0)


def doubted_share(run: Run) -> float:
    """The share of labels that are taken to be wrong: what the method was told, else what is so."""
    assert run.noise is not None
    told = run.experiment.tau
    share = told if told is not None else run.noise.nominal_rate
    return min(max(float(share), 0.0), 1.0)


def confusion(run: Run) -> np.ndarray:
    """count_CC of [given label, believed label], over all seeds."""
    assert run.noise is not None
    given_M, classes = run.noise.labels, len(run.noise.matrix)
    total_CC = np.zeros((classes, classes), int)
    for opinion in run.opinions.values():
        true_M = believed(given_M, opinion.quality, opinion.suggested, doubted_share(run))
        total_CC += counted(given_M, true_M, classes)
    return total_CC
