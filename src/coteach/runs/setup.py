"""From an experiment to what is trained: data on the device, noisy labels, networks, torch's settings."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coteach import data, networks, noise
from coteach.augment import AUGMENTS
from coteach.data import Dataset
from coteach.data.base import Rows, Samples
from coteach.engine.distributed import processes
from coteach.engine.stream import Stream
from coteach.files import read_bounded
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs.experiment import OWN, Experiment
from coteach.train import Problem

MOST_OF_A_MATRIX = 2**25  # bytes: a thousand classes, 32 characters a number


def named_after(dataset: Dataset, experiment: Experiment) -> Experiment:
    """The recipe follows the data that are handed in: a known name's, or one for a user's own."""
    if dataset.name in data.DATASETS:
        return replace(experiment, dataset=dataset.name)
    words = dataset.vectors is not None
    network = experiment.network or networks.default_for(dataset.x_train.shape[1:], words)
    return replace(experiment, dataset=OWN, network=network)


def refuse_views_of_nothing(dataset: Dataset, networks: int) -> None:
    if dataset.x_train.shape[-1] < networks:
        raise ValueError(
            "cotraining halves the last axis of a sample, which has length 1 here: give views of your own."
        )


def n_epochs(experiment: Experiment) -> int:
    """Of one run, for a progress bar."""
    return METHODS[experiment.method].n_epochs(experiment.plan())


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
    if dataset.outside is not None and experiment.noise_kind != "none":
        raise ValueError(f"{dataset.name} has images from outside: leave --noise out, labels stay as they are.")
    draw = noise.corrupt(
        y,
        experiment.noise_kind,
        experiment.noise_share if dataset.outside is None else None,
        dataset.n_classes,
        experiment.noise_seed,
        matrix=None if experiment.matrix is None else read_matrix(experiment.matrix),
        superclass=superclass,
        stream=experiment.noise_stream,
        features=dataset.tensors("instance noise")[0].numpy() if experiment.noise_kind == "instance" else None,
    )
    if dataset.outside is not None:
        outside = dataset.outside.numpy()
        draw = replace(draw, clean=~outside, nominal_rate=float(outside.mean()), kind="openset")
    return draw


def read_matrix(path: Path) -> np.ndarray:
    try:
        text = read_bounded(path, MOST_OF_A_MATRIX).decode().strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: give --matrix a text file with one row of Q a line.") from error
    try:
        rows = [[float(number) for number in line.replace(",", " ").split()] for line in text.splitlines()]
        return np.array(rows, dtype=float).reshape(len(rows), -1) if rows else np.zeros((0, 0))
    except ValueError as error:
        raise ValueError(
            f"{path} is no matrix: write one row of Q a line, numbers separated by spaces or commas."
        ) from error


def make_problem(
    experiments: list[Experiment], dataset: Dataset, draws: list[noise.Noise], device: str
) -> Problem:
    """The data on the device, with a row of labels for each run."""
    runs = [(e, draw, seed) for e, draw in zip(experiments, draws, strict=True) for seed in e.seeds]
    augment = experiments[0].recipe.augment
    x_M, x_test = placed(on_host(dataset, experiments[0]), device)
    return Problem(
        x_M=x_M,
        y_RM=torch.from_numpy(np.stack([draw.labels for _, draw, _ in runs])).to(device),
        x_test=x_test,
        y_test=dataset.y_test.to(device),
        n_classes=dataset.n_classes,
        noise_rates=[e.tau if e.tau is not None else draw.nominal_rate for e, draw, _ in runs],
        seeds=[seed for *_, seed in runs],
        clean_RM=torch.from_numpy(np.stack([draw.clean for _, draw, _ in runs])).to(device),
        checked=all(experiment.truth_is_known for experiment in experiments),
        matrix_RCC=torch.from_numpy(np.stack([draw.matrix for _, draw, _ in runs])),
        augment=AUGMENTS[augment] if augment else None,
    )


def on_host(dataset: Dataset, experiment: Experiment) -> list[torch.Tensor | Samples]:
    """The training and the test samples as they are to be trained on."""
    if dataset.vectors is None:
        return [dataset.x_train, dataset.x_test]
    return [as_stored(x, experiment, dataset, "cpu") for x in dataset.tensors("averaging documents")]


def as_stored(x: torch.Tensor, experiment: Experiment, dataset: Dataset, device: str) -> torch.Tensor:
    """Samples on the device; documents already pooled, since their word vectors never change."""
    if not experiment.network_name.startswith("news") or dataset.vectors is None:
        return x.to(device)
    from coteach.networks.models import pool_words

    options = networks.FORMS.get(experiment.network_name, {})
    return torch.cat([pool_words(tokens, dataset.vectors, **options) for tokens in x.split(256)]).to(device)


def placed(sets: list[torch.Tensor | Samples], device: str) -> list[torch.Tensor | Stream]:
    """Tensors go to the device if all of them fit there; else they are streamed to it, as other samples are."""
    total = sum(x.nbytes for x in sets if isinstance(x, torch.Tensor))
    if device == "cpu" or fits(total, free_memory(device)):
        return [x.to(device) if isinstance(x, torch.Tensor) else Stream(x, device) for x in sets]
    return [Stream(Rows(x) if isinstance(x, torch.Tensor) else x, device) for x in sets]


def fits(data_bytes: int, free_bytes: int) -> bool:
    """Half of a device's free memory is left to the networks and what they compute."""
    return 2 * data_bytes <= free_bytes


def free_memory(device: str) -> int:
    """Of a GPU, with what torch holds but does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def stays_on_host(dataset: Dataset, problem: Problem) -> bool:
    """Whether samples that were handed in as a whole did not fit the device."""
    return isinstance(problem.x_M, Stream) and not isinstance(dataset.x_train, Samples)


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
    if name == "cpu":
        return name
    if not isinstance(name, str) or not re.fullmatch(r"cuda(:\d+)?", name):
        raise ValueError(f"there is no device {name!r}: take auto, cpu, cuda or cuda:0.")
    if not torch.cuda.is_available() or int(name[5:] or 0) >= torch.cuda.device_count():
        raise ValueError(f"device is {name} but torch sees {torch.cuda.device_count()} GPUs: take cpu, or auto.")
    return name


def own_device(name: str) -> str:
    """The device that is asked for; of several processes on GPUs each takes its own, and calls it `cuda`."""
    name = chosen_device(name)
    if processes() == 1 or name == "cpu":
        return name
    if name != "cuda":
        raise ValueError(f"device is {name}, but each process takes a GPU of its own: give cuda, cpu or auto.")
    local = int(os.environ.get("LOCAL_RANK", "-1"))  # else the caller has chosen
    if local >= torch.cuda.device_count():
        raise ValueError(
            f"there are more processes than the {torch.cuda.device_count()} GPUs of this machine: "
            "start one for each GPU, or give --device cpu."
        )
    if local >= 0:
        torch.cuda.set_device(local)
    return name


def fit_to_samples(plan: Plan, experiment: Experiment, samples: int, notes: list[str]) -> Plan:
    """A default batch larger than the data shrinks, and a note says so; one that was asked for is refused."""
    if plan.batch_size <= samples:
        return plan
    if experiment.batch_size is not None:
        raise ValueError(
            f"batch_size is {experiment.batch_size} but there are {samples} samples: give at most {samples}."
        )
    notes.append(f"batch_size shrinks from {plan.batch_size} to {samples}, to fit the data")
    return replace(plan, batch_size=samples)


def normalises_over_the_batch(network: torch.nn.Module) -> bool:
    return any("BatchNorm" in type(m).__name__ for m in network.modules())


def refuse_batches_of_one(network: torch.nn.Module, plan: Plan) -> None:
    if plan.batch_size == 1 and normalises_over_the_batch(network):
        raise ValueError("batch_size is 1, but this network normalises over the batch: give at least 2.")


def refuse_small_parts(network: torch.nn.Module, plan: Plan, size: int) -> None:
    """Of a mini-batch that several processes share."""
    least = 2 * size if normalises_over_the_batch(network) else size
    if plan.batch_size < least:
        raise ValueError(f"batch_size is {plan.batch_size}, which {size} processes share: give at least {least}.")


@contextmanager
def torch_set(threads: int, deterministic: bool, device: str) -> Iterator[None]:
    """torch's global settings inside the block, and its current GPU; then as they were before."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it, before its first product
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(threads)
    if deterministic:
        torch.use_deterministic_algorithms(True)
    try:
        with torch.inference_mode(False), torch.enable_grad(), current(device):
            yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])


def current(device: str) -> AbstractContextManager:
    """Streams, graphs and Triton's kernels are those of the current GPU, wherever their tensors lie."""
    return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()
