"""Finding and downloading, against a real server on this machine: only whole, published files are taken."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from coteach.data import fetch
from coteach.data.published import SOURCES, File, Source

CONTENT = b"a published file" * 1000


class Handler(BaseHTTPRequestHandler):
    """/good/ serves the file, /other/ another one, /short/ breaks off half-way, anything else is missing."""

    def do_GET(self):
        self.server.asked.append(self.path)
        body = {"good": CONTENT, "other": CONTENT[::-1], "short": CONTENT}.get(self.path.split("/")[1])
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.path.startswith("/short/") else body)

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def mirror(server):
    server.asked.clear()
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(autouse=True)
def source(monkeypatch):
    file = File("thing.bin", hashlib.sha256(CONTENT).hexdigest(), ("https://127.0.0.1:1/thing.bin",))
    monkeypatch.setitem(SOURCES, "thing", Source((file,), ("first", "second"), unpacked=("thing.txt",)))


def everything_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_missing_file_is_downloaded_once(tmp_path, server, mirror):
    (path,) = fetch.find_or_fetch("thing", tmp_path, (f"{mirror}/good",))
    assert path == tmp_path / "first" / "thing.bin"
    assert path.read_bytes() == CONTENT
    assert fetch.find_or_fetch("thing", tmp_path, (f"{mirror}/good",)) == (path,)
    assert server.asked == ["/good/thing.bin"]
    assert everything_below(tmp_path) == [path]


def test_mirrors_are_tried_in_turn_until_one_has_the_published_file(tmp_path, server, mirror):
    names = ("missing", "short", "other", "good", "never")
    (path,) = fetch.find_or_fetch("thing", tmp_path, tuple(f"{mirror}/{name}" for name in names))
    assert path.read_bytes() == CONTENT
    assert server.asked == [f"/{name}/thing.bin" for name in names[:4]]
    assert everything_below(tmp_path) == [path]


@pytest.mark.parametrize(
    "name, reason", [("missing", "HTTPError"), ("short", ""), ("other", "not the published file")]
)
def test_a_failed_download_leaves_nothing_and_says_what_to_do(tmp_path, mirror, name, reason):
    with pytest.raises(ValueError, match=rf"/{name}/thing.bin \(.*{reason}.*first yourself") as error:
        fetch.find_or_fetch("thing", tmp_path, (f"{mirror}/{name}",))
    assert "\n" not in str(error.value)
    assert everything_below(tmp_path) == []


def test_without_a_network_the_user_is_told_where_to_put_the_file(tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"put the file into {tmp_path / 'first'} yourself")):
        fetch.find_or_fetch("thing", tmp_path)


def test_a_file_that_no_program_may_download_names_the_place(tmp_path):
    with pytest.raises(ValueError, match="Imagenet32_train_npz.zip cannot be downloaded .*: ask for an account"):
        fetch.find_or_fetch("imagenet32", tmp_path)


def test_an_unwritable_data_folder_is_named(tmp_path):
    (tmp_path / "first").write_text("a file where a folder should be")
    with pytest.raises(ValueError, match="first cannot be written to: choose another data folder"):
        fetch.find_or_fetch("thing", tmp_path)


@pytest.mark.parametrize("folder", ["first", "second"])
def test_a_file_that_is_there_is_taken_if_its_hash_is_right(tmp_path, folder):
    path = tmp_path / folder / "thing.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert fetch.locate("thing", tmp_path) == (path,)
    assert fetch.find_or_fetch("thing", tmp_path) == (path,)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match="thing.bin is not the published file .*: delete it"):
        fetch.find_or_fetch("thing", tmp_path)
    assert path.read_bytes() == CONTENT[:-1]


def test_what_is_unpacked_is_preferred(tmp_path):
    for name in ("first/thing.bin", "second/thing.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    assert fetch.find_or_fetch("thing", tmp_path) == (tmp_path / "second/thing.txt",)


def test_another_file_may_serve_instead(tmp_path):
    (tmp_path / "vectors").mkdir()
    for name in ("vectors/spacy.txt", "vectors/glove.6B.50d.txt"):
        (tmp_path / name).touch()
        assert fetch.find_or_fetch("glove", tmp_path) == (tmp_path / name,)
    (tmp_path / "glove.6B.300d.txt").touch()
    assert fetch.find_or_fetch("glove", tmp_path) == (tmp_path / "glove.6B.300d.txt",)


@pytest.mark.parametrize("name", SOURCES)
def test_the_table_has_whole_hashes_and_only_https(name):
    for file in SOURCES[name].files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert all(url.startswith("https://") for url in file.urls)
        assert file.urls or SOURCES[name].by_hand
