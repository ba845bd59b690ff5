"""Finding flipped labels: the ledger of one noisy training against cleanlab on five-fold predictions.

    pip install cleanlab==2.9.0
    python benchmarks/audit.py --dataset digits mnist --out benchmarks/results/audit.json

Both see the same network, plan, epochs and seed. cleanlab gets out-of-sample probabilities of five trainings by
our own Standard, the fastest there is here; its time is theirs plus its own. Ours is one training of a pair, told
the noise rate; its scores are there when the training ends. Average precision is of ranking all samples.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from common import STREAM, kept, measured_on, training_flags
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

from coteach import data, noise
from coteach.data import Dataset
from coteach.engine import Engine
from coteach.engine.batches import as_input
from coteach.engine.training import Problem, Training
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.train import fit

NOISES = (("symmetric", 0.2), ("symmetric", 0.5), ("pair", 0.45))
FOLDS = 5


def main() -> None:
    parser = training_flags(__doc__, ["digits", "mnist"])
    parser.add_argument("--loss", default=None)
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.dataset:
        dataset = data.load(name, options.data_dir)
        # the first training of a process also starts the device, which is neither's time
        compared(dataset, *NOISES[0], 0, argparse.Namespace(**vars(options) | {"epochs": 1}))
        for kind, rate in NOISES:
            for seed in options.seeds:
                yield compared(dataset, kind, rate, seed, options)


def compared(dataset: Dataset, kind: str, rate: float, seed: int, options: argparse.Namespace) -> dict:
    experiment = Experiment(dataset=dataset.name, method=options.method, loss=options.loss, epochs=options.epochs)
    plan = experiment.plan()
    y = dataset.y_train.numpy()
    drawn = noise.corrupt(y, kind, rate, n_classes=dataset.n_classes, seed=0, stream=STREAM)
    given, wrong = torch.from_numpy(drawn.labels), ~drawn.clean
    x = dataset.tensors("an audit")[0].to(options.device)

    def trained(method: str, x: torch.Tensor, given: torch.Tensor, plan: Plan, ledger: bool = False) -> Training:
        problem = Problem(x, given.to(options.device)[None], dataset.n_classes, [rate], [seed])
        engine = Engine(captured=options.device.startswith("cuda"))
        build = prepare.network_builder(experiment, dataset, options.device)
        return fit(problem, METHODS[method], plan, build, engine=engine, ledger=ledger)

    started = time.perf_counter()
    training = trained(options.method, x, given, plan, ledger=True)
    assert training.ledger is not None
    quality = training.ledger.quality()[0]
    ours = time.perf_counter() - started
    suggested = training.ledger.suggestion()[0]

    started = time.perf_counter()
    p_MC = np.zeros((len(y), dataset.n_classes))
    for learnt, left in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(y, drawn.labels):
        fold = trained("standard", x[learnt], given[learnt], replace(plan, loss=None))
        p_MC[left] = probabilities(fold, x[left])
    folds = time.perf_counter() - started
    scores, found, theirs = by_cleanlab(drawn.labels, p_MC)
    n_wrong = int(wrong.sum())
    ours_at = np.argsort(quality, kind="stable")[:n_wrong]
    return {
        "dataset": dataset.name,
        "noise": kind,
        "rate": rate,
        "seed": seed,
        "method": options.method,
        "loss": options.loss,
        "epochs": plan.epochs,
        "samples": len(y),
        "wrong": n_wrong,
        "average_precision": average_precision_score(wrong, -quality),
        **{f"cleanlab_{name}": average_precision_score(wrong, -score) for name, score in scores.items()},
        "precision_at_wrong": float(wrong[ours_at].mean()),
        "suggested_right": float((suggested[wrong] == y[wrong]).mean()),
        "cleanlab_issues": len(found),
        "cleanlab_issues_precision": float(wrong[found].mean()) if len(found) else None,
        "cleanlab_issues_recall": float(wrong[found].sum() / n_wrong),
        "seconds": ours,
        "cleanlab_seconds": folds + theirs,
        "time_share": ours / (folds + theirs),
        **measured_on(options.device),
    }


@torch.no_grad()
def probabilities(training: Training, x: torch.Tensor) -> np.ndarray:
    network = training.stack.network(0, 0)
    pieces = [network(as_input(piece, torch.float32)).softmax(-1) for piece in x.split(4096)]
    return torch.cat(pieces).cpu().numpy()


def by_cleanlab(given: np.ndarray, p_MC: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, float]:
    """Its two usual quality scores, the indices that it calls issues, and its seconds."""
    from cleanlab.filter import find_label_issues  # pyrefly: ignore[missing-import]
    from cleanlab.rank import get_label_quality_scores  # pyrefly: ignore[missing-import]

    started = time.perf_counter()
    scores = {
        method: get_label_quality_scores(given, p_MC, method=method)
        for method in ("self_confidence", "normalized_margin")
    }
    found = find_label_issues(given, p_MC, return_indices_ranked_by="self_confidence", n_jobs=1)
    return scores, found, time.perf_counter() - started


if __name__ == "__main__":
    main()
