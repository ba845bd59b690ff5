"""`--learner auto`: the cheapest learner that predicts held-out labels, as noisy as the others, as well as any.

M samples.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from coteach.audit.learners import Learner, selective_classifier
from coteach.audit.samples import LabelledSamples, evenly_from_classes
from coteach.classifier import RobustClassifier
from coteach.labels.folds import deal_folds
from coteach.stages import enter_stage

MOST_TO_COMPARE_BY = 2000  # samples
ONE_HELD_OUT_OF = 4  # samples
QUICK_ROUNDS = {"folds": 2, "rounds": 1, "ramp": 1}  # of trees, which cost the most


@dataclass(frozen=True)
class LearnerChoice:
    """A learner, and the share of held-out labels that each candidate predicted."""

    learner: str
    accuracies: dict[str, float]
    held_out: int

    @property
    def why(self) -> str:
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.accuracies.items())
        return f"--learner {self.learner} is the cheapest that predicts held-out labels well: {shares}"


def candidates_for(samples: LabelledSamples, network_flags: Sequence[str]) -> list[str]:
    """What may learn these samples, the cheapest first. Pixels need a network; trees are for cells of a table.

    Features of a trained network are for linear models. There, whoever predicts noisy labels better may only have
    learnt more of the errors: rules and people err by what the features show.
    """
    if samples.x.ndim != 2 or network_flags:
        return ["network"]
    if samples.by_trained_network:
        return ["linear"]
    cells = samples.kind == "table" and samples.texts is None
    return ["linear", "network", *(["trees"] if cells else [])]


def choose_learner(
    candidates: Sequence[str], network: RobustClassifier, samples: LabelledSamples
) -> LearnerChoice:
    """Each candidate learns three quarters of some samples, wrong labels left out as in the audit itself.

    The first finds the noise rate, and the others are given it.
    """
    some = samples.take(evenly_from_classes(samples.y, MOST_TO_COMPARE_BY))
    held_M = deal_folds(np.unique(some.y, return_inverse=True)[1], ONE_HELD_OUT_OF, network.random_state or 0) == 0
    right, rate = {}, network.noise_rate
    for name in candidates:
        enter_stage(f"comparing learners: {name}")
        learner = to_compare(name, network, rate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learner.fit(some.x[~held_M], some.y[~held_M])
        right[name] = learner.predict(some.x[held_M]) == some.y[held_M]
        rate = learner.noise_rate_
    return LearnerChoice(cheapest(right), {name: float(r.mean()) for name, r in right.items()}, int(held_M.sum()))


def to_compare(name: str, network: RobustClassifier, rate: float | str) -> Learner:
    """As the audit would train it; trees in fewer rounds."""
    if name == "network":
        return clone(network).set_params(noise_rate=rate)
    selective = selective_classifier(
        name, noise_rate=rate, keep_per_class=network.keep_per_class, random_state=network.random_state
    )
    return selective.set_params(**QUICK_ROUNDS) if name == "trees" else selective


def cheapest(right: dict[str, np.ndarray]) -> str:
    """The first that is behind the best by at most one standard error of their difference.

    >>> cheapest({"linear": np.array([1, 1, 0, 0, 0]) > 0, "trees": np.array([1, 1, 1, 1, 1]) > 0})
    'trees'
    >>> cheapest({"linear": np.array([1, 1, 1, 1, 0]) > 0, "trees": np.array([1, 1, 1, 1, 1]) > 0})
    'linear'
    """
    best = max(right.values(), key=np.sum)
    for name, own in right.items():
        lost, won = int((best & ~own).sum()), int((own & ~best).sum())
        if lost - won <= np.sqrt(lost + won):
            return name
    raise AssertionError("the best is as good as itself")
