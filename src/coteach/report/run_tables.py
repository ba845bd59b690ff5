"""The tables of a report: results, known numbers, events, settings, and the commands that repeat the runs."""

import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from coteach.data import DATASETS
from coteach.names import EVENTS, LOSSES, METHODS
from coteach.networks import NETWORKS
from coteach.paper.compare import HEADER, Line, beside, hashes
from coteach.paper.presets import Cell, column_label, row_label
from coteach.report.page import Markup, element, joined, table
from coteach.report.run_files import Run
from coteach.report.run_groups import Group
from coteach.report.run_results import result_of, two_digits
from coteach.runs.experiment import OWN, Experiment
from coteach.runs.folder import PLACES

RESULTS = (
    "experiment", "seeds", "epochs", "test accuracy (%)", "best (%)", "ensemble (%)", "label precision (%)",
    "folder",
)  # fmt: skip


def results(group: Group, ids: dict[Run, str]) -> Markup:
    over = "the last ten epochs, or all if there are fewer"
    caption = f"{group.title}: mean of the networks over {over}, ± standard deviation over seeds"
    rows = [
        (element("a", label, href=f"#{ids[run]}"), *result_texts(run), element("code", run.folder.as_posix()))
        for label, run in group.runs.items()
    ]
    return table(caption, RESULTS, rows, "results")


def result_texts(run: Run) -> tuple[object, ...]:
    """As under `RESULTS`, from the seeds on."""
    r, s = result_of(run), run.summary
    if r is None:
        return "–", "–", element("b", "unfinished: no epoch yet"), "–", "–", "–"
    epochs: object = r.epochs
    mean: object = r.mean_in_words
    if s is None:
        epochs, mean = f"{r.epochs} of {run.epochs or '?'}", joined((f"{mean} ", element("b", "unfinished")))
    both = s is not None and len(run.rows[0]["test_accuracy"]) > 1
    ensemble = two_digits(s["ensemble"] if s is not None and both else None)
    return r.n, epochs, mean, two_digits(r.max), ensemble, two_digits(r.label_precision)


def took(run: Run) -> str:
    """How long, in words; nothing of an unfinished run."""
    if run.summary is None:
        return ""
    seconds = run.summary["seconds"]
    time = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.1f} minutes"
    return f"{time}, with whatever was trained together with it"


# ---- known numbers --------------------------------------------------------------------------------------------


def known_lines(runs: list[Run]) -> list[Line]:
    """Each run of a cell of the paper's beside every number that is known for that."""
    files: dict[str, list[str]] = {}
    for file, wanted in hashes().items():
        files.setdefault(wanted, []).append(file)
    records = [record for run in runs for record in records_of(run, files)]
    return [line for line in beside(records) if line.target is not None]


def records_of(run: Run, files: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """The run as `coteach reproduce` would have measured it; nothing if it is in none of its figures or tables."""
    e = replace(run.experiment, matrix=None)
    if run.summary is None or e.dataset not in DATASETS or run.experiment.matrix is not None:
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


def known_table(lines: list[Line]) -> Markup:
    caption = "Test accuracy (%) beside the numbers that are known"
    return table(caption, HEADER[1:], [line.texts()[1:] for line in lines], "known")


# ---- what went wrong, what it was -----------------------------------------------------------------------------


def events_table(groups: list[Group]) -> Markup:
    """Nothing if nothing happened."""
    rows = []
    for group in groups:
        for label, run in group.runs.items():
            for name, count in counted(run).items():
                first = next(row for row in run.rows if row["events"].get(name))
                where = f"seed {first['seed']}, epoch {first['epoch']}"
                rows.append((label, group.title, name, f"{count:,}", where))
    if not rows:
        return element("p", "Nothing went wrong: no run has an event.")
    meanings = [(name, EVENTS[name]) for name in EVENTS if any(row[2] == name for row in rows)]
    return joined(
        (
            table(
                "Events, counted over all seeds and epochs", ("experiment", "on", "event", "times", "first"), rows
            ),
            element("ul", *(element("li", element("b", name), f": {meaning}") for name, meaning in meanings)),
        )
    )


def counted(run: Run) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in run.rows:
        for name, count in row["events"].items():
            total[name] = total.get(name, 0) + count
    return {name: count for name, count in total.items() if count}


def settings(run: Run) -> Markup:
    """config.toml in columns: what was asked for, what followed, versions and hardware."""
    parts = []
    for name, values in run.config.items():
        if isinstance(values, dict) and values:
            pairs = [
                element("div", element("dt", key), element("dd", setting_text(value)))
                for key, value in values.items()
            ]
            parts.append(element("section", element("h5", name), element("dl", *pairs)))
    return element("div", *parts, class_="settings")


def setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---- again ----------------------------------------------------------------------------------------------------


def command(run: Run) -> str:
    """What repeats a run: the flags that are not usual, or Python where a command knows not the data or a name."""
    usual, e = Experiment(), run.experiment
    given = {f.name: getattr(e, f.name) for f in fields(e) if f.name not in PLACES}
    given = {name: value for name, value in given.items() if value != getattr(usual, name)}
    if unknown := of_users(e):
        return f"# first import the file that registers {' and '.join(unknown)}\n{call(given)}"
    if e.dataset == OWN:
        return call(given)
    return shlex.join(["coteach", "run", *(word for item in given.items() for word in flags(*item))])


def of_users(e: Experiment) -> list[str]:
    """The names that a command would refuse, because a user registered them in Python."""
    given = [("method", e.method, METHODS), ("network", e.network, NETWORKS)]
    given += [("loss", loss, LOSSES) for loss in dict.fromkeys((e.loss, e.warmup_loss))]
    return [f"the {what} {name!r}" for what, name, known in given if name is not None and name not in known]


def call(given: dict[str, Any]) -> str:
    own = given.get("dataset") == OWN
    arguments = [f"{name}={as_python(value)}" for name, value in given.items() if not (own and name == "dataset")]
    return f"coteach.run(coteach.Experiment({', '.join(arguments)}){', data' * own})"


def as_python(value: Any) -> str:
    return repr(value if isinstance(value, (bool, int, float, tuple)) else str(value))


def flags(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else [flag.replace("--", "--no-", 1)]
    return [flag, *map(str, value if isinstance(value, tuple) else [value])]
