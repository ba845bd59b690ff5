"""The networks of the paper, and a modern one, by name. Quick to import: torch is loaded when one is built."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coteach.modern import SMALLEST_SIDE
from coteach.names import check_name

if TYPE_CHECKING:
    from torch import nn

NETWORKS: dict[str, str] = {
    "mlp": "one hidden layer of 256, ReLU: the paper's MNIST network, for samples of any shape",
    "mlp3": "two hidden layers of 256, ReLU: the 3-layer MLP of the paper's introduction",
    "small_cnn": "two 5×5 convolutions and three dense layers: the paper's CIFAR-10 network, 32×32 images",
    "cnn7": "six 3×3 convolutions, the last of 16 channels: the authors' CIFAR-100 network, 32×32 images",
    "cnn7_printed": "the same with 196 channels in the last convolution, as the paper's table prints it",
    "cnn7_dense": "the printed one with a linear layer of 256 features, as Wang et al. (2018) build it",
    "news": "frozen word vectors averaged over 16 pieces of a document, then three dense layers: NEWS",
    "news_flat": "the same, averaging the flattened numbers as the authors' code does",
    "preact_resnet18": "pre-activation ResNet-18 with batch norm and global average before the output",
    "fast_cnn": "four or more 3×3 convolutions, made to learn photographs in few epochs; from 16×16 pixels on",
    "preact_resnet18_authors": "the same with the authors' head: 4×4 average, no batch norm, 25 to 56 pixels",
}
"""What each network is, by its name.

>>> "small_cnn" in NETWORKS
True
"""

# What a name fixes of its family's options.
FORMS: dict[str, dict[str, Any]] = {
    "mlp3": {"hidden": (256, 256)},
    "cnn7_printed": {"form": "printed"},
    "cnn7_dense": {"form": "dense"},
    "news_flat": {"pooling": "flat"},
    "preact_resnet18_authors": {"head": "authors"},
}


def build(name: str, *, shape: Sequence[int], n_classes: int, vectors: Any = None, **options: Any) -> "nn.Module":
    """Build a network with torch's default initialisation.

    Parameters
    ----------
    name : str
        One of `NETWORKS`.
    shape : sequence of int
        Shape of one sample as the network gets it, after any crop: (C, H, W), (n_features,) or, for
        documents, (n_tokens,).
    n_classes : int
        Number of logits.
    vectors : array of shape (V, D), optional
        Word vectors, for documents only.
    **options
        Passed to the network, for instance ``hidden=(128,)``.

    Returns
    -------
    network : torch.nn.Module
        Takes a batch of shape (B, ...) to logits of shape (B, n_classes).

    Examples
    --------
    >>> network = build("mlp", shape=(64,), n_classes=10, hidden=(32,))
    >>> network(torch.zeros(5, 64)).shape
    torch.Size([5, 10])
    """
    from coteach.networks import fast, models

    check_name("network", name, NETWORKS)
    if name in _OF_USERS:
        return _OF_USERS[name](shape=tuple(shape), n_classes=n_classes, **options)
    reads_words = name in ("news", "news_flat")
    if reads_words and (vectors is None or len(shape) != 1):
        raise ValueError(f"{name} reads documents: give it token numbers of shape (n_tokens,) and word vectors.")
    if not reads_words and vectors is not None:
        raise ValueError(f"{name} cannot read documents: choose 'news' or 'news_flat', or give no word vectors.")

    options = FORMS.get(name, {}) | options
    match name:
        case "mlp" | "mlp3":
            return models.MLP(math.prod(shape), n_classes, **options)
        case "small_cnn":
            _check_image(name, shape, 32, 32, "give it images of shape (channels, 32, 32), or choose 'mlp'")
            return models.SmallCNN(n_classes, channels=shape[0], **options)
        case "cnn7" | "cnn7_printed" | "cnn7_dense":
            _check_image(name, shape, 32, 32, "give it images of shape (channels, 32, 32), or choose 'mlp'")
            return models.CNN7(n_classes, channels=shape[0], **options)
        case "news" | "news_flat":
            return models.NewsNet(vectors, n_classes, **options)
        case "fast_cnn":
            _check_image(name, shape, SMALLEST_SIDE, math.inf, "give it images of 16×16 or more, or choose 'mlp'")
            return fast.FastCNN(n_classes, channels=shape[0], size=min(shape[1:]), **options)
        case "preact_resnet18" | "preact_resnet18_authors":
            if options.get("head") == "authors":
                _check_image(name, shape, 25, 56, "crop images to (3, 56, 56), or choose 'preact_resnet18'")
            else:
                _check_image(name, shape, 8, math.inf, "give it images of 8×8 or more, or choose 'mlp'")
            return models.PreActResNet18(n_classes, channels=shape[0], **options)
    raise AssertionError(f"{name} is described but cannot be built")


_OF_USERS: dict[str, Callable[..., "nn.Module"]] = {}


def register_network(name: str, build: Callable[..., "nn.Module"], meaning: str = "of your own") -> None:
    """Add your own network: Experiment and `networks.build` then know it by its name, in this process.

    Parameters
    ----------
    name : str
    build : callable
        Called as ``build(shape=…, n_classes=…)``, with the shape of one sample; returns a torch module that takes
        (B, ...) to logits of shape (B, n_classes). A class will do.
    meaning : str
        A line for help texts.

    Examples
    --------
    >>> def linear(shape, n_classes):
    ...     return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), n_classes))
    >>> register_network("linear", linear)
    >>> coteach.Experiment(network="linear").network_name
    'linear'
    """
    if name in NETWORKS:
        raise ValueError(f"there is a network {name!r} already: give yours another name.")
    NETWORKS[name] = meaning
    _OF_USERS[name] = build


def default_for(shape: Sequence[int], dtype_is_tokens: bool = False) -> str:
    """Name of a sensible network for samples of this shape.

    Parameters
    ----------
    shape : sequence of int
        Of one sample.
    dtype_is_tokens : bool
        Whether a sample is a document, a row of token numbers.

    Returns
    -------
    name : str

    Examples
    --------
    >>> default_for((64,)), default_for((3, 32, 32)), default_for((3, 64, 64))
    ('mlp', 'small_cnn', 'preact_resnet18')
    """
    if dtype_is_tokens:
        return "news"
    if tuple(shape) == (3, 32, 32):
        return "small_cnn"
    if len(shape) == 3 and min(shape[1:]) >= 64:
        return "preact_resnet18"
    return "mlp"


def _check_image(name: str, shape: Sequence[int], smallest: int, largest: float, mend: str) -> None:
    """Raise a ValueError unless a sample is an image with sides in this range; `mend` is the remedy."""
    if len(shape) != 3 or min(shape[1:]) < smallest or max(shape[1:]) > largest:
        raise ValueError(f"{name} cannot take a sample of shape {tuple(shape)}: {mend}.")
