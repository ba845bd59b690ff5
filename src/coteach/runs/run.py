"""Running experiments: data, noise, networks and method come together here, and the run folder is filled.

Experiments that differ only in noise, τ and seeds can run together, as one stack of networks.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

import coteach
from coteach import data, networks, noise
from coteach.augment import AUGMENTS
from coteach.data import Dataset
from coteach.methods import METHODS
from coteach.metrics import EVENTS, last_ten
from coteach.networks.stack import Stack
from coteach.plan import Plan
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment, differing_fields
from coteach.train import Epoch, Problem, Training, fit

SMALL_STEP = 2e9
MAY_DIFFER = {"noise", "rate", "matrix", "noise_seed", "tau", "seeds", "out"}

log = logging.getLogger("coteach")


@dataclass(frozen=True)
class Result:
    """What a run leaves: its folder, a row for each seed and epoch, the summary, and the trained networks."""

    folder: Path
    rows: list[dict]
    summary: dict[str, Any]
    stack: Stack


def run(
    experiment: Experiment,
    dataset: Dataset | None = None,
    *,
    say: Callable[[str], None] = log.warning,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Result:
    """Do what `coteach run` does.

    Parameters
    ----------
    experiment : Experiment
    dataset : Dataset, optional
        Instead of the one the experiment names: `coteach.data.Dataset.from_arrays(x, y, x_test, y_test)`.
    say : callable
        Takes each line that the user should read; logged as a warning unless given.
    on_epoch : callable
        Called after every epoch, for a progress bar.
    """
    return run_together([experiment], dataset, say=say, on_epoch=on_epoch)[0]


def run_together(
    experiments: list[Experiment],
    dataset: Dataset | None = None,
    *,
    say: Callable[[str], None] = log.warning,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Result]:
    """Run experiments that share data set, network and method as one stack; each fills its own folder."""
    first = experiments[0]
    for experiment in experiments:
        experiment.check()
        if differing := differing_fields(first, experiment) - MAY_DIFFER:
            raise ValueError(f"experiments that run together must have the same {', '.join(sorted(differing))}.")
    plan, notes = first.plan_and_notes()
    device = chosen_device(first.device)
    if dataset is None:
        dataset = data.load(first.dataset, first.data_dir, **dataset_options(first))
    if dataset.note:
        say(dataset.note)
    if first.batch_size is not None and first.batch_size > len(dataset.x_train):
        raise ValueError(
            f"batch_size is {first.batch_size} but there are {len(dataset.x_train)} training samples: "
            f"give at most {len(dataset.x_train)}."
        )
    draws = [draw_noise(experiment, dataset) for experiment in experiments]
    problem = make_problem(experiments, dataset, draws, device)
    build = network_builder(first, dataset, device)
    with torch.random.fork_rng(devices=[]):
        parameters = sum(p.numel() for p in build().parameters())  # a network that does not fit the data fails here
    method = METHODS[first.method]
    threads = sensible_threads(parameters, method.networks * len(problem.seeds), plan)
    for note in notes:
        say(note)

    folders = [files.claim(experiment) for experiment in experiments]
    record = Record(experiments, folders, say)
    with torch_set(threads, first.deterministic):
        started = time.perf_counter()
        for experiment, path, draw in zip(experiments, folders, draws, strict=True):
            draw.save(path / "noise.safetensors")
            files.write_config(path, config(experiment, plan, device, problem))

        def after(epoch: Epoch) -> None:
            record.write(epoch)
            on_epoch(epoch)

        training = fit(problem, method, plan, build, on_epoch=after)
        seconds = time.perf_counter() - started
    return record.results(draws, plan, device, training, seconds)


class Record:
    """Deals the rows of a stack out to the folders of its experiments, and tells what went wrong, once each."""

    def __init__(self, experiments: list[Experiment], folders: list[Path], say: Callable[[str], None]):
        self.experiments, self.folders, self.say = experiments, folders, say
        self.rows: list[list[dict]] = [[] for _ in experiments]
        self.told: set[str] = set()

    def write(self, epoch: Epoch) -> None:
        rest = epoch.rows
        for i, experiment in enumerate(self.experiments):
            mine, rest = rest[: len(experiment.seeds)], rest[len(experiment.seeds) :]
            if not epoch.preliminary:
                self.rows[i] += mine
            files.append_rows(self.folders[i] / ("estimate.jsonl" if epoch.preliminary else "metrics.jsonl"), mine)
            for row in mine:
                self.tell(row)

    def tell(self, row: dict) -> None:
        for event, count in row["events"].items():
            if event not in self.told:
                self.told.add(event)
                self.say(f"seed {row['seed']}, epoch {row['epoch']}: {count} {EVENTS[event]}")

    def results(
        self, draws: list[noise.Noise], plan: Plan, device: str, training: Training, seconds: float
    ) -> list[Result]:
        results = []
        for experiment, path, rows, draw in zip(self.experiments, self.folders, self.rows, draws, strict=True):
            summary = summarise(experiment, plan, rows, draw, device, seconds)
            files.write_summary(path, summary)
            results.append(Result(path, rows, summary, training.stack))
        return results


def summarise(
    experiment: Experiment, plan: Plan, rows: list[dict], draw: noise.Noise, device: str, seconds: float
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
        "dataset": experiment.dataset,
        "network": experiment.network_name,
        "method": experiment.method,
        "loss": experiment.loss,
        "fidelity": str(experiment.parsed_fidelity),
        "noise": experiment.noise_kind,
        "rate": experiment.noise_share,
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
        "hardware": files.hardware(device),
        "torch": torch.__version__,
    }


def config(experiment: Experiment, plan: Plan, device: str, problem: Problem) -> dict[str, Any]:
    """Everything that decides the result, with the choices that were made for the user."""
    chosen = asdict(plan) | {
        "fidelity": str(plan.fidelity),
        "network": experiment.network_name,
        "device": device,
    }
    return {
        "experiment": files.described(experiment),
        "plan": chosen,
        "data": {
            "samples": len(problem.x_M),
            "test_samples": len(problem.x_test),
            "classes": problem.n_classes,
            "samples_left_out_of_each_epoch": left_over(len(problem.x_M), plan.batch_size),
        },
        "versions": {"coteach": coteach.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "hardware": {"name": files.hardware(device), "threads": torch.get_num_threads()},
    }


def left_over(samples: int, batch_size: int) -> int:
    return samples % batch_size if samples > batch_size else 0


def dataset_options(experiment: Experiment) -> dict[str, Any]:
    options = dict(experiment.recipe.data)
    if experiment.recipe.own_noise is not None:
        options |= {"rate": experiment.noise_share, "seed": experiment.noise_seed}
    return options


def draw_noise(experiment: Experiment, dataset: Dataset) -> noise.Noise:
    """The labels that one experiment learns from, and which of them are right."""
    y = dataset.y_train.numpy()
    superclass = None if dataset.superclass is None else dataset.superclass.numpy()
    if experiment.noise_kind == "asymmetric" and superclass is None:
        raise ValueError(
            f"asymmetric noise needs superclasses, which {dataset.name} has not: take cifar100, or noise pair."
        )
    draw = noise.corrupt(
        y,
        experiment.noise_kind,
        None if experiment.noise_kind in ("none", "matrix") else experiment.noise_share,
        dataset.n_classes,
        experiment.noise_seed,
        matrix=None if experiment.matrix is None else read_matrix(experiment.matrix),
        superclass=superclass,
        features=dataset.x_train.numpy() if experiment.noise_kind == "instance" else None,
    )
    if dataset.outside is not None:
        draw = noise.Noise(
            draw.labels, ~dataset.outside.numpy(), draw.matrix, experiment.noise_share, draw.seed, "openset"
        )
    return draw


def read_matrix(path: Path) -> np.ndarray:
    try:
        return np.loadtxt(path, delimiter="," if "," in path.read_text(encoding="utf-8") else None, ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is no matrix: write one row of Q a line, numbers separated by spaces or commas."
        ) from error


def make_problem(
    experiments: list[Experiment], dataset: Dataset, draws: list[noise.Noise], device: str
) -> Problem:
    """The data on the device, with a row of labels for each run."""
    runs = [(e, draw, seed) for e, draw in zip(experiments, draws, strict=True) for seed in e.seeds]
    augment = experiments[0].recipe.augment
    return Problem(
        x_M=as_stored(dataset.x_train, experiments[0], dataset, device),
        y_RM=torch.from_numpy(np.stack([draw.labels for _, draw, _ in runs])).to(device),
        x_test=as_stored(dataset.x_test, experiments[0], dataset, device),
        y_test=dataset.y_test.to(device),
        n_classes=dataset.n_classes,
        noise_rates=[e.tau if e.tau is not None else draw.nominal_rate for e, draw, _ in runs],
        seeds=[seed for *_, seed in runs],
        clean_RM=torch.from_numpy(np.stack([draw.clean for _, draw, _ in runs])).to(device),
        matrix_RCC=torch.from_numpy(np.stack([draw.matrix for _, draw, _ in runs])),
        augment=AUGMENTS[augment] if augment else None,
    )


def as_stored(x: torch.Tensor, experiment: Experiment, dataset: Dataset, device: str) -> torch.Tensor:
    """Samples on the device; documents already pooled, since their word vectors never change."""
    if not experiment.network_name.startswith("news") or dataset.vectors is None:
        return x.to(device)
    from coteach.networks.news import pool

    pooling = "flat" if experiment.network_name == "news_flat" else "words"
    return torch.cat([pool(tokens, dataset.vectors, pooling) for tokens in x.split(256)]).to(device)


def network_builder(experiment: Experiment, dataset: Dataset, device: str) -> Callable[[], torch.nn.Module]:
    vectors = None if dataset.vectors is None else dataset.vectors.to(device)
    shape = tuple(dataset.x_train.shape[1:])
    augment = experiment.recipe.augment
    if augment:
        shape = (shape[0], AUGMENTS[augment].size, AUGMENTS[augment].size)

    def build() -> torch.nn.Module:
        return networks.build(experiment.network_name, shape=shape, n_classes=dataset.n_classes, vectors=vectors)

    return build


def chosen_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {name} but torch sees no GPU: take --device cpu, or auto.")
    try:
        torch.empty(0, device=name)
    except RuntimeError as error:
        raise ValueError(f"there is no device {name!r}: take auto, cpu, cuda or cuda:0.") from error
    return name


def sensible_threads(parameters: int, networks: int, plan: Plan) -> int:
    """One thread for small steps, where handing work out costs more than it saves, else all of torch's."""
    arithmetic = 6 * parameters * networks * plan.batch_size  # forward and backward, in operations a step
    return 1 if arithmetic < SMALL_STEP else torch.get_num_threads()


@contextmanager
def torch_set(threads: int, deterministic: bool) -> Iterator[None]:
    """torch's global settings inside the block; then as they were before."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic or before[1])
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
