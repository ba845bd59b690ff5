"""Open-set noise: outside images in place of ours."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coteach.noise import replace_images
from noise_cases import IMAGE_LABELS, IMAGES, SEEDS, refused


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0, 0.99), SEEDS)
def test_each_class_loses_the_same_share_of_images(y, rate, seed):
    images = np.arange(len(y), dtype=np.float32)[:, None, None] + np.zeros((2, 2), dtype=np.float32)
    outside = -1 - np.arange(70, dtype=np.float32)[:, None, None] + np.zeros((2, 2), dtype=np.float32)
    before = images.copy(), outside.copy(), list(y)
    new_images, replaced = replace_images(images, outside, y, rate, seed)
    for label in set(y):
        assert replaced[np.array(y) == label].sum() == round(rate * y.count(label))
    np.testing.assert_array_equal(new_images[~replaced], images[~replaced])
    np.testing.assert_array_equal(new_images < 0, replaced[:, None, None] & np.ones((2, 2), dtype=bool))
    assert len(np.unique(new_images[replaced])) == replaced.sum(), "an outside image was used twice"
    assert set(np.unique(new_images[replaced])) <= set(outside[:, 0, 0])
    assert (new_images.shape, new_images.dtype, replaced.dtype) == (images.shape, images.dtype, bool)
    np.testing.assert_equal((images, outside, y), before)


def test_a_share_of_nothing_still_returns_a_copy():
    new_images, replaced = replace_images(IMAGES, IMAGES, IMAGE_LABELS, rate=0)
    assert not replaced.any()
    assert not np.shares_memory(new_images, IMAGES)


def test_exactly_enough_outside_images_are_all_used():
    outside = IMAGES[:16] + np.uint8(120)
    new_images, replaced = replace_images(IMAGES, outside, IMAGE_LABELS)
    assert replaced.sum() == 16
    assert sorted(new_images[replaced].tolist()) == sorted(outside.tolist())


def test_images_that_cannot_be_replaced():
    def replace(outside, y=IMAGE_LABELS):
        return lambda: replace_images(IMAGES, outside, y)

    ours = "the images are uint8 of shape (3,), the outside images"
    refused(replace(IMAGES[:, :2]), f"{ours} uint8 of shape (2,): convert one to the other.")
    refused(replace(IMAGES / 255), f"{ours} float64 of shape (3,): convert one to the other.")
    refused(replace(np.uint8(3)), "images must be arrays with one image per row: stack them first.")
    message = "16 outside images are needed but there are 15: give more of them, or lower the rate."
    refused(replace(IMAGES[:15]), message)
    message = "40 samples but 39 labels: hand in exactly one label per sample."
    refused(replace(IMAGES, IMAGE_LABELS[1:]), message)
