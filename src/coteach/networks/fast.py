"""A convolutional network of today that learns photographs in a few epochs.

Shapes: B images, C channels.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOGIT_SCALE = 9  # logits are divided by it, so that softmax begins soft
BIAS_SCALE = 8  # squared, how much faster than weights the biases learn under SGD
BATCH_NORM_MOMENTUM = 0.4  # statistics follow the few, large steps of a short training
FIRST_CHANNELS, CHANNELS = 64, 256


class FastCNN(nn.Module):
    """Uncorrelated patches of 2×2, then blocks of two 3×3 convolutions that halve the image, then its maximum.

    Own design, from the ideas of the public speed records for CIFAR-10 (Jordan, 2024): convolutions that begin as
    the identity, batch norm that learns a bias only, and fast, logits that begin small. The first layer needs no
    data to be built: patches go through fixed averages and differences of pixels and channels, which are all but
    uncorrelated in photographs, and batch norm gives these their equal variance.

    Parameters
    ----------
    n_classes : int
        Number of logits.
    channels : int
        Channels of the images.
    size : int
        Their shorter side in pixels, at least 16; it decides how many blocks there are: three for 32 pixels.
    width : float
        Channels of the blocks, in multiples of 64, 256, 256, …
    mirror : bool
        While evaluating, answer with the mean logits of an image and its mirror image: for networks that learn
        from both.

    Examples
    --------
    >>> FastCNN(10).eval()(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    shared_buffers = ("patches.filters",)  # the same in every network: neither stacked nor saved
    half_precision = True  # where that is faster, unless asked otherwise: what it learns is no worse for it
    channels_last = True  # how a CPU is half as fast again

    def __init__(
        self, n_classes: int, channels: int = 3, size: int = 32, width: float = 1.0, mirror: bool = False
    ) -> None:
        super().__init__()
        self.mirror = mirror
        if not 0 < width < math.inf:
            raise ValueError(f"width is {width}: give a number above 0, such as 0.5.")
        n_blocks = max(2, round(math.log2(size / 4)))
        widths = [rounded_channels(width * n) for n in (FIRST_CHANNELS, *[CHANNELS] * (n_blocks - 1))]
        self.patches = UncorrelatedPatches(channels)
        n_in = [2 * self.patches.n_filters, *widths]
        self.blocks = nn.Sequential(*(FastBlock(a, b) for a, b in zip(n_in, widths, strict=False)))
        self.output = nn.Linear(widths[-1], n_classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.mirror and not self.training:
            return (self.logits(x) + self.logits(x.flip(-1))) / 2
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        """Those of the images as they are, not mirrored."""
        # not amax: in half precision torch.compile finds none of the maxima again, and divides by their number
        features = self.blocks(self.patches(x)).flatten(2).max(-1).values
        return self.output(features) / LOGIT_SCALE


def rounded_channels(n: float) -> int:
    """A multiple of 8, as tensor cores like it, and at least that.

    >>> rounded_channels(64), rounded_channels(30), rounded_channels(3)
    (64, 32, 8)
    """
    return max(8, round(n / 8) * 8)


class UncorrelatedPatches(nn.Module):
    """Averages and differences over 2×2 pixels and all channels, with equal variance; and their negatives."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.n_filters = 4 * channels
        basis = torch.einsum("ac,bh,dw->abdchw", cosines(channels), cosines(2), cosines(2))
        self.register_buffer("filters", basis.reshape(self.n_filters, channels, 2, 2), persistent=False)
        self.norm = nn.BatchNorm2d(self.n_filters, eps=1e-8, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(F.conv2d(x, self.filters))
        return F.gelu(torch.cat([x, -x], 1))


def cosines(n: int) -> Tensor:
    """The orthonormal rows of the discrete cosine transform: of 2 numbers their sum and their difference.

    >>> cosines(2).sign().tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    k, i = torch.arange(n)[:, None], torch.arange(n)
    rows = torch.cos(math.pi * k * (2 * i + 1) / (2 * n))
    return rows / rows.norm(dim=1, keepdim=True)


class FastBlock(nn.Module):
    """Two 3×3 convolutions, the first of them pooled, each with batch norm and GELU."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = identity_convolution(n_in, n_out), identity_convolution(n_out, n_out)
        self.norm1, self.norm2 = BiasBatchNorm2d(n_out), BiasBatchNorm2d(n_out)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


def identity_convolution(n_in: int, n_out: int) -> nn.Conv2d:
    """The first channels out are those in, to begin with."""
    convolution = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(convolution.weight[: min(n_in, n_out)])
    return convolution


class BiasBatchNorm2d(nn.BatchNorm2d):
    """Batch norm without a scale to learn, whose bias learns BIAS_SCALE² times as fast as the weights (SGD)."""

    def __init__(self, n: int) -> None:
        super().__init__(n, momentum=BATCH_NORM_MOMENTUM)
        self.weight.requires_grad_(False)

    def forward(self, input: Tensor) -> Tensor:
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, BIAS_SCALE * self.bias, self.training,
            BATCH_NORM_MOMENTUM, self.eps,
        )  # fmt: skip
