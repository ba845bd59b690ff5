"""Algorithm 1 for N networks × R runs, and the phases around it.

The runs of a stack share samples, network and method; each has its own labels, noise rate, order and seed.
Shapes: N networks, R runs, B samples of a mini-batch, M samples, C classes, P parameters of a network.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.engine.batches import Batches, View, evaluation_input, half_views, same_view
from coteach.engine.optimisers import Optimiser
from coteach.estimate import transition_from_posteriors
from coteach.losses import forward_corrected
from coteach.methods import Method, Phase
from coteach.metrics import Tally, evaluate
from coteach.networks.stack import Stack
from coteach.plan import Plan
from coteach.rules import Batch


@dataclass(frozen=True)
class Problem:
    """What is to be learnt: one data set, and for each of the R runs its labels, noise rate and seed."""

    x_M: Tensor
    y_RM: Tensor
    x_test: Tensor
    y_test: Tensor
    n_classes: int
    noise_rates: list[float]  # τ as the method believes it
    seeds: list[int]
    clean_RM: Tensor  # measures label precision; no method sees it
    matrix_RCC: Tensor | None = None  # the true Q, for the one method that is told
    augment: Augment | None = None


@dataclass(frozen=True)
class Training:
    """A stack of networks on its way through a plan."""

    stack: Stack
    optimiser: Optimiser
    batches: Batches
    view: View
    plan: Plan
    problem: Problem


def train_epoch(training: Training, phase: Phase, epoch: int, tally: Tally) -> None:
    """One epoch e of Algorithm 1."""
    stack, plan, clean_RM = training.stack, training.plan, training.problem.clean_RM
    networks = len(stack.theta_NRP)
    keep_R1 = stack.theta_NRP.new_tensor(
        [[plan.keep_rate(epoch, tau)] for tau in training.problem.noise_rates], dtype=torch.float64
    )  # step 9, for this epoch
    for step, (index_RB, x_RB, y_RB) in enumerate(training.batches.deal(epoch)):  # steps 2 and 3
        logits_NRBC = stack(training.view(x_RB, networks))
        target_NRB = logits_NRBC.argmax(-1).flip(0) if phase.own_labels else y_RB.expand(networks, -1, -1)
        loss_NRB = phase.loss(logits_NRBC, target_NRB)
        seen = Batch(logits_NRBC.detach(), loss_NRB.detach(), keep_R1, round_up=not plan.fidelity.floor)
        weight_NRB = weights(phase, seen, early=epoch * step < 5000)  # steps 4 to 6, and the exchange
        sound_NR = update(training, phase, epoch, weight_NRB, loss_NRB)  # steps 7 and 8
        tally.count(seen, phase.rule, weight_NRB, sound_NR, clean_RM.gather(1, index_RB))


def weights(phase: Phase, seen: Batch, early: bool) -> Tensor:
    """How much each sample weighs in each network's loss; `early` opens the authors' way out of an empty batch."""
    weight_NRB = phase.weigh(phase.rule(seen).to(seen.loss_NRB.dtype))
    if phase.rescue and early:
        return torch.where(weight_NRB.any(-1, keepdim=True), weight_NRB, 1 / weight_NRB.shape[-1])
    return weight_NRB


def update(training: Training, phase: Phase, epoch: int, weight_NRB: Tensor, loss_NRB: Tensor) -> Tensor:
    """One optimiser step for each network that has something to learn from; says which were sound (NR).

    A network whose loss or gradient is not finite sits out, as if the batch had not been.
    """
    stack, plan = training.stack, training.plan
    # where, not a product: 0 · nan is nan, and a sample that nobody picked must not spoil the loss
    loss_NR = torch.where(weight_NRB > 0, weight_NRB * loss_NRB, 0).sum(-1)
    gradient_NRP = stack.gradient(loss_NR.sum())
    sound_NR = loss_NR.isfinite() & gradient_NRP.isfinite().all(-1)
    live_NR = sound_NR & (weight_NRB.any(-1) | phase.rescue)
    training.optimiser.step(gradient_NRP, live_NR, plan.learning_rate(epoch), plan.beta1(epoch))
    stack.settle_statistics(sound_NR)
    return sound_NR


@dataclass(frozen=True)
class Epoch:
    """What an epoch ended with: a row of metrics for each run."""

    number: int
    rows: list[dict]
    preliminary: bool  # of a training that only serves to estimate something
    training: Training


def fit(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    *,
    dtype: torch.dtype = torch.float32,
    batched: bool | None = None,
    view: View | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Training:
    """Train a method's phases one after the other and report each epoch.

    Parameters
    ----------
    problem : Problem
        On the device where the training is to run.
    build : callable
        Makes one network; called under a seed of its own for every network of every run.
    batched : bool, optional
        All networks in one batched call, or one after the other; chosen by the kind of network unless given.
    view : callable, optional
        What each network sees of a sample; by default all of it, in Co-training a half.
    """
    phases = method.phases(plan)
    training = start(problem, method, plan, build, dtype, batched, view, generation=0)
    for position, phase in enumerate(phases):
        if phase.corrected_by:
            known = phase.corrected_by == "known"
            matrix_RCC = problem.matrix_RCC if known else estimated_transition(training)
            assert matrix_RCC is not None, "a method that is told the true Q needs problem.matrix_RCC"
            phase = replace(phase, loss=forward_corrected(phase.loss, matrix_RCC.to(problem.x_M.device, dtype)))
            training = start(problem, method, plan, build, dtype, batched, view, generation=position)
        preliminary = any(later.corrected_by for later in phases[position + 1 :])
        for epoch in phase.epochs:
            tally = Tally(len(problem.seeds), problem.x_M.device)
            train_epoch(training, phase, epoch, tally)
            on_epoch(Epoch(epoch, measure(training, phase, tally, epoch), preliminary, training))
    return training


def start(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    dtype: torch.dtype,
    batched: bool | None,
    view: View | None,
    generation: int,
) -> Training:
    stack = Stack(
        build,
        problem.seeds,
        method.networks,
        device=problem.x_M.device,
        dtype=dtype,
        batched=batched,
        generation=generation,
    )
    batches = Batches(problem.x_M, problem.y_RM, problem.seeds, plan.batch_size, dtype, problem.augment)
    view = view or (half_views if method.views else same_view)
    return Training(stack, Optimiser(stack.theta_NRP, plan), batches, view, plan, problem)


def measure(training: Training, phase: Phase, tally: Tally, epoch: int) -> list[dict]:
    """The rows of one epoch: its test scores beside the sums over its mini-batches."""
    problem, plan = training.problem, training.plan
    n_test = len(problem.y_test)
    if plan.fidelity.whole_test_batches and n_test > plan.batch_size:
        n_test -= n_test % plan.batch_size
    scores = evaluate(
        training.stack, problem.x_test[:n_test], problem.y_test[:n_test], training.view, problem.augment
    )
    sums = tally.rows(len(training.stack.theta_NRP))
    if phase.own_labels:  # what is learnt are no given labels, so their precision says nothing
        sums = [row | {"label_precision": None, "label_recall": None} for row in sums]
    return [
        {"seed": seed, "epoch": epoch, **score, **row, "keep_rate": plan.keep_rate(epoch, tau)}
        | {"events": score["events"] | row["events"]}
        for seed, tau, score, row in zip(problem.seeds, problem.noise_rates, scores, sums, strict=True)
    ]


def estimated_transition(training: Training) -> Tensor:
    """T̂_RCC of the first network of each run (F-correction trains one)."""
    p_RMC = posteriors(training)[0]
    drop_outliers = training.problem.n_classes < 100  # as the method's authors: not on CIFAR-100
    return torch.stack([transition_from_posteriors(p_MC, drop_outliers=drop_outliers) for p_MC in p_RMC])


def posteriors(training: Training, chunk: int = 1024) -> Tensor:
    """p_NRMC of the training set."""
    stack, problem = training.stack, training.problem
    networks, runs, _ = stack.theta_NRP.shape
    with stack.evaluating():
        pieces = [
            stack(training.view(evaluation_input(x_B, stack.theta_NRP.dtype, problem.augment, runs), networks))
            for x_B in problem.x_M.split(chunk)
        ]
    return torch.cat(pieces, -2).softmax(-1)
