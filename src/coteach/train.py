"""Algorithm 1 for N networks × R runs, and the phases around it.

Step 2 shuffles the samples and 3 draws a mini-batch; 4 keeps those on which the networks disagree; in 5 and 6
each picks the share λ(e) of small loss among them; in 7 and 8 each learns from what its peer picked; 9 moves λ on.
The runs of a stack share samples, network and method; each has its own labels, noise rate, order and seed.
Shapes: N networks, R runs, B samples of a mini-batch, M samples, C classes; 1 is an axis of length one.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from coteach.engine import PLAIN_ENGINE, Engine
from coteach.engine.batches import View, half_views, same_view
from coteach.engine.clock import Clock
from coteach.engine.distributed import ONE_PROCESS, Processes
from coteach.engine.records import Choice
from coteach.engine.steps import Captured
from coteach.engine.stream import closing_streams
from coteach.engine.training import Epoch, Problem, State, Training, restore, start
from coteach.losses import forward_corrected, transition_from_posteriors
from coteach.measure import posteriors
from coteach.methods import Method, Phase
from coteach.plan import Plan
from coteach.rules import Batch
from coteach.signals import guarded_steps


def train_epoch(training: Training, epoch: int, learn: Callable[[], None]) -> None:
    """One epoch e of Algorithm 1."""
    training.clock.set_epoch(epoch)  # step 9: λ(e), and the learning rate
    for _ in training.batches.deal(epoch):  # step 2
        learn()  # steps 3 to 8
    training.end_epoch()


def choose(phase: Phase, logits_NRBC: Tensor, y_RB: Tensor, clock: Clock) -> Choice:
    """Which samples weigh how much in each network's loss."""
    target_NRB = y_RB.expand(len(logits_NRBC), -1, -1)
    if phase.own_labels:  # a network hands on its own predictions
        target_NRB = logits_NRBC.argmax(-1).flip(0)
    loss_NRB = phase.loss(logits_NRBC, target_NRB)
    seen = Batch(logits_NRBC.detach(), loss_NRB.detach(), clock.keep_R1, not clock.plan.fidelity.floor, y_RB)
    among_NRB = phase.rule.among(seen)  # step 4
    picked_NRB = phase.rule.picked(seen, among_NRB)  # steps 5 and 6, and the exchange
    weight_NRB = phase.weigh(picked_NRB.to(loss_NRB.dtype))
    if phase.rescue:
        empty_NR1 = ~picked_NRB.any(-1, keepdim=True)
        weight_NRB = torch.where(empty_NR1 & clock.early, 1 / picked_NRB.shape[-1], weight_NRB)
    return Choice(loss_NRB, seen.prediction_NRB, among_NRB, weight_NRB, weight_NRB > 0)


def finite_and_live(phase: Phase, chosen: Choice, sum_NR: Tensor) -> tuple[Tensor, Tensor]:
    """Networks (NR) whose loss and sum of gradients are finite, and those of them that take a step.

    The others sit out, as if the batch had not been.
    """
    # where, not a product: 0 · nan is nan, and a sample that nobody picked must not spoil the loss
    loss_NR = torch.where(chosen.learnt_NRB, chosen.loss_NRB.detach(), 0).sum(-1)
    finite_NR = (loss_NR + sum_NR) * 0 == 0  # as isfinite, which takes four kernels
    return finite_NR, finite_NR if phase.rescue else finite_NR & chosen.learnt_NRB.any(-1)


def mini_batch(
    training: Training,
    phase: Phase,
    choose: Callable[..., Choice] = choose,
    finite_and_live: Callable[..., tuple[Tensor, Tensor]] = finite_and_live,
) -> Callable[[], None]:
    """Steps 3 to 8 on the next mini-batch. No shape depends on the data, so this can be captured as a graph."""
    stack, clock = training.stack, training.clock

    def learn() -> None:
        x_RB, y_RB = training.batches.take(clock.step_1)  # step 3
        logits_NRBC = stack(training.view(x_RB, stack.shape[0]))
        chosen = choose(phase, logits_NRBC, y_RB, clock)  # steps 4 to 6
        gradients = stack.gradients(chosen.loss_NRB, chosen.weight_NRB)
        finite_NR, live_NR = finite_and_live(phase, chosen, stack.sums(gradients))
        training.optimiser.step(gradients, live_NR, clock)  # steps 7 and 8
        stack.keep_statistics(finite_NR)
        training.record(logits_NRBC.detach(), y_RB, chosen, finite_NR)

    return learn


def fit(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    *,
    engine: Engine = PLAIN_ENGINE,
    view: View | None = None,
    processes: Processes = ONE_PROCESS,
    ledger: bool = False,
    resume_from: State | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Training:
    """Train a method's phases one after the other and report each epoch.

    Parameters
    ----------
    problem : Problem
        On the device where the training is to run.
    build : callable
        Makes one network; called under a seed of its own for every network of every run.
    engine : Engine
        How it runs: precision, batched or looped, captured or not.
    view : callable, optional
        What each network sees of a sample; by default all of it, in Co-training a half.
    processes : Processes
        Those that train it together, each calling this with the same problem on a device of its own.
    ledger : bool
        Keep what the networks thought of every sample over the epochs, in `Training.ledger`.
    resume_from : State, optional
        Go on from there, as if the training had never stopped.
    """
    if method.in_rounds:
        raise ValueError(f"{method.name} is a program of its own: call coteach.iterative.fit_iterative.")
    view = view or (half_views if method.views else same_view)
    phases = method.planned(plan)
    if plan.keep_per_class:
        phases = [replace(phase, rule=phase.rule.of_each_class()) for phase in phases]

    def begin(generation: int = 0) -> Training:
        return start(
            problem, method.networks, plan, build, engine, view,
            generation=generation, ledger=ledger, processes=processes,
        )  # fmt: skip

    with closing_streams(problem.x_M), guarded_steps() as guarded:
        training = begin()
        for position, phase in enumerate(phases):
            if resume_from and position < resume_from.phase:
                continue
            resumed = resume_from if resume_from and position == resume_from.phase else None
            if phase.corrected_by:
                matrix_RCC = resumed.tensors["matrix_RCC"] if resumed else transition(training, phase)
                matrix_RCC = matrix_RCC.to(training.stack.theta_NRP)
                phase = replace(phase, loss=forward_corrected(phase.loss, matrix_RCC))
                training = replace(begin(generation=position), matrix_RCC=matrix_RCC)
            if resumed:
                restore(training, resumed.tensors)
                phase = replace(phase, epochs=range(resumed.epoch + 1, phase.epochs.stop))
            preliminary = any(later.corrected_by for later in phases[position + 1 :])
            # networks that teach each other labels of their own soon believe them, and find nothing wrong any more
            learning = replace(training, ledger=None) if phase.own_labels else training
            learn = mini_batch(learning, phase, engine.compiler(choose), engine.compiler(finite_and_live))
            if engine.captured and processes.size == 1:  # not while processes wait for each other
                learn = Captured(learn)
            learn = guarded(learn)
            for number in phase.epochs:
                train_epoch(learning, number, learn)
                on_epoch(Epoch(number, training, phase, position, preliminary, learning.ledger is not None))
        return training


def transition(training: Training, phase: Phase) -> Tensor:
    """Q_RCC that a phase's loss is corrected by: the true one, or what the training so far says."""
    if phase.corrected_by == "estimated":
        return estimated_transition(training)
    assert training.problem.matrix_RCC is not None, "a method that is told the true Q needs problem.matrix_RCC"
    return training.problem.matrix_RCC


def estimated_transition(training: Training) -> Tensor:
    """T̂_RCC of the first network of each run (F-correction trains one)."""
    p_RMC = posteriors(training, training.problem.x_M)[0]
    drop_outliers = training.problem.n_classes < 100  # as the method's authors: not on CIFAR-100
    return torch.stack([transition_from_posteriors(p_MC, drop_outliers=drop_outliers) for p_MC in p_RMC])
