"""The names a user can choose from, in a module that imports nothing heavy, so that `--help` answers at once."""

import difflib
from collections.abc import Iterable

METHODS = (
    "standard",
    "decoupling",
    "f_correction",
    "f_correction_known",
    "mentornet",
    "coteaching",
    "coteaching_plus",
    "cotraining",
    "jocor",
)
NOISES = ("none", "symmetric", "pair", "asymmetric", "instance", "matrix")
LOSSES = ("cross_entropy", "softmax_twice", "mae", "gce", "sce")


def nearest(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt name, or nothing when no name is near."""
    near = difflib.get_close_matches(str(name).lower(), list(names), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_name(what: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError that names the nearest, and all there are."""
    names = tuple(names)
    if name not in names:
        raise ValueError(f"there is no {what} {name!r}{nearest(name, names)}: choose one of {', '.join(names)}.")
