"""Parameters of a classifier: what is wrong with them, and the plan of a training that they make."""

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor
from torch.optim import Optimizer

from coteach.checks import LARGEST_NUMBER, check_count, check_warmup_loss, is_within
from coteach.fidelity import parse
from coteach.methods import METHODS
from coteach.modern import MODERN_EPOCHS, MODERN_NETWORK, SMALLEST_SIDE, mirrors, modern_batch, modern_plan
from coteach.names import LOSS_MEANINGS, ONLY_IN_RUNS, check_name
from coteach.plan import OF_METHOD, Plan, check_guesses, check_pairs, two_loss_warmup
from coteach.schedules import usual_decay_start

LEAST = {"epochs": 1, "batch_size": 1, "warmup": 0, "ramp": 1, "patience": 1}
LEAST |= {"lookahead": 0, "shift": 0, "cutout": 0, "strong_view": 0, "guess_ramp": 0}
MAY_BE_NONE = (
    "epochs", "batch_size", "warmup", "ramp", "lookahead", "shift", "cutout", "strong_view", "guess_ramp"
)  # fmt: skip
RECIPES = ("auto", "paper", "modern")
USUAL_EPOCHS, USUAL_LR = 20, 0.001  # of the paper's recipe
# Fields of a plan that have parameters of the same name, and what these may be besides None.
SHARES = ("one_cycle", "label_smoothing", "memory_decay")
AMOUNTS = ("mixup", "guess_weight", "memory_weight", "class_balance", "confidence_penalty")
ANSWERS = ("mirror", "weak_selection", "decoupled_decay", "mixture")
AXES = (*SHARES, *AMOUNTS, *ANSWERS, "lookahead", "shift", "cutout", "strong_view", "guess_ramp", "temperature")
ABOVE_ZERO = parse("paper+lr_above_zero")  # a learning rate that falls by epochs: so that the last is not in vain
STEPS_OF_AN_EPOCH = 16  # at least, for few samples
SMALLEST_BATCH = 8


def check_arguments(params: Mapping[str, Any], optimizer_options: dict[str, Any]) -> None:
    """One sentence for the first that is wrong."""
    check_name("method", params["method"], [name for name in METHODS if name not in ONLY_IN_RUNS])
    for name in ("loss", "warmup_loss"):
        if params[name] is not None:
            check_name("loss", params[name], LOSS_MEANINGS)
    for name, least in LEAST.items():
        value = params[name]
        if not (value is None and name in MAY_BE_NONE):
            check_count(name, value, least)
    check_name("recipe", params["recipe"], RECIPES)
    check_axes(params)
    check_warmup_loss(params["method"], *losses_of(params), 1 if params["warmup"] is None else params["warmup"])
    check_noise_rate(params["noise_rate"])
    lr, share = params["lr"], params["validation_fraction"]
    if lr is not None and not (is_within(lr, LARGEST_NUMBER) and lr > 0):
        raise ValueError(f"lr is {lr!r}: give a learning rate above 0, such as 0.001.")
    if not (isinstance(share, Real) and 0 < float(share) < 1):
        raise ValueError(f"validation_fraction is {share!r}: give a share between 0 and 1, such as 0.1.")
    if params["optimizer"] is not None:
        check_options(params["optimizer"], optimizer_options)
    if str(params["device"]).startswith("mps"):
        raise ValueError("device is mps, but rates are computed in float64, which MPS lacks: take cpu, or auto.")


def check_noise_rate(rate: Any) -> None:
    if not (isinstance(rate, Real) and 0 <= float(rate) < 1) and not (isinstance(rate, str) and rate == "auto"):
        raise ValueError(f"noise_rate is {rate!r}: give 'auto', or a share below 1 such as 0.2.")


def check_axes(params: Mapping[str, Any]) -> None:
    for name in SHARES:
        value = params[name]
        if value is not None and not (isinstance(value, Real) and 0 <= float(value) < 1):
            raise ValueError(f"{name} is {value!r}: give a share from 0 to below 1.")
    for name in AMOUNTS:
        value = params[name]
        if value is not None and not is_within(value, LARGEST_NUMBER):
            raise ValueError(f"{name} is {value!r}: give a number from 0 to {LARGEST_NUMBER:g}.")
    for name in ANSWERS:
        if params[name] not in (None, True, False):
            raise ValueError(f"{name} is {params[name]!r}: give True, False, or None for what is usual.")
    temperature = params["temperature"]
    if temperature is not None and not (isinstance(temperature, Real) and 0 < float(temperature) < math.inf):
        raise ValueError(f"temperature is {temperature!r}: give a number above 0, such as 0.5.")


def is_modern(params: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    """Whether what is left out is as of today: for images, unless the user brings a network of their own."""
    images = len(shape) == 3 and min(shape[1:]) >= SMALLEST_SIDE
    if params["recipe"] == "modern" and len(shape) != 3:
        raise ValueError('recipe is "modern", which is for images, and X has none: leave it out.')
    if params["recipe"] == "auto":
        return images and params["module"] in (None, MODERN_NETWORK)
    return params["recipe"] == "modern"


def with_defaults(
    params: Mapping[str, Any], optimizer_options: dict[str, Any], shape: tuple[int, ...]
) -> dict[str, Any]:
    """The parameters with what they leave to the recipe for samples of this shape."""
    modern = is_modern(params, shape)
    for name in ("mirror", "shift", "cutout", "strong_view"):
        if params[name] and len(shape) != 3:
            raise ValueError(f"{name} is for images, and X has none: leave it out.")
    for name in ("shift", "cutout"):
        if params[name] and params[name] >= min(shape[1:]):
            raise ValueError(f"{name} is {params[name]} of {min(shape[1:])} pixels: give a smaller one.")
    optimizer = params["optimizer"] or ("sgd" if modern else "adam")
    optimizer = optimizer.lower() if isinstance(optimizer, str) else optimizer
    check_options(optimizer, optimizer_options)
    return dict(params) | {
        "modern": modern,
        "epochs": params["epochs"] or (MODERN_EPOCHS if modern else USUAL_EPOCHS),
        "optimizer": optimizer,
        "lr": params["lr"] or (None if modern and optimizer == "sgd" else USUAL_LR),  # None: the recipe's
    }


def check_views(method: str, shape: tuple[int, ...]) -> None:
    if METHODS[method].views and shape[-1] < METHODS[method].networks:
        raise ValueError(f"{method} halves the last axis of a sample, which has only 1 feature(s): change method.")


def plan_of(
    params: Mapping[str, Any], optimizer_options: dict[str, Any], samples: int, shape: tuple[int, ...] = ()
) -> Plan:
    """The plan for so many samples of this shape to learn from."""
    params = with_defaults(params, optimizer_options, shape)
    plan = modern_plan_of(params, samples, shape) if params["modern"] else papers_plan_of(params, samples)
    given = {name: params[name] for name in AXES if params[name] is not None}
    of_method = {name: value for name, value in OF_METHOD.get(params["method"], {}).items() if name in AXES}
    plan = replace(plan, **(optimiser_fields(params, optimizer_options) | of_method | given))
    check_guesses(params["method"], plan)
    # the plan knows of no weight decay that is an option of torch's own optimisers
    check_pairs(plan, decoupled=bool(params["decoupled_decay"] and not params.get("optimizer__weight_decay")))
    return plan


def modern_plan_of(params: Mapping[str, Any], samples: int, shape: tuple[int, ...]) -> Plan:
    epochs = params["epochs"]
    batch_size = min(params["batch_size"] or modern_batch(samples), samples)
    usual = modern_plan(epochs, batch_size, min(shape[1:]), mirrors(shape[0]))
    loss, warmup_loss = losses_of(params)
    asked = {"ramp": params["ramp"], "lr": params["lr"]}
    fields = usual | {name: value for name, value in asked.items() if value is not None}
    fields["warmup"] = warmup_of(params, samples // batch_size)
    if params["one_cycle"] == 0:
        fields |= {"decay_start": usual_decay_start(epochs), "fidelity": ABOVE_ZERO}
    per_class = bool(params["keep_per_class"])
    return Plan(epochs=epochs, loss=loss, warmup_loss=warmup_loss, keep_per_class=per_class, **fields)


def papers_plan_of(params: Mapping[str, Any], samples: int) -> Plan:
    epochs, ramp = params["epochs"], params["ramp"]
    batch_size = min(params["batch_size"] or usual_batch(samples), samples)
    loss, warmup_loss = losses_of(params)
    return Plan(
        epochs=epochs,
        batch_size=batch_size,
        warmup=warmup_of(params, samples // batch_size),
        warmup_loss=warmup_loss,
        ramp=min(10, max(1, epochs // 2)) if ramp is None else ramp,
        lr=params["lr"],
        keep_per_class=bool(params["keep_per_class"]),
        decay_start=usual_decay_start(epochs),
        loss=loss,
        fidelity=ABOVE_ZERO,
    )


def optimiser_fields(params: Mapping[str, Any], optimizer_options: dict[str, Any]) -> dict[str, Any]:
    """What a plan says of the optimiser; that of the modern recipe has options of its own."""
    fields = plan_fields(params["optimizer"], optimizer_options)
    if not params["modern"]:
        return fields
    if params["optimizer"] == "sgd" and fields["optimizer"] == "sgd":
        return {name: value for name, value in fields.items() if name in optimizer_options}
    return {"nesterov": False, "decoupled_decay": False, "weight_decay": 0.0} | fields


def usual_batch(samples: int) -> int:
    return min(128, max(SMALLEST_BATCH, samples // STEPS_OF_AN_EPOCH))


def losses_of(params: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The loss, and that of the warm-up.

    If neither is given, Co-teaching has those that docs/results.md recommends: cross-entropy learns fast, and a
    bounded loss then keeps it from learning the wrong labels, too.
    """
    none_given = params["loss"] is None and params["warmup_loss"] is None and params["warmup"] != 0
    if params["method"] == "coteaching" and none_given and not params.get("modern"):
        return "softmax_twice", "cross_entropy"
    return params["loss"], params["warmup_loss"]


def warmup_of(params: Mapping[str, Any], steps: int) -> int:
    """A fifth of the epochs unless given; three quarters in Co-training, which drifts from the labels once it
    learns from its own. With a loss of its own as long as `plan.two_loss_warmup` says."""
    if params["warmup"] is not None:
        return params["warmup"]
    if METHODS[params["method"]].views:
        return max(1, 3 * params["epochs"] // 4)
    if losses_of(params)[1] is None:
        by_mixture = params["mixture"] or params["method"] == "dividemix"
        part = (4 if by_mixture else 2) if params.get("modern") else 5
        return max(1, params["epochs"] // part)
    return two_loss_warmup(params["epochs"], steps)


def seed_of(random_state: Any) -> int:
    if random_state is None:  # not NumPy's global generator, which is not ours to change
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


# ---- optimisers -----------------------------------------------------------------------------------------------

TORCHS: dict[str, type[Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in vars(torch.optim).values()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
}
# Those that have faster forms of our own, with the options that these know.
OURS = {torch.optim.Adam: ("weight_decay",), torch.optim.SGD: ("weight_decay", "momentum", "nesterov")}
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
    kind, options = optimiser_class(optimizer), with_usual_momentum(optimizer, options)
    try:
        kind([p for p in parameters if p.requires_grad], lr=lr, **options)  # pyrefly: ignore[unexpected-keyword]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{kind.__name__} refuses this network or its options ({error}): mend optimizer or optimizer__…."
        ) from error


def with_usual_momentum(optimizer: Any, options: dict[str, Any]) -> dict[str, Any]:
    """That of "sgd" by its name; torch's own default, for its class, is none."""
    by_name = isinstance(optimizer, str) and optimiser_class(optimizer) is torch.optim.SGD
    return {"momentum": 0.9} | options if by_name else options


def plan_fields(optimizer: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What a plan says of it."""
    kind, options = optimiser_class(optimizer), with_usual_momentum(optimizer, options)
    if kind in OURS and options.keys() <= set(OURS[kind]):
        none = {"momentum": 0.0} if kind is torch.optim.SGD else {}
        return {"optimizer": kind.__name__.lower()} | none | options
    of_torch = TORCHS.get(kind.__name__.lower()) is kind
    return {"optimizer": kind.__name__ if of_torch else kind, "optimizer_options": tuple(options.items())}
