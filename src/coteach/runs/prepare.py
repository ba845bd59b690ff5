"""From experiments to what is trained, before a folder is touched: whatever can fail early fails here."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import coteach
from coteach import data, modern, networks, noise
from coteach.augment import AUGMENTS
from coteach.data import Dataset
from coteach.data.base import Samples
from coteach.data.given import read_given_labels
from coteach.engine import Engine
from coteach.engine.batches import View
from coteach.engine.distributed import Processes, join
from coteach.engine.setup import (
    Options,
    Setup,
    hardware,
    normalises_over_the_batch,
    own_device,
    placed,
    refuse_small_batches,
    set_up,
)
from coteach.engine.stream import Stream
from coteach.engine.training import Problem
from coteach.files import read_bounded
from coteach.isolation import generators_restored
from coteach.measure import Reference
from coteach.methods import METHODS, Method
from coteach.noise import Noise
from coteach.noise.given import no_better_than_chance
from coteach.noise.record import GIVEN_KINDS
from coteach.plan import Plan
from coteach.runs import folder as files
from coteach.runs.checkpoint import stored_setup
from coteach.runs.experiment import OWN, Experiment

MOST_OF_A_MATRIX = 2**25  # bytes: a thousand classes, 32 characters a number


@dataclass(frozen=True)
class Prepared:
    """Experiments that run as one stack, and all that their runs need."""

    experiments: list[Experiment]
    dataset: Dataset
    draws: list[Noise]  # the labels of each experiment
    problem: Problem
    reference: Reference
    method: Method
    plan: Plan
    build: Callable[[], nn.Module]
    setup: Setup
    view: View | None
    group: int | None  # runs at a time; None: as many as fit into memory
    notes: list[str]
    processes: Processes  # that train them together

    @property
    def engine(self) -> Engine:
        return self.setup.engine

    @property
    def device(self) -> str:
        return self.setup.device

    def configs(self, group: int) -> list[dict[str, Any]]:
        """What decides the result of each experiment, as its config.toml has it."""
        sha256 = fingerprint(self.dataset)
        by_parts = self.processes.size > 1 and normalises_over_the_batch(network_of(self.build))
        return [
            config(
                e,
                self.plan,
                self.setup,
                self.problem,
                len(self.reference.y_test),
                group,
                sha256,
                draw.sha256,
                self.processes.size if by_parts else None,  # batch norm sees one's own part alone
            )
            for e, draw in zip(self.experiments, self.draws, strict=True)
        ]


def prepare(experiments: list[Experiment], dataset: Dataset | None, view: View | None) -> Prepared:
    first = experiments[0]
    plan, notes = first.plan_and_notes()
    before = stored_setup(first.resume) if first.resume else None
    device = own_device(before.setup.device if before else first.device)
    processes = join(device)
    if dataset is None:
        if first.dataset == OWN:
            raise ValueError("the data set is your own: hand it in with run(experiment, dataset).")
        with processes.leader_first():
            dataset = data.load(first.dataset, first.data_dir, **dataset_options(first))
    plan = fit_to_samples(fit_to_images(plan, first, dataset), first, len(dataset.x_train), notes)
    draws = [draw_noise(experiment, dataset) for experiment in experiments]
    problem, reference = make_problem(experiments, dataset, draws, device)
    build = network_builder(first, dataset, device)
    refuse_image_changes(plan, dataset)
    method = METHODS[first.method]
    network = network_of(build)  # fails here if it does not fit the data
    refuse_small_batches(network, plan, processes.size)
    if processes.size > 1 and method.in_rounds:
        raise ValueError(f"{method.name} trains in one process: start it without torchrun.")
    if method.views and view is None:
        refuse_views_of_nothing(dataset, method.networks)
    for experiment, draw in zip(experiments, draws, strict=True):
        if draw.kind in GIVEN_KINDS and no_better_than_chance(draw, dataset.y_train.numpy()):
            whose = experiment.labels or dataset.name
            notes.append(
                f"the labels of {whose} agree with the truth no more than by chance: are they in its order?"
            )
    if first.dataset == OWN and first.tau is None and draws[0].kind == "none":
        notes.append("no labels are flipped and tau is not given, so every label is taken for right: give tau")
    if stays_on_host(dataset, problem):
        notes.append("the samples would fill more than half of the free memory of the device: they are streamed")
    if before:
        setup, group = replace(before.setup, device=device, deterministic=first.deterministic), before.group
    else:
        setup = set_up(
            network, len(problem.seeds), method, plan, len(dataset.x_train), device, engine_options(first)
        )
        group = first.group
    return Prepared(
        experiments, dataset, draws, problem, reference, method, plan, build, setup, view, group,
        [line for line in (dataset.note, *notes) if line], processes,
    )  # fmt: skip


def engine_options(experiment: Experiment) -> Options:
    return Options(experiment.precision, experiment.stack, experiment.compile, experiment.deterministic)


def network_of(build: Callable[[], nn.Module]) -> nn.Module:
    """One network, without touching torch's generator."""
    with generators_restored():
        return build()


def named_after(dataset: Dataset, experiment: Experiment) -> Experiment:
    """The recipe follows the data that are handed in: a known name's, or one for a user's own."""
    if dataset.name in data.DATASETS:
        return replace(experiment, dataset=dataset.name)
    experiment = replace(experiment, dataset=OWN)
    if experiment.network or experiment.is_modern:
        return experiment
    words = dataset.vectors is not None
    return replace(experiment, network=networks.default_for(dataset.x_train.shape[1:], words))


def refuse_views_of_nothing(dataset: Dataset, networks: int) -> None:
    if dataset.x_train.shape[-1] < networks:
        raise ValueError(
            "cotraining halves the last axis of a sample, which has length 1 here: give views of your own."
        )


def n_epochs(experiment: Experiment) -> int:
    """Epochs of one run, for a progress bar."""
    return METHODS[experiment.method].n_epochs(experiment.plan())


def dataset_options(experiment: Experiment) -> dict[str, Any]:
    options = dict(experiment.usual.data)
    if experiment.usual.own_noise is not None:
        options |= {"rate": experiment.noise_share, "seed": experiment.noise_seed}
    return options


def draw_noise(experiment: Experiment, dataset: Dataset) -> noise.Noise:
    """The labels that one experiment learns from, and which of them are right."""
    y = dataset.y_train.numpy()
    if experiment.labels is not None or dataset.given is not None:
        return as_given(experiment, dataset, y)
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


def as_given(experiment: Experiment, dataset: Dataset, y: np.ndarray) -> noise.Noise:
    """Labels that come in a file, or with the data set."""
    if experiment.noise_kind != "none":
        raise ValueError(
            f"{dataset.name} comes with given labels: leave --noise out, they are learnt from as they are."
        )
    if experiment.labels is None:
        assert dataset.given is not None
        return noise.of_labels(
            dataset.given, y, dataset.n_classes, "human" if experiment.comes_labelled else "given"
        )
    if dataset.given is not None or dataset.outside is not None:
        raise ValueError(f"{dataset.name} comes with its own wrong labels: leave --labels out.")
    labels = read_given_labels(experiment.labels, len(y), dataset.class_names)
    return noise.of_labels(labels, y, dataset.n_classes)


def truth_is_known(experiment: Experiment, draw: Noise) -> bool:
    """Not of a user's own labels, which are taken as they are, unless the wrong ones came apart from them."""
    return experiment.dataset != OWN or draw.kind != "none"


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
) -> tuple[Problem, Reference]:
    """The data on the device, with a row of labels for each run; and what the runs are measured against."""
    runs = [(e, draw, seed) for e, draw in zip(experiments, draws, strict=True) for seed in e.seeds]
    augment = experiments[0].augment
    x_M, x_test = placed(samples_on_host(dataset, experiments[0]), device)
    problem = Problem(
        x_M=x_M,
        y_RM=torch.from_numpy(np.stack([draw.labels for _, draw, _ in runs])).to(device),
        n_classes=dataset.n_classes,
        noise_rates=[e.tau if e.tau is not None else draw.nominal_rate for e, draw, _ in runs],
        seeds=[seed for *_, seed in runs],
        matrix_RCC=torch.from_numpy(np.stack([draw.matrix for _, draw, _ in runs])),
        augment=AUGMENTS[augment] if augment else None,
    )
    known = all(truth_is_known(e, draw) for e, draw, _ in runs)
    clean_RM = torch.from_numpy(np.stack([draw.clean for _, draw, _ in runs])).to(device) if known else None
    return problem, Reference(x_test, dataset.y_test.to(device), clean_RM)


def samples_on_host(dataset: Dataset, experiment: Experiment) -> list[torch.Tensor | Samples]:
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


def stays_on_host(dataset: Dataset, problem: Problem) -> bool:
    """Whether samples that were handed in as a whole did not fit the device."""
    return isinstance(problem.x_M, Stream) and not isinstance(dataset.x_train, Samples)


def network_builder(experiment: Experiment, dataset: Dataset, device: str) -> Callable[[], torch.nn.Module]:
    vectors = None if dataset.vectors is None else dataset.vectors.to(device)
    shape = tuple(dataset.x_train.shape[1:])
    if experiment.augment and (side := AUGMENTS[experiment.augment].size):
        shape = (shape[0], side, side)

    def build() -> torch.nn.Module:
        return networks.build(
            experiment.network_name,
            shape=shape,
            n_classes=dataset.n_classes,
            vectors=vectors,
            **network_options(experiment, shape, device),
        )

    return build


def network_options(experiment: Experiment, shape: tuple[int, ...], device: str) -> dict[str, Any]:
    """What the modern network is made with; the others are as they are."""
    if experiment.network_name != modern.MODERN_NETWORK:
        return {}
    width = modern.modern_width(device) if experiment.width is None else experiment.width
    usual = experiment.is_modern and modern.mirrors(shape[0])
    mirror = usual if experiment.mirror is None else experiment.mirror == "yes"
    method = METHODS[experiment.method]  # a half view has no mirror image, and features are of one image
    return {"width": width, "mirror": mirror and not method.views and not method.in_rounds}


def fit_to_images(plan: Plan, experiment: Experiment, dataset: Dataset) -> Plan:
    """The modern recipe for images of this size and number; what was asked for stays."""
    shape = dataset.x_train.shape[1:]
    if not experiment.is_modern:
        return plan
    if len(shape) != 3:
        raise ValueError(
            f"the modern recipe is for images, and samples of {dataset.name} have shape {tuple(shape)}: "
            "give --recipe paper."
        )
    batch = experiment.batch_size or modern.modern_batch(len(dataset.x_train))
    fitted = modern.modern_plan(plan.epochs, batch, min(shape[1:]), modern.mirrors(shape[0]))
    free = ["batch_size", "mirror", "shift", "cutout"] + ["lr"] * (plan.optimizer == "sgd")
    return replace(plan, **{name: fitted[name] for name in free if getattr(experiment, name) is None})


def refuse_image_changes(plan: Plan, dataset: Dataset) -> None:
    shape = dataset.x_train.shape[1:]
    changes = [name for name in ("mirror", "shift", "cutout") if getattr(plan, name)]
    if changes and (len(shape) != 3 or dataset.vectors is not None):
        raise ValueError(
            f"{changes[0]} is for images, and samples of {dataset.name} have shape {tuple(shape)}: "
            f"leave --{changes[0]} out."
        )
    for name in ("shift", "cutout"):
        if (pixels := getattr(plan, name)) and pixels >= min(shape[1:]):
            raise ValueError(f"{name} is {pixels} of {min(shape[1:])} pixels: give a smaller one.")


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


# ---- what config.toml says ------------------------------------------------------------------------------------


def config(
    experiment: Experiment,
    plan: Plan,
    setup: Setup,
    problem: Problem,
    n_test: int,
    group: int,
    data_sha256: str,
    noise_sha256: str,
    processes: int | None = None,
) -> dict[str, Any]:
    """Everything that decides the result, with the choices that were made for the user."""
    network = network_options(experiment, tuple(problem.x_M.shape[1:]), setup.device)
    return {
        "experiment": files.described(experiment),
        "plan": asdict(plan)
        | {"fidelity": str(plan.fidelity), "network": experiment.network_name}
        | {name: value for name, value in network.items() if name != "mirror"},  # the plan's, or not for its views
        "engine": {
            "device": setup.device,
            **setup.engine.table(),
            "streamed": isinstance(problem.x_M, Stream),
            "group": group,
            "processes": processes,
        },
        "data": {
            "samples": len(problem.x_M),
            "test_samples": n_test,
            "classes": problem.n_classes,
            "samples_left_out_of_each_epoch": left_over(len(problem.x_M), plan),
            "sha256": data_sha256,
            "noise_sha256": noise_sha256,
        },
        "versions": {"coteach": coteach.__version__, "torch": torch.__version__, "numpy": np.__version__},
        "hardware": {"name": hardware(setup.device), "threads": setup.threads},
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
    """Samples that an epoch does not see: those held out, and a rest that fills no batch."""
    learnt = samples - plan.n_held_out(samples)
    return samples - min(learnt, plan.steps(learnt) * plan.batch_size)
