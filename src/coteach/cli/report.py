"""`coteach report`: the page of runs, their figures, or the paper's. No torch: it reads what was written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from coteach.files import write_atomically
from coteach.names import MEASURES, Flag, check_name
from coteach.paper.presets import preset_names
from coteach.terminal import console, open_page

REPORT_EXAMPLES = """
examples:
  # a page for one run, opened in the browser
  coteach report runs/digits-coteaching-symmetric-0.5-paper --open
  # a page that compares all runs in a folder
  coteach report runs/demo
  # the curves as SVG, PDF and PNG, noises side by side, and their tables
  coteach report runs/demo --figures
  coteach report runs/demo --figures --panels test_accuracy disagreement
"""

PAGE_NAME = "report.html"
USUAL_PANELS = ("test_accuracy", "label_precision")
PANELS_HELP = f"Curves of the runs to draw with --figures, below each other: {', '.join(MEASURES)}."


@dataclass(frozen=True)
class Report:
    """Show runs on one page that works offline and in print, or write figures for a paper."""

    runs: Annotated[tuple[str, ...], Flag("[RUN ...]", "none", placed=True)] = ()
    """Run folders, or folders with runs in them; with --figures also names that `coteach reproduce` lists."""
    open: bool = False
    """Open the page in the browser."""
    figures: bool = False
    """Write SVG, PDF and PNG instead: the curves of the runs, and tables, or the paper's figures as measured."""
    panels: Annotated[tuple[str, ...], Flag("NAME [NAME ...]", "test_accuracy label_precision", PANELS_HELP)] = ()
    out: Annotated[Path | None, Flag("PATH", "report.html, in the folder of a single run; figures")] = None
    """File to write; with --figures, the folder."""
    results: Path = Path("results")
    """Folder with what `coteach reproduce` measured, for --figures."""

    def check(self) -> None:
        """Raise a ValueError for what does not go together."""
        if self.figures and self.open:
            raise ValueError("--open is for the page, and --figures writes none: leave one of them out.")
        if self.panels and not self.figures:
            raise ValueError(
                "--panels is for figures, and the page has all curves: add --figures, or leave it out."
            )
        for name in self.panels:
            check_name("panel", name, MEASURES)
        if not self.runs and not self.figures:
            raise ValueError("no run is named: give run folders, or a folder with runs in it, such as runs/demo.")


def report_command(report: Report) -> None:
    report.check()
    if report.figures:
        write_figures(report)
    else:
        write_report_page(report)


def write_report_page(report: Report) -> None:
    from coteach.report.page import report_page
    from coteach.report.read import read_run

    folders = find_finished(report.runs)
    alone = len(folders) == 1 and (Path(report.runs[0]) / "config.toml").exists()
    path = report.out or (folders[0] / PAGE_NAME if alone else Path(PAGE_NAME))
    refuse_other_page(path)
    page = report_page([read_run(folder) for folder in folders])
    try:
        write_atomically(path, page)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}): give another file with --out.") from error
    console.print(f"written: {path}", soft_wrap=True, markup=False)
    if report.open:
        open_page(path)


def find_finished(places: tuple[str, ...]) -> list[Path]:
    from coteach.report.read import find_runs

    folders, unfinished = find_runs(places)
    if unfinished:
        n = len(unfinished)
        what = "1 unfinished run is" if n == 1 else f"{n} unfinished runs are"
        text = f"note: {what} left out, such as {unfinished[0]}: name it to see it"
        console.print(text, soft_wrap=True, markup=False)
    return folders


def refuse_other_page(path: Path) -> None:
    from coteach.report.page import GENERATOR

    if not path.exists():
        return
    mark = f'<meta name="generator" content="{GENERATOR}">'.encode()
    if path.is_file():
        with path.open("rb") as file:
            if mark in file.read(4096):
                return
    raise ValueError(f"{path} is there, and no report of ours: give another file with --out, or remove it.")


def write_figures(report: Report) -> None:
    """Writes the figures of the named runs and presets, or of every preset that was measured."""
    presets = [name for name in report.runs if name in preset_names() and not Path(name).is_dir()]
    places = tuple(name for name in report.runs if name not in presets)
    if report.panels and not places:
        raise ValueError("--panels is for the curves of runs, and none is named: the paper's figures have theirs.")
    folders = find_finished(places) if places else []
    folder = report.out or Path("figures")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder} cannot be made ({error.strerror}): give another folder with --out.") from error
    paths = figures_of_presets(presets, report.results, folder) if presets or not places else []
    if folders:
        paths += figures_of_runs(folders, list(dict.fromkeys(report.panels)), folder)
    for path in paths:
        console.print(f"written: {path}", soft_wrap=True, markup=False)


def figures_of_runs(folders: list[Path], panels: list[str], out: Path) -> list[Path]:
    """A figure for each data set, and the tables of all."""
    from coteach.report.curves import measured, write_curves
    from coteach.report.groups import groups_of
    from coteach.report.read import read_run
    from coteach.report.tables import write_tables

    groups = groups_of([read_run(folder) for folder in folders])
    for panel in panels:
        if not any(panel in measured(group) for group in groups):
            raise ValueError(f"no run has {panel}: leave it out of --panels.")
    paths = write_tables(groups, out)
    for data in dict.fromkeys(group.data for group in groups):
        some = [group for group in groups if group.data == data]
        paths += write_curves(some, panels or list(USUAL_PANELS), out)
    return paths


def figures_of_presets(names: list[str], results: Path, out: Path) -> list[Path]:
    from coteach.figures import FIGURE_FORMATS
    from coteach.paper.figures import preset_figures
    from coteach.paper.measured import preset_records

    paths = []
    for name in names or preset_names():
        if records := preset_records(name, None, results):
            paths += preset_figures(records, out, name, FIGURE_FORMATS)
        elif names:
            raise ValueError(f"no cell of {name} is in {results}: measure it with `coteach reproduce {name}`.")
    if not paths:
        raise ValueError(f"nothing is measured in {results}: run `coteach reproduce`, or name run folders.")
    return paths
