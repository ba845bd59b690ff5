"""An ensemble as an ONNX file, to be run without this library. B samples, C classes."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coteach.files import refuse_place, write_atomically
from coteach.isolation import generators_restored
from coteach.turns import own_warning_filters

NEEDED = ("onnx", "onnxscript")
EXAMPLES_NEEDED = 2  # samples; of a single one torch would conclude that there is never another


class Rescaled(nn.Module):
    """Samples as users have them, as networks take them: what is subtracted and divided by is in the file."""

    def __init__(self, mean: Any, scale: Any):
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return ((x.double() - self.mean) / self.scale).float()


class Ensemble(nn.Module):
    """Probabilities (B, C) in one call, as the mean over networks.

    Parameters
    ----------
    logits : callable
        Inputs → logits (N, B, C).
    names : sequence of str
        Of the inputs that it takes by name: the last ones.
    """

    def __init__(self, logits: nn.Module, names: Sequence[str] = ()):
        super().__init__()
        self.logits, self.names = logits, tuple(names)

    def forward(self, *inputs: Tensor) -> Tensor:
        n = len(inputs) - len(self.names)
        return self.logits(*inputs[:n], **dict(zip(self.names, inputs[n:], strict=True))).softmax(-1).mean(0)


class Viewed(nn.Module):
    """Logits (N, B, C) of prepared samples, of which each network sees its own view."""

    def __init__(self, networks: Sequence[nn.Module], prepared: Rescaled, view: Callable[[Tensor, int], Tensor]):
        super().__init__()
        self.networks, self.prepared, self.view = nn.ModuleList(networks), prepared, view

    def forward(self, x: Tensor) -> Tensor:
        views = self.view(self.prepared(x)[None], len(self.networks))[:, 0]
        return torch.stack([network(one) for network, one in zip(self.networks, views, strict=True)])


def write_onnx(ensemble: Ensemble, inputs: Sequence[Tensor], path: str | Path) -> None:
    """The first axis of every input, and of the probabilities, is as long as the user likes."""
    refuse_place(Path(path), "model.onnx")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"an ONNX file needs {' and '.join(missing)}: pip install 'coteach[onnx]'.")
    if not inputs or any(len(x) < EXAMPLES_NEEDED for x in inputs):
        raise ValueError("an ONNX file is made from an example: give a batch of at least two samples.")
    batch, unnamed = torch.export.Dim("batch"), len(inputs) - len(ensemble.names)
    names = [f"x{i}" if i else "x" for i in range(unnamed)] + list(ensemble.names)
    with quiet_torch(), torch.no_grad():
        program = torch.onnx.export(
            ensemble.eval(),
            tuple(inputs),
            dynamo=True,
            dynamic_shapes={"inputs": tuple({0: batch} for _ in inputs)},
            input_names=names,
            output_names=["probabilities"],
            verbose=False,
        )
    assert program is not None
    write_atomically(Path(path), program.model_proto.SerializeToString())


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Without what torch says about itself, such as that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    with generators_restored(), own_warning_filters():
        level = logger.level
        logger.setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)
