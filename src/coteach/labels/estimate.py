"""How many labels are wrong, from the data alone: no clean sample, no noise rate, no transition matrix is given.

It needs probabilities of networks that have not seen the label they are asked about. M samples, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.checks import check_labels, check_same_length
from coteach.engine import PLAINLY, Engine
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.train import Epoch, Problem, fit, posteriors

SMALLEST = 1e-6  # probability, so that a logarithm is finite; float32 softmax knows nothing finer of 1 - p
SHARPNESS = 2.0 ** np.arange(-2, 8.5, 0.5)  # from nearly even odds to certainty; the likelihood takes one
ROUND_OFF = 1e-9  # a likelihood that is better by less is no better
Z_95 = 1.96


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """How many labels are wrong, and how they came to be.

    Attributes
    ----------
    rate : float
        Share of wrong labels.
    interval : (float, float)
        Holds the rate with a confidence of 95 % or more, if noise depends on the class alone.
    per_class : float array of shape (C,)
        Share of wrong labels among those given as class c; 0 for a class that nobody was given.
    matrix : float array of shape (C, C)
        Row i: how the samples of true class i are labelled; the unit row for a class without samples.
    n : int
        Labels looked at.
    """

    rate: float
    interval: tuple[float, float]
    per_class: np.ndarray
    matrix: np.ndarray
    n: int


def estimate_noise(probabilities: Any, labels: Any) -> NoiseEstimate:
    """How many labels are wrong, given probabilities that were predicted without them.

    Samples are grouped by what the network says about them, which is not the same as by its first choice: if
    nearly half of all fours are called five, a four is known by its probability being shared between 4 and 5.
    In the surer half of each group, where nearly every sample is of one true class, the given labels are
    counted: a row of the transition matrix. For the other half it is weighed, sample by sample, how much the
    given label owes to such flips and how much to the network not knowing; how sure the network may be
    believed to be is what makes the given labels most likely.

    Parameters
    ----------
    probabilities : float array of shape (M, C)
        Out of sample: of networks trained without the sample (`out_of_sample`, or any cross-validation).
    labels : int array of shape (M,)
        As given, some of them wrong.

    Notes
    -----
    No data can tell noise that calls most of a class by another name, or wrong labels that depend on how a
    sample looks; and where true classes overlap, labels that had to be guessed count as half wrong.
    """
    p_MC = _check_probabilities(probabilities)
    n, n_classes = p_MC.shape
    labels_M = check_labels(labels, n_classes)
    check_same_length(p_MC, labels_M)
    score_MC = nearness_to_groups(p_MC)
    group_M, sure_M = score_MC.argmax(1), surer_half(score_MC)
    counts_CC = count_given(group_M[sure_M], labels_M[sure_M], n_classes)
    true_MC = np.eye(n_classes)[group_M]
    if not sure_M.all():
        true_MC[~sure_M] = weigh(score_MC[~sure_M], counts_CC, labels_M[~sure_M])
    wrong_M = 1 - true_MC[np.arange(n), labels_M]
    rate = float(np.clip(wrong_M.mean(), 0, 1))
    where_sure = float(1 - _rows(counts_CC).diagonal()[group_M].mean())
    given_MC = np.eye(n_classes)[labels_M]
    return NoiseEstimate(
        rate,
        _interval(rate, where_sure, float((group_M != labels_M).mean()), n),
        np.clip(wrong_M @ given_MC / np.maximum(given_MC.sum(0), 1), 0, 1),
        _rows(true_MC.T @ given_MC),
        n,
    )


def nearness_to_groups(p_MC: np.ndarray, most_rounds: int = 100) -> np.ndarray:
    """Minus the cross-entropy of each sample's probabilities to the mean ones of each class's group (MC).

    K-means with the divergence that belongs to probabilities, begun at the first choices, so that each group
    has a class to its name.
    """
    p_MC = np.clip(p_MC, SMALLEST, 1)
    mean_CC, score_MC = np.eye(p_MC.shape[1]), p_MC
    group_M = None
    for _ in range(most_rounds):
        nearest_M = score_MC.argmax(1)
        if group_M is not None and (nearest_M == group_M).all():
            break
        group_M = nearest_M
        for c in np.unique(group_M):  # a group that has lost all its samples stays where it was
            mean_CC[c] = p_MC[group_M == c].mean(0)
        score_MC = p_MC @ np.log(np.clip(mean_CC, SMALLEST, 1)).T
    return score_MC


def surer_half(score_MC: np.ndarray) -> np.ndarray:
    """Marks the half of each group that is farther from the second nearest group (M).

    It was found without the sample's own label, so among the sure ones the share of wrong labels is that of the
    whole class. A smaller part would hold fewer samples of other classes, but leave fewer to count: half is a
    choice, not tuned.
    """
    group_M = score_MC.argmax(1)
    second_M, first_M = np.partition(score_MC, -2, axis=1)[:, -2:].T
    margin_M = first_M - second_M
    median_C = np.zeros(score_MC.shape[1])
    for c in np.unique(group_M):
        median_C[c] = np.median(margin_M[group_M == c])
    return margin_M >= median_C[group_M]


def count_given(group_M: np.ndarray, labels_M: np.ndarray, n_classes: int) -> np.ndarray:
    """How many samples of each group are given as each class (CC)."""
    counts_CC = np.zeros((n_classes, n_classes))
    np.add.at(counts_CC, (group_M, labels_M), 1)
    return counts_CC


def weigh(score_MC: np.ndarray, counts_CC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """Probability of each true class once the given label is known (MC)."""
    matrix_CC = _rows(counts_CC + 1 / len(counts_CC))  # one more label a row, spread evenly: a few prove no zero
    flip_MC = matrix_CC[:, labels_M].T
    most_likely, true_MC = -np.inf, score_MC
    for sharpness in SHARPNESS:
        joint_MC = _softmax(sharpness * score_MC) * flip_MC
        evidence_M = joint_MC.sum(1)
        likelihood = np.log(evidence_M).mean()
        if likelihood > most_likely + ROUND_OFF:
            most_likely, true_MC = likelihood, joint_MC / evidence_M[:, None]
    return true_MC


def _interval(rate: float, where_sure: float, disagreement: float, n: int) -> tuple[float, float]:
    """Chance in who was mislabelled, and that nobody knows where between its other readings the rate lies.

    One counts where the network is sure only, one takes every mistake of the network for a wrong label. More
    samples do not bring them together, a better network does. A uniform distribution has a variance of width²/12.
    """
    width = max(rate, where_sure, disagreement) - min(rate, where_sure, disagreement)
    reach = Z_95 * float(np.sqrt(max(rate * (1 - rate), 1 / n) / n + width**2 / 12))
    return max(rate - reach, 0.0), min(rate + reach, 1.0)


def _rows(counts_CC: np.ndarray) -> np.ndarray:
    total_C1 = counts_CC.sum(1, keepdims=True)
    return np.where(total_C1 > 0, counts_CC / np.where(total_C1 > 0, total_C1, 1), np.eye(len(counts_CC)))


def _softmax(score_MC: np.ndarray) -> np.ndarray:
    weight_MC = np.exp(score_MC - score_MC.max(1, keepdims=True))
    return weight_MC / weight_MC.sum(1, keepdims=True)


def _check_probabilities(probabilities: Any) -> np.ndarray:
    p_MC = np.asarray(probabilities, dtype=np.float64)
    if p_MC.ndim != 2 or p_MC.shape[1] < 2:
        raise ValueError(f"probabilities are of shape {p_MC.shape}: give (M, C), a row a sample, with C ≥ 2.")
    if not np.isfinite(p_MC).all() or (p_MC < 0).any() or (np.abs(p_MC.sum(1) - 1) > 1e-3).any():
        raise ValueError("probabilities must be ≥ 0 and sum to 1 in each row: apply softmax to logits first.")
    return p_MC


def out_of_sample(
    x_M: Tensor,
    y_M: Tensor,
    n_classes: int,
    build: Callable[[], nn.Module],
    plan: Plan,
    *,
    folds: int = 5,
    seed: int = 0,
    engine: Engine = PLAINLY,
    augment: Augment | None = None,
) -> np.ndarray:
    """Probabilities p_MC of every sample, by networks that were trained on the other folds.

    Trained on all labels as given (method "standard"). Of each fold's epochs the one counts that predicts its
    held-out labels best, before wrong labels are learnt by heart: those are noisy too, but no network that
    knows a true class predicts them worse for it.

    Parameters
    ----------
    x_M, y_M : tensors
        Samples and given labels on the device where the training is to run.
    plan : Plan
        Its epochs are the most that are tried.
    """
    labels_M = check_labels(y_M, n_classes)
    if not 2 <= folds <= len(labels_M):
        raise ValueError(f"folds is {folds} with {len(labels_M)} samples: give from 2 to {len(labels_M)}.")
    fold_M = torch.from_numpy(deal_folds(labels_M, folds, seed)).to(y_M.device)
    p_MC = np.zeros((len(labels_M), n_classes))
    for fold in range(folds):
        learnt, held_out = (fold_M != fold).nonzero()[:, 0], (fold_M == fold).nonzero()[:, 0]
        x, y = x_M[learnt], y_M[learnt]
        problem = Problem.unchecked(x, x[:1], y, n_classes, 0.0, seed, augment)
        best = BestEpoch(x_M[held_out], y_M[held_out])
        fit(problem, METHODS["standard"], plan, build, engine=engine, on_epoch=best)
        if not len(best.p_BC):
            raise ValueError("the loss on held-out samples is finite in no epoch: lower the plan's lr.")
        p_MC[held_out.cpu().numpy()] = best.p_BC.double().cpu().numpy()
    return p_MC / p_MC.sum(1, keepdims=True)


def deal_folds(labels_M: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each sample (M): at random, but with as many of each given class in one as in another."""
    shuffled = np.random.default_rng(seed).permutation(len(labels_M))
    by_class = shuffled[np.argsort(labels_M[shuffled], kind="stable")]
    fold_M = np.empty(len(labels_M), dtype=np.int64)
    fold_M[by_class] = np.arange(len(labels_M)) % folds
    return fold_M


class BestEpoch:
    """Keeps the probabilities p_BC of the epoch with the least mean loss on held-out samples."""

    def __init__(self, x_B: Tensor, y_B: Tensor):
        self.x_B, self.y_B = x_B, y_B
        self.loss, self.p_BC = float("inf"), torch.empty(0)

    def __call__(self, epoch: Epoch) -> None:
        training = epoch.training
        p_BC = posteriors(replace(training, problem=replace(training.problem, x_M=self.x_B)))[0, 0]
        loss = -p_BC.gather(1, self.y_B[:, None]).clamp(min=SMALLEST).log().mean().item()
        if loss < self.loss:
            self.loss, self.p_BC = loss, p_BC
