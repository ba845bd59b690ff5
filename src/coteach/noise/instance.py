"""Instance-dependent noise: which label a sample gets depends on its features. M samples, C classes."""

from typing import Any

import numpy as np

from coteach.checks import check_same_length

SPREAD = 0.1


def instance_rows(y: np.ndarray, n_classes: int, rate: float, features: Any, random: Any) -> np.ndarray:
    """The label probabilities of each sample, of shape (M, C)."""
    if features is None:
        raise ValueError("instance noise needs the features: pass features=, one row per label.")
    features = np.asarray(features)
    if features.ndim < 2 or features.dtype.kind not in "biuf" or not np.isfinite(features).all():
        raise ValueError("features must be finite numbers, one row per label: fill or drop what is missing.")
    check_same_length(features, y)
    features = features.reshape(len(y), -1)
    mean = features.mean(dtype=np.float64)
    groups = [np.flatnonzero(y == label) for label in range(n_classes)]
    # A class at a time: CIFAR in float64 is more than a gigabyte.
    squares = sum(np.square(features[group] - mean).sum() for group in groups)
    scale = np.sqrt(squares / features.size) or 1.0
    flip = _truncated_normal(rate, len(y), random)
    rows = np.empty((len(y), n_classes))
    for label, group in enumerate(groups):
        weights = random.standard_normal((features.shape[1], n_classes))
        score = (features[group] - mean) / scale @ weights
        score[:, label] = -np.inf
        rows[group] = np.exp(score - score.max(1, keepdims=True))
    rows *= (flip / rows.sum(1))[:, None]
    rows[np.arange(len(y)), y] = 1 - flip
    return rows


def _truncated_normal(rate: float, n: int, random: Any) -> np.ndarray:
    if rate == 0:
        return np.zeros(n)
    flip = random.normal(rate, SPREAD, n)
    while (outside := (flip < 0) | (flip > 1)).any():
        flip[outside] = random.normal(rate, SPREAD, outside.sum())
    return flip


def average_transition(true: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    count = np.zeros((n_classes, n_classes))
    np.add.at(count, (true, labels), 1)
    absent = count.sum(1) == 0
    count[absent, absent] = 1
    return count / count.sum(1, keepdims=True)
