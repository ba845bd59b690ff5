"""The runs of a stack in groups that fit the memory of the device, and a way on when they do not after all."""

import gc
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from coteach.engine import Engine
from coteach.engine.batches import View, same_view
from coteach.methods import Method
from coteach.plan import Plan
from coteach.train import Problem, mini_batch, start

T = TypeVar("T")


def in_groups(
    waiting: list[range],
    train: Callable[[range], T],
    done: Callable[[range, T], None],
    halved: Callable[[range], None],
) -> None:
    """Train the groups of runs that are waiting; one that runs out of memory is halved and begun again.

    A run is a function of its seed, so beginning again repeats it. The list is what still waits: a group is off it
    before `done` is told, and replaced there by its halves, as are those after it, before `halved` is.
    """
    while waiting:
        group = waiting[0]
        try:
            trained = train(group)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not out_of_memory(error) or len(group) == 1:
                raise
        else:
            waiting.remove(group)
            done(group, trained)
            del trained  # its memory is for the next
            continue
        forget()  # outside of the except clause, whose traceback holds on to the tensors
        waiting[:] = [piece for g in waiting for piece in halves(g, len(group) // 2)]
        halved(group)


def halves(group: range, size: int) -> list[range]:
    return [group[i : i + size] for i in range(0, len(group), size)]


def out_of_memory(error: BaseException) -> bool:
    """Of a GPU, or of the machine itself, which torch tells only by its words."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def forget() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def fitting_group(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    engine: Engine,
    view: View | None,
) -> int:
    """How many runs go into four fifths of a GPU's free memory, if each takes as much as one that is tried."""
    runs, device = len(problem.seeds), problem.y_RM.device
    if device.type == "cpu" or runs == 1:
        return runs
    forget()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    training = start(problem.part(range(1)), method.networks, plan, build, engine, view or same_view)
    training.clock.set_epoch(1)
    for _ in training.batches.deal(1):
        mini_batch(training, method.planned(plan)[0])()
        break
    taken = torch.cuda.max_memory_allocated(device) - before
    del training
    forget()
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(runs, int(0.8 * free) // taken))
