"""What the tests of RobustClassifier share."""

import numpy as np
from torch import nn

from coteach import METHODS, RobustClassifier
from coteach.names import ONLY_IN_RUNS

PAIRS = [name for name, method in METHODS.items() if method.networks == 2]
TRAINABLE = [name for name in METHODS if name not in ONLY_IN_RUNS]


def quick(method="coteaching", **options) -> RobustClassifier:
    return RobustClassifier(method, **{"noise_rate": 0.2, "epochs": 3, "lr": 0.01, "random_state": 0} | options)


def four_clouds() -> tuple[np.ndarray, np.ndarray]:
    """Opposite ones are of one class: no plane parts the two."""
    y = np.arange(200) % 2
    x = np.random.default_rng(0).normal(size=(200, 5)) / 5
    x[:, 0] += np.arange(200) // 2 % 2
    x[:, 1] += y ^ (np.arange(200) // 2 % 2)
    return x, y


def three_clouds(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of points in five dimensions."""
    y = np.arange(n) % 3
    return np.random.default_rng(0).normal(size=(n, 5)) + 4 * np.eye(3, 5)[y], y


class Dropping(nn.Module):
    def __init__(self, n_features, n_classes, width=6):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, width), nn.Dropout(0.2), nn.Linear(width, n_classes))

    def forward(self, x):
        return self.layers(x)
