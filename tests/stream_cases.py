"""Map-style data sets: what is not an array, and is read sample by sample."""

import numpy as np

NUMBERS = np.random.default_rng(0).normal(size=(12, 3))
UNREADABLE = OSError("no such\nfile")


class Pairs:
    """A map-style data set like most: Python gives a sample and its label."""

    def __init__(self, samples, labels=None):
        self.samples, self.labels = samples, labels

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> tuple:
        assert type(i) is int  # as most of them expect, to index lists and file names
        return self.samples[i], 0 if self.labels is None else self.labels[i]


class Spoilt(Pairs):
    """One sample is something else, or cannot be read."""

    def __init__(self, samples, at: int, instead, labels=None):
        super().__init__(samples, labels)
        self.at, self.instead = at, instead

    def __getitem__(self, i: int) -> tuple:
        if i != self.at:
            return super().__getitem__(i)
        if isinstance(self.instead, Exception):
            raise self.instead
        return self.instead, 0


class Together(Pairs):
    """Gives many samples at once, and only the first one alone."""

    def __getitem__(self, i: int) -> tuple:
        assert i == 0
        return super().__getitem__(i)

    def __getitems__(self, indices: list[int]) -> list[tuple]:
        return [Pairs.__getitem__(self, i) for i in indices]
