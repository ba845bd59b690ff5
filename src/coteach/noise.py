"""Wrong labels on purpose: transition matrices, label flips and open-set images, drawn from a noise seed.

M samples, C classes, F features. Q[i, j] is the probability that a label of class i becomes j.
"""

import difflib
import hashlib
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coteach.checks import check_labels, check_same_length

KINDS = ("none", "clean", "symmetric", "pair", "asymmetric", "instance", "matrix")
FORMAT = "coteach.noise/1"
TENSORS = {"labels": ("I64", 1), "clean": ("BOOL", 1), "matrix": ("F64", 2)}  # type and number of dimensions
INSTANCE_SPREAD = 0.1


@dataclass(frozen=True, eq=False)
class Noise:
    """Noisy labels and the truth about them.

    Attributes
    ----------
    labels : int64 array of shape (M,)
    clean : bool array of shape (M,), true where the label kept its true value
    matrix : float64 array of shape (C, C), the Q drawn from (instance noise: the shares that came out)
    nominal_rate : float, the share of flips asked for (kind "matrix": the share Q makes on average)
    seed : int
    kind : str
    """

    labels: np.ndarray
    clean: np.ndarray
    matrix: np.ndarray
    nominal_rate: float
    seed: int
    kind: str

    @property
    def rate(self) -> float:
        """The share of labels that were flipped."""
        return float((~self.clean).mean())

    @property
    def sha256(self) -> str:
        """Of the labels as little-endian int64."""
        return hashlib.sha256(self.labels.astype("<i8").tobytes()).hexdigest()

    def save(self, path: str | os.PathLike) -> None:
        """Write one safetensors file, under a temporary name first."""
        path = Path(path)
        facts = {"kind": self.kind, "seed": str(self.seed), "nominal_rate": repr(self.nominal_rate)}
        facts |= {"format": FORMAT, "sha256": self.sha256, "checksum": self._checksum()}
        tensors = {name: np.ascontiguousarray(getattr(self, name)) for name in TENSORS}
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            unfinished.write_bytes(save(tensors, facts))
            unfinished.replace(path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise ValueError(f"{path} cannot be written ({error.strerror}): choose another place") from error

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Noise":
        """Read what `save` wrote; anything else is a ValueError that names the file."""
        try:
            noise, facts = _read(path)
            if noise.sha256 != facts["sha256"]:
                raise ValueError("its labels do not match their hash")
            if noise._checksum() != facts["checksum"]:
                raise ValueError("its contents do not match their checksum")
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} is not a sound noise file ({reason}): draw and save it again") from error
        return noise

    def _checksum(self) -> str:
        """Of everything, since a damaged mask or matrix would not change the hash of the labels."""
        digest = hashlib.sha256(f"{self.kind} {self.seed} {self.nominal_rate!r}".encode())
        for values in (self.labels.astype("<i8"), self.clean, self.matrix.astype("<f8")):
            digest.update(values.tobytes())
        return digest.hexdigest()


def symmetric(n_classes: int, rate: float) -> np.ndarray:
    """Q with `rate` spread evenly over the other classes, of shape (C, C).

    Elsewhere (DivideMix) a flip may draw the true label again: symmetric noise "r" there is r·(C-1)/C here.
    """
    n_classes, rate = _check_n_classes(n_classes), _check_rate(rate)
    matrix = np.full((n_classes, n_classes), rate / (n_classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return matrix


def pair(n_classes: int, rate: float) -> np.ndarray:
    """Q in which class i becomes i + 1 (the last class: 0) with probability `rate`, of shape (C, C)."""
    return superclass_asymmetric(np.zeros(_check_n_classes(n_classes), dtype=np.int64), rate)


def superclass_asymmetric(superclass: Any, rate: float) -> np.ndarray:
    """Q in which a class becomes the next one of its own superclass (the last: the first), of shape (C, C).

    Parameters
    ----------
    superclass : int array of shape (C,)
        The superclass of each class. The classes of one need not be neighbours: on CIFAR-100 they are not.
    rate : float
    """
    superclass, rate = check_labels(superclass), _check_rate(rate)
    matrix = np.diag(np.full(len(superclass), 1 - rate))
    for group in np.unique(superclass):
        members = np.flatnonzero(superclass == group)
        if len(members) == 1:
            raise ValueError(
                f"class {members[0]} is alone in superclass {group}, so it has nothing to be mistaken for: "
                "merge superclasses, or give a matrix of your own"
            )
        matrix[members, np.roll(members, -1)] = rate
    return matrix


def check_matrix(matrix: Any) -> np.ndarray:
    """Return Q as float64 of shape (C, C), or raise a ValueError; float32 round-off in a sum is mended."""
    try:
        matrix = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("the matrix must be C rows of C numbers: give probabilities only") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ValueError(
            f"the matrix must be C×C for C ≥ 2 classes, not of shape {matrix.shape}: give a row a class"
        )
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise ValueError("the matrix has a negative, infinite or missing entry: give probabilities from 0 to 1")
    total = matrix.sum(1, keepdims=True)
    off = np.abs(total - 1).ravel()
    if off.max() > 1e-5:
        row = int(off.argmax())
        raise ValueError(f"row {row} of the matrix sums to {total[row, 0]:g}: divide each row by its sum")
    return np.where(np.abs(total - 1) > 1e-12, matrix / total, matrix)


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
) -> Noise:
    """Flip labels; with seed 0 exactly those of the Co-teaching+ authors.

    Each label, in order, is one draw of `RandomState(seed).multinomial` from its row of Q. A label that flips
    changes; elsewhere (DivideMix) symmetric noise may redraw the true label, so that its rate is r·(C-1)/C.

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

    Notes
    -----
    Instance noise follows the part-dependent noise of Xia et al. (2020). The features are flattened to M×F,
    centred and scaled by their overall mean and standard deviation. Each sample gets its own flip rate q from
    a normal distribution around `rate` with standard deviation 0.1, drawn again until it lies in [0, 1]: this
    pulls rates near 0 or 1 inwards (0.2 to 0.206), except rate 0, which flips nothing. Each class i gets a
    standard normal F×C matrix W; a sample x of it becomes j ≠ i with probability q · softmax over j ≠ i of
    (x W)_j.
    """
    if kind not in KINDS:
        nearest = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0)[0]
        raise ValueError(f"unknown noise {kind!r}: did you mean {nearest!r}? There are {', '.join(KINDS)}")
    if matrix is not None and kind != "matrix":
        raise ValueError(
            f"a matrix was given but the noise is {kind!r}: use kind 'matrix', or leave the matrix out"
        )
    kind = "none" if kind == "clean" else kind
    random = _random_state(seed)
    rate = None if rate is None else _check_rate(rate)
    if n_classes is None and kind not in ("matrix", "asymmetric"):
        n_classes = _infer_classes(check_labels(y))
    nominal = _nominal_matrix(kind, rate, n_classes, matrix, superclass)
    true = check_labels(y, len(nominal))
    nominal_rate = float((1 - nominal[true, true]).mean()) if kind == "matrix" else float(rate or 0)
    _warn_if_uninformative(nominal, kind, nominal_rate)
    if kind == "instance":
        labels = _draw(_instance_rows(true, len(nominal), nominal_rate, features, random), random, len(true))
        nominal = _average_transition(true, labels, len(nominal))
    else:
        labels = _draw((nominal[label] for label in true), random, len(true))
    return Noise(labels, labels == true, nominal, nominal_rate, int(seed), kind)


def replace_images(
    images: np.ndarray, outside_images: np.ndarray, y: Any, rate: float = 0.4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Open-set noise: put outside images in place of the same share of images in each class; labels stay.

    Parameters
    ----------
    images : array of shape (M, ...)
    outside_images : array of shape (K, ...) and the same type
        Of none of the C classes; none is used twice.
    y : int array of shape (M,)
    rate : float
        Share replaced in each class, rounded to whole images.
    seed : int

    Returns
    -------
    new_images : array of shape (M, ...), a copy
    replaced : bool array of shape (M,)
    """
    images, outside_images = np.asarray(images), np.asarray(outside_images)
    y, rate, random = check_labels(y), _check_rate(rate), _random_state(seed)
    if images.ndim == 0 or outside_images.ndim == 0:
        raise ValueError("images must be arrays with one image per row: stack them first")
    check_same_length(images, y)
    ours, theirs = (f"{i.dtype} of shape {i.shape[1:]}" for i in (images, outside_images))
    if ours != theirs:
        raise ValueError(f"the images are {ours}, the outside images {theirs}: convert one to the other")
    replaced = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        replaced[random.permutation(members)[: round(rate * len(members))]] = True
    n_replaced = int(replaced.sum())
    if n_replaced > len(outside_images):
        raise ValueError(
            f"{n_replaced} outside images are needed but there are {len(outside_images)}: "
            "give more of them, or lower the rate"
        )
    new_images = images.copy()
    new_images[replaced] = outside_images[random.permutation(len(outside_images))[:n_replaced]]
    return new_images, replaced


def _nominal_matrix(kind: str, rate: Any, n_classes: Any, matrix: Any, superclass: Any) -> np.ndarray:
    """Q as asked for; for instance noise the symmetric one, which is its mean over many W."""
    if kind == "matrix":
        if matrix is None:
            raise ValueError("kind 'matrix' needs a matrix: pass matrix=Q, of shape (C, C)")
        nominal = check_matrix(matrix)
    elif kind == "asymmetric":
        if superclass is None:
            raise ValueError(
                "asymmetric noise needs the superclass of each class: pass superclass=, of shape (C,)"
            )
        nominal = superclass_asymmetric(superclass, rate)
    elif kind == "pair":
        nominal = pair(n_classes, rate)
    elif kind == "none":
        if rate not in (None, 0):
            raise ValueError(f"noise 'none' flips no label but the rate is {rate}: set it to 0, or choose a kind")
        nominal = np.eye(_check_n_classes(n_classes))
    else:
        nominal = symmetric(n_classes, rate)
    if n_classes not in (None, len(nominal)):
        raise ValueError(
            f"the noise is given for {len(nominal)} classes but n_classes is {n_classes}: make them agree"
        )
    return nominal


def _draw(rows: Iterable[np.ndarray], random: np.random.RandomState, n: int) -> np.ndarray:
    # One call a sample: how many random numbers a draw uses up depends on its outcome, so the next draw
    # cannot start before this one is known.
    return np.fromiter((random.multinomial(1, row, 1).argmax() for row in rows), np.int64, n)


def _instance_rows(y: np.ndarray, n_classes: int, rate: float, features: Any, random: Any) -> np.ndarray:
    """The label probabilities of each sample, of shape (M, C)."""
    if features is None:
        raise ValueError("instance noise needs the features: pass features=, one row per label")
    features = np.asarray(features)
    if features.ndim < 2 or features.dtype.kind not in "biuf" or not np.isfinite(features).all():
        raise ValueError("features must be finite numbers, one row per label: fill or drop what is missing")
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
    flip = random.normal(rate, INSTANCE_SPREAD, n)
    while (outside := (flip < 0) | (flip > 1)).any():
        flip[outside] = random.normal(rate, INSTANCE_SPREAD, outside.sum())
    return flip


def _average_transition(true: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    count = np.zeros((n_classes, n_classes))
    np.add.at(count, (true, labels), 1)
    absent = count.sum(1) == 0
    count[absent, absent] = 1
    return count / count.sum(1, keepdims=True)


def _warn_if_uninformative(matrix: np.ndarray, kind: str, rate: float) -> None:
    wrong = matrix - np.diag(np.full(len(matrix), np.inf))
    lost = wrong.max(1) >= matrix.diagonal() - 1e-12
    if lost.any():
        warnings.warn(
            f"with {kind} noise at rate {rate:g} class {lost.argmax()} gets a wrong label at least as often "
            "as its own, so the labels carry no usable information: lower the rate",
            stacklevel=3,
        )


def _read(path: str | os.PathLike) -> tuple[Noise, dict[str, str]]:
    with safe_open(path, framework="numpy") as file:
        facts = file.metadata() or {}
        if facts.get("format") != FORMAT:
            raise ValueError(f"its format is {facts.get('format')}, not {FORMAT}")
        for name in TENSORS:
            part = file.get_slice(name)
            if (part.get_dtype(), len(part.get_shape())) != TENSORS[name]:
                raise ValueError(f"its {name} are of type {part.get_dtype()} and shape {part.get_shape()}")
        labels, clean, matrix = (file.get_tensor(name) for name in TENSORS)
    if len(labels) != len(clean):
        raise ValueError(f"it has {len(labels)} labels but a mask of {len(clean)}")
    check_labels(labels, len(check_matrix(matrix)))
    if facts["kind"] not in KINDS or not 0 <= (rate := float(facts["nominal_rate"])) <= 1:
        raise ValueError(f"its noise is {facts['kind']!r} at rate {facts['nominal_rate']}")
    return Noise(labels, clean, matrix, rate, int(facts["seed"]), facts["kind"]), facts


def _random_state(seed: Any) -> np.random.RandomState:
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"the noise seed is {seed!r}: give an integer from 0 to 2**32 - 1")
    return np.random.RandomState(int(seed))


def _infer_classes(y: np.ndarray) -> int:
    if (y == y[0]).all():
        raise ValueError(f"all labels are {y[0]}, one class only: hand in two classes or more, or pass n_classes")
    return int(y.max()) + 1


def _check_n_classes(n_classes: Any) -> int:
    if not isinstance(n_classes, (int, np.integer)) or n_classes < 2:
        raise ValueError(f"the number of classes is {n_classes!r}: noise needs an integer of 2 or more")
    return int(n_classes)


def _check_rate(rate: Any) -> float:
    if not isinstance(rate, (int, float, np.integer, np.floating)) or not 0 <= rate < 1:
        raise ValueError(f"the noise rate is {rate!r}: give a number from 0 to below 1")
    return float(rate)
