"""Digits and clothes: scikit-learn's handwritten digits, installed with it, and MNIST and Fashion-MNIST, four idx
files each, gzipped as published or unpacked.
"""

import gzip
import math
import os
import struct
from pathlib import Path

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.published import damaged, errors_naming, find_or_fetch, open_regular

N_TRAIN, N_TEST = 60_000, 10_000
N_TEST_DIGITS = 500
DIGIT_NAMES = tuple(str(digit) for digit in range(10))
CLOTHES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
UNSIGNED_BYTE = 8


def load_digits() -> Dataset:
    """1,297 training and 500 test digits as 64 features from 0 to 1; the split is always the same."""
    from sklearn import datasets

    x, y = (np.asarray(part) for part in datasets.load_digits(return_X_y=True))
    features, labels = torch.from_numpy((x / 16).astype(np.float32)), torch.from_numpy(y.astype(np.int64))
    test = torch.from_numpy(_every_third_or_fourth(y))
    return Dataset("digits", features[~test], labels[~test], features[test], labels[test], DIGIT_NAMES)


def _every_third_or_fourth(y: np.ndarray) -> np.ndarray:
    """Mark test samples at even distances in the order of class, then of file: stratified, without a draw."""
    by_class = np.argsort(y, kind="stable")
    mask = np.zeros(len(y), dtype=bool)
    mask[by_class[(np.arange(N_TEST_DIGITS) * 2 + 1) * len(y) // (2 * N_TEST_DIGITS)]] = True
    return mask


def load_mnist(data_dir: str | os.PathLike | None = None) -> Dataset:
    """60,000 / 10,000 handwritten digits, uint8 of 1×28×28."""
    return _load_idx("mnist", data_dir, DIGIT_NAMES)


def load_fashion_mnist(data_dir: str | os.PathLike | None = None) -> Dataset:
    """60,000 / 10,000 pieces of clothing, uint8 of 1×28×28."""
    return _load_idx("fashion-mnist", data_dir, CLOTHES)


def _load_idx(name: str, data_dir: str | os.PathLike | None, class_names: tuple[str, ...]) -> Dataset:
    train_images, train_labels, test_images, test_labels = find_or_fetch(name, data_dir)
    x_train, y_train = _images_and_labels(train_images, train_labels, N_TRAIN)
    x_test, y_test = _images_and_labels(test_images, test_labels, N_TEST)
    return Dataset(name, x_train, y_train, x_test, y_test, class_names)


def _images_and_labels(images: Path, labels: Path, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = read_idx(images, (n, 28, 28)), read_idx(labels, (n,))
    if y.max() > 9:
        raise damaged(labels, f"holds the label {y.max()}, and the highest is 9")
    return torch.from_numpy(x)[:, None], torch.from_numpy(y.astype(np.int64))


def read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read an idx file of unsigned bytes of this shape, gzipped or not."""
    header = struct.Struct(f">{1 + len(shape)}I")
    n_values = math.prod(shape)
    with errors_naming(path), open_regular(path) as file:
        stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        magic, *found = header.unpack(stream.read(header.size))
        if magic != UNSIGNED_BYTE * 256 + len(shape):
            raise damaged(path, f"is not an idx file of bytes in {len(shape)} dimensions")
        if tuple(found) != shape:
            raise damaged(path, f"holds values of shape {tuple(found)} instead of {shape}")
        values = stream.read(n_values + 1)
        if len(values) != n_values:
            excess = "more" if len(values) > n_values else "fewer"
            raise damaged(path, f"holds {excess} values than the {n_values:,} its header promises")
        return np.frombuffer(values, dtype=np.uint8).reshape(shape).copy()
