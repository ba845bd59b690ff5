"""A run's numbers for TensorBoard: a scalar for each of them, a folder for each seed."""

from pathlib import Path
from typing import Any


class TensorBoard:
    """A tracker that writes what TensorBoard shows; needs `pip install tensorboard`.

    Parameters
    ----------
    folder : path, optional
        Takes a sub-folder for each run; by default they lie in the run folders themselves.

    Examples
    --------
    >>> from coteach.runs.tensorboard import TensorBoard
    >>> experiment = coteach.Experiment(epochs=5, out="runs/watched")
    >>> coteach.run(experiment, trackers=[TensorBoard()])  # doctest: +SKIP
    """

    def __init__(self, folder: Path | str | None = None):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("TensorBoard is not installed: pip install tensorboard.") from error
        self.folder = None if folder is None else Path(folder)
        self.open = SummaryWriter
        self.writers: dict[int, Any] = {}
        self.last: dict[int, int] = {}  # epoch of each seed

    def begin(self, folder: Path, config: dict[str, Any]) -> None:
        """See `Tracker`."""
        self.place = folder / "tensorboard" if self.folder is None else self.folder / folder.name

    def epoch(self, rows: list[dict[str, Any]]) -> None:
        """See `Tracker`."""
        for row in rows:
            seed, epoch = row["seed"], row["epoch"]
            if epoch <= self.last.get(seed, epoch):  # new here, or begun again: what was written later is void
                self._close(seed)
                self.writers[seed] = self.open(str(self.place / f"seed-{seed}"), purge_step=epoch)
            self.last[seed] = epoch
            for name, value in scalars(row).items():
                self.writers[seed].add_scalar(name, value, epoch)
            self.writers[seed].flush()

    def end(self, summary: dict[str, Any] | None) -> None:
        """See `Tracker`."""
        for seed in list(self.writers):
            self._close(seed)

    def _close(self, seed: int) -> None:
        if seed in self.writers:
            self.writers.pop(seed).close()


def scalars(row: dict[str, Any]) -> dict[str, float]:
    """Names as TensorBoard groups them; what is null is left out.

    >>> scalars({"seed": 1, "epoch": 2, "test_accuracy": [0.5, 0.6], "kept": None, "events": {"alike": 1}})
    {'test_accuracy/1': 0.5, 'test_accuracy/2': 0.6, 'events/alike': 1}
    """
    found = {}
    for name, value in row.items():
        if name == "events":
            found |= {f"events/{event}": count for event, count in value.items()}
        elif isinstance(value, list):
            found |= {f"{name}/{n}": one for n, one in enumerate(value, start=1)}
        elif name not in ("seed", "epoch") and value is not None:
            found[name] = value
    return found
