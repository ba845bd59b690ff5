"""The rules as people write them from the papers, to measure ours against; nothing here imports coteach.

Co-teaching+: two plain networks are trained one after the other, and losses are sorted on the host. Two loops
share all of that and differ in the loader alone: `per_item` makes a PIL image and then a tensor of one sample
after the other, in worker processes; `tensor_dataset` holds the samples as one tensor of floats.

Co-teaching by the modern recipe: `on_device` makes batches of images that lie on the device, and `ModernPair`
learns them in half precision. Nothing waits for the device inside an epoch, and nothing is compiled.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

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


# ---- the training loop of these two ---------------------------------------------------------------------------


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


def evaluate(pair: "Pair | ModernPair", batches: Iterable) -> list[float]:
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


# ---- a loop of today ------------------------------------------------------------------------------------------

MODERN_TEST_BATCH = 2000
MEMORY = 0.95  # of a step, in the average that weights return to at the end of the training


class ImagesOnDevice:
    """Images (M, channels, height, width) of which each epoch makes new batches: mirrored, shifted, cut."""

    def __init__(
        self, x: Tensor, y: Tensor, batch_size: int, device: str, mirror: bool, shift: int, cutout: int
    ) -> None:
        self.size = x.shape[-2:]
        padded = F.pad(as_floats(x.to(device)), (shift,) * 4, mode="reflect")
        self.pixels = padded.permute(0, 2, 3, 1).contiguous()  # channels last, as they are picked
        self.labels = y.to(device)
        self.batch_size, self.mirror, self.shift, self.cutout = batch_size, mirror, shift, cutout

    def __len__(self) -> int:
        return len(self.labels) // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.labels), device=self.labels.device)
        for index in order[: len(self) * self.batch_size].split(self.batch_size):
            x = self.shifted(index)
            yield cut(x, self.cutout) if self.cutout else x, self.labels[index]

    def shifted(self, index: Tensor) -> Tensor:
        """These images, each moved and mirrored in its own way."""
        (height, width), device = self.size, index.device
        down, right = torch.randint(0, 2 * self.shift + 1, (2, len(index), 1), device=device)
        rows = down + torch.arange(height, device=device)
        columns = right + torch.arange(width, device=device)
        if self.mirror:
            flips = torch.rand(len(index), 1, device=device) < 0.5
            columns = torch.where(flips, columns.flip(1), columns)
        return self.pixels[index[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def cut(x: Tensor, side: int) -> Tensor:
    """A square of each image in its mean colour; it may reach over the border."""
    inside = []
    for length in x.shape[-2:]:
        start = torch.randint(0, length, (len(x), 1), device=x.device) - side // 2
        place = torch.arange(length, device=x.device)
        inside.append((place >= start) & (place < start + side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square, x.mean((2, 3), keepdim=True), x)


def on_device(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, batch_size: int, device: str, **changes: Any
) -> tuple[ImagesOnDevice, list[tuple[Tensor, Tensor]]]:
    """Batches to train on, and to test with."""
    tests = zip(
        as_floats(x_test.to(device)).split(MODERN_TEST_BATCH),
        y_test.to(device).split(MODERN_TEST_BATCH),
        strict=True,
    )
    return ImagesOnDevice(x, y, batch_size, device, **changes), list(tests)


class ModernPair:
    """Two networks that learn by SGD with Nesterov momentum, at a rate that rises and falls once.

    Every few steps, and after each epoch, weights return to a moving average of themselves (lookahead).
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        device: str,
        steps: int,
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        rise: float,
        lookahead: int,
        half: bool,
    ) -> None:
        self.device, self.half, self.steps, self.taken = device, half, steps, 0
        self.lr, self.weight_decay, self.rise, self.lookahead = lr, weight_decay, rise, lookahead
        layout = torch.channels_last
        self.networks = [build().to(device=device, memory_format=layout) for _ in range(2)]  # pyrefly: ignore
        self.weights = [p for network in self.networks for p in network.parameters() if p.requires_grad]
        self.slow = [p.detach().clone() for p in self.weights]
        self.optimiser = torch.optim.SGD(self.weights, lr, momentum, nesterov=True, fused=True)

    def precision(self) -> torch.autocast:
        return torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.half)

    def train(self, batches: Iterable, keep_rate: float) -> int:
        """An epoch of Co-teaching; how many batches it had."""
        for network in self.networks:
            network.train()
        number = 0
        for number, (x, y) in enumerate(batches, start=1):
            with self.precision():  # torch computes losses in full precision there
                losses = [F.cross_entropy(network(x), y, reduction="none") for network in self.networks]
            n_keep = math.ceil(keep_rate * len(y) - 1e-9) or len(y)
            mine, peers = (loss.detach().argsort(stable=True)[:n_keep] for loss in losses)
            self.optimiser.zero_grad()
            (losses[0][peers].mean() + losses[1][mine].mean()).backward()
            self.step()
            if number % self.lookahead == 0:
                self.look_ahead()
        if number % self.lookahead:
            self.look_ahead()
        return number

    @torch.no_grad()
    def step(self) -> None:
        done = self.taken / self.steps
        up, down = 0.2 + 0.8 * done / self.rise, (1 - done) / (1 - self.rise)
        rate = self.lr * (up if done < self.rise else down)
        self.optimiser.param_groups[0]["lr"] = rate
        torch._foreach_mul_(self.weights, 1 - rate * self.weight_decay)
        self.optimiser.step()
        self.taken += 1

    @torch.no_grad()
    def look_ahead(self) -> None:
        memory = MEMORY**self.lookahead * (self.taken / self.steps) ** 3
        torch._foreach_lerp_(self.slow, self.weights, 1 - memory)
        torch._foreach_copy_(self.weights, self.slow)

    def test(self, batches: Iterable) -> list[float]:
        with self.precision():
            return evaluate(self, batches)
