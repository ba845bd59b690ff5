"""A file with the labels that were given to a training set: .npy, .txt or .csv. M samples, C classes."""

import csv
import io
from pathlib import Path

import numpy as np

from coteach.checks import one_line
from coteach.data.published import FAILURES
from coteach.files import npy_header, read_bounded

COLUMN_NAMES = ("label", "given")
ORDER_NAMES = ("id", "index")
DELIMITED_BY = ",;\t"
SMALL_FILE, BYTES_A_LABEL = 2**20, 2**10  # at most
RULE = (
    "give one label for each training sample, in order: a whole number from 0 or the name of a class, as .npy, "
    "as .txt with one on each line, or as .csv with one column, or with one that is called label"
)


def read_given_labels(path: Path, n_samples: int, class_names: tuple[str, ...]) -> np.ndarray:
    """label_M as int64, or a ValueError that names the file and says what to mend.

    Text that is the name of a class stands for that class, and else must be its number; text that could be both is
    refused. A first line of a .csv that has a cell `label` or `given` names its columns.
    """
    try:
        content = read_bounded(path, SMALL_FILE + BYTES_A_LABEL * n_samples)
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror or 'no regular file'})") from error
    except ValueError as error:
        raise _refusal(path, f"has far more bytes than {n_samples:,} labels need") from error
    readers = {".npy": _npy_labels, ".txt": _lines_of_text, ".csv": _csv_column}
    if path.suffix.lower() not in readers:
        raise _refusal(path, "is neither .npy nor .txt nor .csv")
    values = readers[path.suffix.lower()](content, path)
    if len(values) != n_samples:
        raise _refusal(path, f"has {len(values):,} labels for {n_samples:,} training samples")
    if isinstance(values, list):
        return _classes_of_texts(values, path, class_names)
    wrong = (values < 0) | (values >= len(class_names))
    if wrong.any():
        place, highest = int(wrong.argmax()), len(class_names) - 1
        raise _refusal(path, f"has {values[place]} at position {place}, but classes go from 0 to {highest}")
    return values.astype(np.int64)


def _refusal(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} {what}: {RULE}.")


# ---- kinds of files -------------------------------------------------------------------------------------------


def _npy_labels(content: bytes, path: Path) -> np.ndarray | list[str]:
    stream = io.BytesIO(content)
    try:
        shape, dtype = npy_header(stream)
        values = np.frombuffer(stream.read(), dtype)
    except FAILURES as error:
        raise _refusal(path, f"is no .npy file of plain numbers or text ({one_line(error)[:100]})") from error
    if dtype.kind not in "iuU":
        raise _refusal(path, f"has values of type {dtype.name}, not whole numbers or text")
    if shape != values.shape:
        raise _refusal(path, f"has an array of shape {str(shape)[:60]}, not one row of labels")
    return [str(text) for text in values] if dtype.kind == "U" else values


def _lines_of_text(content: bytes, path: Path) -> list[str]:
    return [line.strip() for line in _decoded(content, path).rstrip().splitlines()]


def _csv_column(content: bytes, path: Path) -> list[str]:
    text = _decoded(content, path).rstrip()
    first = text.partition("\n")[0]
    delimiter = max(DELIMITED_BY, key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise _refusal(path, f"is no comma-separated text ({error})") from error
    rows = [[cell.strip() for cell in row] for row in rows]
    header = [cell.lower() for cell in rows[0]] if rows else []
    named = [name for name in header if name in COLUMN_NAMES]
    if len(named) > 1 or (not named and len(header) > 1):
        raise _refusal(path, f"has {len(header)} columns, and {len(named)} of them are called label or given")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header) and (row or len(header) > 1):
            raise _refusal(path, f"has {len(row)} cells in row {number}, and {len(header)} in the first")
    if not named:
        return ["".join(row) for row in rows]
    _refuse_other_order(header, rows[1:], path)
    return ["" if not row else row[header.index(named[0])] for row in rows[1:]]


def _refuse_other_order(header: list[str], rows: list[list[str]], path: Path) -> None:
    """Rows that are numbered, and not in the order of their numbers, are hardly in that of the samples."""
    for name in ORDER_NAMES:
        if name in header:
            cells = [row[header.index(name)] for row in rows if row]
            if all(map(_is_number, cells)) and (numbers := [int(cell) for cell in cells]) != sorted(numbers):
                raise _refusal(path, f"is not in the order of its column {name}")


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(path, "is no text in UTF-8") from error


# ---- what a text stands for -----------------------------------------------------------------------------------


def _classes_of_texts(texts: list[str], path: Path, class_names: tuple[str, ...]) -> np.ndarray:
    by_name = {name: c for c, name in enumerate(class_names) if class_names.count(name) == 1}
    by_number = {str(c): c for c in range(len(class_names))}
    readings = [known for known in (by_name, by_number) if all(text in known for text in texts)]
    if not readings:
        known = by_name.keys() | by_number.keys()
        place = next((i for i, text in enumerate(texts) if text not in known), 0)
        if not texts[place]:
            raise _refusal(path, f"has no label at position {place}")
        if texts[place] in known:
            raise _refusal(path, "has numbers and names of classes side by side")
        raise _refusal(path, f"has {texts[place][:40]!r} at position {place}, which is no class")
    found = [np.array([known[text] for text in texts], dtype=np.int64) for known in readings]
    if not all(np.array_equal(found[0], other) for other in found):
        raise _refusal(path, "has labels that are numbers and, for other classes, names")
    return found[0]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
