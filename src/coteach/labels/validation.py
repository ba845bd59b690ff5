"""How many labels are wrong, when there is a validation set beside them. M samples, V of validation, C classes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from coteach.engine import Engine
from coteach.engine.stream import Stream
from coteach.labels.estimate import (
    SHARPNESS,
    Z_95,
    NoiseEstimate,
    estimate_noise,
    interval_of,
    nearness_to_groups,
    per_row,
    softmax,
)
from coteach.labels.folds import SMALLEST, opinions
from coteach.methods import METHODS, Method
from coteach.plan import Plan
from coteach.rules import all_of
from coteach.train import Epoch, Problem, fit

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # to try on noisy validation labels
ALMOST_AS_LIKELY = Z_95**2 / 2  # of a logarithm: what one number may be with a confidence of 95 %
SETTLED = 1e-4  # change of a flip probability that ends the search


# ---- clean validation labels: compare -------------------------------------------------------------------------


def compare_with_clean(
    p_MC: np.ndarray, labels_M: np.ndarray, p_FVC: np.ndarray, clean_V: np.ndarray
) -> NoiseEstimate:
    """The noise in `labels_M`, by networks trained on such labels and judged by samples whose class is known.

    Clean labels tell how sure these networks may be believed to be, of what they were not trained on: the
    sharpness of their opinions under which the true classes are most likely. Believed so far, they leave for each
    noisy sample some probability of every true class; the flips are those that make the given labels most likely.

    Parameters
    ----------
    p_MC : float array of shape (M, C)
        Out of sample.
    labels_M : int array of shape (M,)
        As given, some of them wrong.
    p_FVC : float array of shape (F, V, C)
        Of the same F networks, on the clean samples.
    clean_V : int array of shape (V,)
        True classes.
    """
    n, n_classes = p_MC.shape
    true_V, p_VC = np.tile(clean_V, len(p_FVC)), np.concatenate(p_FVC)

    def likelihoods(score_VC: np.ndarray) -> np.ndarray:
        return np.array([np.log(_of(softmax(s * score_VC), true_V)).sum() / len(p_FVC) for s in SHARPNESS])

    # Classes are the groups that samples form, unless these are nothing like the clean classes: by more than is
    # won by fitting C·(C-1) numbers to clean samples, as Akaike counts.
    score_MC, score_VC = np.split(nearness_to_groups(np.concatenate([p_MC, p_VC])), [n])
    if len(np.unique(clean_V)) == n_classes:
        by_clean_MC, by_clean_VC = (nearness_to_clean(p, p_VC, true_V) for p in (p_MC, p_VC))
        won = likelihoods(by_clean_VC).max() - likelihoods(score_VC).max()
        if won > n_classes * (n_classes - 1):
            score_MC, score_VC = by_clean_MC, by_clean_VC
    likelihood_S = likelihoods(score_VC)
    likely = SHARPNESS[likelihood_S >= likelihood_S.max() - ALMOST_AS_LIKELY]
    rates = [1 - _of(behind(softmax(s * score_MC), labels_M), labels_M).mean() for s in likely]
    true_MC = behind(softmax(SHARPNESS[likelihood_S.argmax()] * score_MC), labels_M)
    wrong_M = 1 - _of(true_MC, labels_M)
    rate = float(np.clip(wrong_M.mean(), 0, 1))
    disagreement = float((score_MC.argmax(1) != labels_M).mean())
    given_MC = np.eye(n_classes)[labels_M]
    return NoiseEstimate(
        rate,
        interval_of(rate, [*rates, disagreement], n),
        np.clip(wrong_M @ given_MC / np.maximum(given_MC.sum(0), 1), 0, 1),
        per_row(true_MC.T @ given_MC),
        n,
    )


def nearness_to_clean(p_MC: np.ndarray, p_VC: np.ndarray, true_V: np.ndarray) -> np.ndarray:
    """Minus the cross-entropy of each sample's probabilities to the mean ones of each true class (MC)."""
    mean_CC = np.stack([p_VC[true_V == c].mean(0) for c in range(p_MC.shape[1])])
    return np.clip(p_MC, SMALLEST, 1) @ np.log(np.clip(mean_CC, SMALLEST, 1)).T


def behind(prior_MC: np.ndarray, labels_M: np.ndarray, most_rounds: int = 200) -> np.ndarray:
    """Probability of each true class once the given label is known (MC), under the most likely flips.

    Expectation maximisation, begun at labels of which half are right.
    """
    n_classes = prior_MC.shape[1]
    given_MC, matrix_CC = np.eye(n_classes)[labels_M], (np.eye(n_classes) + 1 / n_classes) / 2
    for _ in range(most_rounds):
        joint_MC = np.maximum(prior_MC * matrix_CC[:, labels_M].T, SMALLEST**2)
        true_MC = joint_MC / joint_MC.sum(1, keepdims=True)
        before_CC, matrix_CC = matrix_CC, per_row(true_MC.T @ given_MC)
        if np.abs(matrix_CC - before_CC).max() < SETTLED:
            break
    return true_MC


def _of(p_MC: np.ndarray, classes_M: np.ndarray) -> np.ndarray:
    """Of each row the number that belongs to its class, never quite 0."""
    return np.maximum(p_MC[np.arange(len(p_MC)), classes_M], SMALLEST**2)


# ---- noisy validation labels: try -----------------------------------------------------------------------------


def choose_rate(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    x_V: Tensor | Stream,
    y_V: Tensor,
    engine: Engine,
    rates: Sequence[float] = RATES,
    advance: Callable[[], None] = lambda: None,
) -> NoiseEstimate:
    """The rate that a method had best be told: of those tried, the one with the highest validation accuracy.

    The paper's suggestion. Wrong validation labels lower every rate's accuracy alike, so they choose the same one.
    The classes' rates and the matrix are those of the validation labels, in the eyes of the best rate's networks;
    the interval spans the rates that are within a standard error of the best. `advance` is called every epoch.
    """
    method = heeds_the_rate(method, plan)
    tried, accuracy_S, best = [], [], None
    for rate in rates:
        late = LateAccuracy(x_V, y_V, first=plan.epochs - plan.epochs // 4)

        def after(epoch: Epoch, late: LateAccuracy = late) -> None:
            late(epoch)
            advance()

        training = fit(replace(problem, noise_rates=[rate]), method, plan, build, engine=engine, on_epoch=after)
        tried.append((rate, late.mean))
        if best is None or late.mean > max(accuracy_S):
            best = opinions(training, x_V).mean(0)
        accuracy_S.append(late.mean)
    assert best is not None
    top = max(accuracy_S)
    near = [rate for rate, accuracy in tried if accuracy >= top - np.sqrt(top * (1 - top) / len(y_V))]
    p_VC = best.double().cpu().numpy()
    seen = estimate_noise(p_VC / p_VC.sum(1, keepdims=True), y_V.cpu().numpy())
    rate = tried[accuracy_S.index(top)][0]
    return replace(seen, rate=rate, interval=(min(near), max(near)), tried=tuple(tried))


def heeds_the_rate(method: Method, plan: Plan) -> Method:
    """The method; Co-teaching stands in for one that is indifferent to the rate."""
    indifferent = all(phase.rule.pick is all_of for phase in method.phases(plan))
    return METHODS["coteaching"] if indifferent else method


class LateAccuracy:
    """The ensemble's accuracy on validation samples, a mean over the epochs from `first` on."""

    def __init__(self, x_V: Tensor | Stream, y_V: Tensor, first: int):
        self.x_V, self.y_V, self.first = x_V, y_V, max(1, first)
        self.accuracies: list[float] = []

    def __call__(self, epoch: Epoch) -> None:
        if epoch.number >= self.first and not epoch.preliminary:
            p_VC = opinions(epoch.training, self.x_V).mean(0)
            self.accuracies.append((p_VC.argmax(1) == self.y_V).double().mean().item())

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)
