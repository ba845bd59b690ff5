"""scikit-learn's handwritten digits: 1,797 images of 8×8 pixels, installed with it."""

import numpy as np
import torch

from coteach.data.base import Dataset

N_TEST = 500


def load() -> Dataset:
    """1,297 training and 500 test digits as 64 features from 0 to 1; the split is always the same."""
    from sklearn.datasets import load_digits

    x, y = (np.asarray(part) for part in load_digits(return_X_y=True))
    features, labels = torch.from_numpy((x / 16).astype(np.float32)), torch.from_numpy(y.astype(np.int64))
    test = torch.from_numpy(_every_third_or_fourth(y))
    names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", features[~test], labels[~test], features[test], labels[test], names)


def _every_third_or_fourth(y: np.ndarray) -> np.ndarray:
    """Mark test samples at even distances in the order of class, then of file: stratified, without a draw."""
    by_class = np.argsort(y, kind="stable")
    mask = np.zeros(len(y), dtype=bool)
    mask[by_class[(np.arange(N_TEST) * 2 + 1) * len(y) // (2 * N_TEST)]] = True
    return mask
