"""The weights of a few networks under names that tell them apart, for files of safetensors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn


def weights_of(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Every tensor under the number of its network, in memory of its own."""
    return {
        f"{n}.{name}": value.detach().cpu().contiguous().clone()
        for n, network in enumerate(networks)
        for name, value in network.state_dict().items()
    }


def take_weights(networks: Sequence[nn.Module], tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Put what `weights_of` returned into networks of the same kind."""
    for n, network in enumerate(networks):
        mine = {k.removeprefix(f"{n}."): v for k, v in tensors.items() if k.startswith(f"{n}.")}
        try:
            network.load_state_dict(mine)
        except RuntimeError as error:
            raise ValueError(f"the weights in {path} do not fit the module: give its own.") from error
