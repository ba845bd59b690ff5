"""How far each given label can be trusted, from probabilities that were made without it.

O opinions, M samples, C classes.
"""

from collections.abc import Sequence

import numpy as np

TINY = 1e-12  # probability, so that a logarithm is finite
NEGLIGIBLE = 0.001  # probability, below which ratios no longer count
SELDOM_GIVEN = 5  # samples of a class, below which it may be rare


def of_given_labels(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """The probability of each given label, never quite 0: of (…, M, C) the shape (…, M)."""
    return np.clip(p_MC[..., np.arange(len(labels_M)), labels_M], TINY, 1)


def quality_of_labels(opinions: Sequence[np.ndarray], labels_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quality of each given label (M), and the likeliest class that it is not (M), by opinions (MC) together.

    Who learnt from wrong labels leans towards the classes that are given too often, and doubts the others. So each
    probability is set against what samples given as that class have of it on average, as in confident learning
    (Northcutt et al., 2021): by the logarithm of their ratio, and by their difference. The ratio finds more where
    labels are wrong by chance, the difference where wrong labels follow the features; the opinions' means of both
    are added. Quality lies between 0 and 1, and below ½ another class is likelier, against what is usual.

    >>> p = np.array([[0.9, 0.1], [0.7, 0.3], [0.8, 0.2]])  # nothing is called 1
    >>> quality, suggested = quality_of_labels([p], np.array([0, 1, 0]))
    >>> quality.round(2).tolist(), suggested.tolist()
    ([0.8, 0.59, 0.6], [1, 0, 1])
    """
    score_MC = scores_of_classes(opinions, labels_M)
    each_M = np.arange(len(labels_M))
    given_M = score_MC[each_M, labels_M]
    score_MC[each_M, labels_M] = -np.inf
    suggested_M = score_MC.argmax(1)
    return 1 / (1 + np.exp(score_MC[each_M, suggested_M] - given_M)), suggested_M


def likeliest_classes(opinions: Sequence[np.ndarray], labels_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest class of each sample when its given label counts as well (M), and its lead (M).

    A given label speaks for a class as far as samples of that class are given it: the noise's transition matrix,
    which the opinions tell. The lead is the probability of the likeliest class less that of the next.

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7]])  # the third is given wrongly
    >>> classes, lead = likeliest_classes([p], np.array([0, 0, 1, 1, 1]))
    >>> classes.tolist(), lead.round(1).tolist()
    ([0, 0, 0, 1, 1], [1.0, 0.9, 0.2, 1.0, 0.9])
    """
    score_MC = scores_of_classes(opinions, labels_M)
    given_as_CC = np.zeros((score_MC.shape[1],) * 2)  # from a class to what its samples are given as
    np.add.at(given_as_CC.T, labels_M, softmax(score_MC))
    given_as_CC /= given_as_CC.sum(1, keepdims=True)
    p_MC = softmax(score_MC + np.log(given_as_CC[:, labels_M].T + NEGLIGIBLE))
    next_M, best_M = np.sort(p_MC, axis=1)[:, -2:].T
    return p_MC.argmax(1), best_M - next_M


def softmax(score_MC: np.ndarray) -> np.ndarray:
    e_MC = np.exp(score_MC - score_MC.max(1, keepdims=True))
    return e_MC / e_MC.sum(1, keepdims=True)


def scores_of_classes(opinions: Sequence[np.ndarray], labels_M: np.ndarray) -> np.ndarray:
    """The mean of what the opinions say of each class (MC)."""
    return np.mean([against_what_is_usual(p_MC, labels_M) for p_MC in opinions], axis=0)


def against_what_is_usual(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """By how much each class is likelier than is usual (MC); a given label by its own usual probability."""
    usual_C, each_M = usual_of_classes(p_MC, labels_M), np.arange(len(labels_M))
    score_MC = likelier(p_MC, raised_where_few(usual_C, p_MC, labels_M))
    score_MC[each_M, labels_M] = likelier(p_MC[each_M, labels_M], usual_C[labels_M])
    return score_MC


def likelier(p: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """The logarithm of the ratio, plus the difference."""
    return np.log((p + NEGLIGIBLE) / (usual + NEGLIGIBLE)) + p - usual


def raised_where_few(usual_C: np.ndarray, p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """What is usual of each class, but of a rare one at least what is usual of all others together (C).

    A model hardly learns a rare class: to its own few samples it is as unlikely as to any other. By its own usual
    probability it would be suggested for nearly all of them.
    """
    given_C = np.bincount(labels_M, minlength=len(usual_C))
    rare_C = given_C < min(SELDOM_GIVEN, given_C.mean() / 2)
    of_others = of_given_labels(p_MC, labels_M)[~rare_C[labels_M]].mean()
    return np.where(rare_C, np.maximum(usual_C, of_others), usual_C)


def usual_of_classes(p_MC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """The mean probability of each class among samples given as it (C); 1 for a class that nobody was given.

    >>> usual_of_classes(np.array([[0.8, 0.2], [0.6, 0.4], [0.7, 0.3]]), np.array([0, 0, 1])).round(2).tolist()
    [0.7, 0.3]
    """
    n_classes = p_MC.shape[1]
    given_C = np.bincount(labels_M, minlength=n_classes)
    sum_C = np.bincount(labels_M, of_given_labels(p_MC, labels_M), n_classes)
    return np.where(given_C > 0, sum_C / np.maximum(given_C, 1), 1.0)
