"""How long an audit will take, from steps of a network and, where these are quick, an epoch on a few samples.

B samples of a batch.
"""

import time
import warnings

import numpy as np
import torch
from sklearn.base import clone
from torch.nn.functional import cross_entropy

from coteach.audit.samples import Samples
from coteach.classifier import RobustClassifier
from coteach.classifier.modules import checked_network
from coteach.classifier.options import usual_batch
from coteach.classifier.samples import channels_first
from coteach.methods import METHODS
from coteach.runs.setup import chosen_device

LONG_ENOUGH = 1.0  # seconds, to be timed by
TOO_LONG = 5.0  # seconds that nobody should wait for a forecast
SHORT = 20.0  # seconds of training that need not be known exactly
AUTO = 3  # times as long as with a noise rate that is known


def forecast(classifier: RobustClassifier, samples: Samples) -> float:
    """Seconds that `judge` will take. Where an epoch is tried, all that can be wrong with the settings shows."""
    batch = usual_batch(len(samples))
    times = METHODS[classifier.method].networks * (AUTO if classifier.noise_rate == "auto" else 1)
    of_a_sample = times * step_seconds(classifier, samples, min(batch, len(samples)))
    if of_a_sample * 2 * batch > TOO_LONG:
        return of_a_sample * len(samples) * classifier.epochs
    return from_epochs(classifier, samples, batch)


def step_seconds(classifier: RobustClassifier, samples: Samples, most: int) -> float:
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
        if (warm and (seconds > LONG_ENOUGH or size >= most)) or (device == "cpu" and seconds > TOO_LONG):
            return seconds / len(x_B)
        size, warm = min(size * 4, most) if warm else size, True


def from_epochs(classifier: RobustClassifier, samples: Samples, batch: int) -> float:
    """From an epoch on a few of the samples; the first only warms up."""
    few, warm = 2 * batch, False
    while True:
        part = samples.take(spread(samples.y, few))
        trial = clone(classifier).set_params(epochs=1, batch_size=batch)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.fit(part.x, part.y)
        seconds = time.perf_counter() - begin
        expected = seconds * classifier.epochs * len(samples) / len(part)
        if expected < SHORT or (warm and (seconds > LONG_ENOUGH or len(part) == len(samples))):
            return expected
        few, warm = few * 4 if warm or seconds < LONG_ENOUGH else few, True


def spread(y_M: np.ndarray, n: int) -> np.ndarray:
    """Numbers of about n samples, evenly from all classes, and at least one of each."""
    by_class = np.argsort(y_M, kind="stable")
    even = by_class[np.linspace(0, len(y_M) - 1, min(n, len(y_M))).astype(np.int64)]
    return np.union1d(even, np.unique(y_M, return_index=True)[1])
