"""Algorithm 1 for N networks × R runs, and the phases around it.

Step 2 shuffles the samples and 3 draws a mini-batch; 4 keeps those on which the networks disagree; in 5 and 6
each picks the share λ(e) of small loss among them; in 7 and 8 each learns from what its peer picked; 9 moves λ on.
The runs of a stack share samples, network and method; each has its own labels, noise rate, order and seed.
Shapes: N networks, R runs, S steps of an epoch, B samples of a mini-batch, M samples, C classes, P parameters of a
network; 1 is an axis of length one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.engine import PLAIN_ENGINE, Engine
from coteach.engine.batches import Batches, View, evaluation_input, half_views, same_view
from coteach.engine.clock import Clock
from coteach.engine.distributed import ALONE, Team
from coteach.engine.optimisers import Optimiser, new_optimiser
from coteach.engine.records import Choice, Records
from coteach.engine.signals import between_steps
from coteach.engine.stack import Stack
from coteach.engine.state import State, restore
from coteach.engine.steps import Captured, Compiler, uncompiled
from coteach.engine.stream import Stream, batches_of, chunks, closing_streams
from coteach.estimate import transition_from_posteriors
from coteach.labels.ledger import Ledger
from coteach.losses import forward_corrected
from coteach.methods import Method, Phase
from coteach.metrics import chunk_size, count, evaluate
from coteach.plan import Plan
from coteach.rules import Batch


@dataclass(frozen=True)
class Problem:
    """What is to be learnt: one data set, and for each of the R runs its labels, noise rate and seed."""

    x_M: Tensor | Stream
    y_RM: Tensor
    x_test: Tensor | Stream
    y_test: Tensor
    n_classes: int
    noise_rates: list[float]  # τ as the method believes it
    seeds: list[int]
    clean_RM: Tensor  # measures label precision; no method sees it
    checked: bool = True  # whether anybody knows which labels are right; else clean_RM says nothing
    matrix_RCC: Tensor | None = None  # the true Q, for the one method that is told
    augment: Augment | None = None

    @classmethod
    def unchecked(
        cls,
        x_M: Tensor | Stream,
        x_1: Tensor | Stream,
        y_M: Tensor,
        n_classes: int,
        noise_rate: float,
        seed: int,
        augment: Augment | None = None,
    ) -> "Problem":
        """One run on labels of which nobody knows the truth; x_1, its first sample, stands in for a test set."""
        return cls(
            x_M=x_M,
            y_RM=y_M[None],
            x_test=x_1,
            y_test=y_M[:1],
            n_classes=n_classes,
            noise_rates=[noise_rate],
            seeds=[seed],
            clean_RM=torch.ones_like(y_M[None], dtype=torch.bool),
            checked=False,
            augment=augment,
        )

    def part(self, group: range) -> "Problem":
        """The same for some of its runs."""
        some = slice(group.start, group.stop)
        return replace(
            self,
            y_RM=self.y_RM[some],
            noise_rates=self.noise_rates[some],
            seeds=self.seeds[some],
            clean_RM=self.clean_RM[some],
            matrix_RCC=None if self.matrix_RCC is None else self.matrix_RCC[some],
        )


@dataclass(frozen=True)
class Training:
    """A stack of networks on its way through a plan."""

    stack: Stack
    optimiser: Optimiser
    batches: Batches
    view: View
    plan: Plan
    problem: Problem
    clock: Clock
    records: Records
    team: Team = ALONE  # the processes that share every mini-batch
    ledger: Ledger | None = None
    matrix_RCC: Tensor | None = None  # Q, where the loss is corrected by it


def train_epoch(training: Training, epoch: int, learn: Callable[[], None]) -> None:
    """One epoch e of Algorithm 1."""
    training.clock.set_epoch(epoch)  # step 9: λ(e), and the learning rate
    for _ in training.batches.deal(epoch):  # step 2
        learn()  # steps 3 to 8
    training.team.agree(training.stack)
    if training.ledger:
        training.ledger.close(training.batches, training.records)


def mini_batch(training: Training, phase: Phase, compiler: Compiler = uncompiled) -> Callable[[], None]:
    """Steps 3 to 8 on the next mini-batch. No shape depends on the data, so this can be captured as a graph.

    At first reading skip `team` (several processes), `compiler` (torch.compile), and what is recorded for later:
    `note` (the ledger) and `write` (the records, from which metrics are counted).
    """
    stack, team, clock = training.stack, training.team, training.clock
    take, pick, judge, write = map(
        compiler, (training.batches.take, choose, which_are_finite, training.records.write)
    )
    note = compiler(training.ledger.note) if training.ledger else None

    def learn() -> None:
        x_RB, y_RB = take(clock.step_1)  # step 3
        logits_NRBC = team.whole(stack(training.view(x_RB, stack.shape[0])), training.batches.size)
        chosen = pick(phase, logits_NRBC, y_RB, clock)  # steps 4 to 6
        gradients = team.summed(stack.gradients(chosen.loss_NRB, chosen.weight_NRB))
        finite_NR, live_NR = judge(phase, chosen, stack.sums(gradients))
        training.optimiser.step(gradients, live_NR, clock)  # steps 7 and 8
        stack.keep_statistics(finite_NR)
        if note:
            note(clock.step_1, logits_NRBC.detach(), y_RB)
        write(clock.step_1, chosen, finite_NR)

    return learn


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


def which_are_finite(phase: Phase, chosen: Choice, sum_NR: Tensor) -> tuple[Tensor, Tensor]:
    """Networks (NR) whose loss and sum of gradients are finite, and those of them that take a step.

    The others sit out, as if the batch had not been.
    """
    # where, not a product: 0 · nan is nan, and a sample that nobody picked must not spoil the loss
    loss_NR = torch.where(chosen.learnt_NRB, chosen.loss_NRB.detach(), 0).sum(-1)
    finite_NR = (loss_NR + sum_NR) * 0 == 0  # as isfinite, which takes four kernels
    return finite_NR, finite_NR if phase.rescue else finite_NR & chosen.learnt_NRB.any(-1)


@dataclass(frozen=True)
class Epoch:
    """What an epoch ended with: a row of metrics for each run."""

    number: int
    rows: list[dict]
    preliminary: bool  # of a training that only serves to estimate something
    training: Training
    phase: int = 0  # of the method's, counted from 0
    noted: bool = False  # in the training's ledger


def fit(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    *,
    engine: Engine = PLAIN_ENGINE,
    view: View | None = None,
    team: Team = ALONE,
    ledger: bool = False,
    since: State | None = None,
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
    team : Team
        The processes that train it together, each calling this with the same problem on a device of its own.
    ledger : bool
        Keep what the networks thought of every sample over the epochs, in `Training.ledger`.
    since : State, optional
        Go on from there, as if the training had never stopped.
    """
    if method.in_rounds:
        if ledger:
            raise ValueError(f"{method.name} keeps no ledger: take another method.")
        assert since is None, "a method in rounds begins anew"
        assert team.size == 1, "a method in rounds trains in one process"
        from coteach.iterative import fit_iterative  # not above: it is built from what is here

        return fit_iterative(problem, plan, build, engine=engine, on_epoch=on_epoch)
    view = view or (half_views if method.views else same_view)
    phases = method.planned(plan)
    if plan.keep_per_class:
        phases = [replace(phase, rule=phase.rule.of_each_class()) for phase in phases]
    with closing_streams(problem.x_M, problem.x_test), between_steps() as heeding_signals:
        training = start(problem, method.networks, plan, build, engine, view, ledger=ledger, team=team)
        for position, phase in enumerate(phases):
            if since and position < since.phase:
                continue
            interrupted = since if since and position == since.phase else None
            if phase.corrected_by:
                matrix_RCC = interrupted.tensors["matrix_RCC"] if interrupted else transition(training, phase)
                matrix_RCC = matrix_RCC.to(training.stack.theta_NRP)
                phase = replace(phase, loss=forward_corrected(phase.loss, matrix_RCC))
                training = start(
                    problem, method.networks, plan, build, engine, view, position, ledger=ledger, team=team
                )
                training = replace(training, matrix_RCC=matrix_RCC)
            if interrupted:
                restore(training, interrupted.tensors)
                phase = replace(phase, epochs=range(interrupted.epoch + 1, phase.epochs.stop))
            preliminary = any(later.corrected_by for later in phases[position + 1 :])
            # networks that teach each other labels of their own soon believe them, and find nothing wrong any more
            learning = replace(training, ledger=None) if phase.own_labels else training
            learn = mini_batch(learning, phase, engine.compiler)
            if engine.captured and team.size == 1:  # not while processes wait for each other
                learn = Captured(learn)
            for epoch in phase.epochs:
                train_epoch(learning, epoch, heeding_signals(learn))
                rows = measure(training, phase, epoch)
                on_epoch(Epoch(epoch, rows, preliminary, training, position, noted=bool(learning.ledger)))
        return training


def start(
    problem: Problem,
    networks: int,
    plan: Plan,
    build: Callable[[], nn.Module],
    engine: Engine,
    view: View,
    generation: int = 0,
    ledger: bool = False,
    team: Team = ALONE,
) -> Training:
    device, dtype = problem.y_RM.device, engine.dtype
    stack = Stack(
        build,
        problem.seeds,
        networks,
        device=device,
        dtype=dtype,
        batched=engine.batched,
        precision=engine.precision,
        generation=generation,
        pooled=engine.pooled,
        compiler=engine.compiler,
    )
    steps = plan.steps(len(problem.x_M))
    batches = batches_of(
        problem.x_M, problem.y_RM, problem.seeds, plan.batch_size, steps, dtype, problem.augment, team
    )
    optimiser = new_optimiser(stack, plan, engine.compiler)
    clock = Clock(plan, problem.noise_rates, device)
    records = Records((batches.per_epoch, *stack.shape, batches.size), dtype, device)
    kept = Ledger(batches, networks, dtype) if ledger else None
    return Training(stack, optimiser, batches, view, plan, problem, clock, records, team, kept)


def measure(training: Training, phase: Phase, epoch: int) -> list[dict]:
    """The rows of one epoch: its test scores beside the counts over its mini-batches."""
    problem, plan = training.problem, training.plan
    n_test = len(problem.y_test)
    if plan.fidelity.whole_test_batches and n_test > plan.batch_size:
        n_test -= n_test % plan.batch_size
    scores = evaluate(training.stack, problem.x_test, problem.y_test[:n_test], training.view, problem.augment)
    clean_SRB = training.batches.in_batch_order(problem.clean_RM)
    counts = count(training.records, phase.rule, clean_SRB, training.clock.keep_R1, not plan.fidelity.floor)
    if phase.own_labels or not problem.checked:  # what is learnt are no given labels, or nobody knows them
        counts = [row | {"label_precision": None, "label_recall": None} for row in counts]
    return [
        {"seed": seed, "epoch": epoch, **score, **row, "keep_rate": plan.keep_rate(epoch, tau)}
        | {"events": score["events"] | row["events"]}
        for seed, tau, score, row in zip(problem.seeds, problem.noise_rates, scores, counts, strict=True)
    ]


def transition(training: Training, phase: Phase) -> Tensor:
    """Q_RCC that a phase's loss is corrected by: the true one, or what the training so far says."""
    if phase.corrected_by == "estimated":
        return estimated_transition(training)
    assert training.problem.matrix_RCC is not None, "a method that is told the true Q needs problem.matrix_RCC"
    return training.problem.matrix_RCC


def estimated_transition(training: Training) -> Tensor:
    """T̂_RCC of the first network of each run (F-correction trains one)."""
    p_RMC = posteriors(training)[0]
    drop_outliers = training.problem.n_classes < 100  # as the method's authors: not on CIFAR-100
    return torch.stack([transition_from_posteriors(p_MC, drop_outliers=drop_outliers) for p_MC in p_RMC])


def posteriors(training: Training) -> Tensor:
    """p_NRMC of the training set."""
    stack, problem = training.stack, training.problem
    networks, runs = stack.shape
    with stack.evaluating():
        pieces = [
            stack(training.view(evaluation_input(x_B, stack.theta_NRP.dtype, problem.augment, runs), networks))
            for x_B in chunks(problem.x_M, len(problem.x_M), chunk_size(problem.x_M, stack))
        ]
    return torch.cat(pieces, -2).softmax(-1)
