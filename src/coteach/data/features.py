"""What users hand in as features, in the form in which it is stored.

Images of 8 bits stay bytes, as (channels, height, width); every other number becomes float32. M samples.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from coteach.checks import one_line


def pixels(image: Any, whose: str) -> np.ndarray:
    """The bytes of a PIL image, of shape (height, width) or (channels, height, width)."""
    if image.mode not in ("L", "RGB", "RGBA"):
        raise ValueError(
            f"{whose} are an image of mode {image.mode}: convert it first, with image.convert('RGB')."
        )
    try:
        array = np.asarray(image)
    except OSError as error:  # only now is the file decoded
        raise ValueError(
            f"{whose} cannot be read ({one_line(error)}): mend the image, or leave it out."
        ) from error
    return array if array.ndim == 2 else array.transpose(2, 0, 1)


def as_numbers(x: Any, whose: str) -> Tensor:
    """Whatever numbers are given, as a tensor that may share their memory."""
    if hasattr(x, "todense") or (isinstance(x, Tensor) and x.layout != torch.strided):
        raise ValueError(f"{whose} are sparse: make them dense first, with .toarray() or .to_dense().")
    if isinstance(x, np.ma.MaskedArray) and x.mask.any():
        raise ValueError(f"{whose} are masked: fill in what is missing, or drop those samples.")
    try:
        return x.detach().cpu() if isinstance(x, Tensor) else torch.from_numpy(_native(np.asarray(x)))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{whose} are not an array of numbers: encode text and categories as numbers first."
        ) from error


def stored(x_M: Tensor, whose: str) -> Tensor:
    """Rows in the form that is kept: uint8 images as they are, all else as float32."""
    if x_M.ndim < 2:
        raise ValueError(
            f"{whose} have shape {tuple(x_M.shape)} but must have one row per sample: "
            "reshape them to (samples, features)."
        )
    if x_M.numel() == 0:
        raise ValueError(f"{whose} are empty: hand in at least one sample with one feature.")
    if x_M.dtype == torch.uint8 and x_M.ndim == 3:
        x_M = x_M[:, None]  # grey images without an axis for their one channel
    if x_M.dtype == torch.uint8 and x_M.ndim == 4:
        if x_M.shape[3] in (1, 3, 4) and x_M.shape[1] not in (1, 3, 4):
            raise ValueError(
                f"{whose} are images of shape {tuple(x_M.shape[1:])}, their channels last: "
                "make that (channels, height, width) first, with transpose or permute."
            )
        return x_M
    if x_M.is_complex():
        raise ValueError(f"{whose} are complex numbers: give their real and imaginary parts.")
    return x_M.to(torch.float32)


def check_finite(x_M: Tensor, what: str, index_M: np.ndarray | None = None) -> None:
    """Name the first sample with a number that is not finite; `index_M` are their numbers, if not 0 to M-1."""
    if x_M.dtype == torch.uint8 or (finite := torch.isfinite(x_M)).all():
        return
    row = int(finite.flatten(1).all(1).int().argmin())
    sample = row if index_M is None else index_M[row]
    raise ValueError(
        f"{what}sample {sample} has a feature that is missing, infinite or beyond float32: "
        "fill it in or drop the sample."
    )


def _native(array: np.ndarray) -> np.ndarray:
    """As torch takes it: this machine's byte order, at most 64 bits, no negative strides, not read-only."""
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return array if array.flags.writeable else array.copy()
