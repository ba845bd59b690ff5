"""Label flips, drawn sample by sample. M samples, C classes, F features."""

import warnings
from typing import Any, get_args

import numpy as np

from coteach.checks import check_labels
from coteach.names import Streams, check_name
from coteach.noise.arguments import check_n_classes, check_rate, random_state
from coteach.noise.instance import average_transition, instance_rows
from coteach.noise.matrices import check_matrix, pair, superclass_asymmetric, symmetric
from coteach.noise.multinomial import drawn, turns
from coteach.noise.record import KINDS, Noise


def corrupt(
    y: Any,
    kind: str,
    rate: float | None,
    n_classes: int | None = None,
    seed: int = 0,
    *,
    matrix: Any = None,
    superclass: Any = None,
    features: Any = None,
    stream: Streams = "1.17",
) -> Noise:
    """Flip labels; with seed 0 as the code of the Co-teaching+ authors does.

    Each label, in order, is one draw of NumPy's `RandomState(seed).multinomial` from its row of Q. A label that
    flips changes; elsewhere (DivideMix) symmetric noise may redraw the true label, so that its rate is r·(C-1)/C.

    Parameters
    ----------
    y : int array of shape (M,)
        True labels, 0 to C-1.
    kind : str
        "none" (or "clean"), "symmetric", "pair", "asymmetric" (inside superclasses), "instance" or "matrix".
    rate : float
        Share of labels to flip, from 0 to below 1; 0 or None with "none", not used with "matrix".
    n_classes : int, optional
        C; found from the matrix, the superclasses or the largest label if not given.
    seed : int
        Of the noise alone, from 0 to 2³²-1.
    matrix : array of shape (C, C)
        Q for kind "matrix".
    superclass : int array of shape (C,)
        Superclass of each class, for "asymmetric"; other kinds leave it unread.
    features : array of shape (M, ...)
        For "instance", see below; other kinds leave it unread.
    stream : {"1.17", "1.16"}
        The NumPy whose `multinomial` it is, whichever is installed: 1.17 to 2.4 use up no random number on a class
        that is impossible, those up to 1.16 and from 2.5 on do. Symmetric noise is the same in both.

    Returns
    -------
    noise : Noise
        Its `labels` and `clean` are of shape (M,), its `matrix` of shape (C, C).

    Notes
    -----
    Instance noise follows the part-dependent noise of Xia et al. (2020). The features are flattened to M×F,
    centred and scaled by their overall mean and standard deviation. Each sample gets its own flip rate q from
    a normal distribution around `rate` with standard deviation 0.1, drawn again until it lies in [0, 1]: this
    pulls rates near 0 or 1 inwards (0.2 to 0.206), except rate 0, which flips nothing. Each class i gets a
    standard normal F×C matrix W; a sample x of it becomes j ≠ i with probability q · softmax over j ≠ i of
    (x W)_j.

    Examples
    --------
    >>> noise = corrupt([0, 1, 2] * 100, "symmetric", 0.2)
    >>> noise.labels.shape, noise.matrix.shape, 0.1 < noise.rate < 0.3
    ((300,), (3, 3), True)
    >>> bool((noise.labels[noise.clean] == np.array([0, 1, 2] * 100)[noise.clean]).all())
    True
    """
    check_name("kind of noise", kind, KINDS)
    if matrix is not None and kind != "matrix":
        raise ValueError(
            f"a matrix was given but the noise is {kind!r}: use kind 'matrix', or leave the matrix out."
        )
    check_name("stream", stream, get_args(Streams))
    kind = "none" if kind == "clean" else kind
    random = random_state(seed)
    rate = None if rate is None else check_rate(rate)
    if n_classes is None and kind not in ("matrix", "asymmetric"):
        n_classes = _infer_classes(check_labels(y))
    nominal = _nominal_matrix(kind, rate, n_classes, matrix, superclass)
    true = check_labels(y, len(nominal))
    nominal_rate = float((1 - nominal[true, true]).mean()) if kind == "matrix" else float(rate or 0)
    _warn_if_uninformative(nominal, kind, nominal_rate)
    if kind == "instance":
        rows = instance_rows(true, len(nominal), nominal_rate, features, random)
        labels = drawn((turns(row, stream) for row in rows), len(nominal) - 1, random, len(true))
        nominal = average_transition(true, labels, len(nominal))
    else:
        turns_C = [list(turns(row, stream)) for row in nominal]
        labels = drawn((turns_C[label] for label in true), len(nominal) - 1, random, len(true))
    return Noise(labels, labels == true, nominal, nominal_rate, int(seed), kind)


def _nominal_matrix(kind: str, rate: Any, n_classes: Any, matrix: Any, superclass: Any) -> np.ndarray:
    """Q as asked for; for instance noise the symmetric one, which is its mean over many W."""
    if kind == "matrix":
        if matrix is None:
            raise ValueError("kind 'matrix' needs a matrix: pass matrix=Q, of shape (C, C).")
        nominal = check_matrix(matrix)
    elif kind == "asymmetric":
        if superclass is None:
            raise ValueError(
                "asymmetric noise needs the superclass of each class: pass superclass=, of shape (C,)."
            )
        nominal = superclass_asymmetric(superclass, rate)
    elif kind == "pair":
        nominal = pair(n_classes, rate)
    elif kind == "none":
        if rate not in (None, 0):
            raise ValueError(f"noise 'none' flips no label but the rate is {rate}: set it to 0, or choose a kind.")
        nominal = np.eye(check_n_classes(n_classes))
    else:
        nominal = symmetric(n_classes, rate)
    if n_classes not in (None, len(nominal)):
        raise ValueError(
            f"the noise is given for {len(nominal)} classes but n_classes is {n_classes}: make them agree."
        )
    return nominal


def _infer_classes(y: np.ndarray) -> int:
    if (y == y[0]).all():
        raise ValueError(f"all labels are {y[0]}, one class only: hand in two classes or more, or pass n_classes.")
    return int(y.max()) + 1


def _warn_if_uninformative(matrix: np.ndarray, kind: str, rate: float) -> None:
    wrong = matrix - np.diag(np.full(len(matrix), np.inf))
    lost = wrong.max(1) >= matrix.diagonal() - 1e-12
    if lost.any():
        warnings.warn(
            f"with {kind} noise at rate {rate:g} class {lost.argmax()} gets a wrong label at least as often "
            "as its own, so the labels carry no usable information: lower the rate.",
            stacklevel=3,
        )
