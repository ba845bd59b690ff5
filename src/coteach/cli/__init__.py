"""The command line: `coteach run`, `demo`, `report`, `reproduce`, `audit`, `predict` and `data`, a file each.

Nothing heavy is imported before a command is known, so that `--help` answers at once.
"""

import _thread
import io
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.table import Table

from coteach import __version__, names
from coteach.cli.audit import AUDIT_EXAMPLES, Audit, audit_command
from coteach.cli.data import DATA_EXAMPLES, Data, data_command
from coteach.cli.demo import DEMO_EXAMPLES, Demo, demo_command
from coteach.cli.help import command_help, with_own_words
from coteach.cli.parsing import read_words
from coteach.cli.predict import PREDICT_EXAMPLES, Predict, predict_command
from coteach.cli.report import REPORT_EXAMPLES, Report, report_command
from coteach.cli.reproduce import REPRODUCE_EXAMPLES, Reproduce, reproduce_command
from coteach.cli.run import RUN_EXAMPLES, run_command
from coteach.runs.experiment import Experiment
from coteach.signals import handled_between_steps

SIGNALS = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}  # what each is raised by

COMMANDS = {
    "audit": (Audit, "Find the wrong labels in your own images, texts, table or arrays."),
    "predict": (Predict, "Label new data with the model of an audit, or with a model saved from Python."),
    "run": (Experiment, "Train one method on one noisy data set."),
    "demo": (Demo, "Compare all methods on handwritten digits with about half of the labels wrong."),
    "report": (Report, "Show runs on a page that works offline, or draw their figures."),
    "reproduce": (Reproduce, "Measure a figure or table of the paper, and compare it with the known numbers."),
    "data": (Data, "List the public data sets, or fetch the ones you name."),
}
ABOUT = "Train classifiers that survive wrong labels, and find the labels that are wrong."

CARRIED_OUT_BY = {
    Experiment: run_command,
    Demo: demo_command,
    Report: report_command,
    Reproduce: reproduce_command,
    Audit: audit_command,
    Predict: predict_command,
    Data: data_command,
}

# What to type: examples below each help, where the eye is when the rest has scrolled by. At most 80 columns.
EXAMPLES = {
    "": """
where to begin:
  # which labels of your own are wrong? A folder of images for each class
  coteach audit --images photos
  # see what it is about: all methods on handwritten digits, about a minute
  coteach demo
  # one method on one noisy data set; the numbers, and the trained networks
  coteach run --dataset mnist --method coteaching --noise pair --rate 0.45

Each command has its own --help, with examples.
coteach --version says which version this is.
""",
    "run": RUN_EXAMPLES,
    "demo": DEMO_EXAMPLES,
    "report": REPORT_EXAMPLES,
    "reproduce": REPRODUCE_EXAMPLES,
    "audit": AUDIT_EXAMPLES,
    "predict": PREDICT_EXAMPLES,
    "data": DATA_EXAMPLES,
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exit code 2 and one line for a user's mistake, 130 after Ctrl-C."""
    # As an exception, so that whoever started processes ends them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    make_output_safe()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        if "--version" in words or words in (["-V"], ["version"]):
            print_version()
            return
        command = parsed(words or ["--help"])
        with warnings.catch_warnings(), no_interrupt_is_lost(), handled_between_steps():
            warnings.showwarning = note
            CARRIED_OUT_BY[type(command)](command)
        sys.stdout.flush()  # what fails here would be a traceback when Python ends
    except ValueError as mistake:
        print(f"coteach: {mistake}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader has gone, as with `coteach run --help | head`
        discard_output()
        raise SystemExit(1) from None
    except OSError as error:
        discard_output()
        why = error.strerror or str(error)
        place = error.filename or error.filename2
        mistake = f"the output cannot be written ({why}): make room." if place is None else f"{place}: {why}."
        print(f"coteach: {mistake}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("coteach: stopped.", file=sys.stderr)
        raise SystemExit(130) from None


def make_output_safe() -> None:
    """Characters that the terminal or file has none for become their numbers; what is closed takes nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """What is left of it would fail again when Python ends."""
    with suppress(OSError, ValueError):  # it has no number where tests listen
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def no_interrupt_is_lost() -> Iterator[None]:
    """Python drops whatever is raised in the callback of a weak reference, Ctrl-C too: then it comes once more."""
    usual = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if signum := SIGNALS.get(dropped.exc_type):
            left = threading.Event()
            threading.Thread(target=interrupt_after, args=(left, signum), daemon=True).start()
            left.set()
        else:
            usual(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


def interrupt_after(left: threading.Event, signum: signal.Signals) -> None:
    """Once the main thread has left what drops signals: before, this one would be dropped, too."""
    left.wait()
    time.sleep(0.05)
    interrupt(signum)


def interrupt(signum: signal.Signals) -> None:
    """Send the main thread a signal, so that it wakes from a call that waits."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signum)
    else:  # on Windows, where a call that waits returns before it is noticed
        _thread.interrupt_main(signum)


def print_version() -> None:
    """What a report of a bug should begin with."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(
        f"coteach {__version__}, torch {torch.__version__}, Python {platform.python_version()}, {gpu}", flush=True
    )


def parsed(words: list[str]) -> Any:
    """The command that the words ask for, unless they ask for help."""
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    name = words[0] if words else ""
    asks = {"-h", "--help", "--help-all"} & {word.partition("=")[0] for word in words}
    if asks and (name in COMMANDS or name in asks):
        print_help(name if name in COMMANDS else "", "--help-all" in asks)
        raise SystemExit(0)
    if name not in COMMANDS:
        names.check_name("command", name, COMMANDS)
    kind = COMMANDS[name][0]
    return read_words(name, kind, with_own_words(kind, words[1:]))


def print_help(name: str, everything: bool) -> None:
    """The help of a command, or of all, and the examples below it."""
    screen = Console(highlight=False)  # a new one: its width is that of now
    if name:
        screen.print(command_help(name, *COMMANDS[name], everything))
    else:
        table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
        table.add_column(style="cyan")
        for command, (_, about) in COMMANDS.items():
            table.add_row(command, about)
        screen.print(f"usage: coteach COMMAND [flags]\n\n{ABOUT}\n", markup=False)
        screen.print(table)
    print(EXAMPLES[name], end="")


def note(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning as its reader wants it: the sentence, not the line of code."""
    print(f"note: {message}", file=sys.stderr)
