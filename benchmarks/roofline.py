"""The roofline, what the device could do: the work of an epoch, counted, over the rates of the device, measured.

N networks, R runs, B samples of a batch, P parameters of a network.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from coteach.engine.precision import Precision

# Parameters, gradient and momentum; Adam's squares.
OPTIMISER_ARRAYS = {"adam": 4, "sgd": 3}


@dataclass(frozen=True)
class Work:
    """Arithmetic (floating-point operations) and bytes to move."""

    flop: float
    bytes: float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flop + other.flop, self.bytes + other.bytes)

    def __mul__(self, times: float) -> "Work":
        return Work(self.flop * times, self.bytes * times)


@dataclass(frozen=True)
class Rates:
    """What the device reaches in its best case: a large matrix product, a large copy."""

    flop_per_second: float
    bytes_per_second: float


def roofline_seconds(work: Work, rates: Rates) -> float:
    """The work's arithmetic at the rate of a large matrix product, then its bytes at the rate of a large copy:
    no launches, no waiting, nothing done twice. An ideal, not a bound: whoever computes while data move, or keeps
    them in a cache, can stay below it.
    """
    return work.flop / rates.flop_per_second + work.bytes / rates.bytes_per_second


def epoch_work(
    build: Callable[[], nn.Module],
    x_B: Tensor,
    *,
    steps: int,
    test_samples: int,
    networks: int,
    runs: int,
    optimizer: str = "adam",
    precision: Precision = Precision.FLOAT32,
) -> Work:
    """The work of training N networks × R runs for `steps` batches like x_B (as stored) and testing them once."""
    with torch.random.fork_rng(devices=[]):
        network = build().to(x_B.device)
    with precision.forward(x_B.device.type):  # in half precision layers put out half as many bytes
        of_step, of_test = training_step(network, x_B, optimizer), forward(network, x_B)
    step = of_step * (networks * runs) + samples_in(x_B) * runs
    test = of_test * (networks * runs) + samples_in(x_B)
    return step * steps + test * (test_samples / len(x_B))


def training_step(network: nn.Module, x_B: Tensor, optimizer: str = "adam") -> Work:
    """Forward, backward, optimiser: its arrays read and written once, what the layers put out likewise.

    The arithmetic is that of matrix products and convolutions of any kind: forward, for the gradient of weights
    that learn, and for what is handed back. What is done between modules, as by F.gelu, is taken to be fused.
    """
    activations = ActivationBytes(network)
    with counted_operations() as counter, activations:
        logits = network.train()(as_floats(x_B))
        F.cross_entropy(logits, logits.argmax(-1)).backward()
    learnt = sum(p.numel() * p.element_size() for p in network.parameters() if p.requires_grad)
    return Work(counter.get_total_flops(), 2 * OPTIMISER_ARRAYS[optimizer] * learnt + 2 * activations.bytes)


def forward(network: nn.Module, x_B: Tensor) -> Work:
    activations = ActivationBytes(network)
    with counted_operations() as counter, activations, torch.no_grad():
        network.eval()(as_floats(x_B))
    return Work(counter.get_total_flops(), 2 * activations.bytes)


def counted_operations() -> FlopCounterMode:
    return FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: backward_convolution}
    )


def samples_in(x_B: Tensor) -> Work:
    return Work(0, x_B.numel() * x_B.element_size())


def as_floats(x: Tensor) -> Tensor:
    return x.float() / 255 if x.dtype == torch.uint8 else x


def backward_convolution(
    grad_shape: Sequence[int], x_shape: Sequence[int], w_shape: Sequence[int], *more: Any, out_shape: Any
) -> int:
    """Each of the gradients that are asked for takes as many operations as the convolution did.

    torch's own count knows no groups.
    """
    transposed, asked_for = more[4], more[7]
    pixels = math.prod(x_shape if transposed else grad_shape)
    return (asked_for[0] + asked_for[1]) * 2 * pixels * math.prod(w_shape[1:])


class ActivationBytes:
    """Counts the bytes that a network's leaf modules put out, while it is entered."""

    def __init__(self, network: nn.Module) -> None:
        self.leaves = [module for module in network.modules() if not list(module.children())]
        self.bytes = 0

    def __enter__(self) -> None:
        self.handles = [leaf.register_forward_hook(self.count) for leaf in self.leaves]

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def count(self, module: nn.Module, inputs: tuple, output: Tensor) -> None:
        if all(output is not x for x in inputs):  # an nn.Identity moves nothing
            self.bytes += output.numel() * output.element_size()


@cache
def measured_rates(device: str, precision: Precision) -> Rates:
    """The best of several sizes and tries, on all cores of a CPU."""
    with precision.set():
        return best_rates(device, torch.bfloat16 if precision is Precision.BF16 else torch.float32)


def best_rates(device: str, dtype: torch.dtype) -> Rates:
    gpu = device.startswith("cuda")
    flop_rates = []
    for n in (2048, 4096, 8192) if gpu else (512, 1024, 2048):
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        flop_rates.append(2 * n**3 / best_seconds(lambda a=a, b=b: a @ b, device))
    source = torch.ones(2**30 if gpu else 2**27, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copying = best_seconds(lambda: target.copy_(source), device)
    return Rates(max(flop_rates), 2 * source.numel() / copying)


def best_seconds(work: Callable[[], object], device: str, tries: int = 5, spell: float = 0.05) -> float:
    """Seconds of a call: the shortest mean over a spell, since one call may be too quick for the clock."""
    work()
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    calls = max(1, round(spell / (time.perf_counter() - started)))
    best = float("inf")
    for _ in range(tries):
        started = time.perf_counter()
        for _ in range(calls):
            work()
        synchronise(device)
        best = min(best, (time.perf_counter() - started) / calls)
    return best


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
