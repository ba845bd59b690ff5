"""How many labels are wrong, by wrong labels that we put there ourselves.

A few labels are changed to others at random, and a network learns them along with all the rest. It treats them
more or less as it treats the labels that were wrong before. So if it ends up refusing half of ours, those that it
refuses among the rest are about half of all wrong ones. M samples, C classes.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from coteach.engine import Engine
from coteach.engine.training import Problem
from coteach.labels.estimate import Z_95, NoiseEstimate, count_given, per_row
from coteach.labels.folds import only_labels
from coteach.measure import posteriors
from coteach.methods import METHODS
from coteach.modern import MODERN_EPOCHS
from coteach.plan import Plan
from coteach.schedules import usual_decay_start
from coteach.train import fit

# Share of the labels that is planted; of few samples more, to have enough to count, but not most.
SHARE, ENOUGH, MOST = 0.05, 200, 0.1
A_QUARTER = 0.25  # of the planted: what is doubted as much is wrong …
RIGHT_ALL_THE_SAME = 0.02  # … except for so many
THE_SUREST, SURE_ENOUGH = 0.1, 100  # share of the samples predicted as a class; at least so many in all


def plan_to_plant(plan: Plan) -> Plan:
    """That of the training, without what is not about labels; longer ones would learn all of them by heart."""
    if plan.epochs > MODERN_EPOCHS:
        plan = replace(plan, epochs=MODERN_EPOCHS, decay_start=usual_decay_start(MODERN_EPOCHS))
    return only_labels(plan)


def estimate_by_planting(
    problem: Problem,
    plan: Plan,
    build: Callable[[], nn.Module],
    held_out_MC: np.ndarray,
    engine: Engine,
    advance: Callable[[], None],
) -> NoiseEstimate:
    """Train one network on all labels, some of them planted, and see which it refuses; `advance` every epoch."""
    (y_M,) = problem.y_RM
    changed_M, planted_M = plant(y_M.cpu().numpy(), problem.n_classes, problem.seeds[0])
    changed = replace(problem, y_RM=torch.from_numpy(changed_M).to(y_M.device)[None])
    training = fit(
        changed, METHODS["standard"], plan, build, engine=engine, ledger=True, on_epoch=lambda epoch: advance()
    )
    assert training.ledger is not None
    predicted_M = posteriors(training, problem.x_M)[0, 0].argmax(-1).cpu().numpy()
    return estimate_by_planted(predicted_M, training.ledger.quality()[0], changed_M, planted_M, held_out_MC)


def plant(labels_M: np.ndarray, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The labels with some of them changed to any other class, and where (M).

    Parameters
    ----------
    labels_M : int array of shape (M,)
    n_classes : int
    seed : int

    Returns
    -------
    changed_M : int array of shape (M,)
    planted_M : bool array of shape (M,)

    Examples
    --------
    >>> changed, planted = plant(np.zeros(10_000, dtype=int), n_classes=3, seed=0)
    >>> int(planted.sum()), bool(((changed > 0) == planted).all())
    (500, True)
    """
    n = len(labels_M)
    n_planted = max(1, round(max(SHARE * n, min(ENOUGH, MOST * n))))
    random = np.random.default_rng(seed)
    planted_M = np.isin(np.arange(n), random.choice(n, n_planted, replace=False))
    changed_M = labels_M.copy()
    changed_M[planted_M] += random.integers(1, n_classes, n_planted)
    return changed_M % n_classes, planted_M


def estimate_by_planted(
    predicted_M: np.ndarray,
    quality_M: np.ndarray,
    labels_M: np.ndarray,
    planted_M: np.ndarray,
    held_out_MC: np.ndarray,
) -> NoiseEstimate:
    """Estimate how many labels are wrong, from a network that has learnt them together with planted ones.

    In the end it refuses a share of the planted labels, and a share of the others. The second over the first is
    the noise rate. It is too low where wrong labels are easier to learn than planted ones, and too high where
    right labels of hard samples are refused, too. So it is kept between two other readings, by networks that have
    not learnt the sample: how many labels they contradict where they are surest, and how many in all.

    The ends of the interval count labels that the first network doubted over the epochs: as much as the most
    doubted quarter of the planted ones, and at all.

    Parameters
    ----------
    predicted_M : int array of shape (M,)
        Classes, by the network in the end.
    quality_M : float array of shape (M,)
        Of the labels that it learnt, over all epochs: below ½, another class was likelier.
    labels_M : int array of shape (M,)
        As it learnt them, those of `plant`.
    planted_M : bool array of shape (M,)
        Where they were planted.
    held_out_MC : float array of shape (M, C)
        Probabilities from networks trained without the sample, and without planted labels.

    Returns
    -------
    estimate : NoiseEstimate
        Of the labels that were not planted.

    Examples
    --------
    >>> truth, random = np.arange(4000) % 4, np.random.default_rng(0)
    >>> given = np.where(random.random(4000) < 0.3, (truth + 1) % 4, truth)
    >>> labels, planted = plant(given, 4, seed=0)
    >>> predicted = np.where(random.random(4000) < 0.5, truth, labels)  # half are learnt by heart
    >>> quality, p = np.where(labels == truth, 0.9, 0.1), 0.7 * np.eye(4)[truth] + 0.3 * np.eye(4)[(truth + 1) % 4]
    >>> estimate = estimate_by_planted(predicted, quality, labels, planted, p)
    >>> round((given != truth).mean().item(), 2), round(estimate.rate, 1)
    (0.3, 0.3)
    """
    n_classes, others_M = held_out_MC.shape[1], ~planted_M
    most_doubted_M = quality_M <= np.quantile(quality_M[planted_M], A_QUARTER)

    def reading(marked_M: np.ndarray, leeway: Callable[[int], float] = lambda n: 1.0) -> float:
        planted, others = (int(marked_M[where].sum()) for where in (planted_M, others_M))
        share = others * leeway(others) / int(others_M.sum())
        return rate_of(share, planted / leeway(planted) / int(planted_M.sum()), n_classes)

    labels, predicted, p_MC = labels_M[others_M], predicted_M[others_M], held_out_MC[others_M]
    where_sure, in_all = contradicted(p_MC, labels)
    rate = float(np.clip(reading(predicted_M != labels_M), where_sure, in_all))
    low = reading(most_doubted_M, lambda n: 1 / more_by_chance(n)) - RIGHT_ALL_THE_SAME
    high = reading(quality_M < 0.5, more_by_chance)
    given_C = np.bincount(labels, minlength=n_classes)
    wrong_CC = count_given(predicted, labels, n_classes)  # true class, given label
    np.fill_diagonal(wrong_CC, 0)
    wrong_CC *= rate * len(labels) / max(wrong_CC.sum(), 1)
    wrong_C = np.minimum(wrong_CC.sum(0), given_C)
    return NoiseEstimate(
        rate,
        (max(0.0, min(low, rate)), max(high, rate)),
        wrong_C / np.maximum(given_C, 1),
        per_row(wrong_CC + np.diag(given_C - wrong_C)),
        len(labels),
    )


def contradicted(p_MC: np.ndarray, labels_M: np.ndarray) -> tuple[float, float]:
    """Which share of the labels is not the likeliest class: where this one is likeliest, and in all.

    >>> p = np.array([[0.9, 0.1]] * 500 + [[0.6, 0.4]] * 500 + [[0.1, 0.9]] * 1000)
    >>> contradicted(p, np.array([0] * 500 + [1] * 1500))
    (0.0, 0.25)
    """
    class_M, most_M, n = p_MC.argmax(1), p_MC.max(1), len(p_MC)
    share = max(THE_SUREST, min(1.0, SURE_ENOUGH / n))
    sure_M = np.zeros(n, dtype=bool)
    for c in np.unique(class_M):
        members = np.flatnonzero(class_M == c)
        sure_M[members[np.argsort(-most_M[members], kind="stable")[: math.ceil(share * len(members))]]] = True
    differs_M = class_M != labels_M
    return float(differs_M[sure_M].mean()), float(differs_M.mean())


def rate_of(share: float, of_planted: float, n_classes: int) -> float:
    """The noise rate, if a reading marks these shares of the other labels and of the planted ones.

    A planted label is the true one by chance where the given one was wrong: once in C - 1 times.

    >>> round(rate_of(0.1, 0.5, n_classes=1000), 3), rate_of(0.25, 0.75, n_classes=2), rate_of(0, 0, n_classes=2)
    (0.2, 0.25, 0.0)
    """
    if not share:
        return 0.0
    if share >= of_planted:
        return 1 - 1 / n_classes
    ratio = share / of_planted
    return min(ratio / (1 + ratio / (n_classes - 1)), 1 - 1 / n_classes)


def more_by_chance(n: int) -> float:
    """By what factor a count of n may be too low, with a confidence of 95 %."""
    return 1 + Z_95 / math.sqrt(max(n, 1))
