"""From a table to numbers, and later from new tables or images to numbers of the same kind.

M rows, K numbers of a row.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coteach.audit.arrays import loaded
from coteach.audit.columns import (
    Column,
    as_json,
    from_json,
    has_decimal_commas,
    is_missing,
    learn_column,
    with_points,
)
from coteach.audit.images import read_new_images
from coteach.audit.tables import Cells, Table, read_table
from coteach.audit.texts import Texts
from coteach.files import write_atomically
from coteach.words import in_a_line

NAME, WORDS = "encoding.json", "encoding.safetensors"
LARGEST, LARGEST_SIDE = 2**28, 2**14  # bytes of a file, pixels of an image
# What a file raises that is no JSON, is nested too deeply, or does not hold what it should.
BROKEN = (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError, SafetensorError)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """Columns side by side, the text last."""

    columns: list[Column]
    text: Texts | None

    @classmethod
    def learn(
        cls, table: Table, leave_out: Sequence[str], text: str | None, seed: int
    ) -> tuple["TableEncoder", list[str]]:
        """The encoder, and a sentence for each thing it decided."""
        notes: list[str] = []
        names = [name for name in table.columns if name not in (*leave_out, text)]
        cells = {name: usable_cells(table, table.columns[name]) for name in names}
        commas = sum(cells[name] is not table.columns[name] for name in names)
        if commas:
            notes.append(f"decimal commas in {commas} column{'s' * (commas > 1)} are read as points")
        columns = [c for name in names if (c := learn_column(name, cells[name], notes)) is not None]
        texts = None if text is None else Texts.learn(text, as_texts(table.columns[text]), seed)
        return cls(columns, texts), notes

    def apply(self, table: Table, path: Path) -> np.ndarray:
        """Numbers (M, K) as float32; NaN only in a row without its vector."""
        parts = [column.apply(usable_cells(table, table.column(column.name, path))) for column in self.columns]
        if self.text is not None:
            parts.append(self.text.apply(as_texts(table.column(self.text.name, path))))
        return np.concatenate(parts, 1).astype(np.float32)


def usable_cells(table: Table, cells: Cells) -> Cells:
    return with_points(cells) if table.decimal_commas and has_decimal_commas(cells) else cells


def as_texts(cells: Cells) -> list[str]:
    return ["" if is_missing(cell) else str(cell) for cell in cells]


def write_encoding(folder: Path, encoding: Any) -> None:
    """As JSON; the words of a text column and their directions as safetensors beside it."""
    if not isinstance(encoding, TableEncoder):
        write_atomically(folder / NAME, json.dumps(encoding, indent=2) + "\n")
        return
    facts: dict[str, Any] = {"kind": "table", "columns": [as_json(column) for column in encoding.columns]}
    if (text := encoding.text) is not None:
        facts["text"] = {"name": text.name, "words": text.words}
        save_file({"idf": text.idf_V, "directions": np.ascontiguousarray(text.directions_KV)}, folder / WORDS)
    write_atomically(folder / NAME, json.dumps(facts, indent=2) + "\n")


def read_encoding(folder: Path) -> Any:
    """What `write_encoding` wrote."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(f"{folder} holds no {NAME}: give the folder that `coteach audit` has written.")
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes")
        return decoded(json.loads(path.read_text(encoding="utf-8")), folder)
    except BROKEN as error:
        raise ValueError(f"{path} is damaged ({in_a_line(error)[:200]}): audit the data again.") from error


def decoded(facts: Any, folder: Path) -> Any:
    if facts["kind"] == "arrays":
        return facts
    if facts["kind"] == "images":
        if not (type(facts["size"]) is int and 0 < facts["size"] <= LARGEST_SIDE and facts["channels"] in (1, 3)):
            raise ValueError("images of no size")
        return facts
    if facts["kind"] != "table":
        raise ValueError("data of an unknown kind")
    text = None
    if "text" in facts:
        if not (folder / WORDS).is_file():
            raise ValueError(f"without the file {WORDS}")
        arrays = load_file(folder / WORDS)
        text = Texts(facts["text"]["name"], facts["text"]["words"], arrays["idf"], arrays["directions"])
    return TableEncoder([from_json(column) for column in facts["columns"]], text)


def features(folder: str | Path, new: Any) -> np.ndarray:
    """New data as the networks of an audit take them.

    Parameters
    ----------
    folder : path
        What `coteach audit` has written.
    new : path or list of paths
        As the audit's own data: a table with the same columns, an npz file with an array x, or images.
    """
    encoding = read_encoding(Path(folder))
    if isinstance(encoding, TableEncoder):
        return encoding.apply(read_table(Path(new)), Path(new))
    if encoding["kind"] == "arrays":
        return loaded(Path(new), ("x",))["x"]
    paths = [new] if isinstance(new, (str, Path)) else new
    return read_new_images([Path(path) for path in paths], encoding["size"], encoding["channels"])
