"""What is trained and what it is trained on: the parts that Algorithm 1 moves.

N networks, R runs, M samples, B samples of a mini-batch, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.engine import Engine
from coteach.engine.batches import Batches, View
from coteach.engine.clock import Clock
from coteach.engine.distributed import ONE_PROCESS, Processes, SharedStack
from coteach.engine.optimisers import Optimiser, new_optimiser
from coteach.engine.records import Choice, Ledger, Records
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
    matrix_RCC: Tensor | None = None  # the true Q, for the one method that is told
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
    ledger: Ledger | None = None
    matrix_RCC: Tensor | None = None  # Q, where the loss is corrected by it

    def record(self, logits_NRBC: Tensor, y_RB: Tensor, chosen: Choice, finite_NR: Tensor) -> None:
        """Keep what a step saw and did; the clock then points to the next step."""
        if self.ledger:
            self.ledger.note(self.clock.step_1, logits_NRBC, y_RB)
        self.records.write(self.clock.step_1, chosen, finite_NR)

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
) -> Training:
    """A training before its first epoch; another `generation` has other initial weights."""
    device, dtype = problem.y_RM.device, engine.dtype
    steps = plan.steps(len(problem.x_M))
    batches = batches_of(
        problem.x_M, problem.y_RM, problem.seeds, plan.batch_size, steps, dtype, problem.augment, processes
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
    kept = Ledger(batches, networks, dtype) if ledger else None
    if engine.compiled:
        batches.take, records.write = engine.compiler(batches.take), engine.compiler(records.write)
        if kept:
            kept.note = engine.compiler(kept.note)
    return Training(
        stack,
        new_optimiser(stack, plan, engine.compiler),
        batches,
        view,
        plan,
        problem,
        Clock(plan, problem.noise_rates, device),
        records,
        kept,
    )


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
    found = {"stack": training.stack, "optimiser": training.optimiser, "ledger": training.ledger}
    return {name: part for name, part in found.items() if part is not None}
