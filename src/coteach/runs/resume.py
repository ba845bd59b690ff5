"""Going on with a run that was stopped: what it was, from its own folder."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from coteach.checks import one_line
from coteach.engine import Engine
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment

MAY_BE_GIVEN = ("resume", "data_dir", "tensorboard")


def stored_experiment(asked: Experiment) -> Experiment:
    """The experiment of the folder to resume; whatever else is asked for must be the same there."""
    folder = asked.resume
    assert folder is not None
    if (folder / "summary.json").exists():
        raise ValueError(f"the run in {folder} is finished: its summary.json is there.")
    stored = as_experiment(files.read_config(folder)["experiment"], folder)
    usual = Experiment()
    for f in fields(Experiment):
        wanted = getattr(asked, f.name)
        if f.name in MAY_BE_GIVEN or wanted == getattr(usual, f.name):
            continue
        there = folder if f.name == "out" else getattr(stored, f.name)
        if wanted != there:
            raise ValueError(
                f"{f.name} is {wanted}, but the run in {folder} was begun with {there}: leave it out to go on."
            )
    return replace(stored, data_dir=asked.data_dir, out=folder, resume=folder)


def as_experiment(table: dict[str, Any], folder: Path) -> Experiment:
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
    try:
        return Experiment(**given)
    except TypeError as error:
        raise ValueError(
            f"{folder}/config.toml has settings that this version does not know ({one_line(error)[:200]}): "
            "go on with the version of coteach that wrote it."
        ) from error


@dataclass(frozen=True)
class Machinery:
    """How a run was begun, so that it goes on in the same way, to the last bit."""

    engine: Engine
    device: str
    group: int
    threads: int


def stored_engine(config: dict[str, Any], folder: Path) -> Machinery:
    there = config["engine"]
    try:
        engine = Engine.from_table(there)
        return Machinery(engine, str(there["device"]), int(there["group"]), int(config["hardware"]["threads"]))
    except (KeyError, ValueError, TypeError) as error:
        raise files.NotResumable(f"{folder}/config.toml is damaged: begin anew in another folder.") from error
