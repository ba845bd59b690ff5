"""Images for the open-sets that show none of CIFAR-10's classes: uint8 arrays of shape (K, 3, 32, 32).

ImageNet-32 numbers the 1,000 classes from 1 in the order of the challenge's map_clsloc.txt. Left out are
those that are, or are easily taken for, one of the ten: every bird, domestic dog, cat (cougar and lynx too),
frog, the horse, and all aeroplanes, cars, trucks and vessels.
"""

import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from coteach.data.bounded import damaged, naming, open_member, opened_zip
from coteach.data.cifar import load_cifar100
from coteach.data.fetch import find_or_fetch

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
MOST_BYTES = {"data": 2**29, "labels": 2**21}  # of a batch, which has 394 and 1 million
MOST_HOUSE_NUMBERS = 100_000  # the training set has 73,257


def all_of_cifar100(data_dir: str | os.PathLike | None) -> np.ndarray:
    """The training images of CIFAR-100, in the order of the file."""
    x_train, _ = load_cifar100(data_dir).tensors("an open set")
    return x_train.numpy()


def cifar100(data_dir: str | os.PathLike | None) -> np.ndarray:
    """The training images of CIFAR-100 without the classes that are kinds of CIFAR-10's."""
    data = load_cifar100(data_dir)
    overlap = [data.class_names.index(name) for name in OVERLAP_CIFAR100]
    x_train, _ = data.tensors("an open set")
    return x_train.numpy()[~np.isin(data.y_train.numpy(), overlap)]


def svhn(data_dir: str | os.PathLike | None) -> np.ndarray:
    """The training images of SVHN."""
    from scipy.io import loadmat, whosmat

    (path,) = find_or_fetch("svhn", data_dir)
    try:
        shape, kind = {name: (shape, kind) for name, shape, kind in whosmat(path)}["X"]
        usual = shape[:3] == (32, 32, 3) and len(shape) == 4 and shape[3] <= MOST_HOUSE_NUMBERS
        images = loadmat(path, variable_names=["X"])["X"] if usual and kind == "uint8" else None
    except Exception as error:  # scipy raises many kinds
        raise damaged(path, "is not SVHN's MATLAB file") from error
    if images is None or images.dtype != np.uint8:
        raise damaged(path, f"holds {kind} images of shape {shape} instead of 32×32×3×N bytes")
    return images.transpose(3, 2, 0, 1)


def imagenet32(data_dir: str | os.PathLike | None, n: int, seed: int) -> np.ndarray:
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
    with naming(path, what), _opened_batch(path, batch_name) as batch:
        with open_member(batch, f"{name}.npy", MOST_BYTES[name]) as stream:
            if _promised_bytes(io.BytesIO(stream.read(MOST_HEADER))) > batch.getinfo(f"{name}.npy").file_size:
                raise EOFError
        with open_member(batch, f"{name}.npy", MOST_BYTES[name]) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def _opened_batch(path: Path, name: str) -> Iterator[zipfile.ZipFile]:
    if path.suffix == ".zip":
        with opened_zip(path) as archive:
            inside = [member for member in archive.namelist() if Path(member).name == name]
            with (
                open_member(archive, inside[0], 2 * MOST_BYTES["data"]) as stream,
                zipfile.ZipFile(stream) as batch,
            ):
                yield batch
    else:
        with opened_zip(path.with_name(name)) as batch:
            yield batch


def _promised_bytes(stream: io.BytesIO) -> int:
    """The size of the array that a .npy header announces."""
    version = np.lib.format.read_magic(stream)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = headers[version](stream)
    return math.prod(shape) * dtype.itemsize
