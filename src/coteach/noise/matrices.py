"""Transition matrices: Q[i, j] is the probability that a label of class i becomes j. C classes."""

from typing import Any

import numpy as np

from coteach.checks import check_labels, check_n_classes, check_rate


def symmetric(n_classes: int, rate: float) -> np.ndarray:
    """Q with `rate` spread evenly over the other classes.

    Elsewhere (DivideMix) a flip may draw the true label again: symmetric noise "r" there is r·(C-1)/C here.

    Parameters
    ----------
    n_classes : int
        C, two or more.
    rate : float
        From 0 to below 1.

    Returns
    -------
    matrix : float64 array of shape (C, C)

    Examples
    --------
    >>> symmetric(3, 0.5)
    array([[0.5 , 0.25, 0.25],
           [0.25, 0.5 , 0.25],
           [0.25, 0.25, 0.5 ]])
    """
    n_classes, rate = check_n_classes(n_classes), check_rate(rate)
    matrix = np.full((n_classes, n_classes), rate / (n_classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def pair(n_classes: int, rate: float) -> np.ndarray:
    """Q in which class i becomes i + 1 (the last class: 0) with probability `rate`.

    Parameters
    ----------
    n_classes : int
        C, two or more.
    rate : float
        From 0 to below 1.

    Returns
    -------
    matrix : float64 array of shape (C, C)

    Examples
    --------
    >>> pair(3, 0.25)
    array([[0.75, 0.25, 0.  ],
           [0.  , 0.75, 0.25],
           [0.25, 0.  , 0.75]])
    """
    return superclass_asymmetric(np.zeros(check_n_classes(n_classes), dtype=np.int64), rate)


def superclass_asymmetric(superclass: Any, rate: float) -> np.ndarray:
    """Q in which a class becomes the next one of its own superclass (the last: the first).

    Parameters
    ----------
    superclass : int array of shape (C,)
        The superclass of each class. The classes of one need not be neighbours: on CIFAR-100 they are not.
    rate : float
        From 0 to below 1.

    Returns
    -------
    matrix : float64 array of shape (C, C)

    Examples
    --------
    >>> superclass_asymmetric([0, 1, 0, 1], 0.25)[0]  # class 0 becomes 2
    array([0.75, 0.  , 0.25, 0.  ])
    """
    superclass, rate = check_labels(superclass), check_rate(rate)
    matrix = np.diag(np.full(len(superclass), 1 - rate))
    for group in np.unique(superclass):
        members = np.flatnonzero(superclass == group)
        if len(members) == 1:
            raise ValueError(
                f"class {members[0]} is alone in superclass {group}, so it has nothing to be mistaken for: "
                "merge superclasses, or give a matrix of your own."
            )
        matrix[members, np.roll(members, -1)] = rate
    return matrix


def check_matrix(matrix: Any) -> np.ndarray:
    """Return Q as float64, or raise a ValueError; float32 round-off in a sum is mended.

    Parameters
    ----------
    matrix : array-like of shape (C, C)
        Probabilities; each row sums to 1.

    Returns
    -------
    matrix : float64 array of shape (C, C)

    Examples
    --------
    >>> check_matrix([[0.9, 0.2], [0, 1]])
    Traceback (most recent call last):
    ValueError: row 0 of the matrix sums to 1.1: divide each row by its sum.
    """
    try:
        matrix = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("the matrix must be C rows of C numbers: give probabilities only.") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ValueError(
            f"the matrix must be C×C for C ≥ 2 classes, not of shape {matrix.shape}: give a row a class."
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise ValueError("the matrix has a negative, infinite or missing entry: give probabilities from 0 to 1.")
    total = matrix.sum(1, keepdims=True)
    off = np.abs(total - 1).ravel()
    if off.max() > 1e-5:
        row = int(off.argmax())
        raise ValueError(f"row {row} of the matrix sums to {total[row, 0]:g}: divide each row by its sum.")
    return np.where(np.abs(total - 1) > 1e-12, matrix / total, matrix)
