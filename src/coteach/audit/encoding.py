"""How an audit made numbers of its data, kept beside its model, to make numbers of new data in the same way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from coteach.audit.arrays import load_arrays
from coteach.audit.images import read_new_images
from coteach.audit.tables import TableEncoder, Texts, column_as_json, column_from_json, read_table
from coteach.checks import one_line
from coteach.files import write_atomically

ENCODING_FILE, TEXT_FILE = "encoding.json", "encoding.safetensors"
LARGEST_FILE, LARGEST_SIDE = 2**28, 2**14  # bytes of a file, pixels of an image
# What a file raises that is no JSON, is nested too deeply, or does not hold what it should.
BROKEN = (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError, SafetensorError)


def write_encoding(folder: Path, encoding: Any) -> None:
    """As JSON; the words of a text column and their directions as safetensors beside it."""
    if not isinstance(encoding, TableEncoder):
        write_atomically(folder / ENCODING_FILE, json.dumps(encoding, indent=2) + "\n")
        return
    facts: dict[str, Any] = {"kind": "table", "columns": [column_as_json(column) for column in encoding.columns]}
    if (text := encoding.text) is not None:
        facts["text"] = {"name": text.name, "words": text.words}
        save_file({"idf": text.idf_V, "directions": np.ascontiguousarray(text.directions_KV)}, folder / TEXT_FILE)
    write_atomically(folder / ENCODING_FILE, json.dumps(facts, indent=2) + "\n")


def read_encoding(folder: Path) -> Any:
    """What `write_encoding` wrote."""
    path = folder / ENCODING_FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no {ENCODING_FILE}: give the folder that `coteach audit` has written.")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"more than {LARGEST_FILE:,} bytes")
        return encoding_from(json.loads(path.read_text(encoding="utf-8")), folder)
    except BROKEN as error:
        raise ValueError(f"{path} is damaged ({one_line(error)[:200]}): audit the data again.") from error


def encoding_from(facts: Any, folder: Path) -> Any:
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
        if not (folder / TEXT_FILE).is_file():
            raise ValueError(f"without the file {TEXT_FILE}")
        arrays = load_file(folder / TEXT_FILE)
        text = Texts(facts["text"]["name"], facts["text"]["words"], arrays["idf"], arrays["directions"])
    return TableEncoder([column_from_json(column) for column in facts["columns"]], text)


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
        return load_arrays(Path(new), ("x",))["x"]
    paths = [new] if isinstance(new, (str, Path)) else new
    return read_new_images([Path(path) for path in paths], encoding["size"], encoding["channels"])
