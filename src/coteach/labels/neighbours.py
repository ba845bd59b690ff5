"""The nearest samples, and what class they speak for. No labels are learnt: a second opinion beside any model.

M samples, K nearest of each, C classes, F features.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from coteach.labels.quality import of_given_labels

NEAREST = 20  # that vote
CANDIDATES = 60  # nearest, of which the first that are trusted vote
NUMBERS_AT_ONCE = 2**24  # similarities in memory
MOST_ASKED = 20_000  # samples among which the nearest are looked for: else the work grows with the square
A_TENTH = 0.1  # of the vote, mixed into a model's probabilities to see whether it tells anything new


@dataclass(frozen=True)
class Neighbours:
    """The nearest samples of each, how all are labelled, and what a model says that never saw the label."""

    nearest_MK: np.ndarray = field(repr=False)
    labels_M: np.ndarray = field(repr=False)
    n_classes: int
    voters: int = NEAREST
    held_out_MC: np.ndarray | None = field(default=None, repr=False)

    def vote(self, trusted_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many of the nearest trusted samples are labelled so, and the probabilities that makes (both MC)."""
        votes_MC = votes(self.nearest_MK, self.labels_M, trusted_M, self.n_classes, self.voters)
        return votes_MC, vote_probabilities(votes_MC, self.labels_M, trusted_M)

    @cached_property
    def vote_of_all(self) -> np.ndarray:
        """The probabilities if every sample is trusted (MC)."""
        return self.vote(np.ones(len(self.labels_M), dtype=bool))[1]

    @cached_property
    def tell_more(self) -> bool:
        """Whether the model would predict held-out labels better if it listened a little to the vote of all.

        Believed where nothing is held out.
        """
        if self.held_out_MC is None:
            return True
        model_M, vote_M = (of_given_labels(p, self.labels_M) for p in (self.held_out_MC, self.vote_of_all))
        return bool(np.log(1 - A_TENTH + A_TENTH * vote_M / model_M).mean() > 0)


def nearest_samples(x_MF: np.ndarray, most: int = CANDIDATES, among: int = MOST_ASKED) -> np.ndarray:
    """Indices of the samples that point in the most similar direction from the mean, nearest first (MK).

    They are looked for in so many samples at most, which are drawn at random.
    """
    x = directions(x_MF, x_MF.mean(0))
    n, pieces = len(x), []
    searched = drawn(np.arange(n), among)
    place_M = torch.full((n,), -1)
    place_M[torch.from_numpy(searched)] = torch.arange(len(searched))
    others = x if n <= among else x[torch.from_numpy(searched)]
    rows = max(1, NUMBERS_AT_ONCE // len(searched))
    for begin in range(0, n, rows):
        similar = x[begin : begin + rows] @ others.T
        own = place_M[begin : begin + rows]
        itself = (own >= 0).nonzero()[:, 0]
        similar[itself, own[itself]] = -torch.inf
        pieces.append(similar.topk(min(most, len(searched) - 1)).indices.int())
    return searched[torch.cat(pieces).numpy()]


def directions(x_MF: np.ndarray, centre_F: np.ndarray) -> Tensor:
    """Unit vectors from the centre."""
    x = torch.from_numpy(np.ascontiguousarray(x_MF - centre_F, dtype=np.float32))
    return x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)


def drawn(indices_M: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the indices, in their order, by a draw that is always the same."""
    if len(indices_M) <= most:
        return indices_M
    return np.sort(np.random.default_rng(0).choice(indices_M, most, replace=False))


@dataclass(frozen=True)
class NeighbourModel:
    """Predicts by the labels of the nearest learnt samples (R), each with its weight."""

    centre_F: np.ndarray = field(repr=False)
    directions_RF: np.ndarray = field(repr=False)
    labels_R: np.ndarray = field(repr=False)
    weights_R: np.ndarray = field(repr=False)
    n_classes: int
    voters: int = NEAREST

    @classmethod
    def of(
        cls, x_MF: np.ndarray, labels_M: np.ndarray, weights_M: np.ndarray, n_classes: int, voters: int = NEAREST
    ) -> "NeighbourModel":
        """Takes samples with a weight, and draws some where these are too many."""
        chosen, centre_F = drawn(np.flatnonzero(weights_M), MOST_ASKED), x_MF.mean(0)
        learnt = directions(x_MF[chosen], centre_F).numpy()
        return cls(centre_F, learnt, labels_M[chosen], weights_M[chosen], n_classes, voters)

    def predict_proba(self, x_MF: np.ndarray) -> np.ndarray:
        """Shares of the votes (MC), with one more vote that is spread as the labels are."""
        usual_C = np.bincount(self.labels_R, self.weights_R, self.n_classes) / self.weights_R.sum()
        rows, learnt_FR = max(1, NUMBERS_AT_ONCE // len(self.labels_R)), torch.from_numpy(self.directions_RF).T
        votes_MC = np.zeros((len(x_MF), self.n_classes))
        for begin in range(0, len(x_MF), rows):
            similar = directions(x_MF[begin : begin + rows], self.centre_F) @ learnt_FR
            nearest_MK = similar.topk(min(self.voters, len(self.labels_R))).indices.numpy()
            row_MK = begin + np.arange(len(nearest_MK))[:, None]
            np.add.at(votes_MC, (row_MK, self.labels_R[nearest_MK]), self.weights_R[nearest_MK])
        return (votes_MC + usual_C) / (votes_MC.sum(1, keepdims=True) + 1)


def votes(
    nearest_MK: np.ndarray, labels_M: np.ndarray, trusted_M: np.ndarray, n_classes: int, voters: int = NEAREST
) -> np.ndarray:
    """How the nearest trusted samples are labelled: counts of each class (MC).

    >>> nearest = np.array([[1, 2], [0, 2], [1, 0]])
    >>> votes(nearest, np.array([0, 0, 1]), np.array([True, False, True]), n_classes=2)
    array([[0, 1],
           [1, 1],
           [1, 0]])
    """
    trusted_MK = trusted_M[nearest_MK]
    voting_MK = trusted_MK & (trusted_MK.cumsum(1) <= voters)
    cell_MK = labels_M[nearest_MK] + n_classes * np.arange(len(nearest_MK))[:, None]
    return np.bincount(cell_MK[voting_MK], minlength=nearest_MK.shape[0] * n_classes).reshape(-1, n_classes)


def vote_probabilities(votes_MC: np.ndarray, labels_M: np.ndarray, trusted_M: np.ndarray) -> np.ndarray:
    """Shares of the votes (MC), with one more vote that is spread as the trusted labels are.

    >>> vote_probabilities(np.array([[3, 0], [0, 0]]), np.array([0, 1]), np.array([True, True])).tolist()
    [[0.875, 0.125], [0.5, 0.5]]
    """
    usual_C = np.bincount(labels_M[trusted_M], minlength=votes_MC.shape[1]) / trusted_M.sum()
    return (votes_MC + usual_C) / (votes_MC.sum(1, keepdims=True) + 1)
