"""The time, memory and share of evaluation of our own epochs."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from coteach import train
from coteach.bench.case import Case
from coteach.bench.floor import synchronise
from coteach.engine import Engine
from coteach.runs import setup
from coteach.runs.choices import choose_engine, choose_threads
from coteach.train import Epoch

Show = Callable[[str, int, int], None]  # what is going on, how far it is, of how much

SPEND = 60.0  # seconds after which a slow case is left with the epochs it has


@dataclass(frozen=True)
class Ours:
    """Seconds of each epoch that was timed, all runs together, training and evaluation."""

    seconds: list[float]
    evaluation_share: float | None
    peak_memory: int | None
    threads: int
    engine: Engine
    ready_seconds: float  # building, capturing and compiling, with the first epoch

    @property
    def median(self) -> float:
        return median(self.seconds)


class Enough(Exception):
    """Everything is measured, so that the training can end."""


def time_ours(case: Case, epochs: int, show: Show, spend: float = SPEND) -> Ours:
    """Train until `epochs` of the last phase are timed, after a first that builds, captures and compiles.

    One more epoch tells the share of the evaluation, apart because it waits for the device between the two.
    """
    plan = replace(case.plan, epochs=case.plan.warmup + epochs + 3)
    first = 1 + sum(len(phase.epochs) for phase in case.method.phases(plan)[:-1])
    with torch.random.fork_rng(devices=[]):
        network = case.build()
    in_all = case.method.networks * case.runs
    threads = choose_threads(network, in_all, plan)
    # as for a whole training, else a few epochs would not be worth a compilation
    engine = choose_engine(case.experiment, case.plan, network, in_all, case.samples, case.device)
    clock = Clock(case, first, epochs, spend, show)
    problem = case.problem()
    with (
        setup.torch_set(threads, deterministic=False, device=case.device),
        engine.precision.set(),
        timed_evaluation(clock),
        suppress(Enough),
    ):
        clock.start()
        train.fit(problem, case.method, plan, case.build, engine=engine, on_epoch=clock.after_epoch)
    return Ours(
        clock.seconds, clock.evaluation_share, peak_memory(case.device), threads, engine, clock.ready_seconds
    )


class Clock:
    """Looks at the time after every epoch."""

    def __init__(self, case: Case, first: int, epochs: int, spend: float, show: Show):
        self.case, self.first, self.epochs, self.spend, self.show = case, first, epochs, spend, show
        self.passed = 0
        self.seconds: list[float] = []
        self.ready_seconds = 0.0
        self.in_evaluation = 0.0
        self.evaluation_share: float | None = None

    def start(self) -> None:
        self.show("our epochs", 0, self.first + self.epochs)
        synchronise(self.case.device)
        self.started = time.perf_counter()

    @property
    def timed_enough(self) -> bool:
        return len(self.seconds) == self.epochs or sum(self.seconds) > self.spend

    def after_epoch(self, epoch: Epoch) -> None:
        synchronise(self.case.device)
        spent = time.perf_counter() - self.started
        self.passed += 1
        if self.timed_enough:
            self.evaluation_share = self.in_evaluation / spent or None
            raise Enough
        if self.passed > self.first:
            self.seconds.append(spent)
        else:
            self.ready_seconds += spent
        self.show("our epochs", self.passed, self.first + self.epochs)
        self.started = time.perf_counter()


@contextmanager
def timed_evaluation(clock: Clock) -> Iterator[None]:
    """In the epoch after those that are timed, the clock also learns how long `train.measure` takes."""
    measure, device = train.measure, clock.case.device

    def timed(*arguments: Any, **named: Any) -> Any:
        if not clock.timed_enough:
            return measure(*arguments, **named)
        synchronise(device)
        started = time.perf_counter()
        rows = measure(*arguments, **named)
        synchronise(device)
        clock.in_evaluation += time.perf_counter() - started
        return rows

    train.measure = timed
    try:
        yield
    finally:
        train.measure = measure


def forget_peak_memory(device: str) -> None:
    """Begin anew, where the system can: else a later case shows the peak of all before it."""
    if device.startswith("cuda"):
        torch.cuda.init()  # torch refuses to reset what it has not begun to count
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int | None:
    """Bytes: of tensors on a GPU, else of the whole process in memory, where the system says."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024
