"""Short trainings of Co-teaching as RobustClassifier plans them: with one loss, or with cross-entropy first.

    python benchmarks/losses.py --dataset mnist cifar10 --seeds 1 2 3 4 5 --device cuda --out losses.json

All noises and seeds of a data set are one stack; the noise rate is given. Accuracy is of the last epoch, the mean
of both networks on the test set, by noise and seed. Average precision is of ranking all labels by their quality.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from common import STREAM, kept, measured_on, trained, training_flags
from sklearn.metrics import average_precision_score

from coteach import data
from coteach.classifier.options import plan_of
from coteach.data import Dataset
from coteach.plan import WARMUP_EPOCHS
from coteach.runs.experiment import Experiment

NOISES = (("pair", 0.45), ("symmetric", 0.5), ("symmetric", 0.2))
ALONE = ("cross_entropy", "gce", "softmax_twice")
USUAL = {"batch_size": None, "lr": 0.001, "optimizer": "adam", "ramp": None, "keep_per_class": False}


def main() -> None:
    parser = training_flags(__doc__, ["mnist", "cifar10"])
    parser.add_argument("--samples", type=int, help="only so many of those to learn from, the first")
    parser.add_argument("--loss", nargs="+", choices=ALONE, default=list(ALONE))
    parser.add_argument("--warmup", nargs="+", type=int, help="only cross-entropy first, for so many epochs")
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.dataset:
        dataset = data.load(name, options.data_dir)
        if options.samples:
            x_train, _ = dataset.tensors("a share of it")
            first = slice(options.samples)
            dataset = replace(dataset, x_train=x_train[first], y_train=dataset.y_train[first])
        for loss in () if options.warmup else options.loss:
            yield measured(dataset, options, loss)
        long = 3 * options.epochs // 4
        for warmup in options.warmup or sorted({options.epochs // 2, long, min(long, WARMUP_EPOCHS)}):
            for loss in [name for name in options.loss if name != "cross_entropy"]:
                yield measured(dataset, options, loss, "cross_entropy" if warmup else None, warmup)


def measured(
    dataset: Dataset, options: argparse.Namespace, loss: str, warmup_loss: str | None = None, warmup: int = 0
) -> dict:
    seeds = tuple(options.seeds)
    usual = Experiment(dataset.name, options.method, noise_stream=STREAM, seeds=seeds)
    cells = [replace(usual, noise=noise, rate=rate) for noise, rate in NOISES]
    said = {"method": options.method, "epochs": options.epochs, "loss": loss, "warmup": warmup}
    plan = plan_of(USUAL | said | {"warmup_loss": warmup_loss}, {}, len(dataset.x_train))
    started = time.perf_counter()
    training, draws, epochs = trained(cells, dataset, plan, options.device, ledger=True)
    assert training.ledger is not None
    wrong_RM = [~draw.clean for draw in draws for _ in seeds]
    precision = [average_precision_score(w, -q) for w, q in zip(wrong_RM, training.ledger.quality(), strict=True)]
    accuracy = [100 * float(np.mean(row["test_accuracy"])) for row in epochs[-1]]
    return {
        "dataset": dataset.name,
        "samples": len(dataset.x_train),
        **said,
        "warmup_loss": warmup_loss,
        "seeds": seeds,
        "accuracy": by_noise(accuracy, len(seeds)),
        "average_precision": by_noise(precision, len(seeds)),
        "seconds": round(time.perf_counter() - started, 1),
        **measured_on(options.device),
    }


def by_noise(of_runs: list[float], n_seeds: int) -> dict[str, list[float]]:
    names = [f"{kind} {rate}" for kind, rate in NOISES]
    return {
        name: [round(value, 4) for value in of_runs[i * n_seeds : (i + 1) * n_seeds]]
        for i, name in enumerate(names)
    }


if __name__ == "__main__":
    main()
