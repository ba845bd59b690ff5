"""Labels that came with a data set, against the truth about them. M samples, C classes."""

from typing import Any

import numpy as np

from coteach.checks import check_labels, check_same_length
from coteach.names import check_name
from coteach.noise.flips import average_transition
from coteach.noise.record import GIVEN_KINDS, Noise


def of_labels(given: Any, y: Any, n_classes: int | None = None, kind: str = "given") -> Noise:
    """What is wrong with labels that somebody gave: which ones, how many, and what became what.

    Parameters
    ----------
    given, y : int array of shape (M,)
        Labels as they were given, and true ones, 0 to C-1.
    n_classes : int, optional
        C; the highest label plus one if not given.
    kind : {"given", "human"}
        "human" if people gave them.

    Returns
    -------
    noise : Noise
        Its `matrix` is of shape (C, C): the share of each true class (row) that was given each label.

    Examples
    --------
    >>> noise = of_labels([0, 1, 1, 1], [0, 0, 1, 1])
    >>> noise.clean.tolist(), noise.rate
    ([True, False, True, True], 0.25)
    >>> noise.matrix
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    check_name("kind of given labels", kind, GIVEN_KINDS)
    labels, true = check_labels(given, n_classes), check_labels(y, n_classes)
    check_same_length(true, labels, "given ")
    n_classes = n_classes or 1 + int(max(labels.max(), true.max()))
    clean = labels == true
    return Noise(labels, clean, average_transition(true, labels, n_classes), float((~clean).mean()), 0, kind)


def no_better_than_chance(noise: Noise, y: np.ndarray) -> bool:
    """Whether given labels agree with the truth no more often than in any order: they may be in another one."""
    n_classes = len(noise.matrix)
    shares, true_shares = (np.bincount(labels, minlength=n_classes) / len(y) for labels in (noise.labels, y))
    chance = float(shares @ true_shares)
    return 1 - noise.rate <= chance + 3 * (chance * (1 - chance) / len(y)) ** 0.5
