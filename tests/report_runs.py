"""Run folders as `coteach run` writes them, made up in a moment: for the tests of the report."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from coteach.names import LOSS_BINS
from coteach.noise import Noise, corrupt
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment

SAMPLES, TWO = 60, ("decoupling", "coteaching", "coteaching_plus", "coteaching_plus_own", "cotraining", "jocor")


def write_run(
    folder: Path,
    noise: str = "pair",
    rate: float = 0.4,
    n_classes: int = 4,
    reached: int | None = None,
    ledger: bool = True,
    events: dict[str, int] | None = None,
    **experiment: Any,
) -> Path:
    """A run of 6 epochs; one that has `reached` an epoch before the last is not finished."""
    usual: dict[str, Any] = {"method": "coteaching", "seeds": (1, 2), "epochs": 6, "device": "cpu"}
    e = Experiment(noise=noise, rate=None if noise == "none" else rate, **(usual | experiment))
    drawn = corrupt(np.arange(SAMPLES) % n_classes, noise, 0.0 if noise == "none" else rate, n_classes)
    folder.mkdir(parents=True)
    files.write_config(folder, config_of(e))
    drawn.save(folder / "noise.safetensors")
    known = (e.dataset, noise) != ("own", "none")
    rows = [
        row_of(e, seed, epoch, events or {}, known) for epoch in range(1, (reached or 6) + 1) for seed in e.seeds
    ]
    files.append_rows(folder / "metrics.jsonl", rows)
    if reached is None:
        files.write_summary(folder, summary_of(e, drawn, known))
    if ledger:
        files.append_rows(folder / "losses.jsonl", [losses_of(row, drawn) for row in rows])
        write_opinions(folder, e, drawn)
    return folder


def config_of(e: Experiment) -> dict[str, Any]:
    return {
        "experiment": files.described(e),
        "plan": {"epochs": e.epochs, "batch_size": 64},
        "engine": {"device": "cpu"},
        "data": {"samples": SAMPLES, "sha256": "ab" * 32},
        "versions": {"coteach": "0.1.0", "torch": "2.13.0"},
        "hardware": {"name": "a processor", "threads": 1},
    }


def accuracy(seed: int, epoch: int) -> float:
    return 0.5 + epoch / 20 + seed % 10 / 100


def row_of(e: Experiment, seed: int, epoch: int, events: dict[str, int], known: bool) -> dict[str, Any]:
    pair = e.method in TWO
    return {
        "seed": seed,
        "epoch": epoch,
        "test_accuracy": [accuracy(seed, epoch)] * (2 if pair else 1),
        "ensemble_accuracy": accuracy(seed, epoch),
        "train_loss": 1 / epoch,
        "label_precision": 0.6 + epoch / 50 if known else None,
        "label_recall": 0.9 if known else None,
        "disagreement": 0.1 / epoch if pair else None,
        "total_variation": 0.2 / epoch if pair else None,
        "keep_rate": 1 - 0.05 * epoch,
        "kept": 30.0,
        "events": events if epoch == 3 else {},
    }


def summary_of(e: Experiment, drawn: Noise, known: bool) -> dict[str, Any]:
    means = [100 * float(np.mean([accuracy(seed, epoch) for epoch in range(1, 7)])) for seed in e.seeds]
    return {
        "dataset": e.dataset,
        "network": e.network_name,
        "method": e.method,
        "noise": drawn.kind,
        "rate": drawn.nominal_rate,
        "realised_rate": drawn.rate if known else None,
        "epochs": e.plan().epochs,
        "seeds": list(e.seeds),
        "mean": float(np.mean(means)),
        "std": float(np.std(means, ddof=1)) if len(means) > 1 else None,
        "max": max(means),
        "mean_per_seed": means,
        "ensemble": float(np.mean(means)),
        "label_precision": 67.0 if known else None,
        "events": {},
        "seconds": 3.0,
        "hardware": "a processor",
        "torch": "2.13.0",
    }


def losses_of(row: dict, drawn: Noise) -> dict[str, Any]:
    """Right labels move to the left, epoch by epoch; wrong ones stay."""
    right, wrong = np.zeros(LOSS_BINS, int), np.zeros(LOSS_BINS, int)
    right[34 - row["epoch"]] = 2 * drawn.clean.sum()
    wrong[36] = 2 * (~drawn.clean).sum()
    return {"seed": row["seed"], "epoch": row["epoch"], "right": right.tolist(), "wrong": wrong.tolist()}


def write_opinions(folder: Path, e: Experiment, drawn: Noise) -> None:
    """Opinions of a ledger that knows the truth."""
    true = np.arange(SAMPLES) % len(drawn.matrix)
    other = (drawn.labels + 1) % len(drawn.matrix)
    (folder / "opinions").mkdir()
    for seed in e.seeds:
        quality = np.where(drawn.clean, 0.9, 0.1).astype(np.float32)
        tensors = {"quality": quality, "suggested": np.where(drawn.clean, other, true)}
        save_file(tensors, folder / "opinions" / f"seed-{seed}.safetensors")


def changed_experiment(folder: Path, **changes: Any) -> None:
    """Another text in config.toml, whatever it is."""
    config = files.read_config(folder)
    files.write_config(folder, config | {"experiment": config["experiment"] | changes})
