"""`coteach bench`: one table, or one JSON list; what goes on meanwhile is told on stderr."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coteach.bench.lines import Line, compared, scaled
from coteach.bench.ours import Show
from coteach.bench.request import Bench
from coteach.report.screen import console

aside = Console(stderr=True, highlight=False)

SECONDS = "Seconds of training and evaluation, all runs together: the median epoch, and min-max."
COMPARED = (
    "per item: a DataLoader that makes a PIL image of each sample, in worker processes; tensors: a DataLoader of "
    "a TensorDataset; both train one pair of plain networks; ratio: the loop's seconds times runs, over ours. "
    "floor: the arithmetic at the rate of a large matrix product, plus the bytes at the rate of a large copy; "
    "share: floor over ours."
)
VARIED = {"samples": "M, samples", "batch_size": "B, batch size", "runs": "R, runs"}


def bench_command(request: Bench) -> None:
    notes: list[str] = []
    with progress_line() as show:
        lines = list((scaled if request.scaling else compared)(request, show, notes.append))
    for note in notes:
        aside.print(f"note: {note}", markup=False, soft_wrap=True)
    if request.json:
        print(json.dumps(lines, indent=1))
        return
    for table in scaling_tables(lines) if request.scaling else [comparison_table(lines)]:
        console.print(table)
    console.print(SECONDS if request.scaling else f"{SECONDS} {COMPARED}", style="dim")
    console.print(where_it_ran(lines), style="dim", markup=False)


@contextmanager
def progress_line() -> Iterator[Show]:
    """One bar that says what is measured; redrawn rarely, because drawing takes time from what it shows."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=aside, refresh_per_second=2, transient=True) as progress:
        task = progress.add_task("starting", total=1)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)


def new_table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))


def comparison_table(lines: list[Line]) -> Table:
    """Two lines a cell, so that a narrow terminal shows it all."""
    table = new_table("one epoch of ours and of two plain loops")
    for name in ("data set\nnetwork", "device\nruns"):
        table.add_column(name, no_wrap=True)
    for name in ("ours\n(min-max)", "per item\n(ratio)", "tensors\n(ratio)", "floor\n(share)", "peak\nmemory"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            f"{line['dataset']}\n{line['network']}",
            f"{line['device']}\n{line['runs']}",
            f"{figures(line['seconds_per_epoch'])}\n({spread(line)})",
            compared_cell(line["plain_seconds_per_epoch"], line["ratio"]),
            compared_cell(line["loader_seconds_per_epoch"], line["loader_ratio"]),
            f"{figures(line['floor_seconds_per_epoch'])}\n({100 * line['floor_share']:.0f} %)",
            megabytes(line["peak_memory_bytes"]),
        )
    return table


def scaling_tables(lines: list[Line]) -> Iterator[Table]:
    for dataset in dict.fromkeys(line["dataset"] for line in lines):
        for varied, name in VARIED.items():
            table = new_table(f"{dataset}, our epoch against {name}")
            for column in (name, "s/epoch", "min-max", "s/run and epoch", "µs/sample", "peak memory"):
                table.add_column(column, justify="right")
            for line in lines:
                if (line["dataset"], line["varied"]) == (dataset, varied):
                    table.add_row(
                        f"{line['value']:,}",
                        figures(line["seconds_per_epoch"]),
                        spread(line),
                        figures(line["seconds_per_run_and_epoch"]),
                        figures(1e6 * line["seconds_per_sample"]),
                        megabytes(line["peak_memory_bytes"]),
                    )
            yield table


def compared_cell(seconds: float | None, ratio: float | None) -> str:
    return "–" if seconds is None else f"{figures(seconds)}\n({ratio:.1f} ×)"


def spread(line: Line) -> str:
    return f"{figures(line['seconds_min'], 2)}-{figures(line['seconds_max'], 2)}"


def figures(number: float, n: int = 3) -> str:
    """As many figures, without the exponent that a large number would get."""
    return f"{number:,.0f}" if number >= 10**n else f"{number:.{n}g}"


def megabytes(n_bytes: int | None) -> str:
    return "–" if n_bytes is None else f"{n_bytes / 1e6:,.0f} MB"


def where_it_ran(lines: list[Line]) -> str:
    line = lines[0]
    timed = [f"{counts(lines, 'epochs_measured')} of ours"]
    if line["plain_seconds_per_epoch"] is not None:
        timed.append(f"{counts(lines, 'plain_epochs_measured')} per item")
        timed.append(f"{counts(lines, 'loader_epochs_measured')} of tensors")
    return (
        f"{line['hardware']}; coteach {line['coteach']}, torch {line['torch']}, Python {line['python']}; "
        f"threads: {counts(lines, 'threads')} for ours, {line['plain_threads']} for the plain loops; "
        f"epochs timed: {'; '.join(timed)}; "
        f"matrix product {line['matrix_product_flop_per_second'] / 1e9:,.0f} GFLOP/s, "
        f"copy {line['copy_bytes_per_second'] / 1e9:,.0f} GB/s."
    )


def counts(lines: list[Line], key: str) -> str:
    return ", ".join(dict.fromkeys(figures(line[key]) for line in lines))
