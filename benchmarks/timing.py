"""The time and memory of our epochs and of the plain loops', and whether the machine was ours alone meanwhile."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import plain_loops
import torch
from cases import Case
from roofline import synchronise

from coteach.engine import Engine
from coteach.engine.setup import set_up
from coteach.engine.training import Epoch, Training
from coteach.iterative import fit_iterative
from coteach.measure import Reference, evaluate, measure
from coteach.runs.prepare import engine_options
from coteach.train import fit

Show = Callable[[str, int, int], None]  # what is going on, how far it is, of how much


def seconds(device: str, work: Callable[[], object]) -> float:
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


# ---- our epochs -----------------------------------------------------------------------------------------------

OUR_LIMIT = 60.0  # seconds after which a slow case is left with the epochs it has


@dataclass(frozen=True)
class OurEpochs:
    """Seconds of each epoch that was timed, all runs together, training and evaluation."""

    seconds: list[float]
    evaluation_seconds: float
    peak_memory: int | None
    threads: int
    engine: Engine
    ready_seconds: float  # building, capturing and compiling, with the first epoch

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def evaluation_share(self) -> float:
        return self.evaluation_seconds / self.median


class Enough(Exception):
    """Everything is measured, so that the training can end."""


def time_ours(case: Case, epochs: int, show: Show, limit: float = OUR_LIMIT) -> OurEpochs:
    """Train until `epochs` of the last phase are timed, after a first that builds, captures and compiles.

    Then one more evaluation, timed apart.
    """
    plan = replace(case.plan, epochs=case.plan.warmup + 1 + epochs)
    first = 1 + sum(len(phase.epochs) for phase in case.method.phases(plan)[:-1])
    with torch.random.fork_rng(devices=[]):
        network = case.build()
    options = engine_options(case.experiment)
    # as for a whole training, else a few epochs would not be worth a compilation
    setup = set_up(network, case.runs, case.method, case.plan, case.samples, case.device, options)
    problem, reference = case.problem()
    clock = EpochClock(case.device, reference, first, epochs, limit, show)
    with setup.active(), suppress(Enough):
        clock.start()
        if case.method.in_rounds:
            fit_iterative(problem, plan, case.build, engine=setup.engine, on_epoch=clock.after_epoch)
        else:
            fit(problem, case.method, plan, case.build, engine=setup.engine, on_epoch=clock.after_epoch)
    return OurEpochs(
        clock.seconds,
        clock.evaluation_seconds,
        peak_memory(case.device),
        setup.threads,
        setup.engine,
        clock.ready_seconds,
    )


class EpochClock:
    """Looks at the time after every epoch, and stops the training when it has seen enough."""

    def __init__(self, device: str, reference: Reference, first: int, epochs: int, limit: float, show: Show):
        self.device, self.reference = device, reference
        self.first, self.epochs, self.limit, self.show = first, epochs, limit, show
        self.passed = 0
        self.seconds: list[float] = []
        self.ready_seconds = 0.0
        self.evaluation_seconds = 0.0

    def start(self) -> None:
        self.show("our epochs", 0, self.first + self.epochs)
        synchronise(self.device)
        self.started = time.perf_counter()

    def after_epoch(self, epoch: Epoch) -> None:
        measure(epoch, self.reference)
        synchronise(self.device)
        spent = time.perf_counter() - self.started
        self.passed += 1
        if self.passed > self.first:
            self.seconds.append(spent)
        else:
            self.ready_seconds += spent
        self.show("our epochs", self.passed, self.first + self.epochs)
        if len(self.seconds) == self.epochs or sum(self.seconds) > self.limit:
            self.evaluation_seconds = seconds(
                self.device, lambda: evaluate_once_more(epoch.training, self.reference)
            )
            raise Enough
        self.started = time.perf_counter()


def evaluate_once_more(training: Training, reference: Reference) -> None:
    evaluate(training.stack, reference.x_test, reference.y_test, training.view, training.problem.augment)


# ---- the plain loops ------------------------------------------------------------------------------------------

WARM_STEPS = 30
PLAIN_EPOCHS = 3
PLAIN_LIMIT = 20.0  # seconds after which no further epoch is begun
LONGEST_EPOCH = 60.0  # seconds that an epoch may last; of a longer one a part is timed
SHOWN_EVERY = 20  # steps, because to show takes time as well


@dataclass(frozen=True)
class PlainEpochs:
    """Seconds of each timed epoch, training and evaluation; which share of its batches was really done."""

    seconds: list[float]
    share: float
    updated: float  # share of the batches on which the networks disagreed anywhere, and so learnt
    evaluation_share: float

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class PlainTraining:
    """A plain loop before its first step. What learns says how many of the batches it learnt from."""

    batches: Any  # to iterate over once an epoch; their number is its length
    test_batches: Any
    warm_up: Callable[[Iterable], int]
    learn: Callable[[Iterable], int]
    test: Callable[[Iterable], object]


def plain_training(case: Case, kind: str) -> PlainTraining:
    """The training of a `kind`, a function of `plain_loops` that makes its batches."""
    plan, device = case.plan, case.device
    keep_rate = plan.keep_rate(plan.ramp, case.noise.nominal_rate)
    if kind == "on_device":
        changes = {name: getattr(plan, name) for name in ("mirror", "shift", "cutout")}
        batches, test_batches = plain_loops.on_device(*case.tensors, plan.batch_size, device, **changes)
        modern = plain_loops.ModernPair(
            case.build,
            device,
            plan.epochs * case.steps,
            lr=plan.lr,
            momentum=plan.momentum,
            weight_decay=plan.weight_decay,
            rise=plan.one_cycle,
            lookahead=plan.lookahead,
            half=device.startswith("cuda"),
        )
        learn = partial(modern.train, keep_rate=keep_rate)
        return PlainTraining(batches, test_batches, learn, learn, modern.test)
    loaders = getattr(plain_loops, kind)(*case.tensors, plan.batch_size)
    pair = plain_loops.new_pair(case.build, plan.lr, device)
    learn = partial(plain_loops.train, pair, keep_rate=keep_rate)
    warm_up = partial(learn, warm_up=True)
    return PlainTraining(loaders[0], loaders[1], warm_up, learn, partial(plain_loops.evaluate, pair))


def time_plain(case: Case, kind: str, show: Show, longest: float = LONGEST_EPOCH) -> PlainEpochs:
    """Time one of the loops, with torch's usual number of threads."""
    device, what = case.device, f"{kind} loop"
    show(what, 0, case.steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        loop = plain_training(case, kind)
        batches, test_batches = loop.batches, loop.test_batches
        warm = min(WARM_STEPS, len(batches))
        spent = seconds(device, lambda: loop.warm_up(islice(batches, warm)))
        share = min(1.0, longest / (spent / warm * len(batches)))
        steps, test_steps = (max(1, round(share * len(loader))) for loader in (batches, test_batches))
        learnt: list[float] = []
        tested: list[float] = []
        updates = 0

        def learn() -> None:
            nonlocal updates
            updates += loop.learn(shown(islice(batches, steps), what, steps, show))

        while len(learnt) < PLAIN_EPOCHS and (sum(learnt) + sum(tested)) * share < PLAIN_LIMIT:
            learnt.append(seconds(device, learn) * len(batches) / steps)
            testing = seconds(device, lambda: loop.test(islice(test_batches, test_steps)))
            tested.append(testing * len(test_batches) / test_steps)
    timed = [a + b for a, b in zip(learnt, tested, strict=True)]
    return PlainEpochs(timed, share, updates / (steps * len(timed)), median(tested) / median(timed))


def shown(batches: Iterable, what: str, steps: int, show: Show) -> Iterator:
    for step, batch in enumerate(batches):
        if step % SHOWN_EVERY == 0:
            show(what, step, steps)
        yield batch


# ---- memory ---------------------------------------------------------------------------------------------------


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


# ---- other processes ------------------------------------------------------------------------------------------

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of /proc/stat's first line: idle, and waiting for a disk
GUESTS = 8  # from here on columns repeat what is counted in the first


class OtherProcesses:
    """How much of the processors has gone to others since this was made, where the system tells (Linux)."""

    def __init__(self) -> None:
        self.before = self.read_clocks()

    def share(self) -> float | None:
        """From 0 to 1, of all cores; None where the system does not tell."""
        clocks = zip(self.read_clocks(), self.before, strict=True)
        spent, busy, mine = (after - before for after, before in clocks)
        if not STAT.exists():
            return None
        return max(0.0, busy - mine) / (spent * (os.cpu_count() or 1))

    def read_clocks(self) -> tuple[float, float, float]:
        """Seconds: on the wall, of all cores at work, and of this process and its workers that have ended."""
        return time.perf_counter(), seconds_at_work(), sum(os.times()[:4])


def seconds_at_work() -> float:
    if not STAT.exists():
        return 0.0
    ticks = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:]][:GUESTS]
    return sum(n for column, n in enumerate(ticks) if column not in IDLE) / os.sysconf("SC_CLK_TCK")
