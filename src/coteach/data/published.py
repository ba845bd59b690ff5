"""The published files: their hashes, their addresses, where people usually keep them; found or downloaded.

A file counts only if its sha256 is the published one, and is then trusted. What lies there unpacked, and word
vectors of any other kind, have no hash: their readers check them. Downloads are over https alone, whatever a
server redirects to, and an interrupted one is begun again.

The sha256 of each file is the one stated by TensorFlow Datasets (MNIST, Fashion-MNIST, CIFAR, SVHN,
ImageNet-32), scikit-learn (20 Newsgroups), torchtext (GloVe) or several users (CIFAR-N; Tiny-ImageNet, whose
md5 90528d7ca1a48142e341f4ef8d21d0de is the better known).
"""

import hashlib
import io
import os
import struct
import tarfile
import tokenize
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requests import Response

MOST_TO_DOWNLOAD = 2**30  # bytes: the largest file, GloVe's vectors, has 862 million
# What parsers stumble over, NumPy's of headers among them; a TypeError would be a mistake of ours.
FAILURES = (
    *(ArithmeticError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, ValueError),
    *(struct.error, tarfile.TarError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class File:
    """One published file; `urls` are tried in turn."""

    name: str
    sha256: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Files that belong together.

    `folders`, below the data folder, are searched in turn; a download goes into the first. `unpacked[i]`
    shows that `files[i]` lies there unpacked, `instead` are patterns of what may serve in its place, and
    `by_hand` says how to get what cannot be downloaded by a program.
    """

    files: tuple[File, ...]
    folders: tuple[str, ...]
    unpacked: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    by_hand: str = ""


def _idx(hashes: tuple[str, str, str, str], mirrors: tuple[str, ...], folders: tuple[str, ...]) -> Source:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    files = tuple(
        File(f"{name}.gz", sha256, tuple(f"{mirror}/{name}.gz" for mirror in mirrors))
        for name, sha256 in zip(names, hashes, strict=True)
    )
    return Source(files, folders, unpacked=names)


def _single(name: str, sha256: str, *urls: str) -> tuple[File]:
    return (File(name, sha256, urls),)


def _cifar_n(name: str, sha256: str) -> Source:
    urls = (
        f"https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/{name}",
        f"https://github.com/UCSC-REAL/cifar-10-100n/raw/main/data/{name}",
    )
    return Source(_single(name, sha256, *urls), ("cifar-n", ".", "cifar-10-100n/data"))


SOURCES = {
    "mnist": _idx(
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        ("mnist", ".", "MNIST", "MNIST/raw", "mnist/raw"),
    ),
    # Not in the data folder itself: its files are called as MNIST's are.
    "fashion-mnist": _idx(
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        ),
        ("fashion-mnist", "fashion_mnist", "FashionMNIST", "FashionMNIST/raw", "fashion"),
    ),
    "cifar10": Source(
        _single(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
        ),
        (".", "cifar-10-batches-bin", "cifar10", "cifar10/cifar-10-batches-bin"),
        unpacked=("data_batch_1.bin",),
    ),
    "cifar100": Source(
        _single(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-100-binary.tar.gz",
        ),
        (".", "cifar-100-binary", "cifar100", "cifar100/cifar-100-binary"),
        unpacked=("train.bin",),
    ),
    "cifar10n": _cifar_n("CIFAR-10_human.pt", "873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310"),
    "cifar100n": _cifar_n(
        "CIFAR-100_human.pt", "bd2d80409754d420292d622e15e25248ba21e37d27429efac49c8da723f44394"
    ),
    "news": Source(
        _single(
            "20news-bydate.tar.gz",
            "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            "https://ndownloader.figshare.com/files/5975967",
            "https://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
        ),
        (".", "20news-bydate", "news", "20news"),
        unpacked=("20news-bydate-train",),
    ),
    "glove": Source(
        _single(
            "glove.6B.zip",
            "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            "https://nlp.stanford.edu/data/glove.6B.zip",
            "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
        ),
        (".", "vectors", "glove"),
        unpacked=("glove.6B.300d.txt",),
        instead=("glove*.txt", "*/glove*.txt", "vectors/*.txt"),
    ),
    "tiny-imagenet": Source(
        _single(
            "tiny-imagenet-200.zip",
            "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
        ),
        (".", "tiny-imagenet-200", "tiny-imagenet", "tiny-imagenet/tiny-imagenet-200"),
        unpacked=("wnids.txt",),
    ),
    "svhn": Source(
        _single(
            "train_32x32.mat",
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "https://ufldl.stanford.edu/housenumbers/train_32x32.mat",
        ),
        ("svhn", ".", "SVHN"),
    ),
    "imagenet32": Source(
        _single("Imagenet32_train_npz.zip", "94226337ecc1b0309d9fcd0167127aaadc931587035fbcb53925235edbaec4fc"),
        (".", "imagenet32", "Imagenet32_train_npz", "Imagenet32_train", "imagenet32/Imagenet32_train_npz"),
        unpacked=("train_data_batch_1.npz",),
        by_hand="ask for an account at https://image-net.org/download-images",
    ),
}


# ---- found ----------------------------------------------------------------------------------------------------


def data_home(data_dir: str | os.PathLike | None = None) -> Path:
    """The folder of the data sets: the argument, else COTEACH_DATA, else the user's cache.

    Parameters
    ----------
    data_dir : path, optional

    Returns
    -------
    folder : Path

    Examples
    --------
    >>> data_home("my-data").name
    'my-data'
    """
    chosen = data_dir or os.environ.get("COTEACH_DATA")
    if not chosen:
        import pooch

        return Path(pooch.os_cache("coteach"))
    home = Path(chosen).expanduser()
    if home.exists() and not home.is_dir():
        raise ValueError(f"the data folder {home} is a file: name the folder that holds the data sets.")
    return home


def locate(source: str, data_dir: str | os.PathLike | None = None) -> tuple[Path | None, ...]:
    """Where each file of a source is, unpacked or as published; None for one that is not there."""
    home = data_home(data_dir)
    return tuple(_locate_one(SOURCES[source], i, home) for i in range(len(SOURCES[source].files)))


def find_or_fetch(source: str, data_dir: str | os.PathLike | None = None) -> tuple[Path, ...]:
    """Paths of a source's files, in the order of `SOURCES`, downloaded first where they are missing.

    Parameters
    ----------
    source : str
        A key of `SOURCES`.
    data_dir : path, optional
        See `data_home`.
    """
    home = data_home(data_dir)
    wanted = SOURCES[source]
    paths = []
    for i, file in enumerate(wanted.files):
        path = _locate_one(wanted, i, home)
        if path is None:
            path = _download(file, home / wanted.folders[0], wanted.by_hand)
        elif path.name == file.name:
            _check_hash(path, file)
        paths.append(path)
    return tuple(paths)


def _locate_one(source: Source, i: int, home: Path) -> Path | None:
    names = (*source.unpacked[i : i + 1], source.files[i].name)
    for name in names:
        for folder in source.folders:
            path = home / folder / name
            if path.exists():
                return path
    for pattern in source.instead:
        for path in sorted(home.glob(pattern)):
            return path
    return None


def _check_hash(path: Path, file: File) -> None:
    with errors_naming(path, "cannot be read"), open_regular(path) as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise damaged(
            path,
            f"is not the published file (its sha256 begins {found[:8]} and should begin {file.sha256[:8]})",
        )


def archive_members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and stream of each file in a published .tar.gz, which is read where it is, from start to end."""
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:  # else a folder
                yield member.name, member.size, content


# ---- damaged --------------------------------------------------------------------------------------------------


class Damaged(ValueError):
    """Says already which file is not what it should be."""


def damaged(path: str | os.PathLike, what: str) -> ValueError:
    """The error for a file that is not what it should be; what the file says of itself may be any character."""
    text = "".join(c if c.isprintable() else "?" for c in f"{path} {what}")
    return Damaged(f"{text}: delete it so that it is downloaded again, or copy it anew.")


@contextmanager
def errors_naming(path: str | os.PathLike, what: str = "is truncated or damaged") -> Iterator[None]:
    """Let every failure to read a file name that file."""
    try:
        yield
    except Damaged:
        raise
    except FAILURES as error:
        raise damaged(path, what) from error


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file; a pipe or a device would be read for ever."""
    if path.exists() and not path.is_file():
        raise damaged(path, "is not a regular file")
    return path.open("rb")


# ---- downloaded -----------------------------------------------------------------------------------------------


def _download(file: File, folder: Path, by_hand: str) -> Path:
    import pooch

    if not file.urls:
        raise ValueError(f"{file.name} cannot be downloaded by a program: {by_hand}, and put it into {folder}.")
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(
            f"{folder} cannot be written to: choose another data folder, for instance with COTEACH_DATA."
        )
    pooch.get_logger().setLevel("WARNING")
    failures = []
    for url in file.urls:
        with _Bar(file.name) as bar:
            get: Any = pooch.HTTPDownloader(
                progressbar=bar,
                chunk_size=2**16,
                timeout=60,
                # Servers must not compress what is compressed already: the hash is that of the file.
                headers={"Accept-Encoding": "identity"},
                hooks={"response": [_stay_with_https, _bound_bytes]},
            )
            try:
                # pooch writes beside the file and renames only what has the right hash.
                return Path(pooch.retrieve(url, f"sha256:{file.sha256}", file.name, folder, downloader=get))
            except OSError as error:
                failures.append(f"{url} ({type(error).__name__})")
            except ValueError:
                failures.append(f"{url} (not the published file)")
    raise ValueError(
        f"{file.name} could not be downloaded from {' nor from '.join(failures)}: "
        f"try again later, or put the file into {folder} yourself."
    )


def _stay_with_https(response: "Response", **_: Any) -> None:
    """Refuse a redirect to anything else before it is asked."""
    from urllib.parse import urljoin, urlsplit

    from requests.exceptions import InvalidSchema

    target = urljoin(response.url, response.headers.get("location", ""))
    if response.is_redirect and urlsplit(target).scheme != "https":
        raise InvalidSchema


def _bound_bytes(response: "Response", **_: Any) -> None:
    """No server fills the disk, whatever it says about the length or how it packs what it sends."""
    there = weakref.ref(response)  # a circle would keep its socket open
    unbounded = type(response).iter_content

    def iter_content(*arguments: Any, **options: Any) -> Iterator[bytes]:
        received = 0
        asked = there()
        assert asked is not None  # whoever reads has it
        for chunk in unbounded(asked, *arguments, **options):
            received += len(chunk)
            if received > MOST_TO_DOWNLOAD:
                raise ValueError("more bytes than any published file has")
            yield chunk

    response.iter_content = iter_content


class _Bar:
    """A progress bar of rich, as pooch drives it, closed whatever happens."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(name, total=None)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def total(self) -> float | None:
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, n_bytes: int) -> None:
        self._progress.update(self._task, total=n_bytes or None)

    def update(self, n_bytes: int) -> None:
        self._progress.advance(self._task, n_bytes)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Left to the end of the with statement."""
