"""What is wrong with samples and labels that scikit-learn refuses, in a sentence that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from coteach.data.base import Samples


@contextmanager
def explained(X: Any, y: Any = None) -> Iterator[None]:
    """Scikit-learn's refusals inside the block, in clearer words where we have any."""
    if isinstance(y, (list, tuple)) and (missing := in_labels(y)) is not None:
        raise ValueError(missing)  # beside words NumPy would make the word "nan" of a nan
    try:
        yield
    except (ValueError, TypeError) as refusal:
        sentence = (None if isinstance(X, Samples) else in_samples(X)) or in_labels(y)
        if sentence is None:
            raise
        raise ValueError(sentence) from refusal


def in_samples(X: Any) -> str | None:
    """Samples of different shapes, or text among the numbers; None for anything else."""
    shapes = shapes_of(X)
    if len(shapes) > 1:
        what = "images" if max(map(len, shapes)) > 1 else "rows of X"
        found = " and ".join("×".join(map(str, shape)) for shape in sorted(shapes)[:2])
        return f"the {what} differ in size ({found}): make them the same."
    if shapes and getattr(X, "ndim", 0) == 1:
        return "X is an array of arrays: make one array of them with np.stack(X)."
    for name, values in columns_of(X):
        text = next((value for value in values if is_text(value)), None)
        if text is not None:
            return (
                f"column {name!r} of X is text ({text!r}): encode it, for instance with "
                "sklearn.preprocessing.OneHotEncoder, or give the file to `coteach audit --table`."
            )
    return None


def in_labels(y: Any) -> str | None:
    """Labels that are missing; None for anything else."""
    try:
        labels = np.asarray(y, dtype=object)
    except ValueError:
        return None
    if labels.ndim == 1 and any(is_missing(label) for label in labels):
        return "labels are missing: leave those samples out."
    return None


def shapes_of(X: Any) -> set[tuple[int, ...]]:
    """Of the samples in a list, or in an array of objects; none where they are not arrays themselves."""
    if not isinstance(X, (list, tuple)) and not (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        return set()
    try:
        return {tuple(np.shape(sample)) for sample in X} - {()}
    except ValueError:  # a sample that is ragged in itself
        return set()


def columns_of(X: Any) -> list[tuple[Any, np.ndarray]]:
    """Names, or numbers, and values of a table's columns; none of anything else."""
    try:
        table = np.asarray(X, dtype=object)
    except ValueError:
        return []
    return list(zip(getattr(X, "columns", range(table.shape[1])), table.T, strict=True)) if table.ndim == 2 else []


def is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def is_missing(label: Any) -> bool:
    """None, a nan, or pandas' NA and NaT, told by name because pandas need not be installed."""
    nan = isinstance(label, float) and label != label
    return label is None or nan or type(label).__name__ in ("NAType", "NaTType")
