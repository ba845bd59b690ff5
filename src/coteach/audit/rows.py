"""The rows of a table as samples: labels, ids and features, and which rows had to be left out."""

from pathlib import Path
from typing import Any

import numpy as np

from coteach.audit.encoding import TableEncoder, as_texts
from coteach.audit.samples import Rows, Samples, Skipped, printable, readable, shown
from coteach.audit.tables import read_table


def read_rows(
    path: Path,
    label: str,
    text: str | None = None,
    ident: str | None = None,
    ignore: tuple[str, ...] = (),
    seed: int = 0,
) -> Samples:
    """Samples of a .csv, .tsv or .parquet file.

    A row without a label, without a name in the id column, or without its vector is skipped. Features are learnt
    from all rows that have a label.
    """
    table = read_table(path)
    for name in ignore:
        table.column(name, path)
    labels = table.column(label, path)
    names = None if ident is None else table.column(ident, path)
    texts = None if text is None else as_texts(table.column(text, path))
    without = {i: "no label" for i, cell in enumerate(labels) if no_label(cell)}
    if names is not None:
        without |= {i: f"no name in column {shown(ident or '')}" for i, cell in enumerate(names) if is_blank(cell)}
    table_kept = table.take([i for i in range(len(table)) if i not in without])
    if not len(table_kept):
        raise ValueError(f"no row of {path} has a label in column {shown(label)}: check --label.")
    encoder, notes = TableEncoder.learn(table_kept, (label, ident or label, *ignore), text, seed)
    if not encoder.columns and encoder.text is None:
        raise ValueError(
            f"{path} has no column to learn from besides the label: {'; '.join(notes) or 'add some'}."
        )
    x = encoder.apply(table_kept, path)
    sound = np.isfinite(x).all(1)
    position = {number: i for i, number in enumerate(table.numbers)}
    kept = [position[number] for number in table_kept.numbers]
    without |= {kept[i]: "no vector of the usual length" for i in np.flatnonzero(~sound)}
    if texts is not None and not encoder.columns:
        without |= {i: "no text" for i in kept if not texts[i].strip()}
    stays = [i for i in kept if i not in without]
    order = {i: k for k, i in enumerate(kept)}

    def place(i: int) -> str:
        name = None if names is None else names[i]
        return table.place(i) if is_blank(name) else f"{table.place(i)}, id {printable(str(name))}"

    skipped = [Skipped(place(i), why) for i, why in sorted(without.items())]
    return Samples(
        x=x[[order[i] for i in stays]],
        y=label_array([labels[i] for i in stays]),
        ids=[readable(str(table.numbers[i] if names is None else names[i])) for i in stays],
        what="rows",
        skipped=(*table.skipped, *skipped),
        notes=(*table.notes, *notes),
        places=[place(i) for i in stays],
        texts=None if texts is None else [texts[i] for i in stays],
        rows=Rows(table.columns, stays),
        encoding=encoder,
    )


def no_label(cell: Any) -> bool:
    """Missing or blank; the words NA and none may well be classes."""
    return is_blank(cell) or isinstance(cell, np.ndarray)


def is_blank(cell: Any) -> bool:
    return (
        cell is None or (isinstance(cell, str) and not cell.strip()) or (isinstance(cell, float) and cell != cell)
    )


def label_array(labels: list[Any]) -> np.ndarray:
    """Integers and truth values as they are, also integers written as text; everything else as text."""
    if (
        labels
        and all(type(label) in (bool, int) for label in labels)
        and len({type(label) for label in labels}) == 1
    ):
        return np.array(labels)
    texts = [readable(str(label)) for label in labels]
    if all(is_plain_integer(text) for text in texts):
        return np.array([int(text) for text in texts])
    return np.array(texts)


def is_plain_integer(text: str) -> bool:
    """Written as Python would, so that nothing is lost: not 007, not +1."""
    return len(text) < 18 and text.lstrip("-").isdecimal() and text.isascii() and str(int(text)) == text
