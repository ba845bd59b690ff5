"""What every step of an epoch saw and did, kept on the device until the epoch is over.

A step only writes it down; all counting is done once an epoch, over all steps together.
S steps, N networks, R runs, B samples of a batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Choice:
    """What became of one mini-batch."""

    loss_NRB: Tensor  # the one with a gradient
    prediction_NRB: Tensor
    among_NRB: Tensor  # what the rule picked from
    weight_NRB: Tensor  # of each sample in the network's loss
    learnt_NRB: Tensor  # where that is not 0


class Records:
    """One entry a step."""

    def __init__(self, shape_SNRB: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device | str):
        def empty(dtype: torch.dtype, axes: int = 4) -> Tensor:
            return torch.zeros(shape_SNRB[:axes], dtype=dtype, device=device)

        self.loss_SNRB = empty(dtype)
        self.prediction_SNRB = empty(torch.int32)
        self.among_SNRB = empty(torch.bool)
        self.learnt_SNRB = empty(torch.bool)
        self.finite_SNR = empty(torch.bool, 3)  # its loss and gradient were finite

    def write(self, step_1: Tensor, chosen: Choice, finite_NR: Tensor) -> None:
        """The next entry; `step_1` then points behind it."""
        self.loss_SNRB.index_copy_(0, step_1, chosen.loss_NRB.detach()[None])
        self.prediction_SNRB.index_copy_(0, step_1, chosen.prediction_NRB[None].int())
        self.among_SNRB.index_copy_(0, step_1, chosen.among_NRB[None])
        self.learnt_SNRB.index_copy_(0, step_1, chosen.learnt_NRB[None])
        self.finite_SNR.index_copy_(0, step_1, finite_NR[None])
        step_1 += 1
