"""Files that expand to gigabytes, promise them, or never end: refused by name, in bounded memory and time.

One process with everything imported runs each case in a fork of its own, which may take a gigabyte of memory, ten
seconds of the processor, and half a minute in all. Run as a program, this file is that process.
"""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from coteach.data.news import VECTORS_MEMBER
from data_files import deflated, shrink, tiny_files, write_folder, zip_of
from test_hostile import BATCH, GLOVE, READERS, Reader

GIGABYTE = 2**30
MUCH = 4 * GIGABYTE
SOUND = "a ValueError that names the file"
BY_NAME = {reader.name: reader for reader in READERS}


def holes(path: Path, start: bytes = b"") -> Path:
    """A file of some bytes and gigabytes of zeros, which take no place on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(start)
    os.truncate(path, MUCH)
    return path


def batch(folder: Path, name: str, packed: bytes, claimed: int) -> Path:
    others = {f"{other}.npy": npy(array) for other, array in BATCH.items()}
    return put(folder, "train_data_batch_1.npz", zip_of(f"{name}.npy", packed, claimed, others))


def npy_header(shape: tuple[int, ...], kind: str) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def jpeg_of(width: int, height: int) -> bytes:
    """A sound image, except that its header claims another size."""
    data = tiny_files()["val/images/a.JPEG"]
    frame = data.index(b"\xff\xc0") + 5
    return data[:frame] + struct.pack(">HH", height, width) + data[frame + 4 :]


def put(folder: Path, name: str, data: bytes) -> Path:
    return write_folder(folder, {name: data}) / name


def with_tiny(folder: Path, name: str, data: bytes) -> Path:
    return put(write_folder(folder, tiny_files()), name, data)


IMAGE = "train/n02/images/n02_0.JPEG"
PROMISE = b"\x93NUMPY\2\0" + struct.pack("<I", 2**31 - 1)
# What is written, and who reads it.
BOMBS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "idx": (lambda f: holes(f / "x", struct.pack(">IIII", 0x803, 4096, 1024, 1023)), "idx"),
    "cifar": (lambda f: holes(f / "data_batch_1.bin"), "cifar"),
    "post": (
        lambda f: holes(write_folder(f, {"vectors/v.txt": GLOVE}) / "20news-bydate-train/sci.space/1"),
        "news",
    ),
    "vectors": (lambda f: holes(f / "v.txt", b"moon 1"), "glove"),
    "vectors.zip": (
        lambda f: put(f, "g.zip", zip_of(VECTORS_MEMBER, deflated(b"", MUCH, b"bee 1 2\n" * 2**17), MUCH - 1, {})),
        "glove.zip",
    ),
    "vectors.zip, not as promised": (
        lambda f: put(f, "g.zip", zip_of(VECTORS_MEMBER, deflated(b"moon 1", MUCH), 2**30, {})),
        "glove.zip",
    ),
    "image": (lambda f: holes(write_folder(f, tiny_files()) / IMAGE), f"tiny-imagenet {IMAGE}"),
    "list": (lambda f: holes(write_folder(f, tiny_files()) / "wnids.txt"), "tiny-imagenet wnids.txt"),
    "pixels": (lambda f: with_tiny(f, IMAGE, jpeg_of(65500, 65500)), f"tiny-imagenet {IMAGE}"),
    "fewer pixels": (lambda f: with_tiny(f, IMAGE, jpeg_of(9000, 9000)), f"tiny-imagenet {IMAGE}"),
    "npz: labels": (
        lambda f: batch(f, "labels", deflated(npy_header((2**28,), "<i8"), MUCH), MUCH - 1),
        "imagenet32",
    ),
    "npz: data": (
        lambda f: batch(f, "data", deflated(npy_header((2**20, 3072), "|u1"), MUCH), MUCH - 1),
        "imagenet32",
    ),
    "npz: header": (lambda f: batch(f, "labels", deflated(PROMISE, MUCH), 2**20), "imagenet32"),
    "noise": (lambda f: holes(f / "n"), "noise"),
    "noise: header": (lambda f: holes(f / "n", struct.pack("<Q", GIGABYTE) + b"{"), "noise"),
}
KINDS = ("pipe", "folder", "endless device")


def no_file(kind: str, reader: Reader, folder: Path) -> Path:
    path = reader.write(folder)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    return path


def outcome(make: Callable[[Path], Path], reader: Reader) -> str:
    """Run a case in a fork, within its limits, and say how it went."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".home").touch()
        path = make(folder)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, attempt(reader, path).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            said = pipe.read().decode()
        _, status = os.waitpid(child, 0)
    return said or f"killed by {signal.Signals(os.WTERMSIG(status)).name}"


def attempt(reader: Reader, path: Path) -> str:
    import resource

    in_use = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (in_use + GIGABYTE,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    signal.alarm(30)
    try:
        reader.read(path)
    except ValueError as error:
        if isinstance(error.__cause__ or error.__context__, MemoryError):
            return "out of memory"
        return (
            SOUND if path.name in str(error) or (reader.among and str(path.parent) in str(error)) else str(error)
        )
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "read"


def cases() -> dict[str, tuple[Callable[[Path], Path], Reader]]:
    found = {name: (make, BY_NAME[reader]) for name, (make, reader) in BOMBS.items()}
    for reader in READERS:
        found |= {f"{kind} as {reader.name}": (partial(no_file, kind, reader), reader) for kind in KINDS}
    return found


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are as Linux has them")
def test_memory_and_time_are_bounded():
    source = Path(__file__).parents[1] / "src"
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parent}"}
    done = subprocess.run([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, check=True)
    outcomes = json.loads(done.stdout)
    assert outcomes.keys() == cases().keys()
    assert {name: outcomes[name] for name in BOMBS if outcomes[name] != SOUND} == {}
    rest = outcomes.keys() - BOMBS.keys()  # a file that may be missing may be no file
    assert {name: outcomes[name] for name in rest if outcomes[name] not in (SOUND, "read")} == {}


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as small:
        shrink(small)
        print(json.dumps({name: outcome(*case) for name, case in cases().items()}))
