"""The paper's small losses around any classifier of scikit-learn, in rounds instead of mini-batches."""

from coteach.selective.classifier import SelectiveTrainingClassifier

__all__ = ["SelectiveTrainingClassifier"]
