"""A linear model as one safetensors file, and back. No pickle. K numbers of a sample, C classes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coteach.files import write_atomically

if TYPE_CHECKING:
    from coteach.selective.classifier import SelectiveTrainingClassifier

LINEAR_FORMAT = "coteach linear model 1"


@dataclass(frozen=True)
class SavedLinearModel:
    """Logits are x @ weight + bias; predicts as the classifier did whose model it was."""

    classes_: np.ndarray
    weight_KC: np.ndarray = field(repr=False)
    bias_C: np.ndarray = field(repr=False)

    def predict_proba(self, x_MK: np.ndarray) -> np.ndarray:
        x_MK = np.asarray(x_MK, dtype=np.float64)
        if x_MK.ndim != 2 or x_MK.shape[1] != len(self.weight_KC):
            raise ValueError(f"x has shape {x_MK.shape}: give {len(self.weight_KC)} features a sample, as in fit.")
        logits_MC = x_MK @ self.weight_KC + self.bias_C
        p_MC = np.exp(logits_MC - logits_MC.max(1, keepdims=True))
        return p_MC / p_MC.sum(1, keepdims=True)

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
    return SavedLinearModel(classifier.classes_, weight_KC, bias_C)


def save_linear(classifier: "SelectiveTrainingClassifier", path: str | Path) -> None:
    model = linear_model_of(classifier)
    header = {"format": LINEAR_FORMAT, "classes": json.dumps(model.classes_.tolist())}
    write_atomically(Path(path), save({"weight": model.weight_KC, "bias": model.bias_C}, metadata=header))


def is_linear(path: str | Path) -> bool:
    """Whether `save_linear` wrote it; False for files that are damaged or no such thing."""
    try:
        with safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get("format") == LINEAR_FORMAT
    except (OSError, SafetensorError):
        return False


def load_linear(path: str | Path) -> SavedLinearModel:
    """What an audit with --learner linear wrote as model.safetensors."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != LINEAR_FORMAT:
                raise ValueError(f"{path} holds no linear model: load it with RobustClassifier.load.")
            classes = np.array(json.loads(header["classes"]))
            return SavedLinearModel(classes, file.get_tensor("weight"), file.get_tensor("bias"))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read ({error}): give the model that an audit wrote.") from error
