"""MNIST and Fashion-MNIST: four idx files each, gzipped as published or unpacked."""

import gzip
import math
import os
import struct
from pathlib import Path

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.bounded import damaged, naming, opened
from coteach.data.fetch import find_or_fetch

N_TRAIN, N_TEST = 60_000, 10_000
DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = (
    *("t-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
UNSIGNED_BYTE = 8
MOST_THAT_GZIP_SHRINKS = 1032
MOST_VALUES = 2**26  # the largest published file has 47 million


def load_mnist(data_dir: str | os.PathLike | None = None) -> Dataset:
    """60,000 / 10,000 handwritten digits, uint8 of 1×28×28."""
    return _load("mnist", data_dir, DIGITS)


def load_fashion_mnist(data_dir: str | os.PathLike | None = None) -> Dataset:
    """60,000 / 10,000 pieces of clothing, uint8 of 1×28×28."""
    return _load("fashion-mnist", data_dir, CLOTHES)


def read_idx(path: Path, n_dims: int) -> np.ndarray:
    """Read an idx file of unsigned bytes, gzipped or not; nothing is reserved that the file cannot fill."""
    header = struct.Struct(f">{1 + n_dims}I")
    with naming(path), opened(path) as file:
        stream = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        magic, *shape = header.unpack(stream.read(header.size))
        if magic != UNSIGNED_BYTE * 256 + n_dims:
            raise damaged(path, f"is not an idx file of bytes in {n_dims} dimensions")
        n_values = math.prod(shape)
        if n_values > path.stat().st_size * MOST_THAT_GZIP_SHRINKS:
            raise damaged(path, f"is too short for the {n_values:,} values its header promises")
        if n_values > MOST_VALUES:
            raise damaged(path, f"promises {n_values:,} values, more than any published file has")
        values = stream.read(n_values + 1)
        if len(values) != n_values:
            excess = "more" if len(values) > n_values else "fewer"
            raise damaged(path, f"holds {excess} values than the {n_values:,} its header promises")
        return np.frombuffer(values, dtype=np.uint8).reshape(shape).copy()


def _load(name: str, data_dir: str | os.PathLike | None, class_names: tuple[str, ...]) -> Dataset:
    train_images, train_labels, test_images, test_labels = find_or_fetch(name, data_dir)
    x_train, y_train = _read_part(train_images, train_labels, N_TRAIN)
    x_test, y_test = _read_part(test_images, test_labels, N_TEST)
    return Dataset(name, x_train, y_train, x_test, y_test, class_names)


def _read_part(images: Path, labels: Path, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if x.shape != (n, 28, 28):
        raise damaged(images, f"holds images of shape {x.shape} instead of {(n, 28, 28)}")
    if y.shape != (n,):
        raise damaged(labels, f"holds {len(y):,} labels instead of {n:,}")
    if y.max() > 9:
        raise damaged(labels, f"holds the label {y.max()}, and the highest is 9")
    return torch.from_numpy(x)[:, None], torch.from_numpy(y.astype(np.int64))
