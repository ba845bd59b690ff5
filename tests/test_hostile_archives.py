"""Archives and lists that point elsewhere: links, devices, names that climb. Nothing is followed or unpacked."""

import io
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from coteach.data import cifar, load, news, outside
from data_files import cifar_files, news_files, shrink, tiny_files, write_folder, write_tar_gz, write_zip
from test_hostile import GLOVE, nothing_done_beyond_reading

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
LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)
DEVICES = (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)


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


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


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


@pytest.mark.parametrize("form", CLIMBING)
def test_members_of_any_name_are_read_but_never_unpacked(home, form):
    members = {form.format(name): data for name, data in cifar_files().items()}
    write_tar_gz(home / "cifar-10-binary.tar.gz", members)
    try:
        data = read_without_a_trace("cifar10", home)
    except ValueError as error:  # the name of the file is not the last part here
        assert "cifar-10-binary.tar.gz has no data_batch_1.bin" in str(error)
    else:
        assert data.class_names == cifar.TEN


@pytest.mark.parametrize("kind", [*LINKS, *DEVICES])
@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "data_batch_1.bin", "batches.meta.txt", "nowhere"])
def test_links_and_devices_stand_for_nothing(home, kind, target):
    with tarfile.open(home / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, data in cifar_files().items():
            info = member(name, tarfile.REGTYPE if name != "data_batch_2.bin" else kind, target)
            info.size = len(data) if info.type == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(ValueError, match="cifar-10-binary.tar.gz has no data_batch_2.bin"):
        read_without_a_trace("cifar10", home)


@pytest.mark.parametrize("kind", [*LINKS, *DEVICES])
def test_posts_are_files(home, kind):
    posts = news_files()
    write_folder(home, {"vectors/v.txt": GLOVE})
    with tarfile.open(home / "20news-bydate.tar.gz", "w:gz") as archive:
        archive.addfile(member("", tarfile.REGTYPE))
        for name, data in posts.items():
            info = member(name, tarfile.REGTYPE)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        archive.addfile(member("20news-bydate-train/sci.space/9", kind, "../../../secret"))
    assert len(read_without_a_trace("news", home).x_train) == 2


@pytest.mark.parametrize("packed", [False, True])
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
def test_lists_name_nothing_outside_the_folder(home, packed, name, content):
    files = tiny_files() | {name: content.encode()}
    if packed:
        members = {f"tiny-imagenet-200/{name}": data for name, data in files.items()}
        write_zip(home / "tiny-imagenet-200.zip", members)
    else:
        write_folder(home, files)
    with pytest.raises(ValueError, match=str(home)) as refusal:
        read_without_a_trace("tiny-imagenet", home)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_packed_only_as_can_be_unpacked_within_bounds(home, method):
    with zipfile.ZipFile(home / "tiny-imagenet-200.zip", "w", method) as archive:
        for name, data in tiny_files().items():
            archive.writestr(f"tiny-imagenet-200/{name}", data)
    with pytest.raises(ValueError, match="tiny-imagenet-200.zip has no intact wnids.txt"):
        load("tiny-imagenet", home)


def test_of_two_members_of_one_name_one_is_read(home):
    path = home / "tiny-imagenet-200.zip"
    members = {f"tiny-imagenet-200/{name}": data for name, data in tiny_files().items()}
    with (
        zipfile.ZipFile(write_zip(path, members), "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr("tiny-imagenet-200/wnids.txt", b"n01\nn02\n\n")
    assert read_without_a_trace("tiny-imagenet", home).n_classes == 2


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
    monkeypatch.setattr(news, "MOST_BYTES", n_bytes)
    assert len(load("news", home).x_train) == 2
    monkeypatch.setattr(news, "MOST_BYTES", n_bytes - 1)
    with pytest.raises(ValueError, match="20news-bydate-train comes with more than 19 bytes of posts"):
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
    if not isinstance(labels, bytes):
        buffer = io.BytesIO()
        np.save(buffer, labels)
        labels = buffer.getvalue()
    images = io.BytesIO()
    np.save(images, np.zeros((4, 3072), np.uint8))
    write_zip(home / "train_data_batch_1.npz", {"labels.npy": labels, "data.npy": images.getvalue()})
    with pytest.raises(
        ValueError, match="train_data_batch_1.npz (lacks an intact|or a batch beside it holds labels)"
    ):
        outside.imagenet32(home, 2, 0)


def test_names_in_an_archive_can_be_shown(home):
    files = tiny_files()
    files["train/n02/images/\x1b[2J\n.JPEG"] = files.pop("train/n02/images/n02_0.JPEG")[:100]
    write_zip(home / "tiny-imagenet-200.zip", {f"tiny-imagenet-200/{name}": data for name, data in files.items()})
    with pytest.raises(ValueError, match=r"\?\[2J\?.JPEG is not a whole JPEG image") as refusal:
        load("tiny-imagenet", home)
    assert str(refusal.value).isprintable()
