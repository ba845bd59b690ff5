"""Which method, loss and warm-up RobustClassifier should have by default, by noisy held-out labels.

    python benchmarks/defaults.py --data-dir data --features cache --out results/defaults.json
    python benchmarks/defaults.py --data-dir data --pixels modern paper --out results/defaults-pixels.json

The first compares on tables and on features: scikit-learn's digits and breast cancer with labels flipped here, and
photos and texts with the labels that people and voting rules gave, as in `real.py`. A fifth of the samples is held
out, another for each seed. The second compares on pixels, by either recipe: the first --samples images of CIFAR-10
are learnt, the 10,000 after them held out.

`held_out` decides: the accuracy on their given labels, which are as noisy as the others. `truth` is the accuracy
on their right labels, `average_precision` is of finding wrong labels among those learnt from. Both are reported,
and nothing is chosen by them. The share of wrong labels is given.

Rows that the file of --out has are not measured again: after an interruption the same command goes on.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import flags, kept, measured_on, rows_of
from people import labelled
from real import PEOPLE, TEXTS, case_of
from sklearn.datasets import load_breast_cancer, load_digits

from coteach import RobustClassifier
from coteach.labels.ledger import average_precision
from coteach.noise import corrupt

HELD_OUT = 0.2
HELD_OUT_IMAGES = 10_000
PIXELS = ("cifar10n-worst", "cifar10n-rand1", "cifar10/symmetric/0.5", "cifar10/pair/0.45")
CROSS_ENTROPY, TWO_LOSSES = {"loss": "cross_entropy"}, {"warmup_loss": "cross_entropy"}
SETTINGS: dict[str, dict[str, Any]] = {
    "coteaching, cross_entropy": CROSS_ENTROPY,
    "coteaching, softmax_twice after cross_entropy": {"loss": "softmax_twice", **TWO_LOSSES},
    "coteaching, gce after cross_entropy": {"loss": "gce", **TWO_LOSSES},
    "coteaching, softmax_twice": {"loss": "softmax_twice"},
    "mentornet": {"method": "mentornet"},
    "jocor": {"method": "jocor"},
    "standard": {"method": "standard"},
    "coteaching_plus": {"method": "coteaching_plus"},
    "coteaching, memory": CROSS_ENTROPY | {"memory_weight": 3},
    "coteaching, memory, balance": CROSS_ENTROPY | {"memory_weight": 3, "class_balance": 1},
    "coteaching, mixture": CROSS_ENTROPY | {"mixture": True},
    "coteaching, guesses": CROSS_ENTROPY | {"guess_weight": 0.5, "guess_ramp": 5},
    "standard, memory": {"method": "standard", "memory_weight": 3},
    "dividemix": {"method": "dividemix"},
}


@dataclass(frozen=True)
class Problem:
    """Samples x, their given labels, and the right ones for the judge alone."""

    name: str
    x: np.ndarray
    given: np.ndarray
    truth: np.ndarray
    learnt: int | None = None  # so many of the first are learnt, and the others held out; None: a share, at random

    def parts(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The samples to learn from, and those held out."""
        if self.learnt is not None:
            order = np.arange(len(self.x))
            return order[: self.learnt], order[self.learnt :]
        order = np.random.default_rng(seed).permutation(len(self.x))
        n_held = round(HELD_OUT * len(order))
        return order[n_held:], order[:n_held]


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--features", type=Path, help="folder in which features are kept")
    parser.add_argument("--photos", nargs=2, type=int, default=[4000, 1], help="so many, as features")
    parser.add_argument(
        "--pixels", nargs="*", choices=["modern", "paper"], help="images instead, by these recipes"
    )
    parser.add_argument("--problem", nargs="+", default=list(PIXELS), help="of pixels")
    parser.add_argument("--samples", type=int, default=5000, help="images to learn from")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epochs", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    """Those that are there, and then the others."""
    there = rows_of(options.out)
    yield from there
    known = {(row["problem"], row["recipe"], row["setting"], row["epochs"], row["seed"]) for row in there}
    for seed in options.seeds:
        for epochs in options.epochs:
            for problem, recipe in problems(options):
                for setting in options.settings:
                    cell = problem.name, recipe, setting, epochs, seed
                    if cell not in known:
                        names = zip(("problem", "recipe", "setting", "epochs", "seed"), cell, strict=True)
                        yield dict(names) | measured(problem, recipe, setting, epochs, seed, options.device)


def problems(options: argparse.Namespace) -> Iterator[tuple[Problem, str | None]]:
    """Each with the recipe by which it is learnt, None where there is no choice."""
    for recipe in options.pixels or ():
        for name in options.problem:
            yield of_pixels(name, options), recipe
    if options.pixels is not None:
        return
    for name, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        x, y = map(np.asarray, load(return_X_y=True))
        for kind, rate in (("symmetric", 0.2), ("symmetric", 0.4), ("pair", 0.4))[: 3 if name == "digits" else 1]:
            yield Problem(f"{name}, {kind} {rate}", x, corrupt(y, kind, rate).labels, y), None
    for name in (*PEOPLE, *TEXTS):
        case = case_of(name, 0, options)
        yield Problem(f"photos, {name}" if name in PEOPLE else name, case.x, case.given, case.truth), None


def of_pixels(name: str, options: argparse.Namespace) -> Problem:
    dataset, given = labelled(name, options.data_dir)
    n = options.samples + HELD_OUT_IMAGES
    x, _ = dataset.tensors("an audit")
    return Problem(name, x[:n].numpy(), given[:n], dataset.y_train[:n].numpy(), options.samples)


def measured(
    problem: Problem, recipe: str | None, setting: str, epochs: int, seed: int, device: str
) -> dict[str, Any]:
    learnt, held = problem.parts(seed)
    wrong = problem.given != problem.truth
    changes = SETTINGS[setting] | ({"recipe": recipe} if recipe else {})
    rate = float(wrong[learnt].mean())
    began = time.process_time()
    model = RobustClassifier(noise_rate=rate, epochs=epochs, random_state=seed, device=device, **changes)
    predicted = model.fit(problem.x[learnt], problem.given[learnt]).predict(problem.x[held])
    return {
        "held_out": float((predicted == problem.given[held]).mean()),
        "truth": float((predicted == problem.truth[held]).mean()),
        "average_precision": average_precision(model.label_quality_, wrong[learnt]),
        "samples": len(learnt),
        "held_out_samples": len(held),
        "wrong": rate,
        "cpu_seconds": round(time.process_time() - began, 1),
        **measured_on(device),
    }


if __name__ == "__main__":
    main()
