"""A problem small enough to be trained in a tenth of a second, in float64, and networks for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coteach.engine import Engine
from coteach.engine.stream import Stream
from coteach.engine.training import Epoch, Problem, Training
from coteach.fidelity import AUTHORS, PAPER
from coteach.iterative import fit_iterative
from coteach.measure import Reference, measure
from coteach.methods import METHODS, Method
from coteach.plan import Plan
from coteach.train import fit

F, C = 8, 3
PLAN = Plan(epochs=6, batch_size=16, warmup=2, ramp=3, lr=0.01, decay_start=3)
INGREDIENTS: dict[str, dict[str, Any]] = {
    "nesterov": {"optimizer": "sgd", "lr": 0.05, "nesterov": True},
    "decoupled decay, sgd": {"optimizer": "sgd", "lr": 0.05, "weight_decay": 0.5, "decoupled_decay": True},
    "decoupled decay, adam": {"weight_decay": 0.5, "decoupled_decay": True},
    "one cycle": {"one_cycle": 0.3},
    "label smoothing": {"label_smoothing": 0.2},
    "mixup": {"mixup": 0.7},
    "mirror": {"mirror": True},
    "shift": {"shift": 2},
    "cutout": {"cutout": 3},
    "weak selection": {"cutout": 3, "weak_selection": True},
    "lookahead": {"lookahead": 2},
    "strong view": {"strong_view": 2},
    "strong view, cut": {"strong_view": 1, "cutout": 3},
    "mixture": {"mixture": True},
    "guesses": {"guess_weight": 0.7},
    "guesses on a strong view": {"guess_weight": 0.7, "guess_ramp": 2, "temperature": 0.3, "strong_view": 1},
    "memory": {"memory_weight": 3.0},
    "memory that fades slowly": {"memory_weight": 1.0, "memory_decay": 0.9},
    "class balance": {"class_balance": 2.0},
}
EVERYTHING = replace(
    PLAN, epochs=4, optimizer="sgd", lr=0.05, momentum=0.85, nesterov=True, weight_decay=0.1,
    decoupled_decay=True, one_cycle=0.3, label_smoothing=0.2, mixup=0.7, mirror=True, shift=1, cutout=3,
    weak_selection=True, lookahead=2,
)  # fmt: skip
FIDELITIES = {"paper": PAPER, "authors": AUTHORS}
BY_RULE = [name for name, method in METHODS.items() if not method.in_rounds]


@dataclass(frozen=True, kw_only=True)
class Known(Problem):
    """A problem with its test set and the truth about its labels."""

    x_test: Tensor | Stream
    y_test: Tensor
    clean_RM: Tensor

    @property
    def reference(self) -> Reference:
        return Reference(self.x_test, self.y_test, self.clean_RM)

    def rows(self, epoch: Epoch) -> list[dict]:
        return measure(epoch, self.reference)


def problem(n: int = 60, n_test: int = 40, runs: int = 3, flips: float = 0.3) -> Known:
    """Three clouds that overlap; each run has its own wrong labels, noise rate and seed."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(C, F, generator=generator, dtype=torch.float64)
    truth = torch.randint(0, C, (n + n_test,), generator=generator)
    x = centres[truth] + torch.randn(n + n_test, F, generator=generator, dtype=torch.float64)
    wrong_RM = torch.rand(runs, n, generator=generator) < flips
    y_RM = torch.where(wrong_RM, (truth[:n] + 1) % C, truth[:n])
    return Known(
        x_M=x[:n],
        y_RM=y_RM,
        x_test=x[n:],
        y_test=truth[n:],
        n_classes=C,
        noise_rates=[0.3, 0.45, 0.2][:runs],
        seeds=[1, 2, 30][:runs],
        clean_RM=~wrong_RM,
        matrix_RCC=torch.stack([(1 - f) * torch.eye(C) + f / C for f in (0.3, 0.4, 0.5)][:runs]).double(),
    )


def pictures(n: int = 60, n_test: int = 40, runs: int = 3) -> Known:
    """The same labels for images of two channels and 5 × 6 pixels."""
    p = problem(n, n_test, runs)
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(C, 2, 5, 6, generator=generator, dtype=torch.float64)
    truth = torch.cat([torch.where(p.clean_RM[0], p.y_RM[0], (p.y_RM[0] - 1) % C), p.y_test])
    x = patterns[truth] + torch.randn(n + n_test, 2, 5, 6, generator=generator, dtype=torch.float64)
    return replace(p, x_M=x[:n], x_test=x[n:])


def one_run(p: Known, run: int) -> Known:
    only = slice(run, run + 1)
    return replace(
        p,
        y_RM=p.y_RM[only],
        noise_rates=p.noise_rates[only],
        seeds=p.seeds[only],
        clean_RM=p.clean_RM[only],
        matrix_RCC=None if p.matrix_RCC is None else p.matrix_RCC[only],
    )


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(F, 10), nn.ReLU(), nn.Linear(10, C))


def normed() -> nn.Module:
    """Nothing that round-off decides, which differs from machine to machine.

    No bias before the batch norm: its gradient is pure round-off, which Adam scales up until 1e-9 is passed. And
    no ReLU after it, by which two samples of a class can come to have the same outlier factor.
    """
    return nn.Sequential(nn.Linear(F, 10, bias=False), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, C))


def convolutional() -> nn.Module:
    """On the same eight numbers, as an image of 2 × 4; no bias before the batch norm here either."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, C),
    )


def pictured() -> nn.Module:
    """For images of 5 × 6 pixels."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(120, C),
    )


def opinionated() -> nn.Module:
    """Predicts class 0 for everything, whatever its seed: no two of them disagree."""
    network = mlp()
    with torch.no_grad():
        network[2].bias.copy_(torch.tensor([30.0, 0.0, 0.0]))
    return network


def train(p: Known, method: Method, plan: Plan, build: Callable[[], nn.Module], **options) -> Training:
    """By a rule, or in rounds: the one method that is a program of its own."""
    if method.in_rounds:
        return fit_iterative(p, plan, build, **options)
    return fit(p, method, plan, build, **options)


def run_fit(
    p: Known, method: Method, plan: Plan, build: Callable[[], nn.Module] = mlp, batched: bool | None = None
) -> tuple[Training, list[list[dict]]]:
    """The training, and for each run its rows, one an epoch."""
    epochs: list[list[dict]] = []
    engine = Engine(torch.float64, batched)
    training = train(p, method, plan, build, engine=engine, on_epoch=lambda e: epochs.append(p.rows(e)))
    return training, [list(rows) for rows in zip(*epochs, strict=True)]


def assert_same_rows(found: list[dict], expected: list[dict]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["events"] == theirs["events"], mine["epoch"]
        for key in mine.keys() - {"events"}:
            assert mine[key] == pytest.approx(theirs[key], abs=1e-9), (mine["epoch"], key)


def assert_same_weights(found: nn.Module, expected: nn.Module) -> None:
    mine, theirs = found.state_dict(), expected.state_dict()
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-9, atol=1e-9)


def events(rows: list[list[dict]]) -> set[str]:
    return {event for run in rows for row in run for event in row["events"]}
