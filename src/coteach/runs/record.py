"""What a run leaves behind: rows while it runs, a summary when it is over, and a word on what went wrong."""

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

import coteach
from coteach.data import Dataset
from coteach.engine import Engine
from coteach.engine.distributed import processes as n_processes
from coteach.engine.stream import Stream
from coteach.files import write_atomically
from coteach.metrics import last_ten, loss_histograms
from coteach.names import EVENTS
from coteach.networks.models import weights_of
from coteach.noise import Noise
from coteach.plan import Plan
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.train import Epoch, Problem, Training


class Record:
    """Deals the rows of a stack out to the folders of its experiments, and tells what went wrong, once each."""

    def __init__(
        self,
        experiments: list[Experiment],
        folders: list[Path],
        say: Callable[[str], None],
        halved: list[int] | None = None,
    ):
        self.folders, self.say = folders, say
        self.seeds = [seed for experiment in experiments for seed in experiment.seeds]  # of each run
        self.owners = [i for i, experiment in enumerate(experiments) for _ in experiment.seeds]  # of each run
        self.rows = [files.read_rows(folder / "metrics.jsonl") for folder in folders]
        self.told: set[str] = set()
        self.halved = halved or [0] * len(self.owners)  # how often each run was begun again
        there = {(i, row["seed"]) for i, rows in enumerate(self.rows) for row in rows}
        self.begun = {run for run, i in enumerate(self.owners) if (i, self.seeds[run]) in there}

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
        if epoch.noted and not epoch.preliminary:
            self.write_losses(epoch, group)
        for row in epoch.rows:
            self.tell(row)

    def write_losses(self, epoch: Epoch, group: range) -> None:
        """Histograms of the losses of one epoch, a row for each run."""
        training = epoch.training
        found = loss_histograms(training.records, training.batches.in_batch_order(training.problem.clean_RM))
        for run, histograms in zip(group, found, strict=True):
            row = {"seed": self.seeds[run], "epoch": epoch.number, **histograms}
            files.append_rows(self.folders[self.owners[run]] / "losses.jsonl", [row])

    def begin_again(self, group: range) -> None:
        """A group ran out of memory: what was written of its runs is taken back, and the event counted."""
        self.say(f"{len(group)} runs together do not fit into memory: going on with {len(group) // 2} at a time")
        self.begun -= set(group)
        for run in group:
            self.halved[run] += 1
            i = self.owners[run]
            self.rows[i] = [row for row in self.rows[i] if row["seed"] != self.seeds[run]]
            for name in files.ROWS:
                files.drop_rows(self.folders[i] / name, self.seeds[run])

    def keep(self, training: Training, group: range) -> None:
        """The trained networks of each run of a group, and what they think of the labels: files of its own."""
        stack, ledger = training.stack, training.ledger
        quality_RM, suggested_RM = (ledger.quality(), ledger.suggestion()) if ledger else ([], [])
        for r, run in enumerate(group):
            folder, seed = self.folders[self.owners[run]], self.seeds[run]
            networks = [stack.network(n, r) for n in range(stack.shape[0])]
            write_tensors(networks_file(folder, seed), weights_of(networks))
            if ledger:
                quality_M, suggested_M = torch.from_numpy(quality_RM[r]).float(), torch.from_numpy(suggested_RM[r])
                write_tensors(opinions_file(folder, seed), {"quality": quality_M, "suggested": suggested_M})

    def tell(self, row: dict) -> None:
        for event, count in row["events"].items():
            if event not in self.told:
                self.told.add(event)
                self.say(f"seed {row['seed']}, epoch {row['epoch']}: {event} × {count} ({EVENTS[event]})")


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, save(tensors))


def networks_file(folder: Path, seed: int) -> Path:
    return folder / "networks" / f"seed-{seed}.safetensors"


def opinions_file(folder: Path, seed: int) -> Path:
    """The quality of each training label, and the likeliest other one."""
    return folder / "opinions" / f"seed-{seed}.safetensors"


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
        "warmup_loss": experiment.warmup_loss,
        "fidelity": str(experiment.parsed_fidelity),
        "noise": draw.kind,
        "rate": draw.nominal_rate,
        "realised_rate": draw.rate if experiment.truth_is_known else None,
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
    experiment: Experiment,
    plan: Plan,
    device: str,
    problem: Problem,
    engine: Engine,
    group: int,
    data_sha256: str,
    noise_sha256: str,
    processes: int | None = None,
) -> dict[str, Any]:
    """Everything that decides the result, with the choices that were made for the user."""
    return {
        "experiment": files.described(experiment),
        "plan": asdict(plan) | {"fidelity": str(plan.fidelity), "network": experiment.network_name},
        "engine": {
            "device": device,
            **engine.table(),
            "streamed": isinstance(problem.x_M, Stream),
            "group": group,
            "processes": processes,
        },
        "data": {
            "samples": len(problem.x_M),
            "test_samples": len(problem.x_test),
            "classes": problem.n_classes,
            "samples_left_out_of_each_epoch": left_over(len(problem.x_M), plan),
            "sha256": data_sha256,
            "noise_sha256": noise_sha256,
        },
        "versions": {"coteach": coteach.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "hardware": {"name": hardware(device), "threads": torch.get_num_threads()},
    }


def fingerprint(dataset: Dataset) -> str:
    """A hash of all samples and labels; of the labels alone where samples are read one by one."""
    digest = hashlib.sha256()
    for part in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test):
        digest.update(repr(tuple(part.shape)).encode())
        if isinstance(part, torch.Tensor):
            digest.update(part.cpu().contiguous().numpy().data)
    return digest.hexdigest()


def left_over(samples: int, plan: Plan) -> int:
    return max(0, samples - plan.steps(samples) * plan.batch_size)


def hardware(device: str) -> str:
    """The processor or GPU in words, and how many processes share the work."""
    n = n_processes()
    if device.startswith("cuda"):
        return f"{n} × " * (n > 1) + torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return f"{n} processes on " * (n > 1) + f"{name}, {os.cpu_count()} cores"
