"""Trainings that tell how many labels are wrong: in folds, or with one noise rate after another.

M samples, V of validation, C classes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.checks import check_labels
from coteach.engine import PLAIN_ENGINE, Engine
from coteach.engine.stream import Stream, closing_streams, part
from coteach.engine.training import Epoch, Problem
from coteach.labels.estimate import SMALLEST, NoiseEstimate, estimate_noise
from coteach.measure import posteriors
from coteach.methods import METHODS, Method
from coteach.plan import Plan
from coteach.train import fit

FOLDS = 5  # to estimate a noise rate by
# A cycle of the learning rate that is this much shorter knows the classes well enough, if it has enough steps.
SHARE_OF_CYCLE, STEPS_OF_CYCLE = 0.2, 300
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # to try on noisy validation labels


def out_of_sample(
    x_M: Tensor | Stream,
    y_M: Tensor,
    n_classes: int,
    build: Callable[[], nn.Module],
    plan: Plan,
    *,
    folds: int = 5,
    seed: int = 0,
    engine: Engine = PLAIN_ENGINE,
    augment: Augment | None = None,
) -> np.ndarray:
    """Probabilities p_MC of every sample, by networks that were trained on the other folds.

    Trained on all labels as given (method "standard"). Of each fold's epochs the one counts that predicts its
    held-out labels best, before wrong labels are learnt by heart: those are noisy too, but no network that
    knows a true class predicts them worse for it.

    Parameters
    ----------
    x_M : float32 Tensor of shape (M, ...), or Stream
        Samples on the device where the training is to run.
    y_M : int64 Tensor of shape (M,)
        Given labels, there too.
    n_classes : int
        C.
    build : callable
        Makes a network.
    plan : Plan
        Its epochs are the most that are tried.
    folds : int
        Networks, each trained without the fold that it predicts.
    seed : int
    engine : Engine
        How steps run.
    augment : Augment, optional
        How samples are changed while they are learnt from.

    Returns
    -------
    p_MC : float64 array of shape (M, C)

    Examples
    --------
    >>> x, y = torch.eye(2).repeat(20, 1), torch.arange(40) % 2
    >>> p = out_of_sample(x, y, 2, lambda: nn.Linear(2, 2), Plan(epochs=2, batch_size=8, ramp=1), folds=2)
    >>> p.shape
    (40, 2)
    """
    return of_folds(x_M, y_M, n_classes, build, plan, None, folds, seed, engine, augment)[0]


def of_folds(
    x_M: Tensor | Stream,
    y_M: Tensor,
    n_classes: int,
    build: Callable[[], nn.Module],
    plan: Plan,
    x_V: Tensor | Stream | None,
    folds: int,
    seed: int,
    engine: Engine,
    augment: Augment | None = None,
    advance: Callable[[], None] = lambda: None,
) -> tuple[np.ndarray, np.ndarray]:
    """p_MC as `out_of_sample`; and what each fold's network says about the other samples x_V (folds × V × C).

    `advance` is called after each of the folds' epochs.
    """
    labels_M = check_labels(y_M, n_classes)
    if not 2 <= folds <= len(labels_M):
        raise ValueError(f"folds is {folds} with {len(labels_M)} samples: give from 2 to {len(labels_M)}.")
    fold_M = torch.from_numpy(deal_folds(labels_M, folds, seed)).to(y_M.device)
    p_MC, others = np.zeros((len(labels_M), n_classes)), []
    for fold in range(folds):
        learnt, held_out = (fold_M != fold).nonzero()[:, 0], (fold_M == fold).nonzero()[:, 0]
        problem = Problem(part(x_M, learnt), y_M[None, learnt], n_classes, [0.0], [seed], augment=augment)
        best = BestEpoch(part(x_M, held_out), y_M[held_out], x_V)

        def after(epoch: Epoch, best: BestEpoch = best) -> None:
            best(epoch)
            advance()

        with closing_streams(best.x_B):
            fit(problem, METHODS["standard"], plan, build, engine=engine, on_epoch=after)
        if not len(best.p_BC):
            raise ValueError("the loss on held-out samples is finite in no epoch: lower the plan's lr.")
        p_MC[held_out.cpu().numpy()] = best.p_BC.double().cpu().numpy()
        others.append(best.p_VC.double().cpu().numpy())
    return p_MC / p_MC.sum(1, keepdims=True), np.stack(others)


def only_labels(plan: Plan) -> Plan:
    """The plan for learning the given labels, all of them and nothing else: for method "standard"."""
    return replace(
        plan, loss=None, warmup_loss=None, mixture=False, mixup=0.0, guess_weight=0.0, guess_ramp=0,
        memory_weight=0.0, class_balance=0.0, confidence_penalty=0.0,
    )  # fmt: skip


def epochs_to_estimate(plan: Plan, samples: int) -> int:
    """How long each fold is trained for an estimate of the noise rate from so many samples.

    >>> plan = Plan(epochs=40, batch_size=128, one_cycle=0.2)
    >>> epochs_to_estimate(plan, 50_000), epochs_to_estimate(plan, 5_000), epochs_to_estimate(Plan(epochs=20), 900)
    (8, 10, 20)
    """
    if not plan.one_cycle:  # whose rates fall late; the best epoch is taken
        return plan.epochs
    steps = plan.steps(samples - samples // FOLDS)
    return min(plan.epochs, max(math.ceil(SHARE_OF_CYCLE * plan.epochs), math.ceil(STEPS_OF_CYCLE / steps)))


def deal_folds(labels_M: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each sample: at random, but with as many of each given class in one as in another.

    Parameters
    ----------
    labels_M : int array of shape (M,)
    folds, seed : int

    Returns
    -------
    fold_M : int64 array of shape (M,)

    Examples
    --------
    >>> labels = np.array([0] * 8 + [1] * 4)
    >>> fold = deal_folds(labels, folds=4, seed=0)
    >>> np.bincount(fold[labels == 0]).tolist(), np.bincount(fold[labels == 1]).tolist()
    ([2, 2, 2, 2], [1, 1, 1, 1])
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels_M))
    by_class = shuffled[np.argsort(labels_M[shuffled], kind="stable")]
    fold_M = np.empty(len(labels_M), dtype=np.int64)
    fold_M[by_class] = np.arange(len(labels_M)) % folds
    return fold_M


class BestEpoch:
    """Keeps the probabilities p_BC, and p_VC of others, of the epoch with the least loss on held-out samples."""

    def __init__(self, x_B: Tensor | Stream, y_B: Tensor, x_V: Tensor | Stream | None = None):
        self.x_B, self.y_B, self.x_V = x_B, y_B, x_V
        self.loss, self.p_BC, self.p_VC = float("inf"), torch.empty(0), torch.empty(0)

    def __call__(self, epoch: Epoch) -> None:
        p_BC = posteriors(epoch.training, self.x_B)[0, 0]
        loss = -p_BC.gather(1, self.y_B[:, None]).clamp(min=SMALLEST).log().mean().item()
        if loss < self.loss:
            self.loss, self.p_BC = loss, p_BC
            if self.x_V is not None:
                self.p_VC = posteriors(epoch.training, self.x_V)[0, 0]


# ---- one rate after another, by noisy validation labels -------------------------------------------------------


def choose_rate(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    x_V: Tensor | Stream,
    y_V: Tensor,
    engine: Engine,
    rates: Sequence[float] = RATES,
    advance: Callable[[], None] = lambda: None,
) -> NoiseEstimate:
    """The best rate to give a method: of those tried, the one with the highest validation accuracy.

    The paper's suggestion. Wrong validation labels lower every rate's accuracy alike, so they choose the same one.
    The classes' rates and the matrix are those of the validation labels, in the eyes of the best rate's networks;
    the interval spans the rates that are within a standard error of the best. `advance` is called every epoch.
    """
    method, plan = using_the_rate(method, plan)
    tried, accuracy_S, best = [], [], None
    for rate in rates:
        late = LateAccuracy(x_V, y_V, first=plan.epochs - plan.epochs // 4)

        def after(epoch: Epoch, late: LateAccuracy = late) -> None:
            late(epoch)
            advance()

        training = fit(replace(problem, noise_rates=[rate]), method, plan, build, engine=engine, on_epoch=after)
        tried.append((rate, late.mean))
        if best is None or late.mean > max(accuracy_S):
            best = posteriors(training, x_V)[:, 0].mean(0)
        accuracy_S.append(late.mean)
    assert best is not None
    top = max(accuracy_S)
    near = [rate for rate, accuracy in tried if accuracy >= top - np.sqrt(top * (1 - top) / len(y_V))]
    p_VC = best.double().cpu().numpy()
    seen = estimate_noise(p_VC / p_VC.sum(1, keepdims=True), y_V.cpu().numpy())
    rate = tried[accuracy_S.index(top)][0]
    return replace(seen, rate=rate, interval=(min(near), max(near)), tried=tuple(tried))


def using_the_rate(method: Method, plan: Plan) -> tuple[Method, Plan]:
    """Both as they are; or Co-teaching on labels alone, for a method that is indifferent to the rate."""
    if not plan.mixture and any(phase.rule.keeps_a_share for phase in method.phases(plan)):
        return method, plan
    return METHODS["coteaching"], replace(only_labels(plan), loss=plan.loss, warmup_loss=plan.warmup_loss)


class LateAccuracy:
    """The ensemble's accuracy on validation samples, a mean over the epochs from `first` on."""

    def __init__(self, x_V: Tensor | Stream, y_V: Tensor, first: int):
        self.x_V, self.y_V, self.first = x_V, y_V, max(1, first)
        self.accuracies: list[float] = []

    def __call__(self, epoch: Epoch) -> None:
        if epoch.number >= self.first and not epoch.preliminary:
            p_VC = posteriors(epoch.training, self.x_V)[:, 0].mean(0)
            self.accuracies.append((p_VC.argmax(1) == self.y_V).double().mean().item())

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)
