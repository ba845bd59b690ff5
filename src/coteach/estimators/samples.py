"""What a user hands in as samples, as arrays that networks can take."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def on_host(values: Any) -> Any:
    """A torch tensor as NumPy; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def dense(X: Any) -> Any:
    if hasattr(X, "todense") or (isinstance(X, Tensor) and X.layout != torch.strided):
        raise ValueError("X is sparse: make it dense first, with .toarray() or .to_dense().")
    return on_host(X)


def channels_first(x: np.ndarray) -> np.ndarray:
    """Tables as they are; images as (M, channels, H, W), the channels being the axis of length 1, 3 or 4."""
    if x.ndim == 3:
        return x[:, None]
    if x.ndim > 4:
        raise ValueError(f"X has {x.ndim} axes: give a table of 2, or images of 3 or 4.")
    if x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        return x.transpose(0, 3, 1, 2)
    return x
