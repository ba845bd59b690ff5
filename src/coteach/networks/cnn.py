"""The two convolutional networks of the paper's table "MLP and CNN models", both for 32×32 images."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """The CIFAR-10 network: two unpadded 5×5 convolutions, each with a max-pool, and three dense layers.

    Parameters
    ----------
    n_classes : int
        Number of logits.
    channels : int
        Channels of the images.

    Examples
    --------
    >>> SmallCNN(10)(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    def __init__(self, n_classes: int, channels: int = 3) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.dense = nn.Sequential(
            nn.Linear(16 * 5 * 5, 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, n_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.convolutions(x).flatten(1))


class CNN7(nn.Module):
    """The CIFAR-100 and open-set network: six 3×3 convolutions with batch norm, pooled after every second.

    The table ends in "Dense 256" after a convolution of 196 channels, which cannot be built (196·4·4 = 3136);
    `form` chooses between three ways out (fidelity row 9):

    - ``"authors"``: 16 channels in the sixth convolution, so 16·4·4 = 256;
    - ``"printed"``: 196 channels, and 3136 inputs to the output layer;
    - ``"dense"``: 196 channels and a layer of 256 in between. It is linear, without batch norm or activation,
      because the network of Wang et al. (2018), from which the table was taken, has it so.

    Parameters
    ----------
    n_classes : int
        Number of logits.
    form : {"authors", "printed", "dense"}
    channels : int
        Channels of the images.

    Examples
    --------
    >>> CNN7(100).eval().features(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 256])
    """

    def __init__(self, n_classes: int, form: str = "authors", channels: int = 3) -> None:
        super().__init__()
        if form not in ("authors", "printed", "dense"):
            raise ValueError(f"there is no form {form!r} of CNN7: choose 'authors', 'printed' or 'dense'.")
        n_last = 16 if form == "authors" else 196
        self.convolutions = nn.Sequential(
            *_conv(channels, 64), *_conv(64, 64), nn.MaxPool2d(2),
            *_conv(64, 128), *_conv(128, 128), nn.MaxPool2d(2),
            *_conv(128, 196), *_conv(196, n_last), nn.MaxPool2d(2),
        )  # fmt: skip
        n_flat = n_last * 4 * 4
        self.hidden = nn.Linear(n_flat, 256) if form == "dense" else nn.Identity()
        self.output = nn.Linear(256 if form == "dense" else n_flat, n_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the output layer sees: 256 numbers a sample, 3136 in the printed form."""
        return self.hidden(self.convolutions(x).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.features(x))


def _conv(n_in: int, n_out: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    # no bias: batch norm would subtract it again, and it would cost a tenth of a step
    return nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()
