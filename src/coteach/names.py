"""The names a user can choose from and what is said of them; nothing heavy, so that `--help` answers at once."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Flag:
    """How a flag looks in a help whose default depends on the others, or whose choices are listed elsewhere.

    Plain data: an experiment says it of its fields, and needs no command line.
    """

    metavar: str
    default: str
    text: str | None = None  # else the docstring of the field
    placed: bool = False  # known by its place, without a flag before it
    alone: str | None = None  # the value of a flag that stands alone; others need one


@dataclass(frozen=True)
class MethodFacts:
    """What is said of a method wherever it is offered, drawn or listed."""

    meaning: str  # a line for help texts
    label: str  # in tables and figures
    # The same in every figure: after Okabe and Ito's, which most colour-blind people can tell apart, and Tol's,
    # darkened until the contrast with white paper is 3 to 1. And the marker, for those who print in grey.
    colour: str
    marker: str
    has_warmup: bool = True  # it does not begin anew, or in rounds
    has_keep_rate: bool = True  # λ says how much it learns from
    small_losses: bool = True  # it picks those, by λ or by a mixture
    drops: bool = True  # samples of which it does not learn the labels
    authors_differ: bool = False  # its authors' code trains it otherwise than their paper says
    held_out: float = 0.0  # share of the samples whose given labels choose the epoch, in its own authors' way
    in_demo: bool = True  # not a part of an ablation, nor for open-set noise
    told_the_truth: bool = False  # so that it is no rival of the others
    only_in_runs: str = ""  # why it is not for a user's own data, to end "only for `coteach run`, because"


METHOD_FACTS = {
    "standard": MethodFacts(
        "learns from every given label",
        "Standard",
        "#000000",
        "o",
        has_keep_rate=False,
        small_losses=False,
        drops=False,
    ),
    "decoupling": MethodFacts(
        "two networks learn where they disagree",
        "Decoupling",
        "#B07600",
        "s",
        has_keep_rate=False,
        small_losses=False,
    ),
    "f_correction": MethodFacts(
        "estimates the flips, then corrects the loss by them",
        "F-correction",
        "#2F8FC4",
        "^",
        has_warmup=False,
        has_keep_rate=False,
        small_losses=False,
        drops=False,
        held_out=0.1,
    ),
    "f_correction_known": MethodFacts(
        "corrects the loss by the true transition matrix",
        "F-correction, Q known",
        "#008F68",
        "v",
        has_warmup=False,
        has_keep_rate=False,
        small_losses=False,
        drops=False,
        held_out=0.1,
        told_the_truth=True,
        only_in_runs="it needs the true transition matrix, which nobody knows of their own labels",
    ),
    "mentornet": MethodFacts("self-paced, learns from its own small losses", "MentorNet", "#857F00", "D"),
    "coteaching": MethodFacts("each network learns from its peer's small losses", "Co-teaching", "#0072B2", "X"),
    "coteaching_plus": MethodFacts(
        "the peer's small losses where the two disagree", "Co-teaching+", "#D55E00", "P", authors_differ=True
    ),
    "coteaching_plus_own": MethodFacts(
        "the same without the exchange: each network keeps to its own small losses",
        "Co-teaching+ without exchange",
        "#882255",
        "h",
        authors_differ=True,
        in_demo=False,
    ),
    "cotraining": MethodFacts(
        "two views, each hands on what it is surest about", "Co-training", "#C2649A", "<", small_losses=False
    ),
    "jocor": MethodFacts("joint loss with agreement, both learn from its small values", "JoCoR", "#8A63C9", ">"),
    "dividemix": MethodFacts(
        "a mixture of losses splits the samples for the peer; labels of the rest are guessed",
        "DivideMix",
        "#332288",
        "d",
        in_demo=False,
    ),
    "iterative": MethodFacts(
        "in rounds, weighs down what lies apart from its class; for images of no class",
        "Iterative",
        "#2A9083",
        "*",
        has_warmup=False,
        has_keep_rate=False,
        small_losses=False,
        in_demo=False,
        only_in_runs="it is for images of no class, and trains in rounds by a program of its own",
    ),
}
HELD_OUT = {name: facts.held_out for name, facts in METHOD_FACTS.items()}
METHOD_MEANINGS = {name: facts.meaning for name, facts in METHOD_FACTS.items()}  # `register_method` adds to them
METHOD_LABELS = {name: facts.label for name, facts in METHOD_FACTS.items()}
WITHOUT_SMALL_LOSSES = [name for name, facts in METHOD_FACTS.items() if not facts.small_losses]
DROPPING_NOTHING = [name for name, facts in METHOD_FACTS.items() if not facts.drops]
WITHOUT_WARMUP = [name for name, facts in METHOD_FACTS.items() if not facts.has_warmup]
ONLY_IN_RUNS = {name: facts.only_in_runs for name, facts in METHOD_FACTS.items() if facts.only_in_runs}

Streams = Literal["1.16", "1.17"]  # the NumPy whose random numbers flip labels
NOISES = {
    "none": "labels as they are",
    "symmetric": "to any other class",
    "pair": "to the next class",
    "asymmetric": "to the next class of the same superclass",
    "instance": "depending on the sample",
    "matrix": "by a matrix of your own",
}
DATASET_LABELS = {  # in figures; others have the names that they are asked for by
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "news": "NEWS",
    "tiny-imagenet": "Tiny-ImageNet",
}
LOSS_LABELS = {
    "cross_entropy": "cross-entropy",
    "softmax_twice": "softmax twice",
    "mae": "absolute error",
    "gce": "GCE",
    "sce": "SCE",
}
LOSS_MEANINGS = {
    "cross_entropy": "the usual one",
    "softmax_twice": "cross-entropy of softmax outputs in place of logits, the authors' accident",
    "mae": "mean absolute error",
    "gce": "generalised cross-entropy",
    "sce": "symmetric cross-entropy",
}
# What can go wrong in an epoch.
EVENTS = {
    "no_disagreement": "batches on which the networks agreed throughout, so that there was nothing to pick",
    "nothing_kept": "batches whose share to keep came to no sample, so that all candidates were taken",
    "non_finite_loss": "batches with a loss or gradient that is not finite, which a network sat out: lower --lr",
    "one_class": "networks that predict one class for the whole test set: if it lasts, give a longer --warmup",
    "out_of_memory": "times that the runs did not fit into memory together and fewer were trained at a time",
    "consensus": "epochs in which the networks agreed throughout, so that two are no better than one",
}

MEASURES = {  # of an epoch: what an axis says, and where it ends
    "test_accuracy": ("test accuracy (%)", 100.0),
    "label_precision": ("label precision (%)", 100.0),
    "disagreement": ("disagreement (%)", 100.0),
    "total_variation": ("total variation", 1.0),
    "keep_rate": ("keep rate λ", 1.0),
}

MEASURE_MEANINGS = {  # below their charts
    "test_accuracy": "Share of the test samples that get their right class.",
    "label_precision": "Share of right labels among those learnt from.",
    "disagreement": "Share of the training samples for which the two networks predict different classes.",
    "total_variation": "How far apart the two networks' probabilities are, from 0 to 1.",
    "keep_rate": "Share of the samples that are learnt from.",
}

# What a field is called on the command line, where all commands have the same word for it.
FLAG_WORDS = {"tau": "noise_rate"}

NEAR = 0.55  # difflib's ratio: "asym" finds asymmetric (0.57), "hinge" does not find gce (0.5)


def help_list(names: dict[str, str]) -> str:
    """Every name with its meaning, a line each, to end a help text."""
    return "".join(f"\n- {name}: {meaning}" for name, meaning in names.items()) + "\n"


def nearest(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt name, or nothing when no name is near."""
    near = nearest_name(name, names)
    return f" (did you mean {near!r}?)" if near else ""


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Which of the names was probably meant."""
    known = {spelt_alike(other): other for other in names}
    wanted = spelt_alike(str(name))
    begun = sorted((other for other in known if other.startswith(wanted)), key=len) if wanted else []
    short = [other for other in known if initials(other) == wanted]
    near = begun or short or difflib.get_close_matches(wanted, list(known), n=1, cutoff=NEAR)
    return known[near[0]] if near else None


def spelt_alike(name: str) -> str:
    """In one spelling what people spell in several.

    >>> spelt_alike("Coteaching+"), spelt_alike("small-cnn"), spelt_alike("small cnn")
    ('coteaching_plus', 'small_cnn', 'small_cnn')
    """
    return name.lower().replace("+", "_plus").replace("-", "_").replace(" ", "_")


def initials(name: str) -> str:
    """The first letters of the words of a name, spelt alike.

    >>> initials("cross_entropy")
    'ce'
    """
    return "".join(word[:1] for word in name.split("_"))


def check_name(what: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError that names the nearest, and all there are."""
    names = tuple(names)
    if what == "method" and name not in names and str(name) in ONLY_IN_RUNS:
        reason, choice = ONLY_IN_RUNS[str(name)], ", ".join(names)
        raise ValueError(f"method {name!r} is only for `coteach run`, because {reason}: choose one of {choice}.")
    if name not in names:
        raise ValueError(f"there is no {what} {name!r}{nearest(name, names)}: choose one of {', '.join(names)}.")


# ---- histograms of losses -------------------------------------------------------------------------------------

PER_DECADE = 8  # bins of the histograms of losses
LOSS_EDGES = [10 ** (i / PER_DECADE) for i in range(-4 * PER_DECADE, 3 * PER_DECADE // 2 + 1)]  # 0.0001 to 31.6
LOSS_BINS = len(LOSS_EDGES) - 1  # the first has what is smaller too, the last what is larger
