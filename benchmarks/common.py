"""What the benchmarks share: their flags, the rows they print and write, and what those were measured on."""

import argparse
import json
import platform
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

import coteach
from coteach.runs.record import hardware


def flags(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    return parser


def training_flags(about: str | None, datasets: list[str]) -> argparse.ArgumentParser:
    """Of a benchmark that trains one method on several data sets."""
    parser = flags(about)
    parser.add_argument("--dataset", nargs="+", default=datasets)
    parser.add_argument("--method", default="coteaching")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path)
    return parser


def kept(rows: Iterable[dict], out: Path | None) -> None:
    """Each row printed and written as soon as it is there."""
    found = []
    for row in rows:
        found.append(row)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        write(found, out)


def write(found: list | dict, out: Path | None) -> None:
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")


def measured_on(device: str = "cpu") -> dict[str, str]:
    return {
        "hardware": hardware(device),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "coteach": coteach.__version__,
    }
