"""Open-set noise: CIFAR-10 in which 40 % of the training images show something else altogether.

Outside images come from CIFAR-100, SVHN or ImageNet-32. In the paper's style they take the place of images
chosen in each class alike, and their own classes are none of CIFAR-10's ten:

- CIFAR-100 without pickup_truck, its only class that is a kind of one of the ten (a truck). Its other
  vehicles and its wild cats and canines are none: CIFAR-10's cats and dogs are domestic.
- SVHN as it is: house numbers.
- ImageNet-32 without 225 of its 1,000 classes, see `outside`.

`style="authors"` is the set as its inventors (Wang et al., CVPR 2018) build it, with CIFAR-100 only: the
first 60 % of CIFAR-10, then 20,000 images of all 100 classes, labelled 2,000 times 0, 2,000 times 1 …
"""

import os
from dataclasses import replace

import numpy as np
import torch

from coteach.data import outside
from coteach.data.base import Dataset
from coteach.data.cifar import load_cifar10


def load_openset_cifar100(
    data_dir: str | os.PathLike | None = None, style: str = "paper", rate: float = 0.4, seed: int = 0
) -> Dataset:
    """CIFAR-10 with images of CIFAR-100; `outside` marks them.

    Parameters
    ----------
    style : {"paper", "authors"}
        See the top of this file.
    rate : float
        Share of outside images.
    seed : int
        Of the choice of images.
    """
    if style == "authors":
        return _as_inventors_do(load_cifar10(data_dir), outside.all_of_cifar100(data_dir), rate, seed)
    if style != "paper":
        raise ValueError(f"openset-cifar100 has no style {style!r}: choose 'paper' or 'authors'.")
    return _as_paper_does("openset-cifar100", load_cifar10(data_dir), outside.cifar100(data_dir), rate, seed)


def load_openset_svhn(data_dir: str | os.PathLike | None = None, rate: float = 0.4, seed: int = 0) -> Dataset:
    """CIFAR-10 with images of SVHN's training set, in the paper's style; `outside` marks them."""
    return _as_paper_does("openset-svhn", load_cifar10(data_dir), outside.svhn(data_dir), rate, seed)


def load_openset_imagenet32(
    data_dir: str | os.PathLike | None = None, rate: float = 0.4, seed: int = 0
) -> Dataset:
    """CIFAR-10 with images of ImageNet-32's training set, in the paper's style; `outside` marks them."""
    inside = load_cifar10(data_dir)
    images = outside.imagenet32(data_dir, len(inside.x_train), seed)
    return _as_paper_does("openset-imagenet32", inside, images, rate, seed)


def _as_paper_does(name: str, inside: Dataset, outside_images: np.ndarray, rate: float, seed: int) -> Dataset:
    from coteach.noise import replace_images

    x_train, _ = inside.tensors("an open set")
    images, replaced = replace_images(x_train.numpy(), outside_images, inside.y_train.numpy(), rate, seed)
    return replace(inside, name=name, x_train=torch.from_numpy(images), outside=torch.from_numpy(replaced))


def _as_inventors_do(inside: Dataset, outside_images: np.ndarray, rate: float, seed: int) -> Dataset:
    n = len(inside.x_train)
    n_outside = round(n * rate)
    if not 0 < n_outside <= min(n - 1, len(outside_images)):
        raise ValueError(f"a share of {rate} outside images cannot be had: choose one above 0 and below 1.")
    chosen = np.random.RandomState(seed).choice(len(outside_images), n_outside, replace=False)
    x, y = inside.tensors("an open set")[0].clone(), inside.y_train.clone()
    x[n - n_outside :] = torch.from_numpy(outside_images[chosen])
    y[n - n_outside :] = torch.arange(n_outside) * inside.n_classes // n_outside
    return replace(inside, name="openset-cifar100", x_train=x, y_train=y, outside=torch.arange(n) >= n - n_outside)
