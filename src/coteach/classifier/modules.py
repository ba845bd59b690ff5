"""Networks for a classifier: a usual one for the shape of a sample, or the user's own."""

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
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


def build_network(module: Any, options: dict[str, Any], shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """One network, with initial weights from torch's generator."""
    if isinstance(module, nn.Module):
        if options:
            raise ValueError("module is an instance, which takes no module__… any more: give its class.")
        return reinitialised(module)
    try:
        if module is None or isinstance(module, str):
            return networks.build(module or default_network(shape), shape=shape, n_classes=n_classes, **options)
        return module(**(accepted_facts(module, shape, n_classes) | options))
    except TypeError as error:
        raise ValueError(f"the module cannot be built ({error}): mend module or module__….") from error


def checked_network(module: Any, options: dict[str, Any], shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The same, once it is known to be a network that answers a sample with a logit for each class."""
    if not (module is None or isinstance(module, (str, nn.Module)) or callable(module)):
        raise ValueError(f"module is {module!r}: give a torch module, its class, a factory or None.")
    network = build_network(module, options, shape, n_classes)
    if not isinstance(network, nn.Module):
        raise ValueError(f"module makes {type(network).__name__}: it must make a torch.nn.Module.")
    with torch.no_grad():
        logits = network.eval()(torch.zeros(2, *shape))
    if tuple(logits.shape) != (2, n_classes):
        raise ValueError(
            f"module answers two samples with shape {tuple(logits.shape)}: "
            f"it must return logits of shape (2, {n_classes}), a column for each class."
        )
    return network
