"""A classifier's file: weights as safetensors, all else as JSON in its header. Nothing is pickled."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from coteach.checks import plain_number
from coteach.classifier.frames import FrameColumns
from coteach.classifier.modules import build_network, checked_network, fed_with, papers_network
from coteach.data.dicts import Entries
from coteach.files import refuse_place, write_atomically
from coteach.isolation import generators_restored
from coteach.labels.estimate import NoiseEstimate
from coteach.methods import METHODS
from coteach.networks.models import take_weights, weights_of
from coteach.tensor_files import read_tensors, tensors_as_bytes

if TYPE_CHECKING:
    from coteach.classifier.classifier import RobustClassifier

SAVED_AS_JSON = ("n_features_in_", "sample_shape_", "noise_rate_", "method_", "history_", "best_epoch_")
SAVED_ARRAYS = ("mean_", "scale_", "label_quality_", "kept_share_")
SAVED_LABELS = ("given_labels_", "suggested_labels_")  # as numbers of classes
USUAL_NAME = "model.safetensors"  # a good name for it
NOT_OURS = "was not written by RobustClassifier.save: give the path of one."


def save_classifier(clf: "RobustClassifier", path: str | Path) -> None:
    params, options = (
        {name: plain_number(value) for name, value in some.items()}
        for some in (clf.get_params(deep=False), clf.network_options_)
    )
    own_module = not (clf.module is None or isinstance(clf.module, str))
    if own_module:
        params["module"] = None
    if isinstance(clf.random_state, np.random.RandomState):
        params["random_state"] = None
    if isinstance(clf.optimizer, type):
        params["optimizer"] = clf.optimizer.__name__
    estimate = clf.noise_estimate_
    facts = {
        "params": params,
        "own_module": own_module,
        "classes": clf.classes_.tolist(),
        "classes_dtype": clf.classes_.dtype.str,
        "feature_names": clf.feature_names_in_.tolist() if hasattr(clf, "feature_names_in_") else None,
        "noise_estimate": None if estimate is None else {k: as_json_value(v) for k, v in asdict(estimate).items()},
        "network": clf.network_,
        "network_options": options,
        **{name: getattr(clf, name) for name in SAVED_AS_JSON},
        **({} if clf.entries_ is None else {"entries": asdict(clf.entries_)}),
        **({} if clf.frame_ is None else {"frame": asdict(clf.frame_)}),
    }
    arrays = {name: getattr(clf, name) for name in SAVED_ARRAYS}
    arrays |= {name: np.searchsorted(clf.classes_, getattr(clf, name)) for name in SAVED_LABELS}
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    try:
        content = tensors_as_bytes(facts, tensors | weights_of(clf.networks_))
    except TypeError as error:
        raise ValueError(f"the classifier cannot be written as JSON ({error}): use plain values.") from error
    refuse_place(Path(path), USUAL_NAME)
    write_atomically(Path(path), content)


def load_classifier(kind: "type[RobustClassifier]", path: str | Path, module: Any) -> "RobustClassifier":
    if not Path(path).exists():
        raise ValueError(f"there is no file {path}: give the path that RobustClassifier.save wrote to.")
    if Path(path).is_dir():
        inside = Path(path) / USUAL_NAME
        raise ValueError(f"{path} is a folder: give {inside if inside.is_file() else 'the model file in it'}.")
    facts, tensors = read_tensors(Path(path), NOT_OURS)
    try:
        if facts["own_module"] != (module is not None):
            said = "needs" if facts["own_module"] else "has no use for"
            raise ValueError(f"{path} {said} a module: give the one it was trained with, and only then.")
        params = {"recipe": "paper"} | facts["params"]  # files of before 0.2 say nothing of it, and had no other
        clf = kind(**params | {"module": module or params["module"]})
        clf.classes_ = np.array(facts["classes"], dtype=np.dtype(facts["classes_dtype"]))
        for name in SAVED_AS_JSON:
            setattr(clf, name, facts[name])
        for name in SAVED_ARRAYS:
            setattr(clf, name, tensors.pop(name).numpy())
        for name in SAVED_LABELS:
            setattr(clf, name, clf.classes_[tensors.pop(name).numpy()])
        clf.sample_shape_ = tuple(clf.sample_shape_)
        clf.noise_estimate_ = estimate_from(facts["noise_estimate"])
        if facts["feature_names"] is not None:
            names = np.array(facts["feature_names"], dtype=object)
            clf.feature_names_in_ = names  # pyrefly: ignore[missing-attribute]
        clf.entries_ = entries_from(facts.get("entries"))
        clf.frame_ = FrameColumns(**facts["frame"]) if "frame" in facts else None
        n_networks = METHODS[clf.method_].networks
        clf.network_, clf.network_options_ = network_in(facts, clf)
        if module is None:
            refuse_other_shapes(clf, tensors, path)
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path} {NOT_OURS}") from error
    options = clf._routed("module__") if module is not None else clf.network_options_
    named = fed_with(module, clf.entries_) if module is not None else clf.network_
    with generators_restored():
        clf.networks_ = [
            checked_network(named, options, clf.sample_shape_, len(clf.classes_)) for _ in range(n_networks)
        ]
    take_weights(clf.networks_, tensors, path)
    return clf


def network_in(facts: dict[str, Any], clf: "RobustClassifier") -> tuple[str | None, dict[str, Any]]:
    """The name of its network and what it was made with; files of before 0.2 leave both to the samples' shape."""
    if facts["own_module"]:
        return None, {}
    if facts.keys() & {"network", "network_options"}:
        return facts["network"], dict(facts["network_options"])
    return facts["params"]["module"] or papers_network(clf.sample_shape_), clf._routed("module__")


def refuse_other_shapes(clf: "RobustClassifier", tensors: dict[str, Tensor], path: str | Path) -> None:
    """Before a network is made: its memory is for what the file holds, not for what its header claims."""
    with torch.device("meta"):
        network = build_network(clf.network_, clf.network_options_, clf.sample_shape_, len(clf.classes_))
    for name, value in network.state_dict().items():
        if name not in getattr(network, "shared_buffers", ()) and tensors[f"0.{name}"].shape != value.shape:
            raise ValueError(f"{path} {NOT_OURS}")


def entries_from(fields: dict[str, Any] | None) -> Entries | None:
    """Only of a classifier that was trained on dicts."""
    return None if fields is None else Entries(**(fields | {"names": tuple(fields["names"])}))


def as_json_value(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def estimate_from(fields: dict[str, Any] | None) -> NoiseEstimate | None:
    if fields is None:
        return None
    low, high = fields["interval"]
    return NoiseEstimate(
        fields["rate"],
        (low, high),
        np.array(fields["per_class"]),
        np.array(fields["matrix"]),
        fields["n"],
        tuple((rate, accuracy) for rate, accuracy in fields["tried"]),
    )
