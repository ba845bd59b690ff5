"""Reading files that may be broken or hostile: regular ones only, never more bytes than are expected, and
whatever goes wrong is a ValueError that names the file. Nothing is ever unpacked onto the disk.
"""

import gzip
import io
import os
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MOST_MEMBERS = 30_000  # of a tar archive, each of which takes a kilobyte; 20 Newsgroups has 18,900
# What parsers stumble over, NumPy's of headers among them; a TypeError would be a mistake of ours.
FAILURES = (
    *(ArithmeticError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, ValueError),
    *(struct.error, tarfile.TarError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


class Damaged(ValueError):
    """Says already which file is not what it should be."""


def damaged(path: str | os.PathLike, what: str) -> ValueError:
    """The error for a file that is not what it should be; what the file says of itself may be any character."""
    text = "".join(c if c.isprintable() else "?" for c in f"{path} {what}")
    return Damaged(f"{text}: delete it so that it is downloaded again, or copy it anew.")


@contextmanager
def naming(path: str | os.PathLike, what: str = "is truncated or damaged") -> Iterator[None]:
    """Let every failure to read a file name that file."""
    try:
        yield
    except Damaged:
        raise
    except FAILURES as error:
        raise damaged(path, what) from error


def opened(path: Path) -> io.BufferedReader:
    """Open a regular file; a pipe or a device would be read for ever."""
    if path.exists() and not path.is_file():
        raise damaged(path, "is not a regular file")
    return path.open("rb")


def read_whole(path: Path, most: int) -> bytes:
    with opened(path) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise damaged(path, f"has more than the {most:,} bytes that are expected of it")
    return data


class _Bounded(io.RawIOBase):
    """Gives up after so many bytes: a few may expand to very many."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self.stream, self.left = stream, most

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise EOFError("it expands to more bytes than are expected")
        return data


def tar_members(path: Path, most: int) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and stream of each regular file in a .tar.gz of at most so many bytes; no links, no devices."""
    with (
        opened(path) as packed,
        gzip.GzipFile(fileobj=packed) as stream,
        tarfile.open(fileobj=_Bounded(stream, most), mode="r|") as archive,
    ):
        for number, member in enumerate(archive, start=1):
            if number > MOST_MEMBERS:
                raise EOFError("it has more members than are expected")
            if member.isreg() and not member.issparse():  # a sparse file claims more than it takes
                content = archive.extractfile(member)
                assert content is not None
                yield member.name, member.size, content


@contextmanager
def opened_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with opened(path) as stream, zipfile.ZipFile(stream) as archive:
        yield archive


def open_member(archive: zipfile.ZipFile, name: str, most: int) -> zipfile.ZipExtFile:
    """Open a member of at most so many bytes. Read it with a size: Python expands the whole otherwise."""
    member = archive.getinfo(name)
    if member.file_size > most:
        raise EOFError("a member expands to more bytes than are expected")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise EOFError("a member is compressed as no published one is")  # and expands without a bound
    stream = archive.open(member)
    assert isinstance(stream, zipfile.ZipExtFile)
    return stream


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    with open_member(archive, name, most) as stream:
        return stream.read(archive.getinfo(name).file_size)
