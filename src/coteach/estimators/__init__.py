"""For people with labels of their own: scikit-learn's contract over the methods of this library."""

from coteach.estimators.classifier import ELSEWHERE, RobustClassifier

__all__ = ["ELSEWHERE", "RobustClassifier"]
