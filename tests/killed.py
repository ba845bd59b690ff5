"""Runs that die: a program for test_resume.py and the soak, which starts it in a process of its own.

On its standard input are lines of JSON: an experiment, its folder, and its deaths, such as ["step", 7]. A child
runs it and kills itself (SIGKILL) at the seventh step; the next resumes, and dies the next death; the last one
ends the run. Children are forked from a parent that has loaded torch but never used it, to save their loading it.
"""

import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from coteach import data
from coteach.runs import checkpoint, folder
from coteach.runs.experiment import Experiment
from coteach.runs.run import run

torch.set_num_threads(1)

WHERE = {
    "step": ("coteach.engine.batches", "Batches", "take"),
    "before_rename": ("os", None, "replace"),
    "rows": ("coteach.runs.folder", None, "append_rows"),
}


def die_at(where: str, n: int) -> None:
    """From now on the n-th call is the last thing that this process does."""
    module_name, owner, name = WHERE[where]
    module = sys.modules[module_name]
    target = getattr(module, owner) if owner else module
    real, calls = getattr(target, name), [0]

    def counted(*arguments, **named):
        calls[0] += 1
        if calls[0] == n:
            if where == "rows":  # in the middle of a line
                with Path(arguments[0]).open("a") as file:
                    file.write('{"seed": 1, "ep')
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(target, name, counted)


def in_child(work) -> int:
    """The exit status of a forked process; minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def survive(experiment: Experiment, deaths: list[tuple[str, int]]) -> None:
    """Run it, dying each of these deaths on the way, and end it."""

    out = experiment.out
    assert out is not None

    def go(death: tuple[str, int] | None) -> int:
        def work() -> None:
            checkpoint.COST = 1.0  # keep every epoch, however short
            if death:
                die_at(*death)
            begun = (out / "config.toml").exists()
            again = Experiment(resume=out) if begun else experiment
            run(again, say=lambda line: None)

        return in_child(work)

    for death in deaths:
        status = go(death)
        assert status == -signal.SIGKILL, f"{experiment.method} was to die at {death}, but ended with {status}"
        torn = list(out.rglob(".*.tmp"))
        assert bool(torn) == (death[0] == "before_rename"), torn
    assert go(None) == 0, experiment.method
    assert not list(out.rglob(".*")), "what was unfinished is still there"
    assert folder.read_rows(out / "metrics.jsonl")


if __name__ == "__main__":
    data.load("digits")  # for what it imports
    for line in sys.stdin:
        task = json.loads(line)
        fields = {k: tuple(v) if isinstance(v, list) else v for k, v in task["experiment"].items()}
        survive(replace(Experiment(**fields), out=Path(task["out"])), [tuple(d) for d in task["deaths"]])
