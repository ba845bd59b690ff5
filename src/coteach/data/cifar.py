"""CIFAR-10 and CIFAR-100 in their binary version: a label or two, then 3,072 pixels, per image.

Read from the unpacked folder or straight from the published archive; nothing is unpickled or unpacked.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.published import archive_members, damaged, errors_naming, find_or_fetch, open_regular

PIXELS = 3 * 32 * 32
ROWS_AT_ONCE = 5_000
TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
HUNDRED_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
    can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
    dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
    lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
    pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
    seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
    telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman
    worm"""
HUNDRED = tuple(HUNDRED_NAMES.split())


@dataclass(frozen=True)
class Layout:
    """The files in the order of their rows, the test set last, and the highest values of a row's labels."""

    rows: dict[str, int]
    highest_label: tuple[int, ...]
    names_file: str
    names: tuple[str, ...]

    @property
    def n_train(self) -> int:
        return sum(list(self.rows.values())[:-1])


CIFAR10 = Layout(
    {f"data_batch_{i}.bin": 10_000 for i in range(1, 6)} | {"test_batch.bin": 10_000},
    (9,),
    "batches.meta.txt",
    TEN,
)
CIFAR100 = Layout(
    {"train.bin": 50_000, "test.bin": 10_000}, (19, 99), "fine_label_names.txt", HUNDRED
)  # the coarse label comes first


def load_cifar10(data_dir: str | os.PathLike | None = None) -> Dataset:
    """50,000 / 10,000 images of 10 classes, uint8 of 3×32×32."""
    (path,) = find_or_fetch("cifar10", data_dir)
    images, labels, names = _read_rows(path, CIFAR10)
    return _split("cifar10", CIFAR10, images, labels[:, 0], names)


def load_cifar100(data_dir: str | os.PathLike | None = None) -> Dataset:
    """50,000 / 10,000 images of 100 classes in 20 superclasses, uint8 of 3×32×32."""
    (path,) = find_or_fetch("cifar100", data_dir)
    images, labels, names = _read_rows(path, CIFAR100)
    coarse, fine = labels[:, 0], labels[:, 1]
    superclass = np.full(len(names), -1, dtype=np.int64)
    superclass[fine] = coarse
    if (superclass < 0).any() or (superclass[fine] != coarse).any():
        raise damaged(path, "or a file beside it lacks a class, or puts one into two superclasses")
    return _split("cifar100", CIFAR100, images, fine, names, torch.from_numpy(superclass))


def _split(
    name: str,
    layout: Layout,
    images: np.ndarray,
    labels: np.ndarray,
    class_names: tuple[str, ...],
    superclass: torch.Tensor | None = None,
) -> Dataset:
    x, y, n = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)), layout.n_train
    return Dataset(name, x[:n], y[:n], x[n:], y[n:], class_names, superclass)


def _read_rows(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Fill one array with the rows of all files, in the layout's order whatever the archive's."""
    if path.name.endswith(".tar.gz"):
        members = archive_members(path)
    else:
        members = _folder_files(path.parent, (*layout.rows, layout.names_file))
    n_rows, n_labels = sum(layout.rows.values()), len(layout.highest_label)
    images = np.empty((n_rows, 3, 32, 32), dtype=np.uint8)
    labels = np.empty((n_rows, n_labels), dtype=np.uint8)
    ends = dict(zip(layout.rows, np.cumsum(list(layout.rows.values())).tolist(), strict=True))
    names = layout.names
    missing = set(layout.rows)
    with errors_naming(path, "or a file beside it is truncated or damaged"):
        for member, size, stream in members:
            name = Path(member).name
            if name in missing:
                n = layout.rows[name]
                if size != n * (n_labels + PIXELS):
                    raise damaged(path.parent / name, f"has {size:,} bytes instead of {n * (n_labels + PIXELS):,}")
                part = slice(ends[name] - n, ends[name])
                _fill(stream, labels[part], images[part].reshape(n, PIXELS))
                missing.remove(name)
            elif name == layout.names_file and size < 10_000:
                names = tuple(stream.read().decode("latin-1").split())
    if missing:
        raise damaged(path, f"has no {sorted(missing)[0]} beside it or in it")
    sound_names = len(names) == len(layout.names) and "".join(names).isprintable()
    if (labels > layout.highest_label).any() or not sound_names:
        raise damaged(path, f"or a file beside it holds labels other than the {len(layout.names)} classes")
    return images, labels, names


def _fill(stream: IO[bytes], labels: np.ndarray, images: np.ndarray) -> None:
    """Read rows of labels and pixels, some thousands at a time: the file is never in memory as a whole."""
    n_labels = labels.shape[1]
    for start in range(0, len(labels), ROWS_AT_ONCE):
        n = min(ROWS_AT_ONCE, len(labels) - start)
        block = stream.read(n * (n_labels + PIXELS))
        if len(block) != n * (n_labels + PIXELS):
            raise EOFError
        rows = np.frombuffer(block, dtype=np.uint8).reshape(n, -1)
        labels[start : start + n], images[start : start + n] = rows[:, :n_labels], rows[:, n_labels:]


def _folder_files(folder: Path, names: Collection[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
    for name in names:
        if (folder / name).exists():
            with open_regular(folder / name) as stream:
                yield name, (folder / name).stat().st_size, stream
