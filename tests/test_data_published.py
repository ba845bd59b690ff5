"""Finding the published files in the data folder: only what has the published hash is taken."""

import hashlib
import os
import re

import pytest

from coteach.data.published import SOURCES, File, Source, find_or_fetch, locate

CONTENT = b"a published file" * 1000


@pytest.fixture(autouse=True)
def source(monkeypatch):
    file = File("thing.bin", hashlib.sha256(CONTENT).hexdigest(), ("https://127.0.0.1:1/thing.bin",))
    monkeypatch.setitem(SOURCES, "thing", Source((file,), ("first", "second"), unpacked=("thing.txt",)))


def test_without_a_network_the_user_is_told_where_to_put_the_file(tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"put the file into {tmp_path / 'first'} yourself")):
        find_or_fetch("thing", tmp_path)


def test_a_file_that_no_program_may_download_names_the_place(tmp_path):
    with pytest.raises(ValueError, match="Imagenet32_train_npz.zip cannot be downloaded .*: ask for an account"):
        find_or_fetch("imagenet32", tmp_path)


def test_an_unwritable_data_folder_is_named(tmp_path):
    (tmp_path / "first").write_text("a file where a folder should be")
    with pytest.raises(ValueError, match="first cannot be written to: choose another data folder"):
        find_or_fetch("thing", tmp_path)


@pytest.mark.parametrize("folder", ["first", "second"])
def test_a_file_that_is_there_is_taken_if_its_hash_is_right(tmp_path, folder):
    path = tmp_path / folder / "thing.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert locate("thing", tmp_path) == (path,)
    assert find_or_fetch("thing", tmp_path) == (path,)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match="thing.bin is not the published file .*: delete it"):
        find_or_fetch("thing", tmp_path)
    assert path.read_bytes() == CONTENT[:-1]


@pytest.mark.parametrize("kind", ["another file", "empty file", "folder", "pipe", "endless device"])
@pytest.mark.parametrize("name", SOURCES)
def test_anything_else_under_a_published_name_is_refused(tmp_path, name, kind):
    path = tmp_path / SOURCES[name].folders[0] / SOURCES[name].files[0].name
    path.parent.mkdir(exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"" if kind == "empty file" else CONTENT)
    with pytest.raises(ValueError, match=rf"{path.name} is not (the published|a regular) file.*: delete it"):
        find_or_fetch(name, tmp_path)


def test_what_is_unpacked_is_preferred(tmp_path):
    for name in ("first/thing.bin", "second/thing.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert find_or_fetch("thing", tmp_path) == (tmp_path / "second/thing.txt",)


def test_another_file_may_serve_instead(tmp_path):
    (tmp_path / "vectors").mkdir()
    for name in ("vectors/spacy.txt", "vectors/glove.6B.50d.txt"):
        (tmp_path / name).touch()
        assert find_or_fetch("glove", tmp_path) == (tmp_path / name,)
    (tmp_path / "glove.6B.300d.txt").touch()
    assert find_or_fetch("glove", tmp_path) == (tmp_path / "glove.6B.300d.txt",)


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_has_whole_hashes_and_only_https(name):
    for file in SOURCES[name].files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert all(url.startswith("https://") for url in file.urls)
        assert file.urls or SOURCES[name].by_hand
