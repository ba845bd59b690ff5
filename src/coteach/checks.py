"""Checks of what users hand in, and errors in a line; NumPy is loaded when it is needed, for `--help`."""

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, cast

from coteach.names import WITHOUT_WARMUP

if TYPE_CHECKING:
    import numpy as np

LARGEST_COUNT, LARGEST_NUMBER = 10**9, 1e30  # of epochs and the like; of rates and the like, as float32 has them
LARGEST_SIDE = 2**14  # pixels of an image
ENCODE = "encode them first (for instance with sklearn.preprocessing.LabelEncoder)"


def check_labels(y: Any, n_classes: int | None = None) -> "np.ndarray":
    """Return labels as int64 of shape (M,), or raise a ValueError that says what to mend.

    Parameters
    ----------
    y : array-like of shape (M,)
        NumPy array, torch tensor or sequence of integers from 0 to C-1.
    n_classes : int, optional
        C; without it only negative labels are out of range.
    """
    labels = _as_array(y)
    if labels.ndim != 1:
        raise ValueError(
            f"labels must be a flat array with one label per sample, not one of shape {labels.shape}: "
            "flatten it, or take the argmax over classes of one-hot labels."
        )
    if labels.size == 0:
        raise ValueError("there are no labels: hand in at least one sample.")
    top = "C-1" if n_classes is None else str(n_classes - 1)
    if labels.dtype.kind not in "iu":
        raise ValueError(_not_integers(labels, top))
    integers = labels.astype("int64")  # an unsigned number too large for it becomes negative
    wrong = integers < 0
    if n_classes is not None:
        wrong |= integers >= n_classes
    if wrong.any():
        position = int(wrong.argmax())
        raise ValueError(
            f"labels must be integers from 0 to {top}; found {labels[position]} at position {position}: {ENCODE}."
        )
    return integers


def check_same_length(x: Any, y: Any, what: str = "") -> None:
    """Raise a ValueError unless there is one label per sample; `what` names the set, for instance "test "."""
    if len(x) != len(y):
        raise ValueError(
            f"{len(x)} {what}samples but {len(y)} {what}labels: hand in exactly one label per sample."
        )


def _as_array(y: Any) -> "np.ndarray":
    import numpy as np

    if hasattr(y, "detach"):  # a torch tensor, perhaps on another device or of a type that NumPy lacks
        y = y.detach().cpu()
        y = (y.double() if y.is_floating_point() else y).numpy()
    if np.ma.is_masked(y):
        raise ValueError("some labels are masked: drop the samples without a label, or give each of them one.")
    try:
        return np.asarray(y)
    except ValueError as ragged:
        raise ValueError(f"labels must be a flat array with one label per sample: {ENCODE}.") from ragged


def _not_integers(labels: "np.ndarray", top: str) -> str:
    """Say which label is no integer; a missing one first, because encoding would not mend it."""
    values = labels.tolist()
    for position, label in enumerate(values):
        if _is_missing(label):
            return (
                f"label {position} is missing ({label}): drop the samples without a label, "
                "or give each of them one."
            )
    for position, label in enumerate(values):
        if not isinstance(label, int) and not (isinstance(label, float) and label.is_integer()):
            return f"labels must be integers from 0 to {top}; found {label!r} at position {position}: {ENCODE}."
    return (
        f"labels must be integers from 0 to {top}, and these are stored as {labels.dtype}: "
        "convert them first, for instance with labels.astype('int64')."
    )


def _is_missing(label: Any) -> bool:
    # pandas' NA and NaT are known by name: pandas need not be installed.
    return label is None or type(label).__name__ in ("NAType", "NaTType") or label != label


def one_line(error: Exception) -> str:
    """What an exception says, in printable characters and one line."""
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return "".join(c if c.isprintable() else "?" for c in words)


def check_rate(rate: Any) -> float:
    if not isinstance(rate, Real) or not 0 <= float(rate) < 1:
        raise ValueError(f"the noise rate is {rate!r}: give a number from 0 to below 1.")
    return float(rate)


def check_n_classes(n_classes: Any) -> int:
    if not isinstance(n_classes, Integral) or int(n_classes) < 2:
        raise ValueError(f"the number of classes is {n_classes!r}: noise needs an integer of 2 or more.")
    return int(n_classes)


def random_state(seed: Any) -> "np.random.RandomState":
    import numpy as np

    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**32:
        raise ValueError(f"the noise seed is {seed!r}: give an integer from 0 to 2**32 - 1.")
    return np.random.RandomState(int(seed))


def is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_within(value: Any, most: float) -> bool:
    """Whether it is a number from 0 to `most`; compared as it is: an integer may be too large for a float."""
    return isinstance(value, Real) and 0 <= cast("float", value) <= most


def check_count(name: str, value: Any, least: int) -> None:
    if not (is_whole(value) and value >= least):
        raise ValueError(f"{name} is {value!r}: give a whole number of at least {least}.")
    if value > LARGEST_COUNT:
        raise ValueError(f"{name} is {value}: give a whole number of at most {LARGEST_COUNT:,}.")


def plain_number(value: Any) -> Any:
    """A number, or answer, of NumPy's as one of Python's, which can be written to JSON."""
    if type(value).__module__ == "numpy" and not getattr(value, "shape", True):
        return value.item()
    if is_whole(value):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, (bool, float)) else value


def check_warmup_loss(method: str, loss: str | None, warmup_loss: str | None, warmup: int) -> None:
    if warmup_loss is None:
        return
    if method in WITHOUT_WARMUP:
        raise ValueError(f"{method} has no warm-up: leave warmup_loss out.")
    if warmup_loss == loss:
        raise ValueError(f"warmup_loss is {loss}, as loss is: leave it out, or give another.")
    if not warmup:
        raise ValueError(
            "warmup_loss needs a warm-up, and it has no epochs: give warmup, too, and more epochs than that."
        )
