"""Measuring the cells of a preset: what is missing runs in stacks, and each cell's file is written as it comes.

A stack is trained in a folder of its own under `out/.running`, and goes on from its checkpoint after whatever
stopped it. Several processes may measure into one `out`: a stack that another one is at is left to it and, when
all else is done, waited for; if it died, what it began is gone on with.

The unit of work is a stack, not a run: its networks share every batched call, which on a GPU halves the time of a
run, and a result does not depend, to the last bit, on where it was measured. Stacks are halved only where places
would otherwise stay empty.
"""

import logging
import math
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

import coteach
from coteach import data
from coteach.data import Dataset
from coteach.data.news import VECTORS_MEMBER
from coteach.engine.setup import chosen_device
from coteach.engine.training import Epoch
from coteach.files import refuse_other_than_file, write_atomically
from coteach.paper.measured import add_runs, in_folder, measurement, path_of, taken_over
from coteach.paper.presets import Cell, asked_for, refuse_too_few
from coteach.paper.running import (
    LOCAL_RAY,
    RUNNING,
    StackJob,
    Todo,
    acquired,
    check_minutes,
    check_workers,
    clear_folder,
    exclusive,
    folder_of,
    n_runs,
    remove_if_empty,
    unfinished_stacks,
)
from coteach.runs import checkpoint, prepare
from coteach.runs.experiment import Experiment
from coteach.runs.folder import NotResumable
from coteach.runs.parallel import Send, Work, connected, in_processes, on_ray
from coteach.runs.run import MAY_DIFFER, run_together

WAIT = 1.0  # seconds between two looks at the stacks of other processes

warn = logging.getLogger("coteach").warning


@dataclass(frozen=True)
class MeasuringProgress:
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
    compile_steps: Literal["auto", "yes", "no"] = "auto",
    then: bool = False,
    only: str | None = None,
    processes: int | str | None = None,
    ray: str | None = None,
    commit: str | None = None,
    minutes: float | None = None,
    say: Callable[[str], None] = warn,
    on_progress: Callable[[MeasuringProgress], None] = lambda progress: None,
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
    compile_steps : {"auto", "yes", "no"}
        Whether torch.compile fuses the kernels of a step.
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
    minutes : float, optional
        Begin no cells that would end later, at the slowest pace of those measured by this call.
    """
    refuse_too_few(name, epochs, then=then, only=only)
    wanted = asked_for(name, seeds, epochs, device, compile_steps=compile_steps, then=then, only=only)
    return measure_cells(
        wanted,
        Path(out),
        data_dir,
        processes=processes,
        ray=ray,
        commit=commit,
        minutes=minutes,
        say=say,
        on_progress=on_progress,
    )


def measure_cells(
    wanted: list[Cell],
    out: Path,
    data_dir: Path | None = None,
    *,
    processes: int | str | None = None,
    ray: str | None = None,
    commit: str | None = None,
    minutes: float | None = None,
    say: Callable[[str], None] = warn,
    on_progress: Callable[[MeasuringProgress], None] = lambda progress: None,
) -> list[Path]:
    """Run the seeds that the cells' files do not have, a stack at a time; a crash loses no more than an epoch."""
    for cell in wanted:
        replace(cell.experiment, seeds=cell.seeds).check()
        refuse_other_than_file(path_of(cell, out))
    if (out / RUNNING).is_symlink():
        raise ValueError(f"{out / RUNNING} is a link, where a folder is to be: remove it, or give another --out.")
    check_minutes(minutes)
    until = time.monotonic() + 60 * (math.inf if minutes is None else minutes)
    known = in_folder(out)
    todo = [(cell, missing) for cell in wanted if (missing := missing_seeds(cell, out, known, say))]
    if there := len(wanted) - len(todo):
        say(f"{there} of {len(wanted)} cells are in {out} already")
    old, rest = unfinished_stacks(todo, wanted, out)
    if old or rest:
        with workers(processes, ray, wanted[0].experiment.device) as pool:
            found = [*old, *divided(stacks(rest), pool.places)]
            commit = commit or commit_of_the_code()
            data_dir = data_dir and Path(data_dir).absolute()
            token = uuid.uuid4().hex
            jobs = [
                StackJob(number, stack, folder_of(stack, out), token, data_dir, commit)
                for number, stack in enumerate(found)
            ]
            with Measuring(jobs, out, say, on_progress, until) as measuring:
                measuring.do_all(pool)
    return [path_of(cell, out) for cell in wanted]


class Measuring:
    """The jobs of one call: which are left, which are ours, and how far these are."""

    def __init__(
        self,
        jobs: list[StackJob],
        out: Path,
        say: Callable[[str], None],
        on_progress: Callable[[MeasuringProgress], None],
        until: float = math.inf,
    ):
        self.jobs, self.out, self.say, self.on_progress, self.until = jobs, out, say, on_progress, until
        self.left = {job.number for job in jobs}
        self.ours: dict[int, ExitStack] = {}  # the locks of jobs that are handed out
        self.records: dict[int, list[dict[str, Any]]] = {}
        self.epochs = dict.fromkeys(self.left, 0)  # of single runs that are done, …
        self.trained = dict.fromkeys(self.left, 0)  # … and those of them in this call
        self.begun: dict[int, float] = {}
        self.pace = 0.0  # seconds for an epoch of a single run, at the slowest
        self.late: set[int] = set()
        self.total = {job.number: job.runs * prepare.n_epochs(job.stack[0][0].experiment) for job in jobs}

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *exception: object) -> None:
        for lock in self.ours.values():
            lock.close()
        forget_data()

    def do_all(self, pool: "Workers") -> None:
        said = False
        while self.left:
            before = len(self.left)
            with closing(pool.do(train_stack, self.hand_out(), self.receive)) as done:
                for job in done:
                    self.write(job)
            if self.late:
                self.say(
                    f"stacks of cells that would end too late: {len(self.late)}; the same command measures them"
                )
                return
            if len(self.left) == before:
                if not said:
                    self.say(f"another process is measuring the last {before} stacks: waiting for it")
                said = True
                time.sleep(WAIT)

    def hand_out(self) -> Iterator[StackJob]:
        """The jobs that nobody else is at, one after the other; what others have done meanwhile is left out."""
        for job in self.jobs:
            lock = ExitStack()
            if job.number not in self.left:
                continue
            if time.monotonic() + self.pace * self.total[job.number] * weight(job) > self.until:
                self.late.add(job.number)
                continue
            if not acquired(job.folder, lock):
                continue
            self.left.remove(job.number)
            self.ours[job.number] = lock
            known = in_folder(self.out)
            if any(set(seeds) - seeds_there(cell, self.out, known) for cell, seeds in job.stack):
                job.write_about()
                self.begun[job.number] = time.monotonic()
                yield job
            else:
                self.release(job)

    def receive(self, message: tuple[str, int, Any]) -> None:
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
            self.trained[number] += len(rows)
            self.show(self.jobs[number].label, rows, preliminary)

    def show(self, label: str, rows: list[dict], preliminary: bool = False) -> None:
        done, total = sum(self.epochs.values()), sum(self.total.values())
        self.on_progress(MeasuringProgress(done, total, label, rows, preliminary))

    def write(self, job: StackJob) -> None:
        if trained := self.trained[job.number]:
            seconds = time.monotonic() - self.begun[job.number]
            self.pace = max(self.pace, seconds / (trained * weight(job)))
        for (cell, _), record in zip(job.stack, self.records.pop(job.number), strict=True):
            add_runs(cell, self.out, record)
        self.release(job)

    def release(self, job: StackJob) -> None:
        """It is in the cells' files: its folder goes."""
        clear_folder(job.folder)
        self.ours.pop(job.number).close()
        remove_if_empty(job.folder, job.folder.parent)
        if self.epochs[job.number] < self.total[job.number]:  # the rest was done before, or by another
            self.epochs[job.number] = self.total[job.number]
            self.show(job.label, [])


def weight(job: StackJob) -> float:
    """How many times the work of the usual width: a convolution takes width² operations."""
    return (job.stack[0][0].experiment.width or 1) ** 2


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


# ---- training one stack, in whatever process -------------------------------------------------------------------

COMMIT = "commit"  # a file beside the runs: of the code that began them


def train_stack(job: StackJob, send: Send) -> None:
    """Send ("note", number, line) and ("epoch", number, (rows, preliminary)), and last ("records", number, …)."""

    def say(line: str) -> None:
        send(("note", job.number, line))

    def after(epoch: Epoch) -> None:
        send(("epoch", job.number, (epoch.rows, epoch.preliminary)))

    with folder_for_runs(job) as folder:
        dataset = data_of(job.stack[0][0], job.data_dir)
        if not finished(job, folder):
            train_in(folder, job, partial(run_together, dataset=dataset, say=say, on_epoch=after), say)
        send(("records", job.number, records(job, folder, dataset)))


@contextmanager
def folder_for_runs(job: StackJob) -> Iterator[Path]:
    """The job's own, if it is seen from here, so that what was done survives us; else one for the while."""
    if job.sees_folder():
        with exclusive(job.folder / "runs"):  # except by a process whose parent died: it stops at the next epoch
            yield job.folder / "runs"
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def train_in(
    folder: Path, job: StackJob, run: Callable[[list[Experiment]], Any], say: Callable[[str], None]
) -> None:
    """Run the experiments of a stack; they go on where they stopped, if that can be."""
    first = job.stack[0][0].experiment
    ledger = first.is_modern or first.comes_labelled  # where the page says how well wrong labels are found
    experiments = [
        replace(cell.experiment, seeds=seeds, out=folder / str(i), ledger=ledger)
        for i, (cell, seeds) in enumerate(job.stack)
    ]
    if (folder / "0" / checkpoint.CHECKPOINT_NAME).exists():
        try:
            if (then := commit_of(folder)) != job.commit:
                raise NotResumable(f"{folder} was begun with the code of {then}, now {job.commit}")
            run([replace(experiment, resume=experiment.out) for experiment in experiments])
            return
        except NotResumable as error:
            say(f"{str(error).partition(': ')[0]}: beginning anew")
    for experiment in experiments:
        shutil.rmtree(experiment.out or "", ignore_errors=True)
    write_atomically(folder / COMMIT, job.commit or "")
    run(experiments)


def commit_of(folder: Path) -> str | None:
    path = folder / COMMIT
    return (path.read_text("utf-8") if path.exists() else "") or None


def finished(job: StackJob, folder: Path) -> bool:
    return all((folder / str(i) / "summary.json").exists() for i in range(len(job.stack)))


def records(job: StackJob, folder: Path, dataset: Dataset) -> list[dict[str, Any]]:
    """What each cell of a stack adds to its file."""
    runs = [folder / str(i) for i in range(len(job.stack))]
    return [measurement(run, dataset, job.runs, commit_of(folder)) for run in runs]


# ---- data -----------------------------------------------------------------------------------------------------

_loaded_data: dict[str, Dataset] = {}  # reading one may take a minute, and a preset has no more than five


def forget_data() -> None:
    _loaded_data.clear()


def data_of(cell: Cell, data_dir: Path | None) -> Dataset:
    name = cell.experiment.dataset
    options = prepare.dataset_options(cell.experiment) | cell.data
    if "vectors" in options:
        options["vectors"] = find_vectors(options["vectors"], data_dir)
    key = repr((name, data_dir, sorted(options.items())))
    if key not in _loaded_data:
        _loaded_data[key] = data.load(name, data_dir, **options)
    return _loaded_data[key]


def find_vectors(name: str, data_dir: Path | None) -> Path:
    home = data.data_home(data_dir)
    for file in (name, "glove.6B.zip") if name == VECTORS_MEMBER else (name,):
        for folder in (home, home / "vectors", home / "glove"):
            if (folder / file).exists():
                return folder / file
    raise ValueError(f"the word vectors {name} are not in {home}: put them there, in GloVe's text format.")


# ---- where stacks are trained: here, in several processes, or by Ray on many machines --------------------------


@dataclass(frozen=True)
class Workers:
    """Does `work(item, send)` for all items, and yields each when it is done; has places for so many at a time."""

    do: Callable[[Work, Iterable[Any], Send], Generator[Any]]
    places: int


@contextmanager
def workers(processes: int | str | None, ray: str | None, device: str) -> Iterator[Workers]:
    """Who trains: `processes` are a number or "auto", `ray` is an address or "local"; neither: this process."""
    check_workers(processes, ray, device)
    if ray is not None:
        with connected(None if ray == LOCAL_RAY else ray) as there:
            resources = resources_of_a_stack(device, there)
            places = there.get("GPU" if resources["num_gpus"] else "CPU", 1)
            yield Workers(partial(on_ray, resources=resources), int(places))
    elif processes is not None:
        gpus = n_gpus(device)
        n = int(processes) if processes != "auto" else (gpus or n_cores())
        yield Workers(partial(in_processes, workers=n, begin=partial(prepare_process, gpus)), n)
    else:
        yield Workers(in_this_process, 1)


def in_this_process(work: Work, items: Iterable[Any], on_message: Send) -> Generator[Any]:
    for item in items:
        work(item, on_message)
        yield item


def resources_of_a_stack(device: str, there: dict[str, float]) -> dict[str, float]:
    """One thread, and a GPU of its own where there are any."""
    if device == "cuda" and there.get("GPU", 0) < 1:
        raise ValueError("device is cuda, but Ray's cluster has no GPU: give cpu, or auto.")
    return {"num_cpus": 1, "num_gpus": int(device != "cpu" and there.get("GPU", 0) >= 1)}


def n_gpus(device: str) -> int:
    return torch.cuda.device_count() if chosen_device(device) == "cuda" else 0


def n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare_process(gpus: int, number: int) -> None:
    """In a new process, before it touches a GPU: one of its own, in turn, and one thread."""
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        known = [name.strip() for name in visible if name.strip()] or [str(i) for i in range(gpus)]
        os.environ["CUDA_VISIBLE_DEVICES"] = known[number % len(known)]
    torch.set_num_threads(1)


def divided(stacks: list[list[Todo]], places: int) -> list[list[Todo]]:
    """As many stacks as there are places, if they have so many runs: the largest are halved, seed by seed."""
    stacks = list(stacks)
    while 0 < len(stacks) < places:
        i = max(range(len(stacks)), key=lambda i: n_runs(stacks[i]))
        if n_runs(stacks[i]) == 1:
            break
        stacks[i : i + 1] = halved(stacks[i])
    return stacks


def halved(stack: list[Todo]) -> list[list[Todo]]:
    runs = [(cell, seed) for cell, seeds in stack for seed in seeds]
    middle = len(runs) // 2
    return [
        [(cell, mine) for cell, seeds in stack if (mine := tuple(s for s in seeds if (cell, s) in half))]
        for half in (runs[:middle], runs[middle:])
    ]
