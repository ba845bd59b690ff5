"""Columns of a table as numbers: what is learnt of the audited table is applied to later ones alike.

M rows, K numbers that a column becomes.
"""

import re
import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from coteach.audit.samples import shown
from coteach.audit.tables import Cells, parsed_vectors

MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "?", "<na>"}  # in features; not as a label
MOST_VALUES = 50  # of a category that get a number of their own
DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+(,\d+)?([eE][-+]?\d+)?\s*", re.ASCII)  # or a whole number
NEARLY_ALL = 0.95  # of a column's cells, to say what kind it is
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}([T ]\d{1,2}:\d{2}.*)?"
)


@dataclass(frozen=True)
class Numbers:
    """Numbers as they are; a missing one is the median, and marked if the audited table had missing ones."""

    name: str
    median: float
    marked: bool
    kind: ClassVar[str] = "numbers"

    def apply(self, cells: Cells) -> np.ndarray:
        x_M, _ = as_numbers(cells)
        gone = np.isnan(x_M)
        filled = np.where(gone, self.median, x_M)
        return np.stack([filled, gone], 1) if self.marked else filled[:, None]


@dataclass(frozen=True)
class Category:
    """A number for each of the commonest values, one for all others if there are any, one for a missing value."""

    name: str
    values: list[str]
    others: bool
    missing: bool
    kind: ClassVar[str] = "category"

    def apply(self, cells: Cells) -> np.ndarray:
        place = {value: k for k, value in enumerate(self.values)}
        x_MK = np.zeros((len(cells), len(place) + self.others + self.missing))
        for row, cell in zip(x_MK, cells, strict=True):
            if is_missing(cell):
                row[-1:] = self.missing
            elif (k := place.get(str(cell))) is not None:
                row[k] = 1
            elif self.others:
                row[len(place)] = 1
        return x_MK


@dataclass(frozen=True)
class Vectors:
    """A column of vectors; a row without one has NaN."""

    name: str
    length: int
    kind: ClassVar[str] = "vectors"

    def apply(self, cells: Cells) -> np.ndarray:
        x_MK = cells if isinstance(cells, np.ndarray) else parsed_vectors(cells)
        if x_MK is None or x_MK.shape[1] != self.length:
            raise ValueError(f"column {shown(self.name)} does not hold vectors of {self.length} numbers.")
        return np.where(np.isfinite(x_MK).all(1, keepdims=True), x_MK, np.nan)


Column = Numbers | Category | Vectors
KINDS: dict[str, type[Column]] = {kind.kind: kind for kind in (Numbers, Category, Vectors)}


def learn_column(name: str, cells: Cells, notes: list[str]) -> Column | None:
    """How a column becomes numbers; None, and a note, for one that is left out."""

    def leave_out(why: str) -> None:
        notes.append(f"column {shown(name)} is left out: {why}")

    vectors = cells if isinstance(cells, np.ndarray) else parsed_vectors(cells)
    if vectors is not None:
        return Vectors(name, vectors.shape[1]) if vectors.shape[1] else leave_out("its vectors are empty")
    there = [cell for cell in cells if not is_missing(cell)]
    if not there:
        return leave_out("it is empty")
    if not all(isinstance(cell, (str, Real)) or type(cell).__name__ == "Decimal" for cell in there):
        return leave_out(f"cells of type {type(there[0]).__name__} cannot be used")
    if sum(isinstance(cell, str) and bool(DATE.fullmatch(cell.strip())) for cell in there) >= NEARLY_ALL * len(
        there
    ):
        return leave_out("dates cannot be used; make numbers of them, such as the year or the day of the week")
    x_M, odd = as_numbers(cells)
    if odd <= (1 - NEARLY_ALL) * len(there):
        return learn_numbers(name, x_M, odd, notes)
    return learn_category(name, [str(cell) for cell in there], len(there) < len(cells), notes)


def learn_numbers(name: str, x_M: np.ndarray, odd: int, notes: list[str]) -> Numbers | None:
    known = x_M[~np.isnan(x_M)]
    if odd:
        notes.append(f"column {shown(name)}: {odd} cell(s) that are no finite numbers count as missing")
    if len(known) == len(x_M) and (np.diff(x_M) > 0).all() and (x_M == np.floor(x_M)).all():
        named = f"--id {shlex.quote(name)} would name them by it"
        notes.append(f"column {shown(name)} is left out: it numbers the rows; {named}")
        return None
    if len(known) == len(x_M) and known.min() == known.max():
        notes.append(f"column {shown(name)} is left out: it is the same in every row")
        return None
    return Numbers(name, float(np.median(known)), len(known) < len(x_M))


def learn_category(name: str, there: list[str], missing: bool, notes: list[str]) -> Category | None:
    counts = Counter(there)
    if len(counts) == 1 and not missing:
        notes.append(f"column {shown(name)} is left out: it is the same in every row")
        return None
    if len(counts) > MOST_VALUES and 2 * len(counts) > len(there):
        notes.append(
            f"column {shown(name)} is left out: nearly every row has its own value; "
            f"is it a text (--text {shlex.quote(name)}) or a name of the row (--id {shlex.quote(name)})?"
        )
        return None
    if len(counts) > MOST_VALUES:
        notes.append(
            f"column {shown(name)} has {len(counts)} values: all but the {MOST_VALUES} commonest count as one"
        )
    common = sorted(counts, key=lambda value: (-counts[value], value))[:MOST_VALUES]
    return Category(name, sorted(common), len(counts) > MOST_VALUES, missing)


def as_numbers(cells: Cells) -> tuple[np.ndarray, int]:
    """float64 (M,), NaN for what is missing or no finite number; and how many are there but no finite number."""
    x_M = np.full(len(cells), np.nan)
    odd = 0
    for i, cell in enumerate(cells):
        if is_missing(cell):
            continue
        try:
            value = float(
                "_" if isinstance(cell, str) and "_" in cell else cell
            )  # Python reads 1_000, others do not
        except (ValueError, TypeError, OverflowError):
            odd += 1
            continue
        x_M[i] = value if np.isfinite(value) else np.nan
        odd += not np.isfinite(value)
    return x_M, odd


def has_decimal_commas(cells: Cells) -> bool:
    """Whether all that is there are numbers as 1,5, or whole ones, and not all of them whole."""
    if isinstance(cells, np.ndarray):
        return False
    there = [cell for cell in cells if not is_missing(cell)]
    return any("," in str(cell) for cell in there) and all(
        isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell) for cell in there
    )


def with_points(cells: Cells) -> list[Any]:
    return [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]


def is_missing(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def as_json(column: Column) -> dict[str, Any]:
    return {"kind": column.kind, **asdict(column)}


def from_json(facts: dict[str, Any]) -> Column:
    return KINDS[facts["kind"]](**{name: value for name, value in facts.items() if name != "kind"})
