"""idx files: what is written is read back, and whatever is broken is named, never half-read."""

import gzip
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coteach.data import load, mnist
from coteach.data.mnist import read_idx
from coteach.data.published import SOURCES
from data_files import idx_bytes, publish, write_idx

IMAGES = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=3, max_dims=3, max_side=6))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Seven training and three test digits, as the published four files."""
    monkeypatch.setattr(mnist, "N_TRAIN", 7)
    monkeypatch.setattr(mnist, "N_TEST", 3)
    random = np.random.default_rng(0)
    parts = [
        random.integers(0, 256, (7, 28, 28)),
        np.arange(7) + 3,
        random.integers(0, 256, (3, 28, 28)),
        np.arange(3),
    ]
    return tmp_path, parts


def write(folder, parts, suffix=".gz"):
    names = SOURCES["mnist"].unpacked
    return [write_idx(folder / f"{name}{suffix}", part) for name, part in zip(names, parts, strict=True)]


@given(IMAGES, st.sampled_from(["", ".gz"]))
def test_what_is_written_is_read_back(values, suffix):
    with tempfile.TemporaryDirectory() as folder:
        read = read_idx(write_idx(Path(folder) / f"file{suffix}", values), values.shape)
    assert np.array_equal(read, values)


@given(IMAGES, st.sampled_from(["", ".gz"]), st.data())
def test_every_truncation_and_every_excess_is_noticed(values, suffix, data):
    with tempfile.TemporaryDirectory() as folder:
        path = write_idx(Path(folder) / f"file{suffix}", values)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole) - 1))
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="file.*: delete it"):
            read_idx(path, values.shape)
        longer = idx_bytes(values) + b"x"
        path.write_bytes(gzip.compress(longer) if suffix else longer)
        with pytest.raises(ValueError, match="holds more values"):
            read_idx(path, values.shape)


def test_a_wrong_magic_number_is_noticed(tmp_path):
    labels = write_idx(tmp_path / "labels.gz", np.arange(20))
    with pytest.raises(ValueError, match="labels.gz is not an idx file of bytes in 3 dimensions"):
        read_idx(labels, (20, 1, 1))
    floats = tmp_path / "floats"
    floats.write_bytes(bytes([0, 0, 13, 1, 0, 0, 0, 1]) + bytes(4))
    with pytest.raises(ValueError, match="not an idx file"):
        read_idx(floats, (1,))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_header_that_promises_too_much_reserves_nothing(tmp_path, suffix):
    data = bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"few"
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(ValueError, match=r"values of shape \(4294967295, .*\) instead of \(2, 28, 28\)"):
        read_idx(path, (2, 28, 28))


def test_text_is_no_gzip_file(tmp_path):
    path = tmp_path / "page.gz"
    path.write_text("<html>not found</html>")
    with pytest.raises(ValueError, match="page.gz is truncated or damaged"):
        read_idx(path, (1,))


@pytest.mark.parametrize("folder", ["mnist", ".", "MNIST/raw"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_four_files_make_a_data_set(small, monkeypatch, folder, suffix):
    tmp_path, (x_train, y_train, x_test, y_test) = small
    paths = write(tmp_path / folder, small[1], suffix)
    if suffix:
        publish(monkeypatch, "mnist", *paths)
    data = load("mnist", tmp_path)
    assert (data.name, data.n_classes) == ("mnist", 10)
    assert (data.x_train.dtype, data.y_train.dtype) == (torch.uint8, torch.int64)
    assert np.array_equal(data.x_train, x_train[:, None])
    assert np.array_equal(data.x_test, x_test[:, None])
    assert (data.y_train.tolist(), data.y_test.tolist()) == (y_train.tolist(), y_test.tolist())


def test_clothes_are_not_taken_for_digits(small, monkeypatch):
    tmp_path, parts = small
    publish(monkeypatch, "fashion-mnist", *write(tmp_path / "FashionMNIST/raw", parts))
    data = load("fashion-mnist", tmp_path)
    assert (data.name, data.class_names[9]) == ("fashion-mnist", "ankle boot")
    write(tmp_path / "mnist", parts)
    with pytest.raises(ValueError, match="train-images-idx3-ubyte.gz is not the published file"):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    "position, wrong, message",
    [
        (0, np.zeros((6, 28, 28)), r"train-images.* shape \(6, 28, 28\) instead of \(7, 28, 28\)"),
        (2, np.zeros((3, 28, 27)), r"t10k-images.* shape \(3, 28, 27\)"),
        (1, np.zeros(8), r"train-labels.* shape \(8,\) instead of \(7,\)"),
        (3, np.array([0, 10, 1]), "t10k-labels.* the label 10"),
    ],
)
def test_wrong_counts_and_labels_are_named(small, position, wrong, message):
    tmp_path, parts = small
    parts[position] = wrong
    write(tmp_path / "mnist", parts, suffix="")
    with pytest.raises(ValueError, match=message):
        load("mnist", tmp_path)
