"""How many labels are wrong, and which: by the pair, by five folds, and without being told the noise rate.

    python benchmarks/people.py --problem cifar10n-worst cifar10/clean/0 --device cuda --out people.json

A problem is a data set, or data set/noise/rate. Everything is at `RobustClassifier`'s defaults for images. Each
row has one of four parts:

told    a training that is given the true noise rate: test accuracy, and average precision of its quality scores
zero    the same, told that no label is wrong: what readings of the rate cost when nobody knows it
auto    the same, which estimates the rate first: the estimate, its interval, and how long it took
folds   five trainings of one network of the same kind, as long as the pair's: average precision of two scores of
        out-of-fold probabilities that cleanlab uses, self-confidence and normalised margin; and the noise rate by
        the confident joint
short   the same by the short trainings that `auto` begins with

Three readings of the noise rate take nothing but a trained pair. `disagreement` is the share of given labels that
it does not predict, `mixture` the share that two Gaussians over its losses call wrong, `doubted` the share for
which another class was likelier on average over the epochs.
`at_the_end` ranks by what the trained pair thinks of the given labels, instead of by all epochs.

Rows that the file of --out has are not measured again: after an interruption the same command goes on.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import flags, kept, measured_on, rows_of
from sklearn.metrics import average_precision_score

from coteach import RobustClassifier, data
from coteach.data import Dataset
from coteach.engine.setup import set_up
from coteach.labels.estimate import estimate_of_hard_samples
from coteach.labels.folds import epochs_to_estimate, out_of_sample
from coteach.methods import METHODS
from coteach.mixture import clean_probability
from coteach.modern import modern_batch, modern_plan
from coteach.runs import prepare
from coteach.runs.experiment import Experiment

PARTS = ("told", "zero", "auto", "folds", "short")
Labelled = tuple[Dataset, np.ndarray]


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--problem", nargs="+", default=["cifar10n-worst"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--epochs", type=int, help="instead of the default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--samples", type=int, help="learn from so many only")
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    """Those that are there, and then the others."""
    there = rows_of(options.out)
    yield from there
    known = {(row["problem"], row["part"], row["seed"]) for row in there}
    for seed, problem, part in itertools.product(options.seeds, options.problem, options.parts):
        if (problem, part, seed) not in known:
            yield measured(problem, part, seed, options)


@cache
def labelled(problem: str, data_dir: Path | None) -> Labelled:
    """The data set, and the labels that it is learnt with."""
    name, *noise = problem.split("/")
    changes: dict[str, Any] = {"noise": noise[0], "rate": float(noise[1])} if noise else {}
    dataset = data.load(name, data_dir)
    return dataset, prepare.draw_noise(Experiment(name, **changes), dataset).labels


def measured(problem: str, part: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    dataset, given = labelled(problem, options.data_dir)
    x = dataset.tensors("an audit")[0].numpy()[: options.samples]
    truth, given = dataset.y_train.numpy()[: len(x)], given[: len(x)]
    wrong = given != truth
    started = time.perf_counter()
    about = x, given, wrong, dataset, seed, options
    if part in ("folds", "short"):
        found = by_folds(part == "short", *about)
    else:
        rates: dict[str, float | str] = {"told": float(wrong.mean()), "zero": 0.0, "auto": "auto"}
        found = by_pair(rates[part], *about)
    return {
        "problem": problem,
        "part": part,
        "seed": seed,
        "samples": len(x),
        "wrong": float(wrong.mean()),
        **found,
        "seconds": time.perf_counter() - started,
        **measured_on(options.device),
    }


def by_pair(
    rate: float | str,
    x: np.ndarray,
    given: np.ndarray,
    wrong: np.ndarray,
    dataset: Dataset,
    seed: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    started = time.perf_counter()
    pair = RobustClassifier(noise_rate=rate, epochs=options.epochs, device=options.device, random_state=seed)
    pair.fit(x, given)
    fitted = time.perf_counter() - started
    p_MC = pair.predict_proba(x)
    given_M = p_MC[np.arange(len(given)), np.searchsorted(pair.classes_, given)]  # a few samples lack a class
    loss_M = -torch.from_numpy(given_M).clamp(min=1e-12).log()
    estimate = pair.noise_estimate_
    return {
        "accuracy": float(pair.score(dataset.tensors("a test")[1].numpy(), dataset.y_test.numpy())),
        "average_precision": precision(wrong, pair.label_quality_),
        "at_the_end": precision(wrong, given_M),
        "noise_rate": pair.noise_rate_,
        "interval": None if estimate is None else list(estimate.interval),
        "disagreement": float((pair.classes_[p_MC.argmax(1)] != given).mean()),
        "mixture": float((clean_probability(loss_M) < 0.5).double().mean()),
        "doubted": float((pair.label_quality_ < 0.5).mean()),
        "fit_seconds": fitted,
        "width": pair.network_options_.get("width"),
        "epochs": len(pair.history_),
    }


def by_folds(
    short: bool,
    x: np.ndarray,
    given: np.ndarray,
    wrong: np.ndarray,
    dataset: Dataset,
    seed: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    experiment = Experiment(dataset.name, "standard", recipe="modern", epochs=options.epochs, noise="none", tau=0)
    plan = prepare.fit_to_images(experiment.plan(), experiment, dataset)
    plan = replace(plan, **as_many_steps(len(x)))
    if short:
        plan = replace(plan, epochs=epochs_to_estimate(plan, len(x)))
    build = prepare.network_builder(experiment, dataset, options.device)
    setup = set_up(build(), 1, METHODS["standard"], plan, len(x), options.device)
    with setup.active():
        p_MC = out_of_sample(
            torch.from_numpy(x).to(setup.device),
            torch.from_numpy(given).to(setup.device),
            dataset.n_classes,
            build,
            plan,
            seed=seed,
            engine=setup.engine,
        )
    given_M = p_MC[np.arange(len(given)), given]
    others_MC = np.where(np.arange(p_MC.shape[1]) == given[:, None], -np.inf, p_MC)
    return {
        "self_confidence": precision(wrong, given_M),
        "normalised_margin": precision(wrong, given_M - others_MC.max(1)),
        "noise_rate": estimate_of_hard_samples(p_MC, given).rate,
        "epochs": plan.epochs,
    }


def as_many_steps(samples: int) -> dict[str, Any]:
    """The batch and learning rate that `RobustClassifier` takes for so many samples."""
    size = modern_batch(samples)
    return {"batch_size": size, "lr": modern_plan(1, size)["lr"]}


def precision(wrong: np.ndarray, score: np.ndarray) -> float | None:
    """Of ranking the wrong labels first; None where none is wrong."""
    return float(average_precision_score(wrong, -score)) if wrong.any() else None


if __name__ == "__main__":
    main()
