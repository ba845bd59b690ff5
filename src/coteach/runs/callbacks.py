"""Following a run from outside: whoever wants to see its numbers as they come is a Tracker."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from coteach.checks import one_line
from coteach.engine.training import Epoch
from coteach.runs.folder import read_config


class Tracker(Protocol):
    """What `coteach.run(experiment, trackers=[...])` calls: `begin`, `epoch` after each epoch, `end`.

    Your own needs no base class.

    Examples
    --------
    >>> class Losses:
    ...     def begin(self, folder, config):
    ...         self.losses = []
    ...     def epoch(self, rows):
    ...         self.losses.append(sum(row["train_loss"] for row in rows) / len(rows))
    ...     def end(self, summary):
    ...         print(f"the loss {'fell' if self.losses[-1] < self.losses[0] else 'rose'}")
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     experiment = coteach.Experiment(method="standard", epochs=2, out=f"{folder}/run")
    ...     result = coteach.run(experiment, trackers=[Losses()], say=lambda line: None)
    the loss fell
    """

    def begin(self, folder: Path, config: dict[str, Any]) -> None:
        """Before the first epoch; a resumed run begins again.

        Parameters
        ----------
        folder : Path
            The run folder.
        config : dict
            What its config.toml says.
        """

    def epoch(self, rows: list[dict[str, Any]]) -> None:
        """After each epoch.

        Parameters
        ----------
        rows : list of dict
            One for each seed that is being trained, as metrics.jsonl has them.
        """

    def end(self, summary: dict[str, Any] | None) -> None:
        """At the end.

        Parameters
        ----------
        summary : dict or None
            What summary.json says; None of a run that was stopped or failed.
        """


class TrackedRun:
    """A run with its trackers. One that fails is named once and left out, and the training goes on."""

    def __init__(self, trackers: Sequence[Tracker], folder: Path, say: Callable[[str], None]):
        self.trackers, self.folder, self.say = list(trackers), folder, say
        self.begun = False
        self.summary: dict[str, Any] | None = None

    def __enter__(self) -> "TrackedRun":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.begun:
            self._tell(lambda tracker: tracker.end(self.summary))

    def after(self, epoch: Epoch) -> None:
        if epoch.preliminary or not self.trackers:
            return
        if not self.begun:
            config = read_config(self.folder)
            self._tell(lambda tracker: tracker.begin(self.folder, config))
            self.begun = True
        self._tell(lambda tracker: tracker.epoch(epoch.rows))

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for tracker in list(self.trackers):
            try:
                what(tracker)
            except Exception as error:
                self.trackers.remove(tracker)
                why = one_line(error)
                self.say(f"the tracker {type(tracker).__name__} failed ({why}): the run goes on without it")
