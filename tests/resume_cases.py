"""What the tests of interrupted runs share: an experiment, ways to stop it, and what must come of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from coteach.runs import folder as files
from coteach.runs import run as runner
from coteach.runs.experiment import Experiment
from run_cases import silent

HERE = Path(__file__).parent
SAME_BYTES = (*files.ROWS, "config.toml")
SAME_FOLDERS = ("networks", "opinions")


def assert_same_folder(mine: Path, theirs: Path) -> None:
    assert sorted(p.name for p in mine.iterdir()) == sorted(p.name for p in theirs.iterdir())
    assert all((theirs / name).is_dir() for name in SAME_FOLDERS)
    for path in theirs.rglob("*"):
        if path.name in SAME_BYTES or path.parent.name in SAME_FOLDERS:
            assert (mine / path.relative_to(theirs)).read_bytes() == path.read_bytes(), path.name
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (mine, theirs)]
    assert summaries[0] | {"seconds": 0} == summaries[1] | {"seconds": 0}


def experiment(method: str, **more) -> Experiment:
    usual = {
        "noise": "pair",
        "rate": 0.45,
        "epochs": 3,
        "batch_size": 256,
        "warmup": 1,
        "seeds": (1, 2),
        "group": 1,
    }
    return Experiment(method=method, device="cpu", **usual | more)


def survive(tasks: list[tuple[Experiment, Path, list]]) -> None:
    """Each experiment dies the deaths of its list, goes on each time, and ends; see killed.py."""
    lines = [
        json.dumps({"experiment": files.plain(files.described(e)), "out": str(out), "deaths": deaths})
        for e, out, deaths in tasks
    ]
    done = subprocess.run(
        [sys.executable, HERE / "killed.py"],
        input="\n".join(lines),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


class Stop(Exception):
    pass


def stopped(experiments: list[Experiment], after: int) -> None:
    """Run them until `after` epochs of groups have ended."""
    epochs = []

    def count(epoch):
        epochs.append(epoch.number)
        if len(epochs) == after:
            raise Stop

    with pytest.raises(Stop):
        runner.run_together(experiments, say=silent, on_epoch=count)


def read_header(path: Path) -> dict:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["coteach"])
