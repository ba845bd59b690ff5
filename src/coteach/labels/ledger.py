"""What the networks thought of every training sample, over the epochs, at no extra forward pass.

Each step notes its opinions of a mini-batch, on the device; after each epoch they are added up by sample.
N networks, R runs, M samples, S steps of an epoch, B samples of a batch, C classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coteach.engine.batches import Batches
from coteach.engine.diary import Diary


class Ledger:
    """Sums over the epochs, one for each network, run and sample.

    Attributes
    ----------
    seen_NRM : int32 tensor
        Epochs in which the network had a finite opinion of the sample; each sum below is of that many.
    loss_NRM, given_NRM, margin_NRM : tensors
        Sums of the loss, of p(given label), and of p(given label) - the highest p of another class.
    picks_NRM : int32 tensor
        Epochs in which the network learnt from the sample.
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
        self.seen_NRM, self.picks_NRM, self.prediction_NRM, self.other_NRM = (
            zeros(networks, runs, samples, dtype=torch.int32) for _ in range(4)
        )

    def note(self, step_1: Tensor, logits_NRBC: Tensor, y_RB: Tensor) -> None:
        """The opinions of one mini-batch."""
        p_NRBC = logits_NRBC.softmax(-1)
        y_NRB1 = y_RB.expand(p_NRBC.shape[:-1])[..., None]
        given_NRB = p_NRBC.gather(-1, y_NRB1)[..., 0]
        highest_NRB, other_NRB = p_NRBC.scatter(-1, y_NRB1, -1).max(-1)
        self.given_SNRB.index_copy_(0, step_1, given_NRB[None])
        self.margin_SNRB.index_copy_(0, step_1, (given_NRB - highest_NRB)[None])
        self.other_SNRB.index_copy_(0, step_1, other_NRB[None].int())

    def close(self, batches: Batches, diary: Diary) -> None:
        """Add the epoch that has ended, but not the batches that a network sat out."""
        index_NRM = by_sample(batches.order_SRB[:, None].expand_as(self.given_SNRB))
        sound_SNRB = diary.sound_SNR[..., None].expand_as(self.given_SNRB) & self.given_SNRB.isfinite()

        def add(total_NRM: Tensor, of_SNRB: Tensor) -> None:
            counted = torch.where(sound_SNRB, of_SNRB, 0).to(total_NRM.dtype)
            total_NRM.scatter_add_(-1, index_NRM, by_sample(counted))

        add(self.seen_NRM, torch.ones_like(self.given_SNRB))
        add(self.loss_NRM, diary.loss_SNRB)
        add(self.given_NRM, self.given_SNRB)
        add(self.margin_NRM, self.margin_SNRB)
        add(self.picks_NRM, diary.learnt_SNRB)
        self.prediction_NRM.scatter_(-1, index_NRM, by_sample(diary.prediction_SNRB))
        self.other_NRM.scatter_(-1, index_NRM, by_sample(self.other_SNRB))

    def quality(self) -> np.ndarray:
        """quality_RM from 0 to 1: ½ + half the mean margin over networks and epochs; ½ where there is none.

        Networks learn right labels before they learn wrong ones by heart: a mean over all epochs remembers that
        they doubted a label long after the last epoch has forgotten it. The margin, not p(given label) alone: a
        bounded or joint loss leaves p far from 1 even where no other class is likely.
        """
        seen_RM = self.seen_NRM.sum(0)
        mean_RM = self.margin_NRM.sum(0) / seen_RM.clamp(min=1)
        return (0.5 + mean_RM / 2).clamp(0, 1).double().cpu().numpy()

    def suggestion(self) -> np.ndarray:
        """class_RM: the likeliest class but the given one, to the network that trusts the given one less."""
        doubtful_1RM = (self.given_NRM / self.seen_NRM.clamp(min=1)).argmin(0, keepdim=True)
        return self.other_NRM.gather(0, doubtful_1RM)[0].long().cpu().numpy()


@dataclass(frozen=True)
class Suspects:
    """Samples whose label is doubted, the worst first."""

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    quality: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


def suspects(given_M: np.ndarray, quality_M: np.ndarray, suggested_M: np.ndarray, share: float) -> Suspects:
    """The `share` of samples with the lowest quality; ties go to the earlier sample."""
    worst = np.argsort(quality_M, kind="stable")[: round(share * len(quality_M))]
    return Suspects(worst, given_M[worst], suggested_M[worst], quality_M[worst])


def by_sample(of_SNRB: Tensor) -> Tensor:
    """of_NR(SB): what a whole epoch saw, one after the other."""
    return of_SNRB.permute(1, 2, 0, 3).flatten(2)
