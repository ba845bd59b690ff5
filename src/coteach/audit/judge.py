"""From samples to suspects: the classifier, what it found, and a forecast of how long that takes.

N networks, M samples, S suspects, C classes, B samples of a batch.
"""

import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn
from torch.nn.functional import cross_entropy

from coteach.audit.reasons import reasons_of
from coteach.audit.samples import LabelledSamples, shown
from coteach.classifier import RobustClassifier
from coteach.classifier.inputs import channels_first
from coteach.classifier.modules import checked_network, chosen_module
from coteach.classifier.options import check_arguments, is_modern, plan_of
from coteach.engine.setup import chosen_device
from coteach.isolation import generators_restored
from coteach.labels.folds import FOLDS, epochs_to_estimate
from coteach.labels.ledger import Suspects
from coteach.labels.readings import is_wide
from coteach.methods import METHODS
from coteach.modern import MODERN_NETWORK
from coteach.networks import NETWORKS
from coteach.selective import SelectiveTrainingClassifier
from coteach.turns import modules_from_here

Learner = RobustClassifier | SelectiveTrainingClassifier
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


def new_classifier(module: str | None, device: str, **settings: Any) -> RobustClassifier:
    """With what the user says, and the classifier's own defaults for what is None."""
    chosen_device(device)  # raises a ValueError for one that is not there
    given = {name: value for name, value in settings.items() if value is not None}
    classifier = RobustClassifier(module=module_named(module), device=device, **given)
    check_arguments(classifier.get_params(deep=False), {})
    return classifier


def learner_for(asked: str, samples: LabelledSamples, network_flags: Sequence[str]) -> str:
    """What is asked for, or what suits the features."""
    if asked != "auto":
        if asked != "network" and samples.x.ndim != 2:
            raise ValueError(f"--learner {asked} learns from features, not from pixels: give --encoder, too.")
        return asked
    of_network = samples.settings.get("encoder", "none") != "none" or samples.settings.get("embeddings")
    return "linear" if samples.x.ndim == 2 and of_network and not network_flags else "network"


def selective_classifier(learner: str, **settings: Any) -> SelectiveTrainingClassifier:
    """Our own regressions, or boosted trees, in rounds."""
    trees = HistGradientBoostingClassifier(random_state=settings["random_state"]) if learner == "trees" else None
    classifier = SelectiveTrainingClassifier(trees, **settings)
    classifier._check_parameters()
    return classifier


def notes_beforehand(classifier: Learner, samples: LabelledSamples) -> list[str]:
    """What the user may want to change before a training."""
    if not isinstance(classifier, RobustClassifier):
        return []
    plan = plan_of(classifier.get_params(deep=False), {}, len(samples), shape_of(samples))
    if plan.mirror and classifier.mirror is None:
        return ["coloured images are also learnt mirrored: give --mirror no if they show letters, digits or signs"]
    return []


def shape_of(samples: LabelledSamples) -> tuple[int, ...]:
    return channels_first(samples.x[:1]).shape[1:]


def module_named(name: str | None) -> str | Callable[..., Any] | None:
    """A network of ours by its name, or whatever `package.module:factory` is."""
    if name is None or name in NETWORKS:
        return name
    where, colon, what = name.partition(":")
    if not (colon and where and what):
        raise ValueError(
            f"--network is {name}: give one of {', '.join(NETWORKS)}, or package.module:factory for your own."
        )
    try:
        with modules_from_here():
            found = getattr(importlib.import_module(where), what)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{name} cannot be imported ({error}): check its name, or the folder you are in."
        ) from error
    if not callable(found):
        raise ValueError(f"{name} is not a class or function that makes a network: give one.")
    return found


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
    low = 100 * estimate.interval[0]
    return [
        f"these features say little about the share of wrong labels, only that it is at least {low:.0f} %: "
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


# ---- how long it will take: from steps of a network and, where these are quick, an epoch on a few samples -------

LONG_ENOUGH_TO_TIME = 1.0  # seconds, to be timed by
TOO_LONG_TO_WAIT = 5.0  # seconds that nobody should wait for a forecast
SHORT_TRAINING = 20.0  # seconds of training that need not be known exactly
FEW_TO_TIME = 500  # samples, to time rounds by
TO_PREDICT = 1 / 3  # of what it takes to learn a sample


def forecast(classifier: Learner, samples: LabelledSamples) -> float:
    """Seconds that `judge` will take. Where an epoch is tried, all that can be wrong with the settings shows."""
    if isinstance(classifier, SelectiveTrainingClassifier):
        return seconds_of_rounds(classifier, samples)
    shape = shape_of(samples)
    params = classifier.get_params(deep=False)
    plan = plan_of(params, {}, len(samples), shape)
    networks = METHODS[classifier.method].networks
    network = network_to_time(classifier, shape, len(samples.counts))
    epochs: float = plan.epochs
    if classifier.noise_rate == "auto":  # each fold learns all samples but its own, and predicts these
        predicted = TO_PREDICT * (2 if getattr(network, "mirror", False) else 1)
        epochs += (FOLDS - 1 + predicted) * epochs_to_estimate(plan, len(samples)) / networks
    of_a_sample = networks * step_seconds(network, samples, plan.batch_size)
    if of_a_sample * 2 * plan.batch_size > TOO_LONG_TO_WAIT:
        return of_a_sample * len(samples) * epochs
    told = clone(classifier).set_params(epochs=1, batch_size=plan.batch_size, ramp=1)
    told.set_params(noise_rate=0.1 if classifier.noise_rate == "auto" else classifier.noise_rate)
    return seconds_from_epochs(told, samples, plan.batch_size, epochs)


def seconds_of_rounds(classifier: SelectiveTrainingClassifier, samples: LabelledSamples) -> float:
    """From all rounds on a few of the samples."""
    part = samples.take(evenly_from_classes(samples.y, FEW_TO_TIME))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clone(classifier).fit(part.x, part.y)
    return (time.perf_counter() - began) * len(samples) / len(part)


def network_to_time(classifier: RobustClassifier, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    device, params = chosen_device(classifier.device), classifier.get_params(deep=False)
    with generators_restored():
        options = classifier._routed("module__")
        module, options = chosen_module(params, options, shape, is_modern(params, shape), device)
        if isinstance(module, str) and module != MODERN_NETWORK and "width" in options:
            raise ValueError(
                f"{module} has one width only: leave --width out, or give --network {MODERN_NETWORK}."
            )
        return checked_network(module, options, shape, n_classes).train().to(device)


def step_seconds(network: nn.Module, samples: LabelledSamples, most: int) -> float:
    """What a sample takes to go through one network and back, from batches that grow until they can be timed.

    The first only warms up, which a CPU does quickly.
    """
    x, device = samples.x, next(network.parameters()).device
    size, warm = 2, False
    while True:
        x_B = torch.from_numpy(np.ascontiguousarray(channels_first(x[:size]), dtype=np.float32)).to(device)
        y_B = torch.zeros(len(x_B), dtype=torch.int64, device=device)
        begin = time.perf_counter()
        network.zero_grad()
        cross_entropy(network(x_B), y_B).backward()
        if device.type != "cpu":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begin
        timed = warm and (seconds > LONG_ENOUGH_TO_TIME or size >= most)
        if timed or (device.type == "cpu" and seconds > TOO_LONG_TO_WAIT):
            return seconds / len(x_B)
        size, warm = min(size * 4, most) if warm else size, True


def seconds_from_epochs(one_epoch: RobustClassifier, samples: LabelledSamples, batch: int, epochs: float) -> float:
    """Seconds for so many epochs, from one on a few of the samples; the first only warms up."""
    few, warm = 2 * batch, False
    while True:
        part = samples.take(evenly_from_classes(samples.y, few))
        trial = clone(one_epoch)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.fit(part.x, part.y)
        seconds = time.perf_counter() - begin
        expected = seconds * epochs * len(samples) / len(part)
        if expected < SHORT_TRAINING or (warm and (seconds > LONG_ENOUGH_TO_TIME or len(part) == len(samples))):
            return expected
        few, warm = few * 4 if warm or seconds < LONG_ENOUGH_TO_TIME else few, True


def evenly_from_classes(y_M: np.ndarray, n: int) -> np.ndarray:
    """Numbers of about n samples, evenly from all classes, and at least one of each."""
    by_class = np.argsort(y_M, kind="stable")
    even = by_class[np.linspace(0, len(y_M) - 1, min(n, len(y_M))).astype(np.int64)]
    return np.union1d(even, np.unique(y_M, return_index=True)[1])
