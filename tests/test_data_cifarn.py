"""CIFAR-N's pickled labels, read without running them, and what hostile files of that kind come to."""

import os
import pickle  # noqa: TID251 - to write what must not be read
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from coteach.data import DATASETS, cifar, cifarn, load, pickled
from coteach.data.pickled import read_pickled_arrays
from data_files import publish, write_folder, write_zip
from test_data_cifar import hundred, ten
from test_hostile import nothing_done_beyond_reading

TEN = {f"data_batch_{i}.bin": 6 for i in range(1, 6)} | {"test_batch.bin": 9}
COLUMNS = {
    "cifar10n-aggre": "aggre_label",
    "cifar10n-rand1": "random_label1",
    "cifar10n-rand2": "random_label2",
    "cifar10n-rand3": "random_label3",
    "cifar10n-worst": "worse_label",
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, rows=TEN))
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, rows={"train.bin": 200, "test.bin": 100}))


def written(path: Path, content: object) -> Path:
    """As torch.save does it, which is how the published files were made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path, pickle_protocol=2)
    return path


def labels_of_ten(parts: dict) -> dict[str, np.ndarray]:
    true = np.concatenate([y for y, _ in list(parts.values())[:-1]])
    shifted = {column: (true + i) % 10 for i, column in enumerate(COLUMNS.values(), 1)}
    return {"clean_label": true} | shifted


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A small CIFAR-10 and the labels of its images, as if published."""
    parts, files = ten()
    write_folder(tmp_path / "cifar-10-batches-bin", files)
    publish(monkeypatch, "cifar10n", written(tmp_path / "cifar-n" / "CIFAR-10_human.pt", labels_of_ten(parts)))
    return tmp_path


@pytest.mark.parametrize("name", COLUMNS)
def test_labels_of_ten_classes_come_with_the_images_and_the_truth(home, name):
    plain, data = load("cifar10", home), load(name, home)
    shift = list(COLUMNS).index(name) + 1
    assert torch.equal(data.given, (plain.y_train + shift) % 10)
    assert (data.name, data.given.dtype, data.y_train.dtype) == (name, torch.int64, torch.int64)
    for field in ("x_train", "y_train", "x_test", "y_test"):
        assert torch.equal(getattr(data, field), getattr(plain, field))
    assert plain.given is None
    assert "CC BY-NC 4.0" in data.note
    assert (DATASETS[name].given, DATASETS[name].licence) == (True, "CC BY-NC 4.0")


def test_labels_of_a_hundred_classes(tmp_path, monkeypatch):
    parts, files = hundred()
    write_folder(tmp_path / "cifar-100-binary", files)
    true = parts["train.bin"][0]
    content = {"clean_label": true, "noisy_label": true[::-1].copy(), "clean_coarse_label": (true // 5).tolist()}
    publish(monkeypatch, "cifar100n", written(tmp_path / "CIFAR-100_human.pt", content))
    data = load("cifar100n", tmp_path)
    assert np.array_equal(data.given, true[::-1])
    assert data.superclass is not None


def test_only_the_published_file_is_taken(home):
    written(home / "cifar-n" / "CIFAR-10_human.pt", {"clean_label": np.zeros(30, np.int64)})
    with pytest.raises(ValueError, match="CIFAR-10_human.pt is not the published file"):
        load("cifar10n-worst", home)


def test_files_of_older_and_newer_numpy_are_read_alike(tmp_path):
    path = written(tmp_path / "x.pt", {"a": np.arange(4), "b": np.arange(2)})
    with zipfile.ZipFile(path) as archive:
        program = archive.read("x/data.pkl")
    for module in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        other = program.replace(b"numpy._core.multiarray", module).replace(b"numpy.core.multiarray", module)
        assert module in other
        found = read_pickled_arrays(write_zip(tmp_path / "y.pt", {"y/data.pkl": other}))
        assert found["a"].tolist() == [0, 1, 2, 3]


# ---- sound files with something else in them --------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"clean_label": np.arange(30) % 10}, "another order of images"),
        ({"clean_label": np.arange(29) % 10}, "another order of images"),
        ({"clean_label": None}, "has no clean_label"),
        ({"worse_label": None}, "has no worse_label"),
        ({"worse_label": [1] * 30}, "has no worse_label"),
        ({"worse_label": np.full(30, 10)}, "none of the 10 classes"),
        ({"worse_label": np.full(30, -1)}, "none of the 10 classes"),
        ({"worse_label": np.full(29, 1)}, "not one an image"),
        ({"worse_label": np.zeros(0, np.int64)}, "something else"),
        ({"worse_label": np.ones((30, 1), np.int64)}, "something else"),
        ({"worse_label": np.ones(30, np.int32)}, "something else"),
        ({"worse_label": np.ones(30)}, "something else"),
        ({"worse_label": np.ones(30, ">i8")}, "something else"),
        ({"worse_label": np.ones(30, bool)}, "something else"),
        ({"worse_label": np.array([1] * 30, object)}, "something else"),
        ({"worse_label": np.array(["1"] * 30)}, "something else"),
        ({"worse_label": torch.ones(30, dtype=torch.int64)}, "something else"),
        ({"worse_label": 2**70}, "something else"),
        ({"worse_label": 0.5}, "something else"),
    ],
)
def test_labels_that_are_none_are_refused_in_a_sentence(home, monkeypatch, changes, words):
    parts = {"all": (load("cifar10", home).y_train.numpy(), None), "test": None}
    content = {k: v for k, v in (labels_of_ten(parts) | changes).items() if v is not None}
    publish(monkeypatch, "cifar10n", written(home / "cifar-n" / "CIFAR-10_human.pt", content))
    with pytest.raises(ValueError, match=f"CIFAR-10_human.pt .*{words}.*: delete it") as refusal:
        load("cifar10n-worst", home)
    assert "\n" not in str(refusal.value)


# ---- programs -------------------------------------------------------------------------------------------------


class Runs:
    """What a pickle would call, if it were unpickled."""

    def __init__(self, call, *arguments):
        self.call = (call, arguments)

    def __reduce__(self):
        return self.call


def archived(tmp_path: Path, program: bytes) -> Path:
    return write_zip(tmp_path / "x.pt", {"x/data.pkl": program})


def refused(path: Path) -> None:
    with pytest.raises(ValueError, match="x.pt holds something else .*: delete it") as refusal:
        read_pickled_arrays(path)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "content",
    [
        {"a": Runs(exec, "raise SystemExit")},
        {"a": Runs(print, "hello")},
        {"a": Runs(np.load, "x.npy"), "b": 1},
        {"a": Runs(os.system, "touch x"), "b": np.arange(3)},
        Runs(eval, "{}"),
        [np.arange(3)],
        {("a",): np.arange(3), "b": 1},
        {"a": {1, 2}},
        Path("/etc/passwd"),
    ],
)
def test_a_program_that_does_anything_else_is_refused_and_does_not_run(tmp_path, content, protocol):
    path = archived(tmp_path, pickle.dumps(content, protocol))
    with nothing_done_beyond_reading(tmp_path):
        refused(path)


def text(letters: str) -> bytes:
    return b"X" + len(letters).to_bytes(4, "little") + letters.encode()


ENCODE, DTYPE, NDARRAY = b"c_codecs\nencode\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
LETTER = ENCODE + text("b") + text("latin1") + b"\x86R"
NEW_ARRAY = ARRAY + NDARRAY + b"K\0\x85" + LETTER + b"\x87R"
NEW_TYPE = DTYPE + text("i8") + b"\x89\x88\x87R"
INT64 = NEW_TYPE + b"(K\3" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
EIGHT = ENCODE + text("\0" * 8) + text("latin1") + b"\x86R"


def in_a_dictionary(value: bytes) -> bytes:
    """A program that is sound except the value: were that taken, the whole would be."""
    return b"\x80\2}(" + text("a") + value + text("b") + b"Nu."


def test_the_parts_of_these_programs_are_sound(tmp_path):
    array = NEW_ARRAY + b"(K\1K\1\x85" + INT64 + b"\x89" + EIGHT + b"tb"
    for value in (b"N", b"K\1", b"K\1K\2\x86", LETTER, NEW_ARRAY, NEW_TYPE, INT64, EIGHT, array):
        found = read_pickled_arrays(archived(tmp_path, in_a_dictionary(value)))
        assert {name: a.tolist() for name, a in found.items()} == ({"a": [0]} if value == array else {})


VALUES = {
    "os.system": b"cos\nsystem\n" + text("ls") + b"\x85R",
    "os.system, not called": b"cos\nsystem\n",
    "a name that is known, of another module": b"cbuiltins\nencode\n" + text("a") + text("latin1") + b"\x86R",
    "another codec": ENCODE + text("a") + text("rot13") + b"\x86R",
    "a number encoded": ENCODE + b"K\1" + text("latin1") + b"\x86R",
    "text that latin1 lacks": ENCODE + text("€") + text("latin1") + b"\x86R",
    "one thing encoded": ENCODE + text("a") + b"\x85R",
    "a call with a list": ENCODE + b"]R",
    "a call with nothing": ENCODE + b"NR",
    "a type of objects": DTYPE + text("O") + b"\x89\x88\x87R",
    "a type that is not 64 bits wide": DTYPE + text("i4") + b"\x89\x88\x87R",
    "another byte order": INT64.replace(text("<"), text(">")),
    "a type with a number as state": NEW_TYPE + b"K\2b",
    "a type filled twice": INT64 + b"(K\3" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb",
    "an array of nothing": ARRAY + b"N\x85R",
    "an array of another class": ARRAY + ARRAY + b"K\0\x85" + LETTER + b"\x87R",
    "an array of no class": ARRAY + b"NK\0\x85" + LETTER + b"\x87R",
    "an array of another letter": ARRAY + NDARRAY + b"K\0\x85" + LETTER.replace(text("b"), text("O")) + b"\x87R",
    "an array with a number as state": NEW_ARRAY + b"K\2b",
    "an array of an unfinished type": NEW_ARRAY + b"(K\1K\1\x85" + NEW_TYPE + b"\x89" + EIGHT + b"tb",
    "an array of no type": NEW_ARRAY + b"(K\1K\1\x85N\x89" + EIGHT + b"tb",
    "an array in another order": NEW_ARRAY + b"(K\1K\1\x85" + INT64 + b"\x88" + EIGHT + b"tb",
    "an array of more than it has": NEW_ARRAY + b"(K\1K\2\x85" + INT64 + b"\x89" + EIGHT + b"tb",
    "an array of text": NEW_ARRAY + b"(K\1K\0\x85" + INT64 + b"\x89" + text("") + b"tb",
    "an array of a list": NEW_ARRAY + b"(K\1K\1\x85" + INT64 + b"\x89](K\1etb",
    "a call of a number": b"K\1K\1\x85R",
    "a call of a class": NDARRAY + NDARRAY + b"K\0\x85" + LETTER + b"\x87R",
    "a number is filled": b"K\1K\2b",
    "a name is filled": DTYPE + b"K\2b",
    "keys that are no text": b"}(K\1NK\2Nu",
    "keys that cannot be": b"}(]NK\2Nu",
    "a dictionary with half a pair": b"}(" + text("c") + b"u",
    "items of a list into a dictionary": b"}(K\1e",
    "items of a dictionary into a list": b"](" + text("c") + b"Nu",
    "beyond the mark": b"K\1K\2(\x86t\x86",
    "what was not remembered": b"h\7",
    "an empty tuple, which labels have not": b")",
    "something dropped": b"K\1NN0\x86",
    "a fraction": b"G" + bytes(8),
    "a large number": b"\x8a\x09" + b"\1" * 9,
    "bytes": b"C\1a",
    "a persistent id": b"Pstorage\n",
    "an extension": b"\x82\1",
    "an object": b"cnumpy\nndarray\n)\x81",
    "an unknown operation": b"\xff",
    "a length of gigabytes": b"X\xff\xff\xff\x7fabc",
    "a global without an end": b"cnumpy",
}
PROGRAMS = {
    "nothing": b"\x80\2.",
    "empty": b"",
    "no end": b"\x80\2}",
    "two things": b"\x80\2}}.",
    "a list": b"\x80\2].",
    "a call of nothing": b"\x80\2K\1R.",
    "a tuple of what is not there": b"\x80\2K\1\x87.",
    "a mark too few": b"\x80\2K\1t.",
    "a value too few": b"\x80\2b.",
} | {name: in_a_dictionary(value) for name, value in VALUES.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_is_refused(tmp_path, name):
    path = archived(tmp_path, PROGRAMS[name])
    with nothing_done_beyond_reading(tmp_path):
        refused(path)


def sound(tmp_path: Path) -> bytes:
    with zipfile.ZipFile(written(tmp_path / "s.pt", {"a": np.arange(50), "b": np.arange(5)})) as archive:
        return archive.read("s/data.pkl")


def test_a_program_that_was_cut_off_is_refused(tmp_path):
    program = sound(tmp_path)
    for end in range(len(program)):
        refused(archived(tmp_path, program[:end]))


def test_an_array_of_more_than_its_bytes_is_refused(tmp_path):
    program = sound(tmp_path)
    assert program.count(b"K\x32\x85") == 1  # its shape
    for shape in (b"K\x33\x85", b"K\x31\x85", b"J\xff\xff\xff\x7f\x85", b"J\xff\xff\xff\xff\x85", b"K\5K\x0a\x86"):
        refused(archived(tmp_path, program.replace(b"K\x32\x85", shape)))


def test_memory_is_bounded_by_the_file(tmp_path):
    """A text that is written down once may be named a hundred thousand times."""
    remember = b"\x80\x02X\xa0\x86\x01\0" + b"a" * 100_000 + b"q\0X\x06\0\0\0latin1q\1c_codecs\nencode\nq\2("
    refused(archived(tmp_path, remember + b"h\2h\0h\1\x86R" * 30_000 + b"t."))


def test_time_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(pickled, "MOST_OPERATIONS", 1000)
    refused(archived(tmp_path, b"\x80\x02" + b"}0" * 1000 + b"}."))  # pops are not allowed
    refused(archived(tmp_path, b"\x80\x02}q\0" + b"(h\0u" * 1000 + b"."))
    refused(archived(tmp_path, b"\x80\x02}(" + b"X\1\0\0\0aN" * 600 + b"u."))
    assert read_pickled_arrays(archived(tmp_path, b"\x80\x02}(" + b"X\1\0\0\0aN" * 400 + b"u.")) == {}


def test_archives_that_are_none_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    program = sound(tmp_path)
    refused(write_zip(path, {"x/other": program}))
    refused(write_zip(path, {"x/data.pkl": program, "y/data.pkl": program}))
    path.write_bytes(program)
    refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x/data.pkl", program)
    refused(path)
    monkeypatch.setattr(pickled, "MOST_BYTES", len(program) - 1)
    refused(write_zip(path, {"x/data.pkl": program}))


def test_more_bytes_than_the_published_files_have_are_not_read(tmp_path):
    path = tmp_path / "x.pt"
    with path.open("wb") as file:
        file.truncate(pickled.MOST_BYTES + 1)
    refused(path)


def test_the_published_columns_are_all_offered():
    readers = {name: DATASETS[name].reader for name in DATASETS if DATASETS[name].given}
    assert set(readers) == {*COLUMNS, "cifar100n"}
    assert all(hasattr(cifarn, reader.partition(".")[2]) for reader in readers.values())


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.pt")
    refused(tmp_path / "x.pt")
