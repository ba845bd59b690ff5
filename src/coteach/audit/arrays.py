"""An npz file with the arrays x and y, and ids if there are any. Nothing is unpickled."""

import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.lib import format as npy_format

from coteach.audit.samples import LabelledSamples, Skipped, readable, shown
from coteach.checks import one_line

# What NumPy and zipfile raise for damaged, encrypted, foreign or absurdly large files.
UNREADABLE = (
    OSError, ValueError, EOFError, TypeError, AttributeError, KeyError, RuntimeError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
CHUNK = 1024  # samples that are looked at together
ARRAY_NAMES = ("x", "y", "ids")
MOST_EXPANSION, ALWAYS_FINE = 100, 2**30  # times the size of the file; bytes


def read_arrays(path: Path) -> LabelledSamples:
    arrays = load_arrays(path, ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    check_shapes(path, arrays)
    if x.dtype.kind not in "biuf":
        raise ValueError(f"x in {path} is of type {x.dtype}: give real numbers.")
    if y.dtype.kind not in "biufUS":
        raise ValueError(f"y in {path} is of type {y.dtype}: give integers or text.")
    if y.dtype.kind == "f" and (between := y[np.isfinite(y) & (y != np.round(y))]).size:
        raise ValueError(f"y in {path} has the number {between[0]:g} for a class: give whole numbers or text.")
    if y.dtype.kind in "US":
        y = np.array(texts_of(y))
    ids = texts_of(arrays.get("ids", np.arange(len(y))))
    unusable = why_unusable(x, y)
    kept = np.array([i for i in range(len(y)) if i not in unusable], dtype=np.int64)
    places = [f"sample {i}, id {ids[i]}" if "ids" in arrays else f"sample {i}" for i in range(len(y))]
    skipped = tuple(Skipped(places[i], why) for i, why in unusable.items())
    return LabelledSamples(
        x=x[kept].astype(np.float32) if x.dtype.kind == "b" else x[kept],
        y=y[kept],
        ids=[ids[i] for i in kept],
        kind="arrays",
        source=path,
        skipped=skipped,
        places=[places[i] for i in kept],
        encoding={"kind": "arrays"},
    )


def load_arrays(path: Path, needed: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The three arrays, or those of them that are there; raises a ValueError if one that is needed is not."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: give one that np.savez wrote.")
    if path.exists() and not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is no npz file: write one with np.savez(path, x=features, y=labels).")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            check_expansion(arrays.zip, path.stat().st_size)
            found = {name: arrays[name] for name in ARRAY_NAMES if name in arrays}
    except UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read ({one_line(error)[:200]}): "
            "write plain numbers and text with np.savez(path, x=features, y=labels)."
        ) from error
    for name in needed:
        if name not in found:
            raise ValueError(f"{path} has no array {name!r}: write it with np.savez(path, x=features, y=labels).")
    return found


def check_expansion(archive: zipfile.ZipFile, packed: int) -> None:
    """A few bytes may claim to be very many: what a member declares is also the most that is read of it."""
    members = [member for member in archive.infolist() if member.filename.removesuffix(".npy") in ARRAY_NAMES]
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise ValueError("it is compressed as NumPy never does")
    whole = sum(member.file_size for member in members)
    if whole > max(ALWAYS_FINE, MOST_EXPANSION * packed):
        raise ValueError(
            f"its {packed:,} bytes would expand to {whole:,}, more than {MOST_EXPANSION} times as many"
        )


def check_shapes(path: Path, arrays: dict[str, np.ndarray]) -> None:
    x, y = arrays["x"], arrays["y"]
    if not 2 <= x.ndim <= 4 or 0 in x.shape[1:]:
        raise ValueError(
            f"x in {path} has shape {x.shape}: give (samples, features), or images of (samples, channels, "
            "height, width)."
        )
    for name in ("y", "ids"):
        if name in arrays and arrays[name].shape != x.shape[:1]:
            raise ValueError(
                f"{name} in {path} has shape {arrays[name].shape} but x {x.shape}: give one for each sample."
            )
    assert y.ndim == 1


def why_unusable(x: np.ndarray, y: np.ndarray) -> dict[int, str]:
    """The number of each sample that is left out, and the reason."""
    unusable: dict[int, str] = {}
    if x.dtype.kind == "f":
        for begin in range(0, len(x), CHUNK):
            finite = np.isfinite(x[begin : begin + CHUNK]).reshape(len(x[begin : begin + CHUNK]), -1).all(1)
            unusable |= {begin + int(i): "a feature that is not a finite number" for i in np.flatnonzero(~finite)}
    if y.dtype.kind == "f":
        unusable |= {int(i): "no label" for i in np.flatnonzero(~np.isfinite(y))}
    if y.dtype.kind == "U":
        unusable |= {int(i): "no label" for i in np.flatnonzero(y == "")}
    return dict(sorted(unusable.items()))


def texts_of(values: np.ndarray) -> list[str]:
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    return [readable(str(value)) for value in values.tolist()]


# ---- features that the user made of images or of the rows of a table --------------------------------------------


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Features (M, F) by the ids of samples, or in the order of the data."""

    path: Path
    x: np.ndarray = field(repr=False)
    ids: list[str] | None = field(default=None, repr=False)

    def rows_of(self, ids: list[str], numbers: list[int], total: int, what: str) -> np.ndarray:
        """Those of these samples, NaN where there is none; by their numbers among all if there are no ids."""
        if self.ids is None:
            if len(self.x) != total:
                raise ValueError(
                    f"{self.path} has {len(self.x):,} rows, and the data {total:,} {what}: "
                    "give a row for each, or an array ids that names them."
                )
            return self.x[numbers]
        row_of = {name: row for row, name in enumerate(self.ids)}
        if len(row_of) < len(self.ids):
            raise ValueError(f"{self.path} has an id more than once: give every row an id of its own.")
        there = np.array([row_of.get(name, -1) for name in ids])
        if not (there >= 0).any():
            raise ValueError(
                f"{self.path} has none of the ids of the data, such as {shown(ids[0])}: name its rows by these."
            )
        return np.where((there >= 0)[:, None], self.x[there], np.nan)


def read_embeddings(path: Path) -> Embeddings:
    """From an npz file with an array x, and maybe ids, or from an npy file."""
    if path.suffix.lower() == ".npy":
        arrays = {"x": load_npy(path)}
    else:
        arrays = load_arrays(path, ("x",))
    x = arrays["x"]
    if x.ndim != 2 or 0 in x.shape or x.dtype.kind not in "iuf":
        raise ValueError(f"x in {path} has shape {x.shape} and type {x.dtype}: give numbers (samples, features).")
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    if not np.isfinite(x).all():
        raise ValueError(
            f"x in {path} has numbers that are not finite, or beyond float32: leave these rows out, and give ids."
        )
    ids = texts_of(arrays["ids"]) if "ids" in arrays else None
    if ids is not None and len(ids) != len(x):
        raise ValueError(f"{path} has {len(ids):,} ids and {len(x):,} rows: give one for each.")
    return Embeddings(path, x, ids)


def load_npy(path: Path) -> np.ndarray:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file: give one that np.save wrote.")
    try:
        with path.open("rb") as file:
            return npy_format.read_array(file, allow_pickle=False)
    except UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read ({one_line(error)[:200]}): write plain numbers with np.save(path, features)."
        ) from error
