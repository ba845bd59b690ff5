"""Samples that stay where they are and are read when they are needed. M samples, B of a batch."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coteach.checks import one_line
from coteach.data.features import check_finite, numbers, pixels, stored


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
        return stored(numbers(self.data[index_B], whose), whose)

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
        x = numbers(pixels(x, whose) if hasattr(x, "getbands") else x, whose)
        return stored(x[None] if x.ndim else x[None, None], whose)[0]
