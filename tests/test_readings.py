"""The rate of wrong labels from two opinions: its interval reaches over all readings."""

import numpy as np
import pytest

from coteach.labels.neighbours import NeighbourModel, Neighbours, nearest_samples, votes
from coteach.labels.readings import estimate_by_two, is_wide


def opinions(truth: np.ndarray, confused: float, seed: int, n_classes: int = 4) -> np.ndarray:
    """Of a model that mistakes a share of the samples for others."""
    rng = np.random.default_rng(seed)
    believed = np.where(rng.random(len(truth)) < confused, rng.integers(n_classes, size=len(truth)), truth)
    p = np.full((len(truth), n_classes), 0.1) + rng.random((len(truth), n_classes)) * 0.02
    p[np.arange(len(truth)), believed] += 0.6
    return p / p.sum(1, keepdims=True)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("confused", [0.02, 0.2])
def test_the_interval_holds_the_truth_though_opinions_confuse_classes(rate, confused):
    for seed in range(5):
        truth = np.random.default_rng(seed).integers(4, size=1500)
        flipped = np.random.default_rng(seed + 50).random(1500) < rate
        labels = np.where(flipped, (truth + 1) % 4, truth)
        low, high = estimate_by_two(
            opinions(truth, confused, seed), opinions(truth, confused, seed + 9), labels
        ).interval
        assert low <= flipped.mean() <= high


def test_opinions_that_differ_widen_the_interval():
    truth = np.random.default_rng(0).integers(4, size=1500)
    good, bad = opinions(truth, 0.02, 1), opinions(truth, 0.4, 2)
    agreed, differing = (estimate_by_two(good, other, truth) for other in (good, bad))
    assert agreed.interval[1] < differing.interval[1]
    assert not is_wide(agreed)
    assert is_wide(differing)


def test_one_opinion_alone_will_do():
    truth = np.random.default_rng(0).integers(4, size=1500)
    p = opinions(truth, 0.02, 1)
    assert estimate_by_two(p, None, truth).interval == estimate_by_two(p, p, truth).interval


# ---- neighbours -------------------------------------------------------------------------------------------------


def test_the_nearest_are_those_of_plain_python():
    x = np.random.default_rng(0).normal(size=(40, 3))
    nearest = nearest_samples(x, most=5)
    centred = x - x.mean(0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    for i in range(40):
        by_angle = sorted((j for j in range(40) if j != i), key=lambda j: -float(unit[i] @ unit[j]))
        assert nearest[i].tolist() == by_angle[:5]


def test_of_many_samples_the_nearest_are_looked_for_among_some():
    x = np.random.default_rng(0).normal(size=(60, 3))
    nearest = nearest_samples(x, most=5, among=20)
    assert len(np.unique(nearest)) <= 20
    assert nearest.shape == (60, 5)
    assert not (nearest == np.arange(60)[:, None]).any()
    unit = (x - x.mean(0)) / np.linalg.norm(x - x.mean(0), axis=1, keepdims=True)
    np.fill_diagonal(whole := unit @ unit.T, -1)
    similar = whole[:, np.unique(nearest)]
    assert np.allclose(whole[np.arange(60), nearest[:, 0]], similar.max(1))


def test_only_trusted_neighbours_vote_and_only_the_first_of_them():
    labels = np.array([0, 1, 1, 0, 1])
    nearest = np.array([[1, 2, 3, 4]] * 5)
    trusted = np.array([True, False, True, True, True])
    assert votes(nearest, labels, trusted, 2, voters=2)[0].tolist() == [1, 1]  # samples 2 and 3


def test_the_nearest_learnt_samples_predict_by_their_labels_and_weights():
    rng = np.random.default_rng(0)
    x, labels, weights = rng.normal(size=(30, 3)) + 5, rng.integers(3, size=30), rng.random(30)
    weights[::5] = 0
    new = rng.normal(size=(9, 3)) + 5
    p = NeighbourModel.of(x, labels, weights, 3, voters=4).predict_proba(new)
    for k, place in enumerate(new - x.mean(0)):
        near = sorted(np.flatnonzero(weights), key=lambda i: -float(unit(place) @ unit(x[i] - x.mean(0))))[:4]
        shares = [weights[labels == c].sum() / weights.sum() for c in range(3)]
        counts = [sum(weights[i] for i in near if labels[i] == c) + shares[c] for c in range(3)]
        np.testing.assert_allclose(p[k], np.array(counts) / sum(counts), atol=1e-6)


def test_pieces_of_new_samples_predict_alike_and_too_many_learnt_ones_are_thinned(monkeypatch):
    rng = np.random.default_rng(0)
    x, labels, weights = rng.normal(size=(50, 3)), rng.integers(3, size=50), np.ones(50)
    whole = NeighbourModel.of(x, labels, weights, 3).predict_proba(x)
    monkeypatch.setattr("coteach.labels.neighbours.NUMBERS_AT_ONCE", 150)
    np.testing.assert_allclose(NeighbourModel.of(x, labels, weights, 3).predict_proba(x), whole)
    monkeypatch.setattr("coteach.labels.neighbours.MOST_ASKED", 20)
    assert len(NeighbourModel.of(x, labels, weights, 3).directions_RF) == 20


def unit(x):
    return x / np.linalg.norm(x)


def test_a_vote_that_knows_nothing_is_not_listened_to():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    sure = np.where(np.eye(3)[labels] == 1, 0.9, 0.05)
    blind = Neighbours(nearest_samples(rng.normal(size=(300, 4))), labels, 3, 20, sure)
    seeing = Neighbours(nearest_samples(np.eye(3)[labels] + rng.normal(size=(300, 3)) / 9), labels, 3, 20, sure)
    assert (blind.tell_more, seeing.tell_more) == (False, True)
