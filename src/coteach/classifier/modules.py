"""Networks for a classifier: a usual one for the shape of a sample, or the user's own."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from coteach import networks
from coteach.data.dicts import Entries
from coteach.loops.pair import logits_of
from coteach.methods import METHODS
from coteach.modern import MODERN_NETWORK, mirrors, modern_width


def papers_network(shape: tuple[int, ...]) -> str:
    return "small_cnn" if shape[1:] == (32, 32) else networks.default_for(shape)


def chosen_module(
    params: Mapping[str, Any], options: dict[str, Any], shape: tuple[int, ...], modern: bool, device: str
) -> tuple[Any, dict[str, Any]]:
    """The module and its options, with a name where the user has left the choice to us."""
    module = params["module"]
    if module is None:
        module = MODERN_NETWORK if modern else papers_network(shape)
    if isinstance(module, str) and module == MODERN_NETWORK:
        mirror = modern and mirrors(shape[0]) if params["mirror"] is None else params["mirror"]
        halved = METHODS[params["method"]].views  # a half view has no mirror image
        options = {"width": modern_width(device), "mirror": mirror and not halved} | options
    return module, options


def accepted_facts(make: Callable[..., nn.Module], shape: tuple[int, ...], n_classes: int) -> dict[str, Any]:
    """What is known about the data under the names that `make` has arguments for."""
    n_features = math.prod(shape)
    facts = {"n_features": n_features, "n_inputs": n_features, "n_classes": n_classes, "n_outputs": n_classes}
    facts |= {"shape": shape, "channels": shape[0]}
    names = inspect.signature(make).parameters
    return {name: value for name, value in facts.items() if name in names}


def reinitialised(module: nn.Module) -> nn.Module:
    """A copy with new weights wherever a layer knows how to draw them and is not frozen.

    Of a transformers model only the head is new: what it was trained for before is what it was taken for.
    """
    new = copy.deepcopy(module).cpu()
    base = getattr(new, "base_model", new) if is_transformers(new) else new
    trained = set() if base is new else set(base.modules())
    for layer in new.modules():
        if layer in trained:
            continue
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
        return with_plain_logits(reinitialised(module))
    try:
        if isinstance(module, str):
            return networks.build(module, shape=shape, n_classes=n_classes, **options)
        return with_plain_logits(module(**(accepted_facts(module, shape, n_classes) | options)))
    except TypeError as error:
        raise ValueError(f"the module cannot be built ({error}): mend module or module__….") from error


def checked_network(module: Any, options: dict[str, Any], shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The same, once it is known to be a network that answers a sample with a logit for each class."""
    if not (isinstance(module, (str, nn.Module)) or callable(module)):
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


# ---- models that take and return more than a tensor ------------------------------------------------------------

PREDICTED_TOGETHER = 64  # samples; a transformer's memory grows with the square of their tokens


class FromOneTensor(nn.Module):
    """A model of transformers as the engine takes networks: one tensor in, logits out.

    Parameters
    ----------
    network : torch.nn.Module
        Returns logits, or something that has them.
    names : tuple of str
        Of the arguments that lie one after the other in a sample, as `data.dicts.tokens` lays them out; empty for
        a sample that is the first argument itself.
    """

    def __init__(self, network: nn.Module, names: tuple[str, ...] = ()):
        super().__init__()
        self.network, self.names = network, names

    def forward(self, x: Tensor) -> Tensor:
        if self.training or torch.compiler.is_compiling() or len(x) <= PREDICTED_TOGETHER:
            return self._logits(x)
        return torch.cat([self._logits(part) for part in x.split(PREDICTED_TOGETHER)])

    def _logits(self, x: Tensor) -> Tensor:
        if not self.names:
            return logits_of(self.network(x))
        parts = x.long().unflatten(1, (len(self.names), -1)).unbind(1)
        return logits_of(self.network(**dict(zip(self.names, parts, strict=True))))


class OfTokens:
    """Makes networks of a user's module that take samples of tokens."""

    def __init__(self, module: Any, entries: Entries):
        self.module, self.names = module, entries.names

    def __call__(self, shape: tuple[int, ...], n_classes: int, **options: Any) -> nn.Module:
        network = build_network(self.module, options, shape, n_classes)
        return FromOneTensor(network.network if isinstance(network, FromOneTensor) else network, self.names)


def fed_with(module: Any, entries: Entries | None) -> Any:
    """The module, or one that takes tokens where samples are made of them."""
    if entries is None or not entries.are_tokens:
        return module
    if module is None or isinstance(module, str):
        raise ValueError("X holds tokens, which no network of ours takes: give a transformers model as module.")
    return OfTokens(module, entries)


def with_plain_logits(network: Any) -> Any:
    return FromOneTensor(network) if is_transformers(network) else network


def is_transformers(module: Any) -> bool:
    """Told by what every model of that library has, which need not be installed."""
    return isinstance(module, nn.Module) and hasattr(module, "base_model_prefix") and hasattr(module, "config")


def filling_of(module: Any) -> int:
    """The token that fills up short texts."""
    return getattr(getattr(module, "config", None), "pad_token_id", None) or 0
