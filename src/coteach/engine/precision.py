"""In which precision a forward pass and its gradient are computed; weights and optimiser stay in float32."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Precision(Enum):
    """`FLOAT32` is exact; `TF32` rounds the factors of products to 10 bits, `BF16` nearly everything to 8."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BF16 = "bf16"

    def forward(self, device_type: str) -> AbstractContextManager:
        if self is Precision.BF16:
            return torch.autocast(device_type, torch.bfloat16)
        return nullcontext()

    def laid_out(self, x: Tensor) -> Tensor:
        """Images with their channels last, as bfloat16 convolutions on a GPU want them."""
        if self is Precision.BF16 and x.is_cuda and x.dim() == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    @contextmanager
    def set(self) -> Iterator[None]:
        """torch's own switches inside the block, then as they were: by default it lets convolutions use TF32."""
        switches = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # pyrefly: ignore[missing-attribute]
        before = [switch.fp32_precision for switch in switches]
        for switch in switches:
            switch.fp32_precision = "ieee" if self is Precision.FLOAT32 else "tf32"
        try:
            yield
        finally:
            for switch, value in zip(switches, before, strict=True):
                switch.fp32_precision = value


def cpu_multiplies_in_half() -> bool:
    """Whether this CPU has instructions for bfloat16, with which convolutions take half to a quarter of the time.

    Without them torch rounds to bfloat16 all the same, and gains nothing.
    """
    asks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")  # torch has no public name for them
    return any(getattr(torch.cpu, ask, bool)() for ask in asks)


# ---- convolutions whose channels tensor cores like ------------------------------------------------------------


class PaddedConv2d(nn.Conv2d):
    """The same convolution with zero channels added up to a multiple of 8.

    cuDNN's bfloat16 kernels need that, and would copy the whole batch to get it, several times a step.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        n_out, n_in = weight.shape[:2]
        more_in, more_out = -n_in % 8, -n_out % 8
        input = F.pad(input, (0, 0, 0, 0, 0, more_in))
        weight = F.pad(weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
        bias = None if bias is None else F.pad(bias, (0, more_out))
        return super()._conv_forward(input, weight, bias)[:, :n_out]


def pad_convolutions(module: nn.Module) -> None:
    for m in module.modules():
        if type(m) is nn.Conv2d and m.groups == 1 and (m.in_channels % 8 or m.out_channels % 8):
            m.__class__ = PaddedConv2d


def unpad_convolutions(module: nn.Module) -> None:
    for m in module.modules():
        if type(m) is PaddedConv2d:
            m.__class__ = nn.Conv2d  # pyrefly: ignore[bad-argument-type]
