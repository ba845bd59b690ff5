"""The stacks that are being measured: a folder for each under `out/.running`, and one process that owns it.

A stack that was begun is ended as it was begun, whoever goes on with it. Nothing here takes torch.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from coteach.files import write_atomically
from coteach.paper.presets import Cell
from coteach.runs.folder import LOCK, locked

Todo = tuple[Cell, tuple[int, ...]]  # a cell, and its seeds that are still to be run

LOCAL_RAY = "local"  # instead of an address: a Ray of this machine alone
RUNNING = ".running"
STACK_FILE = "stack.json"
LOCK_WAIT = 0.05  # seconds between two looks at a lock that is held for a moment only


def check_workers(processes: int | str | None, ray: str | None, device: str) -> None:
    if processes is not None and ray is not None:
        raise ValueError("--processes and --ray are two ways to do the same: give one of them.")
    if processes is not None and processes != "auto" and not (str(processes).isdecimal() and int(processes) > 0):
        raise ValueError(f"--processes is {processes}: give auto, or a number of at least 1.")
    if (processes is not None or ray is not None) and ":" in device:
        raise ValueError(f"device {device} is one GPU, but every process gets its own: give cuda, cpu or auto.")


def check_minutes(minutes: float | None) -> None:
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes is {minutes:g}: give a number above 0, or leave it out.")


@dataclass(frozen=True)
class StackJob:
    """A stack to be trained, here or on another machine; `token` is what its folder says if it is the same one."""

    number: int
    stack: list[Todo]
    folder: Path
    token: str
    data_dir: Path | None
    commit: str | None

    @property
    def label(self) -> str:
        return f"{self.stack[0][0].row} ({', '.join(cell.column for cell, _ in self.stack)})"

    @property
    def runs(self) -> int:
        return n_runs(self.stack)

    def write_about(self) -> None:
        """What is in the folder, for whoever finds it; and that it can be seen from here."""
        about = {"token": self.token, "cells": identity(self.stack)}
        write_atomically(self.folder / STACK_FILE, json.dumps(about) + "\n")

    def sees_folder(self) -> bool:
        """Whether the folder is there for this process: on the same machine, or on a shared file system."""
        about = read_about(self.folder)
        return about is not None and about.get("token") == self.token


def n_runs(stack: list[Todo]) -> int:
    return sum(len(seeds) for _, seeds in stack)


def identity(stack: list[Todo]) -> list[list]:
    return [[cell.hash, list(seeds)] for cell, seeds in stack]


def folder_of(stack: list[Todo], out: Path) -> Path:
    digest = hashlib.sha256(json.dumps(identity(stack)).encode()).hexdigest()
    return out.absolute() / RUNNING / digest[:16]


def read_about(folder: Path) -> dict | None:
    try:
        about = json.loads((folder / STACK_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return about if isinstance(about, dict) else None


# ---- who is at it ---------------------------------------------------------------------------------------------


def acquired(folder: Path, until: ExitStack) -> bool:
    """Whether a folder, made if need be, is ours until the stack of contexts is closed."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            until.enter_context(locked(folder))
            return True
        except FileNotFoundError:  # its owner removed it between our two looks
            continue
        except OSError as error:
            if isinstance(error, FileExistsError) and not folder.is_file():
                continue  # it was there when we made it, and gone when mkdir looked whether it is a folder
            raise ValueError(
                f"cannot write to {folder} ({error.strerror}): give another folder with --out."
            ) from error
        except ValueError:
            return False


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process is in a folder, which is one for a moment, or until it has noticed its end."""
    with ExitStack() as until:
        while not acquired(folder, until):
            time.sleep(LOCK_WAIT)
        yield
    remove_if_empty(folder)


def clear_folder(folder: Path) -> None:
    """Removes everything except the lock, which goes with its owner."""
    for path in folder.iterdir():
        if path.name == LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_if_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):  # another process is in it, or has removed it
            os.rmdir(folder)


# ---- what was begun -------------------------------------------------------------------------------------------


def unfinished_stacks(todo: list[Todo], wanted: list[Cell], out: Path) -> tuple[list[list[Todo]], list[Todo]]:
    """Stacks that an earlier call left behind, to be ended as they were begun, and what remains to be done.

    Stacks with cells or seeds that are not wanted now are left for when they are.
    """
    by_hash = {cell.hash: cell for cell in wanted}
    missing = {cell.hash: set(seeds) for cell, seeds in todo}
    found = []
    for folder in sorted((out / RUNNING).glob("*")):
        stack = stack_in(folder, by_hash)
        if stack is None or folder_of(stack, out).name != folder.name:
            continue
        if not any(missing.get(cell.hash, set()) & set(seeds) for cell, seeds in stack):
            remove_stack(folder)  # its cells were written, and then its process was killed
            continue
        found.append(stack)
        for cell, seeds in stack:
            missing[cell.hash] = missing.get(cell.hash, set()) - set(seeds)
    rest = [(cell, tuple(s for s in seeds if s in missing[cell.hash])) for cell, seeds in todo]
    return found, [(cell, seeds) for cell, seeds in rest if seeds]


def stack_in(folder: Path, by_hash: dict[str, Cell]) -> list[Todo] | None:
    """The stack of a folder, if its cells are among these, with these seeds."""
    about = read_about(folder)
    try:
        cells = [(by_hash[hash], tuple(map(int, seeds))) for hash, seeds in about["cells"]] if about else []
    except (KeyError, TypeError, ValueError):
        return None
    return cells if cells and all(set(seeds) <= set(cell.seeds) for cell, seeds in cells) else None


def remove_stack(folder: Path) -> None:
    with ExitStack() as until:
        if not acquired(folder, until):
            return
        clear_folder(folder)
    remove_if_empty(folder, folder.parent)
