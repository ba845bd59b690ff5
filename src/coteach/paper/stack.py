"""Training one stack of cells, in whatever process: from its checkpoints, if it was begun before."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from coteach import data
from coteach.data import Dataset
from coteach.data.news import VECTORS_MEMBER
from coteach.engine.training import Epoch
from coteach.files import write_atomically
from coteach.paper.measured import measurement
from coteach.paper.presets import Cell
from coteach.paper.running import Job, alone_in
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.folder import NotResumable
from coteach.runs.parallel import Send
from coteach.runs.prepare import dataset_options
from coteach.runs.run import run_together

COMMIT = "commit"  # a file beside the runs: of the code that began them


def train_stack(job: Job, send: Send) -> None:
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
def folder_for_runs(job: Job) -> Iterator[Path]:
    """The job's own, if it is seen from here, so that what was done survives us; else one for the while."""
    if job.sees_folder():
        with alone_in(job.folder / "runs"):  # but for a process whose parent died: it stops at the next epoch
            yield job.folder / "runs"
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def train_in(folder: Path, job: Job, run: Callable[[list[Experiment]], Any], say: Callable[[str], None]) -> None:
    """Run the experiments of a stack; they go on where they stopped, if that can be."""
    experiments = [
        replace(cell.experiment, seeds=seeds, out=folder / str(i), ledger=False)
        for i, (cell, seeds) in enumerate(job.stack)
    ]
    if (folder / "0" / checkpoint.NAME).exists():
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


def finished(job: Job, folder: Path) -> bool:
    return all((folder / str(i) / "summary.json").exists() for i in range(len(job.stack)))


def records(job: Job, folder: Path, dataset: Dataset) -> list[dict[str, Any]]:
    """What each cell of a stack adds to its file."""
    runs = [folder / str(i) for i in range(len(job.stack))]
    return [measurement(run, dataset, job.runs, commit_of(folder)) for run in runs]


# ---- data -----------------------------------------------------------------------------------------------------

_loaded: dict[str, Dataset] = {}  # reading one may take a minute, and a preset has no more than three


def forget_data() -> None:
    _loaded.clear()


def data_of(cell: Cell, data_dir: Path | None) -> Dataset:
    name = cell.experiment.dataset
    options = dataset_options(cell.experiment) | cell.data
    if "vectors" in options:
        options["vectors"] = find_vectors(options["vectors"], data_dir)
    key = repr((name, data_dir, sorted(options.items())))
    if key not in _loaded:
        _loaded[key] = data.load(name, data_dir, **options)
    return _loaded[key]


def find_vectors(name: str, data_dir: Path | None) -> Path:
    home = data.data_home(data_dir)
    for file in (name, "glove.6B.zip") if name == VECTORS_MEMBER else (name,):
        for folder in (home, home / "vectors", home / "glove"):
            if (folder / file).exists():
                return folder / file
    raise ValueError(f"the word vectors {name} are not in {home}: put them there, in GloVe's text format.")
