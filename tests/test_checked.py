"""The share of wrong labels from a sample that a person looked at: its design, its interval, and what follows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom

from coteach.labels import checked as module
from coteach.labels.checked import (
    Checked,
    chances_by_rank,
    checked_interval,
    draw_to_check,
    last_at_least,
    likeliest_shares,
)


def checked(*strata: tuple[int, int, int]) -> Checked:
    return Checked(*(np.array(column) for column in zip(*strata, strict=True)))


@given(st.integers(10, 3000), st.integers(1, 200), st.floats(0, 0.9), st.integers(0, 5))
@settings(max_examples=60)
def test_a_sample_is_drawn_from_every_stratum_and_none_twice(total, n, rate, seed):
    quality = np.random.default_rng(seed).random(total)
    drawn = draw_to_check(quality, n, rate, seed)
    assert len(drawn.index) == len(set(drawn.index.tolist())) == min(n, total)
    assert drawn.size_H.sum() == total
    counts = np.bincount(drawn.stratum, minlength=len(drawn.size_H))
    assert (counts >= 1).all()
    assert (counts <= drawn.size_H).all()
    rank = np.argsort(np.argsort(quality))
    ends = np.cumsum(drawn.size_H)
    assert (np.searchsorted(ends, rank[drawn.index], side="right") == drawn.stratum).all()


def test_the_middle_of_what_is_believed_gets_more():
    drawn = draw_to_check(np.arange(1000.0), 50, 0.2)
    assert drawn.size_H[-1] > 2 * drawn.size_H[0]


def test_every_sample_of_a_stratum_is_as_likely():
    """So the mean of the strata's shares, weighted by their sizes, is unbiased whatever the quality is worth."""
    quality, wrong = np.random.default_rng(1).random(60), np.random.default_rng(2).random(60) < 0.4
    shares = []
    for seed in range(400):
        drawn = draw_to_check(quality, 18, 0.2, seed)
        shares.append(found_in(drawn, wrong).share)
    assert abs(np.mean(shares) - wrong.mean()) < 4 * np.std(shares) / 20


def found_in(drawn, wrong_M: np.ndarray) -> Checked:
    strata = len(drawn.size_H)
    seen = np.bincount(drawn.stratum, minlength=strata)
    return Checked(drawn.size_H, seen, np.bincount(drawn.stratum, wrong_M[drawn.index], strata).astype(int))


@pytest.mark.parametrize("share", [0.02, 0.2, 0.55, 0.9])
def test_the_likeliest_shares_are_those_of_a_general_optimiser(share):
    found = checked((100, 6, 5), (200, 7, 3), (300, 8, 0), (400, 9, 1))
    weight = found.size_H / found.size_H.sum()
    ours = likeliest_shares(found, share)
    assert ours @ weight == pytest.approx(share, abs=1e-6)

    def surprise(p):
        return -binom.logpmf(found.wrong_H, found.seen_H, p).sum()

    best = minimize(
        surprise, np.full(4, share), bounds=[(1e-9, 1 - 1e-9)] * 4,
        constraints={"type": "eq", "fun": lambda p: p @ weight - share}, method="SLSQP",
    )  # fmt: skip
    assert surprise(np.clip(ours, 1e-9, 1 - 1e-9)) <= best.fun + 1e-4


def test_one_stratum_is_the_binomial_interval():
    """For 3 in 40: where three or fewer, or three or more, have a chance of 5 %, three itself counting half."""
    low, high = checked_interval(checked((10**6, 40, 3)))
    assert binom.sf(3, 40, low) + binom.pmf(3, 40, low) / 2 == pytest.approx(0.05, abs=0.01)
    assert binom.cdf(2, 40, high) + binom.pmf(3, 40, high) / 2 == pytest.approx(0.05, abs=0.01)


def test_what_was_looked_at_in_full_is_known():
    assert checked_interval(checked((20, 20, 15), (30, 30, 3))) == pytest.approx((0.36, 0.36))


def test_nothing_or_everything_wrong_has_one_end():
    assert checked_interval(checked((100, 10, 0), (900, 20, 0)))[0] == 0
    assert checked_interval(checked((100, 10, 10), (900, 20, 20)))[1] == 1


@pytest.mark.slow
@pytest.mark.parametrize("rate, apart", [(0.03, 3.0), (0.175, 2.3), (0.175, 0.0), (0.42, 2.0)])
def test_the_interval_holds_in_nearly_nine_of_ten_reviews_even_if_quality_is_worth_nothing(
    rate, apart, monkeypatch
):
    """At least 0.88, less three standard errors of 80 reviews."""
    monkeypatch.setattr(module, "DRAWS", 500)
    rng = np.random.default_rng(3)
    wrong = rng.random(2000) < rate
    quality = rng.normal(size=2000) - apart * wrong
    held = []
    for seed in range(80):
        low, high = checked_interval(found_in(draw_to_check(quality, 50, 0.2, seed), wrong))
        held.append(low <= wrong.mean() <= high)
    assert np.mean(held) >= 0.88 - 3 * np.sqrt(0.88 * 0.12 / 80)


def test_chances_fall_with_quality_and_add_up():
    found = checked((100, 6, 6), (100, 6, 2), (100, 6, 3), (700, 9, 0))
    chance = chances_by_rank(found)
    assert (np.diff(chance) <= 1e-12).all()
    assert chance.sum() == pytest.approx(found.share * 1000)
    assert (last_at_least(chance, 0.5), last_at_least(chance, 0.1)) == (100, 300)
