"""What changes from step to step and from epoch to epoch, as tensors: a captured step must see the change."""

import torch
from torch import Tensor

from coteach.plan import Plan


class Clock:
    """Where a training stands: epoch and step, and what its plan says for them. R runs, S steps of an epoch."""

    def __init__(self, plan: Plan, noise_rates: list[float], device: torch.device | str, steps: int = 1):
        self.plan, self.noise_rates, self.steps = plan, noise_rates, steps
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        self.step_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self.keep_R1 = torch.zeros(len(noise_rates), 1, dtype=torch.float64, device=device)  # λ(e)
        self.lr_S = torch.zeros(steps if plan.one_cycle else 1, dtype=torch.float64, device=device)
        self.beta1 = torch.zeros((), dtype=torch.float64, device=device)

    def set_epoch(self, epoch: int) -> None:
        keep = [[self.plan.keep_rate(epoch, tau)] for tau in self.noise_rates]
        self.keep_R1.copy_(torch.tensor(keep, dtype=torch.float64))
        self.epoch.fill_(epoch)
        self.step_1.zero_()
        rates = [self.plan.learning_rate(epoch, step / self.steps) for step in range(len(self.lr_S))]
        self.lr_S.copy_(torch.tensor(rates, dtype=torch.float64))
        self.beta1.fill_(self.plan.beta1(epoch))

    @property
    def lr(self) -> Tensor:
        """The learning rate of the present step."""
        return self.lr_S.index_select(0, self.step_1)[0] if self.plan.one_cycle else self.lr_S[0]

    @property
    def done(self) -> Tensor:
        """The share of all steps that will have been taken after the present one."""
        return ((self.epoch - 1) * self.steps + self.step_1[0] + 1).double() / (self.plan.epochs * self.steps)

    @property
    def guessing(self) -> Tensor:
        """λ_u of the present step: it rises in a straight line once the warm-up is over."""
        plan = self.plan
        since = (self.epoch - 1 - plan.warmup) + self.step_1[0].double() / self.steps
        share = (since / plan.guess_ramp).clamp(0, 1) if plan.guess_ramp else (since >= 0).double()
        return plan.guess_weight * share

    @property
    def early(self) -> Tensor:
        """Whether the authors' way out of an empty batch is still open (row 3); a tensor of one bool."""
        return self.epoch * self.step_1 < 5000
