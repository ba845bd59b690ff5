"""From samples to suspects: the classifier, and what it found.

N networks, M samples, S suspects, C classes.
"""

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coteach.audit.request import Audit
from coteach.audit.samples import Samples, shown
from coteach.classifier import RobustClassifier
from coteach.labels.ledger import Suspects
from coteach.networks import NETWORKS
from coteach.runs.setup import chosen_device

HIGH = 0.3  # share of wrong labels that is doubtful in itself


@dataclass(frozen=True, eq=False)
class Findings:
    """What an audit found.

    Attributes
    ----------
    samples : Samples
        With `ids`, and `paths`, `texts` or `rows` to show them by; `suspects.index` counts in these.
    classifier : RobustClassifier
        Fitted; `label_quality_` has a number for every sample, not for suspects alone.
    suspects : Suspects
        The worst first.
    given_NS, suggested_NS : float arrays
        Each network's probability of the given and of the suggested label, of the suspects.
    notes : tuple of str
        What went wrong or is odd, a sentence each; the samples' own included.
    seconds : float
        What the training took.
    """

    samples: Samples
    classifier: RobustClassifier
    suspects: Suspects
    given_NS: np.ndarray
    suggested_NS: np.ndarray
    notes: tuple[str, ...]
    seconds: float

    @property
    def trusted(self) -> np.ndarray:
        """Marks the samples that are no suspects (M)."""
        trusted_M = np.ones(len(self.samples), dtype=bool)
        trusted_M[self.suspects.index] = False
        return trusted_M


def classifier_for(audit: Audit) -> RobustClassifier:
    """With what the user says, and the classifier's own defaults for the rest."""
    chosen_device(audit.device)  # raises a ValueError for one that is not there
    given: dict[str, Any] = {"method": audit.method, "loss": audit.loss, "epochs": audit.epochs}
    return RobustClassifier(
        module=module_named(audit.module),
        noise_rate=audit.noise_rate,
        keep_per_class=audit.keep_per_class,
        device=audit.device,
        random_state=audit.seed,
        **{name: value for name, value in given.items() if value is not None},
    )


def module_named(name: str | None) -> str | Callable[..., Any] | None:
    """A network of ours by its name, or whatever `package.module:factory` is."""
    if name is None or name in NETWORKS:
        return name
    where, colon, what = name.partition(":")
    if not (colon and where and what):
        raise ValueError(
            f"--module is {name}: give one of {', '.join(NETWORKS)}, or package.module:factory for your own."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")  # the folder the command is given in, as `python -m` has it
    try:
        found = getattr(importlib.import_module(where), what)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{name} cannot be imported ({error}): check its name, or the folder you are in."
        ) from error
    if not callable(found):
        raise ValueError(f"{name} is not a class or function that makes a network: give one.")
    return found


def judge(classifier: RobustClassifier, samples: Samples, share: float | None = None) -> Findings:
    """Train, and list the share of samples whose labels are trusted least; by default the noise rate."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(samples.x, samples.y)
    suspects = classifier.suspects(share)
    given_NS, suggested_NS = opinions(classifier, samples, suspects)
    told = dict.fromkeys(with_flags(str(warning.message)) for warning in caught)
    doubted = any("noise rate" in line for line in told)
    high = () if doubted else high_estimate(classifier)
    notes = (*samples.notes, *told, *high, *starved(samples.y, suspects))
    seconds = time.perf_counter() - begin
    return Findings(samples, classifier, suspects, given_NS, suggested_NS, notes, seconds)


def with_flags(message: str) -> str:
    """What is told to callers in Python, for the command line."""
    message = message.replace("set keep_per_class=True", "give --keep-per-class")
    return message.replace("give noise_rate.", "give --noise-rate, or embeddings with --npz")


def high_estimate(classifier: RobustClassifier) -> list[str]:
    """Networks that cannot tell the classes apart take their own mistakes for wrong labels."""
    if classifier.noise_rate != "auto" or classifier.noise_rate_ <= HIGH:
        return []
    return [
        f"an estimate of {100 * classifier.noise_rate_:.0f} % is either true or means that these networks cannot "
        "tell the classes apart: look at the first suspects, then give --noise-rate, or embeddings with --npz"
    ]


def starved(y_M: np.ndarray, suspects: Suspects) -> list[str]:
    """A note for each class that is doubted as a whole."""
    classes, counts = np.unique(y_M, return_counts=True)
    doubted = [int((suspects.given == c).sum()) for c in classes]
    return [
        f"{d} of the {n} samples of class {shown(str(c))} are suspects, which leaves few of it in cleaned.csv"
        for c, n, d in zip(classes, counts, doubted, strict=True)
        if 2 * d > n
    ]


def opinions(classifier: RobustClassifier, samples: Samples, suspects: Suspects) -> tuple[np.ndarray, np.ndarray]:
    """Each network's probability of the given and of the suggested label of every suspect (N, S)."""
    if not len(suspects):
        none = np.zeros((len(classifier.networks_), 0))
        return none, none
    p_NSC = classifier.networks_proba(samples.x[suspects.index])
    each = np.arange(len(suspects))
    given_S, suggested_S = (np.searchsorted(classifier.classes_, y) for y in (suspects.given, suspects.suggested))
    return p_NSC[:, each, given_S], p_NSC[:, each, suggested_S]
