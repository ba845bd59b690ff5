"""Where a stack of runs stands, in one file that is always whole: how `--resume` goes on after anything.

It is written at the end of an epoch, under another name, synced, and renamed. Its header says how long the files
of rows were at that moment: whatever was added later is cut off, and written again, byte by byte the same.
Nothing is pickled: the tensors are safetensors, all else is JSON in their header.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import coteach
from coteach.engine import Engine
from coteach.engine.setup import Setup
from coteach.engine.stack import Tensors
from coteach.engine.training import State
from coteach.files import write_atomically
from coteach.runs import folder as files
from coteach.runs.folder import NotResumable
from coteach.tensor_files import read_tensors, tensors_as_bytes

CHECKPOINT_FORMAT = 2
CHECKPOINT_NAME = "checkpoint.safetensors"
MANY_THREADS = 4096  # that any machine has
COST = 0.05  # of the time of a run, at most, goes into writing checkpoints
# what a configuration meant before it had a word for it
EARLIER_DEFAULTS = {"engine.pooled": False, "experiment.noise_stream": files.EARLIER_STREAM}


@dataclass(frozen=True)
class Checkpoint:
    """What a file says.

    Attributes
    ----------
    config : dict
        As config.toml has it; a run that would have another must not go on from here.
    finished, waiting : lists of range
        Groups of runs; the state is that of the first that waits.
    halved : list of int
        How often each run was begun again for want of memory.
    lengths, digests : lists of dict
        For each folder of the stack, the bytes of its files of rows; and the SHA-256 of these, and of the files
        of finished runs. There are none before 0.2.
    code : str or None
        The SHA-256 of the code that wrote it.
    seconds : float
        That the runs have taken so far.
    """

    config: dict[str, Any]
    finished: list[range]
    waiting: list[range]
    halved: list[int]
    lengths: list[dict[str, int]]
    digests: list[dict[str, str]]
    code: str | None
    seconds: float
    state: State | None


class Checkpoints:
    """The checkpoint of one stack, written anew as it moves on.

    Every epoch is kept, unless writing takes more than a twentieth of the time of its epochs; then some go by.
    """

    def __init__(self, folders: list[Path], config: dict[str, Any]):
        self.folders, self.config = folders, config
        self.path = folders[0] / CHECKPOINT_NAME
        self.cost, self.written = 0.0, time.perf_counter()
        self.digests: dict[Path, str] = {}

    def due(self) -> bool:
        return (time.perf_counter() - self.written) * COST >= self.cost

    def write(
        self,
        finished: list[range],
        waiting: list[range],
        halved: list[int],
        seconds: float,
        at: tuple[int, int] | None = None,
        tensors: Tensors | None = None,
    ) -> None:
        """Keep where the stack stands; `at` is the phase and epoch of the tensors."""
        started = time.perf_counter()
        synced = [synced_rows(folder) for folder in self.folders]
        header = {
            "format": CHECKPOINT_FORMAT,
            "config": files.plain(self.config),
            "finished": [[g.start, g.stop] for g in finished],
            "waiting": [[g.start, g.stop] for g in waiting],
            "halved": halved,
            "lengths": [{name: len(rows) for name, rows in kept.items()} for kept in synced],
            "digests": [
                {name: sha256(rows) for name, rows in kept.items()} | self._of_networks(folder)
                for folder, kept in zip(self.folders, synced, strict=True)
            ],
            "code": code_digest(),
            "seconds": seconds,
            "at": at,
        }
        write_atomically(self.path, tensors_as_bytes(header, tensors or {}))
        self.written = time.perf_counter()
        self.cost = self.written - started

    def _of_networks(self, folder: Path) -> dict[str, str]:
        """The SHA-256 of files that are written once, each read when it is new."""
        for path in (path for name in files.FOLDERS for path in folder.glob(f"{name}/seed-*")):
            if path not in self.digests:
                self.digests[path] = sha256(path.read_bytes())
        return {p.relative_to(folder).as_posix(): d for p, d in self.digests.items() if p.is_relative_to(folder)}

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def read_checkpoint(folder: Path, *, only_facts: bool = False) -> Checkpoint | None:
    """What the folder's checkpoint says, without its tensors if `only_facts`; None before a run's first."""
    path = folder / CHECKPOINT_NAME
    if not path.exists():
        return None
    damaged = "is no checkpoint of coteach, or damaged: begin anew in another folder."
    try:
        header, tensors = read_tensors(path, damaged, only_facts=only_facts)
    except ValueError as error:
        raise NotResumable(str(error)) from error
    if header.get("format") != CHECKPOINT_FORMAT:
        raise NotResumable(
            f"{path} has format {header.get('format')!r}, but this version reads {CHECKPOINT_FORMAT}: "
            "go on with the version of coteach that wrote it, or begin anew in another folder."
        )
    try:
        at = header["at"]
        return Checkpoint(
            dict(header["config"]),
            [range(*pair) for pair in header["finished"]],
            [range(*pair) for pair in header["waiting"]],
            [int(n) for n in header["halved"]],
            [{name: int(length[name]) for name in files.ROWS} for length in header["lengths"]],
            [dict(digest) for digest in header.get("digests", [])],
            header.get("code"),
            float(header["seconds"]),
            None if at is None else State(int(at[0]), int(at[1]), tensors),
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise NotResumable(f"{path} {damaged}") from error


@dataclass(frozen=True)
class StoredSetup:
    """How a run was begun, so that it goes on in the same way, to the last bit."""

    setup: Setup
    group: int


def stored_setup(folder: Path) -> StoredSetup:
    config = files.read_config(folder)
    there = config["engine"]
    try:
        setup = Setup(str(there["device"]), Engine.from_table(there), int(config["hardware"]["threads"]))
        if not 1 <= setup.threads <= MANY_THREADS:
            raise ValueError
        return StoredSetup(setup, int(there["group"]))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise NotResumable(f"{folder}/config.toml is damaged: begin anew in another folder.") from error


def rows_kept(folder: Path) -> int:
    """How many epochs of how many runs, all together, do not have to be trained again."""
    kept = read_checkpoint(folder, only_facts=True)
    if kept is None:
        return 0
    names = ("estimate.jsonl", "metrics.jsonl")
    return sum(read_if_there(folder / name)[: kept.lengths[0][name]].count(b"\n") for name in names)


def refuse_other(then: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Name the first thing in which a run would not be the one that was begun."""
    if found := difference(then, now):
        name, before, after = found
        raise NotResumable(
            f"{folder} was begun with {name} {before}, now {after}: "
            "make it the same again, or begin anew in another folder."
        )


def difference(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first thing that decides a result and is not the same in two configurations, and what it is in each.

    An option that one of them does not know, and that is off in the other, is the same.
    """
    one, other = (flat(files.plain(config)) for config in (one, other))
    one, other = EARLIER_DEFAULTS | one, EARLIER_DEFAULTS | other
    for name in {**one, **other}:
        new_and_off = (name not in one or name not in other) and not (one.get(name) or other.get(name))
        if one.get(name) != other.get(name) and not new_and_off and name != "hardware.name":
            return name, one.get(name, "not set"), other.get(name, "not set")
    return None


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def refuse_lost_rows(folder: Path, lengths: dict[str, int], digests: dict[str, str]) -> None:
    """Files of rows must begin with what they held when the checkpoint was written."""
    for name, length in lengths.items():
        rows = read_if_there(folder / name)
        if len(rows) < length:
            raise NotResumable(
                f"{folder / name} has lost rows since its checkpoint: begin anew in another folder."
            )
        if digests and digests.get(name) != sha256(rows[:length]):
            raise NotResumable(
                f"{folder / name} has other rows than at its checkpoint: begin anew in another folder."
            )


def cut_back(folder: Path, lengths: dict[str, int]) -> None:
    """Take off the rows that were written after the checkpoint. The file is written anew: it may have a twin."""
    for name, length in lengths.items():
        path = folder / name
        if length == 0:
            path.unlink(missing_ok=True)
        elif path.stat().st_size > length or path.stat().st_nlink > 1:
            write_atomically(path, path.read_bytes()[:length])


def synced_rows(folder: Path) -> dict[str, bytes]:
    """The files of rows, which are on the disk when this returns."""
    rows = dict.fromkeys(files.ROWS, b"")
    for name in files.ROWS:
        path = folder / name
        if path.exists():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                rows[name] = file.read()
    return rows


def read_if_there(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def code_digest() -> str:
    """The SHA-256 of all modules of this package."""
    sources = sorted(Path(coteach.__file__).parent.rglob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in sources))


@contextmanager
def advising_resume(folder: Path, command: str, say: Callable[[str], None]) -> Iterator[None]:
    """A disk that is full, a folder that has gone, or Ctrl-C: in a sentence; what was kept stays."""

    def way() -> str:
        nothing_kept = folder.is_dir() and not (folder / "config.toml").exists()
        return "the same command begins anew" if nothing_kept else f"{command} goes on"

    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write to {folder} ({error.strerror or error}): mend that, then {way()}."
        ) from error
    except (KeyboardInterrupt, SystemExit):
        say(f"stopped; {way()}")
        raise
