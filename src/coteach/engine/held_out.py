"""Samples that are held out, and for each run the weights of the epoch that fits their given labels best.

N networks, R runs, M samples, V of them held out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from coteach import draws
from coteach.engine.stack import Stack, Tensors, fill
from coteach.engine.stream import Stream, part
from coteach.plan import Plan

if TYPE_CHECKING:
    from coteach.engine.training import Problem


@dataclass(frozen=True)
class HeldOut:
    """Samples that no network learns from, the same for every run, with the labels that each run was given."""

    x_V: Tensor | Stream
    y_RV: Tensor
    held_V: Tensor  # their numbers among all samples, …
    learnt_M: Tensor  # … and those of the others


def hold_out(problem: "Problem", plan: Plan) -> HeldOut | None:
    """As many samples as the plan asks for, at random; which ones depends on no seed."""
    samples = len(problem.x_M)
    n = plan.n_held_out(samples)
    if not n:
        return None
    if n >= samples:
        raise ValueError(f"held_out is {plan.held_out:g}, all of {samples} samples: give a smaller share.")
    order_M = draws.permutation(draws.keys([0], "held out", device=problem.y_RM.device), samples)[0]
    held_V, learnt_M = order_M[:n].sort().values, order_M[n:].sort().values
    return HeldOut(part(problem.x_M, held_V), problem.y_RM[:, held_V], held_V, learnt_M)


class BestWeights:
    """The weights of each run's best epoch.

    Between epochs the stack holds these: they are tested, estimated from and saved. The latest weights wait here,
    and go on learning in the next epoch.
    """

    def __init__(self, stack: Stack):
        self.stack = stack
        self.loss_R = torch.full(stack.shape[1:], torch.inf, dtype=torch.float64, device=stack.theta_NRP.device)
        self.latest, self.best = ({name: t.clone() for name, t in stack.learnt().items()} for _ in range(2))

    def go_on(self) -> None:
        """Give the stack its latest weights back."""
        self.stack.put(self.latest)

    def judge(self, loss_R: Tensor) -> None:
        """Take the weights of the last epoch where their loss on held-out labels is the lowest so far."""
        better_R = loss_R < self.loss_R  # nan is not
        self.loss_R.copy_(torch.where(better_R, loss_R, self.loss_R))
        for name, now in self.stack.learnt().items():
            better = better_R.reshape(-1, *[1] * (now.dim() - 2))
            self.latest[name].copy_(now)
            self.best[name].copy_(torch.where(better, now, self.best[name]))
        self.stack.put(self.best)

    def state(self) -> dict[str, Tensor]:
        """The best weights are the stack's own state."""
        return {"loss": self.loss_R} | {f"latest.{name}": t for name, t in self.latest.items()}

    def load(self, saved: Tensors) -> None:
        fill(self.state(), saved)
        fill(self.best, self.stack.learnt())
