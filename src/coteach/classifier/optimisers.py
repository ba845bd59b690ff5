"""Which optimiser a user means, and whether it can train these networks."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from coteach.names import check_name

TORCHS: dict[str, type[Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
}
# Those that have faster forms of our own, with the options that these know.
OURS = {torch.optim.Adam: ("weight_decay",), torch.optim.SGD: ("weight_decay", "momentum")}
NOT_OPTIONS = ("self", "params", "lr")  # lr follows the schedule


def optimiser_class(optimizer: Any) -> type[Optimizer]:
    """The class behind a name or a class, unless it cannot step on gradients alone."""
    if isinstance(optimizer, str):
        check_name("optimizer", optimizer.lower(), TORCHS)
        kind = TORCHS[optimizer.lower()]
    elif isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        kind = optimizer
    else:
        raise ValueError(f"optimizer is {optimizer!r}: give a class of torch.optim, or its name such as 'adamw'.")
    closure = inspect.signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(f"{kind.__name__} computes the loss again within a step: take another, such as 'adam'.")
    if kind is torch.optim.SparseAdam:
        raise ValueError("SparseAdam needs sparse gradients, and those here are dense: take 'adam'.")
    if "lr" not in inspect.signature(kind).parameters:
        raise ValueError(f"{kind.__name__} has no argument lr, which follows a schedule here: take another.")
    return kind


def check_options(optimizer: Any, options: dict[str, Any]) -> None:
    """Every option is an argument of the optimiser."""
    kind = optimiser_class(optimizer)
    parameters = inspect.signature(kind).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for name in options:
        known = [n for n in parameters if n not in NOT_OPTIONS]
        check_name(f"option of {kind.__name__}", name, known)


def check_takes(optimizer: Any, options: dict[str, Any], lr: float, parameters: Iterable[Tensor]) -> None:
    """Let it say itself what it thinks of its options and of the network."""
    kind = optimiser_class(optimizer)
    try:
        kind([p for p in parameters if p.requires_grad], lr=lr, **options)  # pyrefly: ignore[unexpected-keyword]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{kind.__name__} refuses this network or its options ({error}): mend optimizer or optimizer__…."
        ) from error


def plan_fields(optimizer: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What a plan says of it."""
    kind = optimiser_class(optimizer)
    if kind is torch.optim.SGD and isinstance(optimizer, str):
        options = {"momentum": 0.9} | options  # torch's own default, for its class, is none
    if kind in OURS and options.keys() <= set(OURS[kind]):
        none = {"momentum": 0.0} if kind is torch.optim.SGD else {}
        return {"optimizer": kind.__name__.lower()} | none | options
    of_torch = TORCHS.get(kind.__name__.lower()) is kind
    return {"optimizer": kind.__name__ if of_torch else kind, "optimizer_options": tuple(options.items())}
