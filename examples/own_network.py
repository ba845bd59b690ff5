"""Your own network: any torch module that maps samples to logits.

For people who have a network already. A quarter of a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    python examples/own_network.py

Prints the test accuracy of the pair and of each of its two networks, then of the pair loaded from its file.
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import coteach


class SmallCNN(nn.Module):
    """Arguments named `n_classes`, `channels`, `shape`, … are filled in from the data; `width` is our own."""

    def __init__(self, n_classes: int, channels: int, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.output = nn.Linear(8 * width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.features(x).flatten(1))


def main(epochs: int = 20, samples: int = 1797, width: int = 16) -> None:
    torch.set_num_threads(1)  # images of 8×8 take longer when they are shared out; leave it out for large ones
    x, truth = load_digits(return_X_y=True)
    x, truth = x[:samples].reshape(-1, 8, 8), truth[:samples]  # images of 8×8, with or without an axis of channels
    half = len(x) // 2
    y = coteach.noise.corrupt(truth[:half], "pair", 0.3, n_classes=10, seed=1).labels

    classifier = coteach.RobustClassifier(
        module=SmallCNN, module__width=width, lr=0.005, noise_rate=0.3, epochs=epochs, random_state=0
    )
    classifier.fit(x[:half], y)
    print(f"test accuracy of the pair: {classifier.score(x[half:], truth[half:]):.1%}")
    for n, network in enumerate(classifier.networks_):  # plain torch modules, yours to keep
        right = network(classifier.inputs(x[half:])).argmax(-1).numpy() == classifier.classes_.searchsorted(
            truth[half:]
        )
        print(f"  network {n}: {right.mean():.1%}")

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.safetensors"
        classifier.save(file)  # weights and settings; the code of a module of your own stays with you
        again = coteach.RobustClassifier.load(file, module=SmallCNN)
    print(f"read back from its file: {again.score(x[half:], truth[half:]):.1%}")


if __name__ == "__main__":
    main()
