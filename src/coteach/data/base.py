"""What every reader returns: a data set as tensors, stored as compactly as it was published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coteach.checks import check_labels, check_same_length
from coteach.data import DATASETS


@dataclass(frozen=True)
class Dataset:
    """A training and a test set. M training and M' test samples, C classes.

    Attributes
    ----------
    x_train, x_test : Tensor of shape (M, ...), (M', ...)
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
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    class_names: tuple[str, ...]
    superclass: Tensor | None = None
    vectors: Tensor | None = None
    outside: Tensor | None = None
    note: str = ""

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        x_test: Any,
        y_test: Any,
        name: str = "own",
        class_names: Sequence[str] | None = None,
    ) -> "Dataset":
        """Make a data set of your own NumPy arrays or torch tensors, which are copied.

        Parameters
        ----------
        x, x_test : array of shape (M, F) or (M, channels, height, width)
            8-bit images stay as they are; every other number becomes float32.
        y, y_test : int array of shape (M,)
            Classes from 0 to C-1.
        class_names : sequence of C strings, optional
            Without it C is the highest label plus one.
        """
        if name in DATASETS:
            raise ValueError(f"{name!r} is the name of a known data set: give your own another name.")
        class_names = None if class_names is None else tuple(class_names)
        n_classes = None if class_names is None else len(class_names)
        labels, test_labels = check_labels(y, n_classes), check_labels(y_test, n_classes)
        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"all training labels are {labels[0]}: a classifier needs samples of at least two classes."
            )
        features, test_features = _check_features(x, ""), _check_features(x_test, "test ")
        check_same_length(features, labels)
        check_same_length(test_features, test_labels, "test ")
        if features.shape[1:] != test_features.shape[1:]:
            raise ValueError(
                f"training samples have shape {tuple(features.shape[1:])}, test samples "
                f"{tuple(test_features.shape[1:])}: give both the same features."
            )
        if features.dtype != test_features.dtype:
            raise ValueError(
                "training and test samples must both be 8-bit images or neither: "
                "only 8-bit images are divided by 255."
            )
        highest = int(max(labels.max(), test_labels.max()))
        if class_names is None and highest >= len(labels) + len(test_labels):
            raise ValueError(
                f"the highest label is {highest} but there are only {len(labels)} samples: "
                "number the classes from 0, for instance with sklearn.preprocessing.LabelEncoder."
            )
        if class_names is None:
            class_names = [str(c) for c in range(1 + highest)]
        return cls(
            name,
            features,
            torch.from_numpy(labels),
            test_features,
            torch.from_numpy(test_labels),
            tuple(class_names),
        )


def _check_features(x: Any, what: str) -> Tensor:
    """Return a contiguous copy: uint8 images as they are, all else as finite float32."""
    if hasattr(x, "todense") or (isinstance(x, Tensor) and x.layout != torch.strided):
        raise ValueError(f"the {what}features are sparse: make them dense first, with .toarray() or .to_dense().")
    if isinstance(x, np.ma.MaskedArray) and x.mask.any():
        raise ValueError(f"the {what}features are masked: fill in what is missing, or drop those samples.")
    try:
        tensor = x.detach().cpu() if isinstance(x, Tensor) else torch.tensor(_native(np.asarray(x)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the {what}features are not an array of numbers: encode text and categories as numbers first."
        ) from error
    if tensor.ndim < 2:
        raise ValueError(
            f"the {what}features have shape {tuple(tensor.shape)} but must have one row per sample: "
            "reshape them to (samples, features)."
        )
    if tensor.numel() == 0:
        raise ValueError(f"the {what}features are empty: hand in at least one sample with one feature.")
    if tensor.dtype == torch.uint8 and tensor.ndim == 3:
        tensor = tensor[:, None]  # grey images without an axis for their one channel
    if tensor.dtype == torch.uint8 and tensor.ndim == 4:
        if tensor.shape[3] in (1, 3, 4) and tensor.shape[1] not in (1, 3, 4):
            raise ValueError(
                f"the {what}images have shape {tuple(tensor.shape[1:])}, their channels last: "
                "move them first, with x.transpose(0, 3, 1, 2)."
            )
        return tensor.clone(memory_format=torch.contiguous_format)
    if tensor.is_complex():
        raise ValueError(f"the {what}features are complex numbers: give their real and imaginary parts.")
    tensor = tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    finite = torch.isfinite(tensor).flatten(1).all(1)
    if not finite.all():
        raise ValueError(
            f"{what}sample {int(finite.int().argmin())} has a feature that is missing, infinite or beyond "
            "float32: fill it in or drop the sample."
        )
    return tensor


def _native(array: np.ndarray) -> np.ndarray:
    """As torch takes it: this machine's byte order, at most 64 bits, no negative strides."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
