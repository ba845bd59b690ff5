"""To and from cleanlab, which need not be installed: its tables of issues, its scores, its probabilities.

cleanlab numbers classes from 0 to C-1; a classifier's `classes_` are their names. M samples, C classes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from coteach.checks import check_labels, check_same_length
from coteach.labels.estimate import estimate_noise
from coteach.labels.ledger import Suspects, suspects


def issues_of(classifier: Any, share: float | None = None) -> dict[str, np.ndarray]:
    """What a fitted classifier says about its training labels, as the columns of cleanlab's table.

    Parameters
    ----------
    classifier : RobustClassifier
    share : float, optional
        The share of all samples that become issues; by default the noise rate.

    Returns
    -------
    dict of arrays of shape (M,)
        See `issues_table`; a data frame is `pandas.DataFrame(issues_of(classifier))`.

    Examples
    --------
    >>> x, y = np.repeat(np.eye(2), 20, axis=0), [0] * 20 + [1] * 20
    >>> classifier = coteach.RobustClassifier(noise_rate=0.1, epochs=1).fit(x, y)
    >>> issues = issues_of(classifier)
    >>> issues["label_quality"].shape, int(issues["is_label_issue"].sum())
    ((40,), 4)
    """
    classifier.suspects(share)  # refuses what is not fitted, and a share that is none
    given, suggested = (
        np.searchsorted(classifier.classes_, labels)
        for labels in (classifier.given_labels_, classifier.suggested_labels_)
    )
    share = classifier.noise_rate_ if share is None else share
    return issues_table(given, classifier.label_quality_, suggested, share)


def issues_table(labels: Any, label_quality: Any, suggested: Any, share: float) -> dict[str, np.ndarray]:
    """The columns of `CleanLearning.find_label_issues`, with one row per sample, in the same order.

    Parameters
    ----------
    labels, suggested : int arrays of shape (M,)
        The given labels, and for each the likeliest other class; 0 to C-1.
    label_quality : float array of shape (M,)
        From 0 (wrong) to 1.
    share : float
        The share of all samples that become issues: those with the lowest quality.

    Returns
    -------
    dict of arrays of shape (M,)
        `is_label_issue` (bool), `label_quality`, `given_label` and `predicted_label`. The last is the suggested
        class for an issue, and wherever the quality is below ½: there the networks found another class likelier,
        on average. Elsewhere it is the given one.

    Examples
    --------
    >>> issues = issues_table([0, 1, 1], [0.9, 0.8, 0.1], suggested=[1, 0, 0], share=1 / 3)
    >>> issues["is_label_issue"].tolist(), issues["predicted_label"].tolist()
    ([False, False, True], [0, 1, 0])
    """
    given_M, suggested_M, quality_M = check_labels(labels), check_labels(suggested), _scores(label_quality)
    check_same_length(quality_M, given_M)
    check_same_length(quality_M, suggested_M)
    is_issue_M = np.zeros(len(given_M), dtype=bool)
    is_issue_M[suspects(given_M, quality_M, suggested_M, _share(share)).index] = True
    return {
        "is_label_issue": is_issue_M,
        "label_quality": quality_M,
        "given_label": given_M,
        "predicted_label": np.where(is_issue_M | (quality_M < 0.5), suggested_M, given_M),
    }


def suspects_from_issues(issues: Mapping[str, Any], classes: Any = None) -> Suspects:
    """The issues of a table, the worst first.

    Parameters
    ----------
    issues : mapping of columns to arrays of shape (M,), or a pandas.DataFrame
        As `CleanLearning.get_label_issues()`, or `issues_of`.
    classes : array of shape (C,), optional
        Names of the classes, such as a classifier's `classes_`.

    Returns
    -------
    suspects : Suspects

    Examples
    --------
    >>> issues = issues_table([0, 1, 1], [0.9, 0.8, 0.1], suggested=[1, 0, 0], share=1 / 3)
    >>> worst = suspects_from_issues(issues, classes=["cat", "dog"])
    >>> worst.index.tolist(), worst.given.tolist(), worst.suggested.tolist()
    ([2], ['dog'], ['cat'])
    """
    missing = {"is_label_issue", "label_quality", "given_label", "predicted_label"} - set(issues)
    if missing:
        raise ValueError(
            f"the table has no column {', '.join(sorted(missing))}: give cleanlab's with predictions."
        )
    quality_M = _scores(issues["label_quality"])
    issue_M = np.flatnonzero(np.asarray(issues["is_label_issue"], dtype=bool))
    worst = issue_M[np.argsort(quality_M[issue_M], kind="stable")]
    given, suggested = (np.asarray(issues[name])[worst] for name in ("given_label", "predicted_label"))
    return Suspects(worst, _named(given, classes), _named(suggested, classes), quality_M[worst])


def suspects_from_scores(
    labels: Any, label_quality: Any, pred_probs: Any, share: float | None = None, classes: Any = None
) -> Suspects:
    """The samples with the lowest scores of `cleanlab.rank.get_label_quality_scores`, the worst first.

    Parameters
    ----------
    labels : int array of shape (M,)
        As given, 0 to C-1.
    label_quality : float array of shape (M,)
        cleanlab's scores, or any others from 0 (wrong) to 1.
    pred_probs : float array of shape (M, C)
        Out-of-sample probabilities; the likeliest other class is suggested.
    share : float, optional
        The share of all samples to list; by default the rate that `estimate_noise(pred_probs, labels)` finds.
    classes : array of shape (C,), optional
        Names of the classes, such as a classifier's `classes_`.

    Returns
    -------
    suspects : Suspects

    Examples
    --------
    >>> probabilities = [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]
    >>> worst = suspects_from_scores([0, 1, 1], [0.9, 0.8, 0.3], probabilities, share=1 / 3)
    >>> worst.index.tolist(), worst.suggested.tolist()
    ([2], [0])
    """
    estimate = estimate_noise(pred_probs, labels)  # checks both
    share = estimate.rate if share is None else _share(share)
    other_MC = np.array(pred_probs, dtype=np.float64)
    given_M, quality_M = check_labels(labels, other_MC.shape[1]), _scores(label_quality)
    check_same_length(quality_M, given_M)
    other_MC[np.arange(len(given_M)), given_M] = -1
    return suspects(_named(given_M, classes), quality_M, _named(other_MC.argmax(1), classes), share)


def _named(labels_M: np.ndarray, classes: Any) -> np.ndarray:
    return labels_M if classes is None else np.asarray(classes)[labels_M]


def _scores(label_quality: Any) -> np.ndarray:
    quality_M = np.asarray(label_quality, dtype=np.float64)
    if quality_M.ndim != 1 or not ((quality_M >= 0) & (quality_M <= 1)).all():
        raise ValueError(
            "label_quality must hold one number from 0 to 1 for each sample: give scores such as those."
        )
    return quality_M


def _share(share: float) -> float:
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}: give a share of the samples from 0 to 1.")
    return float(share)
