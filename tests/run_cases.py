"""What the tests of runs share: an experiment of three epochs, nobody who listens, and too little memory."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from coteach.runs import run as runner
from coteach.runs.experiment import Experiment


def silent(line: str) -> None:
    """Takes the lines meant for a user."""


def experiment(tmp_path: Path, **changes) -> Experiment:
    usual = Experiment(noise="symmetric", epochs=3, device="cpu", seeds=(1, 2), out=tmp_path / "run")
    return replace(usual, **changes)


def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no two runs fit into memory together."""
    real = runner.fit

    def fit(problem, *arguments, **named):
        if len(problem.seeds) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(problem, *arguments, **named)

    monkeypatch.setattr(runner, "fit", fit)
