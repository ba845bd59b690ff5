"""A torch optimiser over theta_NRP in which a single network of the stack can sit a step out.

Each network is a row of its own to the optimiser, with its own step count; a row without a gradient is left alone,
weights, moments and count, exactly as if the step had not been. N networks, R runs, P parameters.
"""

import torch
from torch import Tensor

from coteach.plan import Plan


class Optimiser:
    """Adam or SGD as the plan says, one state for each network."""

    def __init__(self, theta_NRP: Tensor, plan: Plan):
        self.rows = [row.requires_grad_() for row in theta_NRP.detach().flatten(0, 1)]
        self.adam = plan.optimizer == "adam"
        if self.adam:
            self.torch = torch.optim.Adam(self.rows, plan.lr, weight_decay=plan.weight_decay, fused=True)
        else:
            # not fused: that SGD cannot take rows of which some have stepped before and others have not
            self.torch = torch.optim.SGD(self.rows, plan.lr, plan.momentum, weight_decay=plan.weight_decay)

    def step(self, gradient_NRP: Tensor, live_NR: Tensor, lr: float, beta1: float) -> None:
        """Move the networks that are `live`."""
        for row, gradient, live in zip(
            self.rows, gradient_NRP.flatten(0, 1), live_NR.flatten().tolist(), strict=True
        ):
            row.grad = gradient if live else None
        for group in self.torch.param_groups:
            group["lr"] = lr
            if self.adam:
                group["betas"] = (beta1, group["betas"][1])
        self.torch.step()
