"""The time of the two loops that people write: benchmarks/plain_loops.py, in a wheel coteach/plain_loops.py."""

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from coteach.bench.case import Case
from coteach.bench.floor import synchronise
from coteach.bench.ours import Show

WARM_STEPS = 30
EPOCHS = 3
SPEND = 20.0  # seconds after which no further epoch is begun
LONGEST = 60.0  # seconds that an epoch may last; of a longer one a part is timed
TICK = 20  # steps between two words on the progress, which itself takes time


@dataclass(frozen=True)
class Plain:
    """Seconds of each timed epoch, training and evaluation; which share of its batches was really done."""

    seconds: list[float]
    share: float
    updated: float  # share of the batches on which the networks disagreed anywhere, and so learnt

    @property
    def median(self) -> float:
        return median(self.seconds)


def plain_loops() -> Any:
    """The module, from an installed wheel or from the clone this package lies in."""
    if importlib.util.find_spec("coteach.plain_loops"):
        return importlib.import_module("coteach.plain_loops")
    folder = Path(__file__).parents[3] / "benchmarks"
    if not (folder / "plain_loops.py").exists():
        raise ValueError("benchmarks/plain_loops.py is missing: install coteach again, or from a whole clone.")
    if str(folder) not in sys.path:  # by its name, so that worker processes find it too
        sys.path.append(str(folder))
    return importlib.import_module("plain_loops")


def time_plain(case: Case, kind: str, show: Show, longest: float = LONGEST) -> Plain:
    """Time one of the loops with its `kind` of loader, with torch's usual number of threads."""
    loops, plan, device = plain_loops(), case.plan, case.device
    what = f"{kind} loop"
    show(what, 0, case.steps)
    batches, test_batches = getattr(loops, kind)(*case.tensors, plan.batch_size)
    keep_rate = plan.keep_rate(plan.ramp, case.noise.nominal_rate)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        pair = loops.new_pair(case.build, plan.lr, device)
        warm = min(WARM_STEPS, len(batches))
        spent = seconds(device, lambda: loops.train(pair, islice(batches, warm), keep_rate, warm_up=True))
        share = min(1.0, longest / (spent / warm * len(batches)))
        steps, test_steps = (max(1, round(share * len(loader))) for loader in (batches, test_batches))
        timed: list[float] = []
        updates = 0

        def learn() -> None:
            nonlocal updates
            updates += loops.train(pair, ticking(islice(batches, steps), what, steps, show), keep_rate)

        while len(timed) < EPOCHS and sum(timed) * share < SPEND:
            training = seconds(device, learn) * len(batches) / steps
            testing = seconds(device, lambda: loops.evaluate(pair, islice(test_batches, test_steps)))
            timed.append(training + testing * len(test_batches) / test_steps)
    return Plain(timed, share, updates / (steps * len(timed)))


def seconds(device: str, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def ticking(batches: Iterable, what: str, steps: int, show: Show) -> Iterator:
    for step, batch in enumerate(batches):
        if step % TICK == 0:
            show(what, step, steps)
        yield batch
