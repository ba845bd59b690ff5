"""The names a user can choose from, in a module that imports nothing heavy, so that `--help` answers at once."""

import difflib
from collections.abc import Iterable
from typing import Literal

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
Streams = Literal["1.17", "1.16"]  # the NumPy whose random numbers flip labels
NOISES = {
    "none": "labels as they are",
    "symmetric": "to any other class",
    "pair": "to the next class",
    "asymmetric": "to the next class of the same superclass",
    "instance": "depending on the sample",
    "matrix": "by a matrix of your own",
}
# These two ask for what nobody has of their own data; why, to end "only for `coteach run`, because".
ELSEWHERE = {
    "f_correction_known": "it needs the true flip matrix, which nobody knows of their own labels",
    "iterative": "it is for images of no class, and trains in rounds by a program of its own",
}

LOSSES = {
    "cross_entropy": "of the logits",
    "softmax_twice": "cross-entropy of the softmax outputs, the authors' accident",
    "mae": "mean absolute error",
    "gce": "generalised cross-entropy",
    "sce": "symmetric cross-entropy",
}
NEAR = 0.55  # difflib's ratio: "asym" finds asymmetric (0.57), "hinge" does not find gce (0.5)


def listed(names: dict[str, str]) -> str:
    """Every name with its meaning, a line each, to end a help text."""
    return "".join(f"\n- {name}: {meaning}" for name, meaning in names.items()) + "\n"


def nearest(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt name, or nothing when no name is near."""
    known = {spelt_alike(other): other for other in names}
    wanted = spelt_alike(str(name))
    begun = sorted((other for other in known if other.startswith(wanted)), key=len) if wanted else []
    short = [other for other in known if initials(other) == wanted]
    near = begun or short or difflib.get_close_matches(wanted, list(known), n=1, cutoff=NEAR)
    return f" (did you mean {known[near[0]]!r}?)" if near else ""


def spelt_alike(name: str) -> str:
    """In one spelling what people spell in several.

    >>> spelt_alike("Coteaching+"), spelt_alike("small-cnn"), spelt_alike("small cnn")
    ('coteaching_plus', 'small_cnn', 'small_cnn')
    """
    return name.lower().replace("+", "_plus").replace("-", "_").replace(" ", "_")


def initials(name: str) -> str:
    """Of the words of a name that is spelt alike.

    >>> initials("cross_entropy")
    'ce'
    """
    return "".join(word[:1] for word in name.split("_"))


def check_name(what: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError that names the nearest, and all there are."""
    names = tuple(names)
    if what == "method" and name not in names and str(name) in ELSEWHERE:
        reason, choice = ELSEWHERE[str(name)], ", ".join(names)
        raise ValueError(f"method {name!r} is only for `coteach run`, because {reason}: choose one of {choice}.")
    if name not in names:
        raise ValueError(f"there is no {what} {name!r}{nearest(name, names)}: choose one of {', '.join(names)}.")
