"""`coteach run`: its flags are the fields of `Experiment`; progress, one table, where things were written."""

from typing import TYPE_CHECKING, Protocol

from rich.table import Table

from coteach.runs.experiment import IN_RUN_FOLDER, Experiment
from coteach.terminal import console, progress_bars

if TYPE_CHECKING:
    from coteach.engine.training import Epoch
    from coteach.runs.callbacks import Tracker
    from coteach.runs.run import Result

RUN_EXAMPLES = """
examples:
  # half of the digits' labels wrong; nothing to download, ten seconds
  coteach run --method coteaching --noise symmetric --rate 0.5
  # MNIST as in the paper, five seeds together
  coteach run --dataset mnist --noise pair --rate 0.45 --seeds 1 2 3 4 5
  # labels that people got wrong, instead of noise
  coteach run --dataset cifar10n-worst --method coteaching
  # go on after Ctrl-C, a crash or a power cut
  coteach run --resume runs/digits-coteaching-symmetric-0.5-paper

Every run folder has config.toml (what was run), metrics.jsonl (a row for each
seed and epoch), summary.json (the result), the noise and the networks.
"""


class Measured(Protocol):
    """An epoch, or what another process reported of one."""

    @property
    def rows(self) -> list[dict]: ...
    @property
    def preliminary(self) -> bool: ...


def progress_note(epoch: Measured) -> str:
    """For a bar whose description is the method: what it is at."""
    return ", ".join(filter(None, ["estimating the flips" * epoch.preliminary, accuracy_note(epoch)]))


def accuracy_note(epoch: Measured) -> str:
    if not epoch.rows:
        return ""
    accuracies = [a for row in epoch.rows for a in row["test_accuracy"]]
    return f"accuracy {100 * sum(accuracies) / len(accuracies):.1f} %"


def run_command(asked: Experiment) -> None:
    asked.check()  # before torch is loaded
    from coteach.runs.checkpoint import rows_kept
    from coteach.runs.folder import stored_experiment
    from coteach.runs.prepare import n_epochs
    from coteach.runs.run import run

    experiment = asked if asked.resume is None else stored_experiment(asked)

    def share(epoch: "Epoch") -> float:
        return len(epoch.rows) / len(experiment.seeds)  # of the runs that are trained at a time

    with progress_bars() as progress:
        done = rows_kept(asked.resume) / len(experiment.seeds) if asked.resume else 0

        def show(epoch: "Epoch") -> None:  # not before, or a refusal would stand below a dead bar
            stage = "estimating the flips" if epoch.preliminary else f"training {experiment.method}"
            note = accuracy_note(epoch)
            if not progress.task_ids:
                progress.add_task(stage, total=n_epochs(experiment), completed=round(done), note="")
            progress.update(progress.task_ids[0], advance=share(epoch), description=stage, note=note)

        result = run(
            experiment,
            trackers=trackers_of(asked),
            say=lambda line: progress.console.print(f"note: {line}", soft_wrap=True, markup=False),
            on_epoch=show,
        )
    console.print(summary_table(result))
    console.print(f"written to {result.folder}", soft_wrap=True, markup=False)


def trackers_of(experiment: Experiment) -> list["Tracker"]:
    if experiment.tensorboard is None:
        return []
    from coteach.runs.tensorboard import TensorBoard

    return [TensorBoard(None if experiment.tensorboard == IN_RUN_FOLDER else experiment.tensorboard)]


def summary_table(result: "Result") -> Table:
    s = result.summary
    epochs, best = averaged(len(result.rows) // len(s["seeds"]))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row(f"test accuracy, {epochs}", with_spread(s["mean"], s["std"], len(s["seeds"])))
    table.add_row(best, f"{s['max']:.2f} %")
    table.add_row("each network", ", ".join(f"{mean:.2f} %" for mean in s["mean_per_network"]))
    if len(s["mean_per_network"]) > 1:
        table.add_row("ensemble of the two", f"{s['ensemble']:.2f} %")
        table.add_row("ensemble, last epoch", f"{s['last']:.2f} %")
    if s["label_precision"] is not None:
        table.add_row("label precision", f"{s['label_precision']:.2f} %")
    if s["average_precision"] is not None:
        table.add_row("wrong labels found, average precision", f"{s['average_precision']:.3f}")
    for event, count in s["events"].items():
        table.add_row(f"event: {event}", str(count))
    return table


def averaged(epochs: int) -> tuple[str, str]:
    """Which of a run's epochs its mean is of, and its maximum."""
    if epochs >= 10:
        return "last ten epochs", "best of the last ten"
    return (f"all {epochs} epochs" if epochs > 1 else "the only epoch"), "best of these"


def with_spread(mean: float, std: float | None, n: int) -> str:
    return f"{mean:.2f} %" if std is None else f"{mean:.2f} ± {std:.2f} % (n = {n})"
