"""How far each given label can be trusted, from probabilities that were made without it.

O opinions, M samples, C classes.
"""

from collections.abc import Sequence

import numpy as np

TINY = 1e-12  # probability, so that a logarithm is finite
EVEN = 0.03  # added to both probabilities: a label that is twice as likely as an unlikely one is not yet sure
STEEP = 4.0  # of the curve that brings quality between 0 and 1


def of_given_labels(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """The probability of each given label, never quite 0: of (…, M, C) the shape (…, M)."""
    return np.clip(p_MC[..., np.arange(len(labels_M)), labels_M], TINY, 1)


def quality_of_labels(opinions: Sequence[np.ndarray], labels_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quality of each given label (M), and the likeliest class that it is not (M), by opinions (MC) together.

    Who learnt from wrong labels leans towards the classes that are given too often, and doubts the others. So each
    probability is set against what samples given as that class have of it on average, as in confident learning
    (Northcutt et al., 2021): by their ratio, and by their difference. The ratio is better where many classes share
    the probability, the difference where wrong labels follow the features; here they count alike.
    Quality lies between 0 and 1, and below ½ the other class is likelier, against what is usual.

    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.8, 0.2]])  # nothing is called 1
    >>> quality, suggested = quality_of_labels([p], np.array([0, 1, 0]))
    >>> quality.round(2).tolist(), suggested.tolist()
    ([0.88, 0.69, 0.63], [1, 0, 1])
    """
    against_MC = np.mean([against_classes(p_MC, labels_M) for p_MC in opinions], axis=0)
    excess_MC = np.mean([p_MC - usual_of_classes(p_MC, labels_M) for p_MC in opinions], axis=0)
    each_M = np.arange(len(labels_M))
    other_MC = against_MC + excess_MC
    other_MC[each_M, labels_M] = -np.inf
    suggested_M = other_MC.argmax(1)
    given_M, other_M = (against_MC[each_M, class_M] + EVEN for class_M in (labels_M, suggested_M))
    ratio_M = given_M / (given_M + other_M) - 0.5
    difference_M = excess_MC[each_M, labels_M] - excess_MC[each_M, suggested_M]
    return 1 / (1 + np.exp(-STEEP * (ratio_M + difference_M))), suggested_M


def usual_of_classes(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """The mean probability of each class among samples given as it (C); 1 for a class that nobody was given.

    >>> usual_of_classes(np.array([[0.8, 0.2], [0.6, 0.4], [0.7, 0.3]]), np.array([0, 0, 1])).round(2).tolist()
    [0.7, 0.3]
    """
    n_classes = p_MC.shape[1]
    given_C = np.bincount(labels_M, minlength=n_classes)
    sum_C = np.bincount(labels_M, of_given_labels(p_MC, labels_M), n_classes)
    return np.where(given_C > 0, sum_C / np.maximum(given_C, 1), 1.0)


def against_classes(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """Probabilities, each divided by what is usual of its class (MC)."""
    against_MC = np.maximum(p_MC, TINY) / usual_of_classes(p_MC, labels_M)
    return against_MC / against_MC.sum(1, keepdims=True)
