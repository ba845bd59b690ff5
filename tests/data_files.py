"""Small files in the published formats, written by the tests of the readers."""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coteach.data import cifar, news, openset, published, tiny_imagenet
from coteach.data.published import SOURCES, File


def publish(monkeypatch: pytest.MonkeyPatch, source: str, *paths: Path) -> None:
    """Let the files at these paths be the published ones: their hashes go into the table."""
    files = tuple(
        replace(file, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        for file, path in zip(SOURCES[source].files, paths, strict=True)
    )
    monkeypatch.setitem(SOURCES, source, replace(SOURCES[source], files=files))


def idx_bytes(values: np.ndarray) -> bytes:
    """The idx format: two zeros, the type (8: bytes), the number of dimensions, the sizes, the values."""
    sizes = struct.pack(f">{values.ndim}I", *values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


def write_idx(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = idx_bytes(values)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def cifar_bytes(labels: np.ndarray, images: np.ndarray) -> bytes:
    """CIFAR's binary format, image by image: the label bytes, then 1,024 red, green and blue bytes each."""
    return b"".join(
        bytes(np.atleast_1d(label).tolist()) + image.tobytes() for label, image in zip(labels, images, strict=True)
    )


def write_tar_gz(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_folder(root: Path, members: dict[str, bytes]) -> Path:
    for name, data in members.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few samples be whole data sets, and download nothing."""
    monkeypatch.setattr(published, "_download", no_download)
    rows = dict.fromkeys(cifar.CIFAR10.rows, 1)
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, rows=rows))
    monkeypatch.setattr(news, "N_POSTS", {"train": 2, "test": 1})
    monkeypatch.setattr(tiny_imagenet, "PER_CLASS", {"train": 1, "val": 1})
    monkeypatch.setattr(openset, "N_BATCHES", 1)


def no_download(file: File, folder: Path, *_: object) -> Path:
    raise ValueError(f"{folder / file.name} is missing.")


def cifar_files() -> dict[str, bytes]:
    batch = cifar_bytes(np.array([3]), np.full((1, 3, 32, 32), 7, np.uint8))
    return dict.fromkeys(cifar.CIFAR10.rows, batch) | {"batches.meta.txt": "\n".join(cifar.TEN).encode()}


def news_files() -> dict[str, bytes]:
    train = {"20news-bydate-train/sci.space/1": b"The moon", "20news-bydate-train/alt.atheism/2": b"no moon"}
    return train | {"20news-bydate-test/rec.autos/3": b"a car"}


def tiny_files() -> dict[str, bytes]:
    """Two classes with a training and a validation image each."""
    buffer = io.BytesIO()
    Image.fromarray(np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)).save(buffer, "JPEG")
    train = ("train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG")
    texts = {"wnids.txt": b"n01\nn02\n", "words.txt": b"n01\tgoldfish\nn02\tred wine\n"}
    texts["val/val_annotations.txt"] = b"a.JPEG\tn01\t0\nb.JPEG\tn02\t0\n"
    return texts | dict.fromkeys((*train, "val/images/a.JPEG", "val/images/b.JPEG"), buffer.getvalue())


def npz_bytes(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


# ---- what expands ---------------------------------------------------------------------------------------------


def deflated(start: bytes, n_zeros: int, instead: bytes = bytes(2**20)) -> bytes:
    """Some bytes and many zeros, or a mebibyte of something else again and again; a thousandth of all that."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    begin = squeeze.compress(start) + squeeze.flush(zlib.Z_FULL_FLUSH)
    piece = squeeze.compress(instead) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return begin + piece * (n_zeros // 2**20) + squeeze.flush()


def gzip_of(start: bytes, n_zeros: int) -> bytes:
    """A gzip file of some bytes and many zeros; its checksum, at the very end, is wrong."""
    return b"\x1f\x8b\x08" + bytes(7) + deflated(start, n_zeros) + bytes(8)


def zip_of(
    name: str, packed: bytes, claimed: int, others: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """A zip archive with a member that claims to have so many bytes, and whose checksum is wrong."""
    sizes = struct.pack("<HHHIII", method, 0, 0, 0, len(packed), claimed)
    lengths = struct.pack("<HH", len(name), 0)
    local = b"PK\3\4" + struct.pack("<HH", 20, 0) + sizes + lengths + name.encode()
    central = b"PK\1\2" + struct.pack("<HHH", 20, 20, 0) + sizes + lengths + bytes(14) + name.encode()
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(packed), 0)
    buffer = io.BytesIO(local + packed + central + b"PK\5\6" + end)
    with zipfile.ZipFile(buffer, "a") as archive:
        for other in others.keys() - {name}:
            archive.writestr(other, others[other])
    return buffer.getvalue()
