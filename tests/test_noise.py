"""What every noise is given: rate, classes, seed and kind; and that importing it is cheap."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from coteach import noise
from coteach.noise import corrupt, pair, replace_images, superclass_asymmetric, symmetric
from noise_cases import IMAGE_LABELS, IMAGES, LABELS, SEEDS, refused


def everything_from_seed(seed):
    features = np.random.RandomState(9).normal(size=(600, 4))
    flips = [corrupt(LABELS, kind, 0.4, seed=seed, features=features) for kind in ("symmetric", "instance")]
    return [drawn.labels for drawn in flips] + list(replace_images(IMAGES, IMAGES[::-1], IMAGE_LABELS, 0.4, seed))


@given(SEEDS, SEEDS)
def test_the_seed_decides_and_the_global_generator_is_left_alone(seed, global_seed):
    before = np.random.get_state()
    try:
        first = everything_from_seed(seed)
        np.random.seed(global_seed)
        held = np.random.get_state()
        second = everything_from_seed(seed)
        np.testing.assert_equal(np.random.get_state(), held)
    finally:
        np.random.set_state(before)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_seed_is_another_noise():
    for a, b in zip(everything_from_seed(0), everything_from_seed(1), strict=True):
        assert (a != b).any()


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan"), float("inf"), None, "0.2"])
def test_a_rate_that_is_none(rate):
    message = f"the noise rate is {rate!r}: give a number from 0 to below 1."
    refused(lambda: symmetric(10, rate), message)
    refused(lambda: pair(10, rate), message)
    refused(lambda: superclass_asymmetric([0, 0], rate), message)
    refused(lambda: corrupt(LABELS, "symmetric", rate), message)
    refused(lambda: corrupt(LABELS, "instance", rate, features=np.eye(600)), message)
    refused(lambda: replace_images(IMAGES, IMAGES, IMAGE_LABELS, rate), message)
    if rate is not None:
        refused(lambda: corrupt(LABELS, "matrix", rate, matrix=np.eye(10)), message)


@pytest.mark.parametrize("n_classes", [1, 0, -3, 2.0, "2"])
def test_a_number_of_classes_that_is_none(n_classes):
    message = f"the number of classes is {n_classes!r}: noise needs an integer of 2 or more."
    refused(lambda: symmetric(n_classes, 0.1), message)
    refused(lambda: pair(n_classes, 0.1), message)
    for kind in ("none", "symmetric", "pair", "instance"):
        refused(lambda kind=kind: corrupt([0, 1], kind, 0, n_classes, features=np.eye(2)), message)


@pytest.mark.parametrize("seed", [-1, 2**32, 0.0, None, "0"])
def test_a_seed_that_is_none(seed):
    message = f"the noise seed is {seed!r}: give an integer from 0 to 2**32 - 1."
    refused(lambda: corrupt(LABELS, "pair", 0.2, seed=seed), message)
    refused(lambda: replace_images(IMAGES, IMAGES, IMAGE_LABELS, seed=seed), message)


@pytest.mark.parametrize(
    "wrong, nearest", [("simetric", "symmetric"), ("pairflip", "pair"), ("asym", "asymmetric")]
)
def test_an_unknown_kind_gets_the_nearest_name(wrong, nearest):
    known = "none, clean, symmetric, pair, asymmetric, instance, matrix"
    message = f"there is no kind of noise {wrong!r} (did you mean {nearest!r}?): choose one of {known}."
    refused(lambda: corrupt(LABELS, wrong, 0.2), message)


def test_noise_needs_no_torch():
    environment = os.environ | {"PYTHONPATH": str(Path(noise.__file__).parents[2])}
    command = "import sys, coteach.noise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], env=environment, check=False).returncode == 0
