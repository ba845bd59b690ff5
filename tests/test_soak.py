"""Hours of trouble in minutes; `make soak` runs these, `make test` does not."""

import gc
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coteach.engine import Engine
from coteach.methods import METHODS
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from coteach.train import fit
from resume_cases import assert_same_folder, survive
from run_cases import silent
from tiny import BY_RULE, PLAN, mlp, problem

pytestmark = pytest.mark.soak

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", BY_RULE)
def test_killed_twenty_times(tmp_path, name):
    """At steps, while rows are appended, and before a file that is written gets its name."""
    chance = random.Random(name)
    e = Experiment(method=name, epochs=12, seeds=(1, 2), group=1, batch_size=256, warmup=2, device="cpu")
    deaths = [[chance.choice(["step", "step", "before_rename", "rows"]), chance.randint(1, 4)] for _ in range(20)]
    survive([(e, tmp_path / "killed", deaths)])
    assert_same_folder(tmp_path / "killed", run(replace(e, out=tmp_path / "whole"), say=silent).folder)


def test_killed_by_the_clock(tmp_path):
    """The real command, killed from outside after a random time, until it ends."""
    out, chance = tmp_path / "run", random.Random(0)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")}
    first = ["--method", "coteaching_plus", "--epochs", "900", "--seeds", "1", "2", "--out", str(out)]
    kills = 0
    while not (out / "summary.json").exists():
        arguments = ["--resume", str(out)] if (out / "config.toml").exists() else first
        started = subprocess.Popen([sys.executable, "-m", "coteach", "run", *arguments], env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            started.wait(timeout=chance.uniform(3, 9) if kills < 20 else None)
            assert started.returncode == 0
        except subprocess.TimeoutExpired:
            started.send_signal(signal.SIGKILL)
            started.wait()
            kills += 1
    assert kills > 3
    e = Experiment(method="coteaching_plus", epochs=900, seeds=(1, 2), out=tmp_path / "whole")
    assert_same_folder(out, run(e, say=silent).folder)


def test_memory_and_open_files_stay_flat(tmp_path):
    """Thousands of epochs with checkpoints: what the first hundreds took is what is taken at the end."""

    def resident() -> int:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    seen = []

    def look(epoch):
        if epoch.number % 500 == 0:
            seen.append((resident(), open_files()))

    e = Experiment(method="coteaching", epochs=5000, batch_size=1024, device="cpu", out=tmp_path / "run")
    run(e, say=silent, on_epoch=look)
    memory, files = zip(*seen, strict=True)
    assert max(files) == files[0]
    # rows are kept for the summary: half a kilobyte each
    assert memory[-1] - memory[1] < 5000 * 2000 + 16 * 2**20, memory


def test_two_hundred_runs_and_a_thousand_classes():
    many = replace(problem(n=64, runs=200), seeds=list(range(200)), noise_rates=[0.3] * 200)
    training = fit(many, METHODS["coteaching_plus"], replace(PLAN, epochs=2), mlp, engine=Engine(torch.float32))
    assert training.stack.shape == (2, 200)
    p = replace(problem(n=256, runs=1), n_classes=1000)

    def wide() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(p.x_M.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 1000))

    rows: list[dict] = []
    p = replace(p, x_M=p.x_M.float(), x_test=p.x_test.float())
    fit(
        p,
        METHODS["coteaching"],
        replace(PLAN, epochs=2),
        wide,
        ledger=True,
        on_epoch=lambda e: rows.extend(p.rows(e)),
    )
    assert len(rows) == 2
