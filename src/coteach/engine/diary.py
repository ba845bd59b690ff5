"""What every step of an epoch saw and did, kept on the device until the epoch is over.

A step only writes it down; all counting is done once an epoch, over all steps together.
S steps, N networks, R runs, B samples of a batch.
"""

import torch
from torch import Tensor

from coteach.rules import Batch


class Diary:
    """One entry a step."""

    def __init__(self, shape_SNRB: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device | str):
        def empty(dtype: torch.dtype, axes: int = 4) -> Tensor:
            return torch.zeros(shape_SNRB[:axes], dtype=dtype, device=device)

        self.loss_SNRB = empty(dtype)
        self.prediction_SNRB = empty(torch.int32)
        self.among_SNRB = empty(torch.bool)  # what the rule picked from
        self.learnt_SNRB = empty(torch.bool)  # what weighed in the network's loss
        self.sound_SNR = empty(torch.bool, 3)  # its loss and gradient were finite

    def write(self, step_1: Tensor, seen: Batch, among_NRB: Tensor, learnt_NRB: Tensor, sound_NR: Tensor) -> None:
        self.loss_SNRB.index_copy_(0, step_1, seen.loss_NRB[None])
        self.prediction_SNRB.index_copy_(0, step_1, seen.prediction_NRB[None].int())
        self.among_SNRB.index_copy_(0, step_1, among_NRB[None])
        self.learnt_SNRB.index_copy_(0, step_1, learnt_NRB[None])
        self.sound_SNR.index_copy_(0, step_1, sound_NR[None])
