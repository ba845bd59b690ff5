"""What the runs of a report came to, in words and numbers: for the tables of its page and those beside figures."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coteach.data import DATASETS
from coteach.files import as_csv, write_atomically
from coteach.names import FLAG_WORDS, LOSS_MEANINGS, METHOD_MEANINGS
from coteach.networks import NETWORKS
from coteach.paper.compare import Comparison, compared, hashes
from coteach.paper.presets import Cell, column_label, row_label
from coteach.report.curves import curve
from coteach.report.groups import Group
from coteach.report.read import Run
from coteach.runs.experiment import OWN, Experiment
from coteach.runs.folder import PATH_FIELDS

# ---- results --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunResult:
    """The result of n seeds, in per cent over the last ten epochs; None if unknown. `epochs` are those reached."""

    n: int
    epochs: int
    mean: float
    std: float | None
    max: float
    label_precision: float | None

    @property
    def mean_in_words(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


def result_of(run: Run) -> RunResult | None:
    """The result of a run, also of an unfinished one; None before its first epoch."""
    s = run.summary
    if s is None:
        return so_far(run)
    return RunResult(len(s["seeds"]), s["epochs"], s["mean"], s["std"], s["max"], s["label_precision"])


def so_far(run: Run) -> RunResult | None:
    epochs, values = curve(run, "test_accuracy")
    if not epochs:
        return None
    last, precision = values[:, -10:], curve(run, "label_precision")[1][:, -10:]
    return RunResult(
        len(last),
        epochs[-1],
        float(last.mean()),
        float(last.mean(1).std(ddof=1)) if len(last) > 1 else None,
        float(last.max(1).mean()),
        float(np.nanmean(precision)) if np.isfinite(precision).any() else None,
    )


def two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def took(run: Run) -> str:
    """How long, in words; nothing of an unfinished run."""
    if run.summary is None:
        return ""
    seconds = run.summary["seconds"]
    time = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.1f} minutes"
    time = "1 second" if seconds < 1.5 else time
    return f"Took {time}, with whatever was trained together with it"


# ---- known numbers --------------------------------------------------------------------------------------------


def known_lines(runs: list[Run]) -> list[Comparison]:
    """Each run of a cell of the paper's beside every number that is known for that."""
    files: dict[str, list[str]] = {}
    for file, wanted in hashes().items():
        files.setdefault(wanted, []).append(file)
    records = [record for run in runs for record in records_of(run, files)]
    return [line for line in compared(records) if line.target is not None] if records else []


def records_of(run: Run, files: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """The run as `coteach reproduce` would have measured it; nothing if it is in none of its figures or tables."""
    e = replace(run.experiment, matrix=None)
    own = run.experiment.matrix is not None or run.experiment.labels is not None
    if run.summary is None or e.dataset not in DATASETS or own:
        return
    try:
        e.check()
        cell = Cell("", e, e.seeds, "", row_label(e), column_label(e, several=True))
        fitting = files.get(cell.hash, [])
    except (ValueError, TypeError, KeyError):
        return  # settings of another version, which were never published
    for file in fitting:
        summary = cell.address | {key: run.summary[key] for key in ("seeds", "mean", "std")}
        summary["experiment"] = file.partition("/")[0]
        yield {"file": file, "hash": cell.hash, "summary": summary, "row": cell.row, "column": cell.column}


# ---- what went wrong, what it was -----------------------------------------------------------------------------


class Event(NamedTuple):
    """How often it happened to a run, over all seeds and epochs, and where first."""

    label: str
    group: str
    name: str
    times: str
    first: str


def event_rows(groups: list[Group]) -> list[Event]:
    found = []
    for group in groups:
        for label, run in group.runs.items():
            for name, count in event_counts(run).items():
                first = next(row for row in run.rows if row["events"].get(name))
                where = f"seed {first['seed']}, epoch {first['epoch']}"
                found.append(Event(label, group.title, name, f"{count:,}", where))
    return found


def event_counts(run: Run) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in run.rows:
        for name, count in row["events"].items():
            total[name] = total.get(name, 0) + count
    return {name: count for name, count in total.items() if count}


def settings(run: Run) -> dict[str, dict[str, str]]:
    """The tables of config.toml: what was asked for, what followed, versions and hardware."""
    return {
        name: {key: setting_text(value) for key, value in values.items()}
        for name, values in run.config.items()
        if isinstance(values, dict) and values
    }


def setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---- the command that repeats a run ---------------------------------------------------------------------------


def command(run: Run) -> str:
    """What repeats a run: the flags that are not usual, or Python where a command knows not the data or a name."""
    usual, e = Experiment(), run.experiment
    given = {f.name: getattr(e, f.name) for f in fields(e) if f.name not in PATH_FIELDS}
    given = {name: value for name, value in given.items() if value != getattr(usual, name)}
    if unknown := names_of_users(e):
        return f"# first import the file that registers {' and '.join(unknown)}\n{call(given)}"
    if e.dataset == OWN:
        return call(given)
    return shlex.join(["coteach", "run", *(word for item in given.items() for word in flags(*item))])


def names_of_users(e: Experiment) -> list[str]:
    """The names that a command would refuse, because a user registered them in Python."""
    given = [("method", e.method, METHOD_MEANINGS), ("network", e.network, NETWORKS)]
    given += [("loss", loss, LOSS_MEANINGS) for loss in dict.fromkeys((e.loss, e.warmup_loss))]
    return [f"the {what} {name!r}" for what, name, known in given if name is not None and name not in known]


def call(given: dict[str, Any]) -> str:
    own = given.get("dataset") == OWN
    arguments = [f"{name}={as_python(value)}" for name, value in given.items() if not (own and name == "dataset")]
    return f"coteach.run(coteach.Experiment({', '.join(arguments)}){', data' * own})"


def as_python(value: Any) -> str:
    return repr(value if isinstance(value, (bool, int, float, tuple)) else str(value))


def flags(name: str, value: Any) -> list[str]:
    flag = "--" + FLAG_WORDS.get(name, name).replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else [flag.replace("--", "--no-", 1)]
    return [flag, *map(str, value if isinstance(value, tuple) else [value])]


# ---- beside figures: table.csv for programs, table.md for texts -----------------------------------------------

CSV_COLUMNS = ("data", "method", "noise", "n", "epochs", "mean", "std", "max", "label_precision")
MD_HEADER = ("data", "method", "noise", "n", "epochs", "test accuracy (%)", "max (%)", "label precision (%)")
MD_NOTE = (
    "Test accuracy: mean of the networks over the last ten epochs, or all if there are fewer, ± standard "
    "deviation over n seeds. Max: the best of these epochs, mean over seeds."
)

TableLine = tuple[str, str, str, RunResult]


def write_tables(groups: list[Group], folder: Path) -> list[Path]:
    """Both tables; files of these names that are not ours are left alone."""
    lines = list(table_lines(groups))
    texts = {
        "table.csv": as_csv([CSV_COLUMNS, *map(csv_cells, lines)]),
        "table.md": "".join(map(md_row, [MD_HEADER, ["---"] * 3 + ["---:"] * 5, *map(md_cells, lines)]))
        + f"\n{MD_NOTE}\n",
    }
    paths = [folder / name for name in texts]
    for path, content in zip(paths, texts.values(), strict=True):
        refuse_other_file(path, content.partition("\n")[0])
    for path, content in zip(paths, texts.values(), strict=True):
        write_atomically(path, content)
    return paths


def table_lines(groups: list[Group]) -> Iterator[TableLine]:
    for group in groups:
        for label, run in group.runs.items():
            if result := result_of(run):
                yield group.data, label if run.summary else f"{label}, unfinished", group.noise, result


def csv_cells(line: TableLine) -> Sequence[object]:
    *names, r = line
    values = (r.mean, r.std, r.max, r.label_precision)
    return *names, r.n, r.epochs, *("" if value is None else round(value, 4) for value in values)


def md_cells(line: TableLine) -> Sequence[object]:
    *names, r = line
    return *names, r.n, r.epochs, r.mean_in_words, two_digits(r.max), two_digits(r.label_precision)


def md_row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |\n"


def refuse_other_file(path: Path, first_line: str) -> None:
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(first_line.encode())):
        raise ValueError(f"{path} is there, and no table of ours: give another folder with --out, or remove it.")
