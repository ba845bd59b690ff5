"""Find the published files in the data folder, or download them there.

A file counts only if its sha256 is the published one; what lies there unpacked is checked by its reader. Downloads
are over https alone, whatever a server redirects to, and an interrupted one is begun again.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from coteach.data.bounded import damaged, naming, opened
from coteach.data.published import SOURCES, File, Source

MOST_BYTES = 2**30  # the largest file to be downloaded, GloVe's vectors, has 862 million


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
    if chosen is None or chosen == "":
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


def find_or_fetch(
    source: str, data_dir: str | os.PathLike | None = None, mirrors: tuple[str, ...] | None = None
) -> tuple[Path, ...]:
    """Paths of a source's files, in the order of `SOURCES`, downloaded first where they are missing.

    Parameters
    ----------
    source : str
        A key of `SOURCES`.
    data_dir : path, optional
        See `data_home`.
    mirrors : tuple of str, optional
        Addresses of folders to use instead of the published ones; these alone may be plain http.
    """
    home = data_home(data_dir)
    wanted = SOURCES[source]
    paths = []
    for i, file in enumerate(wanted.files):
        path = _locate_one(wanted, i, home)
        if path is None:
            path = _download(file, home / wanted.folders[0], wanted.by_hand, mirrors)
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
    with naming(path, "cannot be read"), opened(path) as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != file.sha256:
        raise damaged(
            path,
            f"is not the published file (its sha256 begins {found[:8]} and should begin {file.sha256[:8]})",
        )


def _download(file: File, folder: Path, by_hand: str, mirrors: tuple[str, ...] | None) -> Path:
    import pooch

    urls = file.urls if mirrors is None else tuple(f"{mirror}/{file.name}" for mirror in mirrors)
    if not urls:
        raise ValueError(f"{file.name} cannot be downloaded by a program: {by_hand}, and put it into {folder}.")
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise ValueError(
            f"{folder} cannot be written to: choose another data folder, for instance with COTEACH_DATA."
        )
    pooch.get_logger().setLevel("WARNING")
    failures = []
    for url in urls:
        plain = mirrors is not None and url.startswith("http://")
        with _Bar(file.name) as bar:
            get: Any = _Downloader(bar, plain)
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


class _Downloader:
    """Writes an address's content to a file, as pooch asks: over https unless `plain`, and of bounded size."""

    def __init__(self, bar: "_Bar", plain: bool) -> None:
        self.bar, self.plain = bar, plain

    def __call__(self, url: str, path: str, _pooch: object) -> None:
        import requests

        # Servers must not compress what is compressed already: the hash is that of the file.
        headers = {"Accept-Encoding": "identity"}
        with requests.Session() as session, open(path, "wb") as file:
            if not self.plain:
                del session.adapters["http://"]  # then no redirect leads there either
            with session.get(url, stream=True, timeout=60, headers=headers) as response:
                response.raise_for_status()
                self.bar.expect(int(response.headers.get("Content-Length", 0)))
                for chunk in response.iter_content(2**16):
                    if file.tell() + len(chunk) > MOST_BYTES:
                        raise ValueError("more bytes than any published file has")
                    file.write(chunk)
                    self.bar.advance(len(chunk))


class _Bar:
    """A progress bar, closed whatever happens."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(name, total=None)

    def __enter__(self) -> "_Bar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def expect(self, n_bytes: int) -> None:
        self._progress.update(self._task, total=n_bytes or None)

    def advance(self, n_bytes: int) -> None:
        self._progress.update(self._task, advance=n_bytes)
