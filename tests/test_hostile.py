"""Every reader of files that have no published hash against broken and hostile ones: a ValueError that names the
file, or a sound result.

A new reader takes one line in READERS; it is then fuzzed here, given whatever is no file in test_hostile_bombs.py,
and watched for code and for files that it has no business with. Fifty examples a reader by default, a thousand
with HYPOTHESIS_PROFILE=thorough.
"""

import encodings.cp437  # noqa: F401 - zipfile asks for it where a name in an archive is not ASCII
import io
import json
import os
import struct
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save

import coteach
from coteach.audit.arrays import read_arrays
from coteach.audit.encoding import read_encoding
from coteach.audit.images import read_new_images
from coteach.audit.tables import read_table
from coteach.data import load, openset
from coteach.data.given import read_given_labels
from coteach.data.mnist import read_idx
from coteach.data.news import VECTORS_MEMBER, read_vectors
from coteach.data.pickled import read_pickled_arrays
from coteach.noise import Noise, corrupt
from coteach.paper import measured
from coteach.report.read import read_run
from coteach.runs import checkpoint
from coteach.runs import folder as files
from coteach.runs.folder import as_experiment, read_config, read_rows
from coteach.runs.prepare import read_matrix
from data_files import (
    cifar_files,
    idx_bytes,
    news_files,
    npz_bytes,
    shrink,
    tiny_files,
    write_folder,
    write_zip,
)
from report_runs import write_run


@dataclass(frozen=True)
class Reader:
    """How to write a sound file into an empty folder, returning its path, and how to read that path.

    A message must hold the file's name, or with `among` that of the folder: its file is then one of many.
    """

    name: str
    write: Callable[[Path], Path]
    read: Callable[[Path], object]
    among: bool = False


def one(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    return lambda folder: write_folder(folder, {name: content()}) / name


def many(files: Callable[[], dict[str, bytes]], spoilt: str) -> Callable[[Path], Path]:
    return lambda folder: write_folder(folder, files()) / spoilt


def beside(name: str) -> Callable[[Path], object]:
    """Load a data set from the folder that the file is in, at any depth."""
    return lambda path: load(name, home_of(path))


def home_of(path: Path) -> Path:
    return next(folder for folder in path.parents if (folder / ".home").exists())


def write_noise(folder: Path) -> Path:
    corrupt(np.arange(20) % 4, "pair", 0.4).save(folder / "noise.safetensors")
    return folder / "noise.safetensors"


def write_classifier(folder: Path) -> Path:
    x = np.random.default_rng(0).normal(size=(24, 3))
    model = coteach.RobustClassifier(epochs=1, batch_size=8, noise_rate=0.2, random_state=0, device="cpu")
    model.fit(x, np.arange(24) % 2).save(folder / "model.safetensors")
    return folder / "model.safetensors"


def png() -> bytes:
    written = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(written, "PNG")
    return written.getvalue()


def npy_bytes(array: np.ndarray) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def pickled() -> bytes:
    written = io.BytesIO()
    torch.save({"clean_label": np.arange(5), "coarse": [1, 2]}, written)
    return written.getvalue()


def parquet() -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2], "label": ["x", "y"]}), written)
    return written.getvalue()


def encoding() -> bytes:
    return json.dumps({"kind": "table", "columns": []}).encode()


def cell() -> bytes:
    record = {"hash": "ab", "data": {"note": ""}, "summary": {"mean": 1.5}, "runs": [{"seed": 1}]}
    return json.dumps(record).encode()


def write_checkpoint(folder: Path) -> Path:
    (folder / "metrics.jsonl").write_text("{}\n")
    kept = checkpoint.Checkpoints([folder], {"plan": {"lr": 0.1}})
    kept.write([range(2)], [range(2, 4)], [0, 0, 0, 1], 1.5, (0, 3), {"stack.theta": torch.zeros(2, 3)})
    return kept.path


def write_config(folder: Path) -> Path:
    files.write_config(
        folder, {"experiment": {"lr": 0.1}, "engine": {"device": "cpu"}, "hardware": {"threads": 1}}
    )
    return folder / "config.toml"


def of_run(name: str) -> Callable[[Path], Path]:
    """A run folder in which one file is spoilt."""
    return lambda folder: write_run(folder / "run") / name


def read_imagenet32(path: Path) -> object:
    return openset.imagenet32_images(path.parent, 2, 0)


MOON = {"moon": 0, "a": 1}
GLOVE = b"moon 1.5 -2\na 3e-2 4\n"
BATCH = {"data": np.zeros((2, 3072), np.uint8), "labels": np.array([1, 1000])}

LABEL_FILES: dict[str, Callable[[], bytes]] = {
    "l.npy": lambda: npy_bytes(np.arange(4) % 2),
    "l.txt": lambda: b"a\nb\nb\na\n",
    "l.csv": lambda: b"id,label\n0,1\n1,0\n2,1\n3,1\n",
}

READERS = [
    Reader("idx", one("images", lambda: idx_bytes(np.zeros((2, 3, 4)))), partial(read_idx, shape=(2, 3, 4))),
    Reader("cifar", many(cifar_files, "data_batch_1.bin"), beside("cifar10"), among=True),
    Reader("cifar names", many(cifar_files, "batches.meta.txt"), beside("cifar10"), among=True),
    Reader("glove", one("vectors.txt", lambda: GLOVE), partial(read_vectors, words=MOON)),
    Reader(
        "glove.zip",
        lambda folder: write_zip(folder / "glove.6B.zip", {VECTORS_MEMBER: GLOVE}),
        partial(read_vectors, words=MOON),
    ),
    Reader(
        "news",
        many(lambda: news_files() | {"vectors/v.txt": GLOVE}, "20news-bydate-train/sci.space/1"),
        beside("news"),
        among=True,
    ),
    *(
        Reader(f"tiny-imagenet {spoilt}", many(tiny_files, spoilt), beside("tiny-imagenet"), among=True)
        for spoilt in ("train/n02/images/n02_0.JPEG", "wnids.txt", "words.txt", "val/val_annotations.txt")
    ),
    Reader("imagenet32", one("train_data_batch_1.npz", lambda: npz_bytes(**BATCH)), read_imagenet32),
    *(
        Reader(
            f"labels {name}", one(name, content), partial(read_given_labels, n_samples=4, class_names=("a", "b"))
        )
        for name, content in LABEL_FILES.items()
    ),
    Reader("cifar-n", one("human.pt", pickled), read_pickled_arrays),
    Reader("noise", write_noise, Noise.load),
    Reader("matrix", one("q.txt", lambda: b"0.9 0.1\n0.2, 0.8\n"), read_matrix),
    Reader("classifier", write_classifier, coteach.RobustClassifier.load),
    Reader("results", one("cell.json", cell), measured.load_json),
    Reader("checkpoint", write_checkpoint, lambda path: checkpoint.read_checkpoint(path.parent)),
    Reader(
        "config", write_config, lambda path: as_experiment(read_config(path.parent)["experiment"], path.parent)
    ),
    Reader("csv", one("t.csv", lambda: b"a,b,label\n1,x,2\n3,y,4\n"), read_table),
    Reader("parquet", one("t.parquet", parquet), read_table),
    Reader("npz", one("a.npz", lambda: npz_bytes(x=np.zeros((4, 3)), y=np.arange(4) % 2)), read_arrays),
    Reader("image", one("i.png", png), lambda path: read_new_images([path], 8, 3)),
    Reader("encoding", one("encoding.json", encoding), lambda path: read_encoding(path.parent)),
    Reader("rows", one("metrics.jsonl", lambda: b'{"seed": 1, "epoch": 1}\n' * 3), read_rows),
    *(
        Reader(f"report {name}", of_run(name), lambda path: read_run(path.parent))
        for name in ("config.toml", "metrics.jsonl", "summary.json", "noise.safetensors", "losses.jsonl")
    ),
    Reader("report opinions", of_run("opinions/seed-1.safetensors"), lambda path: read_run(path.parent.parent)),
]

BY_ID = [pytest.param(reader, id=reader.name) for reader in READERS]


# ---- what is given to them ------------------------------------------------------------------------------------

CHUNKS = (
    *(b"\xff" * 8, bytes(8), b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80", struct.pack("<Q", 2**62)),
    *(b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"null", b'"', b"[" * 2000, b'{"a":' * 2000, b"\\u0000"),
    *(b"\xc3\x28", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\x1b[2J", b"\r\n", b"\t", b" ", b"../../", b"/etc/passwd"),
)
WHOLE = (
    *(b"", b"\n", bytes(2000), b"\xff" * 2000, b"<html>not found</html>", b"{}", b"[]", b"null", b"NaN"),
    b"-" * 9000,
    *(b"[" * 200_000, b'{"a":' * 200_000, b"a=" + b"[" * 200_000, b"(" * 9000, b"\xff\xfeu\0t\0f\0"),
    *(b"\x1f\x8b\x08" + bytes(20), b"PK\5\6" + b"\xff" * 18, b"PK\5\6" + bytes(18), b"\xff\xd8\xff\xe1\xff\xff"),
    *(struct.pack("<Q", n) + b'{"__metadata__":{}}' for n in (19, 2**40, 2**63)),
    struct.pack("<Q", 200_000) + b"[" * 200_000,
    save({}, {"format": "\x1b[2J\n" * 1000}),
    struct.pack(">IIII", 0x803, 0, 2**32 - 1, 2**32 - 1),
    struct.pack("<Q", 99)
    + b'{"x":{"dtype":"F64","shape":[4294967296,9999999999],"data_offsets":[0,0]}}'.ljust(99),
)


@st.composite
def spoilt(draw, sound: bytes) -> bytes:
    """The sound bytes after some accidents: cut off, overwritten, pushed apart, taken out, repeated."""
    data = sound
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        chunk = draw(st.sampled_from(CHUNKS) | st.binary(max_size=9))
        data = {
            "cut": data[:start],
            "overwrite": data[:start] + chunk + data[start + len(chunk) :],
            "insert": data[:start] + chunk + data[start:],
            "remove": data[:start] + data[end:],
            "repeat": data[:end] + data[start:],
        }[draw(st.sampled_from(["cut", "overwrite", "insert", "remove", "repeat"]))]
    return data


# ---- what is expected of them ---------------------------------------------------------------------------------

DEEDS = (
    *("exec", "pickle.find_class", "socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.fork"),
    *("os.posix_spawn", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod"),
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
watched: list[tuple[Path, list[str]]] = []


def outside_of(folder: Path, opened: int | str | bytes) -> bool:
    return isinstance(opened, (str, bytes)) and not Path(os.path.abspath(os.fsdecode(opened))).is_relative_to(
        folder
    )


def watch(event: str, args: tuple) -> None:
    if not watched:
        return
    folder, deeds = watched[-1]
    if event in DEEDS:
        deeds.append(f"{event} {args[:1]}")
    elif event == "open" and (args[2] & WRITING or outside_of(folder, args[0])):
        deeds.append(f"open {args}")


@contextmanager
def nothing_done_beyond_reading(folder: Path):
    """No code is run, nothing is written, and no file outside the folder is even opened."""
    if watch not in HOOKED:
        sys.addaudithook(watch)  # there is no way to take it back
        HOOKED.append(watch)
    deeds: list[str] = []
    watched.append((folder, deeds))
    try:
        yield
    finally:
        watched.pop()
        assert deeds == []


HOOKED: list[Callable] = []


def check(reader: Reader, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    home = home_of(path)
    with nothing_done_beyond_reading(home):
        try:
            reader.read(path)
        except ValueError as error:
            message = str(error)
        else:
            return
    assert (str(home) if reader.among else path.name) in message
    assert message.isprintable()
    assert len(message) < 1000


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as monkeypatch:
        shrink(monkeypatch)
        yield


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A reader's sound file: its path and its bytes. What the reader imports is imported by now."""

    @cache
    def made(reader: Reader) -> tuple[Path, bytes]:
        home = tmp_path_factory.mktemp("home")
        (home / ".home").touch()
        path = reader.write(home)
        reader.read(path)
        return path, path.read_bytes()

    return made


@pytest.mark.parametrize("reader", BY_ID)
@given(data=st.data())
def test_a_spoilt_file_is_read_or_named(reader, sound, data):
    path, content = sound(reader)
    check(reader, path, data.draw(spoilt(content)))


@pytest.mark.parametrize("reader", BY_ID)
def test_a_file_of_another_kind_is_read_or_named(reader, sound):
    path, _ = sound(reader)
    for content in WHOLE:
        check(reader, path, content)


@pytest.mark.parametrize("reader", BY_ID)
def test_nothing_at_the_start_or_in_the_middle_is_too_much(reader, sound):
    path, content = sound(reader)
    for chunk in CHUNKS:
        for place in (0, len(content) // 2):
            check(reader, path, content[:place] + chunk + content[place:])
