"""Downloads from a real https server on this machine: nothing else, nothing unproven, nothing by halves.

The server's certificate is signed by itself, and made known to `requests` as any other authority is.
"""

import hashlib
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coteach.data import published as publishing
from coteach.data.published import SOURCES, File, Source, find_or_fetch, locate

CONTENT = bytes(range(256)) * 1000
HALF = len(CONTENT) // 2
# For 127.0.0.1 alone, until 2126, and trusted by nobody but these tests.
CERTIFICATE = """
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgLkoim+RyHaWJohaH
V2OpZNPuhIaqo7TmTbNIWPBf1/ihRANCAARp5KuZSLwbKDCXvu4/LjufAyt2HWEn
2JZI8hFtb0SNRVHw2rM3ByA31qVOMR6e1VkSdymaM7F2dCgXgKsUkKN3
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBljCCATygAwIBAgIUPsatKlca5t1vpZw66bneXp6iJ2YwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMTUxODI2MDRaGA8yMTI2MTAyMjE4MjYw
NFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABGnk
q5lIvBsoMJe+7j8uO58DK3YdYSfYlkjyEW1vRI1FUfDaszcHIDfWpU4xHp7VWRJ3
KZozsXZ0KBeAqxSQo3ejdDByMB0GA1UdDgQWBBRJjySFgipo4S6kzWfNOdCgKX8t
8DAfBgNVHSMEGDAWgBRJjySFgipo4S6kzWfNOdCgKX8t8DAPBgNVHREECDAGhwR/
AAABMA4GA1UdDwEB/wQEAwIChDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMC
A0gAMEUCIDeRDhAXN9Z6n7Suq9jODEMtKh/SV04UCoImRcBkaL2OAiEA8MtsM+MR
2fHlSrW5z9GX/7Z1hbrNJ4usNT35Z3kyyu0=
-----END CERTIFICATE-----
"""


class Handler(BaseHTTPRequestHandler):
    """The first part of the address says how the file is served."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.server.scheme, self.path))
        getattr(self, self.path.split("/")[1])()

    def start(self, length: int | str | None, status: int = 200, to: str | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": length, "Connection": "close", "Location": to}.items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()

    def good(self):
        self.start(len(CONTENT))
        self.wfile.write(CONTENT)

    def slow(self):
        self.start(len(CONTENT))
        self.wfile.write(CONTENT[:HALF])
        self.server.half_way.set()
        time.sleep(0.3)
        self.wfile.write(CONTENT[HALF:])

    def stuck(self):
        self.start(len(CONTENT))
        self.wfile.write(CONTENT[:HALF])
        self.server.half_way.set()
        self.server.over.wait(60)

    def broken_off(self):
        self.start(len(CONTENT))
        self.wfile.write(CONTENT[:HALF])

    def longer_than_said(self):
        self.start(HALF)
        self.wfile.write(CONTENT)

    def of_unknown_length(self):
        self.start(None)
        self.wfile.write(CONTENT)

    def in_small_pieces(self):
        """Hundreds of them, each far shorter than what is asked for at a time."""
        self.protocol_version = "HTTP/1.1"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(0, len(CONTENT), 500):
            piece = CONTENT[i : i + 500]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def broken_off_unnoticed(self):
        self.start(None)
        self.wfile.write(CONTENT[:HALF])

    def of_nonsense_length(self):
        self.start("many")
        self.wfile.write(CONTENT)

    def another(self):
        self.start(len(CONTENT))
        self.wfile.write(CONTENT[::-1])

    def endless(self):
        self.start(None)
        while not self.server.over.is_set():
            self.wfile.write(bytes(2**16))

    def missing(self):
        self.start(0, 404)

    def moved(self):
        self.start(0, 302, "/good/thing.bin")

    def moved_to_http(self):
        self.start(0, 302, f"http://127.0.0.1:{self.server.other.server_port}/good/thing.bin")

    def moved_to_file(self):
        self.start(0, 302, f"file://{self.server.file}")

    def moved_in_a_circle(self):
        self.start(0, 302, self.path)

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, scheme: str):
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme, self.asked = scheme, []
        self.half_way, self.over = threading.Event(), threading.Event()
        self.root = f"{scheme}://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def handle_error(self, request, client_address):
        pass  # whoever is refused hangs up


@pytest.fixture
def server(tmp_path, monkeypatch):
    """An https server whose certificate is trusted, and a plain one as `server.other`."""
    certificate = tmp_path / "server.pem"
    certificate.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server, server.other = Server("https"), Server("http")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.file = certificate
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    for each in (server, server.other):
        each.thread.start()
    yield server
    for each in (server, server.other):
        each.over.set()
        each.shutdown()
        each.thread.join()
        each.server_close()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def published(server, monkeypatch):
    """Let the file be published at these places of the server."""

    def publish(*places: str, scheme: str = "https") -> None:
        root = server.root if scheme == "https" else server.other.root
        urls = tuple(f"{root}/{place}/thing.bin" for place in places)
        file = File("thing.bin", hashlib.sha256(CONTENT).hexdigest(), urls)
        monkeypatch.setitem(SOURCES, "thing", Source((file,), ("things",)))

    return publish


def left_behind(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_the_published_file_is_downloaded_and_not_asked_for_again(server, published, home):
    published("good")
    for _ in range(2):
        (path,) = find_or_fetch("thing", home)
        assert path.read_bytes() == CONTENT
    assert server.asked == [("https", "/good/thing.bin")]
    assert left_behind(home) == ["thing.bin"]


@pytest.mark.parametrize("place", ["moved", "of_unknown_length", "slow"])
def test_redirects_within_https_and_slow_servers_are_borne(published, home, place):
    published(place)
    assert find_or_fetch("thing", home)[0].read_bytes() == CONTENT


@pytest.mark.parametrize(
    "place, reason",
    [
        ("moved_to_http", "InvalidSchema"),
        ("moved_to_file", "InvalidSchema"),
        ("moved_in_a_circle", "TooManyRedirects"),
        ("broken_off", "ChunkedEncodingError"),
        ("longer_than_said", "not the published file"),
        ("broken_off_unnoticed", "not the published file"),
        ("of_nonsense_length", "not the published file"),
        ("another", "not the published file"),
        ("endless", "not the published file"),
        ("missing", "HTTPError"),
    ],
)
def test_anything_else_is_refused_and_leaves_nothing(server, published, home, monkeypatch, place, reason):
    monkeypatch.setattr(publishing, "MOST_TO_DOWNLOAD", 2**20)
    published(place)
    pattern = rf"^thing.bin could not be .*/{place}/thing.bin \({reason}\): .*things yourself\.$"
    with pytest.raises(ValueError, match=pattern):
        find_or_fetch("thing", home)
    assert left_behind(home) == []
    assert server.other.asked == []


def test_what_counts_is_how_much_came_not_how_often(published, home, monkeypatch):
    monkeypatch.setattr(publishing, "MOST_TO_DOWNLOAD", 2 * len(CONTENT))
    published("in_small_pieces")
    assert find_or_fetch("thing", home)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("place", ["broken_off", "moved_to_http", "another", "endless"])
def test_after_a_failure_the_next_address_is_asked(published, home, monkeypatch, place):
    monkeypatch.setattr(publishing, "MOST_TO_DOWNLOAD", 2**20)
    published(place, "good", "never")
    assert find_or_fetch("thing", home)[0].read_bytes() == CONTENT
    assert left_behind(home) == ["thing.bin"]


def test_the_download_is_shown(published, home, capsys):
    published("good")
    find_or_fetch("thing", home)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "thing.bin" in shown.err
    assert "256.0/256.0 kB" in shown.err


def test_a_server_that_cannot_prove_who_it_is_is_refused(server, published, home, monkeypatch):
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    published("good")
    with pytest.raises(ValueError, match=r"\(SSLError\)"):
        find_or_fetch("thing", home)
    assert server.asked == []


DOWNLOAD = """
import sys
from coteach.data.published import SOURCES, File, Source, find_or_fetch
home, sha256, url = sys.argv[1:]
SOURCES["thing"] = Source((File("thing.bin", sha256, (url,)),), ("things",))
print(find_or_fetch("thing", home)[0].stat().st_size)
"""


def in_a_process(server: Server, home: Path, place: str) -> subprocess.Popen:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    command = [sys.executable, "-c", DOWNLOAD, str(home), sha256, f"{server.root}/{place}/thing.bin"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_two_processes_may_fetch_the_same_file_at_once(server, home):
    both = [in_a_process(server, home, "slow") for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == [b"%d\n" % len(CONTENT)] * 2
    assert (home / "things" / "thing.bin").read_bytes() == CONTENT
    assert left_behind(home) == ["thing.bin"]
    assert 1 <= len(server.asked) <= 2


def test_a_killed_download_is_begun_again(server, published, home):
    process = in_a_process(server, home, "stuck")
    assert server.half_way.wait(60)
    process.kill()
    process.communicate(timeout=60)
    assert "thing.bin" not in left_behind(home)
    published("good")
    assert locate("thing", home) == (None,)
    assert find_or_fetch("thing", home)[0].read_bytes() == CONTENT


def test_part_of_a_file_under_its_name_is_not_taken_for_it(published, home):
    published("good")
    (home / "things").mkdir(parents=True)
    (home / "things" / "thing.bin").write_bytes(CONTENT[:HALF])
    with pytest.raises(ValueError, match="thing.bin is not the published file .*: delete it"):
        find_or_fetch("thing", home)
