"""What the benchmarks share: flags, a training, the rows they print and write, and what those were measured on."""

import argparse
import json
import platform
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

import coteach
from coteach.data import Dataset
from coteach.engine.setup import hardware, set_up
from coteach.engine.training import Epoch, Training
from coteach.files import write_atomically
from coteach.measure import measure
from coteach.methods import METHODS
from coteach.names import Streams
from coteach.noise import Noise
from coteach.plan import Plan
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.train import fit

STREAM: Streams = "1.17"  # pair noise of benchmarks/results/, but the earliest on a GPU


def flags(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    return parser


def training_flags(about: str | None, datasets: list[str]) -> argparse.ArgumentParser:
    """The flags of a benchmark that trains one method on several data sets."""
    parser = flags(about)
    parser.add_argument("--dataset", nargs="+", default=datasets)
    parser.add_argument("--method", default="coteaching")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path)
    return parser


def trained(
    cells: list[Experiment], dataset: Dataset, plan: Plan, device: str, *, ledger: bool = False
) -> tuple[Training, list[Noise], list[list[dict]]]:
    """All seeds of these experiments as one stack: the training, each experiment's noise, each epoch's rows."""
    method = METHODS[cells[0].method]
    draws = [prepare.draw_noise(cell, dataset) for cell in cells]
    build = prepare.network_builder(cells[0], dataset, device)
    problem, reference = prepare.make_problem(cells, dataset, draws, device)
    setup = set_up(build(), len(problem.seeds), method, plan, len(dataset.x_train), device)
    epochs: list[list[dict]] = []

    def after(epoch: Epoch) -> None:
        epochs.append(measure(epoch, reference))

    with setup.active():
        training = fit(problem, method, plan, build, engine=setup.engine, ledger=ledger, on_epoch=after)
    return training, draws, epochs


def kept(rows: Iterable[dict], out: Path | None) -> None:
    """Each row printed and written as soon as it is there."""
    found = []
    for row in rows:
        found.append(row)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        write(found, out)


def rows_of(out: Path | None) -> list[dict]:
    """What an earlier call has measured."""
    return json.loads(out.read_text("utf-8")) if out and out.exists() else []


def write(found: list | dict, out: Path | None) -> None:
    if out:
        write_atomically(out, json.dumps(found, indent=1) + "\n")


def measured_on(device: str = "cpu") -> dict[str, str]:
    return {
        "hardware": hardware(device),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "coteach": coteach.__version__,
    }
