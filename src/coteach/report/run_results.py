"""What a run came to, in numbers: for the tables of the page and those beside figures."""

from dataclasses import dataclass

import numpy as np

from coteach.report.run_figures import curve
from coteach.report.run_files import Run


@dataclass(frozen=True)
class Result:
    """Of n seeds; per cents of the last ten epochs, None for what is not known. `epochs` are those reached."""

    n: int
    epochs: int
    mean: float
    std: float | None
    max: float
    label_precision: float | None

    @property
    def mean_in_words(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


def result_of(run: Run) -> Result | None:
    """Of an unfinished run what it has reached; None before its first epoch."""
    s = run.summary
    if s is None:
        return so_far(run)
    return Result(len(s["seeds"]), s["epochs"], s["mean"], s["std"], s["max"], s["label_precision"])


def so_far(run: Run) -> Result | None:
    epochs, values = curve(run, "test_accuracy")
    if not epochs:
        return None
    last, precision = values[:, -10:], curve(run, "label_precision")[1][:, -10:]
    return Result(
        len(last),
        epochs[-1],
        float(last.mean()),
        float(last.mean(1).std(ddof=1)) if len(last) > 1 else None,
        float(last.max(1).mean()),
        float(np.nanmean(precision)) if np.isfinite(precision).any() else None,
    )


def two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
