"""How many labels are wrong, by wrong labels that we put there ourselves.

A few samples exchange their labels, and a network learns them along with all the rest. It treats such labels more
or less as it treats those that were wrong before. So if it ends up refusing half of them, what it refuses among
the others is about half of all that is wrong. M samples, C classes.
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
from coteach.measure import predicted_classes
from coteach.methods import METHODS
from coteach.modern import MODERN_EPOCHS
from coteach.plan import Plan
from coteach.schedules import usual_decay_start
from coteach.train import fit

# Share of the labels that is planted; of few samples more, to have enough to count, but not most.
SHARE, ENOUGH, MOST = 0.05, 200, 0.1
A_QUARTER = 0.25  # of the planted: what is doubted as much is wrong …
RIGHT_ALL_THE_SAME = 0.02  # … except for so many
THE_SUREST, SURE_ENOUGH = 0.1, 100  # share of the samples predicted as a class; if fewer in all, chance counts


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
    predicted_M = predicted_classes(training, problem.x_M)[0, 0].cpu().numpy()
    return estimate_by_planted(predicted_M, training.ledger.quality()[0], changed_M, planted_M, held_out_MC)


def plant(labels_M: np.ndarray, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The labels, some of them exchanged at random, and which are now others (M).

    Exchanged, and not drawn anew: every class stays as large as it was, and a rare one is not flooded.

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
    >>> labels = np.arange(10_000) % 4
    >>> changed, planted = plant(labels, n_classes=4, seed=0)
    >>> round(planted.mean().item(), 2), np.bincount(changed).tolist()
    (0.05, [2500, 2500, 2500, 2500])
    """
    n, random = len(labels_M), np.random.default_rng(seed)
    exchanging = max(SHARE * n, min(ENOUGH, MOST * n)) * n_classes / (n_classes - 1)  # some get what they had
    chosen = random.choice(n, min(n, max(2, round(exchanging))), replace=False)
    changed_M = labels_M.copy()
    changed_M[chosen] = labels_M[random.permutation(chosen)]
    if (changed_M == labels_M).all():  # of very few samples
        changed_M[chosen[0]] = (labels_M[chosen[0]] + 1) % n_classes
    return changed_M, changed_M != labels_M


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

    def reading(marked_M: np.ndarray, chance: float = 0.0) -> float:
        planted, others = (int(marked_M[where].sum()) for where in (planted_M, others_M))
        share = by_chance(others, chance) / int(others_M.sum())
        return rate_of(share, by_chance(planted, -chance) / int(planted_M.sum()), n_classes)

    labels, predicted, p_MC = labels_M[others_M], predicted_M[others_M], held_out_MC[others_M]
    where_sure, in_all = contradicted(p_MC, labels)
    rate = float(np.clip(reading(predicted_M != labels_M), where_sure, in_all))
    low = reading(most_doubted_M, -Z_95) - RIGHT_ALL_THE_SAME
    high = reading(quality_M < 0.5, Z_95)
    given_C = np.bincount(labels, minlength=n_classes)
    sees_some = (predicted != labels).any()
    wrong_CC = count_given(
        predicted if sees_some else p_MC.argmax(1), labels, n_classes
    )  # true class, given label
    np.fill_diagonal(wrong_CC, 0)
    wrong_CC *= rate * len(labels) / max(wrong_CC.sum(), 1)
    wrong_CC *= np.minimum(1, given_C / np.maximum(wrong_CC.sum(0), 1e-9))  # no more than were given
    wrong_C = wrong_CC.sum(0)
    return NoiseEstimate(
        rate,
        (max(0.0, min(low, rate)), max(high, rate)),
        wrong_C / np.maximum(given_C, 1),
        per_row(wrong_CC + np.diag(given_C - wrong_C)),
        len(labels),
    )


def contradicted(p_MC: np.ndarray, labels_M: np.ndarray) -> tuple[float, float]:
    """Which share of the labels is not the likeliest class: where this one is likeliest, and in all.

    The first less what may be chance, if it is of few samples.

    >>> p = np.array([[0.9, 0.1]] * 500 + [[0.6, 0.4]] * 500 + [[0.1, 0.9]] * 1000)
    >>> contradicted(p, np.array([0] * 500 + [1] * 1500))
    (0.0, 0.25)
    """
    class_M, most_M = p_MC.argmax(1), p_MC.max(1)
    sure_M = np.zeros(len(p_MC), dtype=bool)
    for c in np.unique(class_M):
        members = np.flatnonzero(class_M == c)
        sure_M[members[np.argsort(-most_M[members], kind="stable")[: math.ceil(THE_SUREST * len(members))]]] = True
    differs_M = class_M != labels_M
    sure, n_sure = int(differs_M[sure_M].sum()), int(sure_M.sum())
    if n_sure < SURE_ENOUGH:
        sure = by_chance(sure, -Z_95)
    return sure / n_sure, float(differs_M.mean())


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


def by_chance(n: int, z: float) -> float:
    """What a count of n may be by chance, so many standard deviations above it, or below: the score interval.

    >>> by_chance(7, 0), round(by_chance(0, Z_95), 2), by_chance(0, -Z_95), round(by_chance(100, -Z_95))
    (7.0, 3.84, 0.0, 82)
    """
    return n + z**2 / 2 + z * math.sqrt(n + z**2 / 4)
