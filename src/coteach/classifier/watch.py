"""A validation set, watched from epoch to epoch. N networks, V samples, C classes.

Its labels may be as noisy as the others: wrong ones lower the accuracy of every epoch alike, so the best epoch
stays the best. (Their loss would not do: it rises with every network that becomes sure of the truth.)
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from coteach.engine.stream import Stream
from coteach.labels.folds import SMALLEST, opinions
from coteach.labels.ledger import log_odds, quality_of, suggestion_of
from coteach.train import Epoch, Training


class Enough(Exception):
    """No better epoch for as long as patience lasts."""


class Watch:
    """What the networks think of samples they do not learn from, and in which epoch they were right most often.

    Attributes
    ----------
    best_epoch : int
        The first with the highest accuracy of the ensemble; 0 before there is any.
    networks : list of torch.nn.Module
        Those of the best epoch.
    """

    def __init__(self, x_V: Tensor | Stream, y_V: Tensor):
        self.x_V, self.y_V = x_V, y_V
        self.best_accuracy, self.best_epoch, self.networks = -1.0, 0, list[nn.Module]()
        self.seen = 0
        self.margin_NV = self.given_NV = self.other_NV = torch.zeros(1, len(y_V))

    def look(self, epoch: Epoch, number: int) -> dict[str, float | None]:
        """What an epoch ended with, in words of `history_`."""
        p_NVC = opinions(epoch.training, self.x_V)
        self._note(p_NVC)
        p_VC = p_NVC.mean(0)
        accuracy = (p_VC.argmax(1) == self.y_V).double().mean().item()
        loss = -p_VC.gather(1, self.y_V[:, None]).clamp(min=SMALLEST).log().mean().item()
        if accuracy > self.best_accuracy:
            self.best_accuracy, self.best_epoch = accuracy, number
            self.networks = networks_of(epoch.training)
        return {"validation_accuracy": accuracy, "validation_loss": loss if math.isfinite(loss) else None}

    def _note(self, p_NVC: Tensor) -> None:
        """As the ledger notes its opinions of training samples, but for the mode: these are never learnt."""
        y_NV1 = self.y_V.expand(len(p_NVC), -1)[..., None]
        given_NV = p_NVC.gather(-1, y_NV1)[..., 0]
        highest_NV, self.other_NV = p_NVC.scatter(-1, y_NV1, -1).max(-1)
        if given_NV.isfinite().all():
            self.seen += 1
            self.given_NV = self.given_NV.to(given_NV) + given_NV
            self.margin_NV = self.margin_NV.to(given_NV) + log_odds(given_NV, highest_NV)

    def quality(self) -> np.ndarray:
        """quality_V, as the ledger's: from the mean log odds over networks and epochs."""
        return quality_of(self.margin_NV.sum(0), self.seen * len(self.margin_NV))

    def suggestion(self) -> np.ndarray:
        """class_V: the likeliest but the given one."""
        return suggestion_of(self.given_NV, self.other_NV)


def networks_of(training: Training) -> list[nn.Module]:
    """Plain modules on the CPU."""
    return [training.stack.network(n, 0).cpu() for n in range(training.stack.shape[0])]


def held_out(labels_M: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Marks a share of the samples (M), of each given class alike; the last of a class is never taken."""
    held_M = np.zeros(len(labels_M), dtype=bool)
    random = np.random.default_rng(seed)
    for c in np.unique(labels_M):
        members = random.permutation(np.flatnonzero(labels_M == c))
        held_M[members[: min(round(share * len(members)), len(members) - 1)]] = True
    if not held_M.any():
        raise ValueError(
            f"validation_fraction is {share}, which is no sample of any class here: give a larger share, "
            "or validation_data."
        )
    return held_M
