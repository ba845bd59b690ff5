"""`coteach reproduce`: the list, the progress, and at the end the comparison. Torch is loaded only to train."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table

from coteach.cli.run import progress_note
from coteach.names import Flag
from coteach.paper import compare
from coteach.paper.compare import Comparison
from coteach.paper.measured import in_folder, path_of, preset_records, read_cell, taken_over
from coteach.paper.presets import Cell, asked_for, preset_names, refuse_too_few
from coteach.paper.running import LOCAL_RAY, check_minutes, check_workers
from coteach.terminal import console, progress_bars

REPRODUCE_EXAMPLES = """
examples:
  # which figures and tables there are, and what is measured already
  coteach reproduce
  # one of them: about 5 minutes of an H200
  coteach reproduce mnist
  # a quick look at it, and the tables of what is there
  coteach reproduce mnist --epochs 2 --seeds 1
  coteach reproduce mnist --only-report
  # every figure and page anew, and those of all together; nothing is trained
  coteach reproduce --only-report
  # a part of it, by five processes that share the GPUs
  coteach reproduce ablation --cells cifar10-coteaching --processes 5
  # what can be measured in nine minutes, and then the rest
  coteach reproduce human --minutes 9
"""

MARKS = "✓ nearer than the bar, or else than the larger spread over seeds; ✗ farther; no mark: no spread known"


@dataclass(frozen=True)
class Reproduce:
    """Measure a figure or table of the paper, and set it beside the known numbers."""

    name: Annotated[str | None, Flag("[NAME]", "none", placed=True)] = None
    """Figure or table to measure, as far as it is missing; without a name all are only listed."""
    seeds: Annotated[tuple[int, ...] | None, Flag("N [N ...]", "as many as the figure or table has")] = None
    """Seeds of the random numbers in training, one run each; those measured before are kept."""
    epochs: Annotated[int | None, Flag("N", "the paper's")] = None
    """How many epochs to train. Results of another number than the paper's go to files of their own."""
    cells: Annotated[str | None, Flag("TEXT", "all")] = None
    """Measure only cells of the table with this in their names, such as coteaching_plus or pair-0.45."""
    all: bool = False
    """Measure all cells and seeds, also those that can wait."""
    only_report: bool = False
    """Do not train: draw the figure and the tables of what was measured. Without a name, do so for all, and draw
    overview.svg and default.svg."""
    out: Path = Path("results")
    """Folder of the results; what it holds is not measured again."""
    device: Annotated[str, Flag("NAME", "auto, a GPU if there is one")] = "auto"
    """Where to train: auto, cpu, cuda or cuda:1."""
    compile: Annotated[Literal["auto", "yes", "no"], Flag("{yes,no}", "yes for long trainings on a GPU")] = "auto"
    """Whether torch.compile fuses the kernels of a step, which takes half a minute."""
    processes: Annotated[str | None, Flag("{N,auto}", "this one; auto: one for each GPU, or core")] = None
    """Processes that share the work: spread over the GPUs, or with one thread each."""
    ray: Annotated[
        str | None, Flag("[ADDRESS]", "no; without an address, Ray on this machine", alone=LOCAL_RAY)
    ] = None
    """Spread the work over the machines of a Ray cluster."""
    minutes: Annotated[float | None, Flag("N", "no limit")] = None
    """Begin no cells that would take longer; the same command measures the others."""
    data_dir: Annotated[Path | None, Flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the downloaded data files."""


def reproduce_command(asked: Reproduce) -> None:
    """Measure what is missing, then report all that is there, be it of this call or of earlier ones."""
    if asked.name is None:
        (report_all if asked.only_report else list_presets)(asked)
        return
    if not asked.only_report:
        refuse_too_few(asked.name, asked.epochs, then=asked.all, only=asked.cells)
        check_workers(asked.processes, asked.ray, asked.device)
        check_minutes(asked.minutes)
    wanted = asked_for(
        asked.name,
        asked.seeds,
        asked.epochs,
        asked.device,
        compile_steps=asked.compile,
        then=asked.all,
        only=asked.cells,
    )
    for cell in wanted:
        replace(cell.experiment, seeds=cell.seeds).check()  # before torch is loaded
    known = in_folder(asked.out)
    for cell in asked_for(asked.name, None, asked.epochs, then=True):
        taken_over(cell, asked.out, known)  # what was measured for another figure
    missing = [cell for cell in wanted if not is_there(cell, asked.out)]
    if missing and not asked.only_report:
        train_missing(asked, asked.name)
    else:
        console.print(f"{len(wanted) - len(missing)} of {len(wanted)} cells are in {asked.out}", markup=False)
    report(asked.name, asked.epochs, asked.out)


def list_presets(asked: Reproduce) -> None:
    if asked.ray not in (None, LOCAL_RAY):
        raise ValueError(f"nothing is named to be measured: put {asked.ray} before --ray, if it is that.")
    table = Table("name", "what it is", box=None, pad_edge=False)
    for column in ("cells", "there", "runs"):
        table.add_column(column, justify="right")
    for name in preset_names():
        wanted = asked_for(name, asked.seeds, asked.epochs, then=asked.all)
        there = sum(is_there(cell, asked.out) for cell in wanted)
        runs = sum(len(cell.seeds) for cell in wanted)
        table.add_row(name, wanted[0].title if wanted else "", str(len(wanted)), str(there), str(runs))
    console.print(table)
    console.print(f"there: cells whose seeds are all in {asked.out}", soft_wrap=True, markup=False, style="dim")


def report_all(asked: Reproduce) -> None:
    """Draw every preset that has cells anew, and the figures of all together."""
    from coteach.paper.overview import write_overview
    from coteach.paper.page import write_preset_page

    written = []
    for name in preset_names():
        if records := preset_records(name, asked.epochs, asked.out):
            written += write_preset_page(name, asked.epochs, records, asked.out / name)
    if not written:
        raise ValueError(f"nothing is measured in {asked.out}: name a figure or table, without --only-report.")
    if asked.epochs is None:
        written += write_overview(compare.measured_cells(asked.out), asked.out)
    for path in (*written, compare.write_results_summary(asked.out)):
        console.print(f"written: {path}", soft_wrap=True, markup=False)


def is_there(cell: Cell, out: Path) -> bool:
    """Whether every seed of a cell was measured."""
    record = read_cell(path_of(cell, out), cell.hash)
    return record is not None and set(cell.seeds) <= set(record["summary"]["seeds"])


def train_missing(asked: Reproduce, name: str) -> None:
    from coteach.paper.reproduce import MeasuringProgress, reproduce

    try:
        with progress_bars() as bars:
            task = bars.add_task(name, total=None, note="")
            said: set[str] = set()

            def show(p: MeasuringProgress) -> None:
                method = p.label.partition(" (")[0]
                bars.update(task, completed=p.done, total=p.total, description=method, note=progress_note(p))

            def say(line: str) -> None:
                if line not in said:  # every stack would say it again
                    said.add(line)
                    bars.console.print(f"note: {line}", markup=False)

            reproduce(
                name,
                asked.seeds,
                asked.epochs,
                asked.out,
                asked.device,
                asked.data_dir,
                compile_steps=asked.compile,
                then=asked.all,
                only=asked.cells,
                processes=asked.processes,
                ray=asked.ray,
                minutes=asked.minutes,
                say=say,
                on_progress=show,
            )
    except KeyboardInterrupt:
        print(
            f"coteach: stopped; the cells that were finished are in {asked.out}: the same command goes on from "
            "there, and with the rest from the last epochs.",
            file=sys.stderr,
        )
        raise SystemExit(130) from None


def report(name: str, epochs: int | None, out: Path) -> None:
    records = preset_records(name, epochs, out)
    if not records:
        if epochs is None:
            raise ValueError(f"no cell of {name} is in {out}: leave --only-report out, and they are measured.")
        raise ValueError(
            f"no cell of {name} with --epochs {epochs} is in {out}: "
            "leave --epochs out for the paper's, or --only-report, and they are measured."
        )
    from coteach.paper.page import write_preset_page

    written = [*write_preset_page(name, epochs, records, out / name), compare.write_results_summary(out)]
    lines = compare.compared(records)
    for table in comparison_tables(lines):
        console.print(table)
    marks = [MARKS] if any(line.within is not None for line in lines) else []
    for text in (*marks, *compare.sources(lines)):
        console.print(text, style="dim", markup=False)
    for path in written:
        console.print(f"written: {path}", soft_wrap=True, markup=False)


def comparison_tables(lines: list[Comparison]) -> list[Table]:
    """One for each column of the paper's, so that they fit into a terminal."""
    tables = []
    for column in dict.fromkeys(line.column for line in lines):
        table = Table(title=column, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("test accuracy (%) of", min_width=24, overflow="fold")
        for name in ("ours", "n", "known", "differs by"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("source", no_wrap=True)
        before: tuple[str, ...] = ()
        for line in lines:
            if line.column == column:
                _, method, _, ours, n, known, difference, _, _ = line.texts()
                style = {True: "green", False: "red", None: ""}[line.within]
                source = "" if line.target is None else line.target.source
                verdict = difference + {True: " ✓", False: " ✗", None: "  "}[line.within] if difference else ""
                texts = (method, ours, n)
                shown = ("", "", "") if texts == before else texts
                table.add_row(*shown, known, f"[{style}]{verdict}[/]" if style else verdict, source)
                before = texts
        tables.append(table)
    return tables
