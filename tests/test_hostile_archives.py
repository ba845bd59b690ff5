"""Lists that point elsewhere, names that cannot be shown, members that expand: nothing is followed."""

import io
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from coteach.data import load, news, openset
from coteach.data.news import VECTORS_MEMBER, read_vectors
from data_files import cifar_files, news_files, shrink, tiny_files, write_folder, write_zip
from test_hostile import BATCH, GLOVE, nothing_done_beyond_reading

SECRET = "n01\nn02\n"
CLIMBING = (
    "../../../{}",
    "/{}",
    "//host/share/{}",
    "C:\\{}",
    "..\\..\\{}",
    "./x/../../{}",
    "\0{}",
    "a\n\x1b[2J/{}",
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    shrink(monkeypatch)


@pytest.fixture
def home(tmp_path):
    """The data folder, beside which lies a file that no archive may reach."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def read_without_a_trace(name: str, home: Path) -> object:
    """Load it twice: what is imported is imported by then."""
    before = everything(home.parent)
    with suppress(ValueError):
        load(name, home)
    try:
        with nothing_done_beyond_reading(home):
            return load(name, home)
    finally:
        assert everything(home.parent) == before


@pytest.mark.parametrize(
    "name, content",
    [
        *(("wnids.txt", f"n01\n{form.format('secret')}\n") for form in CLIMBING),
        *(("val/val_annotations.txt", f"{form.format('secret')}\tn01\nb.JPEG\tn02\n") for form in CLIMBING),
        ("val/val_annotations.txt", "..\tn01\nb.JPEG\tn02\n"),
        ("wnids.txt", "n01\n"),
        ("wnids.txt", ""),
        ("wnids.txt", "n01\nn01\nn02\n"),
    ],
)
def test_lists_name_nothing_outside_the_folder(home, name, content):
    write_folder(home, tiny_files() | {name: content.encode()})
    with pytest.raises(ValueError, match=str(home)) as refusal:
        read_without_a_trace("tiny-imagenet", home)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_packed_only_as_can_be_unpacked_within_bounds(home, method):
    with zipfile.ZipFile(home / "glove.6B.zip", "w", method) as archive:
        archive.writestr(VECTORS_MEMBER, GLOVE)
    with pytest.raises(ValueError, match="glove.6B.zip is truncated or damaged"):
        read_vectors(home / "glove.6B.zip", {"moon": 0})
    with zipfile.ZipFile(home / "train_data_batch_1.npz", "w", method) as archive:
        for name, array in BATCH.items():
            archive.writestr(f"{name}.npy", npy(array))
    with pytest.raises(ValueError, match="lacks an intact train_data_batch_1.npz"):
        openset.imagenet32_images(home, 2, 0)


def test_names_of_classes_can_be_shown(home):
    """They end up in terminals and pages."""
    write_folder(home, cifar_files() | {"batches.meta.txt": b" ".join([b"a"] * 9 + [b"\x1b[2J"])})
    with pytest.raises(ValueError, match="data_batch_1.bin .*other than the 10 classes"):
        load("cifar10", home)
    write_folder(home, tiny_files() | {"words.txt": b"n01\tgold\x1b[2Jfish\nn02\t\xe2\x80\xaered\nn02\twine\n"})
    assert load("tiny-imagenet", home).class_names == ("n01", "wine")


def test_all_posts_together_are_bounded(home, monkeypatch):
    write_folder(home, news_files() | {"vectors/v.txt": GLOVE})
    n_bytes = sum(map(len, news_files().values()))
    monkeypatch.setattr(news, "MOST_OF_POSTS", n_bytes)
    assert len(load("news", home).x_train) == 2
    monkeypatch.setattr(news, "MOST_OF_POSTS", n_bytes - 1)
    with pytest.raises(ValueError, match="cannot be read, or has more bytes than all posts together"):
        load("news", home)


@pytest.mark.parametrize(
    "labels",
    [
        np.zeros((2, 2)),
        np.float64(1),
        np.array(["a", "b"]),
        np.array([1j, 2]),
        b"\x93NUMPY\1\0\x76\0" + b"{'descr': '<i8', 'shape': ((".ljust(118),
        b"\x93NUMPY\1\0\x76\0" + b"-" * 118,
        b"\x93NUMPY\3\0\x76\0\0\0",
    ],
)
def test_labels_of_imagenet32_are_a_row_of_numbers(home, labels):
    labels = labels if isinstance(labels, bytes) else npy(labels)
    images = npy(np.zeros((4, 3072), np.uint8))
    write_zip(home / "train_data_batch_1.npz", {"labels.npy": labels, "data.npy": images})
    with pytest.raises(
        ValueError, match="train_data_batch_1.npz (lacks an intact|or a batch beside it holds labels)"
    ):
        openset.imagenet32_images(home, 2, 0)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_names_of_images_can_be_shown(home):
    files = tiny_files()
    files["train/n02/images/\x1b[2J\n.JPEG"] = files.pop("train/n02/images/n02_0.JPEG")[:100]
    write_folder(home, files)
    with pytest.raises(ValueError, match=r"\?\[2J\?.JPEG is not a whole JPEG image") as refusal:
        load("tiny-imagenet", home)
    assert str(refusal.value).isprintable()
