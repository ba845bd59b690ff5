"""A linear model as one safetensors file, and back. No pickle. K numbers of a sample, C classes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from coteach.files import write_atomically
from coteach.labels.neighbours import NeighbourModel
from coteach.labels.quality import softmax
from coteach.selective.rounds import with_vote
from coteach.tensor_files import read_tensors, tensors_as_bytes

if TYPE_CHECKING:
    from coteach.selective.classifier import SelectiveTrainingClassifier

LINEAR_FORMAT = "coteach linear model 2"
NEIGHBOUR_ARRAYS = ("centre_F", "directions_RF", "labels_R", "weights_R")
NOT_LINEAR = "holds no linear model that is whole: give the model of an audit with linear models, or audit anew."


@dataclass(frozen=True)
class SavedLinearModel:
    """Logits are x @ weight + bias, and neighbours may vote; predicts as the classifier did that was saved."""

    classes_: np.ndarray
    weight_KC: np.ndarray = field(repr=False)
    bias_C: np.ndarray = field(repr=False)
    mean_K: np.ndarray = field(repr=False)
    scale_K: np.ndarray = field(repr=False)
    neighbours: NeighbourModel | None = field(default=None, repr=False)

    def predict_proba(self, x_MK: np.ndarray) -> np.ndarray:
        x_MK = np.asarray(x_MK, dtype=np.float64)
        if x_MK.ndim != 2 or x_MK.shape[1] != len(self.weight_KC):
            raise ValueError(f"x has shape {x_MK.shape}: give {len(self.weight_KC)} features a sample, as in fit.")
        if not np.isfinite(x_MK).all():
            row = int(np.isfinite(x_MK).all(1).argmin())
            raise ValueError(f"sample {row} has a feature that is missing or infinite: fill it in or drop it.")
        logits_MC = x_MK @ self.weight_KC + self.bias_C
        p_MC = softmax(logits_MC)
        if self.neighbours is None:
            return p_MC
        return with_vote(p_MC, self.neighbours.predict_proba((x_MK - self.mean_K) / self.scale_K))

    def predict(self, x_MK: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(x_MK).argmax(1)]


def linear_model_of(classifier: "SelectiveTrainingClassifier") -> SavedLinearModel:
    """Scaling, rotation and regression in one."""
    (model,) = classifier.estimators_
    axes = model.axes
    theta_FC, turn_KF = model.theta_FC.double().numpy(), axes.axes_KF.double().numpy() / axes.scale
    mean, scale = np.ravel(classifier.mean_), np.ravel(classifier.scale_)
    weight_KC = (turn_KF @ theta_FC[:-1]) / scale[:, None]
    bias_C = (
        theta_FC[-1]
        - axes.mean_K.double().numpy() @ turn_KF @ theta_FC[:-1]
        - mean * np.ones(len(weight_KC)) @ weight_KC
    )
    return SavedLinearModel(classifier.classes_, weight_KC, bias_C, mean, scale, classifier.neighbour_model_)


def save_linear(classifier: "SelectiveTrainingClassifier", path: str | Path) -> None:
    model = linear_model_of(classifier)
    facts: dict[str, Any] = {"format": LINEAR_FORMAT, "classes": model.classes_.tolist()}
    arrays = {"weight": model.weight_KC, "bias": model.bias_C, "mean": model.mean_K, "scale": model.scale_K}
    if model.neighbours is not None:
        facts["voters"] = model.neighbours.voters
        arrays |= {name: getattr(model.neighbours, name) for name in NEIGHBOUR_ARRAYS}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    write_atomically(Path(path), tensors_as_bytes(facts, tensors))


def load_linear(path: str | Path) -> SavedLinearModel:
    """What an audit with --learner linear wrote as model.safetensors."""
    if not Path(path).is_file():
        raise ValueError(f"{path} cannot be read, for it is no file: give the model that an audit wrote.")
    facts, tensors = read_tensors(Path(path), NOT_LINEAR)
    try:
        if facts["format"] != LINEAR_FORMAT:
            raise KeyError
        classes, arrays = np.array(facts["classes"]), {name: tensor.numpy() for name, tensor in tensors.items()}
        neighbours = None
        if "voters" in facts:
            learnt: dict[str, Any] = {name: arrays[name] for name in NEIGHBOUR_ARRAYS}
            neighbours = NeighbourModel(**learnt, n_classes=len(classes), voters=facts["voters"])
        model = SavedLinearModel(
            classes, arrays["weight"], arrays["bias"], arrays["mean"], arrays["scale"], neighbours
        )
    except KeyError as error:
        raise ValueError(f"{path} {NOT_LINEAR}") from error
    return model


def is_linear(path: Path) -> bool:
    """Whether it says so of itself; whether it is whole shows when it is loaded."""
    try:
        return read_tensors(path, NOT_LINEAR, only_facts=True)[0].get("format") == LINEAR_FORMAT
    except ValueError:
        return False
