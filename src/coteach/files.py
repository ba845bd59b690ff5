"""Files written in one step, or read within bounds where strangers made them."""

import csv
import errno
import io
import os
import threading
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from coteach.turns import own_warning_filters

if TYPE_CHECKING:
    import numpy as np


def write_atomically(path: Path, content: str | bytes) -> None:
    """In one step: a reader, or a run that goes on later, sees the whole file or the one before.

    Synced, so that this holds even if the power fails. Nothing is written through a link.
    """
    refuse_other_than_file(path)
    unfinished = path.with_name(f"{unfinished_stem(path)}{os.getpid()}-{threading.get_ident()}.tmp")
    unfinished.unlink(missing_ok=True)
    try:
        with unfinished.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Text that is read back as it was; older Pythons do not quote a lone carriage return by themselves."""
    text = io.StringIO()
    usual, odd = (csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    for row in rows:
        (odd if any("\r" in cell for cell in row if isinstance(cell, str)) else usual).writerow(row)
    return text.getvalue()


def unfinished_stem(path: Path) -> str:
    """How the names begin under which a file is written; a long name with more after it would be too long."""
    return f".{path.name[:50]}."


def is_unfinished(path: Path) -> bool:
    """Whether it was being written when its process was killed, or is right now."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def remove_unfinished(folder: Path) -> None:
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def refuse_other_than_file(path: Path) -> None:
    """Raise a ValueError if a link, a folder or a pipe is where a file is to be written."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        kind = "a link" if path.is_symlink() else "a folder" if path.is_dir() else "no regular file"
        raise ValueError(f"{path} is {kind}, where a file should be: remove it, or choose another place.")


def refuse_place(path: Path, usual_name: str) -> None:
    """Raise a ValueError where no file can be written, before the work that is to be written there."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give a file in it, such as {path / usual_name}.")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}: make it first, or save elsewhere.")
    refuse_other_than_file(path)


def regular_file(path: Path) -> Path:
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "it does not exist", os.fspath(path))
    if not path.is_file():  # a pipe would be waited for
        raise OSError(f"{path} is no regular file")
    return path


def read_bounded(path: Path, most: int) -> bytes:
    """All of a regular file, or a ValueError if it has more bytes than are expected of it."""
    with regular_file(path).open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path} has more than the {most:,} bytes that are expected of it")
    return data


def open_zip_member(archive: zipfile.ZipFile, name: str, most: int) -> zipfile.ZipExtFile:
    """Open a member of at most so many bytes. Read it with a size: Python expands the whole otherwise."""
    member = archive.getinfo(name)
    if member.file_size > most:
        raise ValueError("a member expands to more bytes than are expected")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("a member is compressed in a way that expands without a bound")
    stream = archive.open(member)
    assert isinstance(stream, zipfile.ZipExtFile)
    return stream


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], "np.dtype"]:
    """The shape and the type that a .npy file announces, whose bytes come next; no array is made yet."""
    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with own_warning_filters():
        warnings.simplefilter("ignore")  # that it was written by Python 2
        shape, _, dtype = readers[npy.read_magic(stream)](stream)
    return shape, dtype
