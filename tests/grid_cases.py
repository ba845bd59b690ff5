"""Grids that die: cells for test_grid.py, and a program that it starts in a process of its own.

On its standard input are lines of JSON, each a list of deaths for processes that measure at the same time, such as
["step", 7], a SIGKILL at the seventh step, or ["summary.json", 2], before the second file of that name is put in
its place; null lives. The epochs that each has ended are appended to `epochs` in the folder of results.
"""

import json
import os
import signal
import sys
from fnmatch import fnmatch
from pathlib import Path

from coteach.paper import presets
from coteach.paper.presets import Cell
from coteach.runs.experiment import Experiment


def cell(noise="pair", rate=0.45, seeds=(1, 2), preset="tiny", **changes) -> Cell:
    usual = {"dataset": "digits", "method": "coteaching", "epochs": 3, "batch_size": 256, "device": "cpu"}
    e = Experiment(noise=noise, rate=rate, **(usual | {"warmup": 1} | changes))
    return Cell(preset, e, seeds, "Tiny", presets.row_label(e), presets.column_label(e))


def two_stacks(**changes) -> list[Cell]:
    """Four cells of two methods."""
    noises = (("pair", 0.45), ("symmetric", 0.2))
    return [cell(*noise, method=method, **changes) for method in ("coteaching", "standard") for noise in noises]


def contents(out: Path, preset: str = "tiny") -> dict[str, str]:
    """The cells' files, byte by byte without the seconds."""
    return {
        path.name: "\n".join(line for line in path.read_text().splitlines() if '"seconds"' not in line)
        for path in sorted((out / preset).iterdir())
    }


def epochs_logged(out: Path) -> list[str]:
    return sorted((out / "epochs").read_text().splitlines())


def measure_and_log(out: Path, epochs: int = 3, **how) -> None:
    from coteach.paper import reproduce
    from coteach.runs import checkpoint

    checkpoint.COST = 1e9  # keep every epoch, however short
    reproduce.WAIT = 0.05

    def log(p: reproduce.MeasuringProgress) -> None:
        if p.rows:
            with (out / "epochs").open("a") as file:
                file.write(f"{p.label} {p.rows[0]['epoch']}\n")

    wanted = two_stacks(epochs=epochs)
    reproduce.measure_cells(wanted, out, commit="c", say=lambda line: None, on_progress=log, **how)


def die_at(where: str, n: int) -> None:
    from coteach.engine.batches import Batches

    calls = [0]

    def count() -> None:
        calls[0] += 1
        if calls[0] == n:
            os.kill(os.getpid(), signal.SIGKILL)

    if where == "step":
        take = Batches.take

        def counted(*arguments, **named):
            count()
            return take(*arguments, **named)

        Batches.take = counted
    else:
        replace = os.replace

        def put(source, target):
            if fnmatch(Path(target).name, where):
                count()
            replace(source, target)

        setattr(os, "replace", put)  # noqa: B010 - its type is another


def child(out: Path, death) -> int:
    """A forked process that measures; the parent has loaded torch but never used it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if death:
                die_at(*death)
            measure_and_log(out)
            status = 0
        finally:
            os._exit(status)
    return pid


if __name__ == "__main__":
    import sklearn.datasets  # noqa: F401 - what the children would all have to load
    import sympy  # noqa: F401
    import torch

    import coteach.paper.reproduce  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        pids = [(child(Path(sys.argv[1]), death), death) for death in json.loads(line)]
        for pid, death in pids:
            _, status = os.waitpid(pid, 0)
            expected = -signal.SIGKILL if death else 0
            assert os.waitstatus_to_exitcode(status) == expected, (death, status)
