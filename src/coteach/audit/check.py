"""A random sample for a person to check, and what follows from it: how many labels are wrong, and where.

H strata.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coteach.audit.decisions import (
    CHECK,
    CHECK_PAGE,
    DECISION_COLUMNS,
    Row,
    check_decisions,
    decided_rows,
    read_cells,
    review_fingerprint,
)
from coteach.files import as_csv, refuse_other_than_file, write_atomically
from coteach.labels.checked import (
    LEVEL,
    Checked,
    Drawn,
    chances_by_rank,
    checked_interval,
    last_at_least,
)

QUALITY = "quality.csv"
CHECK_COLUMNS = ("id", "given", "suggested", "part", "part_samples")
CALIBRATION, CALIBRATED_SUSPECTS, CALIBRATED_CLEANED = (
    "calibration.json",
    "calibrated-suspects.csv",
    "calibrated-cleaned.csv",
)
WORTH_LEAVING_OUT, WORTH_A_LOOK = 0.5, 0.1  # chance of being wrong


@dataclass(frozen=True)
class Calibration:
    """What the decisions say of the whole.

    Attributes
    ----------
    samples : int
        Of the audit.
    decided, open : int
        Samples of the check that were decided about, and that were not.
    rate : float
        Estimated share of wrong labels.
    interval : (float, float)
        Holds the true share with 90 %.
    first : list of dict
        Of the first so many by quality: the share that is wrong, and its interval.
    cut : int
        The first so many are more often wrong than right.
    stop : int
        Of those after the first so many, less than one in ten is wrong.
    wrong, wrong_before_stop : float
        Expected wrong labels, of all and of those before the stop.
    """

    samples: int
    decided: int
    open: int
    rate: float
    interval: tuple[float, float]
    first: list[dict[str, Any]]
    cut: int
    stop: int
    wrong: float
    wrong_before_stop: float


def check_rows(drawn: Drawn, ids: list[str], given: np.ndarray, suggested: np.ndarray) -> Iterable[list[Any]]:
    """In the order of the page; part 0 is the one of lowest quality."""
    yield list(CHECK_COLUMNS)
    for k, (i, h) in enumerate(zip(drawn.index, drawn.stratum, strict=True)):
        yield [ids[i], given[k], suggested[k], h, drawn.size_H[h]]


def check_fingerprint(check: Iterable[Row], quality: Iterable[Row]) -> str:
    """A mark of all that a calibration counts with, however a spreadsheet writes its numbers."""
    facts = (
        [(*map(str, row[:3]), *(float(number) for number in row[3:5])) for row in check],
        [(*map(str, row[:3]), round(float(row[3]), 6)) for row in quality],
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def calibrate_audit(path: Path, folder: Path) -> Calibration:
    """Write calibration.json, and suspects and cleaned labels by its cut, into the audit's folder."""
    for name in (CHECK, QUALITY):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no {name}: give the folder of an audit with --check as --out.")
    check = read_cells(folder / CHECK, CHECK_COLUMNS)
    quality = read_cells(folder / QUALITY, ("id", "given", "suggested", "quality"))
    rows = read_cells(path, DECISION_COLUMNS)
    given = {name: label for name, label, *_ in check}
    if rows and rows[0][-1] == review_fingerprint(folder):
        raise ValueError(
            f"{path} has decisions about suspects, which are no random sample: export those of {CHECK_PAGE}."
        )
    classes = {label for _, label, *_ in quality}
    try:
        fingerprint = check_fingerprint(check, quality)
    except ValueError as error:
        raise ValueError(
            f"{CHECK} or {QUALITY} in {folder} is damaged ({error}): audit the data again."
        ) from error
    check_decisions(rows, path, folder, fingerprint, given, classes, "part of the check")
    decisions = decided_rows(rows)
    found = what_was_found(check, {name: word for name, _, word, *_ in decisions}, path)
    calibration = calibration_of(found, len(check) - len(decisions))
    suspects, cleaned = calibrated_rows(quality, decisions, calibration, chances_by_rank(found))
    for name in (CALIBRATED_SUSPECTS, CALIBRATED_CLEANED, CALIBRATION):
        refuse_other_than_file(folder / name)  # before the first is written
    try:
        write_atomically(folder / CALIBRATED_SUSPECTS, as_csv(suspects))
        write_atomically(folder / CALIBRATED_CLEANED, as_csv(cleaned))
        write_atomically(folder / CALIBRATION, json.dumps(vars(calibration), indent=2) + "\n")
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror}): make room, and run it again.") from error
    return calibration


def what_was_found(check: list[tuple[str, ...]], word_of: dict[str, str], path: Path) -> Checked:
    """For each part: its samples, how many were decided about, and how many of these are wrong."""
    parts = sorted({int(float(part)) for *_, part, _ in check})
    size_of = {int(float(part)): int(float(size)) for *_, part, size in check}
    seen, wrong = np.zeros(len(parts), int), np.zeros(len(parts), int)
    for name, *_, part, _ in check:
        seen[int(float(part))] += name in word_of
        wrong[int(float(part))] += word_of.get(name, "keep") != "keep"
    if not seen.all():
        left = len(check) - len(word_of)
        raise ValueError(
            f"{path} leaves {left} of the {len(check)} samples open, among them all of the same quality: "
            "decide about more, and export again."
        )
    return Checked(np.array([size_of[part] for part in parts]), seen, wrong)


def calibration_of(found: Checked, left: int) -> Calibration:
    chance_M = chances_by_rank(found)
    cut, stop = (last_at_least(chance_M, chance) for chance in (WORTH_LEAVING_OUT, WORTH_A_LOOK))
    first = []
    for h in range(1, len(found.size_H)):
        part = found.first(h)
        low, high = checked_interval(part)
        first.append({"samples": int(part.size_H.sum()), "wrong": part.share, "interval": [low, high]})
    return Calibration(
        samples=len(chance_M),
        decided=int(found.seen_H.sum()),
        open=left,
        rate=found.share,
        interval=checked_interval(found, LEVEL),
        first=first,
        cut=cut,
        stop=stop,
        wrong=float(chance_M.sum()),
        wrong_before_stop=float(chance_M[:stop].sum()),
    )


def calibrated_rows(
    quality: list[tuple[str, ...]],
    decisions: list[tuple[str, ...]],
    calibration: Calibration,
    chance_M: np.ndarray,
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Suspects, the worst first, and the labels of all others; what a person decided is taken as it is."""
    label_of = {name: label for name, _, word, label, _ in decisions if word != "drop"}
    decided = {name for name, *_ in decisions}
    order = np.argsort([float(q) for *_, q in quality], kind="stable")
    doubted = {int(i) for i in order[: calibration.cut]}
    suspects: list[list[Any]] = [["id", "given", "suggested", "quality", "chance_wrong"]]
    for rank, i in enumerate(order[: calibration.cut]):
        if quality[i][0] not in decided:
            suspects.append([*quality[i][:3], f"{float(quality[i][3]):.6f}", f"{chance_M[rank]:.3f}"])
    cleaned: list[list[Any]] = [["id", "label"]]
    for i, (name, label, *_) in enumerate(quality):
        if name in label_of or (i not in doubted and name not in decided):
            cleaned.append([name, label_of.get(name, label)])
    return suspects, cleaned
