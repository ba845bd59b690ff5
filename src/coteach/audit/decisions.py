"""What a person decided about the suspects, put together with the trusted labels. No torch here."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from coteach.audit.samples import shown
from coteach.audit.tables import read_csv
from coteach.files import as_csv, write_atomically

DECISION_COLUMNS = ("id", "given", "decision", "label", "audit")  # of decisions.csv, in any order
DECISIONS = ("keep", "relabel", "drop")
UNSURE = "unsure"  # looked at, and left open
UNDECIDED = (UNSURE, "")  # what stands in the place of a decision: nothing beside a mere note
CORRECTED = "corrected.csv"
CHECK, CHECK_PAGE = "check.csv", "check.html"

Row = Sequence[Any]


def audit_fingerprint(suspects: Iterable[Row], cleaned: Iterable[Row]) -> str:
    """A hash of the ids and labels in suspects.csv and cleaned.csv, whatever a spreadsheet does to the numbers."""
    facts = [[list(map(str, row[:3])) for row in suspects], [list(map(str, row[:2])) for row in cleaned]]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def review_fingerprint(folder: Path) -> str | None:
    """That of an audit's review page; None if its files are gone."""
    paths = folder / "suspects.csv", folder / "cleaned.csv"
    if not all(path.is_file() for path in paths):
        return None
    return audit_fingerprint(
        read_cells(paths[0], ("id", "given", "suggested")), read_cells(paths[1], ("id", "label"))
    )


def apply_decisions(path: Path, folder: Path) -> dict[str, int]:
    """Write corrected.csv into the audit's folder: cleaned.csv, then the suspects that were kept or relabelled.

    Suspects that were dropped, or about which nothing was decided, are left out.

    Returns
    -------
    dict
        How many were kept, relabelled, dropped and left undecided, about how many of these somebody was not sure,
        and the number of rows written.
    """
    for name in ("suspects.csv", "cleaned.csv"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no {name}: give the folder that the audit wrote with --out.")
    suspects = read_cells(folder / "suspects.csv", ("id", "given", "suggested"))
    cleaned = read_cells(folder / "cleaned.csv", ("id", "label"))
    rows = read_cells(path, DECISION_COLUMNS)
    given = {name: label for name, label, _ in suspects}
    classes = {*given.values(), *(label for _, label in cleaned)}
    check_decisions(rows, path, folder, audit_fingerprint(suspects, cleaned), given, classes)
    decisions = decided_rows(rows)
    label_of = {name: label for name, _, word, label, _ in decisions if word != "drop"}
    more = [(name, label_of[name]) for name in given if name in label_of]
    try:
        write_atomically(folder / CORRECTED, as_csv([("id", "label"), *cleaned, *more]))
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror}): make room, and run it again.") from error
    counts = Counter(word for _, _, word, _, _ in rows)
    undecided = len(given) - len(decisions)
    return {
        **{word: counts[word] for word in (*DECISIONS, UNSURE)},
        "undecided": undecided,
        "rows": len(cleaned) + len(more),
    }


def decided_rows(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows that decide anything: not those that somebody was unsure about, or wrote a note to."""
    return [row for row in rows if row[2] not in UNDECIDED]


def read_cells(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """These cells of every row; raises a ValueError if a row cannot be read."""
    table = read_csv(path)
    if table.skipped:
        raise ValueError(f"{path}, {table.skipped[0].where}, has {table.skipped[0].why}: export it again.")
    if columns == DECISION_COLUMNS and not set(columns) <= set(table.columns):
        raise ValueError(f"{path} holds no decisions: give the file that the page in the browser exported.")
    return list(zip(*(table.column(name, path) for name in columns), strict=True))


def check_decisions(
    decisions: list[tuple[str, ...]],
    path: Path,
    folder: Path,
    fingerprint: str,
    given: dict[str, str],
    classes: set[str],
    what: str = "suspect",
) -> None:
    """Raise a ValueError for decisions that are not about this audit, or not in its words."""
    seen: set[str] = set()
    for name, was, word, label, audit in decisions:
        if audit != fingerprint:
            remedy = "give the folder of its review page with --out"
            if what == "suspect" and (folder / CHECK).is_file():
                remedy += f", or decisions of {CHECK_PAGE} with --calibrate"
            raise ValueError(
                f"{path} belongs to another audit than {folder}, or the files there were changed since: {remedy}."
            )
        if name not in given or was != given[name]:
            raise ValueError(f"{path} has the id {shown(name)}, which is no {what} of {folder}: export it again.")
        if name in seen:
            raise ValueError(f"{path} decides twice about the id {shown(name)}: leave one of the rows.")
        if word not in (*DECISIONS, *UNDECIDED):
            raise ValueError(
                f"{path} says {shown(word)} of {shown(name)}: give {', '.join(DECISIONS)} or {UNSURE}."
            )
        expected = {"keep": was, "relabel": label}.get(word, "")
        if label != expected or (word == "relabel" and label not in classes - {was}):
            raise ValueError(
                f"{path} has the label {shown(label)} for {shown(name)} ({word}): give a class of the audit to "
                "relabel, the given label to keep, and none otherwise."
            )
        seen.add(name)
