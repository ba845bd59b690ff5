"""Features that were computed before, found again by what the sample holds. No file is unpickled.

M samples, F features. A file of safetensors has the hashes of the samples and their features; one file is kept for
each encoder.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from coteach.files import regular_file, write_atomically

HASH_BYTES = 16


def content_hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=HASH_BYTES).digest()


class KeptFeatures:
    """Features by the hash of a sample; `path` is where they are kept, None to forget them."""

    def __init__(self, path: Path | None):
        self.path = path
        self.rows: dict[bytes, np.ndarray] = {} if path is None else kept_rows(path)
        self.found = set(self.rows)

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def write(self) -> None:
        """Keep them for the next time, if there is anything new and a place to write it."""
        if self.path is None or self.rows.keys() <= self.found:
            return
        keys = np.frombuffer(b"".join(self.rows), np.uint8).reshape(-1, HASH_BYTES)
        with suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            write_atomically(self.path, save({"keys": keys, "features": np.stack(list(self.rows.values()))}))


def kept_rows(path: Path) -> dict[bytes, np.ndarray]:
    """What is there; nothing if the file is missing, damaged or of another make."""
    try:
        arrays = load_file(regular_file(path))
        keys, features = arrays["keys"], arrays["features"]
    except (OSError, SafetensorError, KeyError):
        return {}
    if keys.dtype != np.uint8 or features.dtype != np.float32 or features.ndim != 2:
        return {}
    if keys.shape != (len(features), HASH_BYTES) or not np.isfinite(features).all():
        return {}
    return dict(zip(map(bytes, keys), features, strict=True))
