"""Measuring the cells of a preset: what is missing runs in stacks, and each cell's file is written as it comes."""

import logging
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import coteach
from coteach import data
from coteach.data import Dataset
from coteach.data.glove import MEMBER
from coteach.paper.measured import in_folder, measurement, merged, path_of, read, taken_over, write
from coteach.paper.presets import Cell, asked_for
from coteach.runs import setup
from coteach.runs.experiment import Experiment
from coteach.runs.run import MAY_DIFFER, run_together
from coteach.train import Epoch

Todo = tuple[Cell, tuple[int, ...]]  # a cell, and its seeds that are still to be run

log = logging.getLogger("coteach")


@dataclass(frozen=True)
class Progress:
    """After each epoch: how many epochs of single runs are done, of all that are to be, and what is at work."""

    done: int
    total: int
    label: str
    epoch: Epoch


def reproduce(
    name: str,
    seeds: tuple[int, ...] | None = None,
    epochs: int | None = None,
    out: Path = Path("results"),
    device: str = "auto",
    data_dir: Path | None = None,
    *,
    then: bool = False,
    commit: str | None = None,
    say: Callable[[str], None] = log.warning,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Path]:
    """Measure what is missing of a preset, and give the files of all its cells.

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
    commit : str, optional
        Of the code, where it cannot be asked of git.
    """
    wanted = asked_for(name, seeds, epochs, device, then=then)
    return measure(wanted, Path(out), data_dir, commit=commit, say=say, on_progress=on_progress)


def measure(
    wanted: list[Cell],
    out: Path,
    data_dir: Path | None = None,
    *,
    commit: str | None = None,
    say: Callable[[str], None] = log.warning,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> list[Path]:
    """Run the seeds that the cells' files do not have, a stack at a time; a crash loses no more than a stack."""
    for cell in wanted:
        replace(cell.experiment, seeds=cell.seeds).check()
    known = in_folder(out)
    todo = [(cell, missing) for cell in wanted if (missing := missing_seeds(cell, out, known, say))]
    if there := len(wanted) - len(todo):
        say(f"{there} of {len(wanted)} cells are in {out} already")
    total = sum(len(missing) * setup.n_epochs(cell.experiment) for cell, missing in todo)
    done = 0
    loaded = Loaded(data_dir)
    commit = commit or commit_of_the_code()
    for stack in stacks(todo):
        label = f"{stack[0][0].row} ({', '.join(cell.column for cell, _ in stack)})"

        def after(epoch: Epoch, label: str = label) -> None:
            nonlocal done
            done += len(epoch.rows)
            on_progress(Progress(done, total, label, epoch))

        for cell, record in run_stack(stack, loaded, commit, say, after):
            write(path_of(cell, out), merged(cell, record, read(path_of(cell, out), cell.hash)))
    return [path_of(cell, out) for cell in wanted]


def run_stack(
    stack: list[Todo],
    loaded: "Loaded",
    commit: str | None,
    say: Callable[[str], None],
    on_epoch: Callable[[Epoch], None],
) -> list[tuple[Cell, dict[str, Any]]]:
    """What each cell of a stack adds to its file; the networks are gone when this returns."""
    dataset = loaded.get(stack[0][0])
    runs = sum(len(missing) for _, missing in stack)
    with tempfile.TemporaryDirectory() as folder:
        experiments = [
            replace(cell.experiment, seeds=missing, out=Path(folder, str(i)))
            for i, (cell, missing) in enumerate(stack)
        ]
        results = run_together(experiments, dataset, say=say, on_epoch=on_epoch)
    return [
        (cell, measurement(result, dataset, runs, commit))
        for (cell, _), result in zip(stack, results, strict=True)
    ]


# ---- what is to be run ----------------------------------------------------------------------------------------


def missing_seeds(cell: Cell, out: Path, known: list[dict], say: Callable[[str], None]) -> tuple[int, ...]:
    """Those that neither a cell's own file has nor that of another preset which has measured the same."""
    path = path_of(cell, out)
    record = taken_over(cell, out, known)
    if record is None and path.exists():
        say(f"{path} was measured in another way: it will be replaced")
    have = set() if record is None else set(record["summary"]["seeds"])
    return tuple(seed for seed in cell.seeds if seed not in have)


def stacks(todo: Iterable[Todo]) -> list[list[Todo]]:
    """Cells that may run together: alike in all but noise, τ and seeds, on the very same images."""
    together: dict[str, list[Todo]] = {}
    for cell, missing in todo:
        e = cell.experiment
        same = {f.name: getattr(e, f.name) for f in fields(Experiment) if f.name not in MAY_DIFFER}
        key = repr((same, sorted(setup.dataset_options(e).items()), sorted(cell.data.items())))
        together.setdefault(key, []).append((cell, missing))
    return list(together.values())


class Loaded:
    """The data sets that were asked for: reading one may take a minute, and a preset has no more than three."""

    def __init__(self, data_dir: Path | None):
        self.data_dir = data_dir
        self.datasets: dict[str, Dataset] = {}

    def get(self, cell: Cell) -> Dataset:
        name = cell.experiment.dataset
        options = setup.dataset_options(cell.experiment) | cell.data
        if "vectors" in options:
            options["vectors"] = find_vectors(options["vectors"], self.data_dir)
        key = repr((name, sorted(options.items())))
        if key not in self.datasets:
            self.datasets[key] = data.load(name, self.data_dir, **options)
        return self.datasets[key]


def find_vectors(name: str, data_dir: Path | None) -> Path:
    home = data.data_home(data_dir)
    for file in (name, "glove.6B.zip") if name == MEMBER else (name,):
        for folder in (home, home / "vectors", home / "glove"):
            if (folder / file).exists():
                return folder / file
    raise ValueError(f"the word vectors {name} are not in {home}: put them there, in GloVe's text format.")


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
