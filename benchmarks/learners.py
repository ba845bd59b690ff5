"""What `coteach audit --learner auto` chooses on tables, and how the learners find wrong labels in the end.

    python benchmarks/learners.py --out benchmarks/results/learners.json

Tables of scikit-learn, and two that are made: "rules", classes by thresholds of single columns, and "clusters",
classes of three clusters each. Labels are flipped, another draw for each seed, and the rate is not given. The
choice sees given labels alone; the truth judges. Everything is as in an audit, on numbers as they are.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import flags, kept, measured_on
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_classification
from sklearn.metrics import average_precision_score

import coteach
from coteach.audit.choice import choose_learner
from coteach.audit.learners import selective_classifier
from coteach.audit.samples import LabelledSamples

LEARNERS = ("linear", "network", "trees")
NOISES = (("symmetric", 0.2), ("pair", 0.3))
Table = tuple[Any, Any]  # features and classes


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.tables:
        for kind, rate in NOISES:
            for seed in options.seeds:
                x, truth = TABLES[name](seed)
                given = coteach.noise.corrupt(truth, kind, rate, seed=seed).labels
                yield {"table": name, "noise": kind, "rate": rate, "seed": seed} | compared(x, given, truth, seed)


def compared(x: np.ndarray, given: np.ndarray, truth: np.ndarray, seed: int) -> dict:
    wrong = given != truth
    network = coteach.RobustClassifier(device="cpu", random_state=seed)
    samples = LabelledSamples(x, given, list(map(str, range(len(x)))), "table", Path("made"))
    began = time.process_time()
    choice = choose_learner(LEARNERS, network, samples)
    row = {
        "samples": len(x),
        "wrong": float(wrong.mean()),
        "chosen": choice.learner,
        "held_out": choice.held_out,
        **{f"{name}_held_out": share for name, share in choice.accuracies.items()},
        "choice_cpu_seconds": time.process_time() - began,
    }
    for name in LEARNERS:
        learner = network if name == "network" else selective_classifier(name, random_state=seed)
        began = time.process_time()
        learner.fit(x, given)
        row[f"{name}_average_precision"] = float(average_precision_score(wrong, -learner.label_quality_))
        row[f"{name}_cpu_seconds"] = time.process_time() - began
    return row | measured_on()


def rules(seed: int) -> Table:
    x = np.random.default_rng(seed).random((1500, 10))
    odd = (x[:, 0] > 0.5) ^ (x[:, 1] > 0.3)
    return x, odd + 2 * ((x[:, 2] > 0.6) & (x[:, 3] < 0.7))


def clusters(seed: int) -> Table:
    return make_classification(2000, 20, n_informative=10, n_classes=4, n_clusters_per_class=3, random_state=seed)


def diabetes(seed: int) -> Table:
    """The disease's progression in thirds."""
    x, progression = load_diabetes(return_X_y=True)
    return x, np.searchsorted(np.quantile(progression, [1 / 3, 2 / 3]), progression)


TABLES: dict[str, Any] = {
    "breast cancer": lambda seed: load_breast_cancer(return_X_y=True),
    "wine": lambda seed: load_wine(return_X_y=True),
    "diabetes": diabetes,
    "digits": lambda seed: load_digits(return_X_y=True),
    "rules": rules,
    "clusters": clusters,
}


if __name__ == "__main__":
    main()
