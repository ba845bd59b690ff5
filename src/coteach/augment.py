"""Crops, shifts, mirror images, cut-outs and normalisation of whole batches, on whatever device they are.

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
SHIFT_DRAWS = 3
CUTOUT_DRAWS = 2
CHANGE_DRAWS = 2  # a change of a strong view: which, and how much

# The changes of a strong view, each as likely as the others, and how far they go.
TURN, SHEAR, MOVE = math.radians(30), 0.3, 0.3  # the last of the image's width, or height
BLEND = 0.9
CHANGES = (
    "none", "turn", "shear_x", "shear_y", "move_x", "move_y", "brightness", "contrast", "colour", "sharpness",
    "solarise", "posterise", "stretch",
)  # fmt: skip


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


def random_shift(x_RBCHW: Tensor, u_RBK: Tensor, shift: int, mirror: bool) -> Tensor:
    """Shift an image by up to `shift` pixels each way, its border reflected; half of the time mirror it if asked.

    Takes K = 3 numbers an image: rows, columns, mirror. Keeps size and type.
    """
    assert u_RBK.shape[-1] == SHIFT_DRAWS
    height, width = x_RBCHW.shape[-2:]
    down_RB, right_RB = ((u_RBK[..., :2] * (2 * shift + 1)).long() - shift).unbind(-1)
    row_RBH = _reflected(down_RB[..., None] + torch.arange(height, device=u_RBK.device), height)
    column_RBW = _reflected(right_RB[..., None] + torch.arange(width, device=u_RBK.device), width)
    if mirror:
        column_RBW = torch.where(_flips(u_RBK), column_RBW.flip(-1), column_RBW)
    place_RB1P = (row_RBH[..., :, None] * width + column_RBW[..., None, :]).flatten(-2)[..., None, :]
    x_RBCP = x_RBCHW.flatten(-2)
    return x_RBCP.gather(-1, place_RB1P.expand_as(x_RBCP)).view_as(x_RBCHW)


def _reflected(place: Tensor, length: int) -> Tensor:
    """Places beyond either end, counted back from it, and forth again from the other if they are that far."""
    there_and_back = max(2 * (length - 1), 1)
    place = place.remainder(there_and_back)
    return torch.minimum(place, there_and_back - place)


def random_cutout(x_RBCHW: Tensor, u_RBK: Tensor, size: int) -> Tensor:
    """Fill a square of `size`×`size` pixels with the image's mean colour; it may reach over the border.

    Takes K = 2 numbers an image: the row and the column of its centre. Keeps size and type (DeVries and Taylor,
    2017, who fill with the mean of the data set).
    """
    assert u_RBK.shape[-1] == CUTOUT_DRAWS
    height, width = x_RBCHW.shape[-2:]
    top_RB1 = (u_RBK[..., :1] * height).long() - size // 2
    left_RB1 = (u_RBK[..., 1:] * width).long() - size // 2
    row_H, column_W = (torch.arange(n, device=u_RBK.device) for n in (height, width))
    rows_RBH = (row_H >= top_RB1) & (row_H < top_RB1 + size)
    columns_RBW = (column_W >= left_RB1) & (column_W < left_RB1 + size)
    inside_RB1HW = (rows_RBH[..., :, None] & columns_RBW[..., None, :])[..., None, :, :]
    numbers = x_RBCHW if x_RBCHW.is_floating_point() else x_RBCHW.float()
    mean_RBC11 = numbers.mean((-2, -1), keepdim=True)
    if not x_RBCHW.is_floating_point():
        mean_RBC11 = mean_RBC11.round().to(x_RBCHW.dtype)
    return torch.where(inside_RB1HW, mean_RBC11, x_RBCHW)


def random_changes(x_RBCHW: Tensor, u_RBK: Tensor) -> Tensor:
    """Changes of colour and shape, one after the other, each drawn with its strength (Cubuk et al., 2020).

    Takes K = 2 numbers for each change: which of `CHANGES`, and how much. Colours are changed in units of the
    image's own range, from its least to its greatest number, so that standardised images fare as others. All
    changes of shape are done at the end, as one, with the border reflected. Keeps size and type.
    """
    assert u_RBK.shape[-1] % CHANGE_DRAWS == 0
    low = x_RBCHW.amin((-3, -2, -1), keepdim=True)
    spread = x_RBCHW.amax((-3, -2, -1), keepdim=True) - low
    x = (x_RBCHW - low) / torch.where(spread > 0, spread, 1)
    matrix_RB33 = torch.eye(3, dtype=x.dtype, device=x.device).expand(*x.shape[:-3], 3, 3)
    for u_RB2 in u_RBK.split(CHANGE_DRAWS, -1):
        kind_RB = (u_RB2[..., 0] * len(CHANGES)).long()
        much_RB = u_RB2[..., 1].to(x.dtype)
        x = _recoloured(x, kind_RB, much_RB)
        matrix_RB33 = matrix_RB33 @ _reshaping(kind_RB, 2 * much_RB - 1, *x.shape[-2:])
    return low + spread * _moved(x, matrix_RB33)


def _flips(u_RBK: Tensor) -> Tensor:
    return u_RBK[..., -1:] < 0.5


def _recoloured(x: Tensor, kind_RB: Tensor, much_RB: Tensor) -> Tensor:
    """Images from 0 to 1 after the change of colour that each has drawn, if any, by a number in [0, 1)."""
    much = much_RB[..., None, None, None]
    grey = x.mean(-3, keepdim=True)
    least, most = (of((-2, -1), keepdim=True) for of in (x.amin, x.amax))
    levels = 2.0 ** (4 + (4 * much).floor())  # 16 to 128 of them
    blended = {  # between the image and what it would be without that quality, or beyond it
        "brightness": torch.zeros_like(x),
        "contrast": grey.mean((-2, -1), keepdim=True).expand_as(x),
        "colour": grey.expand_as(x),
        "sharpness": _blurred(x),
    }
    factor = 1 + BLEND * (2 * much - 1)
    changed = {name: (without + factor * (x - without)).clamp(0, 1) for name, without in blended.items()}
    changed["solarise"] = torch.where(x >= much, 1 - x, x)
    # round-off must not take a pixel that lies on a level to the one below
    changed["posterise"] = ((x * levels + 1e-6).floor() / levels).clamp(0, 1)
    changed["stretch"] = torch.where(most > least, (x - least) / torch.where(most > least, most - least, 1), x)
    for name, other in changed.items():
        x = torch.where((kind_RB == CHANGES.index(name))[..., None, None, None], other, x)
    return x


def _blurred(x_RBCHW: Tensor) -> Tensor:
    """The mean of each pixel, which counts five times, and its eight neighbours; the border is repeated."""
    wide = F.pad(x_RBCHW.flatten(0, -4), (1, 1, 1, 1), mode="replicate").view(
        *x_RBCHW.shape[:-2], x_RBCHW.shape[-2] + 2, x_RBCHW.shape[-1] + 2
    )
    height, width = x_RBCHW.shape[-2:]
    around = sum(wide[..., i : i + height, j : j + width] for i in range(3) for j in range(3))
    return (around + 4 * x_RBCHW) / 13


def _reshaping(kind_RB: Tensor, much_RB: Tensor, height: int, width: int) -> Tensor:
    """matrix_RB33 from places in the changed image to those in the image, each from -1 to 1; by -1 to 1.

    Turns and shears are those of pixels, of which a height is another number than a width.
    """

    def if_drawn(name: str, value: Tensor, otherwise: float = 0.0) -> Tensor:
        return torch.where(kind_RB == CHANGES.index(name), value, otherwise)

    angle = if_drawn("turn", TURN * much_RB)
    cos, sin = angle.cos(), angle.sin()
    across = if_drawn("shear_x", SHEAR * much_RB) - sin
    down = if_drawn("shear_y", SHEAR * much_RB) + sin
    across, down = across * (height / width), down * (width / height)
    # the width of an image is 2 of these units, and so is its height
    right, below = (if_drawn(name, 2 * MOVE * much_RB) for name in ("move_x", "move_y"))
    none, one = torch.zeros_like(cos), torch.ones_like(cos)
    return torch.stack([cos, across, right, down, cos, below, none, none, one], -1).unflatten(-1, (3, 3))


def _moved(x_RBCHW: Tensor, matrix_RB33: Tensor) -> Tensor:
    x_XCHW = x_RBCHW.flatten(0, -4)
    grid = F.affine_grid(matrix_RB33[..., :2, :].flatten(0, -3), list(x_XCHW.shape), align_corners=False)
    moved = F.grid_sample(x_XCHW, grid, padding_mode="reflection", align_corners=False)
    return moved.view_as(x_RBCHW)


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
    size: int | None = None  # pixels a side that the network gets, if others than the image has

    def then(self, later: "Augment") -> "Augment":
        """This one, and the later one on what it makes."""
        n = self.numbers
        return Augment(
            n + later.numbers,
            train=lambda x, u: later.train(self.train(x, u[..., :n]), u[..., n:]),
            test=lambda x: later.test(self.test(x)),
            size=later.size or self.size,
        )


def as_it_is(x: Tensor) -> Tensor:
    return x


def shifts(shift: int, mirror: bool) -> Augment:
    """The weak view of an image: shifted, and mirrored if asked."""
    return Augment(SHIFT_DRAWS, train=lambda x, u: random_shift(x, u, shift, mirror), test=as_it_is)


def cutouts(size: int) -> Augment:
    """What makes a strong view of a weak one."""
    return Augment(CUTOUT_DRAWS, train=lambda x, u: random_cutout(x, u, size), test=as_it_is)


def strong_changes(changes: int) -> Augment:
    """So many changes of colour and shape, one after the other."""
    return Augment(CHANGE_DRAWS * changes, train=random_changes, test=as_it_is)


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
