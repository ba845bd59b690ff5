"""What changes from step to step and from epoch to epoch, as tensors: a captured step must see the change."""

import torch
from torch import Tensor

from coteach.plan import Plan


class Clock:
    """Where a training stands: epoch and step, and what its plan says for them. R runs."""

    def __init__(self, plan: Plan, noise_rates: list[float], device: torch.device | str):
        self.plan, self.noise_rates = plan, noise_rates
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        self.step_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self.keep_R1 = torch.zeros(len(noise_rates), 1, dtype=torch.float64, device=device)  # λ(e)
        self.lr = torch.zeros((), dtype=torch.float64, device=device)
        self.beta1 = torch.zeros((), dtype=torch.float64, device=device)

    def set_epoch(self, epoch: int) -> None:
        keep = [[self.plan.keep_rate(epoch, tau)] for tau in self.noise_rates]
        self.keep_R1.copy_(torch.tensor(keep, dtype=torch.float64))
        self.epoch.fill_(epoch)
        self.step_1.zero_()
        self.lr.fill_(self.plan.learning_rate(epoch))
        self.beta1.fill_(self.plan.beta1(epoch))

    @property
    def early(self) -> Tensor:
        """Whether the authors' way out of an empty batch is still open (row 3); a tensor of one bool."""
        return self.epoch * self.step_1 < 5000
