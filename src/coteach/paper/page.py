"""The page of a preset, OUT/NAME/README.md: its figures, our numbers, the known ones, and what they cost."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from coteach.files import write_atomically
from coteach.names import MEASURES
from coteach.paper.compare import compared, markdown, sources
from coteach.paper.figures import CellRecords, preset_figures
from coteach.paper.presets import asked_for

FAR_OFF = 3.0  # points from the median: a seed this far off is named, with all others of its cell
NEAR_CHANCE = 1.5  # times the accuracy of guessing: the run has learnt nothing

CellText = Callable[[dict[str, Any]], str]

ENDS = (  # the heading, what of a run, and its digits
    ("Ensemble, last epoch: test accuracy (%) of the networks' mean softmax", "last", 2),
    ("Ensemble, mean of the last ten epochs (%)", "ensemble", 2),
    ("Average precision of finding the wrong labels, from 0 to 1, after the last epoch", "average_precision", 4),
)


def write_preset_page(name: str, epochs: int | None, records: CellRecords, folder: Path) -> list[Path]:
    """The page and its figures; those of another number of epochs have other names, and leave the page alone."""
    suffix = "" if epochs is None else f"-epochs-{epochs}"
    figures = preset_figures(records, folder, name + suffix)
    path = folder / f"README{suffix}.md"
    write_atomically(path, "\n".join(page_lines(name, epochs, records, figures)) + "\n")
    return [path, *figures]


def page_lines(name: str, epochs: int | None, records: CellRecords, figures: list[Path]) -> Iterator[str]:
    yield f"# {records[0]['title']}\n"
    yield f"`{command_for(name, epochs, records)}`, {cells_measured(name, epochs, records)}.\n"
    for note in dict.fromkeys(r["data"]["note"] for r in records if r["data"]["note"]):
        yield f"Data: {note}.\n"
    for figure in figures:
        yield f"![{figure.stem}]({figure.name})\n"
    yield "## Test accuracy (%), mean ± standard deviation over seeds (n)\n"
    yield "Mean of the networks, over the last ten epochs.\n"
    yield from tables(records, accuracy_text)
    if odd := [r for r in records if is_odd(r)]:
        yield f"Cells with a seed more than {FAR_OFF:g} points from their median, or near guessing:\n"
        yield "| | | each seed |\n| --- | --- | --- |"
        for record in odd:
            yield f"| {record['row']} | {record['column']} | {each_seed(record)} |"
        yield ""
    yield from ends(records)
    if records[0]["show"] != "test_accuracy":
        yield f"## {MEASURES[records[0]['show']][0].capitalize()}, mean over the last ten epochs\n"
        yield from tables(records, shown_text)
    yield "## Label precision (%), over the last ten epochs (n: seeds that learn from any sample there)\n"
    yield from tables(records, partial(runs_text, key="label_precision"))
    lines = compared(records)
    if any(line.target is not None for line in lines):
        yield "## Beside the known numbers\n"
        yield markdown([line for line in lines if line.target is not None])
        if any(line.within is not None for line in lines):
            yield "Within: nearer than the bar, or else than the larger spread over seeds, where one is known.\n"
        yield from (f"- {text}" for text in sources(lines))
        yield ""
    yield "## What it took\n"
    yield from (f"- {text}" for text in costs(records))


def ends(records: CellRecords) -> Iterator[str]:
    """How the trainings ended, of runs that say so; of a measure that none of them has there is no table."""
    runs = [run for record in records for run in record["runs"] if run.get("last") is not None]
    for title, key, digits in ENDS:
        if any(run.get(key) is not None for run in runs):
            yield f"## {title}\n"
            yield from tables(records, partial(runs_text, key=key, digits=digits))


def command_for(name: str, epochs: int | None, records: CellRecords) -> str:
    """What measures these cells; read off them, for they may come from several calls."""
    first = {cell.hash: cell.seeds for cell in asked_for(name, None, epochs)}
    then = {cell.hash: cell.seeds for cell in asked_for(name, None, epochs, then=True)}
    have = {r["hash"]: tuple(r["summary"]["seeds"]) for r in records}
    words = ["coteach reproduce", name]
    more = any(
        cell not in first or set(first[cell]) < set(seeds) <= set(then[cell]) for cell, seeds in have.items()
    )
    usual = then if more else first
    if len(set(have.values())) == 1 and any(seeds != usual[cell] for cell, seeds in have.items()):
        words.append("--seeds " + " ".join(map(str, next(iter(have.values())))))
    words += [f"--epochs {epochs}"] if epochs is not None else []
    return " ".join(words + (["--all"] if more else []))


def cells_measured(name: str, epochs: int | None, records: CellRecords) -> str:
    have = {r["hash"] for r in records}
    first = {cell.hash for cell in asked_for(name, None, epochs)}
    text = f"{len(have & first)} of {len(first)} cells"
    later = len(asked_for(name, None, epochs, then=True)) - len(first)
    return text + (f", and {len(have - first)} of {later} that `--all` adds" if later else "")


def tables(records: CellRecords, text: CellText) -> Iterator[str]:
    """A table for each data set, or for all whose labels people gave: rows and columns as the preset has them."""
    for name in dict.fromkeys(table_of(r) for r in records):
        some = [r for r in records if table_of(r) == name]
        columns = list(dict.fromkeys(r["column"] for r in some))
        texts = {(r["row"], r["column"]): text(r) for r in some}
        yield "| | " + " | ".join(columns) + " |"
        yield "| --- |" + " ---: |" * len(columns)
        for row in dict.fromkeys(r["row"] for r in some):
            yield f"| {row} | " + " | ".join(texts.get((row, column), "") for column in columns) + " |"
        yield ""


def table_of(record: dict[str, Any]) -> str:
    s = record["summary"]
    return s["noise"] if s["noise"] == "human" else s["dataset"]


def spread_text(values: list[float], digits: int = 2) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread} ({len(values)})"


def accuracy_text(record: dict[str, Any]) -> str:
    return spread_text(record["summary"]["mean_per_seed"])


def runs_text(record: dict[str, Any], key: str, digits: int = 2) -> str:
    values = [run[key] for run in record["runs"] if run.get(key) is not None]
    return spread_text(values, digits) if values else "–"


def shown_text(record: dict[str, Any]) -> str:
    """The curve of the figure at its end."""
    ends = [run["curves"][record["show"]][-10:] for run in record["runs"]]
    values = [fmean(known) for end in ends if (known := [value for value in end if value is not None])]
    return spread_text(values, 4) if values else "–"


def is_odd(record: dict[str, Any]) -> bool:
    means = record["summary"]["mean_per_seed"]
    return any(abs(mean - median(means)) > FAR_OFF or learnt_nothing(mean, record) for mean in means)


def learnt_nothing(mean: float, record: dict[str, Any]) -> bool:
    return mean < NEAR_CHANCE * 100 / record["data"]["classes"]


def each_seed(record: dict[str, Any]) -> str:
    return ", ".join(
        f"{run['seed']}: {run['mean']:.2f}" + (" (guesses)" if learnt_nothing(run["mean"], record) else "")
        for run in record["runs"]
    )


def costs(records: CellRecords) -> list[str]:
    """The time of all runs by hardware, stacks shared out to their runs."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for run in (run for record in records for run in record["runs"]):
        seconds.setdefault((run["hardware"], run["versions"]["torch"]), []).append(run["seconds"])
    return [
        f"{sum(each) / 60:.1f} minutes of {hardware}, torch {torch}: {len(each)} run{'s' * (len(each) > 1)}"
        for (hardware, torch), each in seconds.items()
    ]
