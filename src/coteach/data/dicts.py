"""Data sets whose samples are dicts, as Hugging Face has them: which entries make a sample, which is its label."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

LABEL_COLUMNS = ("labels", "label", "label_ids")
INDEX_COLUMN = "index"  # each sample's number
TOKENS = ("input_ids", "attention_mask", "token_type_ids")
USUAL_ENTRIES = ("pixel_values", "image", "img", "features", "inputs", "x")  # of samples that are one array


@dataclass(frozen=True)
class Entries:
    """Which entries of the dicts are looked at."""

    names: tuple[str, ...]  # of the sample: one array, tokens and their masks, or a number each
    length: int = 0  # tokens of a sample, to which all are filled up or cut; 0 for no tokens
    filling: int = 0  # the token to fill up with
    label: str | None = None

    @property
    def are_tokens(self) -> bool:
        return self.length > 0


def is_of_dicts(data: Any) -> bool:
    """Whether its samples are dicts; a data frame's are not."""
    if hasattr(data, "shape") and not hasattr(data, "column_names"):  # arrays, frames and tensors
        return False
    if isinstance(data, (dict, str, bytes)) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return False
    try:
        return len(data) > 0 and isinstance(data[0], Mapping)
    except Exception:  # whoever reads it then says what is wrong with it
        return False


def entries_of(data: Any, filling: int = 0) -> Entries:
    """Found in the first sample, or a ValueError that says why not; tokens are counted in all."""
    first = data[0]
    label = next((name for name in LABEL_COLUMNS if name in first), None)
    others = [name for name in first if name not in (*LABEL_COLUMNS, INDEX_COLUMN)]
    if "input_ids" in first:
        names = tuple(name for name in TOKENS if name in first or name == "attention_mask")
        longest = max(len(data[i]["input_ids"]) for i in range(len(data)))
        return Entries(names, longest, filling, label)
    arrays = [name for name in others if is_array(first[name])]
    usual = [name for name in arrays if name in USUAL_ENTRIES]
    if len(arrays) == 1 or len(usual) == 1:
        return Entries(tuple(usual or arrays), label=label)
    numbers = [name for name in others if is_one_number(first[name])]
    if numbers and not arrays:
        return Entries(tuple(numbers), label=label)
    raise ValueError(
        f"it is unclear which of {', '.join(map(repr, others)) or 'no entries'} is the sample: keep one that is "
        "an array or image, or tokens as input_ids, which dataset.map makes of texts."
    )


def is_array(value: Any) -> bool:
    if hasattr(value, "getbands") or getattr(value, "ndim", 0) > 0:
        return True
    return isinstance(value, (list, tuple)) and bool(value) and (is_one_number(value[0]) or is_array(value[0]))


def is_one_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, np.number)) or getattr(value, "ndim", None) == 0


class FromDicts:
    """A map-style data set of (sample, label), or of samples alone, read from one of dicts."""

    def __init__(self, data: Any, entries: Entries):
        self.data, self.entries = data, entries
        feature = (getattr(data, "features", None) or {}).get(entries.label)
        self.class_names = list(feature.names) if hasattr(feature, "names") else None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> Any:
        item, entries = self.data[i], self.entries
        if entries.are_tokens:
            sample: Any = tokens(item, entries)
        elif len(entries.names) == 1 and not is_one_number(item[entries.names[0]]):
            sample = item[entries.names[0]]
        else:
            sample = np.array([float(item[name]) for name in entries.names], dtype=np.float32)
        if entries.label is None or entries.label not in item:
            return sample
        return sample, self._label(item[entries.label])

    def _label(self, label: Any) -> Any:
        """By its name, where the data set has names."""
        if self.class_names is None or label is None:
            return label
        return self.class_names[int(label)] if int(label) >= 0 else None


def tokens(item: Mapping[str, Any], entries: Entries) -> np.ndarray:
    """The token numbers and their masks, one after the other, each filled up to the same length or cut."""
    n = min(len(item["input_ids"]), entries.length)
    rows = np.zeros((len(entries.names), entries.length), dtype=np.float32)  # exact up to 16 million
    for row, name in zip(rows, entries.names, strict=True):
        row[:n] = (
            np.asarray(item[name])[:n] if name in item else 1
        )  # all tokens count where no mask says otherwise
        if name == "input_ids":
            row[n:] = entries.filling
    return rows.ravel()


def as_pairs(data: Any, known: Entries | None = None, filling: int = 0) -> tuple[Any, Entries | None]:
    """A data set of dicts as one of pairs, by the entries that are known or that it has; others as they are."""
    if not is_of_dicts(data):
        return data, None
    entries = known or entries_of(data, filling)
    missing = [name for name in entries.names if name not in data[0] and name != "attention_mask"]
    if missing:
        raise ValueError(f"samples have no entry {missing[0]!r}, which those of fit had: give the same entries.")
    label = next((name for name in LABEL_COLUMNS if name in data[0]), None)
    return FromDicts(data, replace(entries, label=label)), entries
