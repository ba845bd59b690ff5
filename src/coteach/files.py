"""Files written in one step, or read within bounds where strangers made them; tensors and facts as safetensors."""

import csv
import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

FACTS = "coteach"  # the entry in the header of a file of tensors


def write_atomically(path: Path, content: str | bytes) -> None:
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


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Text that is read back as it was; older Pythons do not quote a lone carriage return by themselves."""
    text = io.StringIO()
    usual, odd = (csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    for row in rows:
        (odd if any("\r" in cell for cell in row if isinstance(cell, str)) else usual).writerow(row)
    return text.getvalue()


def is_unfinished(path: Path) -> bool:
    """Whether it was being written when its process was killed, or is right now."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def remove_unfinished(folder: Path) -> None:
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def regular_file(path: Path) -> Path:
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


def tensors_as_bytes(facts: dict[str, Any], tensors: Mapping[str, "Tensor"]) -> bytes:
    """A file of safetensors, which runs no code when it is read, with the facts as JSON in its header."""
    from safetensors.torch import save

    return save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, {FACTS: json.dumps(facts)})


def read_tensors(
    path: Path, otherwise: str, *, only_facts: bool = False
) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    """The facts and the tensors; a ValueError that says `otherwise` of what is no such file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(regular_file(path), "pt") as file:
            facts = json.loads(file.metadata()[FACTS])
            names = () if only_facts else file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        if not isinstance(facts, dict):
            raise TypeError
    except (SafetensorError, OSError, KeyError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} {otherwise}") from error
    return facts, tensors
