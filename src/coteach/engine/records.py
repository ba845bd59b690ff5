"""What a training keeps on the device: what each step of an epoch saw and did, and sums of it for each sample.

A step only writes; all counting is done once an epoch, over all steps together, at no extra forward pass.
N networks, R runs, M samples, S steps of an epoch, B samples of a batch, C classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coteach.engine.batches import Batches
from coteach.engine.stack import Tensors, fill

UNLIKELY = 1e-6


@dataclass(frozen=True)
class Choice:
    """What became of one mini-batch."""

    loss_NRB: Tensor  # the one with a gradient
    prediction_NRB: Tensor
    among_NRB: Tensor  # what the rule picked from
    weight_NRB: Tensor  # of each sample in the network's loss
    learnt_NRB: Tensor  # where that is not 0
    target_NRB: Tensor  # the class that is learnt, most often the given label


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


class Ledgers:
    """Sums over the epochs, one for each network, run and sample.

    Attributes
    ----------
    seen_NRM : int32 tensor
        Epochs in which the network had a finite opinion of the sample; each sum below is of that many.
    loss_NRM, given_NRM, margin_NRM : tensors
        Sums of the loss, of p(given label), and of its log odds against the likeliest other class.
    picks_NRM : int32 tensor
        Epochs in which the network learnt from the sample.
    candidates_NRM : int32 tensor
        Epochs in which the rule had the sample to pick from: all, or those in which the networks disagreed on it.
    prediction_NRM, other_NRM : int32 tensors
        In the last epoch that dealt the sample: the predicted class, and the likeliest that is not the given one.
    """

    def __init__(self, batches: Batches, networks: int, dtype: torch.dtype):
        steps, runs, size = batches.order_SRB.shape
        device, samples = batches.order_SRB.device, len(batches.x_M)

        def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.given_SNRB, self.margin_SNRB = (zeros(steps, networks, runs, size) for _ in range(2))
        self.other_SNRB = zeros(steps, networks, runs, size, dtype=torch.int32)
        self.loss_NRM, self.given_NRM, self.margin_NRM = (zeros(networks, runs, samples) for _ in range(3))
        self.seen_NRM, self.picks_NRM, self.candidates_NRM, self.prediction_NRM, self.other_NRM = (
            zeros(networks, runs, samples, dtype=torch.int32) for _ in range(5)
        )

    def note(self, step_1: Tensor, logits_NRBC: Tensor, y_RB: Tensor) -> None:
        """The opinions of one mini-batch."""
        given_NRB, margin_NRB, other_NRB = opinions(logits_NRBC.softmax(-1), y_RB)
        self.given_SNRB.index_copy_(0, step_1, given_NRB[None])
        self.margin_SNRB.index_copy_(0, step_1, margin_NRB[None])
        self.other_SNRB.index_copy_(0, step_1, other_NRB[None].int())

    def close(self, batches: Batches, records: Records) -> None:
        """Add the epoch that has ended, but not the batches that a network sat out."""
        index_NRM = by_sample(batches.order_SRB[:, None].expand_as(self.given_SNRB))
        finite_SNRB = records.finite_SNR[..., None].expand_as(self.given_SNRB) & self.given_SNRB.isfinite()

        def add(total_NRM: Tensor, of_SNRB: Tensor) -> None:
            counted = torch.where(finite_SNRB, of_SNRB, 0).to(total_NRM.dtype)
            total_NRM.scatter_add_(-1, index_NRM, by_sample(counted))

        add(self.seen_NRM, torch.ones_like(self.given_SNRB))
        add(self.loss_NRM, records.loss_SNRB)
        add(self.given_NRM, self.given_SNRB)
        add(self.margin_NRM, self.margin_SNRB)
        add(self.picks_NRM, records.learnt_SNRB)
        add(self.candidates_NRM, records.among_SNRB)
        self.prediction_NRM.scatter_(-1, index_NRM, by_sample(records.prediction_SNRB))
        self.other_NRM.scatter_(-1, index_NRM, by_sample(self.other_SNRB))

    def add_held_out(self, held_V: Tensor, logits_NRVC: Tensor, y_RV: Tensor) -> None:
        """Opinions of samples that are never learnt from, after an epoch; their losses and picks stay 0."""
        given_NRV, margin_NRV, other_NRV = opinions(logits_NRVC.softmax(-1), y_RV)
        finite_NRV = given_NRV.isfinite()
        for total_NRM, of_NRV in (
            (self.seen_NRM, finite_NRV),
            (self.given_NRM, given_NRV),
            (self.margin_NRM, margin_NRV),
        ):
            counted_NRV = torch.where(finite_NRV, of_NRV, 0).to(total_NRM.dtype)
            total_NRM.index_add_(-1, held_V, counted_NRV)
        self.prediction_NRM.index_copy_(-1, held_V, logits_NRVC.argmax(-1).int())
        self.other_NRM.index_copy_(-1, held_V, other_NRV.int())

    def state(self) -> dict[str, Tensor]:
        """The sums so far; what a single epoch notes is gone when it is closed."""
        return {name: t for name, t in vars(self).items() if name.endswith("_NRM")}

    def load(self, saved: Tensors) -> None:
        fill(self.state(), saved)

    def quality(self) -> np.ndarray:
        """quality_RM from 0 to 1, by the odds that all networks gave the label in all epochs.

        Networks learn right labels before they learn wrong ones by heart: a mean over all epochs remembers that
        they doubted a label long after the last epoch has forgotten it. The odds, not p(given label) alone: a
        bounded or joint loss leaves p far from 1 even where no other class is likely. Their logarithm: where
        networks are never sure, as on photographs, how unlikely a label is tells more than that it is not first.
        """
        return quality_of(self.margin_NRM.sum(0), self.seen_NRM.sum(0))

    def suggestion(self) -> np.ndarray:
        """class_RM: the likeliest class but the given one, to the network that trusts the given one less."""
        return suggestion_of(self.given_NRM / self.seen_NRM.clamp(min=1), self.other_NRM)

    def counts(self) -> tuple[Tensor, Tensor]:
        """picks_NRM and candidates_NRM as they are now, for `kept_share` to count from here."""
        return self.picks_NRM.clone(), self.candidates_NRM.clone()

    def kept_share(self, y_RM: Tensor, n_classes: int, since: tuple[Tensor, Tensor] | None = None) -> np.ndarray:
        """share_RC of the samples given as class c that was learnt from, of those to pick from; nan of none.

        Parameters
        ----------
        y_RM : tensor
            Given labels.
        since : what `counts` returned, optional
            Count the epochs after that.
        """
        before = since or (0, 0)
        totals_RC = []
        for now_NRM, before_NRM in zip(self.counts(), before, strict=True):
            of_RM = (now_NRM - before_NRM).sum(0)
            totals_RC.append(of_RM.new_zeros(len(y_RM), n_classes).scatter_add_(1, y_RM, of_RM).double().cpu())
        return (totals_RC[0] / totals_RC[1]).numpy()


def opinions(p_NRBC: Tensor, y_RB: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """p(given label), its log odds against the likeliest other class, and that class (each NRB).

    >>> [t.tolist() for t in opinions(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([1]))]
    [[0.25], [-0.6931471824645996], [0]]
    """
    y_NRB1 = y_RB.expand(p_NRBC.shape[:-1])[..., None]
    given_NRB = p_NRBC.gather(-1, y_NRB1)[..., 0]
    highest_NRB, other_NRB = p_NRBC.scatter(-1, y_NRB1, -1).max(-1)
    return given_NRB, log_odds(given_NRB, highest_NRB), other_NRB


def quality_of(margin: Tensor, seen: Tensor | int) -> np.ndarray:
    """The given label's probability against one other, at the mean of `seen` log odds; ½ where there are none."""
    mean = margin / torch.as_tensor(seen).clamp(min=1)
    return mean.double().sigmoid().cpu().numpy()


def log_odds(given: Tensor, other: Tensor) -> Tensor:
    """One probability against another. Nobody is surer than one in a million."""
    return given.clamp(min=UNLIKELY).log() - other.clamp(min=UNLIKELY).log()


def suggestion_of(given_NRM: Tensor, other_NRM: Tensor) -> np.ndarray:
    """class_RM that the network which trusts the given one less likes best, of p(given label) and the others."""
    doubtful_1RM = given_NRM.argmin(0, keepdim=True)
    return other_NRM.gather(0, doubtful_1RM)[0].long().cpu().numpy()


def by_sample(of_SNRB: Tensor) -> Tensor:
    """of_NR(SB): what a whole epoch saw, one after the other."""
    return of_SNRB.permute(1, 2, 0, 3).flatten(2)
