"""Adam and SGD on theta_NRP, where a single run of the stack can sit a step out.

torch's own cannot: one tensor has one step count, and skipping one run would skip all. A run that sits out keeps
its weights, its moments and its step count, exactly as if the step had not been. N networks, R runs, P parameters.
"""

import torch
from torch import Tensor


class Adam:
    """Adam (Kingma and Ba, 2015) with L2 weight decay, in torch's order of operations."""

    beta2, eps = 0.999, 1e-8

    def __init__(self, theta_NRP: Tensor, weight_decay: float = 0.0):
        self.theta_NRP, self.weight_decay = theta_NRP.detach(), weight_decay
        self.m_NRP, self.v_NRP = torch.zeros_like(self.theta_NRP), torch.zeros_like(self.theta_NRP)
        self.steps_NR1 = torch.zeros(*theta_NRP.shape[:2], 1, dtype=torch.float64, device=theta_NRP.device)

    def step(self, gradient_NRP: Tensor, live_NR1: Tensor, lr: float, beta1: float) -> None:
        """Move the runs that are `live`."""
        gradient = settled(gradient_NRP, live_NR1, self.theta_NRP, self.weight_decay)
        live = live_NR1.to(self.steps_NR1)
        self.steps_NR1 += live
        steps = self.steps_NR1.clamp(min=1)
        step_size = live * lr / (1 - beta1**steps)
        scale = (1 - self.beta2**steps).sqrt()
        self.m_NRP.lerp_(gradient, (live * (1 - beta1)).to(gradient))
        self.v_NRP.lerp_(gradient.square(), (live * (1 - self.beta2)).to(gradient))
        denominator = self.v_NRP.sqrt().div_(scale.to(gradient)).add_(self.eps)
        self.theta_NRP -= step_size.to(gradient) * self.m_NRP / denominator


class SGD:
    """Stochastic gradient descent with momentum and L2 weight decay, as torch defines them."""

    def __init__(self, theta_NRP: Tensor, weight_decay: float = 0.0, momentum: float = 0.9):
        self.theta_NRP, self.weight_decay, self.momentum = theta_NRP.detach(), weight_decay, momentum
        self.m_NRP = torch.zeros_like(self.theta_NRP)

    def step(self, gradient_NRP: Tensor, live_NR1: Tensor, lr: float, beta1: float = 0.0) -> None:
        """Move the runs that are `live`; β1 is Adam's and not looked at."""
        gradient = settled(gradient_NRP, live_NR1, self.theta_NRP, self.weight_decay)
        moved = self.momentum * self.m_NRP + gradient
        self.m_NRP.copy_(torch.where(live_NR1, moved, self.m_NRP))
        self.theta_NRP -= live_NR1 * lr * self.m_NRP


def settled(gradient_NRP: Tensor, live_NR1: Tensor, theta_NRP: Tensor, weight_decay: float) -> Tensor:
    """The gradient with weight decay, zero where a run sits out: its own may be nan, and 0 · nan is nan."""
    if weight_decay:
        gradient_NRP = gradient_NRP + weight_decay * theta_NRP
    return torch.where(live_NR1, gradient_NRP, 0)
