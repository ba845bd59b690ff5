"""What every reader returns: a data set as tensors, stored as compactly as it was published, or as samples that
stay where they are and are read when they are needed. M samples, B of a batch.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coteach.checks import check_labels, check_same_length, one_line
from coteach.data import DATASETS
from coteach.data.features import as_numbers, check_finite, pixels, stored


class Samples:
    """M samples on the host that are not all read at once.

    Attributes
    ----------
    shape : torch.Size
        (M, ...), as of a tensor.
    dtype : torch.dtype
    per_item : bool
        Whether Python code reads them one by one, which is best left to other processes.
    """

    shape: torch.Size
    dtype: torch.dtype
    per_item: bool

    def __len__(self) -> int:
        return self.shape[0]

    def fetch(self, index_B: np.ndarray) -> Tensor:
        """Read x_B…, as stored."""
        raise NotImplementedError


class Rows(Samples):
    """The rows of a tensor, which are stored already."""

    per_item = False

    def __init__(self, x_M: Tensor):
        self.array_M, self.shape, self.dtype = x_M.numpy(), x_M.shape, x_M.dtype

    def fetch(self, index_B: np.ndarray) -> Tensor:
        return torch.from_numpy(self.array_M.take(index_B, 0))


class Items(Samples):
    """The samples of anything that has a length and an index: an array, a memory map, a torch data set.

    Parameters
    ----------
    data : map-style data set
        `data[i]` is a sample, or a tuple that begins with a sample and its label. A sample is an array, a tensor,
        a PIL image or a nested list of numbers, all of one shape.
    what : str
        Names the set in messages, for instance "test ".
    """

    def __init__(self, data: Any, what: str = ""):
        self.data, self.what = data, what
        self.per_item = not isinstance(data, (np.ndarray, Tensor))
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            raise ValueError(f"the {what}data set must have a length and an index: make a list of it, or arrays.")
        if len(data) == 0:
            raise ValueError(f"the {what}data set is empty: hand in at least one sample.")
        first = self._sample(self._item(0), 0) if self.per_item else self._rows(np.arange(1))[0]
        self.shape, self.dtype = torch.Size([len(data), *first.shape]), first.dtype

    def fetch(self, index_B: np.ndarray) -> Tensor:
        x_B = self._stacked(index_B.tolist()) if self.per_item else self._rows(index_B)
        check_finite(x_B, self.what, index_B)
        return x_B

    def labels(self) -> list:
        """The label of every sample; reads all of them, one after the other."""
        labels = []
        for i in range(len(self)):
            item = self._item(i)
            if not isinstance(item, tuple) or len(item) < 2:
                raise ValueError(
                    f"{self.what}sample {i} comes without a label: let the data set give (x, y), "
                    "or hand in all labels, as y and y_test."
                )
            labels.append(item[1].item() if getattr(item[1], "ndim", None) == 0 else item[1])
        return labels

    def _rows(self, index_B: np.ndarray) -> Tensor:
        whose = f"the {self.what}features"
        return stored(as_numbers(self.data[index_B], whose), whose)

    def _stacked(self, indices: list[int]) -> Tensor:
        samples = []
        for i, item in zip(indices, self._items(indices), strict=True):
            x = self._sample(item, i)
            if x.shape != self.shape[1:] or x.dtype != self.dtype:
                raise ValueError(
                    f"{self.what}sample {i} is {x.dtype} of shape {tuple(x.shape)}, the first {self.dtype} of "
                    f"shape {tuple(self.shape[1:])}: let the data set give all samples in one form."
                )
            samples.append(x)
        return torch.stack(samples)

    def _items(self, indices: list[int]) -> Iterable:
        if hasattr(self.data, "__getitems__"):
            with suppress(Exception):  # then one by one, which tells the sample that cannot be read
                return self.data.__getitems__(indices)
        return map(self._item, indices)

    def _item(self, i: int) -> Any:
        try:
            return self.data[i]
        except Exception as error:
            raise ValueError(
                f"{self.what}sample {i} cannot be read ({one_line(error)}): mend it, or leave it out."
            ) from error

    def _sample(self, item: Any, i: int) -> Tensor:
        x = item[0] if isinstance(item, tuple) and item else item
        whose = f"the features of {self.what}sample {i}"
        x = as_numbers(pixels(x, whose) if hasattr(x, "getbands") else x, whose)
        return stored(x[None] if x.ndim else x[None, None], whose)[0]


@dataclass(frozen=True)
class Dataset:
    """A training and a test set. M training and M' test samples, C classes.

    Parameters
    ----------
    name : str
    x_train, x_test : Tensor of shape (M, ...), (M', ...), or Samples that are read when they are needed
        uint8 images (M, channels, height, width), float32 features (M, F), or int32 token ids (M, L),
        where 0 is padding and any other id a row of `vectors`.
    y_train, y_test : int64 Tensor of shape (M,), (M',)
    class_names : tuple of C strings
    superclass : int64 Tensor of shape (C,), optional
        The coarse class of each class.
    vectors : float32 Tensor of shape (V, D), optional
        Word vectors; row 0 is zeros.
    outside : bool Tensor of shape (M,), optional
        True where an image of none of the C classes took the place of the original.
    note : str
        One line worth telling the user, for instance how many words have a vector.
    given : int64 Tensor of shape (M,), optional
        Labels that came with the training set, and that are learnt from; `y_train` is then the truth about them.

    Examples
    --------
    >>> data = coteach.Dataset.from_arrays(np.eye(4), [0, 1, 0, 1], np.eye(4), [0, 1, 0, 1])
    >>> data.x_train.shape, data.n_classes, data.class_names
    (torch.Size([4, 4]), 2, ('0', '1'))
    """

    name: str
    x_train: Tensor | Samples
    y_train: Tensor
    x_test: Tensor | Samples
    y_test: Tensor
    class_names: tuple[str, ...]
    superclass: Tensor | None = None
    vectors: Tensor | None = None
    outside: Tensor | None = None
    note: str = ""
    given: Tensor | None = None

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.class_names)

    def tensors(self, what: str) -> tuple[Tensor, Tensor]:
        """x_train and x_test as a whole, of shape (M, ...) and (M', ...); `what` needs them so.

        >>> data = coteach.data.load("digits")
        >>> [x.shape for x in data.tensors("this example")]
        [torch.Size([1297, 64]), torch.Size([500, 64])]
        """
        if isinstance(self.x_train, Samples) or isinstance(self.x_test, Samples):
            raise ValueError(
                f"{what} needs all samples at once, but these are read as they are needed: "
                "make the data set with Dataset.from_arrays."
            )
        return self.x_train, self.x_test

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        x_test: Any,
        y_test: Any,
        name: str = "own",
        class_names: Sequence[str] | None = None,
        given: Any = None,
    ) -> "Dataset":
        """Make a data set of your own NumPy arrays or torch tensors, which are copied.

        Parameters
        ----------
        x, x_test : array of shape (M, F) or (M, channels, height, width)
            8-bit images stay as they are; every other number becomes float32.
        y, y_test : int array of shape (M,)
            Classes from 0 to C-1.
        name : str
            In files and messages; not that of a known data set.
        class_names : sequence of C strings, optional
            Without it C is the highest label plus one.
        given : int array of shape (M,), optional
            Labels to learn from, if `y` is the truth about them.

        Examples
        --------
        >>> images = np.zeros((6, 1, 8, 8), dtype=np.uint8)  # six images, one channel
        >>> data = coteach.Dataset.from_arrays(images[:4], [0, 1, 0, 1], images[4:], [0, 1])
        >>> data.x_train.dtype, data.x_test.shape
        (torch.uint8, torch.Size([2, 1, 8, 8]))
        """
        _refuse_known(name)
        return cls._checked(name, _own_copy(x, ""), y, _own_copy(x_test, "test "), y_test, class_names, given)

    @classmethod
    def from_samples(
        cls,
        train: Any,
        test: Any,
        *,
        y: Any = None,
        y_test: Any = None,
        name: str = "own",
        class_names: Sequence[str] | None = None,
        given: Any = None,
    ) -> "Dataset":
        """Make a data set of samples that stay where they are and are read, ahead, whenever they are needed.

        For what does not fit into memory, or is different at every reading. What fits is trained on faster after
        `from_arrays`.

        Parameters
        ----------
        train, test : map-style data set
            Anything with a length and an index: a torch or torchvision data set, a memory map, a list.
            `train[i]` is a sample, or a tuple that begins with a sample and its label. A sample is an array or
            tensor of features or of (channels, height, width), or a PIL image; all have one shape. 8-bit images
            stay as they are; every other number becomes float32.
        y, y_test : int array of shape (M,), optional
            Classes from 0 to C-1. Without them every sample is read once, only for its label: torchvision's data
            sets have them at hand, as `train.targets`.
        name : str
            In files and messages; not that of a known data set.
        class_names : sequence of C strings, optional
            Without it C is the highest label plus one.
        given : int array of shape (M,), optional
            Labels to learn from, if `y` is the truth about them.

        Examples
        --------
        >>> samples = [(np.arange(3.0) + i, i % 2) for i in range(4)]  # or any torch data set
        >>> data = coteach.Dataset.from_samples(samples, samples)
        >>> data.x_train.shape, data.y_train.tolist()
        (torch.Size([4, 3]), [0, 1, 0, 1])
        """
        _refuse_known(name)
        samples, test_samples = Items(train), Items(test, "test ")
        y = samples.labels() if y is None else y
        y_test = test_samples.labels() if y_test is None else y_test
        return cls._checked(name, samples, y, test_samples, y_test, class_names, given)

    @classmethod
    def _checked(
        cls,
        name: str,
        x: Tensor | Samples,
        y: Any,
        x_test: Tensor | Samples,
        y_test: Any,
        class_names: Sequence[str] | None,
        given: Any,
    ) -> "Dataset":
        class_names = None if class_names is None else tuple(class_names)
        n_classes = None if class_names is None else len(class_names)
        labels, test_labels = check_labels(y, n_classes), check_labels(y_test, n_classes)
        given_labels = labels if given is None else check_labels(given, n_classes)
        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"all training labels are {labels[0]}: a classifier needs samples of at least two classes."
            )
        check_same_length(x, labels)
        check_same_length(x, given_labels)
        check_same_length(x_test, test_labels, "test ")
        if x.shape[1:] != x_test.shape[1:]:
            raise ValueError(
                f"training samples have shape {tuple(x.shape[1:])}, test samples "
                f"{tuple(x_test.shape[1:])}: give both the same features."
            )
        if x.dtype != x_test.dtype:
            raise ValueError(
                "training and test samples must both be 8-bit images or neither: "
                "only 8-bit images are divided by 255."
            )
        highest = int(max(labels.max(), given_labels.max(), test_labels.max()))
        if class_names is None and highest >= len(labels) + len(test_labels):
            raise ValueError(
                f"the highest label is {highest} but there are only {len(labels)} samples: "
                "number the classes from 0, for instance with sklearn.preprocessing.LabelEncoder."
            )
        if class_names is None:
            class_names = tuple(str(c) for c in range(1 + highest))
        sides = (torch.from_numpy(labels), x_test, torch.from_numpy(test_labels))
        return cls(name, x, *sides, class_names, given=None if given is None else torch.from_numpy(given_labels))


def _refuse_known(name: str) -> None:
    if name in DATASETS:
        raise ValueError(f"{name!r} is the name of a known data set: give your own another name.")


def _own_copy(x: Any, what: str) -> Tensor:
    whose = f"the {what}features"
    features = stored(as_numbers(x, whose), whose)
    check_finite(features, what)
    return features.clone(memory_format=torch.contiguous_format)
