"""Run folders as a report reads them, checked so far that everything in them can be shown. No torch.

M samples, C classes.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from coteach.checks import is_whole
from coteach.files import regular_file
from coteach.names import LOSS_BINS
from coteach.noise.record import Noise
from coteach.runs.experiment import Experiment
from coteach.runs.folder import FILES, FOLDERS, read_config, read_rows, refuse_changed
from coteach.tensor_files import refuse_damaged

LARGEST = 10**12


@dataclass(frozen=True, eq=False)
class Opinions:
    """quality (M,) from 0 to 1, low where a label is doubted, and the class (M,) it would have to be instead."""

    quality: np.ndarray
    suggested: np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """What a run folder holds; without a summary it is not finished.

    Attributes
    ----------
    rows : list of the rows of metrics.jsonl
    losses : list of the rows of losses.jsonl, or None if the run kept no ledger
    opinions : quality and suggested label of every training sample by seed; empty without a ledger
    """

    folder: Path
    experiment: Experiment
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    summary: dict[str, Any] | None
    noise: Noise | None
    losses: list[dict[str, Any]] | None
    opinions: dict[int, Opinions]

    @property
    def epochs(self) -> int | None:
        """As many as were asked for, where the folder says it."""
        planned = self.config.get("plan", {}).get("epochs")
        return planned if is_whole(planned) else None

    @property
    def truth_known(self) -> bool:
        """Whether it is known which labels are wrong: not of labels as they came."""
        return self.noise is not None and self.noise.kind not in ("none", "clean")


# ---- finding --------------------------------------------------------------------------------------------------


def find_runs(places: tuple[str, ...]) -> tuple[list[Path], list[Path]]:
    """The run folders that are named, or finished and in a folder that is; and the unfinished ones left out."""
    found: dict[Path, Path] = {}
    unfinished: list[Path] = []
    for place in map(Path, places):
        if not place.is_dir():
            raise ValueError(f"there is no folder {place}: give a run's folder, or one with runs in it.")
        if (place / "config.toml").exists():
            found.setdefault(place.resolve(), place)
            continue
        inside = list(runs_under(place))
        finished = [folder for folder in inside if (folder / "summary.json").exists()]
        unfinished += [folder for folder in inside if folder not in finished]
        if not finished:
            way = (
                f"name the unfinished {inside[0]} itself"
                if inside
                else "give a run's folder, or one with runs in it"
            )
            raise ValueError(f"there is no finished run in {place}: {way}.")
        for folder in finished:
            found.setdefault(folder.resolve(), folder)
    return list(found.values()), unfinished


def runs_under(place: Path) -> Iterator[Path]:
    for path in sorted(place.rglob("config.toml")):
        hidden = any(part.startswith(".") for part in path.relative_to(place).parts)
        if not hidden and any((path.parent / name).exists() for name in ("metrics.jsonl", "summary.json")):
            yield path.parent


# ---- reading --------------------------------------------------------------------------------------------------


def read_run(folder: Path) -> Run:
    """All that is there; a ValueError names what is damaged."""
    for name in (*FILES, *FOLDERS):
        if (folder / name).is_symlink() and not (folder / name).exists():  # else it would pass for a missing one
            raise ValueError(f"{folder / name} is a link that leads nowhere: put the file itself in its place.")
    config = read_config(folder)
    experiment = experiment_of(config["experiment"], folder / "config.toml")
    finished = (folder / "summary.json").exists()
    if not finished and (folder / "networks").is_dir() and not (folder / "checkpoint.safetensors").exists():
        raise ValueError(f"{folder / 'summary.json'} is missing, though the run has ended: put it back.")
    rows = read_checked_rows(folder / "metrics.jsonl", METRICS_ROW, torn=not finished)
    summary = read_summary(folder / "summary.json") if finished else None
    if summary is not None:
        refuse_changed(folder, summary)
    if summary is not None and not rows:
        raise ValueError(f"{folder / 'metrics.jsonl'} is damaged: the run is finished, but no epoch is in it.")
    noise_file = folder / "noise.safetensors"
    noise = Noise.load(noise_file) if noise_file.exists() else None
    told = config.get("data", {}).get("noise_sha256")
    if noise is not None and told not in (None, noise.sha256):
        raise ValueError(f"{noise_file} is of another run than its config.toml: put its own in its place.")
    return Run(
        folder,
        experiment,
        config,
        rows,
        summary,
        noise,
        read_losses(folder, torn=not finished),
        {} if noise is None else read_opinions(folder, noise),
    )


def experiment_of(table: dict[str, Any], path: Path) -> Experiment:
    """As it was begun; settings that this version does not know are left out."""
    known = {f.name for f in fields(Experiment)}
    given: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in table.items() if name in known
    }
    experiment = Experiment(**given)
    texts = [getattr(experiment, name) for name in ("dataset", "method", "fidelity", "loss", "noise", "network")]
    sound = all(text is None or isinstance(text, str) for text in texts) and is_known_number(experiment.tau)
    if not (sound and isinstance(experiment.seeds, tuple) and all(map(is_seed, experiment.seeds))):
        raise ValueError(f"{path} is damaged: its settings are of the wrong type.")
    return experiment


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST


def is_known_number(value: Any) -> bool:
    return value is None or is_number(value)


def is_count(value: Any) -> bool:
    return is_whole(value) and abs(value) < LARGEST


def is_seed(value: Any) -> bool:
    return is_whole(value) and abs(value) < 2**63


def is_seeds(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_seed, value))


def is_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_number, value))


def is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_count, value.values()))


def is_string(value: Any) -> bool:
    return isinstance(value, str)


FieldChecks = dict[str, Callable[[Any], bool]]

METRICS_ROW: FieldChecks = {
    "seed": is_seed,
    "epoch": is_count,
    "test_accuracy": is_numbers,
    "label_precision": is_known_number,
    "disagreement": is_known_number,
    "total_variation": is_known_number,
    "keep_rate": is_known_number,
    "events": is_counts,
}
SUMMARY: FieldChecks = {
    "mean": is_number,
    "std": is_known_number,
    "max": is_number,
    "ensemble": is_number,
    "label_precision": is_known_number,
    "noise": is_string,
    "rate": is_known_number,
    "realised_rate": is_known_number,
    "epochs": is_count,
    "seeds": is_seeds,
    "seconds": is_number,
    "hardware": is_string,
    "torch": is_string,
}


def read_checked_rows(path: Path, table: FieldChecks, torn: bool = False) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; a last one that is not whole is left out of a `torn` file."""
    rows = read_rows(path, torn)
    for number, row in enumerate(rows, 1):
        check_fields(path, f"line {number}", row, table)
    return rows


def read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(regular_file(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it must be JSON.") from error
    check_fields(path, "it", summary, SUMMARY)
    return summary


def check_fields(path: Path, where: str, found: Any, table: FieldChecks) -> None:
    wrong = [name for name, sound in table.items() if not (isinstance(found, dict) and sound(found.get(name)))]
    if wrong:
        raise ValueError(f"{path} is damaged: {where} has no sound {wrong[0]}.")


def read_losses(folder: Path, torn: bool) -> list[dict[str, Any]] | None:
    """The rows of losses.jsonl, or None if there is none; a last one that is not whole is left out if `torn`."""
    path = folder / "losses.jsonl"
    if not path.exists():
        return None
    rows = read_rows(path, torn)
    if not all(map(is_row, rows)):
        raise ValueError(f"{path} is damaged: each line must have the histograms of one epoch.")
    return rows


def is_row(row: dict[str, Any]) -> bool:
    histograms = (row.get("right"), row.get("wrong"))
    return is_seed(row.get("seed")) and is_count(row.get("epoch")) and all(map(is_histogram, histograms))


def is_histogram(counts: Any) -> bool:
    return (
        isinstance(counts, list)
        and len(counts) == LOSS_BINS
        and all(is_whole(n) and 0 <= n < LARGEST for n in counts)
    )


def read_opinions(folder: Path, noise: Noise) -> dict[int, Opinions]:
    """By seed; none if the run kept no ledger."""
    found = {}
    for path in sorted((folder / "opinions").glob("seed-*.safetensors")):
        try:
            refuse_damaged(path)
            seed, tensors = int(path.stem.removeprefix("seed-")), load(path.read_bytes())
            found[seed] = Opinions(tensors["quality"], tensors["suggested"])
            check_opinions(found[seed], len(noise.labels), len(noise.matrix))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged: it must have a quality and a class of each label.") from error
    return dict(sorted(found.items()))


def check_opinions(opinions: Opinions, samples: int, classes: int) -> None:
    quality, suggested = opinions.quality, opinions.suggested
    if not (
        quality.shape == suggested.shape == (samples,)
        and quality.dtype.kind == "f"
        and suggested.dtype.kind == "i"
    ):
        raise ValueError("shape or type")
    if samples and not (np.isfinite(quality).all() and suggested.min() >= 0 and suggested.max() < classes):
        raise ValueError("value")
