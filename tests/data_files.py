"""Small files in the published formats, written by the tests of the readers."""

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coteach.data.published import SOURCES


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
