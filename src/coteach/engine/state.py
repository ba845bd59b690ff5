"""All that a training has learnt so far, as named tensors: what a checkpoint holds, and how to go on from it.

Nothing else is needed: every draw is a function of the seed, the epoch and the step. torch's own generator is kept
for networks with dropout, which draw from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from coteach.train import Training

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """Where a training stood when an epoch had ended."""

    phase: int  # counted from 0
    epoch: int
    tensors: Tensors


def state_of(training: "Training") -> dict[str, Tensor]:
    tensors = {f"{name}.{key}": t for name, part in parts(training).items() for key, t in part.state().items()}
    if training.matrix_RCC is not None:
        tensors["matrix_RCC"] = training.matrix_RCC
    return tensors | generators(training.stack.theta_NRP.device)


def restore(training: "Training", tensors: Tensors) -> None:
    """Make a training that has just been started what it was when `state_of` was asked."""
    for name, part in parts(training).items():
        prefix = f"{name}."
        part.load({key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)})
    torch.set_rng_state(tensors["generator.cpu"])
    if "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"], training.stack.theta_NRP.device)


def parts(training: "Training") -> dict[str, Any]:
    """What learns, or keeps what was learnt: each has `state()` and `load(tensors)`."""
    found = {"stack": training.stack, "optimiser": training.optimiser, "ledger": training.ledger}
    return {name: part for name, part in found.items() if part is not None}


def generators(device: torch.device) -> dict[str, Tensor]:
    states = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


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
