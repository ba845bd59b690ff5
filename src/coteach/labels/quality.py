"""How far each given label can be trusted, from probabilities that were made without it.

M samples, C classes.
"""

import numpy as np

TINY = 1e-12  # probability, so that a logarithm is finite
EVEN = 0.03  # added to both probabilities: a label that is twice as likely as an unlikely one is not yet sure


def of_given_labels(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """The probability of each given label, never quite 0: of (…, M, C) the shape (…, M)."""
    return np.clip(p_MC[..., np.arange(len(labels_M)), labels_M], TINY, 1)


def quality_of_labels(p_MC: np.ndarray, labels_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quality of each given label (M), and the likeliest class that it is not (M).

    The quality compares the two, from 0 (certainly the other) to 1; below ½ the other is likelier.

    >>> quality, suggested = quality_of_labels(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([0, 1]))
    >>> quality.round(2).tolist(), suggested.tolist()
    ([0.88, 0.31], [1, 0])
    """
    each_M = np.arange(len(labels_M))
    other_MC = p_MC.copy()
    other_MC[each_M, labels_M] = -1
    suggested_M = other_MC.argmax(1)
    given_M, other_M = p_MC[each_M, labels_M] + EVEN, p_MC[each_M, suggested_M] + EVEN
    return given_M / (given_M + other_M), suggested_M
