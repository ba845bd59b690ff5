"""Where the stacks of a grid are trained: in this process, in several of this machine, or by Ray on many machines.

The unit is a stack, not a run: its networks share every batched call, which on a GPU halves the time of a run, and
a result does not depend, to the last bit, on where it was measured. Stacks are halved only where places would
otherwise stay empty.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from coteach.engine.setup import chosen_device
from coteach.paper.running import Todo, n_runs
from coteach.runs.parallel import Send, Work, in_processes
from coteach.runs.remote import connected, on_ray

LOCAL = "local"  # a Ray of this machine alone


@dataclass(frozen=True)
class Crew:
    """Does `work(item, send)` for all items, and yields each when it is done; has places for so many at a time."""

    do: Callable[[Work, Iterable[Any], Send], Generator[Any]]
    places: int


@contextmanager
def crew(processes: int | str | None, ray: str | None, device: str) -> Iterator[Crew]:
    """Who trains: `processes` are a number or "auto", `ray` is an address or "local"; neither: this process."""
    check(processes, ray, device)
    if ray is not None:
        with connected(None if ray == LOCAL else ray) as there:
            resources = resources_of_a_stack(device, there)
            places = there.get("GPU" if resources["num_gpus"] else "CPU", 1)
            yield Crew(partial(on_ray, resources=resources), int(places))
    elif processes is not None:
        gpus = n_gpus(device)
        workers = int(processes) if processes != "auto" else (gpus or n_cores())
        yield Crew(partial(in_processes, workers=workers, begin=partial(settle, gpus)), workers)
    else:
        yield Crew(here, 1)


def check(processes: int | str | None, ray: str | None, device: str) -> None:
    if processes is not None and ray is not None:
        raise ValueError("--processes and --ray are two ways to do the same: give one of them.")
    if processes is not None and processes != "auto" and not (str(processes).isdecimal() and int(processes) > 0):
        raise ValueError(f"processes are {processes}: give auto, or a number of at least 1.")
    if (processes is not None or ray is not None) and ":" in device:
        raise ValueError(f"device {device} is one GPU, but every process gets its own: give cuda, cpu or auto.")


def here(work: Work, items: Iterable[Any], on_message: Send) -> Generator[Any]:
    for item in items:
        work(item, on_message)
        yield item


def resources_of_a_stack(device: str, there: dict[str, float]) -> dict[str, float]:
    """One thread, and a GPU of its own where there are any."""
    if device == "cuda" and there.get("GPU", 0) < 1:
        raise ValueError("device is cuda, but Ray's cluster has no GPU: give cpu, or auto.")
    return {"num_cpus": 1, "num_gpus": int(device != "cpu" and there.get("GPU", 0) >= 1)}


def n_gpus(device: str) -> int:
    return torch.cuda.device_count() if chosen_device(device) == "cuda" else 0


def n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settle(gpus: int, number: int) -> None:
    """In a new process, before it touches a GPU: one of its own, in turn, and one thread."""
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        known = [name.strip() for name in visible if name.strip()] or [str(i) for i in range(gpus)]
        os.environ["CUDA_VISIBLE_DEVICES"] = known[number % len(known)]
    torch.set_num_threads(1)


def divided(stacks: list[list[Todo]], places: int) -> list[list[Todo]]:
    """As many stacks as there are places, if they have so many runs: the largest are halved, seed by seed."""
    stacks = list(stacks)
    while 0 < len(stacks) < places:
        i = max(range(len(stacks)), key=lambda i: n_runs(stacks[i]))
        if n_runs(stacks[i]) == 1:
            break
        stacks[i : i + 1] = halved(stacks[i])
    return stacks


def halved(stack: list[Todo]) -> list[list[Todo]]:
    runs = [(cell, seed) for cell, seeds in stack for seed in seeds]
    middle = len(runs) // 2
    return [
        [(cell, mine) for cell, seeds in stack if (mine := tuple(s for s in seeds if (cell, s) in half))]
        for half in (runs[:middle], runs[middle:])
    ]
