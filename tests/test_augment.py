"""Augmentation against slow loops over single images: slicing, torch's own resizing, and Pillow."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from coteach.augment import (
    AUGMENTS,
    CHANGE_DRAWS,
    CHANGES,
    CROP_DRAWS,
    CUTOUT_DRAWS,
    RESIZED_CROP_DRAWS,
    SHIFT_DRAWS,
    TINY_IMAGENET_MEAN,
    TINY_IMAGENET_STD,
    center_crop,
    cutouts,
    normalise,
    random_changes,
    random_crop_flip,
    random_cutout,
    random_resized_crop_flip,
    random_shift,
    shifts,
    strong_changes,
)
from plain_ingredients import changed, cut, moved

ALMOST_ONE = 1 - 2**-53


def images(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator, dtype=dtype)
    return torch.rand(shape, generator=generator, dtype=dtype)


def draws(seed: int, *shape: int) -> Tensor:
    """Uniform numbers, a few of them at the very ends of [0, 1)."""
    u = images(seed, *shape)
    ends = images(seed + 1, *shape)
    return torch.where(ends < 0.05, 0.0, torch.where(ends > 0.95, ALMOST_ONE, u))


def one_by_one(function, x_RBCHW: Tensor, u_RBK: Tensor) -> Tensor:
    """Apply a function of one image and a list of its numbers to every image alone."""
    runs = [
        torch.stack([function(image, u.tolist()) for image, u in zip(x_BCHW, u_BK, strict=True)])
        for x_BCHW, u_BK in zip(x_RBCHW, u_RBK, strict=True)
    ]
    return torch.stack(runs)


# ---- crops that move pixels --------------------------------------------------------------------------------


def shifted_by_slicing(image: Tensor, u: list[float], padding: int) -> Tensor:
    channels, height, width = image.shape
    canvas = torch.zeros(channels, height + 2 * padding, width + 2 * padding, dtype=image.dtype)
    canvas[:, padding : padding + height, padding : padding + width] = image
    top, left = int(u[0] * (2 * padding + 1)), int(u[1] * (2 * padding + 1))
    part = canvas[:, top : top + height, left : left + width]
    return part.flip(2) if u[2] < 0.5 else part


@given(
    seed=st.integers(0, 10**6),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    padding=st.integers(0, 4),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float64]),
)
def test_random_crop_is_slicing(seed, height, width, padding, dtype):
    x = images(seed, 2, 3, 2, height, width, dtype=dtype)
    u = draws(seed, 2, 3, CROP_DRAWS)
    expected = one_by_one(lambda image, numbers: shifted_by_slicing(image, numbers, padding), x, u)
    cropped = random_crop_flip(x, u, padding)
    assert cropped.dtype == dtype
    assert torch.equal(cropped, expected)


def test_random_crop_reaches_every_shift_and_both_mirrors():
    x = torch.arange(1, 10.0).view(1, 1, 3, 3).expand(400, 1, 3, 3)
    crops = random_crop_flip(x, draws(0, 400, CROP_DRAWS), padding=1)
    assert len(crops.flatten(1).unique(dim=0)) == 3 * 3 * 2


@given(height=st.integers(1, 20), width=st.integers(1, 20), size=st.integers(1, 20))
def test_center_crop(height, width, size):
    x = images(0, 2, 1, 1, height, width)
    if size > min(height, width):
        with pytest.raises(ValueError, match="smaller crop"):
            center_crop(x, size)
        return
    cropped = center_crop(x, size)
    assert cropped.shape == (2, 1, 1, size, size)
    inside = [
        (top, left)
        for top in range(height - size + 1)
        for left in range(width - size + 1)
        if torch.equal(x[..., top : top + size, left : left + size], cropped)
    ]
    ((top, left),) = inside
    assert abs(top - (height - size - top)) <= 1  # as much cut off above as below, except an odd pixel
    assert abs(left - (width - size - left)) <= 1


def test_center_crop_of_64_starts_at_4():
    x = images(0, 1, 1, 3, 64, 64, dtype=torch.uint8)
    assert torch.equal(center_crop(x), x[..., 4:60, 4:60])


# ---- random resized crop -----------------------------------------------------------------------------------


def box_by_trying(u: list[float], height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height, width: ten tries one after the other, then the largest central part."""
    for n in range(10):
        area = height * width * (0.08 + 0.92 * u[n])
        aspect = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * u[10 + n])
        h, w = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < h <= height and 0 < w <= width:
            return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    h, w = height, width
    if width / height < 3 / 4:
        h = round(width / (3 / 4))
    elif width / height > 4 / 3:
        w = round(height * (4 / 3))
    return (height - h) // 2, (width - w) // 2, h, w


def resized_by_interpolate(image: Tensor, u: list[float], size: int) -> Tensor:
    top, left, h, w = box_by_trying(u, *image.shape[1:])
    part = image[None, :, top : top + h, left : left + w]
    out = F.interpolate(part, (size, size), mode="bilinear", align_corners=False, antialias=True)[0]
    return out.flip(2) if u[22] < 0.5 else out


@given(seed=st.integers(0, 10**6), height=st.integers(2, 40), width=st.integers(2, 40), size=st.integers(1, 40))
@example(seed=0, height=64, width=64, size=56)
@example(seed=0, height=4, width=40, size=7)  # hardly any try fits: the central part
@example(seed=0, height=40, width=4, size=7)
def test_random_resized_crop_is_torchs_resizing_of_slices(seed, height, width, size):
    x = images(seed, 2, 3, 2, height, width)
    u = draws(seed, 2, 3, RESIZED_CROP_DRAWS)
    expected = one_by_one(lambda image, numbers: resized_by_interpolate(image, numbers, size), x, u)
    torch.testing.assert_close(random_resized_crop_flip(x, u, size), expected, rtol=0, atol=1e-10)


def test_bytes_are_the_same_as_floats_from_0_to_1():
    x = images(0, 2, 3, 3, 16, 16, dtype=torch.uint8)
    u = draws(0, 2, 3, RESIZED_CROP_DRAWS)
    cropped = random_resized_crop_flip(x, u, 9)
    assert cropped.dtype == torch.float32
    torch.testing.assert_close(cropped, random_resized_crop_flip(x.double() / 255, u, 9).float())


def test_random_resized_crop_is_pillows():
    x = images(0, 1, 12, 3, 64, 64, dtype=torch.uint8)
    u = draws(0, 1, 12, RESIZED_CROP_DRAWS)
    u[0, 0, :20] = 0.99  # nearly the whole image, so that resizing shrinks it
    u[0, 0, 10:20] = 0.5

    def by_pillow(image: Tensor, numbers: list[float]) -> Tensor:
        top, left, h, w = box_by_trying(numbers, 64, 64)
        part = Image.fromarray(image.permute(1, 2, 0).numpy()).crop((left, top, left + w, top + h))
        out = torch.from_numpy(np.array(part.resize((56, 56), Image.Resampling.BILINEAR))).permute(2, 0, 1)
        return (out.flip(2) if numbers[22] < 0.5 else out) / 255

    expected = one_by_one(by_pillow, x, u)
    # Pillow rounds to bytes after resizing each axis: half a byte twice.
    torch.testing.assert_close(random_resized_crop_flip(x, u), expected, rtol=0, atol=1.01 / 255)


def test_parts_have_the_promised_areas():
    """Pixels are their own column number, so a part's extreme values tell its width."""
    side, n = 64, 1000
    columns = torch.arange(side, dtype=torch.float64).expand(1, side, side)
    both = torch.cat([columns, columns.mT]).expand(n, 2, side, side)
    parts = random_resized_crop_flip(both, images(3, n, RESIZED_CROP_DRAWS), side)
    spread = parts.amax((2, 3)) - parts.amin((2, 3)) + 1  # to within a pixel, width and height
    area = spread.prod(1) / side**2
    assert area.min() > 0.06
    assert area.max() <= 1
    aspect = spread[:, 0] / spread[:, 1]
    assert 0.65 < aspect.min() < 0.8
    assert 1.25 < aspect.max() < 1.55
    # Nearly uniform from 0.08 to 1, less the big parts whose shape did not fit: a mean a little under 0.54.
    assert 0.47 < area.mean() < 0.54


# ---- shifts over a reflected border, and mirrors -----------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    shift=st.integers(0, 20),
    mirror=st.booleans(),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float64]),
)
@example(seed=0, height=4, width=1, shift=9, mirror=True, dtype=torch.uint8)  # many times the image
def test_a_shift_is_a_window_of_the_reflected_image(seed, height, width, shift, mirror, dtype):
    x = images(seed, 2, 3, 2, height, width, dtype=dtype)
    u = draws(seed, 2, 3, SHIFT_DRAWS)
    expected = one_by_one(lambda image, numbers: moved(image, numbers, shift, mirror), x, u)
    shifted = random_shift(x, u, shift, mirror)
    assert shifted.dtype == dtype
    assert torch.equal(shifted, expected)


def test_no_shift_is_the_image_and_a_mirror_alone_turns_half_of_them():
    x, u = images(0, 1, 2000, 2, 4, 5), images(1, 1, 2000, SHIFT_DRAWS)
    assert torch.equal(random_shift(x, u, 0, mirror=False), x)
    turned = random_shift(x, u, 0, mirror=True)
    is_same, is_turned = ((turned == other).flatten(2).all(2)[0] for other in (x, x.flip(-1)))
    assert (is_same ^ is_turned).all()
    assert 0.46 < is_turned.double().mean() < 0.54


def test_every_shift_is_as_likely():
    """Down and across by -1, 0 or 1: nine places of the middle pixel."""
    x = torch.zeros(1, 9000, 1, 5, 5)
    x[..., 2, 2] = 1
    shifted = random_shift(x, images(2, 1, 9000, SHIFT_DRAWS), 1, mirror=False)
    found = shifted.sum((0, 1, 2))
    assert (found[1:4, 1:4] > 850).all()
    assert (found[1:4, 1:4] < 1150).all()
    assert found.sum() == 9000


# ---- squares that are blanked ------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    size=st.integers(1, 24),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float64]),
)
def test_a_cutout_is_a_square_of_the_mean(seed, height, width, size, dtype):
    x = images(seed, 2, 3, 2, height, width, dtype=dtype)
    u = draws(seed, 2, 3, CUTOUT_DRAWS)
    expected = one_by_one(lambda image, numbers: cut(image, numbers, size), x, u)
    blanked = random_cutout(x, u, size)
    assert blanked.dtype == dtype
    tolerance = {torch.uint8: 1, torch.float32: 1e-6, torch.float64: 1e-12}[dtype]  # half a byte up or down
    torch.testing.assert_close(blanked, expected, rtol=0, atol=tolerance)


def test_a_cutout_of_bytes_is_the_nearest_byte_and_all_else_stays():
    x = torch.zeros(1, 1, 1, 4, 4, dtype=torch.uint8)
    x[..., :, 0] = 255  # a mean of 63.75
    blanked = random_cutout(x, torch.tensor([[[0.5, 0.5]]]), 2)
    assert (blanked[..., 1:3, 1:3] == 64).all()
    blanked[..., 1:3, 1:3] = 0
    assert torch.equal(blanked, x)


def test_a_centre_may_be_any_pixel_and_the_square_reach_over_the_border():
    x = torch.zeros(1, 4000, 1, 4, 4)
    x[..., 0, 0] = 16.0  # so that the mean is 1
    blanked = random_cutout(x, images(4, 1, 4000, CUTOUT_DRAWS), 3) == 1
    assert set(blanked.sum((-2, -1)).unique().tolist()) == {4, 6, 9}
    assert len(blanked.flatten(0, 2).flatten(1).unique(dim=0)) == 16


# ---- one after the other -----------------------------------------------------------------------------------


def test_one_after_the_other_takes_the_numbers_of_both():
    x, u = images(5, 2, 3, 1, 6, 6), draws(5, 2, 3, CROP_DRAWS + SHIFT_DRAWS + CUTOUT_DRAWS)
    first, second, third = AUGMENTS["crop_flip"], shifts(2, mirror=True), cutouts(3)
    chain = first.then(second).then(third)
    assert chain.numbers == u.shape[-1]
    assert chain.size == first.size
    expected = random_crop_flip(x, u[..., :3])
    expected = random_cutout(random_shift(expected, u[..., 3:6], 2, mirror=True), u[..., 6:], 3)
    assert torch.equal(chain.train(x, u), expected)
    assert torch.equal(chain.test(x), x)


# ---- normalisation -----------------------------------------------------------------------------------------


def test_normalise():
    mean, std = (
        (0.4802, 0.4481, 0.3975),
        (0.2302, 0.2265, 0.2262),
    )  # Tiny-ImageNet's, as the authors have them
    x = images(0, 2, 3, 3, 4, 5, dtype=torch.uint8)
    expected = torch.empty(x.shape)
    for c in range(3):
        expected[:, :, c] = (x[:, :, c] / 255 - mean[c]) / std[c]
    torch.testing.assert_close(normalise(x, TINY_IMAGENET_MEAN, TINY_IMAGENET_STD), expected)
    torch.testing.assert_close(normalise(x / 255, TINY_IMAGENET_MEAN, TINY_IMAGENET_STD), expected)


def test_normalise_wants_a_number_per_channel():
    with pytest.raises(ValueError, match="images of 1 channels.*3 and 3"):
        normalise(images(0, 1, 1, 1, 4, 4), TINY_IMAGENET_MEAN, TINY_IMAGENET_STD)


# ---- strong views ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_that_of_a_loop_over_pixels(change):
    x, u = images(1, 2, 4, 3, 5, 6), draws(2, 2, 4, CHANGE_DRAWS)
    u[..., 0] = (CHANGES.index(change) + 0.5) / len(CHANGES)
    torch.testing.assert_close(random_changes(x, u), one_by_one(changed, x, u), rtol=1e-9, atol=1e-9)
    assert torch.allclose(random_changes(x, u), x) == (change == "none")


@pytest.mark.parametrize("height, width", [(21, 21), (15, 33), (33, 15)])
def test_a_turn_keeps_distances_in_pixels(height, width):
    """A bright pixel beside the middle is as far from it afterwards, by the angle that was drawn."""
    for row, column in ((0, 6), (6, 0), (-4, 4)):
        x = torch.zeros(1, 1, 1, height, width, dtype=torch.float64)
        x[..., height // 2 + row, width // 2 + column] = 1.0
        u = torch.tensor([(CHANGES.index("turn") + 0.5) / len(CHANGES), 0.9]).double().expand(1, 1, 2)
        turned = random_changes(x, u)[0, 0, 0]
        rows = torch.arange(height)[:, None] - height // 2
        columns = torch.arange(width) - width // 2
        found = [(turned * places).sum() / turned.sum() for places in (rows, columns)]
        cos, sin = math.cos(0.8 * math.radians(30)), math.sin(0.8 * math.radians(30))
        assert found == pytest.approx([cos * row - sin * column, sin * row + cos * column], abs=0.3)


@pytest.mark.parametrize("change, along", [("shear_x", -1), ("shear_y", -2)])
def test_a_shear_moves_a_line_of_pixels_by_a_share_of_its_distance(change, along):
    """By 0.3 pixels for each pixel that it lies from the middle."""
    x = torch.zeros(1, 1, 1, 21, 41, dtype=torch.float64)
    x.select(along, x.shape[along] // 2).fill_(1.0)
    u = torch.tensor([(CHANGES.index(change) + 0.5) / len(CHANGES), 1.0]).double().expand(1, 1, 2)
    sheared = random_changes(x, u)[0, 0, 0]
    places = torch.arange(x.shape[along]) - x.shape[along] // 2
    for distance in (-6, -2, 2, 6):
        line = sheared[10 + distance] if along == -1 else sheared[:, 20 + distance]
        assert (line * places).sum() / line.sum() == pytest.approx(-0.3 * distance, abs=0.05)


def test_changes_follow_each_other():
    x, u = images(3, 1, 6, 3, 6, 5), draws(4, 1, 6, 3 * CHANGE_DRAWS)
    torch.testing.assert_close(random_changes(x, u), one_by_one(changed, x, u), rtol=1e-9, atol=1e-9)
    strong = strong_changes(3)
    assert strong.numbers == u.shape[-1]
    assert torch.equal(strong.train(x, u), random_changes(x, u))
    assert torch.equal(strong.test(x), x)


def test_the_units_of_an_image_do_not_matter():
    """So that standardised images are changed as others are."""
    x, u = images(5, 1, 20, 3, 6, 6), draws(6, 1, 20, 2 * CHANGE_DRAWS)
    torch.testing.assert_close(random_changes(5 * x - 2, u), 5 * random_changes(x, u) - 2, rtol=1e-9, atol=1e-9)


def test_every_change_is_drawn_and_stays_within_the_images_range():
    x, u = images(7, 1, 500, 1, 4, 4), draws(8, 1, 500, CHANGE_DRAWS)
    found = random_changes(x, u)
    assert len(set((u[..., 0] * len(CHANGES)).long().flatten().tolist())) == len(CHANGES)
    low, high = (of((-3, -2, -1), keepdim=True) for of in (x.amin, x.amax))
    assert ((found >= low - 1e-9) & (found <= high + 1e-9)).all()


def test_an_image_of_one_colour_stays_as_it_is():
    x, u = torch.full((1, 30, 3, 4, 4), 0.4, dtype=torch.float64), draws(9, 1, 30, 2 * CHANGE_DRAWS)
    torch.testing.assert_close(random_changes(x, u), x)
