"""A table as columns of cells: comma-separated text with the line of every bad row, or parquet."""

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from coteach.audit.samples import Skipped, printable, shown
from coteach.names import nearest
from coteach.words import in_a_line

UTF_8, WINDOWS = (codecs.lookup(name).name for name in ("utf-8-sig", "cp1252"))  # reading a table loads no code
DELIMITERS = (",", ";", "\t")
LONGEST_CELL = 2**27  # characters
AT_ONCE = 2**20  # characters

Cells = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Table:
    """Cells by column: text, Python's values, or an array (rows, numbers) for a column of vectors.

    `numbers` says which rows of the file these are, counted from 0 without the header; `lines` where they begin,
    as an editor counts. Numbers may have decimal commas where a comma parts no cells.
    """

    columns: dict[str, Cells] = field(repr=False)
    numbers: list[int] = field(repr=False)
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    lines: list[int] | None = field(default=None, repr=False)
    decimal_commas: bool = False

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str, path: Path) -> Cells:
        if name not in self.columns:
            there = printable(", ".join(self.columns)[:500])
            raise ValueError(f"{path} has no column {shown(name)}{nearest(name, self.columns)}: it has {there}.")
        return self.columns[name]

    def place(self, i: int) -> str:
        """Where a row is, in words; a parquet file has no lines."""
        return f"row {self.numbers[i]}, counted from 0" if self.lines is None else f"line {self.lines[i]}"

    def take(self, index: Sequence[int]) -> "Table":
        def of(cells: Cells) -> Cells:
            return cells[index] if isinstance(cells, np.ndarray) else [cells[i] for i in index]

        return replace(
            self,
            columns={name: of(cells) for name, cells in self.columns.items()},
            numbers=[self.numbers[i] for i in index],
            lines=None if self.lines is None else [self.lines[i] for i in index],
        )


def read_table(path: Path) -> Table:
    table = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path)
    if not len(table):
        raise ValueError(f"{path} has no rows that can be read: give a table with a header and rows below it.")
    return table


def read_csv(path: Path) -> Table:
    """Cells as text; a row with too many or too few is skipped."""
    check_file(path)
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        encoding = encoding_of(path)
        with path.open(encoding=encoding, newline="") as file:
            table = parsed(file, path)
        note = f"{printable(path.name)} is not UTF-8: read as Windows-1252"
        return table if encoding == UTF_8 else replace(table, notes=(note,))
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read ({error}): save it as comma-separated text.") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): give another file.") from error
    finally:
        csv.field_size_limit(before)


def check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: give a table.")  # a pipe would be waited for without end


def encoding_of(path: Path) -> str:
    """One for the whole file: to leave out the rows with an umlaut alone would leave out some classes more."""
    for encoding in (UTF_8, WINDOWS):
        try:
            with path.open(encoding=encoding, newline="") as file:
                while text := file.read(AT_ONCE):
                    if encoding == WINDOWS and "\0" in text:
                        break
                else:
                    return encoding
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{path} is no text in UTF-8 or Windows-1252: save it as CSV in UTF-8.")


def parsed(file: Any, path: Path) -> Table:
    first = file.readline()
    delimiter = max(DELIMITERS, key=first.count)
    file.seek(0)
    reader = csv.reader(file, delimiter=delimiter)
    header = [name.strip() for name in next(reader, [])]
    check_header(header, path)
    rows, numbers, lines, skipped, number = [], [], [], [], -1
    line = reader.line_num + 1
    for row in reader:
        begins, line = line, reader.line_num + 1
        if not row:
            continue
        number += 1
        if why := why_bad(row, len(header)):
            skipped.append(Skipped(f"line {begins}", why))
            continue
        rows.append(row)
        numbers.append(number)
        lines.append(begins)
    columns: dict[str, Cells] = {name: [row[c] for row in rows] for c, name in enumerate(header)}
    return Table(columns, numbers, tuple(skipped), lines=lines, decimal_commas=delimiter != ",")


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Text that is read back as it was; older Pythons do not quote a lone carriage return by themselves."""
    text = io.StringIO()
    usual, odd = (csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    for row in rows:
        (odd if any("\r" in cell for cell in row if isinstance(cell, str)) else usual).writerow(row)
    return text.getvalue()


def check_header(header: list[str], path: Path) -> None:
    if not header:
        raise ValueError(f"{path} is empty: give a table with a header and rows below it.")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise ValueError(f"{path} has two columns named {shown(name)}: give every column a name of its own.")
        seen.add(name)


def why_bad(row: list[str], wanted: int) -> str:
    return "" if len(row) == wanted else f"{len(row)} cells instead of {wanted}"


def read_parquet(path: Path) -> Table:
    check_file(path)
    arrow, parquet = pyarrow()
    with told(path, arrow):
        table = parquet.read_table(path)
        names = table.column_names
    check_header(names, path)
    with told(path, arrow):
        columns = {name: cells_of(table.column(name), arrow) for name in names}
    return Table(columns, list(range(table.num_rows)))


@contextmanager
def told(path: Path, arrow: ModuleType) -> Iterator[None]:
    """What pyarrow cannot read, texts that are no UTF-8 among it, in a sentence that names the file."""
    try:
        yield
    except (OSError, arrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({in_a_line(error)[:200]}): write it again.") from error


def cells_of(column: Any, arrow: ModuleType) -> Cells:
    kinds = arrow.types
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_temporal(column.type):
        return column.cast(arrow.string()).to_pylist()
    if kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type):
        return vectors_of(column, arrow)
    return column.to_pylist()


def vectors_of(column: Any, arrow: ModuleType) -> Cells:
    """float64 array (rows, numbers), NaN where a row has none or another number of them; else the lists."""
    kind = column.type.value_type
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind)):
        return column.to_pylist()
    lists = [None if chunk is None else np.asarray(chunk, dtype=np.float64) for chunk in lists_of(column)]
    return equal_lengths(lists)


def lists_of(column: Any) -> list[np.ndarray | None]:
    return [None if cell.values is None else cell.values.to_numpy(zero_copy_only=False) for cell in column]


def equal_lengths(lists: Sequence[np.ndarray | None]) -> np.ndarray:
    """The usual length is the commonest; a row of another gets NaN throughout."""
    lengths = np.array([-1 if one is None else len(one) for one in lists])
    known = lengths[lengths > 0]
    usual = int(np.bincount(known).argmax()) if len(known) else 0
    x = np.full((len(lists), usual), np.nan)
    for row, one in zip(x, lists, strict=True):
        if one is not None and len(one) == usual:
            row[:] = one
    return x


def parsed_vectors(cells: Cells) -> np.ndarray | None:
    """Cells such as "[0.1, 0.2]" as `equal_lengths` has them; None if the column is not made of these."""
    there = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if not there or not all(cell.lstrip().startswith("[") for cell in there[:100]):
        return None
    lists = [as_vector(cell) for cell in cells]
    if 2 * sum(one is not None for one in lists) < len(there):
        return None
    return equal_lengths(lists)


def as_vector(cell: Any) -> np.ndarray | None:
    try:
        vector = np.array(json.loads(cell), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return vector if vector.ndim == 1 and len(vector) else None


def pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise ValueError("parquet files need pyarrow: pip install pyarrow.") from error
