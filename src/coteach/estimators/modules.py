"""Networks for a classifier: a usual one for the shape of a sample, or the user's own."""

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import nn

from coteach import networks


def default_network(shape: tuple[int, ...]) -> str:
    return "small_cnn" if shape[1:] == (32, 32) else networks.default_for(shape)


def accepted_facts(make: Callable[..., nn.Module], shape: tuple[int, ...], n_classes: int) -> dict[str, Any]:
    """What is known about the data under the names that `make` has arguments for."""
    n_features = math.prod(shape)
    facts = {"n_features": n_features, "n_inputs": n_features, "n_classes": n_classes, "n_outputs": n_classes}
    facts |= {"shape": shape, "channels": shape[0]}
    names = inspect.signature(make).parameters
    return {name: value for name, value in facts.items() if name in names}


def reinitialised(module: nn.Module) -> nn.Module:
    """A copy with new weights wherever a layer knows how to draw them and is not frozen."""
    new = copy.deepcopy(module).cpu()
    for layer in new.modules():
        own = list(layer.parameters(recurse=False))
        frozen = own and not any(p.requires_grad for p in own)
        draw = getattr(layer, "reset_parameters", None)
        if callable(draw) and not frozen:
            draw()
    return new
