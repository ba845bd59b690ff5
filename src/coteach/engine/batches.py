"""The training set on the device, as stored, and the mini-batches of each run in its own order.

M samples, R runs, N networks, B samples of a batch, S steps of an epoch.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from coteach import draws
from coteach.augment import Augment
from coteach.engine.distributed import ONE_PROCESS, Processes

View = Callable[[Tensor, int], Tensor]  # (x_RB…, N) → x_NRB…: what each network sees of a sample


class Batches:
    """Samples x_M… with each run's own labels y_RM, dealt in mini-batches of B.

    An epoch has so many `steps`; samples beyond them are left out, others in each epoch. Of several processes
    each takes the samples of its own part of a mini-batch, and the labels of the whole.
    """

    def __init__(
        self,
        x_M: Tensor,
        y_RM: Tensor,
        seeds: list[int],
        batch_size: int,
        steps: int,
        dtype: torch.dtype,
        augment: Augment | None = None,
        processes: Processes = ONE_PROCESS,
    ):
        self.x_M, self.y_RM, self.seeds, self.dtype, self.augment = x_M, y_RM, seeds, dtype, augment
        self.size = min(batch_size, len(x_M))
        self.per_epoch = steps
        self.mine = processes.part(self.size)
        # filled anew for each epoch, always in the same place, where a captured step looks for them
        self.order_SRB = y_RM.new_zeros(self.per_epoch, len(seeds), self.size)
        self.key_SR1 = y_RM.new_zeros(self.per_epoch, len(seeds), 1)

    def deal(self, epoch: int) -> Iterator[int]:
        """The steps of an epoch, each run's samples in a new order: step 2 of Algorithm 1."""
        self.shuffle(epoch)
        yield from range(self.per_epoch)

    def shuffle(self, epoch: int) -> None:
        order_RM = draws.permutation(self._keys("shuffle", epoch), len(self.x_M))
        order_RM = order_RM[:, : self.per_epoch * self.size]
        self.order_SRB.copy_(order_RM.unflatten(1, (self.per_epoch, self.size)).transpose(0, 1))
        if self.augment:
            steps = [draws.keys(self.seeds, "augment", epoch, step) for step in range(self.per_epoch)]
            self.key_SR1.copy_(torch.stack(steps))

    def take(self, step_1: Tensor) -> tuple[Tensor, Tensor]:
        """x_RB… as the networks take it, and y_RB: step 3 of Algorithm 1."""
        index_RB = self.order_SRB.index_select(0, step_1)[0]
        x_RB = self.stored(index_RB[:, self.mine])
        if self.augment:
            key_R1 = self.key_SR1.index_select(0, step_1)[0]
            u = draws.uniform(key_R1, self.size * self.augment.numbers)
            u_RBK = u.view(*index_RB.shape, self.augment.numbers)
            x_RB = self.augment.train(x_RB, u_RBK[:, self.mine])
        return as_input(x_RB, self.dtype), self.y_RM.gather(1, index_RB)

    def stored(self, index_RB: Tensor) -> Tensor:
        """x_RB… as it lies in the data set."""
        # index_select copies whole rows; x_M[index_RB] goes number by number, ten times slower on a CPU
        return self.x_M.index_select(0, index_RB.flatten()).unflatten(0, index_RB.shape)

    def in_batch_order(self, of_RM: Tensor) -> Tensor:
        """What belongs to each sample, in the order in which the samples were last dealt (SRB)."""
        order_RM = self.order_SRB.transpose(0, 1).flatten(1)
        return of_RM.gather(1, order_RM).unflatten(1, (self.per_epoch, self.size)).transpose(0, 1)

    def _keys(self, purpose: str, epoch: int) -> Tensor:
        return draws.keys(self.seeds, purpose, epoch, device=self.y_RM.device)


def as_input(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Stored samples as a network takes them: pixels / 255, features in its precision, tokens as they are."""
    if x.dtype == torch.uint8:
        return x / 255 if dtype == torch.get_default_dtype() else x.to(dtype) / 255
    return x.to(dtype) if x.is_floating_point() else x


def evaluation_input(x_B: Tensor, dtype: torch.dtype, augment: Augment | None, runs: int) -> Tensor:
    """x_RB…: the same samples for every run, without anything random."""
    x_B = as_input(augment.test(x_B) if augment else x_B, dtype)
    return x_B.expand(runs, *x_B.shape)


def same_view(x_RB: Tensor, networks: int) -> Tensor:
    """x_NRB…: every network sees the whole sample."""
    return x_RB.expand(networks, *x_RB.shape)


def half_views(x_RB: Tensor, networks: int) -> Tensor:
    """x_NRB…: network n sees the n-th part of the last axis (features, image columns, words), zeros elsewhere."""
    width = x_RB.shape[-1]
    part = torch.arange(width, device=x_RB.device) * networks // width
    return torch.stack([torch.where(part == n, x_RB, 0) for n in range(networks)])
