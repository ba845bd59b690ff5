"""Weights out of a file as torch.save wrote it before 2020, without running any of it.

Such a file is four pickles and then the numbers of one tensor after the other. The pickles are only looked through
for names: which tensor is kept under which key, and in which order the keys come.
"""

import io
import pickletools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

COUNTS = "num_batches_tracked"  # of a batch norm: whole numbers of 64 bits, all others floats of 32


def stored_tensors(content: bytes) -> dict[str, Tensor]:
    """Flat tensors by their names; a ValueError if it is no such file."""
    stream = io.BytesIO(content)
    try:
        *_, entries, keys = [list(texts_of_pickle(stream)) for _ in range(5)]
        name_of = named_keys(entries)
        return {name_of[key]: next_tensor(stream, name_of[key]) for key, _ in keys}
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"no file of torch.save as it was before 2020 ({error})") from error


def texts_of_pickle(stream: io.BytesIO) -> Iterator[tuple[str, bool]]:
    """The texts of the next pickle in their order, each with whether a tensor's numbers are named next."""
    waiting: list[str] = []
    for operation, argument, _ in pickletools.genops(stream):
        if operation.name == "BINUNICODE":
            waiting.append(str(argument))
        if operation.name in ("BINPERSID", "STOP"):
            yield from ((text, operation.name == "BINPERSID") for text in waiting)
            waiting = []


def named_keys(entries: list[tuple[str, bool]]) -> dict[str, str]:
    """Names by keys: a key is a number, after the name of its tensor; words between them are of torch."""
    names: dict[str, str] = {}
    name = ""
    for text, of_tensor in entries:
        if of_tensor and text.isdecimal():
            names[text] = name
        elif of_tensor and text not in ("storage", "cpu"):
            name = text
    return names


def next_tensor(stream: io.BytesIO, name: str) -> Tensor:
    dtype = np.dtype("<i8" if name.endswith(COUNTS) else "<f4")
    (count,) = np.frombuffer(stream.read(8), "<i8")
    data = stream.read(int(count) * dtype.itemsize)
    return torch.from_numpy(np.frombuffer(data, dtype, int(count)).copy())
