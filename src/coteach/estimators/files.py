"""A classifier's file: weights as safetensors, all else as JSON in its header. Nothing is pickled."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


def write_file(path: str | Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    try:
        header = json.dumps(facts)
    except TypeError as error:
        raise ValueError(f"the classifier cannot be written as JSON ({error}): use plain values.") from error
    save_file(tensors, path, {"coteach": header})


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()["coteach"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path} was not written by RobustClassifier.save: give the path of one.") from error
    return facts, tensors


def weights_of(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Every tensor under the number of its network, in memory of its own."""
    return {
        f"{n}.{name}": value.detach().contiguous().clone()
        for n, network in enumerate(networks)
        for name, value in network.state_dict().items()
    }


def take_weights(networks: Sequence[nn.Module], tensors: dict[str, Tensor], path: str | Path) -> None:
    for n, network in enumerate(networks):
        mine = {k.removeprefix(f"{n}."): v for k, v in tensors.items() if k.startswith(f"{n}.")}
        try:
            network.load_state_dict(mine)
        except RuntimeError as error:
            raise ValueError(f"the weights in {path} do not fit the module: give its own.") from error
