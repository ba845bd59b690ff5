"""The training set on the device, as stored, and the mini-batches of each run in its own order.

M samples, R runs, N networks, B samples of a batch, S steps of an epoch.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coteach import draws
from coteach.augment import Augment, cutouts, shifts, strong_changes
from coteach.engine.distributed import ONE_PROCESS, Processes
from coteach.plan import Plan

View = Callable[[Tensor, int], Tensor]  # (x_RB…, N) → x_NRB…: what each network sees of a sample


class Batches:
    """Samples x_M… with each run's own labels y_RM, dealt in mini-batches of B.

    An epoch has so many `steps`; samples beyond them are left out, others in each epoch. Of several processes
    each takes the samples of its own part of a mini-batch, and the labels of the whole. The networks look at
    samples as `augment` makes them, and learn from what `strong` makes of these, and from mixtures if `mixup`.
    Only the samples numbered in `learnt_M` are dealt, if it is given.
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
        strong: Augment | None = None,
        mixup: float = 0.0,
        views: int = 1,
        learnt_M: Tensor | None = None,
    ):
        self.x_M, self.y_RM, self.seeds, self.dtype = x_M, y_RM, seeds, dtype
        self.augment, self.strong, self.mixup, self.views = augment, strong, mixup, views
        self.learnt_M, self.samples = learnt_M, len(x_M) if learnt_M is None else len(learnt_M)
        self.size = min(batch_size, self.samples)
        self.per_epoch = steps
        self.mine = processes.part(self.size)
        # filled anew for each epoch, always in the same place, where a captured step looks for them
        self.order_SRB = y_RM.new_zeros(self.per_epoch, len(seeds), self.size)
        keys_VSR1 = y_RM.new_zeros(2, views, self.per_epoch, len(seeds), 1)
        self.key_VSR1, self.strong_key_VSR1 = keys_VSR1
        if self.mixup:
            shape = (self.per_epoch, len(seeds), views * self.size)
            self.share_SRB = torch.zeros(shape, dtype=dtype, device=y_RM.device)
            self.partner_SRB = torch.zeros_like(self.share_SRB)

    def deal(self, epoch: int) -> Iterator[int]:
        """The steps of an epoch, each run's samples in a new order: step 2 of Algorithm 1."""
        self.shuffle(epoch)
        yield from range(self.per_epoch)

    def shuffle(self, epoch: int) -> None:
        order_RM = draws.permutation(self._keys("shuffle", epoch), self.samples)
        order_RM = order_RM[:, : self.per_epoch * self.size]
        if self.learnt_M is not None:
            order_RM = self.learnt_M[order_RM]
        self.order_SRB.copy_(order_RM.unflatten(1, (self.per_epoch, self.size)).transpose(0, 1))
        for used, key_VSR1, purpose in (
            (self.augment, self.key_VSR1, "augment"),
            (self.strong, self.strong_key_VSR1, "strong view"),
        ):
            for view in range(self.views if used else 0):
                name = f"{purpose} {view + 1}" if view else purpose
                steps = [draws.keys(self.seeds, name, epoch, step) for step in range(self.per_epoch)]
                key_VSR1[view].copy_(torch.stack(steps))
        if self.mixup:
            self._deal_mixtures(epoch)

    def _deal_mixtures(self, epoch: int) -> None:
        shape = (self.per_epoch, self.views * self.size)
        shares, partners = [], []
        for seed in self.seeds:
            random = np.random.default_rng(draws.key(seed, "mixup", epoch) & (2**64 - 1))
            shares.append(random.beta(self.mixup, self.mixup, shape))
            partners.append(random.random(shape))
        self.share_SRB.copy_(torch.from_numpy(np.stack(shares, 1)))
        self.partner_SRB.copy_(torch.from_numpy(np.stack(partners, 1)))

    def index(self, step_1: Tensor) -> Tensor:
        """Which samples the present mini-batch has (RB)."""
        return self.order_SRB.index_select(0, step_1)[0]

    def take(self, step_1: Tensor, view: int = 0) -> tuple[Tensor, Tensor]:
        """x_RB… as the networks take it, and y_RB: step 3 of Algorithm 1."""
        index_RB = self.index(step_1)
        x_RB = self.stored(index_RB[:, self.mine])
        if self.augment:
            x_RB = self._augmented(x_RB, self.augment, self.key_VSR1[view], step_1)
        return as_input(x_RB, self.dtype), self.y_RM.gather(1, index_RB)

    def strengthened(self, x_RB: Tensor, step_1: Tensor, view: int = 0) -> Tensor:
        """The strong view of samples that were taken, where selection looks at the weak one."""
        return self._augmented(x_RB, self.strong, self.strong_key_VSR1[view], step_1) if self.strong else x_RB

    def mixtures(self, step_1: Tensor) -> tuple[Tensor, Tensor]:
        """share_RB of the sample itself, and a number in [0, 1) that picks the other sample."""
        return self.share_SRB.index_select(0, step_1)[0], self.partner_SRB.index_select(0, step_1)[0]

    def _augmented(self, x_RB: Tensor, augment: Augment, key_SR1: Tensor, step_1: Tensor) -> Tensor:
        key_R1 = key_SR1.index_select(0, step_1)[0]
        u_RBK = draws.uniform(key_R1, self.size * augment.numbers).unflatten(1, (self.size, augment.numbers))
        return augment.train(x_RB, u_RBK[:, self.mine])

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


def views_of(augment: Augment | None, plan: Plan) -> tuple[Augment | None, Augment | None]:
    """What is done to samples before the networks look at them, and before they learn if that is more."""
    weak = [augment] if augment else []
    if plan.shift or plan.mirror:
        weak.append(shifts(plan.shift, plan.mirror))
    strong = [strong_changes(plan.strong_view)] if plan.strong_view else []
    if plan.cutout:
        (strong if plan.weak_selection or plan.strong_view else weak).append(cutouts(plan.cutout))
    return in_turn(weak), in_turn(strong)


def in_turn(steps: list[Augment]) -> Augment | None:
    return reduce(Augment.then, steps) if steps else None


def refuse_other_samples(x_M: Any, plan: Plan) -> None:
    """Raise a ValueError for samples that cannot be shifted or mixed; `x_M` has a shape and a type."""
    of_images = [name for name in ("mirror", "shift", "cutout", "strong_view") if getattr(plan, name)]
    if of_images and len(x_M.shape) != 4:
        raise ValueError(
            f"{' and '.join(of_images)} need images of shape (channels, height, width), not samples of shape "
            f"{tuple(x_M.shape[1:])}: leave them out."
        )
    if plan.mixup and not (x_M.dtype == torch.uint8 or x_M.dtype.is_floating_point):
        raise ValueError("mixup takes means of samples, and token numbers have none: leave mixup out.")


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
