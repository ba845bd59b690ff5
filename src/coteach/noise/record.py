"""What a noise came to, and its file. M samples, C classes."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coteach.checks import check_labels
from coteach.files import write_atomically
from coteach.noise.matrices import check_matrix
from coteach.tensor_files import refuse_damaged, with_checksum

KINDS = ("none", "clean", "symmetric", "pair", "asymmetric", "instance", "matrix")
"""The kinds of noise that `corrupt` draws.

>>> "pair" in KINDS
True
"""
GIVEN_KINDS = ("given", "human")  # of labels that came with the data
FORMAT = "coteach.noise/1"
TENSORS = {"labels": ("I64", 1), "clean": ("BOOL", 1), "matrix": ("F64", 2)}  # type and number of dimensions


@dataclass(frozen=True, eq=False)
class Noise:
    """Noisy labels and the truth about them.

    Parameters
    ----------
    labels : int64 array of shape (M,)
    clean : bool array of shape (M,)
        True where the label kept its true value.
    matrix : float64 array of shape (C, C)
        The Q drawn from (instance noise and given labels: the shares that came out).
    nominal_rate : float
        The share of flips asked for (kind "matrix": the share Q makes on average; given labels: that which is so).
    seed : int
    kind : str

    Examples
    --------
    >>> noise = coteach.noise.corrupt([0, 1] * 50, "pair", 0.1)
    >>> noise.labels.shape, noise.rate, noise.sha256[:8]
    ((100,), 0.09, '773d7256')
    """

    labels: np.ndarray
    clean: np.ndarray
    matrix: np.ndarray
    nominal_rate: float
    seed: int
    kind: str

    @property
    def rate(self) -> float:
        """The share of labels that were flipped."""
        return float((~self.clean).mean())

    @property
    def sha256(self) -> str:
        """The hash of the labels as little-endian int64."""
        return hashlib.sha256(self.labels.astype("<i8").tobytes()).hexdigest()

    def save(self, path: str | os.PathLike) -> None:
        """Write one safetensors file, under a temporary name first.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> import tempfile
        >>> noise = coteach.noise.corrupt([0, 1] * 50, "pair", 0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     noise.save(f"{folder}/noise.safetensors")
        ...     Noise.load(f"{folder}/noise.safetensors").sha256 == noise.sha256
        True
        """
        path = Path(path)
        facts = {"kind": self.kind, "seed": str(self.seed), "nominal_rate": repr(self.nominal_rate)}
        facts |= {"format": FORMAT, "sha256": self.sha256, "checksum": self._checksum()}
        tensors = {name: np.ascontiguousarray(getattr(self, name)) for name in TENSORS}
        try:
            write_atomically(path, with_checksum(save(tensors, facts)))
        except OSError as error:
            raise ValueError(f"{path} cannot be written ({error.strerror}): choose another place.") from error

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Noise":
        """Read what `save` wrote; anything else is a ValueError that names the file.

        Parameters
        ----------
        path : path

        Returns
        -------
        noise : Noise
        """
        try:
            noise, facts = _read_noise(path)
            if noise.sha256 != facts["sha256"]:
                raise ValueError("its labels do not match their hash")
            if noise._checksum() != facts["checksum"]:
                raise ValueError("its contents do not match their checksum")
            refuse_damaged(Path(path))
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
            reason = "".join(
                c if c.isprintable() else "?" for c in reason[:200]
            )  # the file's own words may be in it
            raise ValueError(f"{path} is not a sound noise file ({reason}): draw and save it again.") from error
        return noise

    def _checksum(self) -> str:
        """The hash of everything: a damaged mask or matrix would not change that of the labels."""
        digest = hashlib.sha256(f"{self.kind} {self.seed} {self.nominal_rate!r}".encode())
        for values in (self.labels.astype("<i8"), self.clean, self.matrix.astype("<f8")):
            digest.update(values.tobytes())
        return digest.hexdigest()


def _read_noise(path: str | os.PathLike) -> tuple[Noise, dict[str, str]]:
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError("it is not a regular file")  # a pipe would be waited for
    with safe_open(path, framework="numpy") as file:
        facts = file.metadata() or {}
        if facts.get("format") != FORMAT:
            raise ValueError(f"its format is {facts.get('format')}, not {FORMAT}")
        for name in TENSORS:
            part = file.get_slice(name)
            if (part.get_dtype(), len(part.get_shape())) != TENSORS[name]:
                raise ValueError(f"its {name} are of type {part.get_dtype()} and shape {part.get_shape()}")
        labels, clean, matrix = (file.get_tensor(name) for name in TENSORS)
    if len(labels) != len(clean):
        raise ValueError(f"it has {len(labels)} labels but a mask of {len(clean)}")
    check_labels(labels, len(check_matrix(matrix)))
    if (
        facts["kind"] not in (*KINDS, *GIVEN_KINDS, "openset")
        or not 0 <= (rate := float(facts["nominal_rate"])) <= 1
    ):
        raise ValueError(f"its noise is {facts['kind']!r} at rate {facts['nominal_rate']}")
    return Noise(labels, clean, matrix, rate, int(facts["seed"]), facts["kind"]), facts
