"""Tiny-ImageNet: JPEGs of 64×64, 500 training and 50 validation images a class; the latter are our test set.

Read from the unpacked folder or straight from the published zip, with all 200 classes or some of them.
Classes are numbered by their sorted WordNet ids, as those who read the folders do, or as wnids.txt lists them.
"""

import io
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.published import damaged, errors_naming, find_or_fetch
from coteach.files import read_bounded

PER_CLASS = {"train": 500, "val": 50}
SIDE = 64
MOST_OF_AN_IMAGE = 2**20  # bytes, which rarely has 5,000
WORDNET_ID = re.compile("[a-z][0-9]{1,9}")
IMAGE_NAME = re.compile("[A-Za-z0-9_.-]{1,99}")
MOST_TEXT = 2**25  # bytes: words.txt has 2.6 million


def load_tiny_imagenet(
    data_dir: str | os.PathLike | None = None, classes: int | None = None, as_listed: bool = False
) -> Dataset:
    """uint8 images of 3×64×64; grey ones become RGB.

    Parameters
    ----------
    classes : int, optional
        Only the first so many classes of wnids.txt.
    as_listed : bool
        Number the classes in the order of wnids.txt, as Co-teaching+'s authors do, not of their sorted ids.
    """
    _pillow()
    (path,) = find_or_fetch("tiny-imagenet", data_dir)
    with _open_files(path) as files:
        listed = files.text("wnids.txt").split()
        if classes is not None and not 2 <= classes <= len(listed):
            raise ValueError(f"{path} lists {len(listed)} classes: choose from 2 to all of them, not {classes}.")
        if len(listed) < 2 or not all(map(WORDNET_ID.fullmatch, listed)):
            raise damaged(path, "comes with a wnids.txt that does not list two or more WordNet ids")
        wnids = listed[:classes] if as_listed else sorted(listed[:classes])
        x_train, y_train = _read_images(files, _train_images(files, wnids), len(wnids), "train")
        x_test, y_test = _read_images(files, _test_images(files, wnids), len(wnids), "val")
        return Dataset("tiny-imagenet", x_train, y_train, x_test, y_test, _names(files, wnids))


class _Folder:
    """The unpacked folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str, most: int = MOST_OF_AN_IMAGE) -> bytes:
        with errors_naming(self.root / name, "is missing or cannot be read"):
            return read_bounded(self.root / name, most)

    def text(self, name: str) -> str:
        return self.read(name, MOST_TEXT).decode("utf-8", errors="replace")

    def images(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{path.name}" for path in (self.root / folder).glob("*.JPEG"))


class _Zip(_Folder):
    """The published zip, whose hash has been checked."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        super().__init__(path)
        self._archive = archive
        self._by_folder: dict[str, list[str]] = {}
        for name in archive.namelist():
            folder, _, file = name.removeprefix("tiny-imagenet-200/").rpartition("/")
            if file.endswith(".JPEG"):
                self._by_folder.setdefault(folder, []).append(f"{folder}/{file}")

    def read(self, name: str, most: int = MOST_OF_AN_IMAGE) -> bytes:
        return self._archive.read(f"tiny-imagenet-200/{name}")

    def images(self, folder: str) -> list[str]:
        return sorted(self._by_folder.get(folder, []))


@contextmanager
def _open_files(path: Path) -> Iterator[_Folder]:
    if path.suffix != ".zip":
        yield _Folder(path.parent)
        return
    with zipfile.ZipFile(path) as archive:
        yield _Zip(path, archive)


def _train_images(files: _Folder, wnids: list[str]) -> list[tuple[str, int]]:
    return [(name, label) for label, wnid in enumerate(wnids) for name in files.images(f"train/{wnid}/images")]


def _test_images(files: _Folder, wnids: list[str]) -> list[tuple[str, int]]:
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    lines = (line.split("\t") for line in sorted(files.text("val/val_annotations.txt").splitlines()))
    of_ours = [(line[0], label_of[line[1]]) for line in lines if len(line) > 1 and line[1] in label_of]
    for name, _ in of_ours:
        if not IMAGE_NAME.fullmatch(name):
            raise damaged(files.root, f"lists the validation image {name[:50]!r}, which is no name of one")
    return [(f"val/images/{name}", label) for name, label in of_ours]


def _read_images(
    files: _Folder, images: list[tuple[str, int]], n_classes: int, part: str
) -> tuple[torch.Tensor, torch.Tensor]:
    labels = np.array([label for _, label in images], dtype=np.int64)
    counts = np.bincount(labels, minlength=n_classes)
    if (counts != PER_CLASS[part]).any():
        raise damaged(
            files.root,
            f"holds a class with {counts[counts != PER_CLASS[part]][0]} {part} images instead of "
            f"{PER_CLASS[part]}",
        )
    x = np.empty((len(images), 3, SIDE, SIDE), dtype=np.uint8)
    for row, (name, _) in zip(x, images, strict=True):
        row[:] = _decode(files.read(name), files.root / name).transpose(2, 0, 1)
    return torch.from_numpy(x), torch.from_numpy(labels)


def _decode(jpeg: bytes, path: Path) -> np.ndarray:
    image_module = _pillow()
    try:
        with image_module.open(io.BytesIO(jpeg), formats=["JPEG"]) as image:
            if image.size == (SIDE, SIDE):  # known before the pixels are decoded
                return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow raises many kinds
        raise damaged(path, "is not a whole JPEG image") from error
    raise damaged(path, f"is not an image of {SIDE}×{SIDE} pixels")


def _names(files: _Folder, wnids: list[str]) -> tuple[str, ...]:
    """The first English name of each class from words.txt, which some copies lack; then its id."""
    try:
        lines = files.text("words.txt").splitlines()
    except ValueError:
        return tuple(wnids)
    words = dict(line.split("\t", 1) for line in lines if "\t" in line and line.replace("\t", " ").isprintable())
    return tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError("Tiny-ImageNet's JPEGs need Pillow: pip install pillow.") from error
    return Image
