"""One file of tensors, and all else as JSON in its header: safetensors, so that reading one runs no code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

KEY = "coteach"


def as_bytes(facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, {KEY: json.dumps(facts)})


def read(path: Path, otherwise: str, *, only_facts: bool = False) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and the tensors; a ValueError that says `otherwise` of what is no such file."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise OSError
        with safe_open(path, "pt") as file:
            facts = json.loads(file.metadata()[KEY])
            names = () if only_facts else file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        if not isinstance(facts, dict):
            raise TypeError
    except (SafetensorError, OSError, KeyError, TypeError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} {otherwise}") from error
    return facts, tensors
