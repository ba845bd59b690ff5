"""Two networks as one module, for your own training loop. N networks, B samples of a batch, C classes."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coteach.isolation import generators_restored


class Pair(nn.Module):
    """One module that holds two networks and gives both the same samples.

    The two share no weights that learn, so one optimiser for both does what two would do. It takes twice the
    memory and time of one network. Frozen weights that `build` puts into both are stored once, also in a file.

    Parameters
    ----------
    build : callable
        Makes a network; called once for each seed, without arguments.
    seeds : two int
        Seed torch's generator while each network is made, so that the two start differently. Afterwards the
        generator is as it was.

    Attributes
    ----------
    networks : torch.nn.ModuleList
        The two networks.

    Examples
    --------
    >>> pair = coteach.Pair(lambda: torch.nn.Linear(4, 3))
    >>> pair(torch.zeros(5, 4)).shape, pair.ensemble(torch.zeros(5, 4)).shape
    (torch.Size([2, 5, 3]), torch.Size([5, 3]))
    """

    accepts_loss_kwargs = False  # what Hugging Face's Trainer asks a model whose arguments it cannot read

    def __init__(self, build: Callable[[], nn.Module], seeds: tuple[int, int] = (0, 1)):
        super().__init__()
        if isinstance(build, nn.Module) or not callable(build):
            raise ValueError(
                f"build is a {type(build).__name__}: give a function that makes a network, such as lambda: Net()."
            )
        if not isinstance(seeds, Sequence) or len(seeds) != 2 or seeds[0] == seeds[1]:
            raise ValueError(f"seeds are {seeds!r}: give two that differ, such as (0, 1).")
        self.networks = nn.ModuleList(made(build, seed) for seed in seeds)
        refuse_shared(*self.networks)
        self.register_state_dict_post_hook(leave_out_aliases)
        self.register_load_state_dict_pre_hook(put_back_aliases)

    def forward(self, *inputs: Any, labels: Any = None, **named: Any) -> Any:
        """Both networks' logits (2, B, C), or what the networks return with those inside.

        Parameters
        ----------
        *inputs, **named
            Whatever the networks take; both get the same.
        labels : optional
            Passed to the networks if given.

        Returns
        -------
        output : tensor of shape (2, B, C), or a mapping or object with such `logits`
            In a mapping every other entry becomes a pair, except a loss: it is the sum of both.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> class Model(torch.nn.Linear):
        ...     def forward(self, input_ids):
        ...         return SimpleNamespace(logits=super().forward(input_ids))
        >>> coteach.Pair(lambda: Model(4, 3))(input_ids=torch.zeros(5, 4)).logits.shape
        torch.Size([2, 5, 3])
        """
        if labels is not None:
            named["labels"] = labels
        return joined([network(*inputs, **named) for network in self.networks])

    @torch.no_grad()
    def ensemble(self, *inputs: Any, **named: Any) -> Tensor:
        """The networks' mean probabilities, in evaluation mode and without gradients.

        Parameters
        ----------
        *inputs, **named
            The same as for a call.

        Returns
        -------
        probabilities : tensor of shape (B, C)

        Examples
        --------
        >>> pair = coteach.Pair(lambda: torch.nn.Linear(4, 3))
        >>> pair.ensemble(torch.zeros(5, 4)).sum(-1).round(decimals=3).tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
        """
        with evaluating(self):
            return mean_probabilities(logits_of(self(*inputs, **named)))

    def export_onnx(self, path: str | Path, *inputs: Tensor, **named: Tensor) -> None:
        """Write the ensemble to an ONNX file that returns mean probabilities. Needs the extra `onnx`.

        Parameters
        ----------
        path : path
        *inputs, **named : tensors
            An example call with at least two samples. The file's inputs are "x", "x1", …, and the named ones.

        Examples
        --------
        >>> pair = coteach.Pair(lambda: torch.nn.Linear(4, 3))
        >>> pair.export_onnx("pair.onnx")
        Traceback (most recent call last):
        ValueError: an ONNX file is made from an example: give a batch of at least two samples.
        """
        from coteach.loops.onnx_file import Ensemble, write_onnx

        with evaluating(self):
            write_onnx(Ensemble(OnlyLogits(self), list(named)), [*inputs, *named.values()], path)

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Turn on gradient checkpointing in both networks: Hugging Face's Trainer calls it to save memory.

        Parameters
        ----------
        **options
            Passed to the networks.

        Examples
        --------
        >>> coteach.Pair(lambda: torch.nn.Linear(4, 3)).gradient_checkpointing_enable()
        Traceback (most recent call last):
        AttributeError: 'Linear' object has no attribute 'gradient_checkpointing_enable'
        """
        for network in self.networks:
            network.gradient_checkpointing_enable(**options)  # pyrefly: ignore[not-callable]

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Scale each network's gradient down to this norm if it is above; by the norm of both it would depend
        on the peer.

        Parameters
        ----------
        max_norm : float

        Returns
        -------
        norms : tensor of shape (2,)
            As they were before.

        Examples
        --------
        >>> pair = coteach.Pair(lambda: torch.nn.Linear(4, 3))
        >>> pair(torch.ones(5, 4)).sum().backward()
        >>> bool((pair.clip_gradients(1.0) > 1).all()), round(float(pair.networks[0].weight.grad.norm()), 1)
        (True, 0.9)
        """
        return torch.stack([nn.utils.clip_grad_norm_(network.parameters(), max_norm) for network in self.networks])


class OnlyLogits(nn.Module):
    """A model without whatever else it returns."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        return logits_of(self.model(*inputs, **named))


def made(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with generators_restored():
        torch.manual_seed(seed)
        network = build()
    if not isinstance(network, nn.Module):
        raise ValueError(f"build makes {type(network).__name__}: let it make a torch.nn.Module.")
    return network


def refuse_shared(first: nn.Module, second: nn.Module) -> None:
    """What both learn, one of them may learn from wrong labels; what begins equal may stay equal."""
    ours = {id(p) for p in first.parameters() if p.requires_grad}
    for name, parameter in second.named_parameters():
        if id(parameter) in ours:
            raise ValueError(
                f"both networks learn the same weights {name}: freeze them, or let build make new ones."
            )
    theirs = [p for p in second.parameters() if p.requires_grad]
    pairs = list(zip((p for p in first.parameters() if p.requires_grad), theirs, strict=False))
    if pairs and all(torch.equal(p, q) for p, q in pairs):
        warnings.warn(
            "both networks begin with the same weights, and can teach each other nothing: "
            "let build draw some anew, such as the last layer.",
            stacklevel=3,
        )


def aliases(module: nn.Module) -> dict[str, str]:
    """The second and later names of weights that are there once, each with the first name.

    >>> layer = torch.nn.Linear(2, 2, bias=False)
    >>> aliases(torch.nn.Sequential(layer, layer))
    {'1.weight': '0.weight'}
    """
    first: dict[int, str] = {}
    tensors = chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    names = {name: first.setdefault(id(tensor), name) for name, tensor in tensors}
    return {name: earlier for name, earlier in names.items() if name != earlier}


def leave_out_aliases(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """From a state dict: safetensors, which Hugging Face's Trainer writes, refuses a tensor that comes twice."""
    for name in aliases(module):
        state.pop(prefix + name, None)


def put_back_aliases(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, earlier in aliases(module).items():
        if prefix + earlier in state:
            state.setdefault(prefix + name, state[prefix + earlier])


def joined(outputs: list[Any]) -> Any:
    """The networks' outputs as one, with stacked logits."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.stack(outputs)
    logits_NBC = torch.stack([logits_of(output) for output in outputs])
    if not isinstance(first, Mapping):
        if isinstance(first, tuple) and hasattr(first, "_replace"):  # a named tuple
            return first._replace(logits=logits_NBC)
        whole = copy.copy(first)
        object.__setattr__(whole, "logits", logits_NBC)  # of a frozen dataclass, too
        return whole
    parts: dict[str, Any] = {name: tuple(output[name] for output in outputs) for name in first}
    if isinstance(first.get("loss"), Tensor):
        parts["loss"] = sum(parts["loss"])
    # a mapping of Hugging Face's has its names as arguments, as a dict has
    return type(first)(**(parts | {"logits": logits_NBC}))


def logits_of(output: Any) -> Tensor:
    """The logits of whatever a network returns."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"a network returns a {type(output).__name__} without logits: let it return a tensor of logits, or "
            "something that has them as .logits."
        )
    return logits


def mean_probabilities(logits_NBC: Tensor) -> Tensor:
    return logits_NBC.softmax(-1).mean(0)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, and each part's own mode afterwards."""
    learning = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in learning:
            part.training = True
