"""In which precision a forward pass and its gradient are computed; weights and optimiser stay in float32."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum

import torch
from torch import Tensor


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
