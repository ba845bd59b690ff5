"""Labels that people and voting rules got wrong: ours beside cleanlab, with the same features.

    pip install cleanlab==2.9.0 'coteach[images,text]'
    python benchmarks/real.py --data-dir data --features cache --out benchmarks/results/real.json

CIFAR-10N needs data/cifar-10-batches-bin and data/cifar-n, the texts data/weak/NAME.train.csv and NAME.test.csv
with the columns text, given and truth. Photos are the first 4,000 of CIFAR-10; --photos 50000 10000 takes all of
them. Digits and breast cancer come with scikit-learn, and become messy: a tenth of the cells is missing, and every
fourth column holds words.

cleanlab gets what its users take: logistic regression on the features, boosted trees for tables, five folds.
It gets features as they are and at unit length; the better of both counts, judged by the truth.
Ours is a SelectiveTrainingClassifier that is given no rate, with our own regressions, or the same trees. A seed
deals the folds, and draws the noise of the tables. Seconds are CPU seconds without imports.

--intervals asks something else: does the interval of the noise rate hold the truth, with given labels, with the
true ones, and with noise drawn over the true ones?

--parts asks what each part adds: rounds, folds, a second copy, the exchange, neighbours, corrected labels. All are
given the rate.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import flags, kept, measured_on
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import coteach
from coteach import data

TEXTS = ("trec", "semeval", "youtube", "sms")
PEOPLE = ("aggre", "rand1", "worst")
TABLES = ("digits symmetric 0.2", "digits pair 0.3", "breast symmetric 0.2")
LOADERS: dict[str, Any] = {"digits": load_digits, "breast": load_breast_cancer}
SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


@dataclass(frozen=True)
class Case:
    """Features and labels; the truth is for the judge alone."""

    name: str
    x: Any
    given: np.ndarray
    truth: np.ndarray
    x_test: Any
    truth_test: np.ndarray
    trees: bool = False

    @property
    def learners(self) -> dict[str, Any]:
        """What cleanlab's users might take, by what it makes of the features; the first is our trees."""
        if self.trees:
            return {"table": HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)}
        regression = LogisticRegression(max_iter=1000)
        return {"as they are": regression, "unit length": make_pipeline(Normalizer(), regression)}


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--features", type=Path, help="folder in which features are kept")
    parser.add_argument("--sets", nargs="+", default=[*PEOPLE, *TEXTS, *TABLES])
    parser.add_argument("--photos", nargs=2, type=int, default=[4000, 2000], help="the first of both parts")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--intervals", action="store_true", help="only noise rates, of many more audits")
    parser.add_argument("--parts", action="store_true", help="only what each part of the method adds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    what = audits if options.intervals else parts if options.parts else rows
    kept(what(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.sets:
        for seed in options.seeds:
            yield compared(case_of(name, seed, options), seed)


def case_of(name: str, seed: int, options: argparse.Namespace) -> Case:
    if name in PEOPLE:
        return photos(name, options)
    return texts(name, options) if name in TEXTS else messy_table(name, seed)


def photos(name: str, options: argparse.Namespace) -> Case:
    dataset = data.load(f"cifar10n-{name}", options.data_dir)
    assert dataset.given is not None
    pixels, test_pixels = dataset.tensors("an audit")
    n, n_test = options.photos
    x, x_test = (
        coteach.encode(images.numpy(), "efficientnet-lite0", cache=options.features)
        for images in (pixels[:n], test_pixels[:n_test])
    )
    truth, given = (np.asarray(labels)[:n] for labels in (dataset.y_train, dataset.given))
    return Case(name, x, given, truth, x_test, dataset.y_test[:n_test].numpy())


def texts(name: str, options: argparse.Namespace) -> Case:
    def read(part: str) -> tuple[np.ndarray, list[str], list[str]]:
        with (options.data_dir / "weak" / f"{name}.{part}.csv").open(encoding="utf-8", newline="") as file:
            table = list(csv.DictReader(file))
        x = coteach.encode([row["text"] for row in table], "wordllama", cache=options.features)
        return x, [row["given"] for row in table], [row["truth"] for row in table]

    x, given, truth = read("train")
    x_test, _, truth_test = read("test")
    classes = np.unique(truth)
    given_M, truth_M, test_M = (np.searchsorted(classes, y) for y in (given, truth, truth_test))
    return Case(name, x, given_M, truth_M, x_test, test_M)


def messy_table(name: str, seed: int) -> Case:
    import pandas

    of, kind, rate = name.split()
    x, y = LOADERS[of](return_X_y=True)
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for number, column in enumerate(x.T):
        if number % 4 == 3:
            thirds = np.searchsorted(np.quantile(column, [1 / 3, 2 / 3]), column)
            cells = np.array(["low", "middle", "high"], dtype=object)[thirds]
            cells[rng.random(len(cells)) < 0.1] = None
            columns[f"c{number}"] = pandas.Categorical(cells)
        else:
            columns[f"c{number}"] = np.where(rng.random(len(column)) < 0.1, np.nan, column)
    table = pandas.DataFrame(columns)
    x, x_test, truth, truth_test = train_test_split(table, y, test_size=0.3, random_state=seed, stratify=y)
    given = coteach.noise.corrupt(truth, kind, float(rate), seed=seed).labels
    return Case(name, x.reset_index(drop=True), given, truth, x_test, truth_test, trees=True)


def compared(case: Case, seed: int) -> dict:
    wrong = case.given != case.truth
    ours, seconds = ours_of(case, seed)
    tried = [cleanlab_of(case, name, seed) for name in case.learners]
    theirs = max(tried, key=lambda one: max(average_precision_score(wrong, -one[name]) for name in SCORES))
    flagged = theirs["issues"]
    worst = np.argsort(ours.label_quality_, kind="stable")[: len(flagged)]
    low, high = map(float, ours.noise_estimate_.interval)
    return {
        "set": case.name,
        "seed": seed,
        "samples": len(wrong),
        "wrong": float(wrong.mean()),
        "average_precision": average_precision_score(wrong, -ours.label_quality_),
        **{f"cleanlab_{name}": average_precision_score(wrong, -theirs[name]) for name in SCORES},
        "rate": ours.noise_estimate_.rate,
        "low": low,
        "high": high,
        "held": bool(low <= wrong.mean() <= high),
        "cleanlab_features": theirs["features"],
        "cleanlab_rate": theirs["rate"],
        "rounds": len(ours.history_) - 1,
        "accuracy": ours.score(case.x_test, case.truth_test),
        "clean_learning_accuracy": theirs["accuracy"],
        "test_samples": len(case.truth_test),
        "flagged": len(flagged),
        "wrong_left": int(wrong.sum() - wrong[worst].sum()),
        "cleanlab_wrong_left": int(wrong.sum() - wrong[flagged].sum()),
        "wrong_relabelled": relabelled(case, worst, ours.suggested_labels_),
        "cleanlab_wrong_relabelled": relabelled(case, flagged, theirs["predicted"]),
        "cpu_seconds": seconds,
        "cleanlab_cpu_seconds": theirs["seconds"],
        **measured_on("cpu"),
    }


DRAWN = [(kind, rate) for kind in ("symmetric", "pair", "instance") for rate in (0.1, 0.2, 0.4)]


def audits(options: argparse.Namespace) -> Iterator[dict]:
    """Audits of the given labels, of the true ones, and of others with drawn noise; each of them once a seed."""
    for name in options.sets:
        for seed in options.seeds:
            case = plain_table(name) if name in ("digits", "breast") else case_of(name, seed, options)
            if name in (*PEOPLE, *TEXTS):
                yield audited(case, case.given, "given", seed)
            if name not in PEOPLE[1:]:  # the same photos
                yield audited(case, case.truth, "clean", seed)
                for kind, rate in DRAWN if name not in TEXTS else DRAWN[1:2]:
                    if kind == "pair" and len(np.unique(case.truth)) == 2:
                        continue  # as symmetric
                    noise = coteach.noise.corrupt(case.truth, kind, rate, seed=seed, features=case.x)
                    yield audited(case, noise.labels, f"{kind} {rate}", seed)


def plain_table(name: str) -> Case:
    x, y = LOADERS[name](return_X_y=True)
    return Case(name, x, y, y, x, y)


def audited(case: Case, given: np.ndarray, labels: str, seed: int) -> dict:
    model = coteach.SelectiveTrainingClassifier(rounds=0, random_state=seed).fit(case.x, given)
    assert model.noise_estimate_ is not None
    low, high = map(float, model.noise_estimate_.interval)
    wrong = float((given != case.truth).mean())
    return {
        "set": case.name,
        "labels": labels,
        "seed": seed,
        "samples": len(given),
        "wrong": wrong,
        "rate": model.noise_estimate_.rate,
        "low": low,
        "high": high,
        "held": low <= wrong <= high,
        **measured_on("cpu"),
    }


GIVEN_ALONE = {"neighbours": 0, "relabel": False}  # without neighbours, and learnt as given in the end
PARTS: dict[str, dict[str, Any]] = {
    "all at once, no rounds": {"rounds": 0, **GIVEN_ALONE},
    "own losses": GIVEN_ALONE,
    "own losses, no folds": {"folds": 0, **GIVEN_ALONE},
    "the peer's losses": {"rule": "coteaching", **GIVEN_ALONE},
    "the peer's losses, no folds": {"rule": "coteaching", "folds": 0, **GIVEN_ALONE},
    "joint losses": {"rule": "jocor", **GIVEN_ALONE},
    "own losses and neighbours": {"relabel": False},
    "own losses, neighbours, labels corrected": {},
}


def parts(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.sets:
        for seed in options.seeds:
            case = numbers_alone(name, seed) if name in TABLES else case_of(name, seed, options)
            wrong = case.given != case.truth
            for part, settings in PARTS.items():
                model = coteach.SelectiveTrainingClassifier(
                    noise_rate=float(wrong.mean()), random_state=seed, **settings
                )
                began = time.process_time()
                model.fit(case.x, case.given)
                yield {
                    "set": name,
                    "part": part,
                    "seed": seed,
                    "samples": len(wrong),
                    "wrong": float(wrong.mean()),
                    "average_precision": average_precision_score(wrong, -model.label_quality_),
                    "accuracy": model.score(case.x_test, case.truth_test),
                    "cpu_seconds": time.process_time() - began,
                    **measured_on("cpu"),
                }


def numbers_alone(name: str, seed: int) -> Case:
    """A table as it comes, with drawn noise."""
    of, kind, rate = name.split()
    x, y = LOADERS[of](return_X_y=True)
    x, x_test, truth, truth_test = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y)
    given = coteach.noise.corrupt(truth, kind, float(rate), seed=seed).labels
    return Case(name, x, given, truth, x_test, truth_test)


def relabelled(case: Case, index: np.ndarray, suggested: np.ndarray) -> int:
    """Wrong labels if those flagged get the suggested ones."""
    labels = case.given.copy()
    labels[index] = suggested[index]
    return int((labels != case.truth).sum())


def ours_of(case: Case, seed: int) -> tuple[coteach.SelectiveTrainingClassifier, float]:
    model = coteach.SelectiveTrainingClassifier(case.learners["table"] if case.trees else None, random_state=seed)
    began = time.process_time()
    return model.fit(case.x, case.given), time.process_time() - began


def cleanlab_of(case: Case, features: str, seed: int) -> dict[str, Any]:
    """Five folds, its scores and issues of them; and `CleanLearning`, which learns again without these."""
    from cleanlab.classification import CleanLearning  # pyrefly: ignore[missing-import]
    from cleanlab.filter import find_label_issues  # pyrefly: ignore[missing-import]
    from cleanlab.rank import get_label_quality_scores  # pyrefly: ignore[missing-import]

    learner = case.learners[features]
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    began = time.process_time()
    p_MC = cross_val_predict(learner, case.x, case.given, cv=folds, method="predict_proba")
    scores = {
        name: get_label_quality_scores(case.given, p_MC, method=name, adjust_pred_probs=False) for name in SCORES
    }
    issues = find_label_issues(case.given, p_MC, return_indices_ranked_by="self_confidence", n_jobs=1)
    seconds = time.process_time() - began
    cleaner = CleanLearning(learner, seed=seed)
    cleaner.fit(case.x, case.given, pred_probs=p_MC)
    return scores | {
        "features": features,
        "issues": issues,
        "rate": len(issues) / len(case.given),
        "predicted": p_MC.argmax(1),
        "seconds": seconds,
        "accuracy": float((cleaner.predict(case.x_test) == case.truth_test).mean()),
    }


if __name__ == "__main__":
    main()
