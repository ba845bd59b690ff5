"""NumPy's `RandomState.multinomial` for one sample a row, which is not the same in every NumPy. C classes."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from coteach.names import Streams


class Turn(NamedTuple):
    """A class in its turn: whether it is this one, if it was none before, by one uniform number.

    As NumPy's binomial does it, by inversion from the commoner of the two answers: `common` and `rare` are their
    probabilities, and what round-off leaves between their sum and 1 is drawn again.
    """

    label: int
    common: float
    rare: float
    is_rare: bool

    def taken(self, uniform: Callable[[], float]) -> bool:
        u = uniform()
        while u - self.common > self.rare:
            u = uniform()
        return (u > self.common) == self.is_rare


def turns(row_C: np.ndarray, stream: Streams) -> Iterator[Turn]:
    """The classes in the order in which they are asked; the last is what is left if it is none of them."""
    left = 1.0
    for label, probability in enumerate(row_C[:-1].tolist()):
        p = probability / left if left else 0.0
        if p or stream == "1.16":
            rare = min(p, 1 - p)
            common = math.exp(math.log(1 - rare))
            yield Turn(label, common, rare * common / (1 - rare), p <= 0.5)
        left -= probability


def drawn(turns_M: Iterable[Iterable[Turn]], last: int, random: np.random.RandomState, n: int) -> np.ndarray:
    """A label for each of `n` samples: how many random numbers one uses up depends on its outcome."""
    uniform = random.random_sample
    labels = (next((turn.label for turn in turns if turn.taken(uniform)), last) for turns in turns_M)
    return np.fromiter(labels, np.int64, n)
