"""For people with labels of their own: scikit-learn's contract over the methods of this library."""

from coteach.classifier.classifier import RobustClassifier

__all__ = ["RobustClassifier"]
