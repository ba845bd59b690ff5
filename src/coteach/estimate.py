"""How labels flip, read off a trained network: F-correction's first stage (Patrini et al., 2017)."""

import torch
from torch import Tensor


def transition_from_posteriors(p_MC: Tensor, *, drop_outliers: bool = True) -> Tensor:
    """T̂_CC: row i is the posterior at the sample the network is most sure is of class i.

    With `drop_outliers` that is the surest sample below the 97th percentile of class i's posteriors, which the
    method's authors use everywhere but on CIFAR-100.
    """
    rows = []
    for p_M in p_MC.unbind(1):
        if drop_outliers:
            p_M = torch.where(p_M >= p_M.quantile(0.97, interpolation="higher"), 0, p_M)
        rows.append(p_MC[p_M.argmax()])
    return torch.stack(rows)
