"""What has been learnt so far, as named tensors, and how to put it back where a step looks for it."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """Where a training stood when an epoch had ended."""

    phase: int  # counted from 0
    epoch: int
    tensors: Tensors


@torch.no_grad()
def fill(live: Tensors, saved: Tensors) -> None:
    """Copy what was saved into the tensors that are in use, where captured steps and views look for it."""
    if live.keys() != saved.keys():
        raise ValueError(f"the state has {', '.join(sorted(live.keys() ^ saved.keys()))} too many or too few.")
    for name, tensor in live.items():
        if tensor.shape != saved[name].shape or tensor.dtype != saved[name].dtype:
            raise ValueError(
                f"the state's {name} has shape {tuple(saved[name].shape)}, not {tuple(tensor.shape)}."
            )
        tensor.copy_(saved[name])
