"""The pre-activation ResNet-18 (He et al., 2016) of the paper's T-ImageNet experiments."""

import torch.nn.functional as F
from torch import Tensor, nn


class PreActBlock(nn.Module):
    """Two 3×3 convolutions, each after batch norm and ReLU, around a shortcut.

    Where the shape changes, the shortcut is a 1×1 convolution of the activated input.
    """

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(n_in)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        same_shape = stride == 1 and n_in == n_out
        self.projection = None if same_shape else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        shortcut = x if self.projection is None else self.projection(active)
        return shortcut + self.conv2(F.relu(self.norm2(self.conv1(active))))


class PreActResNet18(nn.Module):
    """A 3×3 convolution, four stages of two blocks (64 to 512 channels, three halvings), one dense layer.

    Parameters
    ----------
    n_classes : int
        Number of logits.
    head : {"standard", "authors"}
        ``"standard"`` ends in batch norm, ReLU and the average of the whole map. ``"authors"`` (fidelity row
        12) has no batch norm and ReLU there, and averages 4×4 of the map only: of 7×7 for 56×56 images.
    channels : int
        Channels of the images.

    Examples
    --------
    >>> PreActResNet18(200).eval()(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 200])
    """

    def __init__(self, n_classes: int, head: str = "standard", channels: int = 3) -> None:
        super().__init__()
        if head not in ("standard", "authors"):
            raise ValueError(f"there is no head {head!r} of PreActResNet18: choose 'standard' or 'authors'.")
        self.stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.stages = nn.Sequential(
            PreActBlock(64, 64, 1), PreActBlock(64, 64, 1),
            PreActBlock(64, 128, 2), PreActBlock(128, 128, 1),
            PreActBlock(128, 256, 2), PreActBlock(256, 256, 1),
            PreActBlock(256, 512, 2), PreActBlock(512, 512, 1),
        )  # fmt: skip
        if head == "standard":
            self.head = nn.Sequential(nn.BatchNorm2d(512), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        else:
            self.head = nn.Sequential(nn.AvgPool2d(4))
        self.output = nn.Linear(512, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.head(self.stages(self.stem(x))).flatten(1))
