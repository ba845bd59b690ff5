"""The noise rate by planted labels: what is planted, what is counted, and what it says of whole trainings."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from coteach import RobustClassifier, noise
from coteach.labels.planted import contradicted, estimate_by_planted, plan_to_plant, plant
from coteach.plan import Plan


@given(st.integers(2, 3000), st.integers(2, 12), st.integers(0, 1000))
@settings(deadline=None)
def test_planted_labels_are_other_classes_and_the_rest_is_left_alone(n, n_classes, seed):
    labels = np.random.default_rng(seed).integers(0, n_classes, n)
    before = labels.copy()
    changed, planted = plant(labels, n_classes, seed)
    assert (labels == before).all()
    assert ((changed != labels) == planted).all()
    assert 1 <= planted.sum() <= max(2, round(max(n / 20, min(200, n / 10)) * n_classes / (n_classes - 1)))
    if planted.sum() > 1:
        assert (np.bincount(changed, minlength=n_classes) == np.bincount(labels, minlength=n_classes)).all()
    assert changed.min() >= 0
    assert changed.max() < n_classes
    again, _ = plant(labels, n_classes, seed)
    assert (again == changed).all()


def test_any_other_class_is_planted_alike():
    labels = np.arange(100_000) % 5
    changed, planted = plant(labels, 5, seed=1)
    assert np.bincount(changed[planted & (labels == 0)], minlength=5)[1:] == pytest.approx(250, rel=0.2)
    assert planted.sum() == pytest.approx(5000, rel=0.05)
    assert not (plant(labels, 5, seed=2)[1] == plant(labels, 5, seed=3)[1]).all()


def test_a_rare_class_is_not_flooded():
    labels = (np.arange(10_000) % 20 == 0).astype(int)
    changed, planted = plant(labels, 2, seed=0)
    assert 0 < planted[changed == 1].sum() < 0.15 * 500


def test_little_that_was_seen_is_no_certainty():
    """A network that has learnt everything by heart says nothing, and few samples say little."""
    labels, planted = plant(np.arange(1000) % 3, 3, seed=0)
    p = np.eye(3)[np.arange(1000) % 3]
    by_heart = estimate_by_planted(labels, np.full(1000, 0.9), labels, planted, p)
    assert by_heart.interval == (0, pytest.approx(2 / 3))
    few, planted = plant(np.arange(60) % 3, 3, seed=0)
    right = np.arange(60) % 3
    nothing = estimate_by_planted(right, np.where(few == right, 0.9, 0.1), few, planted, np.eye(3)[right])
    assert nothing.rate == 0
    assert nothing.interval[1] > 0.05


def test_what_held_out_opinions_see_is_in_the_matrix_too():
    """If the network has learnt all labels by heart, there is still a rate, and so there are wrong labels."""
    truth, labels, changed, planted, _, quality = learnt(0.3, 4, by_heart=0.0, kind="pair")
    estimate = estimate_by_planted(changed, quality, changed, planted, np.eye(4)[truth])
    assert estimate.rate == pytest.approx(0.3, abs=0.03)
    assert estimate.per_class == pytest.approx(np.full(4, 0.3), abs=0.05)
    assert estimate.matrix == pytest.approx(noise.pair(4, 0.3), abs=0.05)


def learnt(rate: float, n_classes: int, by_heart: float, kind: str = "symmetric", seed: int = 0):
    """Wrong labels, planted ones, and a network that has learnt some of both by heart, and knows all else."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, n_classes, 20_000)
    labels = noise.corrupt(truth, kind, rate, n_classes).labels if rate else truth
    changed, planted = plant(labels, n_classes, seed)
    predicted = np.where(random.random(len(truth)) < by_heart, changed, truth)
    quality = np.where(changed == truth, random.uniform(0.5, 1, len(truth)), random.uniform(0, 0.5, len(truth)))
    return truth, labels, changed, planted, predicted, quality


def knows_little(n: int, n_classes: int) -> np.ndarray:
    """Networks whose held-out opinions bound nothing: the surest agree with all labels, the others with none."""
    return np.full((n, n_classes), 1 / n_classes)


@pytest.mark.parametrize("by_heart", [0, 0.3, 0.8])
@pytest.mark.parametrize("rate, n_classes", [(0, 2), (0.05, 10), (0.3, 2), (0.3, 4), (0.45, 10)])
def test_what_is_refused_of_planted_labels_tells_how_many_others_are_wrong(rate, n_classes, by_heart, monkeypatch):
    monkeypatch.setattr("coteach.labels.planted.contradicted", lambda *_: (0.0, 1.0))
    truth, labels, changed, planted, predicted, quality = learnt(rate, n_classes, by_heart)
    p = knows_little(len(labels), n_classes)
    estimate = estimate_by_planted(predicted, quality, changed, planted, p)
    wrong = (labels != truth)[~planted]
    assert estimate.rate == pytest.approx(wrong.mean(), abs=0.03 if by_heart < 0.5 else 0.06)
    low, high = estimate.interval
    assert {type(number) for number in (estimate.rate, low, high)} == {float}
    assert 0 <= low <= wrong.mean() <= high <= 1
    assert estimate.n == (~planted).sum()
    assert estimate.matrix.sum(1) == pytest.approx(np.ones(n_classes))
    given_C = np.bincount(labels[~planted], minlength=n_classes)
    assert estimate.per_class @ given_C / given_C.sum() == pytest.approx(estimate.rate, abs=0.01)


def test_flips_of_a_class_are_seen_in_the_matrix():
    truth, labels, changed, planted, predicted, quality = learnt(0.3, 4, by_heart=0.2, kind="pair")
    p = 0.7 * np.eye(4)[truth] + 0.3 * np.eye(4)[(truth + 1) % 4]
    estimate = estimate_by_planted(predicted, quality, changed, planted, p)
    assert estimate.matrix == pytest.approx(noise.pair(4, 0.3), abs=0.03)


@pytest.mark.parametrize("said, expected", [((0.2, 0.6), 0.3), ((0.4, 0.6), 0.4), ((0.1, 0.25), 0.25)])
def test_the_rate_is_kept_between_the_readings_of_networks_that_have_not_learnt_the_sample(
    said, expected, monkeypatch
):
    monkeypatch.setattr("coteach.labels.planted.contradicted", lambda *_: said)
    _, _, changed, planted, predicted, quality = learnt(0.3, 10, by_heart=0.3)
    estimate = estimate_by_planted(predicted, quality, changed, planted, np.full((20_000, 10), 0.1))
    assert estimate.rate == pytest.approx(expected, abs=0.02)
    assert estimate.interval[0] <= estimate.rate <= estimate.interval[1]


@given(st.integers(0, 1000), st.integers(2, 5), st.integers(1, 2000))
@settings(deadline=None)
def test_contradictions_are_counted_as_by_hand(seed, n_classes, n):
    random = np.random.default_rng(seed)
    p, labels = random.dirichlet(np.ones(n_classes), n).round(2), random.integers(0, n_classes, n)
    surest = []
    for c in range(n_classes):
        mine = sorted((i for i in range(n) if p[i].argmax() == c), key=lambda i: -p[i].max())
        surest += mine[: math.ceil(len(mine) / 10)]
    low = sum(p[i].argmax() != labels[i] for i in surest)
    if len(surest) < 100:
        low = low + 1.96**2 / 2 - 1.96 * math.sqrt(low + 1.96**2 / 4)
    low /= len(surest)
    in_all = sum(p[i].argmax() != labels[i] for i in range(n)) / n
    assert contradicted(p, labels) == (pytest.approx(low, abs=1e-12), pytest.approx(in_all))


def test_a_network_that_refuses_nothing_finds_nothing():
    labels, planted = plant(np.arange(1000) % 3, 3, seed=0)
    estimate = estimate_by_planted(labels, np.full(1000, 0.9), labels, planted, np.eye(3)[np.arange(1000) % 3])
    assert estimate.rate == 0
    assert (estimate.per_class == 0).all()
    assert estimate.matrix == pytest.approx(np.eye(3))


def test_a_long_training_is_cut_short_and_learns_labels_alone():
    plan = Plan(epochs=160, loss="gce", mixup=1.0, mixture=True, guess_weight=1.0, memory_weight=3.0, cutout=8)
    planting = plan_to_plant(plan)
    assert planting == Plan(epochs=40, cutout=8, decay_start=16)
    assert plan_to_plant(Plan(epochs=7, decay_start=3)) == Plan(epochs=7, decay_start=3)


def images(n: int) -> tuple[Any, Any]:
    """Digits of 16×16 pixels, which the modern recipe takes."""
    x, y = load_digits(return_X_y=True)
    return x.reshape(-1, 8, 8).repeat(2, 1).repeat(2, 2)[:n], y[:n]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0, 0.3])
def test_the_rate_of_images_is_found(rate):
    x, truth = images(600)
    labels = noise.corrupt(truth, "symmetric", rate).labels if rate else truth
    model = RobustClassifier(random_state=0, device="cpu", epochs=20).fit(x, labels)
    wrong = (labels != truth).mean()
    assert model.noise_rate_ == pytest.approx(wrong, abs=0.05)
    assert model.noise_estimate_.interval[0] <= wrong <= model.noise_estimate_.interval[1]
    assert 530 < model.noise_estimate_.n < 550  # a tenth was exchanged


@pytest.mark.filterwarnings("ignore:.*noise rate")  # of so few samples
@pytest.mark.parametrize("changes", [{"mixture": True}, {"method": "dividemix"}, {"mixup": 1.0}])
@pytest.mark.parametrize("shape", [(5,), (16, 16)])
def test_the_rate_is_estimated_whatever_is_learnt_besides_labels(changes, shape):
    """With a mixture of losses it was refused in the name of a method that nobody had asked for."""
    x = np.random.default_rng(0).normal(size=(40, *shape))
    model = RobustClassifier(epochs=2, random_state=0, device="cpu", **changes)
    model.fit(x, np.arange(40) % 2)
    assert 0 <= model.noise_rate_ < 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*noise rate")
@pytest.mark.parametrize("changes", [{"mixture": True}, {"method": "dividemix"}])
def test_rates_are_tried_with_a_method_that_uses_them(changes):
    """A mixture of losses needs no rate: eight equal trainings always chose 0."""
    x, truth = load_digits(return_X_y=True)
    labels = noise.corrupt(truth, "symmetric", 0.4).labels
    model = RobustClassifier(epochs=3, random_state=0, device="cpu", **changes)
    model.fit(x[:200], labels[:200], validation_data=(x[200:400], labels[200:400]))
    assert len({accuracy for _, accuracy in model.noise_estimate_.tried}) > 1
