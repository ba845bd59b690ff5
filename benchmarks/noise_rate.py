"""The noise rate from the data alone: how far off, and what that costs in accuracy.

    python benchmarks/noise_rate.py --dataset digits --seeds 1 2 3 --out benchmarks/results/noise-rate-digits.json

Each cell draws its noise, lets RobustClassifier estimate the rate and learn with it, and learns again told the
share of labels that were really changed. All is at RobustClassifier's defaults but the number of epochs. The
accuracy is the ensemble's on the test set.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
from common import STREAM, kept, measured_on, training_flags

from coteach import RobustClassifier, data, noise
from coteach.data import Dataset

CELLS = (("clean", 0.0), ("symmetric", 0.1), ("symmetric", 0.2), ("symmetric", 0.37), ("symmetric", 0.5),
         ("matrix", None), ("pair", 0.3), ("pair", 0.45))  # fmt: skip


def main() -> None:
    options = training_flags(__doc__, ["digits"]).parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.dataset:
        dataset = data.load(name, options.data_dir)
        for kind, rate in CELLS:
            for seed in options.seeds:
                yield measured(dataset, kind, rate, seed, options)


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
        **measured_on(options.device),
    }


def labels(y: np.ndarray, kind: str, rate: float | None, n_classes: int, seed: int) -> np.ndarray:
    matrix = class_dependent(n_classes, seed) if kind == "matrix" else None
    return noise.corrupt(y, kind, rate, n_classes, seed, matrix=matrix, stream=STREAM).labels


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
