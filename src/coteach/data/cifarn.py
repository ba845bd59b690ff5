"""CIFAR-10N and CIFAR-100N: CIFAR's images with the labels that people gave them (Wei et al., ICLR 2022).

Three people looked at each image of CIFAR-10: `rand1` to `rand3` are their labels, `aggre` is what most of them
say, and `worst` one of the wrong labels wherever there is any. CIFAR-100N has one label an image. The files are
licensed CC BY-NC 4.0: not for commercial use.
"""

import os
from dataclasses import replace

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.cifar import load_cifar10, load_cifar100
from coteach.data.pickled import read_pickled_arrays
from coteach.data.published import damaged, find_or_fetch

NOTE = "labels that people gave, by Wei et al. (2022), are licensed CC BY-NC 4.0: not for commercial use"


def load_cifar10n_aggre(data_dir: str | os.PathLike | None = None) -> Dataset:
    """CIFAR-10; `given` is the majority of three people's labels, or one of them where all differ."""
    return _with_given("cifar10n-aggre", load_cifar10(data_dir), "cifar10n", "aggre_label", data_dir)


def load_cifar10n_rand1(data_dir: str | os.PathLike | None = None) -> Dataset:
    """CIFAR-10; `given` is the first person's label."""
    return _with_given("cifar10n-rand1", load_cifar10(data_dir), "cifar10n", "random_label1", data_dir)


def load_cifar10n_rand2(data_dir: str | os.PathLike | None = None) -> Dataset:
    """CIFAR-10; `given` is the second person's label."""
    return _with_given("cifar10n-rand2", load_cifar10(data_dir), "cifar10n", "random_label2", data_dir)


def load_cifar10n_rand3(data_dir: str | os.PathLike | None = None) -> Dataset:
    """CIFAR-10; `given` is the third person's label."""
    return _with_given("cifar10n-rand3", load_cifar10(data_dir), "cifar10n", "random_label3", data_dir)


def load_cifar10n_worst(data_dir: str | os.PathLike | None = None) -> Dataset:
    """CIFAR-10; `given` is a wrong one of three people's labels, where there is any."""
    return _with_given("cifar10n-worst", load_cifar10(data_dir), "cifar10n", "worse_label", data_dir)


def load_cifar100n(data_dir: str | os.PathLike | None = None) -> Dataset:
    """CIFAR-100; `given` is one person's label."""
    return _with_given("cifar100n", load_cifar100(data_dir), "cifar100n", "noisy_label", data_dir)


def _with_given(
    name: str, cifar: Dataset, source: str, column: str, data_dir: str | os.PathLike | None
) -> Dataset:
    (path,) = find_or_fetch(source, data_dir)
    columns = read_pickled_arrays(path)
    for needed in ("clean_label", column):
        if needed not in columns:
            raise damaged(path, f"has no {needed}")
    true, given = columns["clean_label"], columns[column]
    if not np.array_equal(true, cifar.y_train.numpy()):
        raise damaged(path, "has other true labels, or another order of images, than CIFAR's own files")
    if given.shape != true.shape or given.min() < 0 or given.max() >= cifar.n_classes:
        raise damaged(path, f"has a {column} that is none of the {cifar.n_classes} classes, or not one an image")
    return replace(cifar, name=name, given=torch.from_numpy(given.astype(np.int64)), note=NOTE)
