"""Crops, flips and normalisation of whole batches, on whatever device they are.

Pure functions: the random numbers come from the caller, so that a run stays a function of its seed.
Shapes: R runs, B images, C channels, H×W pixels, K random numbers in [0, 1) an image, s pixels a side
after resizing. Images are uint8, or floating point from 0 to 1. R and B stand for any number of leading axes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# What the authors subtract and divide by (fidelity row 12).
TINY_IMAGENET_MEAN = (0.4802, 0.4481, 0.3975)
TINY_IMAGENET_STD = (0.2302, 0.2265, 0.2262)

TRIES = 10
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)

# Random numbers an image needs.
RESIZED_CROP_DRAWS = 2 * TRIES + 3
CROP_DRAWS = 3


def unit_range(x: Tensor) -> Tensor:
    """Bytes as float32 from 0 to 1; floating point as it is."""
    return x if x.is_floating_point() else x.float() / 255


def normalise(x_RBCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Subtract a mean and divide by a standard deviation per channel, after bytes became 0 to 1."""
    x_RBCHW = unit_range(x_RBCHW)
    if not len(mean) == len(std) == x_RBCHW.shape[-3]:
        raise ValueError(
            f"images of {x_RBCHW.shape[-3]} channels need as many means and standard deviations, "
            f"but there are {len(mean)} and {len(std)}: give one of each per channel."
        )
    return (x_RBCHW - _per_channel(mean, x_RBCHW)) / _per_channel(std, x_RBCHW)


def _per_channel(values: Sequence[float], x_RBCHW: Tensor) -> Tensor:
    # filled in on the device: a copy from the host, as new_tensor makes, cannot be captured in a CUDA graph
    return torch.stack([x_RBCHW.new_full((1, 1), value) for value in values])


def center_crop(x_RBCHW: Tensor, size: int = 56) -> Tensor:
    """The middle `size`×`size` pixels."""
    height, width = x_RBCHW.shape[-2:]
    if size > min(height, width):
        raise ValueError(f"cannot cut {size}×{size} pixels out of {height}×{width}: choose a smaller crop.")
    top, left = round((height - size) / 2), round((width - size) / 2)
    return x_RBCHW[..., top : top + size, left : left + size]


def random_crop_flip(x_RBCHW: Tensor, u_RBK: Tensor, padding: int = 4) -> Tensor:
    """Shift an image by up to `padding` pixels each way over a black border, and mirror it half of the time.

    Takes K = 3 numbers an image: top, left, flip. Keeps size and type.
    """
    assert u_RBK.shape[-1] == CROP_DRAWS
    height, width = x_RBCHW.shape[-2:]
    top_RB, left_RB = (u_RBK[..., :2] * (2 * padding + 1)).long().unbind(-1)
    row_RBH = top_RB[..., None] + torch.arange(height, device=u_RBK.device)
    column_RBW = left_RB[..., None] + torch.arange(width, device=u_RBK.device)
    column_RBW = torch.where(_flips(u_RBK), column_RBW.flip(-1), column_RBW)

    padded = F.pad(x_RBCHW, (padding,) * 4)
    rows = row_RBH[..., None, :, None].expand(*x_RBCHW.shape[:-1], padded.shape[-1])
    columns = column_RBW[..., None, None, :].expand(x_RBCHW.shape)
    return padded.gather(-2, rows).gather(-1, columns)


def random_resized_crop_flip(x_RBCHW: Tensor, u_RBK: Tensor, size: int = 56) -> Tensor:
    """A random part of an image, resized to `size`×`size`, and mirrored half of the time; floating point.

    The customary recipe: 8 to 100 % of the area, an aspect ratio between 3/4 and 4/3 (its logarithm uniform),
    whole pixels, ten tries to find a part that fits into the image, else the largest central one. Takes
    K = 23 numbers an image: ten areas, ten aspect ratios, top, left, flip. Resizing is bilinear with
    antialiasing, as Pillow does it; only Pillow's rounding to bytes is left out.
    """
    assert u_RBK.shape[-1] == RESIZED_CROP_DRAWS
    x_RBCHW = unit_range(x_RBCHW)
    top, left, height, width = _boxes(u_RBK, *x_RBCHW.shape[-2:])
    rows_RBsH = _resizing(top, height, size, x_RBCHW.shape[-2])
    columns_RBsW = _resizing(left, width, size, x_RBCHW.shape[-1])
    columns_RBsW = torch.where(_flips(u_RBK)[..., None], columns_RBsW.flip(-2), columns_RBsW)
    # One image at a time this is rows · image · columnsᵀ.
    return rows_RBsH[..., None, :, :].to(x_RBCHW) @ x_RBCHW @ columns_RBsW[..., None, :, :].to(x_RBCHW).mT


def _flips(u_RBK: Tensor) -> Tensor:
    return u_RBK[..., -1:] < 0.5


def _boxes(u_RBK: Tensor, image_height: int, image_width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, left, height and width of the part of each image, in whole pixels, each of shape (R, B)."""
    area_RBT = image_height * image_width * (AREA[0] + (AREA[1] - AREA[0]) * u_RBK[..., :TRIES])
    log_low, log_high = math.log(ASPECT[0]), math.log(ASPECT[1])
    aspect_RBT = (log_low + (log_high - log_low) * u_RBK[..., TRIES : 2 * TRIES]).exp()
    height_RBT = (area_RBT / aspect_RBT).sqrt().round()
    width_RBT = (area_RBT * aspect_RBT).sqrt().round()
    fits_RBT = (height_RBT >= 1) & (height_RBT <= image_height) & (width_RBT >= 1) & (width_RBT <= image_width)

    first_RB1 = fits_RBT.to(torch.uint8).argmax(-1, keepdim=True)
    found_RB = fits_RBT.any(-1)
    middle_height = min(image_height, round(image_width / ASPECT[0]))
    middle_width = min(image_width, round(image_height * ASPECT[1]))
    height_RB = torch.where(found_RB, height_RBT.gather(-1, first_RB1).squeeze(-1), middle_height)
    width_RB = torch.where(found_RB, width_RBT.gather(-1, first_RB1).squeeze(-1), middle_width)

    place_top, place_left = u_RBK[..., 2 * TRIES], u_RBK[..., 2 * TRIES + 1]
    top_RB = torch.where(
        found_RB, (place_top * (image_height - height_RB + 1)).floor(), (image_height - middle_height) // 2
    )
    left_RB = torch.where(
        found_RB, (place_left * (image_width - width_RB + 1)).floor(), (image_width - middle_width) // 2
    )
    return top_RB, left_RB, height_RB, width_RB


def _resizing(start_RB: Tensor, length_RB: Tensor, n_out: int, n_in: int) -> Tensor:
    """The weight of each pixel of a line (n_in) in each pixel of its resized part (n_out)."""
    scale_RB11 = (length_RB / n_out)[..., None, None]
    start_RB11, stop_RB11 = start_RB[..., None, None], (start_RB + length_RB)[..., None, None]
    out_s1 = torch.arange(n_out, device=start_RB.device, dtype=start_RB.dtype)[:, None] + 0.5
    pixel_H = torch.arange(n_in, device=start_RB.device, dtype=start_RB.dtype) + 0.5
    distance_RBsH = (start_RB11 + out_s1 * scale_RB11 - pixel_H).abs()
    weight_RBsH = (1 - distance_RBsH / scale_RB11.clamp(min=1)).clamp(min=0)
    inside_RB1H = (pixel_H > start_RB11) & (pixel_H < stop_RB11)
    weight_RBsH = weight_RBsH * inside_RB1H
    return weight_RBsH / weight_RBsH.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Augment:
    """What is done to images before they reach a network: at random in training, always the same in testing."""

    numbers: int  # K, random numbers an image
    train: Callable[[Tensor, Tensor], Tensor]
    test: Callable[[Tensor], Tensor]
    size: int  # pixels a side that the network gets


def _tiny_imagenet(x: Tensor) -> Tensor:
    return normalise(x, TINY_IMAGENET_MEAN, TINY_IMAGENET_STD)


AUGMENTS = {
    "tiny_crops": Augment(
        RESIZED_CROP_DRAWS,
        train=lambda x, u: _tiny_imagenet(random_resized_crop_flip(x, u, 56)),
        test=lambda x: _tiny_imagenet(center_crop(x, 56)),
        size=56,
    ),
    "crop_flip": Augment(CROP_DRAWS, train=random_crop_flip, test=unit_range, size=32),
}
