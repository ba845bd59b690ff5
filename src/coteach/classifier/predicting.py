"""From samples as a user hands them in to what the networks say of them.

N networks, M samples, C classes.
"""

import copy
import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_is_fitted,
    validate_data,  # pyrefly: ignore[missing-module-attribute]
)
from torch import Tensor, nn

from coteach.checks import check_same_length
from coteach.classifier.mistakes import explained
from coteach.classifier.samples import Scaled, channels_first, on_host, one_shape, scaled, taken
from coteach.classifier.training import Validation
from coteach.data.base import Samples
from coteach.engine.batches import half_views, same_view
from coteach.engine.stream import Stream, chunks, closing_streams
from coteach.methods import METHODS
from coteach.runs.setup import chosen_device

NUMBERS = {"allow_nd": True, "dtype": [np.float64, np.float32, np.uint8]}
AT_ONCE = 2**22  # numbers of the samples that are predicted together


class Predicting(BaseEstimator):
    """The part of a classifier that looks at samples."""

    device: str
    stream: bool
    verbose: int
    classes_: np.ndarray
    networks_: list[nn.Module]
    sample_shape_: tuple[int, ...]
    method_: str
    mean_: np.ndarray
    scale_: np.ndarray

    # ---- predict ----------------------------------------------------------------------------------------------

    def networks_proba(self, X: Any) -> np.ndarray:
        """Each network's opinion.

        Parameters
        ----------
        X : array-like of shape (M, ...), or a data set
            As that of `fit`.

        Returns
        -------
        probabilities : float32 array of shape (N, M, C)
            The classes in the order of `classes_`.

        Examples
        --------
        >>> classifier = coteach.RobustClassifier(noise_rate=0, epochs=1).fit(np.eye(4), [0, 1, 2, 2])
        >>> classifier.networks_proba(np.eye(4)).shape
        (2, 4, 3)
        """
        check_is_fitted(self, "networks_")
        device = chosen_device(self.device)
        x, _ = self._taken(X)
        x_M = x if isinstance(x, Tensor) else Stream(x, device)
        view = half_views if METHODS[self.method_].views else same_view
        modules = [m if device == "cpu" else copy.deepcopy(m).to(device) for m in self.networks_]
        pieces = []
        with closing_streams(x_M), torch.no_grad():
            for x_B in chunks(x_M, len(x_M), max(1, AT_ONCE // math.prod(self.sample_shape_))):
                x_NB = view(x_B.to(device)[None], len(modules))[:, 0]
                p_NBC = torch.stack([m(x).double().softmax(-1) for m, x in zip(modules, x_NB, strict=True)])
                pieces.append(p_NBC.float().cpu())
        return torch.cat(pieces, 1).numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """The networks' mean probabilities.

        Parameters
        ----------
        X : array-like of shape (M, ...), or a data set
            As that of `fit`.

        Returns
        -------
        probabilities : float32 array of shape (M, C)
            The classes in the order of `classes_`.

        Examples
        --------
        >>> classifier = coteach.RobustClassifier(noise_rate=0, epochs=1).fit(np.eye(4), [0, 1, 2, 2])
        >>> classifier.predict_proba(np.eye(4)).sum(1).round(3).tolist()
        [1.0, 1.0, 1.0, 1.0]
        """
        return self.networks_proba(X).mean(0)

    def predict(self, X: Any) -> np.ndarray:
        """The classes with the highest mean probability.

        Parameters
        ----------
        X : array-like of shape (M, ...), or a data set
            As that of `fit`.

        Returns
        -------
        labels : array of shape (M,)
            Of `classes_`.

        Examples
        --------
        >>> x, y = np.repeat(np.eye(2), 20, axis=0), ["cat"] * 20 + ["dog"] * 20
        >>> classifier = coteach.RobustClassifier(noise_rate=0, epochs=10, lr=0.01, random_state=0).fit(x, y)
        >>> classifier.predict(np.eye(2)).tolist()
        ['cat', 'dog']
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    # ---- samples as the networks take them --------------------------------------------------------------------

    def inputs(self, X: Any) -> Tensor:
        """X as the networks take it.

        Parameters
        ----------
        X : array-like of shape (M, ...), or a data set
            As that of `fit`.

        Returns
        -------
        x : float32 Tensor of shape (M, F) or (M, channels, H, W)
            Standardised, unless `standardize` is off.

        Examples
        --------
        >>> classifier = coteach.RobustClassifier(noise_rate=0, epochs=1).fit(np.eye(4), [0, 1, 2, 2])
        >>> classifier.networks_[0](classifier.inputs(np.eye(4))).shape  # logits of one network
        torch.Size([4, 3])
        """
        check_is_fitted(self, "networks_")
        x, _ = self._taken(X)
        return x if isinstance(x, Tensor) else x.fetch(np.arange(len(x)))

    def _taken(self, X: Any, wants_labels: bool = False) -> tuple[Tensor | Samples, list | None]:
        x, labels = taken(X, self.stream, self.verbose, wants_labels)
        if not isinstance(x, Samples):
            with explained(x):
                x = channels_first(validate_data(self, x, reset=False, **NUMBERS))
        if one_shape(x) != self.sample_shape_:
            raise ValueError(f"samples have shape {one_shape(x)} but those of fit had {self.sample_shape_}.")
        return self._scaled(x), labels

    def _scaled(self, x: np.ndarray | Samples) -> Tensor | Samples:
        known = self.mean_, self.scale_
        return Scaled(x, *known) if isinstance(x, Samples) else scaled(x, *known)

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray | Samples, np.ndarray]:
        x, labels = taken(X, self.stream, self.verbose, wants_labels=y is None)
        y = labels if y is None else on_host(y)
        with explained(x, y):
            if isinstance(x, Samples):
                y = validate_data(self, y=y)
                check_same_length(x, y)
                self.n_features_in_ = x.shape[1]
            else:
                x, y = validate_data(self, x, y, **NUMBERS)
                x = channels_first(x)
            check_classification_targets(y)
        return x, y

    def _validation(self, data: Any, clean: bool) -> Validation | None:
        if data is None:
            if clean:
                raise ValueError("validation_is_clean goes with validation_data: give both, or neither.")
            return None
        X, y = data if isinstance(data, (tuple, list)) and len(data) == 2 else (data, None)
        x, labels = self._taken(X, wants_labels=y is None)
        y = np.asarray(labels if y is None else on_host(y))
        check_same_length(x, y, "validation ")
        known = set(self.classes_.tolist())
        for label in y.tolist():
            if label not in known:
                raise ValueError(f"the validation label {label!r} is none of the training labels: leave it out.")
        return Validation(x, np.searchsorted(self.classes_, y), bool(clean))
