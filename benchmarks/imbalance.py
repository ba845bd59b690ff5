"""What small-loss selection does to rare classes, and whether `keep_per_class` mends it.

    python benchmarks/imbalance.py --dataset digits mnist --out benchmarks/results/imbalance.json

Three classes, others for each seed, are cut to a tenth and to a fiftieth of the rest; then 20 % of all labels are
flipped: to any other class alike ("symmetric"), or to the others in proportion to their sizes ("proportional").
The rate is given. The test set stays balanced, and both networks predict together. MNIST is a
subset with a thousand of each frequent class. About twenty minutes on one core.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from common import flags, measured_on, write
from torch import Tensor

from coteach import data, noise
from coteach.data import Dataset
from coteach.engine.batches import as_input
from coteach.engine.setup import set_up
from coteach.engine.training import Epoch, Problem
from coteach.methods import METHODS
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.train import fit

VARIANTS = (
    ("standard", False),
    *((method, per_class) for method in ("coteaching", "coteaching_plus", "jocor") for per_class in (False, True)),
)
RARE = 3
RATE = 0.2
EPOCHS = {"digits": 50, "mnist": 30}
SEEDS = {"digits": (1, 2, 3, 4, 5), "mnist": (1, 2, 3)}
PER_CLASS = 1000  # at most, of each frequent class
CELL = ("dataset", "ratio", "noise", "method", "seed")
MEASURES = (
    "accuracy", "rare_recall", "frequent_recall", "rare_right_kept", "frequent_right_kept", "rare_precision",
)  # fmt: skip


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--dataset", nargs="+", default=["digits", "mnist"], choices=EPOCHS)
    parser.add_argument("--ratio", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--noise", nargs="+", default=["symmetric", "proportional"])
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 1 to 5 on digits, 1 to 3 on MNIST")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)  # so small a network is not faster on two
    rows = []
    for name in options.dataset:
        dataset = data.load(name, options.data_dir)
        for ratio in options.ratio:
            for kind in options.noise:
                cell = list(runs_of(dataset, ratio, kind, options.seeds or SEEDS[name]))
                rows += cell
                print(table(cell), flush=True)
    facts = {"command": f"python benchmarks/imbalance.py --dataset {' '.join(options.dataset)}"} | measured_on()
    write(facts | {"cells": cells(rows), "gains": gains(rows), "runs": rows}, options.out)


def runs_of(dataset: Dataset, ratio: int, kind: str, seeds: tuple[int, ...]) -> Iterator[dict]:
    for seed in seeds:
        y = dataset.y_train.numpy()
        rare = np.random.default_rng(seed).choice(dataset.n_classes, RARE, replace=False)
        kept = thinned(y, rare, ratio, seed)
        drawn = flipped(y[kept], dataset.n_classes, kind, seed)
        for method, per_class in VARIANTS:
            yield trained(dataset, kept, drawn, rare, ratio, kind, method, per_class, seed)


def thinned(y: np.ndarray, rare: np.ndarray, ratio: int, seed: int) -> np.ndarray:
    """Indices of the samples that stay: of rare classes one for `ratio` of a frequent one, at least two."""
    n_frequent = min(int(np.bincount(y).min()), PER_CLASS)
    random = np.random.default_rng(seed)
    chosen = []
    for c in np.unique(y):
        n = max(2, round(n_frequent / ratio)) if c in rare else n_frequent
        chosen.append(random.permutation(np.flatnonzero(y == c))[:n])
    return np.sort(np.concatenate(chosen))


def flipped(y: np.ndarray, n_classes: int, kind: str, seed: int) -> noise.Noise:
    if kind == "symmetric":
        return noise.corrupt(y, "symmetric", RATE, n_classes=n_classes, seed=seed)
    size_CC = np.tile(np.bincount(y, minlength=n_classes), (n_classes, 1)) * (1 - np.eye(n_classes))
    matrix_CC = (1 - RATE) * np.eye(n_classes) + RATE * size_CC / size_CC.sum(1, keepdims=True)
    return noise.corrupt(y, "matrix", None, seed=seed, matrix=matrix_CC)


def trained(
    dataset: Dataset,
    kept: np.ndarray,
    drawn: noise.Noise,
    rare: np.ndarray,
    ratio: int,
    kind: str,
    method: str,
    per_class: bool,
    seed: int,
) -> dict:
    experiment = Experiment(
        dataset=dataset.name, method=method, epochs=EPOCHS[dataset.name], keep_per_class=per_class
    )
    plan = experiment.plan()
    x, x_test = dataset.tensors("this benchmark")
    y, y_test = dataset.y_train.numpy()[kept], dataset.y_test.numpy()
    problem = Problem(x[kept], torch.from_numpy(drawn.labels)[None], dataset.n_classes, [RATE], [seed])
    ramped: list[tuple[Tensor, Tensor]] = []

    def after(epoch: Epoch) -> None:
        if epoch.number == plan.ramp:
            ledger = epoch.training.ledger
            assert ledger is not None
            ramped.append((ledger.picks_NRM.clone(), ledger.seen_NRM.clone()))

    started = time.perf_counter()
    build = prepare.network_builder(experiment, dataset, "cpu")
    engine = set_up(build(), 1, METHODS[method], plan, len(kept), "cpu").engine
    training = fit(problem, METHODS[method], plan, build, engine=engine, ledger=True, on_epoch=after)
    seconds = time.perf_counter() - started
    ledger = training.ledger
    assert ledger is not None
    ((picks, seen),) = ramped
    learnt_M = ((ledger.picks_NRM - picks).sum((0, 1)) / (ledger.seen_NRM - seen).sum((0, 1)).clamp(min=1)).numpy()
    with torch.no_grad():
        p_NMC = torch.stack(
            [
                training.stack.network(n, 0)(as_input(x_test, torch.float32)).softmax(-1)
                for n in range(METHODS[method].networks)
            ]
        )
    right_M = p_NMC.mean(0).argmax(-1).numpy() == y_test
    rare_M, rare_given_M, rare_test = np.isin(y, rare), np.isin(drawn.labels, rare), np.isin(y_test, rare)
    of_rare = learnt_M[rare_given_M].sum()
    return {
        "dataset": dataset.name,
        "ratio": ratio,
        "noise": kind,
        "rate": RATE,
        "method": method,
        "keep_per_class": per_class,
        "seed": seed,
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "rare_classes": rare.tolist(),
        "samples": len(y),
        "rare_samples": int(rare_M.sum()) // RARE,  # of one class
        "rare_given": int(rare_given_M.sum()) / RARE,
        "rare_given_right": int((rare_given_M & drawn.clean).sum()) / RARE,
        "accuracy": float(right_M.mean()),
        "rare_recall": recall(right_M[rare_test], y_test[rare_test]),
        "frequent_recall": recall(right_M[~rare_test], y_test[~rare_test]),
        "rare_right_kept": float(learnt_M[rare_M & drawn.clean].mean()),  # once λ has reached 1 - τ
        "frequent_right_kept": float(learnt_M[~rare_M & drawn.clean].mean()),
        "rare_precision": float(learnt_M[rare_given_M & drawn.clean].sum() / of_rare) if of_rare else None,
        "seconds": round(seconds, 2),
    }


def recall(right: np.ndarray, y: np.ndarray) -> float:
    """Mean over the classes."""
    return fmean(float(right[y == c].mean()) for c in np.unique(y))


def cells(rows: list[dict]) -> list[dict]:
    """Mean and standard deviation over the seeds, in per cent."""
    by_cell: dict[tuple, list[dict]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("dataset", "ratio", "noise", "method", "keep_per_class"))
        by_cell.setdefault(key, []).append(row)
    return [
        dict(zip(("dataset", "ratio", "noise", "method", "keep_per_class"), key, strict=True))
        | {"n": len(cell)}
        | {measure: mean_and_std([row[measure] for row in cell]) for measure in MEASURES}
        for key, cell in by_cell.items()
    ]


def gains(rows: list[dict]) -> list[dict]:
    """What `keep_per_class` adds, in points, seed by seed: the same classes, samples, flips and first weights."""
    off = {tuple(row[name] for name in CELL): row for row in rows if not row["keep_per_class"]}
    found: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["keep_per_class"]:
            found.setdefault(tuple(row[name] for name in CELL[:-1]), []).append(row)
    return [
        dict(zip(CELL[:-1], key, strict=True))
        | {"n": len(cell)}
        | {
            measure: mean_and_std([row[measure] - off[tuple(row[name] for name in CELL)][measure] for row in cell])
            for measure in ("accuracy", "rare_recall", "frequent_recall")
        }
        for key, cell in found.items()
    ]


def mean_and_std(values: list[float | None]) -> list[float] | None:
    known = [100 * value for value in values if value is not None]
    return [round(fmean(known), 2), round(stdev(known), 2) if len(known) > 1 else 0.0] if known else None


def table(rows: list[dict]) -> str:
    """One cell of data as a table in Markdown: a line for each method, mean ± std in per cent."""
    first = rows[0]
    lines = [
        f"\n{first['dataset']}, 1:{first['ratio']}, {first['noise']}: "
        f"{first['rare_samples']} samples of a rare class, "
        f"labelled so {fmean(r['rare_given'] for r in rows):.0f}, "
        f"rightly {fmean(r['rare_given_right'] for r in rows):.0f}; "
        f"{fmean(r['rare_given'] / r['samples'] * r['batch_size'] for r in rows):.2f} of a batch of "
        f"{first['batch_size']}",
        "| method | n | " + " | ".join(MEASURES) + " |",
        "|---" * (len(MEASURES) + 2) + "|",
    ]
    for cell in cells(rows):
        name = cell["method"] + (", per class" if cell["keep_per_class"] else "")
        numbers = [f"{cell[m][0]:.1f} ± {cell[m][1]:.1f}" if cell[m] else "–" for m in MEASURES]
        lines.append(f"| {name} | {cell['n']} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
