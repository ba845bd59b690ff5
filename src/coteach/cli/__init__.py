"""The command line: `coteach run`, `demo`, `report`, `reproduce`, `audit` and `data`, a file each.

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
from typing import Annotated, Any

import tyro

from coteach import __version__
from coteach.cli.audit import AUDIT_EXAMPLES, Audit, audit_command
from coteach.cli.data import DATA_EXAMPLES, Data, data_command
from coteach.cli.demo import DEMO_EXAMPLES, Demo, demo_command
from coteach.cli.parsing import REGISTRY, describe_flags
from coteach.cli.report import REPORT_EXAMPLES, Report, report_command
from coteach.cli.reproduce import REPRODUCE_EXAMPLES, Reproduce, reproduce_command
from coteach.cli.run import RUN_EXAMPLES, run_command
from coteach.paper.running import LOCAL_RAY
from coteach.runs.experiment import IN_RUN_FOLDER, Experiment
from coteach.signals import handled_between_steps

SIGNALS = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}  # what each is raised by
VALUE_IF_ALONE = {"--ray": LOCAL_RAY, "--tensorboard": str(IN_RUN_FOLDER)}  # of flags that need none

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

CARRIED_OUT_BY = {
    Experiment: run_command,
    Demo: demo_command,
    Report: report_command,
    Reproduce: reproduce_command,
    Audit: audit_command,
    Data: data_command,
}
for each in CARRIED_OUT_BY:
    describe_flags(each)

# What to type: examples below each help, where the eye is when the rest has scrolled by. At most 80 columns.
EXAMPLES = {
    "": """
where to begin:
  # see what it is about: all methods on handwritten digits, about a minute
  coteach demo
  # which labels of your own are wrong? A folder of images for each class
  coteach audit --images photos
  # one method on one noisy data set; the numbers, and the trained networks
  coteach run --dataset mnist --method coteaching --noise pair --rate 0.45

Each command has its own --help, with examples. coteach --version tells yours.
""",
    "run": RUN_EXAMPLES,
    "demo": DEMO_EXAMPLES,
    "report": REPORT_EXAMPLES,
    "reproduce": REPRODUCE_EXAMPLES,
    "audit": AUDIT_EXAMPLES,
    "data": DATA_EXAMPLES,
}


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
        with warnings.catch_warnings(), no_interrupt_is_lost(), handled_between_steps():
            warnings.showwarning = note
            CARRIED_OUT_BY[type(command)](command)
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
def no_interrupt_is_lost() -> Iterator[None]:
    """Python drops whatever is raised in the callback of a weak reference, Ctrl-C too: then it comes once more."""
    usual = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if signum := SIGNALS.get(dropped.exc_type):
            threading.Timer(0.01, interrupt, [signum]).start()  # at once it would be dropped in here
        else:
            usual(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


def interrupt(signum: signal.Signals) -> None:
    """Send the main thread a signal, so that it wakes from a call that waits."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signum)
    else:  # on Windows, where a call that waits returns before it is noticed
        _thread.interrupt_main(signum)


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
        if word in VALUE_IF_ALONE and following.startswith("-"):
            found.append(VALUE_IF_ALONE[word])
    return found


def note(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning as its reader wants it: the sentence, not the line of code."""
    print(f"note: {message}", file=sys.stderr)
