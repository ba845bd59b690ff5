"""Small losses in rounds: fit, keep the samples of small loss, fit again on these.

The rules are those of mini-batches; here the batch is the whole training set, and a copy is fitted to the end
before it is asked. N copies, M samples, C classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from coteach.labels.folds import deal_folds
from coteach.labels.quality import TINY, likeliest_classes, of_given_labels, quality_of_labels
from coteach.rules import Batch, Rule, coteaching, jocor, mentornet
from coteach.selective.learners import Learners
from coteach.stages import enter_stage

NeighbourVote = Callable[[np.ndarray], np.ndarray]  # of neighbours: from who is trusted (M) to probabilities (MC)

ROUND_RULES = {"mentornet": mentornet, "coteaching": coteaching, "jocor": jocor}
COPIES = {"mentornet": 1, "coteaching": 2, "jocor": 2}
CLEARLY = 3.0  # standard errors
FEW_CHANGES = 0.005  # share of the samples: fewer that change change little
LEAST_WEIGHT = 0.001  # of a sample whose two likeliest classes are equally likely
FEWEST_OF_A_CLASS = 2  # that stay: one to learn when the other is asked


@dataclass(frozen=True)
class Rounds:
    """How samples are picked.

    Attributes
    ----------
    rule : Rule
    copies : int
    most : int
        Rounds after the first fit on everything.
    ramp : int
        Rounds until the whole share is left out.
    folds : int
        A copy's loss of a sample comes from a fit without its fold; 0 for losses of the learnt samples themselves.
    seed : int
    """

    rule: Rule
    copies: int
    most: int
    ramp: int
    folds: int
    seed: int


@dataclass
class RoundsResult:
    """What the rounds end with: who counts, what the copies say, and what happened."""

    kept_NM: np.ndarray
    p_NMC: np.ndarray
    history: list[dict[str, Any]] = field(default_factory=list)
    predicted: list[np.ndarray] = field(default_factory=list)  # of each round: the likeliest classes (M)
    gone_back: bool = False


def keep_share(noise_rate: float, number: int, ramp: int) -> float:
    """What is learnt from in a round: everything at first, all but the noise rate after the ramp.

    >>> [round(keep_share(0.3, number, ramp=3), 2) for number in range(5)]
    [1.0, 0.9, 0.8, 0.7, 0.7]
    """
    return 1 - noise_rate * min(number / ramp, 1)


def pick_in_rounds(
    learners: Learners,
    first_NMC: np.ndarray,
    y_M: np.ndarray,
    counts_M: np.ndarray,
    rounds: Rounds,
    rate: float,
    vote: NeighbourVote | None = None,
) -> RoundsResult:
    """From a first fit on, fit on the samples of small loss, until these come again or the rounds are over."""
    fold_NM = dealt(y_M, rounds)
    everything_NM = np.ones_like(fold_NM, dtype=bool)
    done = RoundsResult(everything_NM, first_NMC)
    done.history.append(row_of(0, everything_NM, everything_NM) | agreement(first_NMC, y_M))
    done.predicted.append(first_NMC.mean(0).argmax(1))
    known = set()  # picks that there have been
    for number in range(1, rounds.most + 1):
        doubt_NM = doubts(done.p_NMC, done.kept_NM, y_M, vote)
        kept_NM = picks(rounds.rule, done.p_NMC, doubt_NM, y_M, keep_share(rate, number, rounds.ramp))
        settled = (kept_NM != done.kept_NM).mean() < FEW_CHANGES or kept_NM.tobytes() in known
        if number > rounds.ramp and settled:
            break
        known.add(kept_NM.tobytes())
        enter_stage(f"round {number} of at most {rounds.most}")
        done.history.append(row_of(number, kept_NM, done.kept_NM))
        done.kept_NM, done.p_NMC = kept_NM, learners.probabilities(kept_NM * counts_M, fold_NM)
        done.history[-1] |= agreement(done.p_NMC, y_M)
        done.predicted.append(done.p_NMC.mean(0).argmax(1))
    if unlearnt(first_NMC, done.p_NMC, y_M):
        return RoundsResult(everything_NM, first_NMC, done.history, done.predicted[:1], gone_back=True)
    return done


def doubts(p_NMC: np.ndarray, kept_NM: np.ndarray, y_M: np.ndarray, vote: NeighbourVote | None) -> np.ndarray:
    """The loss of each label (NM): what its quality lacks, by a copy and the vote of those that it kept."""
    return np.stack(
        [
            1 - quality_of_labels([p_MC] if vote is None else [p_MC, vote(kept_M)], y_M)[0]
            for p_MC, kept_M in zip(p_NMC, kept_NM, strict=True)
        ]
    )


def counted_as_given(kept_NM: np.ndarray, y_M: np.ndarray) -> np.ndarray:
    """Weights of the kept (NM) by which each class counts as much as all its given labels do."""
    given_C = np.bincount(y_M)
    kept_NC = np.stack([np.bincount(y_M[kept_M], minlength=len(given_C)) for kept_M in kept_NM])
    return kept_NM * (given_C / np.maximum(kept_NC, 1))[:, y_M]


def relabelled(
    opinions: Sequence[np.ndarray], labels_M: np.ndarray, quality_M: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest class of each sample (M), and by how much, which is its weight for the one model (1M).

    The few labels of best quality in each class stay, so that no class vanishes.
    """
    likeliest_M, lead_M = likeliest_classes(opinions, labels_M)
    few_M = smallest_of_each_class(1 - quality_M[None], labels_M)
    return np.where(few_M, labels_M, likeliest_M), lead_M[None] + LEAST_WEIGHT


def unlearnt(first_NMC: np.ndarray, last_NMC: np.ndarray, y_M: np.ndarray) -> bool:
    """Whether clearly fewer of the given labels are predicted than at first.

    Wrong labels that follow nothing are predicted by nobody, so that nothing is lost without them. Those that were
    learnt, and are left out, take others with them.
    """
    before_M, after_M = (p_NMC.mean(0).argmax(1) == y_M for p_NMC in (first_NMC, last_NMC))
    lost, won = int((before_M & ~after_M).sum()), int((after_M & ~before_M).sum())
    return lost - won > CLEARLY * np.sqrt(lost + won)


def dealt(y_M: np.ndarray, rounds: Rounds) -> np.ndarray:
    """The fold of every sample for each copy (NM); -1 without folds."""
    if not rounds.folds:
        return np.full((rounds.copies, len(y_M)), -1)
    return np.stack([deal_folds(y_M, min(rounds.folds, len(y_M)), rounds.seed + n) for n in range(rounds.copies)])


def first_samples(y_M: np.ndarray, rounds: Rounds) -> np.ndarray:
    """Everything; without folds each of two copies begins with its own half, or they would be the same."""
    if rounds.folds or rounds.copies == 1:
        return np.ones((rounds.copies, len(y_M)), dtype=bool)
    return np.stack([deal_folds(y_M, rounds.copies, rounds.seed) == n for n in range(rounds.copies)])


def picks(rule: Rule, p_NMC: np.ndarray, loss_NM: np.ndarray, y_M: np.ndarray, share: float) -> np.ndarray:
    """The samples that each copy learns from next (NM), by a rule of the paper."""
    log_p_NRMC = torch.from_numpy(np.log(np.clip(p_NMC, TINY, 1)))[:, None]
    keep_R1 = torch.tensor([[share]], dtype=torch.float64)
    batch = Batch(log_p_NRMC, torch.from_numpy(loss_NM)[:, None], keep_R1, label_RB=torch.from_numpy(y_M)[None])
    return rule(batch)[:, 0].numpy() | smallest_of_each_class(loss_NM, y_M)


def smallest_of_each_class(loss_NM: np.ndarray, y_M: np.ndarray) -> np.ndarray:
    """Marks the few smallest losses of each class over all copies together: no class vanishes (M)."""
    few_M = np.zeros(len(y_M), dtype=bool)
    order_M = np.argsort(loss_NM.sum(0), kind="stable")
    for c in np.unique(y_M):
        few_M[order_M[y_M[order_M] == c][:FEWEST_OF_A_CLASS]] = True
    return few_M


def row_of(number: int, kept_NM: np.ndarray, before_NM: np.ndarray) -> dict[str, Any]:
    return {"round": number, "kept": kept_NM.sum(1).tolist(), "changed": int((kept_NM != before_NM).sum())}


def agreement(p_NMC: np.ndarray, y_M: np.ndarray) -> dict[str, float]:
    """How well the copies together predict the given labels; held out, where there are folds."""
    p_MC = p_NMC.mean(0)
    return {
        "loss": float(-np.log(of_given_labels(p_MC, y_M)).mean()),
        "predicted_labels": float((p_MC.argmax(1) == y_M).mean()),
    }


def with_vote(p_MC: np.ndarray, vote_MC: np.ndarray) -> np.ndarray:
    """A model's probabilities, of which the vote of neighbours makes up a third."""
    return (2 * p_MC + vote_MC) / 3


def normalised(p_MC: np.ndarray) -> np.ndarray:
    p_MC = np.clip(p_MC, TINY, 1)
    return p_MC / p_MC.sum(1, keepdims=True)
