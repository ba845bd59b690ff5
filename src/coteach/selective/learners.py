"""Any classifier of scikit-learn as the learner of the rounds: one clone for each copy and fold.

N copies, M samples, C classes.
"""

from typing import Any, Protocol

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing  # pyrefly: ignore[missing-module-attribute]
from sklearn.utils.validation import has_fit_parameter


class Learners(Protocol):
    """What the rounds ask of a learner."""

    def probabilities(self, counts_NM: np.ndarray, fold_NM: np.ndarray) -> np.ndarray:
        """The probability of each class (NMC), by a model of the copy that has not learnt the sample's fold.

        `counts_NM` says how much each sample counts for each copy; fold -1 is learnt by every model.
        """
        ...

    def models(self, counts_NM: np.ndarray, labels_M: np.ndarray) -> list[Any]:
        """One model with `predict_proba` for each row of counts, of all samples that count in it."""
        ...


class EstimatorLearners:
    """Clones of an estimator. With `warm_start` set, each goes on from where it was in the round before.

    That is for weights: trees begin anew, for they could only be added to those of other labels. Where only one
    class is left to learn, that class is certain, because most estimators refuse to learn it.
    """

    def __init__(self, estimator: Any, x: Any, y_M: np.ndarray, n_classes: int, weighed: bool):
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(
                f"{type(estimator).__name__} has no predict_proba, and losses are made of probabilities: "
                "wrap it in CalibratedClassifierCV, or give another."
            )
        if weighed and not has_fit_parameter(estimator, "sample_weight"):
            raise ValueError(f"{type(estimator).__name__} takes no sample_weight: leave it out.")
        self.estimator, self.x, self.y_M, self.n_classes, self.weighed = estimator, x, y_M, n_classes, weighed
        self.goes_on = bool(estimator.get_params().get("warm_start", False))
        self.before: dict[tuple[int, int], Any] = {}

    def probabilities(self, counts_NM: np.ndarray, fold_NM: np.ndarray) -> np.ndarray:
        p_NMC = np.zeros((*counts_NM.shape, self.n_classes))
        for n, (counts_M, fold_M) in enumerate(zip(counts_NM, fold_NM, strict=True)):
            for fold in np.unique(fold_M):
                learnt_M = np.where((fold_M == fold) & (fold >= 0), 0, counts_M)
                model = self._fitted(learnt_M, self.y_M, (n, int(fold)), self.weighed)
                asked = np.flatnonzero(fold_M == fold)
                p_NMC[n, asked] = all_classes(model, _safe_indexing(self.x, asked), self.n_classes)
        return p_NMC

    def models(self, counts_NM: np.ndarray, labels_M: np.ndarray) -> list[Any]:
        weighed = has_fit_parameter(self.estimator, "sample_weight")
        return [self._fitted(counts_M, labels_M, (n, -1), weighed) for n, counts_M in enumerate(counts_NM)]

    def _fitted(self, counts_M: np.ndarray, labels_M: np.ndarray, key: tuple[int, int], weighed: bool) -> Any:
        learnt = np.flatnonzero(counts_M)
        model = self.before.get(key) if self.goes_on else None
        if not (hasattr(model, "coef_") or hasattr(model, "coefs_")):
            model = None
        if model is None or len(model.classes_) != len(np.unique(labels_M[learnt])):
            several = (labels_M[learnt] != labels_M[learnt[0]]).any()
            model = clone(self.estimator) if several else DummyClassifier()
        weight = {"sample_weight": counts_M[learnt]} if weighed else {}
        self.before[key] = model.fit(_safe_indexing(self.x, learnt), labels_M[learnt], **weight)
        return model


def all_classes(model: Any, x: Any, n_classes: int) -> np.ndarray:
    """Probabilities with a column for each class, 0 for those that the model never saw (MC)."""
    p_MC = np.zeros((x.shape[0], n_classes))
    p_MC[:, np.asarray(model.classes_, dtype=np.int64)] = model.predict_proba(x)
    return p_MC
