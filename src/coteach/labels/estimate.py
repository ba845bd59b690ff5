"""How many labels are wrong, by probabilities of networks that have not seen the label they are asked about.

From these alone, or beside clean labels of other samples. M samples, V of validation, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coteach.checks import check_labels, check_same_length
from coteach.labels.quality import raised_where_few, softmax

__all__ = ["NoiseEstimate", "estimate_noise", "estimate_of_hard_samples"]

SHARPNESS = 2.0 ** np.arange(-2, 8.5, 0.5)  # from nearly even odds to certainty; the likelihood takes one
ROUND_OFF = 1e-9  # a likelihood that is better by less is no better
Z_95 = 1.96
SMALLEST = 1e-6  # probability, so that a logarithm is finite; float32 softmax knows nothing finer of 1 - p
ALMOST_AS_LIKELY = Z_95**2 / 2  # of a logarithm: what one number may be with a confidence of 95 %
SETTLED = 1e-4  # change of a flip probability that ends the search
LEAST_COUNTED = 100  # of each group on average: a standard error of 0.05 in a row of the matrix
SURELY = 3.0  # standard errors
MANY_CLASSES = 500  # from here on each sample is weighed among its likeliest classes only: all would be a cube
LIKELIEST = 32
SAMPLES_AT_ONCE = 4096
MOST_BESIDE_CLEAN = 2000  # classes


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """How many labels are wrong, and which classes are confused.

    Attributes
    ----------
    rate : float
        Share of wrong labels.
    interval : (float, float)
        Holds the rate with a confidence of 95 % or more, if noise depends only on the class. With exchanged labels
        (`labels.planted`) its ends are rules of thumb.
    per_class : float array of shape (C,)
        Share of wrong labels among those given as class c; 0 for a class without labels.
    matrix : float array of shape (C, C)
        Row i: how the samples of true class i are labelled; the unit row for a class without samples.
    n : int
        How many labels were looked at.
    tried : tuple of (float, float)
        Rates that were tried out, each with its accuracy on noisy validation labels; empty if none were.

    Examples
    --------
    >>> estimate = NoiseEstimate(0.2, (0.1, 0.3), np.array([0.2, 0.2]), np.array([[0.8, 0.2], [0.2, 0.8]]), n=100)
    >>> low, high = estimate.interval
    >>> f"{estimate.rate:.0%} of {estimate.n} labels are wrong ({low:.0%} to {high:.0%})"
    '20% of 100 labels are wrong (10% to 30%)'
    """

    rate: float
    interval: tuple[float, float]
    per_class: np.ndarray
    matrix: np.ndarray
    n: int
    tried: tuple[tuple[float, float], ...] = ()


def estimate_noise(probabilities: Any, labels: Any) -> NoiseEstimate:
    """Estimate how many labels are wrong, from probabilities predicted without them.

    Samples are grouped by all their probabilities, not only by the likeliest class. If nearly half of all fours
    are labelled five, a four is recognised by a probability that is shared between 4 and 5. The surest samples of
    a group nearly all have one true class. Counting their given labels gives a row of the transition matrix. For
    each other sample the estimate weighs how much the given label owes to such flips, and how much to a network
    that does not know. It trusts the network as far as makes the given labels most likely.

    Parameters
    ----------
    probabilities : float array of shape (M, C)
        From networks trained without the sample: `coteach.labels.folds.out_of_sample`, or any cross-validation.
    labels : int array of shape (M,)
        As given, some of them wrong.

    Returns
    -------
    estimate : NoiseEstimate

    Notes
    -----
    The estimate cannot see noise that gives most of a class another name, or that depends on how a sample looks.
    Where true classes overlap, labels that had to be guessed count as half wrong. A network that knows little,
    such as a small one on photographs, leads to a rate that is too high: its own surest mistakes look like wrong
    labels.

    Examples
    --------
    >>> truth = np.arange(1000) % 2
    >>> noise = coteach.noise.corrupt(truth, "symmetric", 0.2)
    >>> probabilities = np.where(np.eye(2)[truth] == 1, 0.9, 0.1)  # of networks that never saw these labels
    >>> estimate = estimate_noise(probabilities, noise.labels)
    >>> abs(estimate.rate - noise.rate) < 0.01, estimate.matrix.shape
    (True, (2, 2))
    """
    p_MC = _check_probabilities(probabilities)
    n, n_classes = p_MC.shape
    labels_M = check_labels(labels, n_classes)
    check_same_length(p_MC, labels_M)
    if n_classes <= MANY_CLASSES:
        class_MK, score_MK = np.broadcast_to(np.arange(n_classes), p_MC.shape), nearness_to_groups(p_MC)
    else:
        class_MK = likeliest(p_MC)
        score_MK = nearness_of_likeliest(np.take_along_axis(p_MC, class_MK, 1), class_MK, n_classes)
    group_M = class_MK[np.arange(n), score_MK.argmax(1)]
    sure_M = surest(score_MK, group_M, labels_M)
    counts_CC = count_given(group_M[sure_M], labels_M[sure_M], n_classes)
    true_MK = (class_MK == group_M[:, None]).astype(np.float64)
    if not sure_M.all():
        true_MK[~sure_M] = weigh(score_MK[~sure_M], class_MK[~sure_M], counts_CC, labels_M[~sure_M])
    wrong_M = 1 - np.where(class_MK == labels_M[:, None], true_MK, 0).sum(1)
    rate = float(np.clip(wrong_M.mean(), 0, 1))
    where_sure = float(1 - per_row(counts_CC).diagonal()[group_M].mean())
    given_C, wrong_C = (np.bincount(labels_M, w, n_classes) for w in (None, wrong_M))
    true_CC = np.zeros((n_classes, n_classes))
    np.add.at(true_CC, (class_MK, labels_M[:, None]), true_MK)
    return NoiseEstimate(
        rate,
        interval_of(rate, [where_sure, float((group_M != labels_M).mean())], int(sure_M.sum())),
        np.clip(wrong_C / np.maximum(given_C, 1), 0, 1),
        per_row(true_CC),
        n,
    )


def nearness_to_groups(p_MC: np.ndarray, most_rounds: int = 100) -> np.ndarray:
    """Minus the cross-entropy of each sample's probabilities to the mean ones of each class's group (MC).

    K-means with the divergence that belongs to probabilities, begun at the first choices, so that each group
    has a class to its name.
    """
    p_MC = np.clip(p_MC, SMALLEST, 1)
    mean_CC, score_MC = np.eye(p_MC.shape[1]), p_MC
    group_M = None
    for _ in range(most_rounds):
        nearest_M = score_MC.argmax(1)
        if group_M is not None and (nearest_M == group_M).all():
            break
        group_M = nearest_M
        for c in np.unique(group_M):  # a group that has lost all its samples stays where it was
            mean_CC[c] = p_MC[group_M == c].mean(0)
        score_MC = p_MC @ np.log(np.clip(mean_CC, SMALLEST, 1)).T
    return score_MC


def likeliest(p_MC: np.ndarray) -> np.ndarray:
    """The classes (MK) that a sample can be of, in the eyes of the network: the others share next to nothing."""
    chunks = np.array_split(p_MC, -(-len(p_MC) // SAMPLES_AT_ONCE))
    return np.concatenate([np.argpartition(p_BC, -LIKELIEST, axis=1)[:, -LIKELIEST:] for p_BC in chunks])


def nearness_of_likeliest(
    p_MK: np.ndarray, class_MK: np.ndarray, n_classes: int, most_rounds: int = 100
) -> np.ndarray:
    """As `nearness_to_groups`, to the groups of each sample's likeliest classes and by their probabilities (MK).

    The logarithms are those of mean probabilities over the smallest one, so that all others are 0.
    """
    n, k = p_MK.shape
    log_CC = np.zeros((n_classes, n_classes), dtype=np.float32)
    np.fill_diagonal(log_CC, -np.log(SMALLEST))
    score_MK, group_M = p_MK, np.full(n, -1)
    for _ in range(most_rounds):
        nearest_M = class_MK[np.arange(n), score_MK.argmax(1)]
        if (nearest_M == group_M).all():
            break
        group_M = nearest_M
        size_C = np.bincount(group_M, minlength=n_classes)
        log_CC[size_C > 0] = 0  # a group that has lost all its samples stays where it was
        np.add.at(log_CC, (group_M[:, None], class_MK), p_MK / size_C[group_M][:, None])
        where = group_M[:, None], class_MK
        log_CC[where] = np.log(np.maximum(log_CC[where], SMALLEST) / SMALLEST)
        score_MK = np.empty((n, k))
        for begin in range(0, n, SAMPLES_AT_ONCE):
            some = slice(begin, begin + SAMPLES_AT_ONCE)
            log_BKK = log_CC[class_MK[some, :, None], class_MK[some, None, :]]
            score_MK[some] = np.einsum("bkj,bj->bk", log_BKK, p_MK[some])
    return score_MK


def surest(score_MC: np.ndarray, group_M: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """Marks those of each group that are farthest from the second nearest group (M): half of it, or less.

    They are found without the sample's own label, so among them the share of wrong labels is that of the whole
    class. If it is larger among the less sure of them, by more than chance, some there are of other classes, as
    with a network that knows little: then only the surer half is taken, and so on while enough are left to count.
    """
    place_M = places(score_MC, group_M)
    differs_M, share = group_M != labels_M, 0.5
    while (inner_M := place_M <= share / 2).sum() >= LEAST_COUNTED * len(np.unique(group_M)):
        outer_M = (place_M <= share) & ~inner_M
        if not outer_M.any() or excess(differs_M[outer_M], differs_M[inner_M]) <= SURELY:
            break
        share /= 2
    return place_M <= share


def places(score_MC: np.ndarray, group_M: np.ndarray) -> np.ndarray:
    """Where each sample stands in its group, from 0 (surest) to 1 (M); the equally sure stand together."""
    second_M, first_M = np.partition(score_MC, -2, axis=1)[:, -2:].T
    doubt_M = second_M - first_M
    place_M = np.empty(len(score_MC))
    for c in np.unique(group_M):
        mine_M = group_M == c
        surer = np.searchsorted(np.sort(doubt_M[mine_M]), doubt_M[mine_M])
        place_M[mine_M] = (surer + 0.5) / mine_M.sum()
    return place_M


def excess(one: np.ndarray, other: np.ndarray) -> float:
    """By how many standard errors the share of true ones in one set exceeds that in another."""
    both = np.concatenate([one, other]).mean()
    error = np.sqrt(both * (1 - both) * (1 / len(one) + 1 / len(other)))
    return float((one.mean() - other.mean()) / error) if error else 0.0


def count_given(group_M: np.ndarray, labels_M: np.ndarray, n_classes: int) -> np.ndarray:
    """How many samples of each group are given as each class (CC)."""
    counts_CC = np.zeros((n_classes, n_classes))
    np.add.at(counts_CC, (group_M, labels_M), 1)
    return counts_CC


def weigh(score_MC: np.ndarray, class_MC: np.ndarray, counts_CC: np.ndarray, labels_M: np.ndarray) -> np.ndarray:
    """Probability of each true class once the given label is known (MC)."""
    matrix_CC = per_row(counts_CC + 1 / len(counts_CC))  # one more label a row, spread evenly: a few prove no zero
    flip_MC = matrix_CC[class_MC, labels_M[:, None]]
    most_likely, true_MC = -np.inf, score_MC
    for sharpness in SHARPNESS:
        joint_MC = softmax(sharpness * score_MC) * flip_MC
        evidence_M = joint_MC.sum(1)
        likelihood = np.log(evidence_M).mean()
        if likelihood > most_likely + ROUND_OFF:
            most_likely, true_MC = likelihood, joint_MC / evidence_M[:, None]
    return true_MC


def interval_of(rate: float, readings: Sequence[float], n: int) -> tuple[float, float]:
    """Chance in who was mislabelled, and that nobody knows where between its other readings the rate lies.

    One may count where the network is sure only, one takes every mistake of the network for a wrong label. More
    samples do not bring them together, a better network does. A uniform distribution has a variance of width²/12.
    """
    width = max(rate, *readings) - min(rate, *readings)
    reach = Z_95 * float(np.sqrt(max(rate * (1 - rate), 1 / n) / n + width**2 / 12))
    return max(rate - reach, 0.0), min(rate + reach, 1.0)


def per_row(counts_CC: np.ndarray) -> np.ndarray:
    total_C1 = counts_CC.sum(1, keepdims=True)
    return np.where(total_C1 > 0, counts_CC / np.where(total_C1 > 0, total_C1, 1), np.eye(len(counts_CC)))


def _check_probabilities(probabilities: Any) -> np.ndarray:
    p_MC = np.asarray(probabilities, dtype=np.float64)
    if p_MC.ndim != 2 or p_MC.shape[1] < 2:
        raise ValueError(f"probabilities are of shape {p_MC.shape}: give (M, C), a row a sample, with C ≥ 2.")
    if not np.isfinite(p_MC).all() or (p_MC < 0).any() or (np.abs(p_MC.sum(1) - 1) > 1e-3).any():
        raise ValueError("probabilities must be ≥ 0 and sum to 1 in each row: apply softmax to logits first.")
    return p_MC


# ---- where labels are wrong because the samples are hard ------------------------------------------------------


def estimate_of_hard_samples(probabilities: Any, labels: Any) -> NoiseEstimate:
    """Estimate how many labels are wrong if people gave them: people err on hard samples, not on all alike.

    `estimate_noise` counts where networks are sure. Those samples are easy, so it finds too few errors. Here a
    sample belongs to a class if its probability reaches the average of the samples with that label; with fewer
    than five of these, at least the average of all samples. If it belongs to several, the likeliest counts (the
    confident joint of Northcutt et al., 2021). The interval reaches from what `estimate_noise` finds to every
    disagreement between networks and labels.

    Parameters
    ----------
    probabilities : float array of shape (M, C)
        From networks trained without the sample, as for `estimate_noise`.
    labels : int array of shape (M,)
        As given, some of them wrong.

    Returns
    -------
    estimate : NoiseEstimate

    Examples
    --------
    >>> truth, hard = np.arange(1000) % 2, np.arange(1000) < 200
    >>> labels = np.where(hard & (np.arange(1000) % 3 > 0), 1 - truth, truth)  # two thirds of the hard are wrong
    >>> sure = np.where(hard, 0.88, 0.99)
    >>> probabilities = np.where(np.eye(2)[truth] == 1, sure[:, None], 1 - sure[:, None])
    >>> [round(f(probabilities, labels).rate, 2) for f in (estimate_noise, estimate_of_hard_samples)]
    [0.0, 0.13]
    """
    by_class = estimate_noise(probabilities, labels)
    p_MC = _check_probabilities(probabilities)
    n, n_classes = p_MC.shape
    labels_M = check_labels(labels, n_classes)
    given_C = np.bincount(labels_M, minlength=n_classes)
    usual_C = np.array([p_MC[labels_M == c, c].mean() if given_C[c] else np.inf for c in range(n_classes)])
    enough_MC = p_MC >= raised_where_few(usual_C, p_MC, labels_M)
    counted_M = enough_MC.any(1)
    class_M = np.where(enough_MC, p_MC, -1).argmax(1)
    joint_CC = count_given(class_M[counted_M], labels_M[counted_M], n_classes)  # true class, given label
    joint_CC = joint_CC / np.maximum(joint_CC.sum(0), 1) * given_C  # as many of each label as were given
    wrong_C = 1 - np.divide(joint_CC.diagonal(), given_C, out=np.ones(n_classes), where=given_C > 0)
    rate = float(np.clip(1 - joint_CC.diagonal().sum() / n, 0, 1))
    disagreement = float((p_MC.argmax(1) != labels_M).mean())
    interval = min(rate, by_class.rate), max(rate, by_class.rate, disagreement)
    return NoiseEstimate(rate, interval, np.clip(wrong_C, 0, 1), per_row(joint_CC), n)


# ---- beside clean labels of other samples ---------------------------------------------------------------------


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
    if n_classes > MOST_BESIDE_CLEAN:
        raise ValueError(
            f"there are {n_classes:,} classes, too many to compare with clean labels: give noise_rate, or leave "
            "validation_is_clean out."
        )
    true_V, p_VC = np.tile(clean_V, len(p_FVC)), np.concatenate(p_FVC)

    def likelihoods(score_VC: np.ndarray) -> np.ndarray:
        return np.array([np.log(of_class(softmax(s * score_VC), true_V)).sum() / len(p_FVC) for s in SHARPNESS])

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
    rates = [1 - of_class(true_class_posterior(softmax(s * score_MC), labels_M), labels_M).mean() for s in likely]
    true_MC = true_class_posterior(softmax(SHARPNESS[likelihood_S.argmax()] * score_MC), labels_M)
    wrong_M = 1 - of_class(true_MC, labels_M)
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


def true_class_posterior(prior_MC: np.ndarray, labels_M: np.ndarray, most_rounds: int = 200) -> np.ndarray:
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


def of_class(p_MC: np.ndarray, classes_M: np.ndarray) -> np.ndarray:
    """The number of each row that belongs to its class, never quite 0."""
    return np.maximum(p_MC[np.arange(len(p_MC)), classes_M], SMALLEST**2)
