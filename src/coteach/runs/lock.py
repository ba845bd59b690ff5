"""One process to a run folder: a lock that the system takes back when its process ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from coteach.runs.folder import LOCK


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process writes to."""
    path = folder / LOCK
    while True:
        file = path.open("a")
        if not _taken(file):
            file.close()
            raise ValueError(f"another process is writing to {folder}: wait for it, or give another folder.")
        if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
            break
        file.close()  # its owner removed it between our two looks
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may have gone
            path.unlink()
        file.close()


def _taken(file: IO[str]) -> bool:
    """Whether the lock is ours now."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyrefly: ignore[missing-attribute]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
