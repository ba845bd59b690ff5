"""The networks of the paper as modules, and their weights under names for files.

Shapes: B samples or documents, L tokens in a document, V words, D numbers a word, C classes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PIECES = 16  # of a document, in each of which the word vectors are averaged


class MLP(nn.Module):
    """Dense layers with ReLU between them; `hidden=(256, 256)` is the 3-layer one of the introduction.

    Parameters
    ----------
    n_inputs : int
        Numbers of a sample, whatever its shape.
    n_classes : int
        Number of logits.
    hidden : tuple of int
        Widths of the hidden layers; () makes a linear model.

    Examples
    --------
    >>> MLP(28 * 28, 10)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    def __init__(self, n_inputs: int, n_classes: int, hidden: tuple[int, ...] = (256,)) -> None:
        super().__init__()
        widths = (n_inputs, *hidden)
        self.hidden = nn.Sequential()
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            self.hidden.extend([nn.Linear(n_in, n_out), nn.ReLU()])
        self.output = nn.Linear(widths[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of samples of any shape, flattened here."""
        return self.output(self.hidden(x.flatten(1)))


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


def pool_words(tokens_BL: Tensor, vectors_VD: Tensor, pooling: str = "words") -> Tensor:
    """Average a document's word vectors to 16·D numbers; nothing here is learnt.

    ``"words"`` averages over 16 pieces of the document, as the paper writes; ``"flat"`` averages neighbours
    among the flattened L·D numbers, as the authors' code does, mixing a word's coordinates (fidelity row 10).
    """
    words_BLD = F.embedding(tokens_BL, vectors_VD)
    if pooling == "flat":
        return F.adaptive_avg_pool1d(words_BLD.flatten(1), PIECES * vectors_VD.shape[1])
    pieces_BDP = F.adaptive_avg_pool1d(words_BLD.transpose(1, 2), PIECES)
    return pieces_BDP.transpose(1, 2).flatten(1)


class NewsNet(nn.Module):
    """Average to 16·D, then dense layers to 4·D and D, each with batch norm and Softsign, then logits.

    Parameters
    ----------
    vectors : array of shape (V, D)
        One row a word, never trained, and never saved with the weights.
    n_classes : int
        Number of logits.
    pooling : {"words", "flat"}
        See `pool_words`.

    Examples
    --------
    >>> documents = torch.tensor([[1, 2, 0, 0], [2, 2, 1, 0]])  # two, of four tokens; 0 is padding
    >>> NewsNet(torch.zeros(3, 5), 7)(documents).shape
    torch.Size([2, 7])
    """

    # Equal in every copy and never changed, so that copies run together can share one table.
    shared_buffers = ("vectors",)
    vectors: Tensor

    def __init__(self, vectors: Any, n_classes: int, pooling: str = "words") -> None:
        super().__init__()
        if pooling not in ("words", "flat"):
            raise ValueError(f"there is no pooling {pooling!r}: choose 'words' or 'flat'.")
        table_VD = torch.as_tensor(vectors, dtype=torch.get_default_dtype())
        if table_VD.ndim != 2:
            raise ValueError(
                f"word vectors must be a table, one row a word, but have shape {tuple(table_VD.shape)}."
            )
        self.register_buffer("vectors", table_VD, persistent=False)
        self.pooling = pooling
        d = table_VD.shape[1]
        self.dense = nn.Sequential(
            nn.Linear(PIECES * d, 4 * d), nn.BatchNorm1d(4 * d), nn.Softsign(),
            nn.Linear(4 * d, d), nn.BatchNorm1d(d), nn.Softsign(),
            nn.Linear(d, n_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Logits of integer tokens (B, L), or of documents that `pool_words` has averaged beforehand (B, 16·D)."""
        if not x.is_floating_point():
            x = pool_words(x, self.vectors, self.pooling)
        return self.dense(x)


def weights_of(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Every tensor under the number of its network, in memory of its own, for files of safetensors."""
    return {
        f"{n}.{name}": value.detach().cpu().contiguous().clone()
        for n, network in enumerate(networks)
        for name, value in network.state_dict().items()
    }


def take_weights(networks: Sequence[nn.Module], tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Put what `weights_of` returned into networks of the same kind."""
    for n, network in enumerate(networks):
        mine = {k.removeprefix(f"{n}."): v for k, v in tensors.items() if k.startswith(f"{n}.")}
        try:
            network.load_state_dict(mine)
        except RuntimeError as error:
            raise ValueError(f"the weights in {path} do not fit the module: give its own.") from error
