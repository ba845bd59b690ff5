"""The training set on the device, as stored, and the mini-batches of each run in its own order.

M samples, R runs, N networks, B samples of a batch.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from coteach import draws


class Batches:
    """Samples x_M… with each run's own labels y_RM, dealt in mini-batches of B.

    The remainder of an epoch that does not fill a batch is dropped when there is more than one batch.
    """

    def __init__(self, x_M: Tensor, y_RM: Tensor, seeds: list[int], batch_size: int, dtype: torch.dtype):
        self.x_M, self.y_RM, self.seeds, self.dtype = x_M, y_RM, seeds, dtype
        self.size = min(batch_size, len(x_M))
        self.per_epoch = len(x_M) // self.size

    def deal(self, epoch: int) -> Iterator[Tensor]:
        """index_RB of each mini-batch: steps 2 and 3 of Algorithm 1."""
        key_R1 = draws.keys(self.seeds, "shuffle", epoch, device=self.x_M.device)
        order_RM = draws.permutation(key_R1, len(self.x_M))
        for step in range(self.per_epoch):
            yield order_RM[:, step * self.size : (step + 1) * self.size]

    def fetch(self, index_RB: Tensor) -> tuple[Tensor, Tensor]:
        """x_RB… as the networks take it, and y_RB."""
        return as_input(self.x_M[index_RB], self.dtype), self.y_RM.gather(1, index_RB)


def as_input(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Stored samples as a network takes them: pixels / 255, features in its precision, tokens as they are."""
    if x.dtype == torch.uint8:
        return x.to(dtype) / 255
    return x.to(dtype) if x.is_floating_point() else x


def same_view(x_RB: Tensor, networks: int) -> Tensor:
    """x_NRB…: every network sees the whole sample."""
    return x_RB.expand(networks, *x_RB.shape)


def half_views(x_RB: Tensor, networks: int) -> Tensor:
    """x_NRB…: network n sees the n-th part of the last axis (features, image columns, words), zeros elsewhere."""
    width = x_RB.shape[-1]
    part = torch.arange(width, device=x_RB.device) * networks // width
    return torch.stack([torch.where(part == n, x_RB, 0) for n in range(networks)])


View = Callable[[Tensor, int], Tensor]
