"""The noise rate from the data alone: how far off, and what that costs in accuracy.

    python benchmarks/noise_rate.py --dataset digits --seeds 1 2 3 --out benchmarks/results/noise-rate-digits.json

Each cell draws its noise, lets RobustClassifier estimate the rate and learn with it, and learns again told the
share of labels that were really changed. All is at RobustClassifier's defaults but the number of epochs. The
accuracy is the ensemble's on the test set.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

import coteach
from coteach import RobustClassifier, data, noise
from coteach.data import Dataset
from coteach.runs.record import hardware

CELLS = (("clean", 0.0), ("symmetric", 0.1), ("symmetric", 0.2), ("symmetric", 0.37), ("symmetric", 0.5),
         ("matrix", None), ("pair", 0.3), ("pair", 0.45))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", nargs="+", default=["digits"])
    parser.add_argument("--method", default="coteaching")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.dataset:
        dataset = data.load(name, options.data_dir)
        for kind, rate in CELLS:
            for seed in options.seeds:
                rows.append(measured(dataset, kind, rate, seed, options))
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
                if options.out:
                    options.out.write_text(json.dumps(rows, indent=1) + "\n")


def measured(dataset: Dataset, kind: str, rate: float | None, seed: int, options: argparse.Namespace) -> dict:
    x, x_test = (part.numpy() for part in dataset.tensors("an estimate"))
    y, y_test = dataset.y_train.numpy(), dataset.y_test.numpy()
    given = labels(y, kind, rate, dataset.n_classes, seed)
    share = float((given != y).mean())

    def fitted(told: float | str) -> tuple[RobustClassifier, float]:
        classifier = RobustClassifier(
            options.method, epochs=options.epochs, noise_rate=told, device=options.device, random_state=seed
        )
        started = time.perf_counter()
        return classifier.fit(x, given), time.perf_counter() - started

    untold, seconds = fitted("auto")
    told, told_seconds = fitted(share)
    estimate = untold.noise_estimate_
    return {
        "dataset": dataset.name,
        "noise": kind,
        "rate": rate,
        "seed": seed,
        "method": options.method,
        "epochs": options.epochs,
        "samples": len(y),
        "changed": share,
        "estimate": estimate.rate,
        "error": estimate.rate - share,
        "interval": list(estimate.interval),
        "accuracy": float(untold.score(x_test, y_test)),
        "accuracy_told": float(told.score(x_test, y_test)),
        "seconds": seconds,
        "seconds_told": told_seconds,
        "hardware": hardware(options.device),
        "torch": torch.__version__,
        "coteach": coteach.__version__,
        "python": platform.python_version(),
    }


def labels(y: np.ndarray, kind: str, rate: float | None, n_classes: int, seed: int) -> np.ndarray:
    matrix = class_dependent(n_classes, seed) if kind == "matrix" else None
    return noise.corrupt(y, kind, rate, n_classes, seed, matrix=matrix).labels


def class_dependent(n_classes: int, seed: int) -> np.ndarray:
    """A matrix with a rate from 0.05 to 0.4 for each class, spread over the others at random."""
    random = np.random.default_rng(seed)
    matrix_CC = np.zeros((n_classes, n_classes))
    for c, rate in enumerate(random.uniform(0.05, 0.4, n_classes)):
        matrix_CC[c, np.arange(n_classes) != c] = rate * random.dirichlet(np.ones(n_classes - 1))
        matrix_CC[c, c] = 1 - rate
    return matrix_CC


if __name__ == "__main__":
    main()
