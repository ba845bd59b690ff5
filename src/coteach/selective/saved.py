"""What predicts after rounds, as plain arrays: a linear model with neighbours, or boosted trees.

K numbers of a sample, C classes, M samples; T trees with L nodes together, S scores that trees add to.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from coteach.checks import is_whole
from coteach.labels.neighbours import NeighbourModel
from coteach.labels.quality import softmax
from coteach.selective.rounds import with_vote

if TYPE_CHECKING:
    from coteach.selective.classifier import SelectiveTrainingClassifier

Arrays = dict[str, np.ndarray]

NEIGHBOUR_ARRAYS = ("centre_F", "directions_RF", "labels_R", "weights_R")
NODES_AT_ONCE = 2**22  # in memory


@dataclass(frozen=True)
class SavedLinearModel:
    """Logits are x @ weight + bias, and neighbours may vote; predicts as the classifier did that was saved."""

    classes_: np.ndarray
    weight_KC: np.ndarray = field(repr=False)
    bias_C: np.ndarray = field(repr=False)
    mean_K: np.ndarray = field(repr=False)
    scale_K: np.ndarray = field(repr=False)
    neighbours: NeighbourModel | None = field(default=None, repr=False)

    @classmethod
    def of(cls, classifier: "SelectiveTrainingClassifier") -> Self:
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
        return cls(classifier.classes_, weight_KC, bias_C, mean, scale, classifier.neighbour_model_)

    def as_arrays(self) -> tuple[dict[str, Any], Arrays]:
        facts: dict[str, Any] = {"classes": self.classes_.tolist()}
        arrays = {"weight": self.weight_KC, "bias": self.bias_C, "mean": self.mean_K, "scale": self.scale_K}
        if self.neighbours is not None:
            facts["voters"] = self.neighbours.voters
            arrays |= {name: getattr(self.neighbours, name) for name in NEIGHBOUR_ARRAYS}
        return facts, arrays

    @classmethod
    def from_arrays(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """A ValueError for arrays that are no linear model."""
        classes, neighbours = classes_from(facts), None
        weight, bias, mean, scale = (arrays[name] for name in ("weight", "bias", "mean", "scale"))
        features, n_classes = len(weight), len(classes)
        whole = (
            are_numbers(weight, (features, n_classes))
            and are_numbers(bias, (n_classes,))
            and are_numbers(mean, (features,), (1,))
            and are_numbers(scale, (features,), (1,))
            and (scale > 0).all()
        )
        if "voters" in facts:
            learnt: dict[str, Any] = {name: arrays[name] for name in NEIGHBOUR_ARRAYS}
            neighbours = NeighbourModel(**learnt, n_classes=n_classes, voters=facts["voters"])
            whole = whole and can_vote(neighbours, features)
        if not whole:
            raise ValueError("arrays that are no linear model")
        return cls(classes, weight, bias, mean, scale, neighbours)

    def predict_proba(self, x_MK: np.ndarray) -> np.ndarray:
        x_MK = checked_rows(x_MK, len(self.weight_KC))
        p_MC = softmax(x_MK @ self.weight_KC + self.bias_C)
        if self.neighbours is None:
            return p_MC
        return with_vote(p_MC, self.neighbours.predict_proba((x_MK - self.mean_K) / self.scale_K))

    def predict(self, x_MK: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(x_MK).argmax(1)]


@dataclass(frozen=True)
class SavedTrees:
    """Boosted trees, all nodes in one row of arrays; predicts as the classifier did that was saved.

    A sample goes left where its number is at most the node's threshold. A leaf's children are the leaf itself. The
    values of the leaves are added up: each tree to one score, and the scores make the probabilities.
    """

    classes_: np.ndarray
    features: int
    baseline_S: np.ndarray = field(repr=False)
    root_T: np.ndarray = field(repr=False)
    feature_L: np.ndarray = field(repr=False)
    threshold_L: np.ndarray = field(repr=False)
    left_L: np.ndarray = field(repr=False)
    right_L: np.ndarray = field(repr=False)
    value_L: np.ndarray = field(repr=False)

    @classmethod
    def of(cls, classifier: "SelectiveTrainingClassifier") -> Self:
        """From scikit-learn's HistGradientBoostingClassifier, which learnt finite numbers and every class."""
        (model,) = classifier.estimators_
        trees = [tree.nodes for of_iteration in model._predictors for tree in of_iteration]
        nodes, sizes = np.concatenate(trees), [len(tree) for tree in trees]
        root_T = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        first_L, own_L, leaf_L = np.repeat(root_T, sizes), np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
        left_L, right_L = (np.where(leaf_L, own_L, first_L + nodes[side]) for side in ("left", "right"))
        return cls(
            classifier.classes_,
            model.n_features_in_,
            np.ravel(model._baseline_prediction).astype(np.float64),
            root_T,
            nodes["feature_idx"].astype(np.int64),
            nodes["num_threshold"].astype(np.float64),
            left_L,
            right_L,
            nodes["value"].astype(np.float64),
        )

    def as_arrays(self) -> tuple[dict[str, Any], Arrays]:
        names = ("baseline_S", "root_T", "feature_L", "threshold_L", "left_L", "right_L", "value_L")
        facts = {"classes": self.classes_.tolist(), "features": self.features}
        return facts, {name: getattr(self, name) for name in names}

    @classmethod
    def from_arrays(cls, facts: dict[str, Any], arrays: Arrays) -> Self:
        """A ValueError for arrays that are no trees: a child comes after its parent, so every way ends."""
        trees = cls(classes_from(facts), facts["features"], **arrays)
        own_L = np.arange(len(trees.value_L))
        leaf_L = (trees.left_L == own_L) & (trees.right_L == own_L)
        children = np.concatenate([trees.left_L, trees.right_L])
        whole = (
            is_whole(trees.features)
            and all(array.ndim == 1 for array in arrays.values())
            and are_numbers(trees.baseline_S, trees.baseline_S.shape)
            and are_numbers(trees.value_L, trees.value_L.shape)
            and trees.threshold_L.dtype.kind == "f"
            and not np.isnan(trees.threshold_L).any()
            and len({len(part_L) for name, part_L in arrays.items() if name.endswith("_L")}) == 1
            and len(trees.baseline_S) == (len(trees.classes_) if len(trees.classes_) > 2 else 1)
            and len(trees.root_T) % len(trees.baseline_S) == 0
            and ((trees.left_L > own_L) & (trees.right_L > own_L) | leaf_L).all()
            and are_indices(children, len(own_L))
            and are_indices(trees.root_T, len(own_L))
            and are_indices(trees.feature_L, trees.features)
        )
        if not whole:
            raise ValueError("arrays that are no trees")
        return trees

    def predict_proba(self, x_MK: np.ndarray) -> np.ndarray:
        x_MK = checked_rows(x_MK, self.features)
        rows = max(1, NODES_AT_ONCE // max(1, len(self.root_T)))
        parts = [self._scores(x_MK[begin : begin + rows]) for begin in range(0, len(x_MK), rows)]
        score_MS = np.concatenate([np.zeros((0, len(self.baseline_S))), *parts])
        return softmax(np.hstack([np.zeros_like(score_MS), score_MS]) if score_MS.shape[1] == 1 else score_MS)

    def _scores(self, x_MK: np.ndarray) -> np.ndarray:
        each_M1 = np.arange(len(x_MK))[:, None]
        node_MT, before_MT = np.tile(self.root_T, (len(x_MK), 1)), None
        while before_MT is None or (node_MT != before_MT).any():
            goes_left_MT = x_MK[each_M1, self.feature_L[node_MT]] <= self.threshold_L[node_MT]
            node_MT, before_MT = np.where(goes_left_MT, self.left_L[node_MT], self.right_L[node_MT]), node_MT
        values_MTS = self.value_L[node_MT].reshape(len(x_MK), -1, len(self.baseline_S))
        return self.baseline_S + values_MTS.sum(1)

    def predict(self, x_MK: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(x_MK).argmax(1)]


def checked_rows(x_MK: np.ndarray, features: int) -> np.ndarray:
    """Raise a ValueError for samples that are not like those of `fit`."""
    x_MK = np.asarray(x_MK, dtype=np.float64)
    if x_MK.ndim != 2 or x_MK.shape[1] != features:
        raise ValueError(f"x has shape {x_MK.shape}: give {features} features a sample, as in fit.")
    if not np.isfinite(x_MK).all():
        row = int(np.isfinite(x_MK).all(1).argmin())
        raise ValueError(f"sample {row} has a feature that is missing or infinite: fill it in or drop it.")
    return x_MK


def classes_from(facts: dict[str, Any]) -> np.ndarray:
    classes = np.array(facts["classes"])
    flat = classes.ndim == 1 and classes.dtype.kind in "biufU"
    if not flat or len(classes) < 2 or len(np.unique(classes)) < len(classes):
        raise ValueError("classes that are no labels")
    return classes


def can_vote(model: NeighbourModel, features: int) -> bool:
    n = len(model.labels_R)
    return (
        is_whole(model.voters)
        and model.voters > 0
        and n > 0
        and are_numbers(model.centre_F, (features,))
        and are_numbers(model.directions_RF, (n, features))
        and model.directions_RF.dtype == np.float32  # as those that it is multiplied with
        and are_numbers(model.weights_R, (n,))
        and bool((model.weights_R > 0).all())
        and are_indices(model.labels_R, model.n_classes)
    )


def are_numbers(array: np.ndarray, *shapes: tuple[int, ...]) -> bool:
    return array.dtype.kind == "f" and array.shape in shapes and bool(np.isfinite(array).all())


def are_indices(index: np.ndarray, n: int) -> bool:
    return index.dtype.kind == "i" and bool(((index >= 0) & (index < n)).all())
