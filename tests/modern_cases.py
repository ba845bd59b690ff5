"""What the tests of the fast network and of compiled steps share, on a CPU and on a GPU."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from coteach.engine.records import Choice
from coteach.methods import METHODS
from coteach.networks.fast import FastCNN
from tiny import PLAN, C, Known, problem


def random_images(n: int = 24, channels: int = 3, height: int = 16, width: int = 16) -> torch.Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(0))


def narrow() -> nn.Module:
    """The fast network for images of 16 × 16, thin enough for a test."""
    return FastCNN(C, 3, 16, width=1 / 16)


def bytes_problem(runs: int = 2) -> Known:
    x = (random_images(100) * 255).byte()
    return replace(problem(60, 40, runs), x_M=x[:60], x_test=x[60:])


def spoilt() -> Known:
    """One sample is not finite: its batch is sat out."""
    p = problem(runs=2)
    x_M = p.x_M.clone()
    x_M[7] = torch.inf
    return replace(p, x_M=x_M)


def assert_notices_what_is_not_finite(finite_and_live: Callable, device: str) -> None:
    """In the loss looked at, in the loss learnt, in the gradient; where a sample is not learnt, nothing."""
    phase = METHODS["standard"].phases(PLAN)[0]
    none = torch.zeros(1, 6, 4, device=device)
    learnt = torch.ones_like(none, dtype=torch.bool)
    learnt[:, :, 3] = False
    for value in (torch.nan, torch.inf, -torch.inf):
        looked_at, loss, sums = none.clone(), none.clone(), none[..., 0].clone()
        looked_at[0, 1, 2] = loss[0, 2, 0] = sums[0, 3] = value
        looked_at[0, 4, 3] = loss[0, 4, 3] = value  # of a sample that nobody learns
        chosen = Choice(looked_at, none.long(), learnt, learnt.float(), learnt, none.long())
        finite, live = finite_and_live(phase, chosen, loss, chosen.weight_NRB, sums)
        assert finite.tolist() == live.tolist() == [[True, False, False, False, True, True]]
