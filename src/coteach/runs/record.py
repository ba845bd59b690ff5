"""What a run leaves behind: rows while it runs, a summary when it is over, and a word on what went wrong."""

import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

import coteach
from coteach.engine import Engine
from coteach.engine.stream import Stream
from coteach.metrics import EVENTS, last_ten
from coteach.noise import Noise
from coteach.plan import Plan
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.train import Epoch, Problem


class Record:
    """Deals the rows of a stack out to the folders of its experiments, and tells what went wrong, once each."""

    def __init__(self, experiments: list[Experiment], folders: list[Path], say: Callable[[str], None]):
        self.folders, self.say = folders, say
        self.owners = [i for i, experiment in enumerate(experiments) for _ in experiment.seeds]  # of each run
        self.rows: list[list[dict]] = [[] for _ in experiments]
        self.told: set[str] = set()
        self.halved = [0] * len(self.owners)  # how often each run was begun again
        self.begun: set[int] = set()

    def write(self, epoch: Epoch, group: range) -> None:
        """The rows of one epoch of the runs of a group."""
        name = "estimate.jsonl" if epoch.preliminary else "metrics.jsonl"
        if not epoch.preliminary:
            for run, row in zip(group, epoch.rows, strict=True):
                if self.halved[run] and run not in self.begun:
                    row["events"]["out_of_memory"] = self.halved[run]
            self.begun |= set(group)
        for i, folder in enumerate(self.folders):
            mine = [row for run, row in zip(group, epoch.rows, strict=True) if self.owners[run] == i]
            if not epoch.preliminary:
                self.rows[i] += mine
            files.append_rows(folder / name, mine)
        for row in epoch.rows:
            self.tell(row)

    def begin_again(self, group: range, seeds: list[int]) -> None:
        """A group ran out of memory: what was written of its runs is taken back, and the event counted."""
        self.say(f"{len(group)} runs together do not fit into memory: going on with {len(group) // 2} at a time")
        self.begun -= set(group)
        for run in group:
            self.halved[run] += 1
            i = self.owners[run]
            self.rows[i] = [row for row in self.rows[i] if row["seed"] != seeds[run]]
            for name in ("estimate.jsonl", "metrics.jsonl"):
                files.drop_rows(self.folders[i] / name, seeds[run])

    def tell(self, row: dict) -> None:
        for event, count in row["events"].items():
            if event not in self.told:
                self.told.add(event)
                self.say(f"seed {row['seed']}, epoch {row['epoch']}: {event} × {count} ({EVENTS[event]})")


def summarise(
    experiment: Experiment, plan: Plan, rows: list[dict], draw: Noise, device: str, seconds: float
) -> dict[str, Any]:
    """One cell of a table: means over networks, the last ten epochs and the seeds, in percent."""
    by_seed = [[row for row in rows if row["seed"] == seed] for seed in experiment.seeds]
    means, maxima = zip(*(last_ten(one) for one in by_seed), strict=True)
    last = [row for one in by_seed for row in one[-10:]]
    precisions = [row["label_precision"] for row in last if row["label_precision"] is not None]
    events: dict[str, int] = {}
    for row in rows:
        for name, count in row["events"].items():
            events[name] = events.get(name, 0) + count
    n_networks = len(rows[0]["test_accuracy"])
    return {
        "network": experiment.network_name,
        "method": experiment.method,
        "loss": experiment.loss,
        "fidelity": str(experiment.parsed_fidelity),
        "noise": draw.kind,
        "rate": draw.nominal_rate,
        "realised_rate": draw.rate,
        "noise_seed": experiment.noise_seed,
        "noise_sha256": draw.sha256,
        "epochs": plan.epochs,
        "seeds": list(experiment.seeds),
        "mean": 100 * fmean(means),
        "std": 100 * stdev(means) if len(means) > 1 else None,
        "max": 100 * fmean(maxima),
        "mean_per_seed": [100 * mean for mean in means],
        "mean_per_network": [100 * fmean(row["test_accuracy"][n] for row in last) for n in range(n_networks)],
        "ensemble": 100 * fmean(row["ensemble_accuracy"] for row in last),
        "label_precision": 100 * fmean(precisions) if precisions else None,
        "events": events,
        "seconds": round(seconds, 2),
        "hardware": hardware(device),
        "torch": torch.__version__,
    }


def config(
    experiment: Experiment, plan: Plan, device: str, problem: Problem, engine: Engine, group: int
) -> dict[str, Any]:
    """Everything that decides the result, with the choices that were made for the user."""
    return {
        "experiment": files.described(experiment),
        "plan": asdict(plan) | {"fidelity": str(plan.fidelity), "network": experiment.network_name},
        "engine": {
            "device": device,
            "precision": engine.precision.value,
            "batched": engine.batched,
            "compiled": engine.compiled,
            "captured": engine.captured,
            "streamed": isinstance(problem.x_M, Stream),
            "group": group,
        },
        "data": {
            "samples": len(problem.x_M),
            "test_samples": len(problem.x_test),
            "classes": problem.n_classes,
            "samples_left_out_of_each_epoch": left_over(len(problem.x_M), plan.batch_size),
        },
        "versions": {"coteach": coteach.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "hardware": {"name": hardware(device), "threads": torch.get_num_threads()},
    }


def left_over(samples: int, batch_size: int) -> int:
    return samples % batch_size if samples > batch_size else 0


def hardware(device: str) -> str:
    """The processor or GPU in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return f"{name}, {os.cpu_count()} cores"
