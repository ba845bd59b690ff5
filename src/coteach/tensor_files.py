"""Files of tensors as safetensors, which run no code when they are read, with a checksum over all their bytes.

It is compared before anything is used. Versions before 0.2 wrote none: their files are read as they are.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coteach.files import regular_file

if TYPE_CHECKING:
    from torch import Tensor

FACTS = "coteach"  # the entry in the header for facts as JSON
CHECKSUM = "file_sha256"
BLANK = b"0" * 64  # in its place while it is computed
EARLIER_ENTRIES = {FACTS, "kind", "seed", "nominal_rate", "format", "sha256", "checksum"}  # of files without one


def with_checksum(content: bytes) -> bytes:
    """The file with a checksum first in its header and the other entries sorted: same contents, same bytes."""
    length = int.from_bytes(content[:8], "little")
    tensors, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    entries = sorted(tensors.pop("__metadata__", {}).items())
    header = json.dumps({"__metadata__": {CHECKSUM: BLANK.decode(), **dict(entries)}, **tensors}).encode()
    header += b" " * (-len(header) % 8)  # tensors are aligned
    whole = len(header).to_bytes(8, "little") + header + data
    return whole.replace(BLANK, hashlib.sha256(whole).hexdigest().encode(), 1)


def refuse_damaged(path: Path) -> None:
    """Raise a ValueError if a file is not as it was written."""
    damaged = ValueError(f"{path} is damaged: put a copy of it in its place, or make it anew.")
    with regular_file(path).open("rb") as file:
        start = file.read(8)
        if (length := int.from_bytes(start, "little")) > os.fstat(file.fileno()).st_size:
            raise damaged
        header = file.read(length)
        try:
            entries = dict(json.loads(header.decode()).get("__metadata__", {}))
            told = str(entries.get(CHECKSUM))
            if CHECKSUM.encode() not in header and entries.keys() <= EARLIER_ENTRIES:
                return
            begun = hashlib.sha256(start + header.replace(told.encode(), BLANK, 1))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise damaged from error
        if hashlib.file_digest(file, lambda: begun).hexdigest() != told:
            raise damaged


def tensors_as_bytes(facts: dict[str, Any] | None, tensors: Mapping[str, "Tensor"]) -> bytes:
    """A file of tensors, and of the facts if there are any."""
    from safetensors.torch import save

    entries = None if facts is None else {FACTS: json.dumps(facts)}
    return with_checksum(save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, entries))


def read_tensors(
    path: Path, otherwise: str, *, only_facts: bool = False
) -> tuple[dict[str, Any], dict[str, "Tensor"]]:
    """The facts and the tensors; a ValueError that says `otherwise` of what is no such file."""
    from safetensors import SafetensorError, safe_open

    try:
        if not only_facts:
            refuse_damaged(path)
        with safe_open(regular_file(path), "pt") as file:
            facts = json.loads(file.metadata()[FACTS])
            names = () if only_facts else file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        if not isinstance(facts, dict):
            raise TypeError
    except (SafetensorError, OSError, KeyError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} {otherwise}") from error
    return facts, tensors
