"""Features that were computed before, found again by what the sample holds. No file is unpickled.

M samples, F features. A file of safetensors has the hashes of the samples and their features; one file is kept for
each encoder. It only saves time: what is damaged is made anew, and where none can be written the work goes on.
"""

import hashlib
import warnings
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from coteach.checks import one_line
from coteach.files import refuse_other_than_file, regular_file, write_atomically
from coteach.tensor_files import refuse_damaged, with_checksum

HASH_BYTES = 16


def content_hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=HASH_BYTES).digest()


class KeptFeatures:
    """Features by the hash of a sample; `path` is where they are kept, None to forget them."""

    def __init__(self, path: Path | None):
        self.path = path
        self.rows: dict[bytes, np.ndarray] = {}
        try:
            if path is not None:
                refuse_linked(path)
                self.rows = kept_rows(path)
        except ValueError as error:
            self._keep_none(error)
        self.found = set(self.rows)

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def write(self) -> None:
        """Keep them for the next time, if there is anything new and a place to write it."""
        if self.path is None or self.rows.keys() <= self.found:
            return
        keys = np.frombuffer(b"".join(self.rows), np.uint8).reshape(-1, HASH_BYTES)
        try:
            features = np.stack(list(self.rows.values()))
            self.path.parent.mkdir(exist_ok=True)
            refuse_linked(self.path)
            write_atomically(self.path, with_checksum(save({"keys": keys, "features": features})))
        except (OSError, ValueError) as error:
            self._keep_none(error)

    def _keep_none(self, why: Exception) -> None:
        said = f"{self.path}: {why.strerror}" if isinstance(why, OSError) else one_line(why)
        self.path = None
        warnings.warn(
            f"features are not kept for the next time: {said.removeprefix('ValueError: ')}", stacklevel=4
        )


def refuse_linked(path: Path) -> None:
    """Nothing is read or written through a link: not the file, not its folder."""
    if path.parent.is_symlink():
        raise ValueError(f"{path.parent} is a link, where a folder is to be: remove it, or choose another place.")
    refuse_other_than_file(path)


def kept_rows(path: Path) -> dict[bytes, np.ndarray]:
    """What is there; nothing if the file is missing, damaged or of another make."""
    try:
        refuse_damaged(path)
        arrays = load_file(regular_file(path))
        keys, features = arrays["keys"], arrays["features"]
    except (OSError, SafetensorError, KeyError, ValueError):
        return {}
    if keys.dtype != np.uint8 or features.dtype != np.float32 or features.ndim != 2:
        return {}
    if keys.shape != (len(features), HASH_BYTES) or not np.isfinite(features).all():
        return {}
    return dict(zip(map(bytes, keys), features, strict=True))
