"""Why a label is doubted, in words: what the model says, since when, and what the nearest trusted samples are.

N networks, M samples, S suspects, C classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from coteach.audit.samples import LabelledSamples, shown
from coteach.labels.ledger import Suspects
from coteach.labels.neighbours import Neighbours, nearest_samples
from coteach.selective import SelectiveTrainingClassifier

MOST_COMPARED = 50_000  # samples whose neighbours are looked for, for reasons alone
SAY = ("the network says", "both networks say", "the networks say")


def reasons_of(
    classifier: Any, samples: LabelledSamples, suspects: Suspects, given_NS: np.ndarray, suggested_NS: np.ndarray
) -> list[str]:
    """A sentence for each suspect (S)."""
    if not len(suspects):
        return []
    if isinstance(classifier, SelectiveTrainingClassifier):
        opinions = [opinion_in_rounds(classifier, i, s, suspects) for s, i in enumerate(suspects.index)]
        votes_MC = classifier.neighbour_votes_
    else:
        opinions = [
            opinion_of_networks(given_N, suggested_N, suspects, s)
            for s, (given_N, suggested_N) in enumerate(zip(given_NS.T, suggested_NS.T, strict=True))
        ]
        votes_MC = votes_of_trusted(samples, suspects, classifier.classes_)
    if votes_MC is None:
        return opinions
    suggested_S = np.searchsorted(classifier.classes_, suspects.suggested)
    given_S = np.searchsorted(classifier.classes_, suspects.given)
    return [
        f"{opinion}; {words_of_votes(votes_MC[i], given, suggested, suspects, s)}"
        for s, (opinion, i, given, suggested) in enumerate(
            zip(opinions, suspects.index, given_S, suggested_S, strict=True)
        )
    ]


def opinion_in_rounds(classifier: SelectiveTrainingClassifier, i: int, s: int, suspects: Suspects) -> str:
    """What the held-out model says, and since which round."""
    suggested = int(np.searchsorted(classifier.classes_, suspects.suggested[s]))
    predicted_R = classifier.predicted_[:, i]
    name = shown(str(suspects.suggested[s]))
    if predicted_R[-1] != suggested:
        return f"the model finds {name} nearly as likely without this label"
    since = len(predicted_R) - int(np.argmin(np.append(predicted_R[::-1] == suggested, False)))
    return f"the model says {name} without this label" + (
        f", since round {since}" if since else ", in every round"
    )


def opinion_of_networks(given_N: np.ndarray, suggested_N: np.ndarray, suspects: Suspects, s: int) -> str:
    """How many networks find the suggested label likelier than the given one."""
    name, n, sure = shown(str(suspects.suggested[s])), len(given_N), int((suggested_N > given_N).sum())
    if sure == n:
        return f"{SAY[min(n, 3) - 1]} {name}"
    if sure:
        return f"{sure} of {n} networks says {name}"
    return f"it was learnt late, or not for long; {name} comes next"


def words_of_votes(votes_C: np.ndarray, given: int, suggested: int, suspects: Suspects, s: int) -> str:
    names = shown(str(suspects.suggested[s])), shown(str(suspects.given[s]))
    counts = int(votes_C[suggested]), int(votes_C[given])
    return f"of {int(votes_C.sum())} trusted neighbours {counts[0]} are {names[0]}, {counts[1]} {names[1]}"


def votes_of_trusted(samples: LabelledSamples, suspects: Suspects, classes: Sequence[Any]) -> np.ndarray | None:
    """How the nearest samples that are no suspects are labelled (MC); None for images, or too many samples."""
    if samples.x.ndim != 2 or len(samples) > MOST_COMPARED or len(samples) < 2:
        return None
    trusted_M = np.ones(len(samples), dtype=bool)
    trusted_M[suspects.index] = False
    labels_M = np.searchsorted(classes, samples.y)
    if not trusted_M.any():
        return None
    x = samples.x - samples.x.mean(0)
    scale = x.std(0)
    nearest_MK = nearest_samples(x / np.where(scale > 0, scale, 1))
    return Neighbours(nearest_MK, labels_M, len(classes)).vote(trusted_M)[0]
