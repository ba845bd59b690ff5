"""Label flips, drawn sample by sample as NumPy's multinomial does. M samples, C classes, F features."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, get_args

import numpy as np

from coteach.checks import check_labels, check_n_classes, check_rate, check_same_length, random_state
from coteach.names import Streams, check_name
from coteach.noise.matrices import check_matrix, pair, superclass_asymmetric, symmetric
from coteach.noise.record import KINDS, Noise

SPREAD = 0.1  # of the rates of flipping in instance noise


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
    stream: Streams = "1.16",
) -> Noise:
    """Make labels wrong on purpose; seed 0 gives the same flips as the code of the Co-teaching+ authors.

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
        Seed of the noise alone, from 0 to 2³²-1.
    matrix : array of shape (C, C)
        Q for kind "matrix".
    superclass : int array of shape (C,)
        Superclass of each class, for "asymmetric"; other kinds leave it unread.
    features : array of shape (M, ...)
        For "instance", see below; other kinds leave it unread.
    stream : {"1.16", "1.17"}
        The NumPy whose `multinomial` it is, whichever is installed: those up to 1.16 (the paper's results here and
        most likely the authors') and from 2.5 on use up a random number on a class that is impossible, 1.17 to 2.4
        do not. Symmetric noise is the same in both.

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
        labels = draw_labels((class_turns(row, stream) for row in rows), len(nominal) - 1, random, len(true))
        nominal = average_transition(true, labels, len(nominal))
    else:
        turns_C = [list(class_turns(row, stream)) for row in nominal]
        labels = draw_labels((turns_C[label] for label in true), len(nominal) - 1, random, len(true))
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


# ---- noise that depends on the features ------------------------------------------------------------------------


def instance_rows(y: np.ndarray, n_classes: int, rate: float, features: Any, random: Any) -> np.ndarray:
    """The label probabilities of each sample, of shape (M, C)."""
    if features is None:
        raise ValueError("instance noise needs the features: pass features=, one row per label.")
    features = np.asarray(features)
    if features.ndim < 2 or features.dtype.kind not in "biuf" or not np.isfinite(features).all():
        raise ValueError("features must be finite numbers, one row per label: fill or drop what is missing.")
    check_same_length(features, y)
    features = features.reshape(len(y), -1)
    mean = features.mean(dtype=np.float64)
    groups = [np.flatnonzero(y == label) for label in range(n_classes)]
    # A class at a time: CIFAR in float64 is more than a gigabyte.
    squares = sum(np.square(features[group] - mean).sum() for group in groups)
    scale = np.sqrt(squares / features.size) or 1.0
    flip = _truncated_normal(rate, len(y), random)
    rows = np.empty((len(y), n_classes))
    for label, group in enumerate(groups):
        weights = random.standard_normal((features.shape[1], n_classes))
        score = (features[group] - mean) / scale @ weights
        score[:, label] = -np.inf
        rows[group] = np.exp(score - score.max(1, keepdims=True))
    rows *= (flip / rows.sum(1))[:, None]
    rows[np.arange(len(y)), y] = 1 - flip
    return rows


def _truncated_normal(rate: float, n: int, random: Any) -> np.ndarray:
    if rate == 0:
        return np.zeros(n)
    flip = random.normal(rate, SPREAD, n)
    while (outside := (flip < 0) | (flip > 1)).any():
        flip[outside] = random.normal(rate, SPREAD, outside.sum())
    return flip


def average_transition(true: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    count = np.zeros((n_classes, n_classes))
    np.add.at(count, (true, labels), 1)
    absent = count.sum(1) == 0
    count[absent, absent] = 1
    return count / count.sum(1, keepdims=True)


# ---- multinomial, which is not the same in every NumPy ---------------------------------------------------------


class Turn(NamedTuple):
    """A class in its turn: whether it is this one, if it was none before, by one uniform number.

    As NumPy's binomial does it, by inversion from the commoner of the two answers: `common` and `rare` are their
    probabilities, and what round-off leaves between their sum and 1 is drawn again.
    """

    label: int
    common: float
    rare: float
    is_rare: bool

    def taken(self, uniform: Callable[[], float]) -> bool:
        u = uniform()
        while u - self.common > self.rare:
            u = uniform()
        return (u > self.common) == self.is_rare


def class_turns(row_C: np.ndarray, stream: Streams) -> Iterator[Turn]:
    """The classes in the order in which they are asked; the last is what is left if it is none of them."""
    left = 1.0
    for label, probability in enumerate(row_C[:-1].tolist()):
        p = probability / left if left else 0.0
        if p or stream == "1.16":
            rare = min(p, 1 - p)
            common = math.exp(math.log(1 - rare))
            yield Turn(label, common, rare * common / (1 - rare), p <= 0.5)
        left -= probability


def draw_labels(turns_M: Iterable[Iterable[Turn]], last: int, random: np.random.RandomState, n: int) -> np.ndarray:
    """A label for each of `n` samples: how many random numbers one uses up depends on its outcome."""
    uniform = random.random_sample
    labels = (next((turn.label for turn in turns if turn.taken(uniform)), last) for turns in turns_M)
    return np.fromiter(labels, np.int64, n)
