"""A scikit-learn meta-estimator that learns in rounds from the samples of small loss.

N copies, M samples, C classes, F features.
"""

import copy
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import Tags, check_array, get_tags  # pyrefly: ignore[missing-module-attribute]
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,  # pyrefly: ignore[missing-module-attribute]
    check_consistent_length,
    check_is_fitted,
    validate_data,  # pyrefly: ignore[missing-module-attribute]
)

from coteach.checks import is_whole
from coteach.classifier.inputs import dense, explained, scale_of, scaled, to_numpy
from coteach.classifier.options import check_noise_rate, seed_of
from coteach.labels.ledger import Suspects, checked_share, suspects
from coteach.labels.neighbours import NEAREST, NeighbourModel, Neighbours, nearest_samples
from coteach.labels.quality import quality_of_labels
from coteach.labels.readings import estimate_by_two
from coteach.names import check_name
from coteach.selective.learners import EstimatorLearners, Learners, all_classes
from coteach.selective.linear import LinearLearners
from coteach.selective.rounds import (
    COPIES,
    ROUND_RULES,
    Rounds,
    counted_as_given,
    dealt,
    first_samples,
    normalised,
    pick_in_rounds,
    relabelled,
    with_vote,
)
from coteach.selective.tables import numbers_of, rows_of
from coteach.stages import enter_stage

LEAST_OF_ROUNDS = {"rounds": 0, "ramp": 1, "folds": 0, "neighbours": 0}
ONE_UNIT = 10  # times the usual spread of a feature, which those that share a unit do not reach
UNLEARNT = (
    "rounds unlearn more of the given labels than chance explains, as where wrong labels follow the features: the "
    "model learns from all samples. Look at the first suspects before you trust the list."
)


class SelectiveTrainingClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Fit any classifier in rounds, each time on the samples with small losses.

    Parameters
    ----------
    estimator : classifier, optional
        Any with `predict_proba`. The default is logistic regressions of our own: all folds and copies are fitted
        together, and held-out labels choose their penalty.
    rule : {"mentornet", "coteaching", "jocor"}
        Whose small losses count: the model's own, those of the other of two copies, or of both together.
    noise_rate : float or "auto"
        The share of labels to leave out in the end. "auto" estimates it from held-out probabilities of the first
        fit, which needs folds.
    rounds : int
        The most there can be, after the first fit on everything. They end early when the same samples are picked
        again.
    ramp : int
        Rounds until the whole share is left out.
    folds : int
        The loss of a sample comes from a fit without its fold. With 0 it comes from the fit on all folds, which
        may have learnt the sample, and costs that many times less.
    neighbours : int
        How many of the nearest trusted samples vote on a label's quality, besides the model; 0 for none. They vote
        only on tables of numbers, and only if the vote helps to predict held-out labels. Without an estimator they
        also vote on predictions, where they count a third.
    relabel : bool
        Learn corrected labels in the end: the likeliest class of each sample, its given label being evidence too,
        weighted by its lead over the next class. If False, the models learn the kept samples as given. Nothing is
        corrected where `noise_rate` is 0, or where the rounds were undone.
    keep_per_class : bool
        Leave out the same share of each class.
    standardize : bool or "auto"
        Give each feature mean 0 and variance 1, for our own regressions and for finding neighbours. "auto" does so
        unless all features have about the same spread, like those of a trained network. Your own estimator gets
        the samples as they are.
    random_state : int, RandomState or None
        Deals the folds.

    Attributes
    ----------
    classes_ : array of shape (C,)
    estimators_ : list
        The model that predicts. Without `relabel` one for each copy, fitted on what it kept.
    history_ : list of dict
        For each round: how many samples each copy kept, how many of them changed, the loss of the given labels,
        and the share of them that is predicted.
    predicted_ : array of shape (rounds, M)
        The class that was likeliest after the first fit and after each round, by its place in `classes_`.
    noise_rate_ : float
        The rate that the rounds were given.
    noise_estimate_ : NoiseEstimate or None
        With "auto": the rate with its interval, the rate of each class, and the transition matrix.
    kept_ : bool array of shape (N, M)
        What each copy learnt from in the last round.
    learnt_labels_ : array of shape (M,)
        The labels that the models learnt in the end.
    label_quality_ : array of shape (M,)
        How far each given label can be trusted, from 0 to 1. It compares the label's probability with that of the
        likeliest other class, each relative to what is usual for its class. Below ½ the other class is likelier.
    given_labels_, suggested_labels_ : arrays of shape (M,)
        The labels that `fit` was given, and for each the likeliest other class.
    held_out_proba_ : array of shape (M, C)
        The copies' mean probabilities over the first fit and the last round. Where neighbours vote, half of it is
        their vote.
    neighbour_votes_ : array of shape (M, C) or None
        How many of the nearest trusted samples have each label.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> x, truth = load_digits(return_X_y=True)
    >>> y = coteach.noise.corrupt(truth[:600], "symmetric", 0.2).labels
    >>> model = coteach.SelectiveTrainingClassifier(random_state=0).fit(x[:600], y)
    >>> model.score(x[600:], truth[600:]) > 0.8
    True
    >>> worst = model.suspects(share=0.1)
    >>> bool((truth[worst.index] != worst.given).mean() > 0.9)
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        rule: str = "mentornet",
        noise_rate: float | str = "auto",
        rounds: int = 6,
        ramp: int = 3,
        folds: int = 5,
        neighbours: int = NEAREST,
        relabel: bool = True,
        keep_per_class: bool = False,
        standardize: bool | str = "auto",
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.rule = rule
        self.noise_rate = noise_rate
        self.rounds = rounds
        self.ramp = ramp
        self.folds = folds
        self.neighbours = neighbours
        self.relabel = relabel
        self.keep_per_class = keep_per_class
        self.standardize = standardize
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.input_tags.sparse = self.estimator is not None and get_tags(self.estimator).input_tags.sparse
        if self.estimator is not None:
            tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags

    # ---- fit --------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit in rounds.

        Parameters
        ----------
        X : array-like of shape (M, F)
            Whatever the estimator takes; without an estimator, a table of numbers.
        y : array-like of shape (M,)
            Given labels, some of them wrong.
        sample_weight : array-like of shape (M,), optional
            If the estimator takes them.

        Returns
        -------
        self : SelectiveTrainingClassifier

        Examples
        --------
        >>> x, y = np.repeat(np.eye(2), 20, axis=0), ["cat"] * 20 + ["dog"] * 20
        >>> model = coteach.SelectiveTrainingClassifier(noise_rate=0.1).fit(x, y)
        >>> model.classes_.tolist(), len(model.estimators_)
        (['cat', 'dog'], 1)
        """
        learner = copy.copy(self)  # a fit that fails or is stopped leaves the model there is as it was
        learner._learn(X, y, sample_weight)
        self.__dict__ = learner.__dict__
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._check_parameters()
        x, y = self._checked(X, y)
        classes, labels_M = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError("y has one class only: a classifier needs samples of at least two.")
        labels_M = labels_M.astype(np.int64)
        weight_M = _check_sample_weight(sample_weight, labels_M, dtype=np.float64, ensure_non_negative=True)
        numbers, mean, scale = self._scaled_numbers(x)
        learners: Learners = (
            LinearLearners(np.asarray(numbers), labels_M, len(classes))
            if self.estimator is None
            else EstimatorLearners(self.estimator, x, labels_M, len(classes), sample_weight is not None)
        )
        rounds = self._rounds()
        enter_stage("learning all labels")
        first_NMC = learners.probabilities(first_samples(labels_M, rounds) * weight_M, dealt(labels_M, rounds))
        first_MC = normalised(first_NMC.mean(0))
        neighbours = self._neighbours(numbers, labels_M, len(classes), first_MC)
        estimate, rate = None, self.noise_rate
        if rate == "auto":
            estimate = estimate_by_two(first_MC, neighbours.vote_of_all if neighbours else None, labels_M)
            rate = min(estimate.rate, 1 - 1 / len(labels_M))
        vote = (lambda trusted_M: neighbours.vote(trusted_M)[1]) if neighbours else None
        picked = pick_in_rounds(learners, first_NMC, labels_M, weight_M, rounds, float(rate), vote)
        opinions, votes_MC = [first_MC, normalised(picked.p_NMC.mean(0))], None
        if neighbours:
            votes_MC, vote_MC = neighbours.vote(np.all(picked.kept_NM, axis=0))
            opinions += [neighbours.vote_of_all, vote_MC]
        quality_M, suggested_M = quality_of_labels(opinions, labels_M)
        learnt_M, counts_NM = labels_M, counted_as_given(picked.kept_NM, labels_M)
        if self.relabel and rate and not picked.gone_back:
            learnt_M, counts_NM = relabelled(opinions, labels_M, quality_M)
        counts_NM = counts_NM * weight_M
        self.classes_, self.estimators_ = classes, learners.models(counts_NM, learnt_M)
        self.neighbour_model_ = None
        if neighbours and self.estimator is None:
            votes_M = counts_NM.mean(0) / weight_M.mean()
            self.neighbour_model_ = NeighbourModel.of(
                np.asarray(numbers), learnt_M, votes_M, len(classes), self.neighbours
            )
        self.mean_, self.scale_ = mean, scale
        self.noise_rate_, self.noise_estimate_, self.kept_ = float(rate), estimate, picked.kept_NM
        self.history_, self.predicted_ = picked.history, np.stack(picked.predicted)
        self.label_quality_, self.held_out_proba_ = quality_M, np.mean(opinions, 0)
        self.neighbour_votes_ = votes_MC
        self.given_labels_, self.suggested_labels_ = classes[labels_M], classes[suggested_M]
        self.learnt_labels_ = classes[learnt_M]
        if picked.gone_back:
            warnings.warn(UNLEARNT, stacklevel=3)

    def _check_parameters(self) -> None:
        own = self.estimator
        if own is not None and (isinstance(own, type) or not hasattr(own, "fit")):
            raise ValueError(f"estimator is {own!r}: give a classifier such as RandomForestClassifier().")
        check_name("rule", self.rule, ROUND_RULES)
        for name, least in LEAST_OF_ROUNDS.items():
            value = getattr(self, name)
            if not (is_whole(value) and value >= least):
                raise ValueError(f"{name} is {value!r}: give a whole number of at least {least}.")
        for name in ("relabel", "keep_per_class"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} is {getattr(self, name)!r}: give True or False.")
        if self.standardize not in (True, False, "auto"):
            raise ValueError(f"standardize is {self.standardize!r}: give True, False or 'auto'.")
        if self.folds == 1:
            raise ValueError("folds is 1, which leaves nothing to learn from: give 0 for none, or at least 2.")
        check_noise_rate(self.noise_rate)
        if self.noise_rate == "auto" and not self.folds:
            raise ValueError('noise_rate "auto" is estimated from held-out samples: give folds, or a rate.')

    def _rounds(self) -> Rounds:
        rule = ROUND_RULES[self.rule]
        return Rounds(
            rule.of_each_class() if self.keep_per_class else rule,
            COPIES[self.rule],
            self.rounds,
            self.ramp,
            self.folds,
            seed_of(self.random_state),
        )

    def _checked(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        with explained(X, y):
            if self.estimator is None:
                X, y = validate_data(self, dense(X), to_numpy(y), dtype=[np.float64, np.float32])
            else:
                y = validate_data(self, y=to_numpy(y))
                X = self._rows(X, reset=True)
                check_consistent_length(X, y)
            check_classification_targets(y)
        return X, y

    def _rows(self, X: Any, reset: bool) -> Any:
        """X as the estimator gets it: what it makes of cells is its own business, that there are rows is ours."""
        rows = rows_of(X)
        texts = rows.ndim == 1 and any(isinstance(row, str) for row in rows)
        if (
            texts
            and (other := next((i for i, row in enumerate(rows) if not isinstance(row, str)), None)) is not None
        ):
            raise ValueError(
                f"sample {other} is no text but {rows[other]!r}: leave it out, or give an empty text."
            )
        if not (hasattr(rows, "iloc") or texts):
            check_array(rows, accept_sparse=True, dtype=None, ensure_all_finite=False, allow_nd=True)  # pyrefly: ignore[unexpected-keyword]
        validate_data(self, rows, reset=reset, skip_check_array=True)
        return rows

    def _scaled_numbers(self, x: Any) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """The samples as float32 for regressions and neighbours, and what was subtracted and divided by."""
        numbers = x if self.estimator is None else numbers_of(x)
        if numbers is None:
            return None, np.zeros(1), np.ones(1)
        mean, scale = scale_of(numbers)
        if not self.standardize or (self.standardize == "auto" and share_a_unit(numbers)):
            scale = one_scale(numbers)
        return scaled(numbers, mean, scale).numpy(), mean, scale

    def _neighbours(
        self, numbers: np.ndarray | None, labels_M: np.ndarray, n_classes: int, first_MC: np.ndarray
    ) -> Neighbours | None:
        if numbers is None or not self.neighbours or len(labels_M) < 2:
            return None
        held_out_MC = first_MC if self.folds else None
        neighbours = Neighbours(nearest_samples(numbers), labels_M, n_classes, self.neighbours, held_out_MC)
        return neighbours if neighbours.tell_more else None

    # ---- predict ----------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """The copies' mean probabilities. Where neighbours vote, a third is theirs.

        Parameters
        ----------
        X : array-like of shape (M, F)
            As for `fit`.

        Returns
        -------
        probabilities : array of shape (M, C)
            The classes in the order of `classes_`.

        Examples
        --------
        >>> model = coteach.SelectiveTrainingClassifier(noise_rate=0, folds=2).fit(np.eye(4), [0, 1, 0, 1])
        >>> model.predict_proba(np.eye(4)).sum(1).round(3).tolist()
        [1.0, 1.0, 1.0, 1.0]
        """
        check_is_fitted(self, "estimators_")
        if self.estimator is None:
            x = validate_data(self, dense(X), reset=False, dtype=[np.float64, np.float32])
            x = scaled(x, self.mean_, self.scale_).numpy()
            p_MC = np.mean([model.predict_proba(x) for model in self.estimators_], axis=0)
            if self.neighbour_model_ is None:
                return p_MC
            return with_vote(p_MC, self.neighbour_model_.predict_proba(x))
        x = self._rows(X, reset=False)
        return np.mean([all_classes(model, x, len(self.classes_)) for model in self.estimators_], axis=0)

    def predict(self, X: Any) -> np.ndarray:
        """The classes with the highest mean probability.

        Parameters
        ----------
        X : array-like of shape (M, F)
            As for `fit`.

        Returns
        -------
        labels : array of shape (M,)
            Values of `classes_`.

        Examples
        --------
        >>> x, y = np.repeat(np.eye(2), 20, axis=0), ["cat"] * 20 + ["dog"] * 20
        >>> coteach.SelectiveTrainingClassifier().fit(x, y).predict(np.eye(2)).tolist()
        ['cat', 'dog']
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

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
        >>> worst = coteach.SelectiveTrainingClassifier(noise_rate=0.1, random_state=0).fit(x, y).suspects(0.025)
        >>> int(worst.index[0]), int(worst.given[0]), int(worst.suggested[0])
        (0, 1, 0)
        """
        check_is_fitted(self, "label_quality_")
        share = self.noise_rate_ if share is None else checked_share(share)
        return suspects(self.given_labels_, self.label_quality_, self.suggested_labels_, share)


def one_scale(x_MF: np.ndarray) -> np.ndarray:
    """One number to divide all features by, so that their proportions stay; a power of two rounds nothing.

    >>> one_scale(np.array([[1e30, 0.0], [3e30, 0.0]])).item() == 2.0**99
    True
    """
    spread = float(x_MF.std(0, dtype=np.float64).max())
    return np.array([2.0 ** np.frexp(spread)[1] / 2]) if spread else np.ones(1)


def share_a_unit(x_MF: np.ndarray) -> bool:
    """Whether no feature spreads far more than most do, among those that are no constants.

    >>> share_a_unit(np.eye(3)), share_a_unit(np.array([[1, 2, 3000], [2, 1, 9000], [1, 3, 1000]]))
    (True, False)
    """
    spread_F = x_MF.std(0)
    spread_F = spread_F[spread_F > 0]
    return not len(spread_F) or bool(spread_F.max() < ONE_UNIT * np.median(spread_F))
