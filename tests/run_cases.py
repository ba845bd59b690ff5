"""What the tests of runs share: an experiment of three epochs, and nobody who listens."""

from dataclasses import replace
from pathlib import Path

from coteach.runs.experiment import Experiment


def silent(line: str) -> None:
    """Takes the lines meant for a user."""


def experiment(tmp_path: Path, **changes) -> Experiment:
    usual = Experiment(noise="symmetric", epochs=3, device="cpu", seeds=(1, 2), out=tmp_path / "run")
    return replace(usual, **changes)
