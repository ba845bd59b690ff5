"""Encoders of other people's packages, by the names of their hubs: timm:NAME, hf:NAME, st:NAME.

Whoever can reach the hub has the weights downloaded by that package; a folder on this machine may stand for the
name. Code that comes with weights is never run. B samples, T tokens, F features.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coteach.checks import one_line
from coteach.isolation import generators_restored

PACKAGES_OF_HUBS = {"timm": "timm", "hf": "transformers", "st": "sentence-transformers"}


class Normalised(nn.Module):
    """A network behind the means and deviations of the pixels that it was trained with; takes 0 to 255."""

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.network, self.config = network, getattr(network, "config", None)
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1))

    def extra_repr(self) -> str:
        """What its weights do not tell."""
        return "" if self.config is None else str(self.config)

    def forward(self, x: Tensor) -> Tensor:
        found = self.network((x / 255 - self.mean) / self.std)
        return found if isinstance(found, Tensor) else pooled_states(found.last_hidden_state)


def pooled_states(states: Tensor) -> Tensor:
    """Mean over tokens (B, T, F), or over places (B, F, height, width)."""
    return states.mean(1) if states.ndim == 3 else states.flatten(2).mean(2)


def images_from_hub(hub: str, name: str) -> tuple[nn.Module, int]:
    """A network from pixels to features, and the side of the images it was trained on."""
    if hub == "timm":
        timm = package_of("timm")
        network = loaded("timm", name, lambda: timm.create_model(name, pretrained=True, num_classes=0))
        facts = network.pretrained_cfg
        return Normalised(network, facts["mean"], facts["std"]), int(facts["input_size"][-1])
    if hub == "st":
        raise ValueError("st: encoders read texts: give timm: or hf: for images.")
    transformers = package_of("hf")
    from_pretrained = transformers.AutoModel.from_pretrained
    network = loaded("hf", name, lambda: from_pretrained(name, use_safetensors=True, trust_remote_code=False))
    pixels = import_module("transformers.image_processing_base").ImageProcessingMixin
    facts, _ = loaded("hf", name, lambda: pixels.get_image_processor_dict(name))
    return Normalised(network, facts["image_mean"], facts["image_std"]), int(network.config.image_size)


def texts_from_hub(hub: str, name: str, device: str) -> Callable[[Sequence[str]], np.ndarray]:
    if hub == "timm":
        raise ValueError("timm: encoders see images: give hf: or st: for texts.")
    if hub == "st":
        package = package_of("st")
        model = loaded(
            "st", name,
            lambda: package.SentenceTransformer(name, device=device, model_kwargs={"use_safetensors": True}),
        )  # fmt: skip
        return lambda texts: model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)
    transformers = package_of("hf")
    model = loaded("hf", name, lambda: transformers.AutoModel.from_pretrained(name, use_safetensors=True))
    cutter = loaded("hf", name, lambda: transformers.AutoTokenizer.from_pretrained(name))
    model = model.eval().to(device)
    return lambda texts: mean_of_tokens(model, cutter, texts)


def mean_of_tokens(model: Any, cutter: Any, texts: Sequence[str]) -> np.ndarray:
    """The last states of a text's tokens on average, padding left out."""
    longest = min(model.config.max_position_embeddings, cutter.model_max_length)
    batch = cutter(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
    batch = batch.to(model.device)
    with torch.inference_mode():
        states_BTF = model(**batch).last_hidden_state
    counts_BT1 = batch["attention_mask"][:, :, None]
    return ((states_BTF * counts_BT1).sum(1) / counts_BT1.sum(1).clamp_min(1)).float().cpu().numpy()


def package_of(hub: str) -> ModuleType:
    name = PACKAGES_OF_HUBS[hub]
    try:
        return import_module(name.replace("-", "_"))
    except ImportError as error:
        raise ValueError(f"{hub}: encoders need {name}: pip install {name}.") from error


def loaded(hub: str, name: str, load: Callable[[], Any]) -> Any:
    """What a package makes; it may fail in its own words, with no name, no connection or no safetensors."""
    try:
        with generators_restored():  # layers are made with weights that are drawn before they are read
            return load()
    except Exception as error:
        raise ValueError(
            f"{PACKAGES_OF_HUBS[hub]} cannot load {name} ({one_line(error)[:200]}): "
            "check its name and the connection, or give a folder with its files."
        ) from error
