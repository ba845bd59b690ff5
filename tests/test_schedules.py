"""λ(e), learning rate and β1 against the paper's formulas and the authors' arrays written out."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach import schedules
from coteach.fidelity import AUTHORS, PAPER, parse
from coteach.plan import Plan

TAUS = st.integers(0, 99).map(lambda k: Fraction(k, 100))


def paper_type_1(e: int, tau: Fraction, e_k: int) -> Fraction:
    return 1 - min(Fraction(e, e_k) * tau, tau)


def paper_type_2(e: int, tau: Fraction, e_k: int, e_max: int) -> Fraction:
    return 1 - min(Fraction(e, e_k) * tau, (1 + Fraction(e - e_k, e_max - e_k)) * tau)


def authors_forget_rate(tau: float, e_k: int, n_epoch: int) -> np.ndarray:
    """Row 5: an array over the epochs from 0; the first, epoch 0, is never trained."""
    rates = np.full(n_epoch, tau)
    rates[:e_k] = np.linspace(0, tau, e_k)
    return rates


# ---- λ --------------------------------------------------------------------------------------------------------


@given(e=st.integers(1, 200), tau=TAUS, e_k=st.integers(1, 50))
def test_keep_rate_of_type_1_is_the_papers(e, tau, e_k):
    found = schedules.keep_rate(e, float(tau), e_k)
    assert found == pytest.approx(float(paper_type_1(e, tau, e_k)), abs=1e-14)


@given(e=st.integers(1, 200), tau=TAUS, e_k=st.integers(1, 50), beyond=st.integers(0, 100))
def test_keep_rate_of_type_2_is_the_papers(e, tau, e_k, beyond):
    """While E_max ≥ 2·E_k. With less the formula's minimum changes sides and contradicts the paper's text,
    which has λ fall quickly over the first E_k epochs; the text is followed. Below zero nothing can be kept,
    and after E_max λ stays."""
    e_max = 2 * e_k + beyond
    found = schedules.keep_rate(e, float(tau), e_k, e_max)
    assert found == pytest.approx(max(float(paper_type_2(min(e, e_max), tau, e_k, e_max)), 0), abs=1e-14)


@pytest.mark.parametrize("e_k, e_max", [(10, 11), (10, 15), (5, 9)])
def test_keep_rate_of_type_2_follows_the_text_when_the_horizon_is_near(e_k, e_max):
    rates = [schedules.keep_rate(e, 0.3, e_k, e_max) for e in range(1, e_max + 1)]
    assert rates[:e_k] == [schedules.keep_rate(e, 0.3, e_k) for e in range(1, e_k + 1)]
    steps = np.diff([0.7, *rates[e_k:]])
    np.testing.assert_allclose(steps, -0.3 / (e_max - e_k), rtol=1e-9)
    assert rates[-1] == pytest.approx(0.4)


@pytest.mark.parametrize("tau", [0.0, 0.2, 0.45, 0.5])
@pytest.mark.parametrize("e_k", [1, 2, 10, 30])
def test_keep_rate_of_type_1_is_the_authors_array(tau, e_k):
    """To the last bit: λ·n is rounded down, and a last bit can cost a sample."""
    forget = authors_forget_rate(tau, e_k, 200)
    found = [schedules.keep_rate(e, tau, e_k, ramp_from_zero=True) for e in range(1, 200)]
    assert found == [1 - rate for rate in forget[1:]]


@pytest.mark.parametrize("tau", [0.2, 0.4, 0.45])
def test_keep_rate_of_type_2_is_the_authors_comment(tau):
    """Row 17: linspace(τ, 2τ) over what the ramp leaves of the array."""
    forget = authors_forget_rate(tau, 10, 200)
    forget[10:] = np.linspace(tau, 2 * tau, 190)
    found = [schedules.keep_rate(e, tau, 10, 200, ramp_from_zero=True, linear_type2=True) for e in range(1, 200)]
    np.testing.assert_allclose(found, 1 - forget[1:], atol=1e-14)


def test_the_open_sets_end_where_the_facts_say():
    plan = Plan(epochs=100, ramp=10, keep_type=2, horizon=200)
    assert plan.keep_rate(100, 0.4) == pytest.approx(1 - 0.4 * (1 + 90 / 190))
    assert plan.keep_rate(100, 0.4) == pytest.approx(1 - 1.47 * 0.4, abs=0.002)


@given(e=st.integers(1, 300), tau=TAUS, e_k=st.integers(1, 60), horizon=st.none() | st.integers(1, 300))
def test_keep_rate_is_a_share_that_never_rises(e, tau, e_k, horizon):
    for flags in ({}, {"ramp_from_zero": True}, {"ramp_from_zero": True, "linear_type2": True}):
        now = schedules.keep_rate(e, float(tau), e_k, horizon, **flags)
        later = schedules.keep_rate(e + 1, float(tau), e_k, horizon, **flags)
        assert 0 <= later <= now <= 1


# ---- learning rate and β1 -------------------------------------------------------------------------------------


def test_learning_rate_is_the_papers():
    """0.001, "linearly decayed to zero from 80 to 200 epochs"."""
    plan = Plan(epochs=200, lr=0.001, decay_start=80)
    found = [plan.learning_rate(e) for e in range(1, 201)]
    expected = [0.001] * 80 + list(np.linspace(0.001, 0, 121)[1:])
    np.testing.assert_allclose(found, expected, atol=1e-17)
    assert found[-1] == 0


def test_learning_rate_and_beta1_are_the_authors_arrays():
    """Rows 6 to 8: arrays of 200 from epoch 0, of which 1 to 199 are trained."""
    rates, momenta = np.full(200, 0.001), np.full(200, 0.9)
    for i in range(80, 200):
        rates[i] = (200 - i) / (200 - 80) * 0.001
        momenta[i] = 0.1
    plan = Plan(epochs=199, lr=0.001, decay_start=80, fidelity=AUTHORS)
    np.testing.assert_allclose([plan.learning_rate(e) for e in range(1, 200)], rates[1:], rtol=1e-14)
    assert [plan.beta1(e) for e in range(1, 200)] == list(momenta[1:])
    assert plan.learning_rate(199) == pytest.approx(0.001 / 120)


def test_beta1_is_the_papers():
    assert {Plan(fidelity=PAPER).beta1(e) for e in range(1, 201)} == {0.9}


def test_step_decay_is_the_papers():
    """Open-sets: 0.01, "divided by 10 after 40 and 80 epochs (100 in total)"."""
    plan = Plan(epochs=100, lr=0.01, milestones=(40, 80))
    found = [plan.learning_rate(e) for e in range(1, 101)]
    np.testing.assert_allclose(found, [0.01] * 40 + [0.001] * 40 + [0.0001] * 20)


@given(start=st.integers(1, 300), epochs=st.integers(1, 300), above=st.booleans())
def test_learning_rate_never_rises_nor_falls_below_zero(start, epochs, above):
    rates = [schedules.linear_decay(e, 1.0, start, epochs, lr_above_zero=above) for e in range(1, epochs + 1)]
    assert all(0 <= later <= now <= 1 for now, later in zip(rates, rates[1:], strict=False))
    assert not above or rates[-1] > 0


# ---- a switch turns its schedule and no other -----------------------------------------------------------------


@pytest.mark.parametrize(
    "switch, changed",
    [
        ("ramp_from_zero", "keep"),
        ("linear_type2", "keep 2"),
        ("lr_above_zero", "lr"),
        ("beta1_drop", "beta1"),
    ],
)
def test_a_switch_turns_its_own_schedule_alone(switch, changed):
    def everything(plan: Plan) -> dict[str, list[float]]:
        type_2 = replace(plan, keep_type=2, horizon=40)
        return {
            "keep": [plan.keep_rate(e, 0.3) for e in plan.all_epochs],
            "keep 2": [type_2.keep_rate(e, 0.3) for e in plan.all_epochs if e >= plan.ramp],
            "lr": [plan.learning_rate(e) for e in plan.all_epochs],
            "beta1": [plan.beta1(e) for e in plan.all_epochs],
        }

    plan = Plan(epochs=30, decay_start=15)
    off, on = everything(plan), everything(replace(plan, fidelity=parse(f"paper+{switch}")))
    assert [name for name in off if off[name] != on[name]] == [changed]
