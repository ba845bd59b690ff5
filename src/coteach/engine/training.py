"""What is trained and what it is trained on: the parts that Algorithm 1 moves.

N networks, R runs, M samples, B samples of a mini-batch, C classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.engine import Engine
from coteach.engine.batches import Batches, View, refuse_other_samples, views_of
from coteach.engine.clock import Clock
from coteach.engine.distributed import ONE_PROCESS, Processes, SharedStack
from coteach.engine.held_out import BestWeights, HeldOut
from coteach.engine.memory import Memory
from coteach.engine.optimisers import Lookahead, Optimiser, new_optimiser
from coteach.engine.records import Choice, Ledgers, Records
from coteach.engine.stack import Stack, Tensors
from coteach.engine.stream import Stream, batches_of
from coteach.methods import Phase
from coteach.plan import Plan


@dataclass(frozen=True)
class Problem:
    """What is to be learnt: one data set, and for each of the R runs its labels, noise rate and seed."""

    x_M: Tensor | Stream
    y_RM: Tensor
    n_classes: int
    noise_rates: list[float]  # τ as the method believes it
    seeds: list[int]
    matrix_RCC: Tensor | None = None  # the true Q, for the one method that gets it
    augment: Augment | None = None

    def part(self, group: range) -> "Problem":
        """The same for some of its runs."""
        some = slice(group.start, group.stop)
        return replace(
            self,
            y_RM=self.y_RM[some],
            noise_rates=self.noise_rates[some],
            seeds=self.seeds[some],
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
    ledger: Ledgers | None = None
    matrix_RCC: Tensor | None = None  # Q, where the loss is corrected by it
    lookahead: Lookahead | None = None
    held_out: HeldOut | None = None
    best: BestWeights | None = None  # by the labels that are held out
    memory: Memory | None = None
    clean_NRM: Tensor | None = None  # how likely labels are right, where a mixture of losses tells

    def believed(self) -> Tensor | None:
        """clean_NRB of the present mini-batch."""
        if self.clean_NRM is None:
            return None
        index_RB = self.batches.index(self.clock.step_1)
        return self.clean_NRM.gather(-1, index_RB.expand(len(self.clean_NRM), -1, -1))

    def step(self, gradients: Sequence[Tensor], live_NR: Tensor) -> None:
        """Move the networks that are live."""
        self.optimiser.step(gradients, live_NR, self.clock)
        if self.lookahead:
            self.lookahead.step(self.clock)

    def record(self, logits_NRBC: Tensor, y_RB: Tensor, chosen: Choice, finite_NR: Tensor) -> None:
        """Keep what a step saw and did; the clock then points to the next step."""
        if self.ledger:
            self.ledger.note(self.clock.step_1, logits_NRBC, y_RB)
        self.records.write(self.clock.step_1, chosen, finite_NR)

    def begin_epoch(self, epoch: int) -> None:
        self.clock.set_epoch(epoch)
        if self.best:
            self.best.go_on()

    def end_epoch(self) -> None:
        self.stack.end_epoch()
        if self.ledger:
            self.ledger.close(self.batches, self.records)


@dataclass(frozen=True)
class Epoch:
    """An epoch that has ended."""

    number: int
    training: Training
    phase: Phase
    position: int = 0  # of the phase among the method's
    preliminary: bool = False  # of a training that only serves to estimate something
    in_ledger: bool = False
    weight_RM: Tensor | None = None  # of each sample, where a method has learnt from all of them more or less
    rows: list[dict] = field(default_factory=list)  # of metrics, one for each run, once they are measured


def start(
    problem: Problem,
    networks: int,
    plan: Plan,
    build: Callable[[], nn.Module],
    engine: Engine,
    view: View,
    *,
    generation: int = 0,
    ledger: bool = False,
    processes: Processes = ONE_PROCESS,
    held_out: HeldOut | None = None,
    views: int = 1,
    mixture: bool = False,
) -> Training:
    """A training before its first epoch; another `generation` has other initial weights.

    Each sample of a mini-batch is shown in so many `views`; a `mixture` of losses tells which labels are right.
    """
    device, dtype = problem.y_RM.device, engine.dtype
    if processes.size > 1:
        refuse_several_processes(plan, mixture)
    refuse_other_samples(problem.x_M, plan)
    learnt_M = None if held_out is None else held_out.learnt_M
    steps = plan.steps(len(problem.x_M if learnt_M is None else learnt_M))
    weak, strong = views_of(problem.augment, plan)
    batches = batches_of(
        problem.x_M,
        problem.y_RM,
        problem.seeds,
        plan.batch_size,
        steps,
        dtype,
        weak,
        processes,
        strong,
        plan.mixup,
        views,
        learnt_M,
    )
    options: dict[str, Any] = {
        "device": device,
        "dtype": dtype,
        "batched": engine.batched,
        "precision": engine.precision,
        "generation": generation,
        "pooled": engine.pooled,
        "compiler": engine.compiler,
    }
    if processes.size > 1:
        stack: Stack = SharedStack(processes, batches.size, build, problem.seeds, networks, **options)
    else:
        stack = Stack(build, problem.seeds, networks, **options)
    records = Records((batches.per_epoch, *stack.shape, batches.size), dtype, device)
    shape_NRM = (*stack.shape, len(problem.x_M))
    kept = Ledgers(batches, networks, dtype) if ledger else None
    if engine.compiled:
        batches.take, records.write = engine.compiler(batches.take), engine.compiler(records.write)
        batches.strengthened = engine.compiler(batches.strengthened)
        if kept:
            kept.note = engine.compiler(kept.note)
    return Training(
        stack,
        new_optimiser(stack, plan, engine.compiler),
        batches,
        view,
        plan,
        problem,
        Clock(plan, problem.noise_rates, device, steps),
        records,
        kept,
        lookahead=Lookahead(stack, plan.lookahead) if plan.lookahead else None,
        held_out=held_out,
        best=BestWeights(stack) if held_out else None,
        memory=Memory((*shape_NRM, problem.n_classes), plan.remembering, dtype, device)
        if plan.memory_weight
        else None,
        clean_NRM=torch.ones(shape_NRM, dtype=dtype, device=device) if mixture else None,
    )


def refuse_several_processes(plan: Plan, mixture: bool) -> None:
    """Raise a ValueError for what needs a whole mini-batch, or all samples, in one place."""
    if plan.mixup:
        raise ValueError("mixup mixes samples of a whole mini-batch: train in one process, or leave mixup out.")
    more = [name for name in ("guess_weight", "memory_weight", "class_balance") if getattr(plan, name)]
    if mixture or more:
        raise ValueError(f"{more[0] if more else 'mixture'} is for one process: leave it out, or train in one.")


# ---- stopping and going on ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """Where a training stood when an epoch had ended."""

    phase: int  # counted from 0
    epoch: int
    tensors: Tensors


def state_of(training: Training) -> dict[str, Tensor]:
    """All that a training has learnt so far: what a checkpoint holds.

    Nothing else is needed: every draw is a function of the seed, the epoch and the step. torch's own generator is
    kept for networks with dropout, which draw from it.
    """
    tensors = {
        f"{name}.{key}": t for name, part in learning_parts(training).items() for key, t in part.state().items()
    }
    if training.matrix_RCC is not None:
        tensors["matrix_RCC"] = training.matrix_RCC
    device = training.stack.theta_NRP.device
    tensors["generator.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["generator.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore(training: Training, tensors: Tensors) -> None:
    """Make a training that has just been started what it was when `state_of` was asked."""
    for name, part in learning_parts(training).items():
        prefix = f"{name}."
        part.load({key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)})
    torch.set_rng_state(tensors["generator.cpu"])
    if "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"], training.stack.theta_NRP.device)


def learning_parts(training: Training) -> dict[str, Any]:
    """What learns, or keeps what was learnt: each has `state()` and `load(tensors)`."""
    names = ("stack", "optimiser", "ledger", "lookahead", "memory", "best")
    found = {name: getattr(training, name) for name in names}
    return {name: part for name, part in found.items() if part is not None}
