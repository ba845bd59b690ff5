"""CIFAR's binary files, from a folder and from the archive, against an image-by-image writer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from coteach.data import cifar, load
from data_files import cifar_bytes, publish, write_folder, write_tar_gz

RANDOM = np.random.default_rng(0)
TEN = {f"data_batch_{i}.bin": 6 for i in range(1, 6)} | {"test_batch.bin": 9}
HUNDRED = {"train.bin": 200, "test.bin": 100}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, rows=TEN))
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, rows=HUNDRED))
    monkeypatch.setattr(cifar, "ROWS_AT_ONCE", 4)


def images(n):
    return RANDOM.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


def ten():
    """Labels, images and files of a small CIFAR-10."""
    parts = {name: (RANDOM.integers(0, 10, n), images(n)) for name, n in TEN.items()}
    files = {name: cifar_bytes(*part) for name, part in parts.items()}
    return parts, files | {"batches.meta.txt": "\n".join(cifar.TEN).encode() + b"\n\n"}


def hundred():
    parts = {name: (np.arange(n) % 100, images(n)) for name, n in HUNDRED.items()}
    files = {
        name: cifar_bytes(np.column_stack([fine // 5, fine]), pixels) for name, (fine, pixels) in parts.items()
    }
    return parts, files


def in_archive(tmp_path, monkeypatch, source, folder, files):
    members = {f"{folder}/{name}": data for name, data in reversed(files.items())}
    path = tmp_path / {"cifar10": "cifar-10-binary.tar.gz", "cifar100": "cifar-100-binary.tar.gz"}[source]
    publish(monkeypatch, source, write_tar_gz(path, members | {f"{folder}/readme.html": b"<html>"}))


@pytest.mark.parametrize("where", ["cifar-10-batches-bin", ".", "cifar10/cifar-10-batches-bin", "archive"])
def test_ten_classes(tmp_path, monkeypatch, where):
    parts, files = ten()
    if where == "archive":
        in_archive(tmp_path, monkeypatch, "cifar10", "cifar-10-batches-bin", files)
    else:
        write_folder(tmp_path / where, files)
    data = load("cifar10", tmp_path)
    *train, (y_test, x_test) = parts.values()
    assert data.class_names == cifar.TEN
    assert (data.x_train.dtype, data.y_train.dtype, data.superclass) == (torch.uint8, torch.int64, None)
    assert np.array_equal(data.x_train, np.concatenate([x for _, x in train]))
    assert np.array_equal(data.y_train, np.concatenate([y for y, _ in train]))
    assert np.array_equal(data.x_test, x_test)
    assert np.array_equal(data.y_test, y_test)


@pytest.mark.parametrize("where", ["cifar-100-binary", "archive"])
def test_a_hundred_classes_and_their_superclasses(tmp_path, monkeypatch, where):
    parts, files = hundred()
    if where == "archive":
        in_archive(tmp_path, monkeypatch, "cifar100", "cifar-100-binary", files)
    else:
        write_folder(tmp_path / where, files)
    data = load("cifar100", tmp_path)
    assert data.superclass.tolist() == [c // 5 for c in range(100)]
    assert data.superclass.dtype == torch.int64
    assert np.array_equal(data.y_train, parts["train.bin"][0])
    assert np.array_equal(data.x_train, parts["train.bin"][1])
    assert np.array_equal(data.x_test, parts["test.bin"][1])


def test_names_of_classes_come_from_the_file_where_there_is_one(tmp_path):
    _, files = hundred()
    write_folder(tmp_path, files)
    assert load("cifar100", tmp_path).class_names[58] == "pickup_truck"
    assert len(set(cifar.HUNDRED)) == 100
    assert list(cifar.HUNDRED) == sorted(cifar.HUNDRED)
    names = [f"class{i}" for i in range(100)]
    (tmp_path / "fine_label_names.txt").write_text("\n".join(names) + "\n")
    assert load("cifar100", tmp_path).class_names == tuple(names)
    (tmp_path / "fine_label_names.txt").write_text("\n".join(names[:99]))
    with pytest.raises(ValueError, match="other than the 100 classes"):
        load("cifar100", tmp_path)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (
            lambda f: f | {"data_batch_3.bin": f["data_batch_3.bin"][:-1]},
            "data_batch_3.bin has 18,437 bytes instead of",
        ),
        (
            lambda f: f | {"data_batch_3.bin": f["data_batch_3.bin"] * 2},
            "data_batch_3.bin has 36,876 bytes instead of",
        ),
        (lambda f: {k: v for k, v in f.items() if k != "test_batch.bin"}, "has no test_batch.bin"),
        (
            lambda f: f | {"data_batch_2.bin": b"\x0a" + f["data_batch_2.bin"][1:]},
            "other than the 10 classes",
        ),
    ],
)
def test_wrong_files_are_named(tmp_path, spoil, message):
    write_folder(tmp_path, spoil(ten()[1]))
    with pytest.raises(ValueError, match=f"{message}.*: delete it"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
def test_a_truncated_archive_is_noticed(tmp_path, monkeypatch, kept):
    in_archive(tmp_path, monkeypatch, "cifar10", "cifar-10-batches-bin", ten()[1])
    path = tmp_path / "cifar-10-binary.tar.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with pytest.raises(ValueError, match="is not the published file"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("coarse, fine", [(20, 7), (0, 100), (3, 99)])
def test_superclasses_that_make_no_sense_are_noticed(tmp_path, coarse, fine):
    _, files = hundred()
    files["test.bin"] = bytes([coarse, fine]) + files["test.bin"][2:]
    write_folder(tmp_path, files)
    with pytest.raises(ValueError, match="classes"):
        load("cifar100", tmp_path)


def test_nothing_is_written_beside_the_archive(tmp_path, monkeypatch):
    in_archive(tmp_path, monkeypatch, "cifar10", "../../cifar-10-batches-bin", ten()[1])
    load("cifar10", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]
