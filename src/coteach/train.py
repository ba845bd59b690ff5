"""Algorithm 1 for N networks × R runs, and the phases around it.

Step 2 shuffles the samples and 3 draws a mini-batch; 4 keeps those on which the networks disagree; in 5 and 6
each picks the share λ(e) of small loss among them; in 7 and 8 each learns from what its peer picked; 9 moves λ on.
The runs of a stack share samples, network and method; each has its own labels, noise rate, order and seed.
Shapes: N networks, R runs, B samples of a mini-batch, M samples, C classes; 1 is an axis of length one.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from coteach.dividemix import VIEWS, divided_lesson
from coteach.engine import PLAIN_ENGINE, Engine
from coteach.engine.batches import View, half_views, same_view
from coteach.engine.clock import Clock
from coteach.engine.distributed import ONE_PROCESS, Processes
from coteach.engine.held_out import hold_out
from coteach.engine.records import Choice
from coteach.engine.steps import Captured
from coteach.engine.stream import closing_streams
from coteach.engine.training import Epoch, Problem, State, Training, restore, start
from coteach.learning import learns_otherwise, lesson
from coteach.losses import cross_entropy, forward_corrected, transition_from_posteriors
from coteach.measure import judge_by_held_out, losses_of_all, posteriors
from coteach.methods import Method, Phase
from coteach.mixture import clean_probability
from coteach.plan import Plan, no_small_losses
from coteach.rules import Batch
from coteach.signals import guarded_steps

NOTHING_BUT_LABELS = {"mixup": 0.0, "guess_weight": 0.0, "class_balance": 0.0}


def train_epoch(training: Training, epoch: int, learn: Callable[[], None]) -> None:
    """One epoch e of Algorithm 1."""
    training.begin_epoch(epoch)  # step 9: λ(e), and the learning rate
    if training.clean_NRM is not None and epoch > training.plan.warmup:  # until then all labels are believed
        training.clean_NRM.copy_(clean_probability(losses_of_all(training, cross_entropy)))
    for _ in training.batches.deal(epoch):  # step 2
        learn()  # steps 3 to 8
    training.end_epoch()


def choose(
    phase: Phase, logits_NRBC: Tensor, y_RB: Tensor, clock: Clock, clean_NRB: Tensor | None = None
) -> Choice:
    """Which samples weigh how much in each network's loss."""
    target_NRB = y_RB.expand(len(logits_NRBC), -1, -1)
    if phase.own_labels:  # a network hands on its own predictions
        target_NRB = logits_NRBC.argmax(-1).flip(0)
    loss_NRB = phase.loss(logits_NRBC, target_NRB)
    round_up = not clock.plan.fidelity.floor
    seen = Batch(logits_NRBC.detach(), loss_NRB.detach(), clock.keep_R1, round_up, y_RB, clean_NRB)
    among_NRB = phase.rule.among(seen)  # step 4
    picked_NRB = phase.rule.picked(seen, among_NRB)  # steps 5 and 6, and the exchange
    weight_NRB = phase.weigh(picked_NRB.to(loss_NRB.dtype))
    if phase.rescue:
        empty_NR1 = ~picked_NRB.any(-1, keepdim=True)
        weight_NRB = torch.where(empty_NR1 & clock.early, 1 / picked_NRB.shape[-1], weight_NRB)
    return Choice(loss_NRB, seen.prediction_NRB, among_NRB, weight_NRB, weight_NRB > 0, target_NRB)


def finite_and_live(
    phase: Phase, chosen: Choice, loss_NRX: Tensor, weight_NRX: Tensor, sum_NR: Tensor
) -> tuple[Tensor, Tensor]:
    """Networks (NR) whose losses and sum of gradients are finite, and those of them that take a step.

    The others sit out, as if the batch had not been. The loss that was learnt need not be the one looked at.
    """
    # where, not a product: 0 · nan is nan, and a sample that nobody picked must not spoil the loss
    learnt_NRX = weight_NRX > 0
    looked_at_NR = torch.where(chosen.learnt_NRB, chosen.loss_NRB.detach(), 0).sum(-1)
    loss_NR = looked_at_NR + torch.where(learnt_NRX, loss_NRX.detach(), 0).sum(-1)
    # as isfinite, which takes four kernels; not x · 0 == 0, of which torch.compile makes True, nan or not
    finite_NR = (loss_NR + sum_NR).abs() < torch.inf
    return finite_NR, finite_NR if phase.rescue else finite_NR & learnt_NRX.any(-1)


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
        # batch norm is to remember what is learnt, not what was looked at
        with stack.looking() if phase.divided or learns_otherwise(training.plan) else nullcontext():
            logits_NRBC = stack(training.view(x_RB, stack.shape[0]))
        clean_NRB = training.believed()
        chosen = choose(phase, logits_NRBC, y_RB, clock, clean_NRB)  # steps 4 to 6
        if phase.divided:
            assert clean_NRB is not None
            loss_NRX, weight_NRX = divided_lesson(training, phase.loss, x_RB, logits_NRBC, chosen, clean_NRB)
        else:
            loss_NRX, weight_NRX = lesson(training, phase.loss, x_RB, logits_NRBC, chosen)
        gradients = stack.gradients(loss_NRX, weight_NRX)
        finite_NR, live_NR = finite_and_live(phase, chosen, loss_NRX, weight_NRX, stack.sums(gradients))
        training.step(gradients, live_NR)  # steps 7 and 8
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
    divided = any(phase.divided for phase in phases)
    if plan.mixture:
        phases = by_mixture(method, phases)
    elif plan.keep_per_class:
        phases = [replace(phase, rule=phase.rule.of_each_class()) for phase in phases]

    held_out = hold_out(problem, plan)

    def begin(plan: Plan, generation: int = 0) -> Training:
        return start(
            problem, method.networks, plan, build, engine, view,
            generation=generation, ledger=ledger, processes=processes, held_out=held_out,
            views=VIEWS if divided else 1, mixture=divided or plan.mixture,
        )  # fmt: skip

    with closing_streams(problem.x_M, *([held_out.x_V] if held_out else [])), guarded_steps() as guarded:
        own_cycle = plan.one_cycle and any(phase.corrected_by for phase in phases[1:])
        training = begin(replace(plan, epochs=phases[0].epochs.stop - 1) if own_cycle else plan)
        for position, phase in enumerate(phases):
            if resume_from and position < resume_from.phase:
                continue
            resumed = resume_from if resume_from and position == resume_from.phase else None
            if phase.corrected_by:
                matrix_RCC = resumed.tensors["matrix_RCC"] if resumed else transition(training, phase)
                matrix_RCC = matrix_RCC.to(training.stack.theta_NRP)
                phase = replace(phase, loss=forward_corrected(phase.loss, matrix_RCC))
                training = replace(begin(plan, generation=position), matrix_RCC=matrix_RCC)
            if resumed:
                restore(training, resumed.tensors)
                phase = replace(phase, epochs=range(resumed.epoch + 1, phase.epochs.stop))
            preliminary = any(later.corrected_by for later in phases[position + 1 :])
            # networks that teach each other labels of their own soon believe them, and find nothing wrong any more
            learning = replace(training, ledger=None) if phase.own_labels else training
            if divided and not phase.divided:  # the warm-up has the given labels only
                learning = replace(learning, plan=replace(plan, **NOTHING_BUT_LABELS))
            learn = mini_batch(learning, phase, engine.compiler(choose), engine.compiler(finite_and_live))
            if engine.captured and processes.size == 1:  # not while processes wait for each other
                learn = Captured(learn)
            learn = guarded(learn)
            for number in phase.epochs:
                train_epoch(learning, number, learn)
                if held_out:
                    judge_by_held_out(learning, phase.loss)
                on_epoch(Epoch(number, training, phase, position, preliminary, learning.ledger is not None))
        return training


def by_mixture(method: Method, phases: list[Phase]) -> list[Phase]:
    """The phases with a mixture of losses in place of λ(e)."""
    changed = [replace(phase, rule=phase.rule.by_mixture()) for phase in phases]
    if changed == phases and not any(phase.divided for phase in phases):
        raise no_small_losses(method.name)
    return changed


def transition(training: Training, phase: Phase) -> Tensor:
    """Q_RCC that a phase's loss is corrected by: the true one, or what the training so far says."""
    if phase.corrected_by == "estimated":
        return estimated_transition(training)
    assert training.problem.matrix_RCC is not None, "f_correction_known needs problem.matrix_RCC"
    return training.problem.matrix_RCC


def estimated_transition(training: Training) -> Tensor:
    """T̂_RCC of the first network of each run (F-correction trains one)."""
    p_RMC = posteriors(training, training.problem.x_M)[0]
    drop_outliers = training.problem.n_classes < 100  # as the method's authors: not on CIFAR-100
    return torch.stack([transition_from_posteriors(p_MC, drop_outliers=drop_outliers) for p_MC in p_RMC])
