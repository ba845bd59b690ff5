"""How many labels are wrong, from a sample that a person looked at: statistics, and nothing that a network thinks.

Samples are put into strata by the rank of their quality, and from each stratum some are drawn at random. Where the
strata lie only makes the interval narrow or wide: it holds whatever the quality is worth. M samples, H strata.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LEVEL = 0.9  # of all intervals
PER_STRATUM = 6  # samples to look at in each, about
FEWEST_STRATA, MOST_STRATA = 1, 20
STEPS = 1000  # of the rank, to lay out strata by
LEAST_INTEREST = 0.3  # of a rank, compared with the one where right and wrong are mixed most
DRAWS = 4000  # of what might have been found
HALVINGS = 14  # of the way from the estimate to an end: finer than 4,000 draws can tell
STEEPEST = 1e9  # multiplier, at which a share is as good as 0 or 1


# ---- which samples to look at -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drawn:
    """Numbers of samples to look at, in random order, the stratum of each, and the sizes of the strata (H)."""

    index: np.ndarray
    stratum: np.ndarray
    size_H: np.ndarray


def draw_to_check(quality_M: np.ndarray, n: int, rate: float, seed: int = 0) -> Drawn:
    """Samples over all qualities: more where right and wrong labels are probably mixed, none left out.

    Parameters
    ----------
    rate : float
        A guess of the share of wrong labels. A bad one costs width, not correctness.
    """
    rng = np.random.default_rng(seed)
    order_M = np.argsort(quality_M, kind="stable")
    n = min(n, len(order_M))
    edges = stratum_edges(len(order_M), n, rate)
    sizes = np.diff(edges)
    counts = spread_over(n, sizes)
    index, stratum = [], []
    for h, (begin, end) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        index.append(rng.choice(order_M[begin:end], counts[h], replace=False))
        stratum.append(np.full(counts[h], h))
    shuffled = rng.permutation(n)  # so that those who stop early have looked at a random part
    return Drawn(np.concatenate(index)[shuffled], np.concatenate(stratum)[shuffled], sizes)


def stratum_edges(total: int, n: int, rate: float) -> np.ndarray:
    """Ranks (H + 1) between which equally many are drawn."""
    strata = int(np.clip(n // PER_STRATUM, FEWEST_STRATA, MOST_STRATA))
    rank = (np.arange(STEPS) + 0.5) / STEPS
    guesses = np.clip([rate / 2, rate, 2 * rate], 0.02, 0.7)
    interest = np.mean([spread_of_guess(rank, guess) for guess in guesses], axis=0)
    interest = np.maximum(interest, LEAST_INTEREST * interest.max())
    reached = np.cumsum(interest) / interest.sum()
    inner = np.searchsorted(reached, np.arange(1, strata) / strata) / STEPS
    return np.unique(np.round(np.array([0, *inner, 1]) * total).astype(int))


def spread_of_guess(rank: np.ndarray, rate: float) -> np.ndarray:
    """Standard deviation of right or wrong at a rank, if the labels below this rate are mostly wrong."""
    wrong = 1 / (1 + np.exp((rank - rate) / (0.5 * max(rate, 0.1))))
    return np.sqrt(wrong * (1 - wrong))


def spread_over(n: int, sizes: np.ndarray) -> np.ndarray:
    """n samples over strata as evenly as their sizes allow."""
    counts = np.zeros(len(sizes), int)
    while (left := n - counts.sum()) > 0:
        room = np.flatnonzero(counts < sizes)
        share = max(1, left // len(room))
        for h in room[:left]:
            counts[h] += min(share, sizes[h] - counts[h])
    return counts


# ---- what follows from what was found ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Checked:
    """Strata, the lowest quality first (H): samples, how many were looked at, how many of these are wrong."""

    size_H: np.ndarray
    seen_H: np.ndarray
    wrong_H: np.ndarray

    @property
    def share(self) -> float:
        """The estimated share of wrong labels, unbiased."""
        return float(self.size_H @ (self.wrong_H / self.seen_H) / self.size_H.sum())

    def first(self, strata: int) -> "Checked":
        return Checked(self.size_H[:strata], self.seen_H[:strata], self.wrong_H[:strata])


def checked_interval(found: Checked, level: float = LEVEL) -> tuple[float, float]:
    """Shares of wrong labels that do not make what was found, or more extreme, improbable.

    For each share the strata are as their own findings have it most likely, and the sample is drawn many times.
    """
    if (found.seen_H == found.size_H).all():
        return found.share, found.share
    inside = 1 - (1 - level) / 2
    none, all_ = not found.wrong_H.any(), bool((found.wrong_H == found.seen_H).all())
    low = 0.0 if none else boundary(found, 0.0, lambda share: chance_of_less(found, share) > inside)
    high = 1.0 if all_ else boundary(found, 1.0, lambda share: chance_of_less(found, share) < 1 - inside)
    return low, high


def boundary(found: Checked, outer: float, is_outside: Callable[[float], bool]) -> float:
    """Between the estimate, which is inside, and an end, the share at which it changes."""
    inner = found.share
    for _ in range(HALVINGS):
        middle = (inner + outer) / 2
        inner, outer = (inner, middle) if is_outside(middle) else (middle, outer)
    return (inner + outer) / 2


def chance_of_less(found: Checked, share: float) -> float:
    """The chance of a smaller estimate than the one found, if this is the true share; the same one counts half."""
    rng = np.random.default_rng(0)  # the same draws for each share, so that they can be compared
    p_H = likeliest_shares(found, share)
    wrong_DH = np.floor(p_H * found.size_H + rng.random((DRAWS, len(p_H)))).astype(int)
    wrong_DH = np.minimum(wrong_DH, found.size_H)
    drawn_DH = rng.hypergeometric(wrong_DH, found.size_H - wrong_DH, found.seen_H)
    weight_H = found.size_H / found.size_H.sum()
    spread_DH = p_H + (drawn_DH / found.seen_H - p_H) * spread_of_few(found)
    difference_D = spread_DH @ weight_H - found.share
    same_D = np.abs((drawn_DH / found.seen_H) @ weight_H - found.share) < 1e-9
    return float((difference_D[~same_D] < 0).sum() + same_D.sum() / 2) / DRAWS


def spread_of_few(found: Checked) -> np.ndarray:
    """By how much the share of a stratum spreads more than its own findings say (H): the root of n / (n − 1).

    Where all but one are right, or wrong, the skewed draws already reach far enough.
    """
    mixed_H = (found.wrong_H >= 2) & (found.seen_H - found.wrong_H >= 2)
    return np.where(mixed_H, np.sqrt(found.seen_H / np.maximum(found.seen_H - 1, 1)), 1)


def likeliest_shares(found: Checked, share: float) -> np.ndarray:
    """Shares of wrong labels of the strata (H) that make the findings likeliest, if together they are this share.

    By Lagrange's multiplier: of each stratum the root of a quadratic equation, which falls with the multiplier.
    """
    weight_H = found.size_H / found.size_H.sum()
    low, high = -STEEPEST, STEEPEST
    p_H = np.zeros(len(weight_H))
    for _ in range(70):  # halvings, which leave 1e-11 of the multiplier open
        middle = (low + high) / 2
        p_H = shares_at(middle * weight_H, found.wrong_H, found.seen_H)
        low, high = (middle, high) if p_H @ weight_H > share else (low, middle)
    return p_H


def shares_at(slope_H: np.ndarray, wrong_H: np.ndarray, seen_H: np.ndarray) -> np.ndarray:
    """Where wrong / p − (seen − wrong) / (1 − p) is the slope."""
    both_H = seen_H + slope_H
    root_H = np.sqrt(np.maximum(both_H**2 - 4 * slope_H * wrong_H, 0))
    upper = both_H >= 0
    denominator_H = np.where(upper, both_H + root_H, 1)
    slope_H = np.where(upper, 1, slope_H)
    p_H = np.where(upper, 2 * wrong_H / denominator_H, (both_H - root_H) / (2 * slope_H))
    return np.clip(p_H, 0, 1)


# ---- how many to review, and when to stop -----------------------------------------------------------------------


def chances_by_rank(found: Checked) -> np.ndarray:
    """Chance of being wrong by rank (M); strata whose shares rise with quality are taken together."""
    from sklearn.isotonic import isotonic_regression

    shares_H = isotonic_regression(found.wrong_H / found.seen_H, sample_weight=found.size_H, increasing=False)
    return np.repeat(shares_H, found.size_H)


def last_at_least(chance_M: np.ndarray, chance: float) -> int:
    """How many of the first have at least this chance of being wrong."""
    return int((chance_M >= chance).sum())
