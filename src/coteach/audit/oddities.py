"""What is odd about samples besides wrong labels: duplicates, samples of no class, classes too small to judge.

M samples, F features, B of a block.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from coteach.audit.samples import FEW, LabelledSamples

MOST_SEARCHED = 20_000  # samples among which the nearest are looked for: the work grows with their square
DIMENSIONS = 256  # in which the nearest are looked for
BLOCK = 1024
NEIGHBOURS = 10
NEARLY_THE_SAME = 0.4  # of the usual distance to the nearest sample
OF_A_NORMAL = 1.4826  # its standard deviation in median absolute deviations
FAR_AWAY = 2.0  # deviations above the usual distance to the nearest samples
MANY_FEATURES = 64  # of arrays, from which on they are taken for embeddings


@dataclass(frozen=True, eq=False)
class Oddities:
    """By the numbers of samples.

    Attributes
    ----------
    same_as, like : dict
        A sample, and the earlier one that it is the same as, or nearly.
    of_no_class : set
        Samples far from all others.
    small : set
        Classes with too few samples to judge.
    searched : bool
        Whether there were few enough samples to look for those that are near or far.
    """

    same_as: dict[int, int] = field(default_factory=dict)
    like: dict[int, int] = field(default_factory=dict)
    of_no_class: set[int] = field(default_factory=set)
    small: set[Any] = field(default_factory=set)
    searched: bool = True

    def remarks(self, i: int, samples: LabelledSamples) -> list[str]:
        """A few words for each."""
        said = []
        for others, words in ((self.same_as, "the same as"), (self.like, "nearly the same as")):
            if (j := others.get(i)) is not None:
                label = "" if samples.y[i] == samples.y[j] else f", whose label is {samples.y[j]}"
                said.append(f"{words} {samples.ids[j]}{label}")
        if i in self.of_no_class:
            said.append("far from all classes")
        if samples.y[i] in self.small:
            said.append("its class is too small to judge")
        return said

    def counts(self, samples: LabelledSamples) -> dict[str, Any]:
        pairs = [*self.same_as.items(), *self.like.items()]
        return {
            "same": len(self.same_as),
            "nearly_the_same": len(self.like) if self.searched else None,
            "of_them_with_another_label": int(sum(samples.y[i] != samples.y[j] for i, j in pairs)),
            "of_no_class": len(self.of_no_class) if self.searched else None,
            "classes_too_small": sorted(map(str, self.small)),
        }


def find_oddities(samples: LabelledSamples) -> Oddities:
    """Near and far need embeddings: distances between pixels or columns of a table say too little."""
    classes, counts = np.unique(samples.y, return_counts=True)
    small = set(classes[counts < FEW].tolist())
    same_as = repeated_rows(samples.x)
    alone = np.array([i for i in range(len(samples)) if i not in same_as])
    if not is_embedded(samples) or not 2 * NEIGHBOURS < len(alone) <= MOST_SEARCHED:
        return Oddities(same_as, small=small, searched=False)
    x_MF = of_length_one(samples.x[alone])
    nearest_M, far_M = nearest_of(x_MF)
    near_M = np.linalg.norm(x_MF - x_MF[nearest_M], axis=1)
    pairs = [(i, int(nearest_M[i])) for i in np.flatnonzero(near_M < NEARLY_THE_SAME * np.median(near_M)).tolist()]
    like = {int(alone[max(pair)]): int(alone[min(pair)]) for pair in pairs}
    middle = np.median(far_M)
    deviation = OF_A_NORMAL * np.median(np.abs(far_M - middle))
    of_no_class = set(alone[far_M > middle + FAR_AWAY * deviation].tolist())
    return Oddities(same_as, like, of_no_class, small)


def is_embedded(samples: LabelledSamples) -> bool:
    """Whether features are those of an encoder, or may be."""
    if samples.x.ndim != 2:
        return False
    return samples.by_trained_network or (samples.kind == "arrays" and samples.x.shape[1] >= MANY_FEATURES)


def repeated_rows(x: np.ndarray) -> dict[int, int]:
    """A sample whose numbers are those of an earlier one, and that one."""
    first: dict[bytes, int] = {}
    return {i: j for i, row in enumerate(x) if (j := first.setdefault(row.tobytes(), i)) != i}


def of_length_one(x_MF: np.ndarray) -> np.ndarray:
    x_MF = x_MF.astype(np.float32)
    length_M1 = np.linalg.norm(x_MF, axis=1, keepdims=True)
    return x_MF / np.where(length_M1 > 0, length_M1, 1)


def nearest_of(x_MF: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest other sample of each, and how far the nearest ten are on average.

    Many features are projected on random directions first, which keeps distances within a few hundredths.
    """
    x = torch.from_numpy(x_MF)
    if x.shape[1] > DIMENSIONS:
        generator = torch.Generator().manual_seed(0)
        x = x @ torch.randn(x.shape[1], DIMENSIONS, generator=generator) / DIMENSIONS**0.5
    nearest, far = [], []
    for begin in range(0, len(x), BLOCK):
        distance_BM = torch.cdist(x[begin : begin + BLOCK], x)
        rows = torch.arange(len(distance_BM))
        distance_BM[rows, begin + rows] = torch.inf
        found = distance_BM.topk(NEIGHBOURS, largest=False)
        nearest.append(found.indices[:, 0])
        far.append(found.values.mean(1))
    return torch.cat(nearest).numpy(), torch.cat(far).numpy()
