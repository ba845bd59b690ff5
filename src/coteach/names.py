"""The names a user can choose from, in a module that imports nothing heavy, so that `--help` answers at once."""

import difflib
from collections.abc import Iterable

METHODS = {
    "standard": "learns from every given label",
    "decoupling": "two networks learn where they disagree",
    "f_correction": "estimates the flips, then corrects the loss by them",
    "f_correction_known": "corrects the loss by the true flip matrix",
    "mentornet": "self-paced, learns from its own small losses",
    "coteaching": "each network learns from its peer's small losses",
    "coteaching_plus": "the peer's small losses where the two disagree",
    "coteaching_plus_own": "the same without the exchange: each network keeps to its own small losses",
    "cotraining": "two views, each hands on what it is surest about",
    "jocor": "joint loss with agreement, both learn from its small values",
    "iterative": "in rounds, weighs down what lies apart from its class; for images of no class",
}
NOISES = {
    "none": "labels as they are",
    "symmetric": "to any other class",
    "pair": "to the next class",
    "asymmetric": "to the next class of the same superclass",
    "instance": "depending on the sample",
    "matrix": "by a matrix of your own",
}
# These two need what nobody knows of their own data: the true flip matrix, and images of no class.
ELSEWHERE = ("f_correction_known", "iterative")

LOSSES = {
    "cross_entropy": "of the logits",
    "softmax_twice": "cross-entropy of the softmax outputs, the authors' accident",
    "mae": "mean absolute error",
    "gce": "generalised cross-entropy",
    "sce": "symmetric cross-entropy",
}


def listed(names: dict[str, str]) -> str:
    """Every name with its meaning, a line each, to end a help text."""
    return "".join(f"\n- {name}: {meaning}" for name, meaning in names.items()) + "\n"


def nearest(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt name, or nothing when no name is near."""
    near = difflib.get_close_matches(str(name).lower(), list(names), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_name(what: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError that names the nearest, and all there are."""
    names = tuple(names)
    if name not in names:
        raise ValueError(f"there is no {what} {name!r}{nearest(name, names)}: choose one of {', '.join(names)}.")
