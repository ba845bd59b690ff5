"""Tiny-ImageNet from a folder and from the zip, against Pillow's own decoding."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from coteach.data import load, tiny_imagenet
from data_files import publish, write_folder, write_zip

WNIDS = ["n03", "n01", "n02"]
RANDOM = np.random.default_rng(0)


def jpeg(mode="RGB", size=(64, 64)):
    pixels = RANDOM.integers(0, 256, (size[1], size[0], *([3] if mode == "RGB" else [])), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels, mode=None).save(buffer, "JPEG")
    return buffer.getvalue()


def decoded(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


@pytest.fixture
def files(monkeypatch):
    """Three classes with three training and two validation images, one of them grey."""
    monkeypatch.setattr(tiny_imagenet, "PER_CLASS", {"train": 3, "val": 2})
    files = {f"train/{w}/images/{w}_{i}.JPEG": jpeg() for w in WNIDS for i in (0, 10, 9)}
    files["train/n01/images/n01_10.JPEG"] = jpeg("L")
    files |= {f"val/images/val_{i}.JPEG": jpeg() for i in range(6)}
    lines = [f"val_{i}.JPEG\t{WNIDS[i % 3]}\t0\t0\t63\t63" for i in range(6)]
    files["val/val_annotations.txt"] = "\n".join(lines).encode() + b"\n"
    files["wnids.txt"] = "\n".join(WNIDS).encode() + b"\n"
    files["test/images/test_0.JPEG"] = b"never read"
    return files


def put(tmp_path, monkeypatch, files, where):
    if where == "zip":
        published = {"words.txt": b""} | files
        members = {f"tiny-imagenet-200/{name}": data for name, data in published.items()}
        publish(monkeypatch, "tiny-imagenet", write_zip(tmp_path / "tiny-imagenet-200.zip", members))
    else:
        write_folder(tmp_path / where, files)


@pytest.mark.parametrize("where", ["tiny-imagenet-200", ".", "zip"])
def test_images_and_labels(tmp_path, monkeypatch, files, where):
    put(tmp_path, monkeypatch, files, where)
    data = load("tiny-imagenet", tmp_path)
    names = [f"train/{w}/images/{w}_{i}.JPEG" for w in sorted(WNIDS) for i in (0, 10, 9)]
    assert data.class_names == ("n01", "n02", "n03")
    assert (data.x_train.dtype, tuple(data.x_train.shape)) == (torch.uint8, (9, 3, 64, 64))
    assert np.array_equal(data.x_train, np.stack([decoded(files[name]) for name in names]))
    assert data.y_train.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert np.array_equal(data.x_test, np.stack([decoded(files[f"val/images/val_{i}.JPEG"]) for i in range(6)]))
    assert data.y_test.tolist() == [2, 0, 1, 2, 0, 1]


def test_classes_as_the_list_has_them(tmp_path, monkeypatch, files):
    put(tmp_path, monkeypatch, files, "tiny-imagenet-200")
    data, listed = load("tiny-imagenet", tmp_path), load("tiny-imagenet", tmp_path, as_listed=True)
    assert listed.class_names == tuple(WNIDS) != data.class_names
    new = torch.tensor([listed.class_names.index(name) for name in data.class_names])
    for found, other in ((listed.y_train, data.y_train), (listed.y_test, data.y_test)):
        assert sorted(found.tolist()) == sorted(new[other].tolist())
    assert torch.equal(listed.y_test, new[data.y_test])  # the same images, in the same order, under new numbers
    assert torch.equal(listed.x_test, data.x_test)


@pytest.mark.parametrize("where", ["tiny-imagenet-200", "zip"])
def test_some_classes_and_their_english_names(tmp_path, monkeypatch, files, where):
    files["words.txt"] = b"n01\tgoldfish, Carassius auratus\nn03\tred wine\n"
    put(tmp_path, monkeypatch, files, where)
    assert load("tiny-imagenet", tmp_path).class_names == ("goldfish", "n02", "red wine")
    data = load("tiny-imagenet", tmp_path, classes=2)
    assert data.class_names == ("goldfish", "red wine")  # the first two of wnids.txt
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 0, 0, 1, 1, 1], [1, 0, 1, 0])
    for wrong in (1, 4):
        with pytest.raises(ValueError, match=f"lists 3 classes: choose from 2 to all of them, not {wrong}"):
            load("tiny-imagenet", tmp_path, classes=wrong)


@pytest.mark.parametrize(
    "name, data, message",
    [
        ("train/n02/images/n02_0.JPEG", jpeg()[:-200], "n02_0.JPEG is not a whole JPEG"),
        ("train/n02/images/n02_0.JPEG", b"<html>", "n02_0.JPEG is not a whole JPEG"),
        ("val/images/val_3.JPEG", jpeg(size=(64, 65)), "val_3.JPEG is not an image of 64×64"),
        ("val/images/val_3.JPEG", None, "val_3.JPEG"),
        ("train/n02/images/n02_0.JPEG", None, "a class with 2 train images instead of 3"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01\n", "a class with 1 val images instead of 2"),
        ("val/val_annotations.txt", None, "val_annotations.txt"),
    ],
)
def test_wrong_files_are_named(tmp_path, files, name, data, message):
    files |= {name: data}
    write_folder(tmp_path, {name: data for name, data in files.items() if data is not None})
    with pytest.raises(ValueError, match=f"{message}.*: delete it"):
        load("tiny-imagenet", tmp_path)


def test_a_truncated_zip_is_noticed(tmp_path, monkeypatch, files):
    put(tmp_path, monkeypatch, files, "zip")
    path = tmp_path / "tiny-imagenet-200.zip"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="tiny-imagenet-200.zip is not the published file"):
        load("tiny-imagenet", tmp_path)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch, files):
    put(tmp_path, monkeypatch, files, ".")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match="need Pillow: pip install pillow"):
        load("tiny-imagenet", tmp_path)
