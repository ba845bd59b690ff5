"""What each network has thought of each sample so far: a moving average of its predictions.

N networks, R runs, M samples, B samples of a mini-batch, C classes.
"""

import torch
from torch import Tensor

from coteach.engine.stack import Tensors, fill


class Memory:
    """ELR's targets t ← β·t + (1 - β)·p, which begin at 0 (Liu et al., 2020)."""

    def __init__(
        self, shape_NRMC: tuple[int, int, int, int], decay: float, dtype: torch.dtype, device: torch.device
    ):
        self.decay = decay
        self.target_NRMC = torch.zeros(shape_NRMC, dtype=dtype, device=device)

    def renewed(self, index_RB: Tensor, logits_NRBC: Tensor) -> Tensor:
        """target_NRBC of a mini-batch after its predictions joined them; what is not finite does not."""
        index_NRBC = index_RB[None, ..., None].expand(logits_NRBC.shape)
        before_NRBC = self.target_NRMC.gather(2, index_NRBC)
        after_NRBC = self.decay * before_NRBC + (1 - self.decay) * logits_NRBC.detach().softmax(-1)
        after_NRBC = torch.where(after_NRBC.isfinite(), after_NRBC, before_NRBC)
        self.target_NRMC.scatter_(2, index_NRBC, after_NRBC)
        return after_NRBC

    def state(self) -> dict[str, Tensor]:
        return {"target_NRMC": self.target_NRMC}

    def load(self, saved: Tensors) -> None:
        fill(self.state(), saved)
