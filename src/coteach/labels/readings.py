"""How many labels are wrong, by a model's held-out opinion and that of neighbours, and how far that can be known.

Wrong labels that follow the features are learnt like right ones, and classes that the features confuse look like
wrong labels. So the data alone give several readings, and the interval reaches over all of them.
M samples, C classes.
"""

from dataclasses import replace

import numpy as np

from coteach.labels.estimate import Z_95, NoiseEstimate, estimate_noise, estimate_of_hard_samples

MOST_FOLLOWS = 0.25  # share of the errors that may be taken for such as follow the features
WIDE = 0.3  # width of an interval, from which on it says little


def estimate_by_two(p_MC: np.ndarray, vote_MC: np.ndarray | None, labels_M: np.ndarray) -> NoiseEstimate:
    """The confident joint of both opinions together, with an interval over all readings.

    Lowest: what both doubt for the same class, less as many as they doubt beyond that, which they may have
    confused. Highest: every disagreement is a wrong label; and there are more of them, if fewer are found where
    opinions are sure, since people and rules err where samples are hard. Opinions that differ widen the interval.

    Parameters
    ----------
    p_MC : float array of shape (M, C)
        Of a model that has not learnt the sample.
    vote_MC : float array of shape (M, C), optional
        Of its neighbours.
    labels_M : int array of shape (M,)
        As given.

    Returns
    -------
    estimate : NoiseEstimate
    """
    vote_MC = p_MC if vote_MC is None else vote_MC
    both_MC = (p_MC + vote_MC) / 2
    counted, where_sure = (f(both_MC, labels_M) for f in (estimate_of_hard_samples, estimate_noise))
    model_M, neighbours_M, both_M = (p.argmax(1) for p in (p_MC, vote_MC, both_MC))
    doubted = float((both_M != labels_M).mean())
    by_one = sorted(float((opinion_M != labels_M).mean()) for opinion_M in (model_M, neighbours_M))
    alike = float(((model_M == neighbours_M) & (model_M != labels_M)).mean())
    lowest = 2 * min(counted.rate, where_sure.rate, alike) - doubted
    follows = np.clip(1 - where_sure.rate / counted.rate, 0, MOST_FOLLOWS) if counted.rate else 0.0
    highest = by_one[1] * (1 + 2 * follows) + by_one[1] - by_one[0]
    low, high = max(0.0, lowest - chance(lowest, len(labels_M))), highest + chance(highest, len(labels_M))
    return replace(counted, interval=(min(low, counted.rate), min(1.0, max(high, counted.rate))))


def chance(rate: float, n: int) -> float:
    """What chance may add to a rate in n samples, with a confidence of 95 %."""
    rate = min(max(rate, 0.0), 1.0)
    return float(Z_95 * np.sqrt(max(rate * (1 - rate), 1 / n) / n))


def is_wide(estimate: NoiseEstimate) -> bool:
    low, high = estimate.interval
    return high - low > WIDE
