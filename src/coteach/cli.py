"""The command line: `coteach run`, `demo`, `report`, `reproduce`, `audit` and `data`.

Nothing heavy is imported before a command is known, so that `--help` answers at once.
"""

import _thread
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from coteach import __version__
from coteach.audit.request import Audit
from coteach.flags import REGISTRY, flag
from coteach.report.request import Report
from coteach.runs.experiment import IN_RUN_FOLDER, Experiment
from coteach.usage import EXAMPLES

SIGNALS = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}  # what each is raised by
ALONE = {"--ray": "local", "--tensorboard": str(IN_RUN_FOLDER)}  # flags whose value may be left out


@dataclass(frozen=True)
class Demo:
    """Compare all methods on handwritten digits, of whose labels about half are wrong."""

    out: Annotated[Path | None, flag("PATH", "runs/demo, numbered if taken")] = None
    """Folder to write; must be new or empty."""
    seeds: Annotated[tuple[int, ...], flag("N [N ...]", "1 2 3")] = (1, 2, 3)
    """Seeds of the networks and of the batches, one run each."""
    epochs: Annotated[int | None, flag("N", "50")] = None
    """Epochs: how often every sample is learnt from."""


@dataclass(frozen=True)
class Reproduce:
    """Measure a figure or table of the paper, and set it beside the known numbers."""

    name: Annotated[str | None, tyro.conf.Positional, flag("[NAME]", "none")] = None
    """Figure or table to measure, as far as it is missing; without a name they are only listed."""
    seeds: Annotated[tuple[int, ...] | None, flag("N [N ...]", "as many as the figure or table has")] = None
    """Seeds of the networks and of the batches, one run each; seeds measured before stay."""
    epochs: Annotated[int | None, flag("N", "the paper's")] = None
    """Epochs; the files of another number of epochs have other names."""
    cells: Annotated[str | None, flag("TEXT", "all")] = None
    """Measure only cells that have this in their names, such as coteaching_plus or pair-0.45."""
    all: bool = False
    """Measure also the cells and seeds that are left for when there is time."""
    only_report: bool = False
    """Train nothing: draw the figure and the tables of what was measured."""
    out: Path = Path("results")
    """Folder of the results; what is in it is not measured again."""
    device: Annotated[str, flag("NAME", "auto, a GPU if there is one")] = "auto"
    """auto, cpu, cuda or cuda:1."""
    processes: Annotated[str | None, flag("{N,auto}", "this one; auto: one for each GPU, or core")] = None
    """Processes that share the work, in turn on the GPUs there are, or with one thread each."""
    ray: Annotated[str | None, flag("[ADDRESS]", "none; without an address, a Ray of this machine")] = None
    """Share the work out over the machines of a Ray cluster."""
    data_dir: Annotated[Path | None, flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the published data files."""


@dataclass(frozen=True)
class Data:
    """List the data sets, say which are there, and fetch the ones named."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, flag("[NAME ...]", "none")] = ()
    """Data sets to load, downloading what is missing; without a name they are only listed."""
    data_dir: Annotated[Path | None, flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the published data files."""


Command = (
    Annotated[Experiment, tyro.conf.subcommand("run", description="Train one method on one noisy data set.")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[
        Report,
        tyro.conf.subcommand("report", description="Show runs on a page that works offline, or draw figures."),
    ]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Audit, tyro.conf.subcommand("audit")]
    | Annotated[Data, tyro.conf.subcommand("data")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exit code 2 and one line for a user's mistake, 130 after Ctrl-C."""
    # As an exception, so that whoever started processes ends them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        words = sys.argv[1:] if arguments is None else arguments
        if words == ["--version"]:
            print(f"coteach {__version__}")
            return
        command = parsed(words or ["--help"])
        with warnings.catch_warnings(), heeding_every_interrupt():
            warnings.showwarning = note
            carry_out(command)
    except ValueError as mistake:
        print(f"coteach: {mistake}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader has gone, as with `coteach run --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("coteach: stopped.", file=sys.stderr)
        raise SystemExit(130) from None


@contextmanager
def heeding_every_interrupt() -> Iterator[None]:
    """Python drops whatever is raised in the callback of a weak reference, Ctrl-C too: then it comes once more."""
    usual = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if signum := SIGNALS.get(dropped.exc_type):
            later = threading.Timer(0.01, _thread.interrupt_main, [signum])  # at once it would be dropped in here
            later.start()
        else:
            usual(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


def parsed(words: list[str]) -> Any:
    """The command; or its help, and the examples below it."""
    try:
        return tyro.cli(
            Command,
            prog="coteach",
            description="Train classifiers that survive wrong labels, and find the labels that are wrong.",
            args=completed(words),
            registry=REGISTRY,
        )
    except SystemExit as stop:
        if not stop.code and {"-h", "--help"} & set(words):
            print(EXAMPLES.get(words[0], EXAMPLES[""]), end="")
        raise


def completed(arguments: list[str]) -> list[str]:
    """With the usual value after each flag that may stand alone."""
    found = []
    for word, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        found.append(word)
        if word in ALONE and following.startswith("-"):
            found.append(ALONE[word])
    return found


def note(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning as its reader wants it: the sentence, not the line of code."""
    print(f"note: {message}", file=sys.stderr)


def carry_out(command: Experiment | Demo | Report | Reproduce | Audit | Data) -> None:
    if isinstance(command, Experiment):
        command.check()  # before torch is loaded
        from coteach.report.terminal import run_command

        run_command(command)
    elif isinstance(command, Demo):
        from coteach.report.demo import demo_command

        demo_command(command.seeds, command.epochs, command.out)
    elif isinstance(command, Report):
        command.check()
        from coteach.report.run_report import report_command

        report_command(command)
    elif isinstance(command, Reproduce):
        from coteach.report.reproduce import list_command, reproduce_command

        if command.name is None:
            if command.ray not in (None, ALONE["--ray"]):
                raise ValueError(
                    f"nothing is named to be measured: put {command.ray} before --ray, if it is that."
                )
            list_command(command.out, command.seeds, command.epochs, command.all)
        else:
            reproduce_command(
                command.name,
                command.seeds,
                command.epochs,
                command.out,
                command.device,
                command.data_dir,
                only=command.cells,
                then=command.all,
                only_report=command.only_report,
                processes=command.processes,
                ray=command.ray,
            )
    elif isinstance(command, Audit):
        command.check()
        from coteach.report.audit import audit_command

        audit_command(command)
    else:
        from coteach.report.terminal import data_command

        data_command(command.names, command.data_dir)


if __name__ == "__main__":
    main()
