"""Two Gaussians over losses: against scikit-learn, and what they must not depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from coteach import mixture
from coteach.mixture import clean_probability, from_zero_to_one, two_clusters
from plain_guesses import clean_probabilities


def losses(seed: int, n: int = 400) -> np.ndarray:
    """Small ones of right labels and large ones of wrong ones, in shares and widths of their own."""
    random = np.random.default_rng(seed)
    right = random.exponential(random.uniform(0.05, 0.5), n)
    wrong = random.normal(random.uniform(1, 5), random.uniform(0.2, 0.8), n).clip(0)
    return np.where(random.random(n) < random.uniform(0.2, 0.8), right, wrong)


def by_scikit_learn(loss: np.ndarray, **options) -> np.ndarray:
    x = ((loss - loss.min()) / (loss.max() - loss.min()))[:, None]
    # from the same two clusters: its own come by lot
    known = torch.ones(len(loss), dtype=torch.bool)
    lower = two_clusters(from_zero_to_one(torch.from_numpy(loss), known), known)[0].numpy()
    spread = [x[lower].var() + 5e-4, x[~lower].var() + 5e-4]
    fit = GaussianMixture(
        2, reg_covar=5e-4, weights_init=[lower.mean(), 1 - lower.mean()],
        means_init=[x[lower].mean(0), x[~lower].mean(0)], precisions_init=np.reshape(spread, (2, 1, 1)) ** -1.0,
        **options,
    ).fit(x)  # fmt: skip
    return fit.predict_proba(x)[:, fit.means_[:, 0].argmin()]


@pytest.mark.parametrize("seed", range(6))
def test_it_is_scikit_learns_mixture_as_the_authors_call_it(seed):
    loss = losses(seed)
    expected = by_scikit_learn(loss, max_iter=10, tol=1e-2)
    np.testing.assert_allclose(clean_probability(torch.from_numpy(loss)), expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_left_to_converge_it_is_scikit_learns_too(seed, monkeypatch):
    monkeypatch.setattr(mixture, "EM_STEPS", 200)
    monkeypatch.setattr(mixture, "EM_TOLERANCE", 1e-9)
    loss = losses(seed)
    expected = by_scikit_learn(loss, max_iter=200, tol=1e-9)
    np.testing.assert_allclose(clean_probability(torch.from_numpy(loss)), expected, atol=1e-6)


def test_it_is_the_plain_loops():
    for seed in range(5):
        loss = losses(seed, 60)
        np.testing.assert_allclose(
            clean_probability(torch.from_numpy(loss)), clean_probabilities(loss.tolist()), atol=1e-9
        )


def test_each_network_and_run_is_fitted_apart():
    loss_NRM = torch.from_numpy(np.stack([losses(seed) for seed in range(6)])).view(2, 3, -1)
    together = clean_probability(loss_NRM)
    for n in range(2):
        for r in range(3):
            torch.testing.assert_close(together[n, r], clean_probability(loss_NRM[n, r]), rtol=1e-12, atol=1e-12)


@given(st.integers(0, 5), st.floats(0.1, 10), st.floats(-3, 3))
def test_units_of_the_loss_do_not_matter(seed, factor, offset):
    loss = torch.from_numpy(losses(seed))
    torch.testing.assert_close(
        clean_probability(factor * loss + offset), clean_probability(loss), atol=1e-6, rtol=0
    )


def test_what_is_not_finite_is_believed_wrong_and_changes_nothing_else():
    loss = torch.from_numpy(losses(1))
    spoilt = torch.cat([loss, torch.tensor([torch.nan, torch.inf, -torch.inf])])
    found = clean_probability(spoilt)
    torch.testing.assert_close(found[:-3], clean_probability(loss), rtol=1e-9, atol=1e-12)
    assert found[-3:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("loss", [[0.3] * 5, [0.3], [0.1, 2.0], [torch.nan] * 3])
def test_losses_that_do_not_differ_do_no_harm(loss):
    found = clean_probability(torch.tensor(loss))
    assert found.isfinite().all()
    assert ((found >= 0) & (found <= 1)).all()


def test_wrong_labels_with_larger_losses_are_found_without_a_rate():
    random = np.random.default_rng(0)
    wrong = random.random(2000) < 0.4
    loss = torch.from_numpy(np.where(wrong, random.normal(4, 0.7, 2000), random.exponential(0.4, 2000)))
    picked = (clean_probability(loss) >= 0.5).numpy()
    assert (picked == ~wrong).mean() > 0.97
