"""Measuring the cells of a preset: what is missing runs in stacks, and each cell's file is written as it comes.

A stack is trained in a folder of its own under `out/.running`, and goes on from its checkpoint after whatever
stopped it. Several processes may measure into one `out`: a stack that another one is at is left to it and, when
all else is done, waited for; if it died, what it began is gone on with.
"""

import logging
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import coteach
from coteach.paper import grid
from coteach.paper.measured import add, in_folder, path_of, taken_over
from coteach.paper.presets import Cell, asked_for, refuse_too_few
from coteach.paper.running import Job, Todo, begun, empty, folder_of, remove_if_empty, taken
from coteach.paper.stack import forget_data, train_stack
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.runs.run import MAY_DIFFER

WAIT = 1.0  # seconds between two looks at the stacks of other processes

log = logging.getLogger("coteach")


@dataclass(frozen=True)
class Progress:
    """After each epoch: how many epochs of single runs are done, of all that are to be, and what is at work."""

    done: int
    total: int
    label: str
    rows: list[dict]
    preliminary: bool


def reproduce(
    name: str,
    seeds: tuple[int, ...] | None = None,
    epochs: int | None = None,
    out: Path = Path("results"),
    device: str = "auto",
    data_dir: Path | None = None,
    *,
    then: bool = False,
    only: str | None = None,
    processes: int | str | None = None,
    ray: str | None = None,
    commit: str | None = None,
    say: Callable[[str], None] = log.warning,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Path]:
    """Measure what is missing of a preset, and give the files of its cells.

    Parameters
    ----------
    name : str
        A preset of presets.toml.
    seeds, epochs : optional
        Instead of the preset's; with other epochs the files have other names.
    out : Path
        Folder of the results; a cell's file is `out/NAME/CELL.json`.
    then : bool
        Measure also what the preset leaves for later.
    only : str, optional
        Only the cells that have this in their names.
    processes : int or "auto", optional
        Of this machine, that share the work: in turn on the GPUs there are, or with one thread each.
    ray : str, optional
        Address of a cluster of Ray that does the work, or "local" for one of this machine that is started for it.
    commit : str, optional
        Of the code, where it cannot be asked of git.
    """
    refuse_too_few(name, epochs, then=then, only=only)
    wanted = asked_for(name, seeds, epochs, device, then=then, only=only)
    return measure(
        wanted, Path(out), data_dir, processes=processes, ray=ray, commit=commit, say=say, on_progress=on_progress
    )


def measure(
    wanted: list[Cell],
    out: Path,
    data_dir: Path | None = None,
    *,
    processes: int | str | None = None,
    ray: str | None = None,
    commit: str | None = None,
    say: Callable[[str], None] = log.warning,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Path]:
    """Run the seeds that the cells' files do not have, a stack at a time; a crash loses no more than an epoch."""
    for cell in wanted:
        replace(cell.experiment, seeds=cell.seeds).check()
    known = in_folder(out)
    todo = [(cell, missing) for cell in wanted if (missing := missing_seeds(cell, out, known, say))]
    if there := len(wanted) - len(todo):
        say(f"{there} of {len(wanted)} cells are in {out} already")
    old, rest = begun(todo, wanted, out)
    if old or rest:
        with grid.crew(processes, ray, wanted[0].experiment.device) as crew:
            found = [*old, *grid.divided(stacks(rest), crew.places)]
            commit = commit or commit_of_the_code()
            data_dir = data_dir and Path(data_dir).absolute()
            token = uuid.uuid4().hex
            jobs = [
                Job(number, stack, folder_of(stack, out), token, data_dir, commit)
                for number, stack in enumerate(found)
            ]
            with Measuring(jobs, out, say, on_progress) as measuring:
                measuring.do_all(crew)
    return [path_of(cell, out) for cell in wanted]


class Measuring:
    """The jobs of one call: which are left, which are ours, and how far these are."""

    def __init__(
        self, jobs: list[Job], out: Path, say: Callable[[str], None], on_progress: Callable[[Progress], None]
    ):
        self.jobs, self.out, self.say, self.on_progress = jobs, out, say, on_progress
        self.left = {job.number for job in jobs}
        self.ours: dict[int, ExitStack] = {}  # the locks of jobs that are handed out
        self.records: dict[int, list[dict[str, Any]]] = {}
        self.epochs = dict.fromkeys(self.left, 0)  # of single runs that are done
        self.total = {job.number: job.runs * prepare.n_epochs(job.stack[0][0].experiment) for job in jobs}

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *exception: object) -> None:
        for lock in self.ours.values():
            lock.close()
        forget_data()

    def do_all(self, crew: grid.Crew) -> None:
        told = False
        while self.left:
            before = len(self.left)
            with closing(crew.do(train_stack, self.hand_out(), self.hear)) as done:
                for job in done:
                    self.write(job)
            if len(self.left) == before:
                if not told:
                    self.say(f"another process is measuring the last {before} stacks: waiting for it")
                told = True
                time.sleep(WAIT)

    def hand_out(self) -> Iterator[Job]:
        """The jobs that nobody else is at, one after the other; what others have done meanwhile is left out."""
        for job in self.jobs:
            lock = ExitStack()
            if job.number not in self.left or not taken(job.folder, lock):
                continue
            self.left.remove(job.number)
            self.ours[job.number] = lock
            known = in_folder(self.out)
            if any(set(seeds) - seeds_there(cell, self.out, known) for cell, seeds in job.stack):
                job.write_about()
                yield job
            else:
                self.release(job)

    def hear(self, message: tuple[str, int, Any]) -> None:
        """What a job sends from wherever it is."""
        kind, number, content = message
        if kind == "note":
            self.say(content)
        elif kind == "records":
            self.records[number] = content
        else:
            rows, preliminary = content
            before = self.epochs[number] or (rows[0]["epoch"] - 1) * len(rows)  # of a stack that goes on
            self.epochs[number] = min(before + len(rows), self.total[number])
            self.tell(self.jobs[number].label, rows, preliminary)

    def tell(self, label: str, rows: list[dict], preliminary: bool = False) -> None:
        done, total = sum(self.epochs.values()), sum(self.total.values())
        self.on_progress(Progress(done, total, label, rows, preliminary))

    def write(self, job: Job) -> None:
        for (cell, _), record in zip(job.stack, self.records.pop(job.number), strict=True):
            add(cell, self.out, record)
        self.release(job)

    def release(self, job: Job) -> None:
        """It is in the cells' files: its folder goes."""
        empty(job.folder)
        self.ours.pop(job.number).close()
        remove_if_empty(job.folder, job.folder.parent)
        if self.epochs[job.number] < self.total[job.number]:  # the rest was done before, or by another
            self.epochs[job.number] = self.total[job.number]
            self.tell(job.label, [])


# ---- what is to be run ----------------------------------------------------------------------------------------


def missing_seeds(cell: Cell, out: Path, known: list[dict], say: Callable[[str], None]) -> tuple[int, ...]:
    """Those that neither a cell's own file has nor that of another preset which has measured the same."""
    have = seeds_there(cell, out, known)
    if not have and path_of(cell, out).exists():
        say(f"{path_of(cell, out)} was measured in another way: it will be replaced")
    return tuple(seed for seed in cell.seeds if seed not in have)


def seeds_there(cell: Cell, out: Path, known: list[dict]) -> set[int]:
    record = taken_over(cell, out, known)
    return set() if record is None else set(record["summary"]["seeds"])


def stacks(todo: Iterable[Todo]) -> list[list[Todo]]:
    """Cells that may run together: alike in all but noise, τ and seeds, on the very same images."""
    together: dict[str, list[Todo]] = {}
    for cell, missing in todo:
        e = cell.experiment
        same = {f.name: getattr(e, f.name) for f in fields(Experiment) if f.name not in MAY_DIFFER}
        key = repr((same, sorted(prepare.dataset_options(e).items()), sorted(cell.data.items())))
        together.setdefault(key, []).append((cell, missing))
    return list(together.values())


def commit_of_the_code() -> str | None:
    """What git says of the folder this file is in, if it is coteach's own repository."""
    here = Path(coteach.__file__).parent
    try:
        for command in (
            "ls-files --error-unmatch __init__.py",
            "describe --always --dirty --abbrev=40 --exclude *",
        ):
            done = subprocess.run(["git", *command.split()], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
