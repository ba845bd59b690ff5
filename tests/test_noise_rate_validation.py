"""The noise rate by a validation set: clean labels are compared with, noisy ones choose among rates."""

import numpy as np
import pytest
import torch

from coteach import networks, noise
from coteach.data import load
from coteach.engine import PLAIN_ENGINE
from coteach.engine.training import Problem
from coteach.labels.estimate import compare_with_clean, estimate_noise, true_class_posterior
from coteach.labels.folds import choose_rate, of_folds, part
from coteach.methods import METHODS
from coteach.plan import Plan
from test_noise_rate import CELLS, matrix_of, right_posteriors

F = 3


def a_case(matrix: np.ndarray, unsure: float, seed: int = 0):
    """Noisy samples with the exact p(given | x), and clean ones of which F networks say the same."""
    true, given, p = right_posteriors(matrix, 5300, unsure, seed)
    return true, given, p[300:], np.stack([p[:300]] * F)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("unsure", [0, 0.2])
def test_right_posteriors_give_the_rate_and_the_matrix(cell, unsure):
    kind, rate, _ = CELLS[cell]
    matrix = matrix_of(kind, rate, 6)
    true, given, p, p_clean = a_case(matrix, unsure)
    found = compare_with_clean(p, given[300:], p_clean, true[:300])
    wrong = true[300:] != given[300:]
    assert found.n == 5000
    assert found.rate == pytest.approx(wrong.mean(), abs=0.02)
    assert found.interval[0] <= found.rate <= found.interval[1]
    assert np.abs(found.matrix - matrix).max() < 0.06
    np.testing.assert_allclose(found.matrix.sum(1), 1)
    for c in range(6):
        assert found.per_class[c] == pytest.approx(wrong[given[300:] == c].mean(), abs=0.06)


@pytest.mark.parametrize("power", [0.5, 1, 3])
def test_clean_labels_tell_how_sure_the_networks_may_be_believed_to_be(power):
    """Classes that overlap, and networks that say so too loudly or too quietly."""
    true, given, p, p_clean = a_case(noise.symmetric(5, 0.3), 0.6)
    p, p_clean = (q**power / (q**power).sum(-1, keepdims=True) for q in (p, p_clean))
    found = compare_with_clean(p, given[300:], p_clean, true[:300])
    wrong = (true != given)[300:].mean()
    assert found.rate == pytest.approx(wrong, abs=0.04)
    assert found.interval[0] <= wrong <= found.interval[1]


def test_a_few_clean_labels_leave_a_wider_interval_and_may_miss_a_class():
    true, given, p, p_clean = a_case(noise.symmetric(5, 0.3), 0.6)
    few = np.flatnonzero(true[:300] != 4)[:12]
    widths = []
    for some in (few, np.arange(300)):
        low, high = compare_with_clean(p, given[300:], p_clean[:, some], true[some]).interval
        assert low <= (true != given)[300:].mean() <= high
        widths.append(high - low)
    assert widths[0] >= widths[1]


def test_groups_that_are_not_the_classes_are_mended_by_clean_samples():
    """Networks that call every class by the next one's name: nobody could know without clean samples."""
    true, given, p, p_clean = a_case(noise.symmetric(5, 0.2), 0)
    p, p_clean = np.roll(p, 1, -1), np.roll(p_clean, 1, -1)
    assert estimate_noise(p, given[300:]).rate > 0.8
    found = compare_with_clean(p, given[300:], p_clean, true[:300])
    assert found.rate == pytest.approx((true != given)[300:].mean(), abs=0.02)


def test_what_is_behind_a_label_is_right_when_what_is_known_beforehand_is():
    matrix = noise.pair(4, 0.3)
    true, given, _ = right_posteriors(matrix, 4000, 0)
    known = np.eye(4)[true] * 0.9 + 0.025
    posterior = true_class_posterior(known, given)
    np.testing.assert_allclose(posterior.sum(1), 1)
    assert (posterior.argmax(1) == true).mean() > 0.99
    assert (
        true_class_posterior(np.full((4000, 4), 0.25), given).argmax(1) == given
    ).all()  # all that is left to believe


# ---- with our own training ------------------------------------------------------------------------------------


def digits(rate: float):
    loaded = load("digits")
    x, y = loaded.x_train[:700], loaded.y_train[:700].numpy()
    given = torch.from_numpy(noise.corrupt(y, "symmetric", rate, 10, 0).labels)
    problem = Problem(x[:400], given[None, :400], 10, [0.0], [1])
    return problem, x[400:], given[400:]


def network() -> torch.nn.Module:
    return networks.build("mlp", shape=(64,), n_classes=10)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mentornet", "standard"])
def test_noisy_labels_choose_the_rate_that_serves_best(method):
    """Half of the labels are wrong: who leaves out none learns them by heart, who leaves out nearly all nothing.

    Plain training leaves none out, whatever rate is given, so Co-teaching stands in for it.
    """
    problem, x, given = digits(0.5)
    plan = Plan(epochs=24, batch_size=32, lr=0.01, ramp=4, decay_start=12)
    found = choose_rate(problem, METHODS[method], plan, network, x, given, PLAIN_ENGINE, rates=(0.0, 0.5, 0.95))
    assert [rate for rate, _ in found.tried] == [0.0, 0.5, 0.95]
    accuracies = [accuracy for _, accuracy in found.tried]
    assert found.rate == 0.5
    assert accuracies[1] == max(accuracies) > accuracies[0]
    assert found.interval[0] <= 0.5 <= found.interval[1]
    assert found.matrix.shape == (10, 10)
    assert found.n == 300


def test_the_networks_of_every_fold_are_asked_about_other_samples():
    problem, x, _ = digits(0.0)
    p_MC, p_FVC = of_folds(
        problem.x_M, problem.y_RM[0], 10, network, Plan(epochs=4, lr=0.01), x, 3, 0, PLAIN_ENGINE
    )
    assert p_MC.shape == (400, 10)
    assert p_FVC.shape == (3, 300, 10)
    np.testing.assert_allclose(p_FVC.sum(-1), 1, atol=1e-5)
    assert not np.allclose(p_FVC[0], p_FVC[1])
    assert part(x, torch.tensor([3, 1])).equal(x[[3, 1]])
