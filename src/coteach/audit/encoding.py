"""How an audit made numbers of its data, kept beside its model, to make numbers of new data in the same way."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from coteach.audit.arrays import load_arrays, load_npy
from coteach.audit.encoded import EncodedTexts
from coteach.audit.features import encode
from coteach.audit.images import read_new_images
from coteach.audit.tables import TableEncoder, Texts, column_as_json, column_from_json, read_table
from coteach.checks import LARGEST_SIDE, one_line
from coteach.encoders.named import is_code, text_encoder
from coteach.files import write_atomically
from coteach.tensor_files import refuse_damaged, with_checksum

ENCODING_FILE, TEXT_FILE = "encoding.json", "encoding.safetensors"
LARGEST_FILE = 2**28  # bytes
# What a file raises that is no JSON, is nested too deeply, or does not hold what it should.
BROKEN = (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError, SafetensorError)


def write_encoding(folder: Path, encoding: Any) -> None:
    """As JSON; the words of a text column and their directions as safetensors beside it."""
    if not isinstance(encoding, TableEncoder):
        write_facts(folder, encoding)
        return
    facts: dict[str, Any] = {"kind": "table", "columns": [column_as_json(column) for column in encoding.columns]}
    text = encoding.text
    if isinstance(text, EncodedTexts):
        facts["text"] = {"name": text.name, "encoder": text.called}
    if isinstance(text, Texts):
        facts["text"] = {"name": text.name, "words": text.words}
        arrays = {"idf": text.idf_V, "directions": np.ascontiguousarray(text.directions_KV)}
        write_atomically(folder / TEXT_FILE, with_checksum(save(arrays)))
    write_facts(folder, facts)


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    sealed = facts | {"sha256": digest_of(facts)}
    write_atomically(folder / ENCODING_FILE, json.dumps(sealed, indent=2) + "\n")


def digest_of(facts: dict[str, Any]) -> str:
    """The hash of all facts except the hash."""
    rest = {name: value for name, value in facts.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()


def read_encoding(folder: Path) -> Any:
    """What `write_encoding` wrote."""
    path = folder / ENCODING_FILE
    if not path.is_file():
        raise ValueError(f"{folder} holds no {ENCODING_FILE}: give the folder that `coteach audit` has written.")
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ValueError(f"more than {LARGEST_FILE:,} bytes")
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts.pop("sha256", None) not in (None, digest_of(facts)):  # none before 0.2
            raise ValueError("not as it was written")
        return encoding_from(facts, folder)
    except BROKEN as error:
        raise ValueError(f"{path} is damaged ({one_line(error)[:200]}): audit the data again.") from error


def encoding_from(facts: Any, folder: Path) -> Any:
    if facts["kind"] == "arrays":
        return facts
    if facts["kind"] == "images":
        whole = type(facts["size"]) is int and 0 < facts["size"] <= LARGEST_SIDE
        if not whole or not (type(facts.get("encoder")) is str or facts["channels"] in (1, 3)):
            raise ValueError("images of no size")
        return facts
    if facts["kind"] != "table":
        raise ValueError("data of an unknown kind")
    text = None
    if "encoder" in facts.get("text", {}):
        text = EncodedTexts(facts["text"]["name"], str(facts["text"]["encoder"]))
    elif "text" in facts:
        if not (folder / TEXT_FILE).is_file():
            raise ValueError(f"without the file {TEXT_FILE}")
        refuse_damaged(folder / TEXT_FILE)
        arrays = load_file(folder / TEXT_FILE)
        text = Texts(facts["text"]["name"], facts["text"]["words"], arrays["idf"], arrays["directions"])
    return TableEncoder([column_from_json(column) for column in facts["columns"]], text)


def features(folder: str | Path, new: Any, encoder: Any = None) -> np.ndarray:
    """New data as the networks of an audit take them.

    Parameters
    ----------
    folder : path
        What `coteach audit` has written.
    new : path or list of paths
        As the audit's own data: a table with the same columns, an npz file with an array x, or images.
    encoder : callable, optional
        The one of the audit, if it was code of your own: nothing that a file names is run.
    """
    encoding = read_encoding(Path(folder))
    if isinstance(encoding, TableEncoder):
        if isinstance(text := encoding.text, EncodedTexts):
            text = replace(text, encoder=text_encoder(encoder_named(text.called, encoder)))
        return TableEncoder(encoding.columns, text).apply(read_table(Path(new)), Path(new))
    if encoding["kind"] == "arrays":
        path = Path(new)
        return load_npy(path) if path.suffix.lower() == ".npy" else load_arrays(path, ("x",))["x"]
    paths = [Path(path) for path in ([new] if isinstance(new, (str, Path)) else new)]
    if "encoder" in encoding:
        return encode(paths, encoder_named(encoding["encoder"], encoder), size=encoding["size"])
    return read_new_images(paths, encoding["size"], encoding["channels"])


def encoder_named(name: str, given: Any) -> Any:
    """What the user gives, or what a file names if that is no code."""
    if given is None and is_code(name):
        raise ValueError(f"the audit's encoder is {name}, code of your own: give it as encoder.")
    return name if given is None else given
