"""What predicts after rounds as one safetensors file, and back. No pickle."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from coteach.files import write_atomically
from coteach.selective.saved import SavedLinearModel, SavedTrees
from coteach.tensor_files import read_tensors, tensors_as_bytes

if TYPE_CHECKING:
    from coteach.selective.classifier import SelectiveTrainingClassifier

SavedModel = SavedLinearModel | SavedTrees
FORMATS: dict[str, type[SavedModel]] = {"coteach linear model 2": SavedLinearModel, "coteach trees 1": SavedTrees}
NO_MODEL = "holds no linear model or trees that are whole: give the model of an audit, or audit anew."


def save_selective(classifier: "SelectiveTrainingClassifier", path: str | Path) -> None:
    """Our own regressions, or scikit-learn's boosted trees on finite numbers."""
    if len(classifier.estimators_) > 1:
        raise ValueError(
            "the classifier has a model for each copy, and one can be saved: fit it with relabel=True."
        )
    kind = SavedLinearModel if classifier.estimator is None else SavedTrees
    (name,) = (name for name, of in FORMATS.items() if of is kind)
    facts, arrays = kind.of(classifier).as_arrays()
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    write_atomically(Path(path), tensors_as_bytes({"format": name, **facts}, tensors))


def load_selective(path: str | Path) -> SavedModel:
    """What an audit with --learner linear or trees wrote as model.safetensors."""
    if not Path(path).is_file():
        raise ValueError(f"{path} cannot be read, for it is no file: give the model that an audit wrote.")
    facts, tensors = read_tensors(Path(path), NO_MODEL)
    try:
        kind = FORMATS[facts["format"]]
        return kind.from_arrays(facts, {name: tensor.numpy() for name, tensor in tensors.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} {NO_MODEL}") from error


def is_selective(path: Path) -> bool:
    """Whether it says so of itself; whether it is whole shows when it is loaded."""
    try:
        return read_tensors(path, NO_MODEL, only_facts=True)[0].get("format") in FORMATS
    except ValueError:
        return False
