"""Open-set noise: CIFAR-10 in which 40 % of the training images show something else altogether.

Outside images come from CIFAR-100, SVHN or ImageNet-32. In the paper's style they take the place of images
chosen in each class alike, and their own classes are none of CIFAR-10's ten:

- CIFAR-100 without pickup_truck, its only class that is a kind of one of the ten (a truck). Its other
  vehicles and its wild cats and canines are none: CIFAR-10's cats and dogs are domestic.
- SVHN as it is: house numbers.
- ImageNet-32 without 225 of its 1,000 classes, which it numbers from 1 in the order of the challenge's
  map_clsloc.txt: those that are, or are easily taken for, one of the ten, that is every bird, domestic dog, cat
  (cougar and lynx too), frog, the horse, and all aeroplanes, cars, trucks and vessels.

`style="authors"` is the set as its inventors (Wang et al., CVPR 2018) build it, with CIFAR-100 only: the
first 60 % of CIFAR-10, then 20,000 images of all 100 classes, labelled 2,000 times 0, 2,000 times 1 …
"""

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.cifar import load_cifar10, load_cifar100
from coteach.data.published import damaged, errors_naming, find_or_fetch, open_regular
from coteach.files import npy_header, open_zip_member

OVERLAP_CIFAR100 = ("pickup_truck",)
DOGS = """
    2 3 4 5 15 17 18 19 20 21 25 26 27 29 31 32 33 36 41 42 43 45 46 47 49 50 51 56 59 60 63 64 66
    68 69 70 71 72 77 79 82 84 86 87 88 89 90 91 93 94 97 98 99 105 106 107 109 110 112 113 114 115
    116 117 118 119 123 124 125 126 127 128 130 131 132 133 134 139 140 141 143 144 145 146 148 149
    150 151 152 154 156 158 160 161 168 170 171 172 173 176 177 179 180 181 184 187 189 191 192 196
    197 198 200 204 207 208 210 211"""
OVERLAP_IMAGENET32 = np.array(
    [
        *(int(number) for number in DOGS.split()),
        *(8, 10, 11, 55, 95, 174, 201),  # cats
        *(39, 293),  # sorrel, horse cart
        *(230, 231, 503),  # airliner, warplane, wing
        *(221, *range(235, 249)),  # schooner; fireboat to wreck
        *range(265, 275),  # ambulance to sports car
        *range(278, 286),  # snowplow, fire engine to police van
        *range(383, 442),  # birds
        *range(499, 502),  # frogs
    ]
)
N_BATCHES = 10
MOST_HEADER = 2**14  # bytes that tell an array's type and shape
MOST_OF_A_BATCH = {"data": 2**29, "labels": 2**21}  # bytes: it has 394 and 1 million


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
        return _as_inventors_do(load_cifar10(data_dir), all_cifar100_images(data_dir), rate, seed)
    if style != "paper":
        raise ValueError(f"openset-cifar100 has no style {style!r}: choose 'paper' or 'authors'.")
    return _as_paper_does("openset-cifar100", load_cifar10(data_dir), cifar100_images(data_dir), rate, seed)


def load_openset_svhn(data_dir: str | os.PathLike | None = None, rate: float = 0.4, seed: int = 0) -> Dataset:
    """CIFAR-10 with images of SVHN's training set, in the paper's style; `outside` marks them."""
    return _as_paper_does("openset-svhn", load_cifar10(data_dir), svhn_images(data_dir), rate, seed)


def load_openset_imagenet32(
    data_dir: str | os.PathLike | None = None, rate: float = 0.4, seed: int = 0
) -> Dataset:
    """CIFAR-10 with images of ImageNet-32's training set, in the paper's style; `outside` marks them."""
    inside = load_cifar10(data_dir)
    images = imagenet32_images(data_dir, len(inside.x_train), seed)
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
        raise ValueError(f"a share of {rate} outside images is not possible: choose one above 0 and below 1.")
    chosen = np.random.RandomState(seed).choice(len(outside_images), n_outside, replace=False)
    x, y = inside.tensors("an open set")[0].clone(), inside.y_train.clone()
    x[n - n_outside :] = torch.from_numpy(outside_images[chosen])
    y[n - n_outside :] = torch.arange(n_outside) * inside.n_classes // n_outside
    return replace(inside, name="openset-cifar100", x_train=x, y_train=y, outside=torch.arange(n) >= n - n_outside)


def all_cifar100_images(data_dir: str | os.PathLike | None) -> np.ndarray:
    """The training images of CIFAR-100, in the order of the file."""
    x_train, _ = load_cifar100(data_dir).tensors("an open set")
    return x_train.numpy()


def cifar100_images(data_dir: str | os.PathLike | None) -> np.ndarray:
    """The training images of CIFAR-100 without the classes that are kinds of CIFAR-10's."""
    data = load_cifar100(data_dir)
    overlap = [data.class_names.index(name) for name in OVERLAP_CIFAR100]
    x_train, _ = data.tensors("an open set")
    return x_train.numpy()[~np.isin(data.y_train.numpy(), overlap)]


def svhn_images(data_dir: str | os.PathLike | None) -> np.ndarray:
    """The training images of SVHN."""
    from scipy.io import loadmat

    (path,) = find_or_fetch("svhn", data_dir)
    return loadmat(path, variable_names=["X"])["X"].transpose(3, 2, 0, 1)


def imagenet32_images(data_dir: str | os.PathLike | None, n: int, seed: int) -> np.ndarray:
    """`n` training images of ImageNet-32 drawn from the other 775 classes, read one batch at a time."""
    (path,) = find_or_fetch("imagenet32", data_dir)
    labels = [_read_array(path, i, "labels") for i in range(1, N_BATCHES + 1)]
    if any(part.ndim != 1 or part.dtype.kind not in "iuf" for part in labels):
        raise damaged(path, "or a batch beside it holds labels that are no row of numbers")
    starts = np.cumsum([0, *(len(part) for part in labels)])
    allowed = np.flatnonzero(~np.isin(np.concatenate(labels), OVERLAP_IMAGENET32))
    if len(allowed) < n:
        raise damaged(path, f"and the batches beside it hold {len(allowed):,} usable images instead of {n:,}")
    chosen = np.sort(np.random.RandomState(seed).choice(allowed, n, replace=False))
    images = np.empty((n, 3 * 32 * 32), dtype=np.uint8)
    for i in range(N_BATCHES):
        data = _read_array(path, i + 1, "data")
        if data.shape != (len(labels[i]), images.shape[1]) or data.dtype != np.uint8:
            raise damaged(path, f"or a batch beside it holds {data.dtype} images of shape {data.shape}")
        here = (starts[i] <= chosen) & (chosen < starts[i + 1])
        images[here] = data[chosen[here] - starts[i]]
    return images.reshape(-1, 3, 32, 32)


def _read_array(path: Path, number: int, name: str) -> np.ndarray:
    """Read one array of a batch, beside `path` or inside it; objects, which would be pickled, are refused."""
    batch_name = f"train_data_batch_{number}.npz"
    what = f"lacks an intact {batch_name}, in it or beside it"
    with errors_naming(path, what), _open_batch(path, batch_name) as batch:
        with open_zip_member(batch, f"{name}.npy", MOST_OF_A_BATCH[name]) as stream:
            shape, dtype = npy_header(io.BytesIO(stream.read(MOST_HEADER)))
            if math.prod(shape) * dtype.itemsize > batch.getinfo(f"{name}.npy").file_size:
                raise EOFError
        with open_zip_member(batch, f"{name}.npy", MOST_OF_A_BATCH[name]) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def _open_batch(path: Path, name: str) -> Iterator[zipfile.ZipFile]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            inside = [member for member in archive.namelist() if Path(member).name == name]
            with archive.open(inside[0]) as stream, zipfile.ZipFile(stream) as batch:
                yield batch
    else:
        with open_regular(path.with_name(name)) as stream, zipfile.ZipFile(stream) as batch:
            yield batch
