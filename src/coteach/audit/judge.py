"""From samples to suspects: what a fitted classifier found.

N networks, S suspects, C classes, K likeliest classes.
"""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coteach.audit.learners import Learner
from coteach.audit.reasons import reasons_of
from coteach.audit.samples import LabelledSamples, shown
from coteach.classifier import RobustClassifier
from coteach.labels.ledger import Suspects
from coteach.labels.readings import is_wide
from coteach.selective import SelectiveTrainingClassifier

HIGH_NOISE_RATE = 0.3  # share of wrong labels that is doubtful in itself
MOST_LIKELY = 5  # classes that a person may choose by a key
MOST_DOUBTED = 5  # classes that a note names


@dataclass(frozen=True, eq=False)
class Findings:
    """What an audit found.

    Attributes
    ----------
    samples : LabelledSamples
        With `ids`, and `paths`, `texts` or `rows` to show them by; `suspects.index` counts in these.
    classifier : RobustClassifier or SelectiveTrainingClassifier
        Fitted; `label_quality_` has a number for every sample, not for suspects alone.
    suspects : Suspects
        The worst first.
    given_NS, suggested_NS : float arrays
        Each network's probability of the given and of the suggested label, of the suspects.
    notes : tuple of str
        What went wrong or is odd, a sentence each; the samples' own included.
    seconds : float
        What the training took.
    share : float
        Of the samples that are listed as suspects.
    reasons : list of str
        Why each suspect is one, in words.
    likely_SK, likely_p_SK : arrays or None
        The likeliest classes besides the given one by their numbers, the suggested first, and their probabilities.
    """

    samples: LabelledSamples
    classifier: RobustClassifier | SelectiveTrainingClassifier
    suspects: Suspects
    given_NS: np.ndarray
    suggested_NS: np.ndarray
    notes: tuple[str, ...]
    seconds: float
    share: float
    reasons: list[str] = field(default_factory=list)
    likely_SK: np.ndarray | None = None
    likely_p_SK: np.ndarray | None = None

    @property
    def noise_estimate(self) -> Any:
        """With its interval; None for a rate that was given."""
        return getattr(self.classifier, "noise_estimate_", None) if self.classifier.noise_rate == "auto" else None

    @property
    def trusted(self) -> np.ndarray:
        """Marks the samples that are no suspects (M)."""
        trusted_M = np.ones(len(self.samples), dtype=bool)
        trusted_M[self.suspects.index] = False
        return trusted_M


def judge(classifier: Learner, samples: LabelledSamples, share: float | None = None) -> Findings:
    """Train, and list the share of samples whose labels are trusted least; by default the noise rate."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(samples.x, samples.y)
    suspects = classifier.suspects(share)
    p_NSC = probabilities_of(classifier, samples, suspects)
    given_NS, suggested_NS = of_both_labels(p_NSC, classifier.classes_, suspects)
    warned = dict.fromkeys(in_flags(str(warning.message)) for warning in caught)
    doubted = any("noise rate" in line for line in warned)
    high = () if doubted else note_on_high_estimate(classifier)
    wide = note_on_wide_interval(classifier)
    notes = (*samples.notes, *warned, *high, *wide, *notes_on_doubted_classes(samples.y, suspects))
    reasons = reasons_of(classifier, samples, suspects, given_NS, suggested_NS)
    seconds = time.perf_counter() - begin
    share = classifier.noise_rate_ if share is None else share
    likely = likeliest_others(p_NSC, classifier.classes_, suspects)
    return Findings(samples, classifier, suspects, given_NS, suggested_NS, notes, seconds, share, reasons, *likely)


def in_flags(message: str) -> str:
    """What callers in Python are shown as a warning, for the command line."""
    message = message.replace("set keep_per_class=True", "give --keep-per-class")
    return message.replace("give noise_rate.", "give --noise-rate, or embeddings with --npz")


def note_on_wide_interval(classifier: Learner) -> list[str]:
    """Where the data alone leave the rate open, a person's look settles it."""
    estimate = classifier.noise_estimate_
    if classifier.noise_rate != "auto" or estimate is None or not is_wide(estimate):
        return []
    low = round(100 * estimate.interval[0])
    only = f", only that it is at least {low} %" if low else ""
    return [
        f"these features say little about the share of wrong labels{only}: "
        "--check 50 draws samples to look at, from which --calibrate tells it"
    ]


def note_on_high_estimate(classifier: Learner) -> list[str]:
    """Networks that cannot tell the classes apart take their own mistakes for wrong labels.

    After rounds the interval says as much.
    """
    if isinstance(classifier, SelectiveTrainingClassifier):
        return []
    if classifier.noise_rate != "auto" or classifier.noise_rate_ <= HIGH_NOISE_RATE:
        return []
    return [
        f"an estimate of {100 * classifier.noise_rate_:.0f} % is either true or means that these networks cannot "
        "tell the classes apart: look at the first suspects, then give --noise-rate, or embeddings with --npz"
    ]


def notes_on_doubted_classes(y_M: np.ndarray, suspects: Suspects) -> list[str]:
    """One note, if there are classes that are doubted as a whole."""
    classes, counts = np.unique(y_M, return_counts=True)
    doubted = [int((suspects.given == c).sum()) for c in classes]
    most = [f"{shown(str(c))} ({d} of {n})" for c, n, d in zip(classes, counts, doubted, strict=True) if 2 * d > n]
    more = f" and {len(most) - MOST_DOUBTED} more" if len(most) > MOST_DOUBTED else ""
    some = ", ".join(most[:MOST_DOUBTED])
    note = f"cleaned.csv has little left of classes most of whose samples are suspects: {some}{more}"
    return [note] if most else []


def probabilities_of(classifier: Learner, samples: LabelledSamples, suspects: Suspects) -> np.ndarray:
    """Each network's of all classes (NSC); in rounds those of model and neighbours, without the label."""
    if isinstance(classifier, SelectiveTrainingClassifier):
        return classifier.held_out_proba_[None, suspects.index]
    if len(suspects):
        return classifier.networks_proba(samples.x[suspects.index])
    return np.zeros((len(classifier.networks_), 0, len(classifier.classes_)))


def of_both_labels(p_NSC: np.ndarray, classes: np.ndarray, suspects: Suspects) -> tuple[np.ndarray, np.ndarray]:
    """Each network's probability of the given and of the suggested label of every suspect (both NS)."""
    each = np.arange(len(suspects))
    given_S, suggested_S = (np.searchsorted(classes, y) for y in (suspects.given, suspects.suggested))
    return p_NSC[:, each, given_S], p_NSC[:, each, suggested_S]


def likeliest_others(p_NSC: np.ndarray, classes: np.ndarray, suspects: Suspects) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and probabilities of the likeliest classes besides the given one, the suggested first (both SK)."""
    p_SC = np.nan_to_num(p_NSC.mean(0))
    each, order_SC = np.arange(len(suspects)), p_SC.copy()
    order_SC[each, np.searchsorted(classes, suspects.suggested)] = 2
    order_SC[each, np.searchsorted(classes, suspects.given)] = -1  # also where both are the same
    likely_SK = np.argsort(-order_SC, axis=1, kind="stable")[:, : min(MOST_LIKELY, len(classes) - 1)]
    return likely_SK, np.take_along_axis(p_SC, likely_SK, axis=1)
