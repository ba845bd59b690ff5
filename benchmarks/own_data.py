"""`coteach audit` as it comes, on files as people have them: labels of CIFAR-10N, or a fifth flipped by us.

    pip install '.[images,text]'
    OMP_NUM_THREADS=1 python benchmarks/own_data.py --data-dir data --news-home data --out own-data.json

Precision: which share of the suspects is really wrong; recall: which share of the wrong ones is among the
suspects; first_100: the precision of the hundred worst; left: the share of wrong labels in cleaned.csv;
relabelled: that of all labels if every suggestion were put in unseen. Seconds: reading, comparing learners,
forecast and training; expected: what the forecast said of them.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import flags, kept, measured_on
from PIL import Image
from sklearn.datasets import fetch_20newsgroups, load_breast_cancer, load_digits, load_wine

from coteach import data, noise
from coteach.labels.ledger import average_precision

RATE = 0.2
PHOTOS = 4_000
MISSING = 0.05


@dataclass(frozen=True)
class Case:
    """The flags that name its files, and of each id the label that is right and the one that is given."""

    asked: list[str]
    right: dict[str, str]
    given: dict[str, str]


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path, help="with CIFAR-10 and CIFAR-10N")
    parser.add_argument("--news-home", type=Path, help="scikit-learn's folder with 20 Newsgroups")
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            case = CASES[name](Path(folder), options)
            yield {"case": name, **measured(case, Path(folder) / "audit", options), **measured_on(options.device)}


def measured(case: Case, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    settings = ["--device", options.device, "--out", str(out)]
    subprocess.run(
        [sys.executable, "-m", "coteach", "audit", *case.asked, *settings], check=True, capture_output=True
    )
    summary = json.loads((out / "summary.json").read_text())
    suspects, cleaned, quality = (read(out / f"{name}.csv") for name in ("suspects", "cleaned", "quality"))
    wrong = {i for i in case.right if case.right[i] != case.given[i]}
    doubted = [row["id"] in wrong for row in suspects]
    left = {row["id"] for row in cleaned} & wrong
    still = len(left) + sum(row["suggested"] != case.right[row["id"]] for row in suspects)
    return {
        "learner": summary["learner"],
        "samples": summary["samples"],
        "wrong": len(wrong) / len(case.right),
        "estimated": summary["noise_rate"] if summary["noise_rate_estimated"] else None,
        "interval": summary["noise_interval"],
        "average_precision": average_precision(
            np.array([float(row["quality"]) for row in quality]), np.array([row["id"] in wrong for row in quality])
        ),
        "suspects": len(suspects),
        "precision": float(np.mean(doubted)),
        "recall": sum(doubted) / len(wrong),
        "first_100": float(np.mean(doubted[:100])) if len(doubted) >= 100 else None,
        "left": len(left) / len(cleaned),
        "relabelled": still / len(case.right),
        "seconds": sum(summary["seconds"][part] for part in ("reading", "comparing", "forecast", "training")),
        "expected": summary["seconds"]["expected"],
    }


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def flipped(y: np.ndarray) -> np.ndarray:
    return noise.corrupt(y, "symmetric", RATE, n_classes=int(y.max()) + 1).labels


def by_id(labels: np.ndarray) -> dict[str, str]:
    return {str(i): str(label) for i, label in enumerate(labels)}


# ---- the cases ------------------------------------------------------------------------------------------------


def digits(folder: Path, options: argparse.Namespace) -> Case:
    found: Any = load_digits()
    given = flipped(found.target)
    np.savez(folder / "digits.npz", x=found.data, y=given)
    return Case(["--npz", str(folder / "digits.npz")], by_id(found.target), by_id(given))


def table(folder: Path, found: Any) -> Case:
    """Numbers of which some are missing, and two categories that say nothing."""
    x, y = found.data, found.target
    given, random = flipped(y), np.random.default_rng(0)
    cells = np.where(random.random(x.shape) < MISSING, "", x.astype(str))
    made_up = random.choice(["north", "south", "east"], (len(x), 2))
    names = [f"n{i}" for i in range(x.shape[1])]
    write(folder, ["id", *names, "a", "b", "label"], zip(range(len(x)), *cells.T, *made_up.T, given, strict=True))
    return Case(["--table", str(folder / "table.csv"), "--label", "label", "--id", "id"], by_id(y), by_id(given))


def news(folder: Path, options: argparse.Namespace) -> Case:
    found: Any = fetch_20newsgroups(subset="train", remove=("headers",), data_home=options.news_home)
    texts = [(text, y) for text, y in zip(found.data, found.target, strict=True) if text.strip()]
    right = np.array([y for _, y in texts])
    given = flipped(right)
    write(folder, ["id", "text", "label"], ((i, text, given[i]) for i, (text, _) in enumerate(texts)))
    asked = ["--table", str(folder / "table.csv"), "--label", "label", "--text", "text", "--id", "id"]
    return Case(asked, by_id(right), by_id(given))


def photos(folder: Path, options: argparse.Namespace, labels: str) -> Case:
    """The first ones of CIFAR-10N, as PNG files."""
    dataset = data.load(f"cifar10n-{labels}", options.data_dir)
    assert dataset.given is not None
    images, right = dataset.tensors("an audit")[0][:PHOTOS].numpy(), dataset.y_train[:PHOTOS].numpy()
    given = np.asarray(dataset.given)[:PHOTOS]
    for i, (image, label) in enumerate(zip(images, given, strict=True)):
        path = folder / "images" / str(label) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    ids = [f"{label}/{i}.png" for i, label in enumerate(given)]
    return Case(
        ["--images", str(folder / "images")],
        dict(zip(ids, map(str, right), strict=True)),
        dict(zip(ids, map(str, given), strict=True)),
    )


def write(folder: Path, header: list[str], lines: Any) -> None:
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])


CASES = {
    "digits": digits,
    "breast cancer": lambda folder, options: table(folder, load_breast_cancer()),
    "wine": lambda folder, options: table(folder, load_wine()),
    "20 Newsgroups": news,
    **{f"photos, {labels}": partial(photos, labels=labels) for labels in ("aggre", "rand1", "worst")},
}


if __name__ == "__main__":
    main()
