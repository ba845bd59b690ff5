"""How long an audit will take: from steps of a network and, where these are quick, an epoch on a few samples.

Of rounds: from all of them on a few samples, or from single fits of trees, which take longer.

M samples, B samples of a batch.
"""

import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import nn
from torch.nn.functional import cross_entropy

from coteach.audit.learners import Learner, shape_of
from coteach.audit.samples import LabelledSamples, evenly_from_classes
from coteach.classifier import RobustClassifier
from coteach.classifier.inputs import channels_first
from coteach.classifier.modules import checked_network, chosen_module
from coteach.classifier.options import is_modern, plan_of
from coteach.engine.setup import chosen_device
from coteach.isolation import generators_restored
from coteach.labels.folds import FOLDS, epochs_to_estimate
from coteach.labels.planted import plan_to_plant
from coteach.methods import METHODS
from coteach.modern import MODERN_NETWORK
from coteach.selective import SelectiveTrainingClassifier

LONG_ENOUGH_TO_TIME = 1.0  # seconds, to be timed by
TOO_LONG_TO_WAIT = 5.0  # seconds that nobody should wait for a forecast
SHORT_TRAINING = 20.0  # seconds of training that need not be known exactly
FEW_TO_TIME = 500  # samples, to time rounds by, or a fit at first
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
    if classifier.noise_rate == "auto":
        predicted = TO_PREDICT * (2 if getattr(network, "mirror", False) else 1)
        # each fold learns all samples but its own, and predicts these
        of_one = (FOLDS - 1 + predicted) * epochs_to_estimate(plan, len(samples))
        if is_modern(params, shape):  # another learns all of them, and predicts them in the end
            of_one += plan_to_plant(plan).epochs + predicted
        epochs += of_one / networks
    of_a_sample = networks * step_seconds(network, samples, plan.batch_size)
    if of_a_sample * 2 * plan.batch_size > TOO_LONG_TO_WAIT:
        return of_a_sample * len(samples) * epochs
    told = clone(classifier).set_params(epochs=1, batch_size=plan.batch_size, ramp=1)
    told.set_params(noise_rate=0.1 if classifier.noise_rate == "auto" else classifier.noise_rate)
    return seconds_from_epochs(told, samples, plan.batch_size, epochs)


def seconds_of_rounds(classifier: SelectiveTrainingClassifier, samples: LabelledSamples) -> float:
    """From all rounds on a few of the samples; of trees from one fit on more and more of them."""
    if classifier.estimator is None:
        part = samples.take(evenly_from_classes(samples.y, FEW_TO_TIME))
        return seconds_to_fit(classifier, part) * len(samples) / len(part)
    fits = (classifier.folds - 1) * classifier.rounds + 1  # as if of all samples, but one round fewer
    few = FEW_TO_TIME
    while True:
        part = samples.take(evenly_from_classes(samples.y, few))
        seconds = seconds_to_fit(classifier.estimator, part)
        expected = fits * seconds * len(samples) / len(part)
        if expected < SHORT_TRAINING or seconds > TOO_LONG_TO_WAIT or len(part) == len(samples):
            return expected
        few *= 4


def seconds_to_fit(classifier: Any, samples: LabelledSamples) -> float:
    """Without warnings, on a clone."""
    trial, begin = clone(classifier), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial.fit(samples.x, samples.y)
    return time.perf_counter() - begin


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
        seconds = seconds_to_fit(one_epoch, part)
        expected = seconds * epochs * len(samples) / len(part)
        if expected < SHORT_TRAINING or (warm and (seconds > LONG_ENOUGH_TO_TIME or len(part) == len(samples))):
            return expected
        few, warm = few * 4 if warm or seconds < LONG_ENOUGH_TO_TIME else few, True
