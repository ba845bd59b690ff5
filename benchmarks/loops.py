"""What a loop of one's own costs and finds: docs/own-loop.md has these numbers.

    python benchmarks/loops.py cost      # milliseconds of a step: one network, a pair, selection, ledger
    python benchmarks/loops.py window    # small batches with and without a window
    python benchmarks/loops.py rate      # the noise rate as learnt on the way
    python benchmarks/loops.py ramp      # how soon samples are left out, in short and in long trainings

Handwritten digits that come with scikit-learn; for the ramp texts of examples/hugging_face.py, too. One thread.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import coteach

SEEDS = 5
# wrong labels, batch, window
WINDOWS = [(0.2, 8, 0), (0.2, 8, 64), (0.5, 8, 0), (0.5, 8, 64), (0.1, 8, 0), (0.1, 8, 64), (0.5, 64, 64)]


def digits(kind: str, rate: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Samples, true labels, given labels."""
    x, truth = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))[:1200]
    given = coteach.noise.corrupt(truth[order], kind, rate, n_classes=10, seed=seed).labels
    return torch.tensor(x[order] / 16).float(), torch.tensor(truth[order]), torch.from_numpy(given)


def train(
    x: Tensor,
    truth: Tensor,
    given: Tensor,
    noise_rate: float | str,
    epochs: int,
    batch: int,
    window: int,
    seed: int,
    ramp: float = 1.0,
) -> tuple[float, float]:
    """Share of right labels among those learnt in the second half, and the noise rate in the end."""
    torch.manual_seed(seed)
    pair = coteach.Pair(
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), (seed, seed + 100)
    )
    steps = len(x) // batch
    every = epochs * steps
    selection = coteach.Selection("coteaching", noise_rate, steps=every, ramp=int(ramp * every), window=window)
    optimiser = torch.optim.Adam(pair.parameters(), 0.003)
    right = learnt = 0
    for epoch in range(epochs):
        for index in torch.randperm(len(x))[: steps * batch].view(steps, batch):
            optimiser.zero_grad()
            selection(pair(x[index]), given[index]).backward()
            optimiser.step()
            if epoch >= epochs // 2:
                right += int((selection.picked & (given[index] == truth[index])).sum())
                learnt += int(selection.picked.sum())
    return right / learnt, selection.noise_rate_


def windows() -> None:
    for rate, batch, window in WINDOWS:
        found = [
            100 * train(*digits("symmetric", rate, seed), rate, 10, batch, window, seed, ramp=0.5)[0]
            for seed in range(SEEDS)
        ]
        print(f"{rate:.0%} wrong, batch {batch}, window {window}: {shown(found)} % right", flush=True)


def rates() -> None:
    for epochs in (3, 10):
        for kind, rate in (("symmetric", 0.0), ("symmetric", 0.2), ("symmetric", 0.5), ("pair", 0.3)):
            found = [
                100 * train(*digits(kind, rate, seed), "auto", epochs, 16, 64, seed)[1] for seed in range(SEEDS)
            ]
            print(f"{epochs} epochs, {kind} {rate:.0%}: {shown(found)} % found", flush=True)


RAMPS, RAMP_SEEDS = (0.5, 0.75, 1.0), 4  # shares of the training
SHORT_AND_LONG = [
    ("symmetric", 0.2, 3, 16), ("symmetric", 0.2, 20, 32), ("symmetric", 0.5, 3, 16), ("symmetric", 0.5, 20, 32),
    ("pair", 0.3, 3, 16), ("pair", 0.3, 20, 32),
]  # fmt: skip


def ramps() -> None:
    """Accuracy on held-out samples by their given labels, by which to choose, and on others by their true ones."""
    for rate in (0.2, 0.3, 0.4):
        for ramp in RAMPS:
            print(
                f"texts, {rate:.0%} wrong, ramp {ramp}:",
                shown_both(texts(rate, s, ramp) for s in range(RAMP_SEEDS)),
            )
    for kind, rate, epochs, batch in SHORT_AND_LONG:
        for ramp in RAMPS:
            found = shown_both(more_digits(kind, rate, epochs, batch, s, ramp) for s in range(RAMP_SEEDS))
            print(f"digits, {kind} {rate:.0%}, {epochs} epochs, ramp {ramp}: {found}", flush=True)


def shown_both(found: Iterator[tuple[float, ...]]) -> str:
    given, true = (list(values) for values in zip(*found, strict=True))
    return f"{shown(given)} % as given, {shown(true)} % right"


def accuracies(pair: coteach.Pair, *parts: tuple) -> tuple[float, ...]:
    return tuple(100 * (pair.ensemble(x).argmax(-1) == y).float().mean().item() for x, y in parts)


def more_digits(kind: str, rate: float, epochs: int, batch: int, seed: int, ramp: float) -> tuple[float, ...]:
    """A thousand to learn from, 400 held out, 397 with true labels."""
    x, truth = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, truth = torch.tensor(x[order] / 16).float(), truth[order]
    given = torch.from_numpy(coteach.noise.corrupt(truth, kind, rate, n_classes=10, seed=seed).labels)
    pair = coteach.Pair(
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), (seed, seed + 100)
    )
    steps = epochs * (1000 // batch)
    selection = coteach.Selection("coteaching", rate, steps=steps, ramp=int(ramp * steps))
    optimiser = torch.optim.Adam(pair.parameters(), 0.003)
    torch.manual_seed(seed)
    for _ in range(epochs):
        for index in torch.randperm(1000)[: 1000 // batch * batch].view(-1, batch):
            optimiser.zero_grad()
            selection(pair(x[index]), given[index]).backward()
            optimiser.step()
    return accuracies(pair, (x[1000:1400], given[1000:1400]), (x[1400:], torch.tensor(truth[1400:])))


def texts(rate: float, seed: int, ramp: float, epochs: int = 8, batch: int = 16) -> tuple[float, ...]:
    """The example's model and data: 900 to learn from, 300 held out, 300 with true labels."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import hugging_face  # pyrefly: ignore[missing-import]

    def part(samples: int, drawn: int) -> tuple[Tensor, Tensor]:
        rows = hugging_face.texts(samples, drawn)
        return torch.tensor(np.array(rows["input_ids"][:])), torch.tensor(rows["label"][:])

    def given(truth: Tensor, drawn: int) -> Tensor:
        return torch.from_numpy(
            coteach.noise.corrupt(truth.numpy(), "symmetric", rate, n_classes=3, seed=drawn).labels
        )

    x, truth = part(900, 2 * seed)
    held_x, held_truth = part(300, 1000 + seed)
    y, held_y = given(truth, seed), given(held_truth, seed + 50)
    pair = coteach.Pair(hugging_face.build, (seed * 10, seed * 10 + 1))
    steps = epochs * -(-900 // batch)
    selection = coteach.Selection("coteaching", rate, steps=steps, ramp=int(ramp * steps))
    optimiser = torch.optim.AdamW(pair.parameters(), 2e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, steps)
    torch.manual_seed(seed)
    for _ in range(epochs):
        for index in torch.randperm(900).split(batch):
            optimiser.zero_grad()
            selection(pair(input_ids=x[index]).logits, y[index]).backward()
            pair.clip_gradients(1.0)
            optimiser.step()
            falling.step()
    return accuracies(pair, (held_x, held_y), part(300, 2 * seed + 1))


def costs() -> None:
    kinds = ("one network", "one network, ledger", "a pair", "a pair, selection", "a pair, selection, ledger")
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(SEEDS):
        for kind in kinds:
            found[kind].append(step_milliseconds(kind))
    for kind, values in found.items():
        print(f"{kind}: {shown(values)} ms, {np.mean(values) / np.mean(found['one network']):.2f}")


def step_milliseconds(kind: str, steps: int = 32, batch: int = 64, samples: int = 2048) -> float:
    """Processor time of a step of `small_cnn` on images of 32×32; the first four only warm up."""
    x, y = torch.randn(samples, 3, 32, 32), torch.randint(0, 10, (samples,))
    pair = coteach.Pair(lambda: coteach.networks.build("small_cnn", shape=(3, 32, 32), n_classes=10))
    model = pair.networks[0] if kind.startswith("one") else pair
    ledger = coteach.Ledger(samples) if "ledger" in kind else None
    method = "standard" if kind in ("one network", "one network, ledger", "a pair") else "coteaching"
    selection = coteach.Selection(method, 0.2, steps=steps, ledger=ledger)
    optimiser = torch.optim.Adam(model.parameters())
    began = 0.0
    for step in range(steps):
        if step == 4:
            began = time.process_time()
        index = torch.arange(step * batch, (step + 1) * batch)
        optimiser.zero_grad()
        selection(model(x[index]), y[index], index).backward()
        optimiser.step()
    return (time.process_time() - began) / (steps - 4) * 1000


def shown(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"cost": costs, "window": windows, "rate": rates, "ramp": ramps}[sys.argv[1]]()
