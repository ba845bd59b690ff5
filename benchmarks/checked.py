"""Simulated reviews: does the interval of `coteach audit --calibrate` hold the truth, and how narrow is it?

    OMP_NUM_THREADS=1 python benchmarks/checked.py --data-dir data --out checked.json

Quality is that of an audit with linear models in rounds. Each review looks at `--looked` samples, drawn as
`--check` draws them, and decides by the truth. Blind: as many samples drawn from all, with Wilson's interval.
Ratio: mean width by mean width of the blind interval.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from common import flags, kept, measured_on
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_digits

from coteach import SelectiveTrainingClassifier, encode
from coteach.data.pickled import read_pickled_arrays
from coteach.labels import checked
from coteach.labels.checked import Checked, checked_interval, draw_to_check
from coteach.labels.ledger import average_precision
from coteach.noise import corrupt

PHOTOS = 4000
Z = norm.ppf(0.95)

Samples = tuple[np.ndarray, np.ndarray, np.ndarray]  # features, given labels, true labels


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--data-dir", type=Path, help="with cifar-10-batches-bin, cifar-n and weak")
    parser.add_argument("--looked", type=int, default=50)
    parser.add_argument("--reviews", type=int, default=400)
    parser.add_argument("--draws", type=int, default=1000, help="of an interval; the command has 4,000")
    options = parser.parse_args()
    checked.DRAWS = options.draws
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.only:
        x, given, true = CASES[name](options.data_dir)
        yield {"case": name, **reviewed(x, given, true, options), **measured_on("cpu")}


def reviewed(x: np.ndarray, given: np.ndarray, true: np.ndarray, options: argparse.Namespace) -> dict:
    model = SelectiveTrainingClassifier(random_state=0).fit(x, given)
    quality, guess = model.label_quality_, model.noise_rate_
    wrong, rng = given != true, np.random.default_rng(0)
    found = [interval_of_review(quality, wrong, guess, options.looked, seed) for seed in range(options.reviews)]
    seen = rng.hypergeometric(wrong.sum(), (~wrong).sum(), options.looked, options.reviews)
    blind = np.array([wilson(y, options.looked) for y in seen])
    ours, share = np.array(found), float(wrong.mean())
    width, blind_width = float(np.diff(ours).mean()), float(np.diff(blind).mean())
    return {
        "samples": len(given),
        "wrong": share,
        "guess": guess,
        "average_precision": average_precision(quality, wrong),
        "reviews": options.reviews,
        "looked": options.looked,
        "holds": float(((ours[:, 0] <= share) & (share <= ours[:, 1])).mean()),
        "width": width,
        "blind_holds": float(((blind[:, 0] <= share) & (share <= blind[:, 1])).mean()),
        "blind_width": blind_width,
        "ratio": width / blind_width,
    }


def interval_of_review(
    quality: np.ndarray, wrong: np.ndarray, guess: float, looked: int, seed: int
) -> tuple[float, float]:
    drawn = draw_to_check(quality, looked, guess, seed)
    strata = len(drawn.size_H)
    seen = np.bincount(drawn.stratum, minlength=strata)
    found = np.bincount(drawn.stratum, wrong[drawn.index], strata).astype(int)
    return checked_interval(Checked(drawn.size_H, seen, found))


def wilson(y: int, n: int) -> tuple[float, float]:
    middle = (y + Z**2 / 2) / (n + Z**2)
    half = Z * np.sqrt(y * (n - y) / n + Z**2 / 4) / (n + Z**2)
    return float(middle - half), float(middle + half)


def flipped(load: Callable, kind: str, rate: float) -> Callable[[Path], Samples]:
    def case(_: Path) -> Samples:
        x, y = load(return_X_y=True)
        return x, np.asarray(corrupt(y, kind, rate).labels), y

    return case


def photos(labels: str) -> Callable[[Path], Samples]:
    def case(folder: Path) -> Samples:
        given = read_pickled_arrays(folder / "cifar-n" / "CIFAR-10_human.pt")[labels][:PHOTOS]
        x, true = features_of_photos(folder)
        return x, given, true

    return case


@cache
def features_of_photos(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    raw = np.fromfile(folder / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8).reshape(-1, 3073)[:PHOTOS]
    x = encode(raw[:, 1:].reshape(-1, 3, 32, 32), "efficientnet-lite0", device="cpu", cache=folder / "features")
    return x, raw[:, 0].astype(np.int64)


def texts(name: str) -> Callable[[Path], Samples]:
    def case(folder: Path) -> Samples:
        with (folder / "weak" / f"{name}.train.csv").open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        given, true = (np.array([row[column] for row in table]) for column in ("given", "truth"))
        return encode([row["text"] for row in table], "wordllama", cache=folder / "features"), given, true

    return case


CASES = {
    "digits, symmetric 0.2": flipped(load_digits, "symmetric", 0.2),
    "digits, pair 0.3": flipped(load_digits, "pair", 0.3),
    "digits, symmetric 0.05": flipped(load_digits, "symmetric", 0.05),
    "breast cancer, symmetric 0.2": flipped(load_breast_cancer, "symmetric", 0.2),
    "photos, aggre": photos("aggre_label"),
    "photos, rand1": photos("random_label1"),
    "photos, worst": photos("worse_label"),
    "youtube": texts("youtube"),
    "sms": texts("sms"),
    "semeval": texts("semeval"),
    "trec": texts("trec"),
}

if __name__ == "__main__":
    main()
