"""What learns in an audit: networks, linear models, boosted trees."""

import importlib
from collections.abc import Callable
from typing import Any

from sklearn.ensemble import HistGradientBoostingClassifier

from coteach.audit.samples import LabelledSamples
from coteach.classifier import RobustClassifier
from coteach.classifier.inputs import channels_first
from coteach.classifier.options import check_arguments, plan_of
from coteach.engine.setup import chosen_device
from coteach.networks import NETWORKS
from coteach.selective import SelectiveTrainingClassifier
from coteach.turns import modules_from_here

Learner = RobustClassifier | SelectiveTrainingClassifier


def new_classifier(module: str | None, device: str, **settings: Any) -> RobustClassifier:
    """With what the user says, and the classifier's own defaults for what is None."""
    chosen_device(device)  # raises a ValueError for one that is not there
    given = {name: value for name, value in settings.items() if value is not None}
    classifier = RobustClassifier(module=module_named(module), device=device, **given)
    check_arguments(classifier.get_params(deep=False), {})
    return classifier


def check_learner(asked: str, samples: LabelledSamples) -> None:
    """Raise a ValueError if it cannot learn these samples."""
    if asked in ("linear", "trees") and samples.x.ndim != 2:
        raise ValueError(f"--learner {asked} learns from features, not from pixels: give --encoder, too.")


def selective_classifier(learner: str, **settings: Any) -> SelectiveTrainingClassifier:
    """Our own regressions, or boosted trees, in rounds.

    From 10,000 samples on, trees would by default stop early, judged by samples that they do not learn. That fails
    where a class has two samples.
    """
    trees = HistGradientBoostingClassifier(early_stopping=False, random_state=settings["random_state"])
    classifier = SelectiveTrainingClassifier(trees if learner == "trees" else None, **settings)
    classifier._check_parameters()
    return classifier


def learner_name(classifier: Learner) -> str:
    """As --learner has it."""
    if isinstance(classifier, RobustClassifier):
        return "network"
    return "linear" if classifier.estimator is None else "trees"


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
