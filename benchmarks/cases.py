"""What is measured: a data set, its network and a short training; a stand-in where the data are not there.

Nothing is downloaded to measure a speed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from coteach import data
from coteach.data import Dataset
from coteach.engine.training import Problem
from coteach.measure import Reference
from coteach.methods import METHODS, Method
from coteach.noise import Noise
from coteach.plan import Plan
from coteach.runs import prepare
from coteach.runs.experiment import OWN, Experiment

# Training and test samples, shape of one, classes.
SHAPES: dict[str, tuple[int, int, tuple[int, int, int], int]] = {
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "cifar100": (50_000, 10_000, (3, 32, 32), 100),
    "tiny-imagenet": (100_000, 10_000, (3, 64, 64), 200),
    **{f"images-{side}": (10_000, 1_000, (3, side, side), 10) for side in (32, 64, 96)},
}
# Nobody's: to know what images of such a size take.
MADE_UP = tuple(name for name in SHAPES if name not in data.DATASETS)


@dataclass(frozen=True)
class Case:
    """One training that both sides do: R runs of a method on a data set, under the paper's recipe or today's.

    λ is 1 - τ from the first epoch and the warm-up one epoch where there is any, so that the few epochs that are
    measured cost what the many of a whole training do.
    """

    dataset: Dataset
    published: bool
    experiment: Experiment
    device: str
    samples: int  # M, the first ones of the data set

    @property
    def runs(self) -> int:
        return len(self.experiment.seeds)

    @property
    def method(self) -> Method:
        return METHODS[self.experiment.method]

    @cached_property
    def noise(self) -> Noise:
        return prepare.draw_noise(self.experiment, self.some_samples)

    @property
    def plan(self) -> Plan:
        usual = prepare.fit_to_images(self.experiment.plan(), self.experiment, self.some_samples)
        short = replace(usual, warmup=min(usual.warmup, 1), ramp=1, estimate_epochs=1)
        return prepare.fit_to_samples(short, self.experiment, self.samples, [])

    @property
    def steps(self) -> int:
        """Mini-batches of an epoch."""
        return self.samples // self.plan.batch_size

    @property
    def build(self) -> Callable[[], nn.Module]:
        return prepare.network_builder(self.experiment, self.dataset, self.device)

    def problem(self) -> tuple[Problem, Reference]:
        return prepare.make_problem([self.experiment], self.some_samples, [self.noise], self.device)

    @cached_property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x, noisy y, x_test, y_test on the host, as the plain loops start from."""
        samples = self.some_samples
        both = samples.tensors("a benchmark")
        train, test = (prepare.as_stored(x, self.experiment, samples, "cpu") for x in both)
        return train, torch.from_numpy(self.noise.labels), test, samples.y_test

    @property
    def some_samples(self) -> Dataset:
        x_train, _ = self.dataset.tensors("a benchmark")
        y_train = self.dataset.y_train
        return replace(self.dataset, x_train=x_train[: self.samples], y_train=y_train[: self.samples])


def make_case(experiment: Experiment, device: str) -> Case:
    name = experiment.dataset
    if name in MADE_UP:
        experiment = replace(experiment, dataset=OWN, noise=experiment.noise or "symmetric")
    experiment.check()
    dataset, published = load_or_stand_in(name, experiment)
    return Case(dataset, published, experiment, device, len(dataset.x_train))


def first_seeds(runs: int) -> tuple[int, ...]:
    return tuple(range(1, runs + 1))


def load_or_stand_in(name: str, experiment: Experiment) -> tuple[Dataset, bool]:
    places = {status.name: status.found for status in data.status(experiment.data_dir)}
    if places.get(name):
        return data.load(name, experiment.data_dir, **prepare.dataset_options(experiment)), True
    if name not in SHAPES:
        raise ValueError(f"{name} is not in the data folder: fetch it first, with coteach data {name}.")
    return stand_in(name, *SHAPES[name]), False


def stand_in(name: str, n_train: int, n_test: int, shape: tuple[int, int, int], n_classes: int) -> Dataset:
    """Random images of the same shape, each class a little brighter in blocks of its own.

    As hard as it is to tell classes four standard deviations apart: easier ones, and two networks would soon agree
    everywhere and the plain loops skip their steps.
    """
    channels, height, width = shape
    generator = torch.Generator().manual_seed(0)
    brighter = round(4 * 256 / 12**0.5 / (channels * height * width / 2) ** 0.5)
    blocks = torch.randint(0, 2, (n_classes, channels, height // 4, width // 4), generator=generator).byte()
    pattern = blocks.repeat_interleave(4, 2).repeat_interleave(4, 3) * brighter

    def draw(n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(0, n_classes, (n,), generator=generator)
        x = torch.randint(0, 256 - brighter, (n, *shape), generator=generator, dtype=torch.uint8)
        for some_x, some_y in zip(x.split(1000), y.split(1000), strict=True):
            some_x += pattern[some_y]
        return x, y

    names = tuple(str(c) for c in range(n_classes))
    return Dataset(name, *draw(n_train), *draw(n_test), names)
