"""What a user hands in as samples: arrays of numbers, or samples that are read when they are needed. M samples."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from coteach.data.base import Items, Samples
from coteach.data.features import check_finite
from coteach.stages import enter_stage, part_in_words

NOT_DATA_SETS = (list, tuple, dict, str, bytes)
OF_ARRAYS = ("shape", "__array__", "__dataframe__")  # what arrays and frames have, and data sets have not
NOT_IN_NUMPY = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
READ_AT_ONCE = 1024  # samples that are read together


def to_numpy(values: Any) -> Any:
    """A torch tensor, or whole numbers that pandas keeps in a type of its own, as NumPy; else as it is."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype in NOT_IN_NUMPY else values).numpy()
    if np.ma.is_masked(values):
        raise ValueError("some values are masked: fill them in, or leave those samples out.")
    own = getattr(getattr(values, "dtype", None), "numpy_dtype", None)  # else scikit-learn makes floats of them
    if own is not None and np.dtype(own).kind in "iub" and not values.isna().any():
        return values.to_numpy(own)
    return values


def refuse_dates(X: Any) -> None:
    """As numbers they would be nanoseconds, or days, as the package likes."""
    types = zip(X.columns, X.dtypes, strict=True) if hasattr(X, "columns") else [(0, getattr(X, "dtype", None))]
    for name, dtype in types:
        temporal = getattr(dtype, "kind", "") in ("m", "M") or str(dtype).startswith("period")
        if temporal or (hasattr(dtype, "is_temporal") and dtype.is_temporal()):  # the last of polars
            raise ValueError(f"column {name!r} of X is of dates or times: make numbers of it, such as days.")


def dense(X: Any) -> Any:
    if hasattr(X, "collect") and hasattr(X, "lazy"):
        raise ValueError("X is a lazy frame: read it first, with .collect().")
    if hasattr(X, "column_names") and hasattr(X, "to_pandas"):
        raise ValueError("X is a table of Arrow: make a data frame of it first, with .to_pandas().")
    if not isinstance(X, Tensor):
        refuse_dates(X)
    if hasattr(X, "todense") or (isinstance(X, Tensor) and X.layout != torch.strided):
        raise ValueError("X is sparse: make it dense first, with .toarray() or .to_dense().")
    return to_numpy(X)


def channels_first(x: np.ndarray) -> np.ndarray:
    """Tables as they are; images as (M, channels, H, W), the channels being the axis of length 1, 3 or 4."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim > 4:
        raise ValueError(f"X has {x.ndim} axes: give a table of 2, or images of 3 or 4.")
    if x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        return x.transpose(0, 3, 1, 2)
    return x


# ---- map-style data sets --------------------------------------------------------------------------------------


def is_map_style(X: Any) -> bool:
    """Whether it is a data set in torch's sense, with a length and an index, and not an array."""
    if isinstance(X, (TorchDataset, Samples)):
        return True
    indexed = hasattr(X, "__len__") and hasattr(X, "__getitem__") and not isinstance(X, NOT_DATA_SETS)
    return indexed and not any(hasattr(X, name) for name in OF_ARRAYS)


def as_samples(X: Any, stream: bool, verbose: int, wants_labels: bool) -> tuple[Any, list | None]:
    """Arrays as they are; a data set read into an array, or with `stream` as Samples; and its labels if wanted."""
    if stream and (is_map_style(X) or isinstance(X, np.ndarray)):
        to_numpy(X)  # or say what is wrong with it
        items = Items(X)
        return items, items.labels() if wants_labels and items.per_item else None
    if not is_map_style(X):
        return dense(X), None
    remembering = Remembering(X)
    x = in_memory(Items(remembering), verbose)
    return x, remembering.all_labels() if wants_labels else None


class Remembering:
    """A data set that keeps the labels of the samples that were asked for, so that each is read only once."""

    def __init__(self, data: Any):
        self.data, self.labels, self.first = data, {}, None
        if not hasattr(data, "__len__"):
            raise ValueError("the data set has no length: make a list of its samples, or arrays.")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> Any:
        item = self.data[i] if i or self.first is None else self.first  # which was looked at for its shape
        self.first = item if i == 0 else self.first
        if isinstance(item, tuple) and len(item) > 1:
            self.labels[i] = item[1].item() if getattr(item[1], "ndim", None) == 0 else item[1]
        return item

    def all_labels(self) -> list:
        missing = next((i for i in range(len(self)) if i not in self.labels), None)
        if missing is not None:
            raise ValueError(f"sample {missing} has no label: let the data set give (x, y), or hand in y.")
        return [self.labels[i] for i in range(len(self))]


def in_memory(samples: Samples, verbose: int) -> np.ndarray:
    """All of them, with a bar when there is one to be shown."""
    n_bytes = samples.shape.numel() * max(samples.dtype.itemsize, 4)  # float32 is what they become
    if n_bytes > memory() / 3:  # as read, as scaled, and on the way from one to the other
        raise ValueError(f"the data set takes {n_bytes / 1e9:.0f} GB, which do not fit: set stream=True.")
    x_M = torch.empty(samples.shape, dtype=samples.dtype)
    with bar(verbose, "reading", len(samples)) as advance:
        for index_B in pieces(len(samples)):
            x_M[index_B[0] : index_B[-1] + 1] = samples.fetch(index_B)
            advance(len(index_B))
    return x_M.numpy()


def memory() -> float:
    """Bytes of this machine, where it says so."""
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return float("inf")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def pieces(n: int) -> list[np.ndarray]:
    return [np.arange(i, min(i + READ_AT_ONCE, n)) for i in range(0, n, READ_AT_ONCE)]


# ---- one scale for all features -------------------------------------------------------------------------------


def scale_of(x: np.ndarray | Samples) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature or channel; 1 for constants, which are left alone."""
    count, mean, squares = 0, np.zeros(1), np.zeros(1)
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        for part in as_arrays(x):
            axes = (0, *range(2, part.ndim))
            n = part.size // part.shape[1]
            part_mean = part.mean(axes, dtype=np.float64, keepdims=True)[0]
            part_squares = part.var(axes, dtype=np.float64, keepdims=True)[0] * n
            apart = part_mean - mean
            squares = squares + part_squares + apart**2 * (count * n / (count + n))
            mean = mean + apart * (n / (count + n))
            count += n
        scale = np.sqrt(squares / count)
    if not np.isfinite(scale).all():
        raise ValueError("X has numbers whose squares are beyond float64: divide them by their scale first.")
    constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)
    return mean, np.where(constant, 1, scale)


def as_arrays(x: np.ndarray | Samples) -> Iterator[np.ndarray]:
    if isinstance(x, np.ndarray):
        yield x
    else:
        for index_B in pieces(len(x)):
            yield channels_first(x.fetch(index_B).numpy())


def scaled(x: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> Tensor:
    with np.errstate(over="ignore"):  # told below
        x_M = torch.from_numpy(((x - mean) / scale).astype(np.float32, order="C"))
    check_finite(x_M, "")
    return x_M


class Scaled(Samples):
    """Samples that are scaled, and their channels put first, when they are read."""

    def __init__(self, samples: Samples, mean: np.ndarray, scale: np.ndarray):
        self.samples, self.mean, self.scale = samples, mean, scale
        self.shape = torch.Size([len(samples), *one_shape(samples)])
        self.dtype, self.per_item = torch.float32, samples.per_item

    def fetch(self, index_B: np.ndarray) -> Tensor:
        return scaled(channels_first(self.samples.fetch(index_B).numpy()), self.mean, self.scale)


def one_shape(x: np.ndarray | Samples) -> tuple[int, ...]:
    """The shape of a sample as the networks take it."""
    return channels_first(np.empty((0, *x.shape[1:]))).shape[1:]


@contextmanager
def bar(verbose: int, what: str, total: int, parts: int = 1) -> Iterator[Callable[..., None]]:
    """`advance(n, note)`, which shows it if there is to be anything to see; some work has several equal parts."""
    done, at = 0, part_in_words(what, 0, total, parts)
    enter_stage(at)
    with bars_on_screen() if verbose else nullcontext() as bars:
        task = bars.add_task(at, total=total, note="") if bars else None

        def advance(n: int = 1, note: str = "") -> None:
            nonlocal done, at
            done += n
            before, at = at, part_in_words(what, done, total, parts)
            if at != before:
                enter_stage(at)
            if bars and task is not None:
                bars.update(task, advance=n, note=note, description=at)

        yield advance


def bars_on_screen() -> AbstractContextManager:
    from coteach.terminal import progress_bars

    return progress_bars()


# ---- what scikit-learn refuses, in clearer words ---------------------------------------------------------------


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
    types = getattr(X, "dtypes", None)
    for k, (name, values) in enumerate(columns_of(X)):
        if hasattr(types, "iloc") and str(types.iloc[k]) == "category":
            continue  # which pandas knows how to tell apart
        text = next((value for value in values if is_text(value)), None)
        if text is not None:
            return (
                f"column {name!r} of X is text ({text!r}): encode it, for instance with "
                "sklearn.preprocessing.OneHotEncoder, or give the file to `coteach audit --table`."
            )
    return None


def in_labels(y: Any) -> str | None:
    """Labels that are missing, or of several kinds; None for anything else."""
    try:
        labels = np.asarray(y, dtype=object)
    except ValueError:
        return None
    if labels.ndim == 1 and any(is_missing(label) for label in labels):
        return "labels are missing: leave those samples out."
    if labels.ndim == 1 and 0 < sum(isinstance(label, str) for label in labels) < len(labels):
        return "labels are words and numbers side by side: make words, or numbers, of them all."
    return None


def shapes_of(X: Any) -> set[tuple[int, ...]]:
    """The shapes of samples in a list or in an array of objects; none where they are not arrays themselves."""
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
