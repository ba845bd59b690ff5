"""What a run's ledger left in its folder: histograms of the losses, and an opinion of every training label.

M samples, C classes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from coteach.checks import is_whole
from coteach.files import regular_file
from coteach.metrics import LOSS_BINS
from coteach.noise.record import Noise
from coteach.runs.folder import read_rows

MOST = 10**12


@dataclass(frozen=True, eq=False)
class Opinions:
    """quality (M,) from 0 to 1, low where a label is doubted, and the class (M,) it would have to be instead."""

    quality: np.ndarray
    suggested: np.ndarray


def read_losses(folder: Path, torn: bool) -> list[dict[str, Any]] | None:
    """The rows of losses.jsonl, or None if there is none; a last one that is not whole is left out if `torn`."""
    path = folder / "losses.jsonl"
    if not path.exists():
        return None
    rows = read_rows(path, torn)
    if not all(map(is_row, rows)):
        raise ValueError(f"{path} is damaged: each line must have the histograms of one epoch.")
    return rows


def is_row(row: dict[str, Any]) -> bool:
    return all(is_whole(row.get(name)) and 0 <= row[name] < MOST for name in ("seed", "epoch")) and all(
        is_histogram(row.get(name)) for name in ("right", "wrong")
    )


def is_histogram(counts: Any) -> bool:
    if not isinstance(counts, list) or len(counts) != LOSS_BINS:
        return False
    return all(is_whole(n) and 0 <= n < MOST for n in counts)


def read_opinions(folder: Path, noise: Noise) -> dict[int, Opinions]:
    """By seed; none if the run kept no ledger."""
    found = {}
    for path in sorted((folder / "opinions").glob("seed-*.safetensors")):
        try:
            seed, tensors = int(path.stem.removeprefix("seed-")), load(regular_file(path).read_bytes())
            found[seed] = Opinions(tensors["quality"], tensors["suggested"])
            check(found[seed], len(noise.labels), len(noise.matrix))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged: it must have a quality and a class of each label.") from error
    return dict(sorted(found.items()))


def check(opinions: Opinions, samples: int, classes: int) -> None:
    quality, suggested = opinions.quality, opinions.suggested
    if not (
        quality.shape == suggested.shape == (samples,)
        and quality.dtype.kind == "f"
        and suggested.dtype.kind == "i"
    ):
        raise ValueError("shape or type")
    if samples and not (np.isfinite(quality).all() and suggested.min() >= 0 and suggested.max() < classes):
        raise ValueError("value")
