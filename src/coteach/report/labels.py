"""What a run's ledger says of its labels: given against suggested, and how labels seem to flip.

M samples, C classes.
"""

import base64
import io
from dataclasses import dataclass

import numpy as np

from coteach.labels.ledger import lowest_quality
from coteach.noise.record import GIVEN_KINDS
from coteach.report.read import Run

WITH_NUMBERS = 20  # classes, at most
SHADES = 10


def corrected_labels(
    given_M: np.ndarray, quality_M: np.ndarray, suggested_M: np.ndarray, share: float
) -> np.ndarray:
    """class_M that each label is believed to be: of the most doubted the suggested one, else the given."""
    worst = lowest_quality(quality_M, share)
    true_M = given_M.copy()
    true_M[worst] = suggested_M[worst]
    return true_M


def pair_counts(rows_M: np.ndarray, columns_M: np.ndarray, classes: int) -> np.ndarray:
    """count_CC of samples by two labels."""
    return np.bincount(rows_M * classes + columns_M, minlength=classes**2).reshape(classes, classes)


def row_shares(counts_CC: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; NaN in a row without samples."""
    totals_C1 = counts_CC.sum(1, keepdims=True)
    return np.divide(counts_CC, totals_C1, out=np.full(counts_CC.shape, np.nan), where=totals_C1 > 0)


def suspect_share(run: Run) -> float:
    """The share of labels that are taken to be wrong: the rate given to the method, else the true one."""
    assert run.noise is not None
    tau = run.experiment.tau
    share = tau if tau is not None else run.noise.nominal_rate
    return min(max(float(share), 0.0), 1.0)


def confusion(run: Run) -> np.ndarray:
    """count_CC of [given label, believed label], over all seeds."""
    assert run.noise is not None
    given_M, classes = run.noise.labels, len(run.noise.matrix)
    total_CC = np.zeros((classes, classes), int)
    for opinion in run.opinions.values():
        true_M = corrected_labels(given_M, opinion.quality, opinion.suggested, suspect_share(run))
        total_CC += pair_counts(given_M, true_M, classes)
    return total_CC


# ---- for the page ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeatMap:
    """A matrix on a page: (text, shade) of each cell, or where classes are many a picture, as a data URL."""

    caption: str
    corner: str
    cells: list[list[tuple[str, int]]]
    picture: str
    size: int


def flips_in_words(run: Run) -> str:
    """How labels are taken for wrong; nothing if no ledger was kept."""
    if run.noise is None or not run.opinions:
        return ""
    n = len(run.opinions)
    return (
        f"The {100 * suspect_share(run):.3g} % of labels that the networks trusted least are taken for wrong, and "
        f"replaced by the class they find likelier; counted over {n} seed{'s' * (n > 1)}."
    )


def heat_maps(run: Run) -> list[HeatMap]:
    """Given against suggested labels, and how labels flip: as it seems, and as it was drawn."""
    found = []
    if run.noise is not None and run.opinions:
        counts_CC = confusion(run)
        given = "Given labels (down) against suggested ones (across), samples"
        estimated = "Estimated flips: suggested true label (down), given one (across), %"
        found.append(heat_map(counts_CC, row_shares(counts_CC), given, "given"))
        found.append(heat_map(None, row_shares(counts_CC.T), estimated, "true"))
    if run.noise is not None and run.truth_known and run.noise.kind != "openset":  # which has no true labels
        found.append(true_matrix(run))
    return found


def true_matrix(run: Run) -> HeatMap:
    assert run.noise is not None
    came_out = run.noise.kind in ("instance", *GIVEN_KINDS)
    drawn = "that came out" if came_out else "that they were drawn from"
    return heat_map(
        None, run.noise.matrix, f"True flips {drawn}: true label (down), given one (across), %", "true"
    )


def heat_map(counts_CC: np.ndarray | None, share_CC: np.ndarray, caption: str, corner: str) -> HeatMap:
    """Numbers on shades, or a picture; without counts, per cents."""
    size = len(share_CC)
    if size > WITH_NUMBERS:
        return HeatMap(caption, corner, [], picture(share_CC), size)
    texts = percentages(share_CC) if counts_CC is None else [[f"{n:,}" for n in row] for row in counts_CC]
    shades = (SHADES * np.nan_to_num(share_CC)).round().astype(int).tolist()
    return HeatMap(
        caption, corner, [list(zip(*row, strict=True)) for row in zip(texts, shades, strict=True)], "", size
    )


def percentages(share_CC: np.ndarray) -> list[list[str]]:
    return [["–" if np.isnan(s) else f"{100 * s:.0f}" for s in row] for row in share_CC]


def picture(share_CC: np.ndarray) -> str:
    """A pixel for each pair of classes; the root of the share, so that rare flips are seen."""
    from matplotlib.image import imsave

    written = io.BytesIO()
    imsave(written, np.sqrt(np.nan_to_num(share_CC)), vmin=0, vmax=1, cmap="cividis", format="png")
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode("ascii")
