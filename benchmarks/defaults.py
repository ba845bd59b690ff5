"""Which method, loss and warm-up RobustClassifier should have by default, on noisy held-out labels of tables.

    python benchmarks/defaults.py --npz photos.npz texts.npz --epochs 20 100 --seeds 1 2 --out defaults.json

The tables are scikit-learn's digits and breast cancer with labels flipped here, and files of features: x, the
given labels y, and if they are known the right ones, truth. A fifth of the samples is held out, another for each
seed. `held_out` decides: the accuracy on their given labels, which are as noisy as the others. `truth` is the
accuracy on their right labels, `average_precision` is of finding wrong labels among those learnt from. Both are
reported, and nothing is chosen by them. The share of wrong labels is given.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import flags, kept, measured_on
from sklearn.datasets import load_breast_cancer, load_digits

from coteach import RobustClassifier
from coteach.labels.ledger import average_precision
from coteach.noise import corrupt

HELD_OUT = 0.2
SETTINGS = {
    "standard": {"method": "standard"},
    "mentornet": {"method": "mentornet"},
    "coteaching, cross_entropy": {"loss": "cross_entropy"},
    "coteaching, softmax_twice": {"loss": "softmax_twice"},
    "coteaching, softmax_twice after cross_entropy": {"loss": "softmax_twice", "warmup_loss": "cross_entropy"},
    "coteaching, gce after cross_entropy": {"loss": "gce", "warmup_loss": "cross_entropy"},
    "jocor": {"method": "jocor"},
    "coteaching_plus": {"method": "coteaching_plus"},
}


@dataclass(frozen=True)
class Labelled:
    """Features x, given labels y, and the right ones where somebody knows them."""

    name: str
    x: np.ndarray
    y: np.ndarray
    truth: np.ndarray | None
    rate: float


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--npz", nargs="*", type=Path, default=[])
    parser.add_argument("--epochs", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    tables = [*flipped_tables(), *map(read_features, options.npz)]
    for epochs in options.epochs:
        for table in tables:
            for name, setting in SETTINGS.items():
                yield {"problem": table.name, "setting": name} | measured(table, setting, epochs, options.seeds)


def flipped_tables() -> Iterator[Labelled]:
    for name, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        x, y = map(np.asarray, load(return_X_y=True))
        for kind, rate in (("symmetric", 0.2), ("symmetric", 0.4), ("pair", 0.4))[: 3 if name == "digits" else 1]:
            labels = corrupt(y, kind, rate).labels
            yield Labelled(f"{name}, {kind} {rate}", x, labels, y, float((labels != y).mean()))


def read_features(path: Path) -> Labelled:
    arrays = np.load(path, allow_pickle=False)
    truth = arrays.get("truth")
    rate = 0.2 if truth is None else float((arrays["y"] != truth).mean())
    return Labelled(path.stem, arrays["x"], arrays["y"], truth, rate)


def measured(table: Labelled, setting: dict, epochs: int, seeds: list[int]) -> dict:
    began = time.process_time()
    held_out, right, found = [], [], []
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(table.y))
        n_held = round(HELD_OUT * len(order))
        held, learnt = order[:n_held], order[n_held:]
        model = RobustClassifier(noise_rate=table.rate, epochs=epochs, random_state=seed, device="cpu", **setting)
        predicted = model.fit(table.x[learnt], table.y[learnt]).predict(table.x[held])
        held_out.append(float((predicted == table.y[held]).mean()))
        if table.truth is not None:
            right.append(float((predicted == table.truth[held]).mean()))
            wrong = table.y[learnt] != table.truth[learnt]
            found.append(average_precision(model.label_quality_, wrong))
    return {
        "epochs": epochs,
        "held_out": held_out,
        "truth": right,
        "average_precision": found,
        "samples": len(table.y),
        "rate": table.rate,
        "cpu_seconds": round(time.process_time() - began, 1),
        **measured_on(),
    }


if __name__ == "__main__":
    main()
