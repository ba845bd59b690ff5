"""Files that are whole or not there, whatever happens while they are written; and readable to their end."""

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """In one step: a reader, or a run that goes on later, sees the whole file or the one before.

    Synced, so that this holds even if the power fails.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def is_unfinished(path: Path) -> bool:
    """Whether it was being written when its process was killed, or is right now."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def remove_unfinished(folder: Path) -> None:
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def regular(path: Path) -> Path:
    if not path.is_file():  # a pipe would be waited for
        raise OSError(f"{path} is no regular file")
    return path
