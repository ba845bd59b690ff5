"""The run folder: config.toml, metrics.jsonl, summary.json, and the noise that was drawn."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coteach.runs.experiment import Experiment


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


def refuse_if_taken(wanted: Path | None) -> None:
    """Raise a ValueError if something is there already; asked once before the data are loaded."""
    if wanted is None or not wanted.exists():
        return
    if not wanted.is_dir():
        raise ValueError(f"{wanted} is a file: give another folder with --out.")
    if any(wanted.iterdir()):
        raise ValueError(f"{wanted} is not empty: give another folder with --out, or remove this one.")


def default_folder(experiment: Experiment) -> Path:
    e = experiment
    share = None if e.noise_share is None else f"{e.noise_share:g}"
    parts = [e.dataset, e.method, e.noise_kind, share, e.fidelity, e.loss]
    return Path("runs") / "-".join(part for part in parts if part)


def _free(folder: Path) -> Path:
    """The folder, or the same with the first free number after it."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def write_config(folder: Path, config: dict[str, Any]) -> None:
    import tomli_w

    (folder / "config.toml").write_text(tomli_w.dumps(plain(config)), encoding="utf-8")


def append_rows(path: Path, rows: list[dict]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def drop_rows(path: Path, seed: int) -> None:
    """Take back the rows of one seed."""
    if path.exists():
        kept = [row for row in read_rows(path) if row["seed"] != seed]
        path.unlink()
        append_rows(path, kept)


def read_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    write_whole(folder / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """In one step: a reader, or a run that goes on later, sees the whole file or none."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """As TOML has it: no null, paths as text, tuples as lists."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if isinstance(value, (bool, int, float)) else str(value)


def described(experiment: Experiment) -> dict[str, Any]:
    """The experiment without where its files lie: what decides the result."""
    return {k: v for k, v in asdict(experiment).items() if k not in ("out", "data_dir")}
