"""EfficientNet-Lite0 without its classifier: 1280 features of an image. B images.

Names of layers are those of the published weights, without their leading underscores. The network was trained
with TensorFlow, so a stride pads more at the right and below than at the left and above.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

STEM, FEATURES = 32, 1280
# Kernel, stride, how many times wider inside, channels out; as many rows as blocks.
STAGES = (
    (3, 1, 1, 16, 1), (3, 2, 6, 24, 2), (5, 2, 6, 40, 2), (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3), (5, 2, 6, 192, 4), (3, 1, 6, 320, 1),
)  # fmt: skip
OF_A_CLASSIFIER = ("fc.weight", "fc.bias")


class SameConv(nn.Conv2d):
    """Pads so that a stride of two halves a side, rounded up."""

    def forward(self, input: Tensor) -> Tensor:
        around = []
        for side, kernel, stride in zip(input.shape[:1:-1], self.kernel_size, self.stride, strict=True):
            missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            around += [missing // 2, missing - missing // 2]
        return super().forward(pad(input, around))


def conv(into: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> SameConv:
    return SameConv(into, out, kernel, stride, groups=groups, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class InvertedBlock(nn.Module):
    """Wider, each channel filtered on its own, narrower; added to what came in where shapes allow."""

    def __init__(self, into: int, out: int, kernel: int, stride: int, wider: int):
        super().__init__()
        inside = into * wider
        self.expand_conv, self.bn0 = (conv(into, inside), norm(inside)) if wider > 1 else (None, None)
        self.depthwise_conv, self.bn1 = conv(inside, inside, kernel, stride, inside), norm(inside)
        self.project_conv, self.bn2 = conv(inside, out), norm(out)
        self.adds = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        inner = x
        if self.expand_conv is not None and self.bn0 is not None:
            inner = relu6(self.bn0(self.expand_conv(inner)))
        inner = relu6(self.bn1(self.depthwise_conv(inner)))
        inner = self.bn2(self.project_conv(inner))
        return x + inner if self.adds else inner


class EfficientNetLite0(nn.Module):
    """Features (B, 1280) of images (B, 3, height, width) whose pixels are from 0 to 255."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem, self.bn0 = conv(3, STEM, 3, 2), norm(STEM)
        self.blocks = nn.ModuleList()
        channels = STEM
        for kernel, stride, wider, out, repeats in STAGES:
            for k in range(repeats):
                self.blocks.append(InvertedBlock(channels, out, kernel, stride if k == 0 else 1, wider))
                channels = out
        self.conv_head, self.bn1 = conv(channels, FEATURES), norm(FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        x = relu6(self.bn0(self.conv_stem((x - 127) / 128)))
        for block in self.blocks:
            x = block(x)
        return relu6(self.bn1(self.conv_head(x))).mean((2, 3))


def without_weights() -> EfficientNetLite0:
    """Only names and shapes: nothing is drawn, for torch's generator is not ours."""
    with torch.device("meta"):
        return EfficientNetLite0()


def plain_name(name: str) -> str:
    """Ours, without the underscores of the published ones."""
    return re.sub(r"(^|\.)_", r"\1", name)


def as_tensorflow_kept_them(flat: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Flat weights in their shapes: of a kernel height, width, channels in and channels out, in this order."""
    shapes = {name: tensor.shape for name, tensor in without_weights().state_dict().items()}
    shaped = {}
    for name, tensor in flat.items():
        shape = shapes.get(plain_name(name), tensor.shape)
        if len(shape) == 4:
            out, into, height, width = shape
            tensor = tensor.reshape(height, width, into, out).permute(3, 2, 0, 1)
        shaped[name] = tensor.reshape(shape)
    return shaped


def efficientnet_with(weights: Mapping[str, Tensor], path: Path) -> EfficientNetLite0:
    """The network with these weights; a ValueError names what is missing or has another shape."""
    network = without_weights()
    own = network.state_dict()
    named = {plain_name(name): tensor for name, tensor in weights.items()}
    for name, tensor in own.items():
        if name.endswith("num_batches_tracked"):
            named.setdefault(name, torch.zeros(tensor.shape))
        if name not in named:
            raise ValueError(f"{path} has no weights {name}: give those of an EfficientNet-Lite0.")
        if named[name].shape != tensor.shape:
            raise ValueError(
                f"{path} has weights {name} of shape {tuple(named[name].shape)} instead of {tuple(tensor.shape)}: "
                "give those of an EfficientNet-Lite0."
            )
    unknown = sorted(named.keys() - own.keys() - set(OF_A_CLASSIFIER))
    if unknown:
        raise ValueError(
            f"{path} has weights {unknown[0]}, which an EfficientNet-Lite0 has not: give another file."
        )
    network.load_state_dict({name: named[name].to(tensor.dtype) for name, tensor in own.items()}, assign=True)
    return network.eval()
