"""A scikit-learn classifier that survives wrong labels: a thin shell around `train.fit`, which writes no files.

N networks, M samples, C classes.
"""

import copy
import math
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags  # pyrefly: ignore[missing-module-attribute]
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_is_fitted,
    validate_data,  # pyrefly: ignore[missing-module-attribute]
)
from torch import Tensor

from coteach.checks import check_same_length
from coteach.classifier import files
from coteach.classifier.fitting import Validation, fit_networks, warn_of_starved
from coteach.classifier.frames import FrameColumns
from coteach.classifier.inputs import (
    Scaled,
    as_samples,
    channels_first,
    explained,
    one_shape,
    scale_of,
    scaled,
    to_numpy,
)
from coteach.classifier.modules import fed_with, filling_of
from coteach.classifier.options import check_arguments, check_views
from coteach.data.base import Samples
from coteach.data.dicts import as_pairs
from coteach.engine.batches import half_views, same_view
from coteach.engine.setup import choose_precision, chosen_device
from coteach.engine.stream import Stream, closing_streams
from coteach.labels.ledger import Suspects, checked_share, suspects
from coteach.loops.onnx_file import EXAMPLES_NEEDED, Ensemble, Rescaled, Viewed, write_onnx
from coteach.measure import PlainModules, predict
from coteach.methods import METHODS

ACCEPTED_NUMBERS = {"allow_nd": True, "dtype": [np.float64, np.float32, np.uint8]}
PREDICTED_AT_ONCE = 2**22  # numbers of the samples that are predicted together
ROUTED = ("module__", "optimizer__")


class RobustClassifier(ClassifierMixin, BaseEstimator):
    """A scikit-learn classifier that trains one or two networks on partly wrong labels.

    Parameters
    ----------
    method : str
        A name in `coteach.METHODS`. "f_correction_known" and "iterative" are only for `coteach run`: they need
        what nobody knows of their own data.
    loss : str, optional
        A name in `coteach.LOSSES`; by default the method's own. For "coteaching" the modern recipe uses
        cross-entropy. `recipe="paper"` uses cross-entropy for the warm-up and then "softmax_twice", as in the
        code of the Co-teaching+ authors. That keeps wrong labels from spoiling what a small network knows.
    recipe : {"auto", "paper", "modern"}
        Sets the defaults. "modern" is for images: a fast network learns shifted, mirrored and cut images by SGD,
        with one cycle of the learning rate and averaged weights. "paper" uses small networks and Adam. "auto" is
        modern for images of at least 16×16 pixels, unless you bring a module.
    module : None, str, class, factory or torch.nn.Module
        The network. None chooses one: "fast_cnn" for images under the modern recipe; otherwise an MLP for tables
        and small images, a CNN from 32×32 and a ResNet from 64×64 pixels on. A string is a name in
        `coteach.networks.NETWORKS`. A class or factory is called with those of `n_features`, `n_inputs`,
        `n_classes`, `n_outputs`, `shape` and `channels` that it has arguments for. An instance is copied for
        every network, with new initial weights except in frozen layers; a `transformers` model gets only a new
        head. The network takes float32 samples as `inputs` returns them, and returns logits. A `transformers`
        model takes `input_ids` and their masks from a data set of dicts.
    noise_rate : float or "auto"
        The share of wrong labels that the method assumes. "auto" first estimates it, by training one network
        five more times, which takes two to four times the work of the training itself. Under the modern recipe
        these trainings are short, and a sixth one learns labels of which some are exchanged on purpose, only to
        measure. Together they take about the work of training two networks, or up to 2.5 times that if there are
        few samples. With noisy `validation_data` it tries eight rates, each with a whole training.
    epochs : int, optional
        By default 40 under the modern recipe, else 20.
    batch_size : int, optional
        By default 128, and less if an epoch would otherwise have fewer than 16 steps. The modern recipe takes up
        to 1,024, for about 48 steps an epoch.
    lr : float, optional
        Learning rate, by default 0.001; it falls linearly over the last three fifths of the epochs. Under the
        modern recipe it is the highest rate of the cycle, by default 1.5 for a batch of 1,024.
    optimizer : str or class, optional
        "adam", "sgd" (with momentum 0.9), the name of another optimiser in `torch.optim`, its class, or a class
        written like those. On a GPU the first two are the fastest. The default is "adam", or "sgd" if modern.
    warmup : int, optional
        Epochs before disagreement counts: by default a fifth of all, or half if modern. In Co-training these are
        the epochs on the given labels, by default three quarters. `warmup_loss` is used for as many epochs; their
        default is 10, more if those have fewer than 320 steps, and at most three quarters.
    warmup_loss : str, optional
        Another loss for the epochs of the warm-up.
    ramp : int, optional
        Epochs until the full share of labels is left out. By default 10, but at most half of all; if modern,
        three quarters of all.
    one_cycle : float, optional
        Share of all steps over which the learning rate rises to `lr`, before it falls to zero. With 0 it
        falls in a straight line over the last three fifths of the epochs. The modern recipe turns on this,
        lookahead, decoupled decay, mirror, shift and cutout. They are off otherwise.
    lookahead : int, optional
        Steps after which weights return to a moving average of themselves; 0 for never.
    decoupled_decay : bool, optional
        Weights decay apart from their gradients, by `lr` times `optimizer__weight_decay`.
    mirror, shift, cutout : bool, int, int, optional
        Mirror half of the images; shift them by up to so many pixels; blank a square with sides of so many pixels.
        If "fast_cnn" learns mirrored images, it also averages its answers over an image and its mirror image.
        The modern recipe does not mirror images of one channel: a digit or letter could become another.
    mixup : float, optional
        α: learn mixtures of two kept samples, with shares from Beta(α, α).
    weak_selection : bool, optional
        Compare losses on images that are not cut, and learn from cut ones.
    label_smoothing : float, optional
        Share of a label that is spread over all classes when it is learnt.
    strong_view : int, optional
        Learn each image after this many random changes of colour and shape; losses are compared without them.
    mixture : bool, optional
        After the warm-up, tell right labels by two Gaussians over all losses, instead of keeping a share of small
        losses.
    guess_weight, guess_ramp, temperature : float, int, float, optional
        After the warm-up, also learn guessed classes for the samples that are not picked: with this weight, which
        rises from zero over `guess_ramp` epochs. Guesses are raised to the power 1/temperature, 2 by default.
    memory_weight, memory_decay : float, float, optional
        λ and β of ELR, which holds a network to what it thought of a sample before. β is 0.7 by default.
    class_balance : float, optional
        Weight of a penalty on predicting some classes more often than others; for classes of equal sizes.
    confidence_penalty : float, optional
        Weight of negative entropy in the warm-up of "dividemix".
    keep_per_class : bool
        Leave out the same share of each class, not of all samples together: for classes of very different sizes.
    early_stopping : bool
        Stop when the ensemble's accuracy on validation labels has not risen for `patience` epochs, and take the
        networks of the best epoch. These labels may be noisy: wrong ones lower every epoch's accuracy alike. With
        `one_cycle` all epochs are trained, because the learning rate has to fall first.
    validation_fraction : float
        The share of each class that is held out for early stopping if `fit` gets no `validation_data`.
    patience : int
    standardize : bool
        Give each feature, or each channel of images, mean 0 and variance 1 in the training set.
    device : str
        "auto", "cpu", "cuda" or "cuda:1". "auto" takes a CUDA GPU if there is one. Apple's MPS is refused: it has
        no float64, which the methods' rates need.
    stream : bool
        Other processes read the samples of a map-style data set, or of a memory map, anew in every epoch. Use it
        for data that do not fit into memory, or that change at every reading. Otherwise a data set is read once,
        into memory.
    random_state : int, RandomState or None
        The same integer gives the same networks, on a CPU to the last bit, also in threads: these take turns.
    verbose : int
        Above 0: a progress bar.
    warm_start : bool
        Calling `fit` again trains the existing networks for `epochs` more.
    **module__and_optimizer__
        `module__hidden=(64,)` goes to the module as `hidden`, `optimizer__weight_decay=0.01` to the optimiser as
        `weight_decay`.

    Attributes
    ----------
    classes_ : array of shape (C,)
    networks_ : list of torch.nn.Module
        In evaluation mode, on the CPU; they take `inputs(X)`. In Co-training each sees one half of it.
    history_ : list of dict
        One for each epoch: training loss, disagreement, samples kept, what went wrong, and the ensemble's
        `validation_accuracy` and `validation_loss` if there is a validation set.
    network_, network_options_ : str or None, dict
        The network's name if it is one of ours, and its options, such as its width.
    best_epoch_ : int or None
        With early stopping, the epoch of `history_` whose networks were taken.
    noise_rate_ : float
        The rate that the method was given.
    noise_estimate_ : NoiseEstimate or None
        With "auto": the rate with its interval, the rate of each class, and the transition matrix.
    label_quality_ : array of shape (M,)
        How far each label that `fit` was given can be trusted, from 0 (wrong, in the eyes of the networks) to 1.
        It is a mean over the epochs, also for samples held out from training.
    given_labels_, suggested_labels_ : arrays of shape (M,)
        The labels that `fit` was given, and for each the likeliest other class.
    kept_share_ : array of shape (C,)
        For each given class: the share learnt after the ramp, among the samples that the method could pick from;
        nan if there were none. `fit` warns of a rare class below half the average.
    n_features_in_ : int
        The length of the second axis of X, as scikit-learn counts.
    sample_shape_ : tuple of int
        Shape of one sample as the networks take it.
    frame_ : FrameColumns or None
        How the columns of a data frame become numbers, if some are categories or have missing values.
    entries_ : Entries or None
        For a data set of dicts: the names of the entries that make a sample.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> x, truth = load_digits(return_X_y=True)
    >>> y = coteach.noise.corrupt(truth[:600], "symmetric", 0.2).labels  # yours come as they are
    >>> classifier = coteach.RobustClassifier(noise_rate=0.2, epochs=10, lr=0.005, random_state=0).fit(x[:600], y)
    >>> classifier.score(x[600:], truth[600:]) > 0.8  # on right labels, though a fifth of the others was wrong
    True
    >>> worst = classifier.suspects()  # the labels to look at first
    >>> len(worst), bool((truth[worst.index] != worst.given).mean() > 0.85)  # most of them are indeed wrong
    (120, True)
    """

    def __init__(
        self,
        method: str = "coteaching",
        loss: str | None = None,
        recipe: str = "auto",
        module: Any = None,
        noise_rate: float | str = "auto",
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        optimizer: str | type[torch.optim.Optimizer] | None = None,
        warmup: int | None = None,
        warmup_loss: str | None = None,
        ramp: int | None = None,
        one_cycle: float | None = None,
        lookahead: int | None = None,
        decoupled_decay: bool | None = None,
        mirror: bool | None = None,
        shift: int | None = None,
        cutout: int | None = None,
        mixup: float | None = None,
        weak_selection: bool | None = None,
        label_smoothing: float | None = None,
        strong_view: int | None = None,
        mixture: bool | None = None,
        guess_weight: float | None = None,
        guess_ramp: int | None = None,
        temperature: float | None = None,
        memory_weight: float | None = None,
        memory_decay: float | None = None,
        class_balance: float | None = None,
        confidence_penalty: float | None = None,
        keep_per_class: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 5,
        standardize: bool = True,
        device: str = "auto",
        stream: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        **module__and_optimizer__: Any,  # named so that scikit-learn, which tries every name, finds a fair one
    ):
        self.method = method
        self.loss = loss
        self.recipe = recipe
        self.module = module
        self.noise_rate = noise_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.optimizer = optimizer
        self.warmup = warmup
        self.warmup_loss = warmup_loss
        self.ramp = ramp
        self.one_cycle = one_cycle
        self.lookahead = lookahead
        self.decoupled_decay = decoupled_decay
        self.mirror = mirror
        self.shift = shift
        self.cutout = cutout
        self.mixup = mixup
        self.weak_selection = weak_selection
        self.label_smoothing = label_smoothing
        self.strong_view = strong_view
        self.mixture = mixture
        self.guess_weight = guess_weight
        self.guess_ramp = guess_ramp
        self.temperature = temperature
        self.memory_weight = memory_weight
        self.memory_decay = memory_decay
        self.class_balance = class_balance
        self.confidence_penalty = confidence_penalty
        self.keep_per_class = keep_per_class
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.standardize = standardize
        self.device = device
        self.stream = stream
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        for name in module__and_optimizer__:
            if not name.startswith(ROUTED):
                raise TypeError(f"RobustClassifier has no parameter {name!r}; the module's begin with 'module__'.")
        self._options = module__and_optimizer__

    # ---- parameters -------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All arguments, including those for the module and the optimiser.

        Parameters
        ----------
        deep : bool
            As scikit-learn asks; there are no estimators inside.

        Returns
        -------
        params : dict

        Examples
        --------
        >>> params = coteach.RobustClassifier(epochs=5, module__hidden=(64,)).get_params()
        >>> params["epochs"], params["module__hidden"]
        (5, (64,))
        """
        return super().get_params(deep) | self._options

    def set_params(self, **params: Any) -> Self:
        """Set arguments by name.

        Parameters
        ----------
        **params
            Names as in the constructor; `module__…` and `optimizer__…` need not have been given before.

        Examples
        --------
        >>> coteach.RobustClassifier().set_params(method="jocor", module__hidden=(32,)).method
        'jocor'
        """
        options = {name: value for name, value in params.items() if name.startswith(ROUTED)}
        super().set_params(**{name: value for name, value in params.items() if name not in options})
        self._options = self._options | options
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        return tags

    def _routed(self, prefix: str) -> dict[str, Any]:
        return {n.removeprefix(prefix): v for n, v in self._options.items() if n.startswith(prefix)}

    # ---- fit --------------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, validation_data: Any = None, validation_is_clean: bool = False
    ) -> Self:
        """Train the networks.

        Parameters
        ----------
        X : array-like of shape (M, F), (M, H, W), (M, H, W, channels) or (M, channels, H, W), or a data set
            Table or images: NumPy, pandas, torch or nested lists, but not sparse. Later X have the same layout.
            A map-style data set, such as torch's, returns a sample or (sample, label) as `X[i]`; see `stream`.
            It may also return a dict, as Hugging Face's `datasets` do: an array, image, numbers or tokens, and a
            `label`.
        y : array-like of shape (M,)
            Given labels: integers, strings or whatever else scikit-learn takes for classes. Leave it out only for
            a data set that returns labels too.
        validation_data : (X, y), or data set of pairs, optional
            For early stopping, and for `noise_rate="auto"`. Clean labels are compared with what networks make of
            noisy ones; noisy labels choose among rates by accuracy.
        validation_is_clean : bool
            Whether the labels of `validation_data` are known to be right.

        Returns
        -------
        self : RobustClassifier

        Examples
        --------
        >>> x, y = np.repeat(np.eye(2), 20, axis=0), ["cat"] * 20 + ["dog"] * 20
        >>> classifier = coteach.RobustClassifier(noise_rate=0.1, epochs=2, random_state=0).fit(x, y)
        >>> classifier.classes_.tolist(), len(classifier.networks_), len(classifier.history_)
        (['cat', 'dog'], 2, 2)
        """
        learner = copy.copy(self)  # a training that fails or is stopped leaves the model there is as it was
        learner._learn(X, y, validation_data, validation_is_clean)
        self.__dict__ = learner.__dict__
        return self

    def _learn(self, X: Any, y: Any, validation_data: Any, validation_is_clean: bool) -> None:
        params = self.get_params(deep=False)
        check_arguments(params, self._routed("optimizer__"))
        goes_on = self.warm_start and hasattr(self, "networks_")
        before = (self.sample_shape_, self.classes_.tolist()) if goes_on else None
        x, y = self._checked(X, y)
        classes, labels_M = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError("y has one class only: a classifier needs samples of at least two.")
        if before not in (None, (one_shape(x), classes.tolist())):
            raise ValueError("warm_start goes on with the same features and classes: set it to False for others.")
        network = self._network_before() if goes_on else {}
        if goes_on and self.network_ is not None:
            params["module"] = self.network_
        params["module"] = fed_with(params["module"], self.entries_)
        self.classes_, self.sample_shape_ = classes, one_shape(x)
        check_views(self.method, self.sample_shape_)
        if before is None:
            of_tokens = self.entries_ is not None and self.entries_.are_tokens  # whose numbers are names
            scales = self.standardize and not of_tokens
            self.mean_, self.scale_ = scale_of(x) if scales else (np.zeros(1), np.ones(1))
        fitted = fit_networks(
            params,
            lambda prefix: self._routed(prefix) | (network if prefix == "module__" else {}),
            self._scaled(x),
            labels_M.astype(np.int64),
            len(classes),
            self._validation(validation_data, validation_is_clean),
            self.networks_ if goes_on else None,
            list(self.history_) if goes_on else [],
        )
        self.networks_, self.history_, self.method_ = fitted.networks, fitted.history, self.method
        self.noise_rate_, self.noise_estimate_ = fitted.noise_rate, fitted.estimate
        self.label_quality_, self.given_labels_ = fitted.quality_M, classes[labels_M]
        self.suggested_labels_ = classes[fitted.suggested_M]
        self.kept_share_, self.best_epoch_ = fitted.kept_share_C, fitted.best_epoch
        self.network_, self.network_options_ = fitted.network, fitted.network_options
        if not (self.keep_per_class or self.mixture or self.method == "dividemix"):  # no advice for these
            warn_of_starved(self.kept_share_, np.bincount(labels_M), classes)

    def _network_before(self) -> dict[str, Any]:
        """What the network there is was made with, which is the only one to go on with."""
        asked, own = self._routed("module__"), not (self.module is None or isinstance(self.module, str))
        same = own if self.network_ is None else self.module in (None, self.network_)
        if not same or any(self.network_options_.get(name, value) != value for name, value in asked.items()):
            raise ValueError(
                "warm_start goes on with the network there is: leave module and module__… as they were."
            )
        return self.network_options_

    # ---- predict ----------------------------------------------------------------------------------------------

    def networks_proba(self, X: Any) -> np.ndarray:
        """Each network's opinion.

        Parameters
        ----------
        X : array-like of shape (M, ...), or a data set
            As for `fit`.

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
        precision = choose_precision("auto", self.networks_[0], device.startswith("cuda"))
        modules = PlainModules(self.networks_, device, precision)
        with closing_streams(x_M):
            logits = predict(modules, x_M, max(1, PREDICTED_AT_ONCE // math.prod(self.sample_shape_)), view=view)
            pieces = [logits_NRBC[:, 0].double().softmax(-1).float().cpu() for logits_NRBC in logits]
        return torch.cat(pieces, 1).numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """The networks' mean probabilities.

        Parameters
        ----------
        X : array-like of shape (M, ...), or a data set
            As for `fit`.

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
            As for `fit`.

        Returns
        -------
        labels : array of shape (M,)
            Values of `classes_`.

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
            As for `fit`.

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
        X, _ = as_pairs(X, self.entries_)
        if self.frame_ is not None:
            X = self._frame_as_numbers(X, self.frame_, reset=False)
            return self._scaled(X), None
        x, labels = as_samples(X, self.stream, self.verbose, wants_labels)
        if not isinstance(x, Samples):
            with explained(x):
                x = channels_first(validate_data(self, x, reset=False, **ACCEPTED_NUMBERS))
        if one_shape(x) != self.sample_shape_:
            raise ValueError(f"samples have shape {one_shape(x)} but those of fit had {self.sample_shape_}.")
        return self._scaled(x), labels

    def _scaled(self, x: np.ndarray | Samples) -> Tensor | Samples:
        known = self.mean_, self.scale_
        return Scaled(x, *known) if isinstance(x, Samples) else scaled(x, *known)

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray | Samples, np.ndarray]:
        goes_on = self.warm_start and hasattr(self, "networks_")
        X, self.entries_ = as_pairs(X, self.entries_ if goes_on else None, filling_of(self.module))
        self.frame_ = self.frame_ if goes_on else FrameColumns.needed_for(X)
        if self.frame_ is not None:
            with explained([], y):
                y = validate_data(self, y=to_numpy(y))
                x = self._frame_as_numbers(X, self.frame_, reset=True)
                check_same_length(x, y)
                check_classification_targets(y)
            return x, y
        x, labels = as_samples(X, self.stream, self.verbose, wants_labels=y is None)
        y = labels if y is None else to_numpy(y)
        with explained(x, y):
            if isinstance(x, Samples):
                y = validate_data(self, y=y)
                check_same_length(x, y)
                self.n_features_in_ = x.shape[1]
            else:
                x, y = validate_data(self, x, y, **ACCEPTED_NUMBERS)
                x = channels_first(x)
            check_classification_targets(y)
        return x, y

    def _frame_as_numbers(self, X: Any, frame: FrameColumns, reset: bool) -> np.ndarray:
        x = frame.numbers(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return x

    def _validation(self, data: Any, clean: bool) -> Validation | None:
        if data is None:
            if clean:
                raise ValueError("validation_is_clean goes with validation_data: give both, or neither.")
            return None
        X, y = data if isinstance(data, (tuple, list)) and len(data) == 2 else (data, None)
        x, labels = self._taken(X, wants_labels=y is None)
        y = np.asarray(labels if y is None else to_numpy(y))
        check_same_length(x, y, "validation ")
        known = set(self.classes_.tolist())
        for label in y.tolist():
            if label not in known:
                raise ValueError(f"the validation label {label!r} is none of the training labels: leave it out.")
        return Validation(x, np.searchsorted(self.classes_, y), bool(clean))

    # ---- labels -----------------------------------------------------------------------------------------------

    def suspects(self, share: float | None = None) -> Suspects:
        """The training samples with the least trusted labels, the worst first.

        Parameters
        ----------
        share : float, optional
            The share of all samples to list; by default the noise rate.

        Returns
        -------
        suspects : Suspects
            Four arrays of round(share · M) values: `index`, `given`, `suggested` and `quality`.

        Examples
        --------
        >>> x, y = np.repeat(np.eye(2), 20, axis=0), [1] + [0] * 19 + [1] * 20  # the first label is wrong
        >>> classifier = coteach.RobustClassifier(noise_rate=0.1, epochs=10, lr=0.01, random_state=0).fit(x, y)
        >>> worst = classifier.suspects(share=0.025)
        >>> int(worst.index[0]), int(worst.given[0]), int(worst.suggested[0])
        (0, 1, 0)
        """
        check_is_fitted(self, "label_quality_")
        share = self.noise_rate_ if share is None else checked_share(share)
        return suspects(self.given_labels_, self.label_quality_, self.suggested_labels_, share)

    # ---- files ------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, without pickle: weights, label quality, and all else as JSON in its header.

        It does not hold a module of your own, nor a RandomState: pass the module to `load` again. An optimiser
        class is saved by its name, which is enough for those of torch.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> import tempfile
        >>> classifier = coteach.RobustClassifier(noise_rate=0, epochs=1).fit(np.eye(4), [0, 1, 0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.save(f"{folder}/model.safetensors")
        ...     again = coteach.RobustClassifier.load(f"{folder}/model.safetensors")
        >>> bool((again.predict_proba(np.eye(4)) == classifier.predict_proba(np.eye(4))).all())
        True
        """
        check_is_fitted(self, "networks_")
        files.save_classifier(self, path)

    def export_onnx(self, path: str | Path) -> None:
        """Write the ensemble to an ONNX file, which runs without this library. Needs the extra `onnx`.

        The input "x" is float32 and not standardised: a table like X, or images of shape (M, channels, H, W).
        The output "probabilities" has the classes in the order of `classes_`.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> classifier = coteach.RobustClassifier(noise_rate=0, epochs=1).fit(np.eye(4), [0, 1, 0, 1])
        >>> classifier.export_onnx("no/such/model.onnx")
        Traceback (most recent call last):
        ValueError: there is no folder no/such: make it first, or save elsewhere.
        """
        check_is_fitted(self, "networks_")
        view = half_views if METHODS[self.method_].views else same_view
        logits = Viewed(self.networks_, Rescaled(self.mean_, self.scale_), view)
        write_onnx(Ensemble(logits), [torch.zeros(EXAMPLES_NEEDED, *self.sample_shape_)], path)

    @classmethod
    def load(cls, path: str | Path, module: Any = None) -> Self:
        """Load what `save` wrote, on any device.

        Parameters
        ----------
        path : path
        module : class, factory or torch.nn.Module, optional
            The one that it was trained with, if it was your own.

        Returns
        -------
        classifier : RobustClassifier

        Examples
        --------
        >>> import tempfile
        >>> def linear(n_features, n_classes):
        ...     return torch.nn.Linear(n_features, n_classes)
        >>> classifier = coteach.RobustClassifier(module=linear, noise_rate=0, epochs=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.fit(np.eye(4), [0, 1, 0, 1]).save(f"{folder}/model.safetensors")
        ...     coteach.RobustClassifier.load(f"{folder}/model.safetensors", module=linear).classes_.tolist()
        [0, 1]
        """
        return cast("Self", files.load_classifier(cls, path, module))
