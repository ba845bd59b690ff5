"""Co-teaching+ as people write it from the paper, to measure ours against; nothing here imports coteach.

Two plain networks are trained one after the other, and losses are sorted on the host. The two loops share all of
that and differ in the loader alone: `per_item` makes a PIL image and then a tensor of one sample after the other,
in worker processes; `tensor_dataset` holds the samples as one tensor of floats.
"""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

TEST_BATCH = 128

Loaders = tuple[DataLoader, DataLoader]  # for training and for testing


# ---- the two loaders ------------------------------------------------------------------------------------------


class ImageItems(Dataset):
    """Samples stored as bytes (M, channels, height, width), made into images and then tensors one by one."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        pixels = x.numpy()
        self.pixels = pixels[:, 0] if pixels.shape[1] == 1 else pixels.transpose(0, 2, 3, 1)
        self.labels = y.tolist()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return to_tensor(Image.fromarray(self.pixels[index])), self.labels[index]


def to_tensor(image: Image.Image) -> Tensor:
    """Floats from 0 to 1, of shape (channels, height, width)."""
    pixels = np.array(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float() / 255


def is_image(x: Tensor) -> bool:
    return x.dtype == torch.uint8 and x.ndim == 4


def per_item(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, batch_size: int, workers: int | None = None
) -> Loaders:
    """A Dataset of single samples, loaded by processes of their own; rows of a table need no image."""
    items = ImageItems if is_image(x) else TensorDataset
    workers = usual_workers() if workers is None else workers
    return (
        DataLoader(items(x, y), batch_size, shuffle=True, drop_last=True, num_workers=workers),
        DataLoader(items(x_test, y_test), TEST_BATCH, num_workers=workers),
    )


def tensor_dataset(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, batch_size: int) -> Loaders:
    """Everything converted once, before the training."""
    return (
        DataLoader(TensorDataset(as_floats(x), y), batch_size, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(as_floats(x_test), y_test), TEST_BATCH),
    )


def as_floats(x: Tensor) -> Tensor:
    return x.float() / 255 if is_image(x) else x


def usual_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores)


# ---- the training loop of both --------------------------------------------------------------------------------


@dataclass
class Pair:
    """Two networks, each with its optimiser."""

    networks: list[nn.Module]
    optimisers: list[torch.optim.Optimizer]
    device: str


def new_pair(build: Callable[[], nn.Module], lr: float, device: str) -> Pair:
    networks = [build().to(device), build().to(device)]
    return Pair(networks, [torch.optim.Adam(network.parameters(), lr=lr) for network in networks], device)


def train(pair: Pair, batches: Iterable, keep_rate: float, warm_up: bool = False) -> int:
    """An epoch of Co-teaching+, or of Co-teaching to warm up; how many batches gave something to learn."""
    for network in pair.networks:
        network.train()
    updates = 0
    for x, y in batches:
        x, y = x.to(pair.device), y.to(pair.device)
        logits = [network(x) for network in pair.networks]
        mine, peers = small_losses(logits[0], logits[1], y, keep_rate, warm_up)
        if len(mine) == 0:
            continue
        updates += 1
        for outputs, optimiser, picked in zip(logits, pair.optimisers, (peers, mine), strict=True):
            loss = F.cross_entropy(outputs[picked], y[picked])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return updates


def small_losses(
    logits_1: Tensor, logits_2: Tensor, y: Tensor, keep_rate: float, everywhere: bool = False
) -> tuple[Tensor, Tensor]:
    """Which samples each network picks for its peer: its small losses where the predictions differ."""
    differ = (logits_1.argmax(1) != logits_2.argmax(1)).cpu().numpy()
    among = np.flatnonzero(differ | everywhere)
    n_keep = math.ceil(keep_rate * len(among) - 1e-9) or len(among)
    picks = []
    for logits in (logits_1, logits_2):
        losses = F.cross_entropy(logits.detach()[among], y[among], reduction="none").cpu().numpy()
        smallest = among[np.argsort(losses, kind="stable")[:n_keep]]
        picks.append(torch.from_numpy(smallest).to(y.device))
    return picks[0], picks[1]


def evaluate(pair: Pair, batches: Iterable) -> list[float]:
    """Test accuracy of each network."""
    right, total = [0, 0], 0
    for network in pair.networks:
        network.eval()
    with torch.no_grad():
        for x, y in batches:
            x, y = x.to(pair.device), y.to(pair.device)
            total += len(y)
            for n, network in enumerate(pair.networks):
                right[n] += (network(x).argmax(1) == y).sum().item()
    return [count / total for count in right]
