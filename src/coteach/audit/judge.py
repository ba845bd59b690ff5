"""From samples to suspects: the classifier, what it found, and a forecast of how long that takes.

N networks, M samples, S suspects, C classes, B samples of a batch.
"""

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch.nn.functional import cross_entropy

from coteach.audit.samples import LabelledSamples, shown
from coteach.classifier import RobustClassifier
from coteach.classifier.inputs import channels_first
from coteach.classifier.modules import checked_network
from coteach.classifier.options import usual_batch
from coteach.engine.setup import chosen_device
from coteach.labels.ledger import Suspects
from coteach.methods import METHODS
from coteach.networks import NETWORKS

HIGH_NOISE_RATE = 0.3  # share of wrong labels that is doubtful in itself


@dataclass(frozen=True, eq=False)
class Findings:
    """What an audit found.

    Attributes
    ----------
    samples : LabelledSamples
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
    share : float
        Of the samples that are listed as suspects.
    """

    samples: LabelledSamples
    classifier: RobustClassifier
    suspects: Suspects
    given_NS: np.ndarray
    suggested_NS: np.ndarray
    notes: tuple[str, ...]
    seconds: float
    share: float

    @property
    def trusted(self) -> np.ndarray:
        """Marks the samples that are no suspects (M)."""
        trusted_M = np.ones(len(self.samples), dtype=bool)
        trusted_M[self.suspects.index] = False
        return trusted_M


def new_classifier(module: str | None, device: str, **settings: Any) -> RobustClassifier:
    """With what the user says, and the classifier's own defaults for what is None."""
    chosen_device(device)  # raises a ValueError for one that is not there
    given = {name: value for name, value in settings.items() if value is not None}
    return RobustClassifier(module=module_named(module), device=device, **given)


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


def judge(classifier: RobustClassifier, samples: LabelledSamples, share: float | None = None) -> Findings:
    """Train, and list the share of samples whose labels are trusted least; by default the noise rate."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(samples.x, samples.y)
    suspects = classifier.suspects(share)
    given_NS, suggested_NS = probabilities_of_both_labels(classifier, samples, suspects)
    warned = dict.fromkeys(in_flags(str(warning.message)) for warning in caught)
    doubted = any("noise rate" in line for line in warned)
    high = () if doubted else note_on_high_estimate(classifier)
    notes = (*samples.notes, *warned, *high, *notes_on_doubted_classes(samples.y, suspects))
    seconds = time.perf_counter() - begin
    share = classifier.noise_rate_ if share is None else share
    return Findings(samples, classifier, suspects, given_NS, suggested_NS, notes, seconds, share)


def in_flags(message: str) -> str:
    """What is told to callers in Python, for the command line."""
    message = message.replace("set keep_per_class=True", "give --keep-per-class")
    return message.replace("give noise_rate.", "give --noise-rate, or embeddings with --npz")


def note_on_high_estimate(classifier: RobustClassifier) -> list[str]:
    """Networks that cannot tell the classes apart take their own mistakes for wrong labels."""
    if classifier.noise_rate != "auto" or classifier.noise_rate_ <= HIGH_NOISE_RATE:
        return []
    return [
        f"an estimate of {100 * classifier.noise_rate_:.0f} % is either true or means that these networks cannot "
        "tell the classes apart: look at the first suspects, then give --noise-rate, or embeddings with --npz"
    ]


def notes_on_doubted_classes(y_M: np.ndarray, suspects: Suspects) -> list[str]:
    """A note for each class that is doubted as a whole."""
    classes, counts = np.unique(y_M, return_counts=True)
    doubted = [int((suspects.given == c).sum()) for c in classes]
    return [
        f"{d} of the {n} samples of class {shown(str(c))} are suspects, which leaves few of it in cleaned.csv"
        for c, n, d in zip(classes, counts, doubted, strict=True)
        if 2 * d > n
    ]


def probabilities_of_both_labels(
    classifier: RobustClassifier, samples: LabelledSamples, suspects: Suspects
) -> tuple[np.ndarray, np.ndarray]:
    """Each network's probability of the given and of the suggested label of every suspect (N, S)."""
    if not len(suspects):
        none = np.zeros((len(classifier.networks_), 0))
        return none, none
    p_NSC = classifier.networks_proba(samples.x[suspects.index])
    each = np.arange(len(suspects))
    given_S, suggested_S = (np.searchsorted(classifier.classes_, y) for y in (suspects.given, suspects.suggested))
    return p_NSC[:, each, given_S], p_NSC[:, each, suggested_S]


# ---- how long it will take: from steps of a network and, where these are quick, an epoch on a few samples -------

LONG_ENOUGH_TO_TIME = 1.0  # seconds, to be timed by
TOO_LONG_TO_WAIT = 5.0  # seconds that nobody should wait for a forecast
SHORT_TRAINING = 20.0  # seconds of training that need not be known exactly
ESTIMATION_FACTOR = 3  # times as long as with a noise rate that is known


def forecast(classifier: RobustClassifier, samples: LabelledSamples) -> float:
    """Seconds that `judge` will take. Where an epoch is tried, all that can be wrong with the settings shows."""
    batch = usual_batch(len(samples))
    times = METHODS[classifier.method].networks * (ESTIMATION_FACTOR if classifier.noise_rate == "auto" else 1)
    of_a_sample = times * step_seconds(classifier, samples, min(batch, len(samples)))
    if of_a_sample * 2 * batch > TOO_LONG_TO_WAIT:
        return of_a_sample * len(samples) * classifier.epochs
    return seconds_from_epochs(classifier, samples, batch)


def step_seconds(classifier: RobustClassifier, samples: LabelledSamples, most: int) -> float:
    """What a sample takes to go through one network and back, from batches that grow until they can be timed.

    The first only warms up, which a CPU does quickly.
    """
    x, n_classes, device = samples.x, len(samples.counts), chosen_device(classifier.device)
    shape = channels_first(x[:1]).shape[1:]
    with torch.random.fork_rng(devices=[]):
        network = checked_network(classifier.module, {}, shape, n_classes).train().to(device)
    size, warm = 2, False
    while True:
        x_B = torch.from_numpy(np.ascontiguousarray(channels_first(x[:size]), dtype=np.float32)).to(device)
        y_B = torch.zeros(len(x_B), dtype=torch.int64, device=device)
        begin = time.perf_counter()
        network.zero_grad()
        cross_entropy(network(x_B), y_B).backward()
        if device != "cpu":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        timed = warm and (seconds > LONG_ENOUGH_TO_TIME or size >= most)
        if timed or (device == "cpu" and seconds > TOO_LONG_TO_WAIT):
            return seconds / len(x_B)
        size, warm = min(size * 4, most) if warm else size, True


def seconds_from_epochs(classifier: RobustClassifier, samples: LabelledSamples, batch: int) -> float:
    """From an epoch on a few of the samples; the first only warms up."""
    few, warm = 2 * batch, False
    while True:
        part = samples.take(evenly_from_classes(samples.y, few))
        trial = clone(classifier).set_params(epochs=1, batch_size=batch)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.fit(part.x, part.y)
        seconds = time.perf_counter() - begin
        expected = seconds * classifier.epochs * len(samples) / len(part)
        if expected < SHORT_TRAINING or (warm and (seconds > LONG_ENOUGH_TO_TIME or len(part) == len(samples))):
            return expected
        few, warm = few * 4 if warm or seconds < LONG_ENOUGH_TO_TIME else few, True


def evenly_from_classes(y_M: np.ndarray, n: int) -> np.ndarray:
    """Numbers of about n samples, evenly from all classes, and at least one of each."""
    by_class = np.argsort(y_M, kind="stable")
    even = by_class[np.linspace(0, len(y_M) - 1, min(n, len(y_M))).astype(np.int64)]
    return np.union1d(even, np.unique(y_M, return_index=True)[1])
