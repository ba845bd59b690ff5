"""The rules inside a training loop of your own: two networks, a DataLoader, two optimisers, ten lines.

For people whose loop does what no library knows about. A quarter of a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/own_loop.py

Prints a line every tenth epoch, then the test accuracy: of two networks that learn from all labels, and of two
that learn by Co-teaching. Any rule goes in the same place: "coteaching_plus" after some epochs of "coteaching",
"decoupling", "mentornet", for which one network is enough.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import coteach

NOISE_RATE = 0.4


def main(
    epochs: int = 60, samples: int = 1797, rules: tuple[str, ...] = ("standard", "coteaching")
) -> dict[str, float]:
    """Test accuracy of both networks together, for each rule."""
    torch.set_num_threads(1)  # such small tensors take longer when they are shared out
    x, truth = (torch.from_numpy(a[:samples]) for a in load_digits(return_X_y=True))
    x, half = x.float() / 16, samples // 2
    given = torch.from_numpy(coteach.noise.corrupt(truth[:half], "symmetric", NOISE_RATE, n_classes=10).labels)
    accuracy = {}
    for rule in rules:
        torch.manual_seed(0)
        networks = [nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)) for _ in range(2)]
        train(networks, DataLoader(TensorDataset(x[:half], given), 64, shuffle=True, drop_last=True), epochs, rule)
        with torch.no_grad():
            p = torch.stack([network(x[half:]).softmax(-1) for network in networks]).mean(0)
        accuracy[rule] = (p.argmax(-1) == truth[half:]).float().mean().item()
        print(f"{rule}: {accuracy[rule]:.1%}")
    return accuracy


def train(networks: Sequence[nn.Module], loader: DataLoader, epochs: int, rule: str) -> None:
    optimisers = [torch.optim.Adam(network.parameters(), 0.005) for network in networks]
    for epoch in range(1, epochs + 1):
        keep = coteach.schedules.keep_rate(epoch, NOISE_RATE, ramp=10)  # falls to 60 % over ten epochs
        for x_B, y_B in loader:
            logits_N = [network(x_B) for network in networks]
            weight_NB = coteach.rules.weights(rule, logits_N, y_B, keep)  # the one new line
            for logits_BC, weight_B, optimiser in zip(logits_N, weight_NB, optimisers, strict=True):
                if not weight_B.any():  # nothing to learn from: as the paper, no step; Adam would coast on
                    continue
                loss = (weight_B * F.cross_entropy(logits_BC, y_B, reduction="none")).sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        if epoch % 10 == 0:
            print(f"{rule}: epoch {epoch} of {epochs}")


if __name__ == "__main__":
    main()
