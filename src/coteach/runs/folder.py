"""The run folder: config.toml, files of rows such as metrics.jsonl, and summary.json."""

import hashlib
import json
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from coteach.checks import one_line
from coteach.files import is_unfinished, refuse_other_than_file, regular_file, write_atomically
from coteach.names import HELD_OUT
from coteach.runs.experiment import Experiment

LOCK = ".lock"
EARLIER_STREAM = "1.17"  # the noise_stream of runs from before there was a choice
PATH_FIELDS = ("out", "data_dir", "resume", "tensorboard")  # of an experiment: where files lie decides no result
MAY_BE_GIVEN = ("resume", "data_dir", "tensorboard")  # to a run that goes on
ROWS = ("estimate.jsonl", "metrics.jsonl", "losses.jsonl")  # files that grow from epoch to epoch
FILES = (LOCK, ".write", "config.toml", "summary.json", "noise.safetensors", "checkpoint.safetensors", *ROWS)
FOLDERS = ("networks", "opinions")  # with a file for each seed


class NotResumable(ValueError):
    """What a run left behind is damaged, or was begun with something else."""


def claim(experiment: Experiment) -> Path:
    return claim_folder(experiment.out, default_folder(experiment))


def claim_folder(wanted: Path | None, otherwise: Path) -> Path:
    """Make a folder to write to, or raise a ValueError if it cannot be written or is not empty."""
    refuse_if_taken(wanted)
    folder = wanted if wanted is not None else _free(otherwise)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"cannot write to {folder} ({error.strerror}): give another folder with --out."
        ) from error
    return folder


def refuse_if_taken(wanted: Path | None, data_dir: Path | None = None) -> None:
    """Raise a ValueError if something is there already; asked once before the data are loaded."""
    if wanted is None or not wanted.exists():
        return
    if not wanted.is_dir():
        raise ValueError(f"{wanted} is a file: give another folder with --out.")
    if any(path.name != LOCK and not is_unfinished(path) for path in wanted.iterdir()):
        unfinished = (wanted / "config.toml").exists() and not (wanted / "summary.json").exists()
        way = f"go on with `{resuming(wanted, data_dir)}`, give" if unfinished else "give"
        raise ValueError(f"{wanted} is not empty: {way} another folder with --out, or remove this one.")


def resuming(folder: Path, data_dir: Path | None) -> str:
    """The command that goes on with a run, for the shell; its folder does not say where the data lie."""
    where = [] if data_dir is None else ["--data-dir", str(data_dir)]
    return shlex.join(["coteach", "run", "--resume", str(folder), *where])


def default_folder(experiment: Experiment) -> Path:
    e = experiment
    share = None if e.noise_share is None else f"{e.noise_share:g}"
    kind = e.noise_kind if e.labels is None else e.labels.stem
    fidelity = "modern" if e.is_modern and e.fidelity == "paper" else e.fidelity
    parts = [
        e.dataset,
        e.method,
        None if e.comes_labelled else kind,
        share,
        fidelity,
        e.loss_words.replace(" ", "-"),
    ]
    return Path("runs") / "-".join(part for part in parts if part)


def _free(folder: Path) -> Path:
    """The folder, or the same with the first free number after it."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process writes to; the system frees the lock of a process however it ends."""
    from filelock import FileLock, Timeout

    path = folder / LOCK
    refuse_other_than_file(path)
    lock = FileLock(path, timeout=0.2, poll_interval=0.05)  # its owner may just be removing it
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(
            f"another process is writing to {folder}: wait for it, or give another folder."
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may have gone
            path.unlink()
        lock.release()


def write_config(folder: Path, config: dict[str, Any]) -> None:
    import tomli_w

    write_atomically(folder / "config.toml", tomli_w.dumps(plain(config)))


def read_config(folder: Path) -> dict[str, Any]:
    """What a run was begun with."""
    path = folder / "config.toml"
    if not path.exists():
        raise ValueError(f"there is no run in {folder}, for it has no config.toml: give a run's own folder.")
    try:
        config = tomllib.loads(regular_file(path).read_text("utf-8"))
        if not all(isinstance(config[name], dict) for name in ("experiment", "engine", "hardware")):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:  # a number may be too long, too
        raise NotResumable(f"{path} is damaged: begin anew in another folder.") from error
    config["experiment"].setdefault("noise_stream", EARLIER_STREAM)
    if "held_out" not in config.get("plan", {}) and HELD_OUT.get(config["experiment"].get("method")):
        config["experiment"].setdefault("held_out", 0.0)  # as it was before there was such a thing
    return config


def append_rows(path: Path, rows: list[dict]) -> None:
    refuse_other_than_file(path)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def drop_rows(path: Path, seed: int) -> None:
    """Take back the rows of one seed."""
    if path.exists():
        kept = [line for line in path.read_text("utf-8").splitlines() if json.loads(line)["seed"] != seed]
        write_atomically(path, "".join(f"{line}\n" for line in kept))


def read_rows(path: Path, torn: bool = False) -> list[dict]:
    """All rows; none of a file that is not there. The last one of a `torn` file is left out if it is not whole."""
    if not path.exists():
        return []
    try:
        text = regular_file(path).read_text("utf-8")
        return [dict(json.loads(line)) for line in (text[: text.rfind("\n") + 1] if torn else text).splitlines()]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it must have a row of JSON on each line.") from error


def last_ten(rows: list[dict]) -> tuple[float, float]:
    """Mean and maximum over the last ten epochs of the networks' mean test accuracy, as the paper's tables."""
    means = [sum(row["test_accuracy"]) / len(row["test_accuracy"]) for row in rows[-10:]]
    return sum(means) / len(means), max(means)


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")


def summary_digests(folder: Path, summary: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of each file of a finished run, and of the summary without its seconds.

    Networks, which are larger, have only their own checksums.
    """
    facts = {name: value for name, value in summary.items() if name not in ("seconds", "sha256")}
    names = ["config.toml", "noise.safetensors", *ROWS]
    names += [path.relative_to(folder).as_posix() for path in sorted(folder.glob("opinions/*"))]
    there = [name for name in names if (folder / name).is_file()]
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in there}
    return digests | {"summary.json": hashlib.sha256(json.dumps(facts).encode()).hexdigest()}


def refuse_changed(folder: Path, summary: dict[str, Any]) -> None:
    """Raise a ValueError if a finished run is not as it was; summaries of before 0.2 say nothing of it."""
    if not isinstance(told := summary.get("sha256"), dict):
        return
    found = summary_digests(folder, summary)
    for name in told | found:
        if told.get(name) != found.get(name):
            raise ValueError(f"{folder / name} is damaged, or was changed since the run: run it anew.")


def plain(value: Any) -> Any:
    """As TOML has it: no null, paths as text, tuples as lists."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if isinstance(value, (bool, int, float)) else str(value)


def described(experiment: Experiment) -> dict[str, Any]:
    """The experiment without where its files lie: what decides the result."""
    return {k: v for k, v in asdict(experiment).items() if k not in PATH_FIELDS}


# ---- going on with a run that was stopped ----------------------------------------------------------------------


def refuse_links(folder: Path) -> None:
    """Raise a ValueError if a link, or a folder, is in the place of a file that a run reads or writes."""
    for inside in (folder / name for name in FOLDERS):
        if inside.is_symlink() or (inside.exists() and not inside.is_dir()):
            raise NotResumable(f"{inside} is a link or a file, where a folder is to be: begin anew in another.")
    for path in [folder / name for name in FILES] + [
        path for name in FOLDERS for path in folder.glob(f"{name}/*")
    ]:
        try:
            refuse_other_than_file(path)
        except ValueError as error:
            raise NotResumable(str(error)) from error


def stored_experiment(asked: Experiment) -> Experiment:
    """The experiment of the folder to resume; whatever else is asked for must be the same there."""
    folder = asked.resume
    assert folder is not None
    refuse_links(folder)
    if (folder / "summary.json").exists():
        raise ValueError(f"the run in {folder} is finished: its summary.json is there.")
    stored = as_experiment(read_config(folder)["experiment"], folder)
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
