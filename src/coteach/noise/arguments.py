"""Checks of what every noise is told: its rate, its number of classes, its seed."""

from typing import Any

import numpy as np


def check_rate(rate: Any) -> float:
    if not isinstance(rate, (int, float, np.integer, np.floating)) or not 0 <= rate < 1:
        raise ValueError(f"the noise rate is {rate!r}: give a number from 0 to below 1.")
    return float(rate)


def check_n_classes(n_classes: Any) -> int:
    if not isinstance(n_classes, (int, np.integer)) or n_classes < 2:
        raise ValueError(f"the number of classes is {n_classes!r}: noise needs an integer of 2 or more.")
    return int(n_classes)


def random_state(seed: Any) -> np.random.RandomState:
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"the noise seed is {seed!r}: give an integer from 0 to 2**32 - 1.")
    return np.random.RandomState(int(seed))
