"""The noise rate from the data alone: recovered from posteriors that are right, and on digits from our own."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coteach import RobustClassifier, data, networks, noise
from coteach.classifier import fitting
from coteach.labels import estimate
from coteach.labels.estimate import (
    NoiseEstimate,
    estimate_noise,
    estimate_of_hard_samples,
    nearness_to_groups,
    surest,
)
from coteach.labels.folds import deal_folds, out_of_sample
from coteach.plan import Plan

CELLS = {
    "clean": ("none", None, 0.03),
    "symmetric 0.1": ("symmetric", 0.1, 0.03),
    "symmetric 0.2": ("symmetric", 0.2, 0.03),
    "symmetric 0.37": ("symmetric", 0.37, 0.03),
    "symmetric 0.5": ("symmetric", 0.5, 0.03),
    "by class": ("matrix", None, 0.03),
    "pair 0.3": ("pair", 0.3, 0.06),
    "pair 0.45": ("pair", 0.45, 0.06),
}


def by_class(n_classes: int, seed: int) -> np.ndarray:
    """Each class has a flip rate of its own, from 0.05 to 0.4, and its own favourite wrong names."""
    random = np.random.default_rng(seed)
    matrix = np.zeros((n_classes, n_classes))
    for c, rate in enumerate(random.uniform(0.05, 0.4, n_classes)):
        matrix[c] = np.insert(rate * random.dirichlet(np.ones(n_classes - 1)), c, 1 - rate)
    return matrix


def matrix_of(kind: str, rate: float | None, n_classes: int, seed: int = 0) -> np.ndarray:
    match kind:
        case "none":
            return np.eye(n_classes)
        case "symmetric":
            return noise.symmetric(n_classes, rate or 0)
        case "pair":
            return noise.pair(n_classes, rate or 0)
    return by_class(n_classes, seed)


def one_of_each(p: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A class drawn from each row."""
    return np.minimum((p.cumsum(1) <= random.random((len(p), 1))).sum(1), p.shape[1] - 1)


def right_posteriors(matrix: np.ndarray, n: int, unsure: float, seed: int = 0):
    """True classes, given labels, the exact p(given | x); a share `unsure` of samples lies between two classes."""
    random = np.random.default_rng(seed)
    n_classes = len(matrix)
    clean = np.eye(n_classes)[random.integers(n_classes, size=n)]
    other = np.eye(n_classes)[random.integers(n_classes, size=n)]
    weight = np.where(random.random(n) < unsure, random.uniform(0, 0.5, n), 0)[:, None]
    clean = (1 - weight) * clean + weight * other
    true = one_of_each(clean, random)
    return true, one_of_each(matrix[true], random), clean @ matrix


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("unsure", [0, 0.2])
def test_right_posteriors_give_the_rate_and_the_matrix(cell, unsure):
    kind, rate, _ = CELLS[cell]
    matrix = matrix_of(kind, rate, 6)
    true, given, p = right_posteriors(matrix, 6000, unsure)
    found = estimate_noise(p, given)
    assert found.n == 6000
    assert found.rate == pytest.approx((true != given).mean(), abs=0.02)
    assert np.abs(found.matrix - matrix).max() < 0.06
    for c in range(6):
        assert found.per_class[c] == pytest.approx((true != given)[given == c].mean(), abs=0.06)


def test_a_network_that_is_not_sure_enough_makes_no_noise():
    """Probabilities half way to even: calibrated by nobody, but the classes are still told apart."""
    true, given, p = right_posteriors(noise.symmetric(5, 0.3), 4000, 0.1)
    flat = 0.5 * p + 0.5 / 5
    assert estimate_noise(flat, given).rate == pytest.approx((true != given).mean(), abs=0.03)


def test_of_a_network_that_knows_little_only_the_surest_are_counted():
    """With classes that overlap that much, many samples even of the surer halves are of other classes."""
    true, given, p = right_posteriors(noise.symmetric(5, 0.2), 5000, 1)
    found = estimate_noise(p, given)
    assert found.rate == pytest.approx((true != given).mean(), abs=0.015)
    group = nearness_to_groups(p).argmax(1)
    sure = surest(nearness_to_groups(p), group, given)
    assert 500 <= sure.sum() < 0.3 * len(given)
    assert (group != true)[sure].mean() < 0.1 < (group != true).mean()


def many_classes(n_classes: int, n: int, rate: float, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who is wrong, given labels, and probabilities of a network that has learnt the noise, too."""
    random = np.random.default_rng(0)
    true = random.integers(0, n_classes, n)
    given = np.where(random.random(n) < rate, random.integers(0, n_classes, n), true)
    if kind == "pair":
        given = np.where(given == true, true, (true + 1) % n_classes)
    logits = random.normal(size=(n, n_classes))
    logits[np.arange(n), true] += 9
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    other = np.full_like(p, 1 / n_classes) if kind == "symmetric" else np.roll(p, 1, axis=1)
    return given != true, given, (1 - rate) * p + rate * other


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("rate", [0, 0.2, 0.4])
def test_the_likeliest_classes_tell_as_much_as_all(kind, rate, monkeypatch):
    wrong, given, p = many_classes(120, 4000, rate, kind)
    of_all, of_all_hard = estimate_noise(p, given), estimate_of_hard_samples(p, given)
    monkeypatch.setattr(estimate, "MANY_CLASSES", 100)
    found, hard = estimate_noise(p, given), estimate_of_hard_samples(p, given)
    assert abs(found.rate - wrong.mean()) <= max(0.02, abs(of_all.rate - wrong.mean()))
    assert hard.rate == of_all_hard.rate
    assert found.matrix.sum(1) == pytest.approx(np.ones(120))


@pytest.mark.slow
def test_many_classes_take_no_cube_of_their_number():
    """It took 6 s of CPU when every sample was compared with every class; see the limit of an unmarked test."""
    wrong, given, p = many_classes(2000, 4000, 0.2, "symmetric")
    assert estimate_noise(p, given).rate == pytest.approx(wrong.mean(), abs=0.03)


def test_classes_of_whom_nobody_is_seen_are_no_obstacle():
    p = np.full((3, 700), 1 / 700)
    found = estimate_noise(p, [0, 1, 699])
    assert 0 <= found.rate <= 1
    assert found.matrix.shape == (700, 700)


def test_too_many_classes_beside_clean_labels_are_refused():
    one = np.zeros(1, dtype=int)
    with pytest.raises(ValueError, match="3,000 classes, too many .* give noise_rate"):
        estimate.compare_with_clean(np.zeros((1, 3000)), one, np.zeros((1, 1, 3000)), one)


def test_the_network_being_wrong_is_not_taken_for_wrong_labels():
    """A tenth of all samples get another class's probabilities, half as sure: more than that disagree."""
    true, given, p = right_posteriors(noise.symmetric(5, 0.2), 5000, 0)
    random = np.random.default_rng(1)
    lost = random.random(5000) < 0.1
    p[lost] = 0.4 * p[lost] + 0.6 * p[random.permutation(5000)][lost]
    wrong = (true != given).mean()
    assert (p.argmax(1) != given).mean() > wrong + 0.03
    assert estimate_noise(p, given).rate == pytest.approx(wrong, abs=0.02)


@pytest.mark.parametrize("matrix, evidence", [(noise.pair(6, 0.45), 12), (noise.symmetric(6, 0.4), 5)])
def test_a_network_that_errs_around_the_right_posteriors(matrix, evidence):
    """First choices are often wrong, of pairs most of all, but the classes can be told apart."""
    random = np.random.default_rng(0)
    true = random.integers(6, size=4000)
    given_as = one_of_each(matrix[true], random)
    p = np.stack([random.dirichlet(evidence * matrix[c] + 0.02) for c in true])
    assert (p.argmax(1) != true).mean() > 0.1
    assert estimate_noise(p, given_as).rate == pytest.approx((true != given_as).mean(), abs=0.02)


def test_the_interval_holds_the_rate_nearly_always_and_narrows():
    def width_and_hit(n: int, seed: int):
        true, given, p = right_posteriors(noise.symmetric(4, 0.25), n, 0.1, seed)
        low, high = estimate_noise(p, given).interval
        return high - low, low <= 0.25 <= high and low <= (true != given).mean() <= high

    few, many = ([width_and_hit(n, seed) for seed in range(40)] for n in (300, 3000))
    assert sum(hit for _, hit in few) >= 34
    assert sum(hit for _, hit in many) >= 34
    assert np.mean([w for w, _ in many]) < np.mean([w for w, _ in few]) / 2
    assert np.mean([w for w, _ in many]) < 0.1


@st.composite
def any_case(draw):
    """Probabilities of no great merit, from even to sure, with labels drawn from them or from anywhere."""
    n, n_classes = draw(st.integers(1, 60)), draw(st.integers(2, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = random.dirichlet(np.full(n_classes, draw(st.sampled_from([0.05, 0.5, 5.0]))), n)
    labels = random.integers(n_classes, size=n) if draw(st.booleans()) else p.argmax(1)
    return p, labels, random.permutation(n_classes)


@given(any_case())
@settings(max_examples=200, deadline=None)
def test_whatever_comes_in_shares_come_out(case):
    p, labels, _ = case
    found = estimate_noise(p, labels)
    low, high = found.interval
    assert 0 <= low <= found.rate <= high <= 1
    assert ((found.per_class >= 0) & (found.per_class <= 1)).all()
    assert (found.matrix >= 0).all()
    np.testing.assert_allclose(found.matrix.sum(1), 1)
    share = np.bincount(labels, minlength=p.shape[1]) / len(labels)
    assert found.per_class @ share == pytest.approx(found.rate)


@given(any_case())
@settings(max_examples=200, deadline=None)
def test_other_numbers_for_the_classes_change_nothing(case):
    p, labels, order = case
    found, renamed = estimate_noise(p, labels), estimate_noise(p[:, order], np.argsort(order)[labels])
    assert renamed.rate == pytest.approx(found.rate, abs=1e-6)
    np.testing.assert_allclose(renamed.matrix, found.matrix[np.ix_(order, order)], atol=1e-6)
    np.testing.assert_allclose(renamed.per_class, found.per_class[order], atol=1e-6)


@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_right_labels_of_a_sure_network_are_right(n_classes, seed):
    labels = np.random.default_rng(seed).integers(n_classes, size=200)
    p = 0.97 * np.eye(n_classes)[labels] + 0.03 / n_classes
    assert estimate_noise(p, labels).rate < 0.005


@pytest.mark.parametrize(
    "p, labels, word",
    [
        (np.full(3, 0.5), [0, 1, 0], "shape"),
        (np.full((3, 1), 1.0), [0, 0, 0], "a row a sample"),
        (np.full((3, 2), 0.9), [0, 1, 0], "softmax"),
        (np.array([[1.5, -0.5]]), [0], "softmax"),
        (np.full((3, 2), np.nan), [0, 1, 0], "softmax"),
        (np.full((3, 2), 0.5), [0, 1, 2], "0 to 1"),
        (np.full((3, 2), 0.5), [0, 1], "one label per sample"),
    ],
)
def test_what_cannot_be_read_is_refused(p, labels, word):
    with pytest.raises(ValueError, match=word):
        estimate_noise(p, labels)


def test_folds_share_every_class():
    labels = np.repeat([0, 1, 2], [50, 25, 5])
    fold = deal_folds(labels, 5, seed=1)
    for f in range(5):
        np.testing.assert_array_equal(np.bincount(labels[fold == f]), [10, 5, 1])
    assert (fold != deal_folds(labels, 5, seed=2)).any()


# ---- with our own training ------------------------------------------------------------------------------------

PLAN = Plan(epochs=20, batch_size=128, lr=0.005)


def digits_network() -> torch.nn.Module:
    return networks.build("mlp", shape=(64,), n_classes=10)


@functools.cache
def digits():
    loaded = data.load("digits")
    return loaded.x_train, loaded.y_train.numpy()


def test_nobody_is_predicted_from_their_own_label():
    """With labels by coin toss, memory is all there is: it must not show."""
    x, _ = digits()
    y = torch.from_numpy(np.random.default_rng(0).integers(2, size=200))
    network = functools.partial(networks.build, "mlp", shape=(64,), n_classes=2)
    p = out_of_sample(x[:200], y, 2, network, Plan(epochs=20, batch_size=40, lr=0.01), folds=3)
    assert p.shape == (200, 2)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == y.numpy()).mean() < 0.62


def test_a_training_that_explodes_says_so():
    x, true = digits()
    y = torch.from_numpy(true[:100])
    with pytest.raises(ValueError, match="lower the plan's lr"):
        out_of_sample(x[:100] * float("nan"), y, 10, digits_network, Plan(epochs=1), folds=2)


def test_folds_must_fit():
    x, _ = digits()
    with pytest.raises(ValueError, match="folds is 7"):
        out_of_sample(x[:6], torch.arange(6), 10, digits_network, PLAN, folds=7)


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_the_rate_on_digits(cell):
    kind, rate, bar = CELLS[cell]
    x, true = digits()
    matrix = by_class(10, seed=0) if kind == "matrix" else None
    draw = noise.corrupt(true, kind, rate, 10, 5, matrix=matrix)
    found = estimate_noise(out_of_sample(x, torch.from_numpy(draw.labels), 10, digits_network, PLAN), draw.labels)
    assert found.rate == pytest.approx(draw.rate, abs=bar)
    assert found.interval[0] <= draw.rate <= found.interval[1]


# ---- people, who err where samples are hard -------------------------------------------------------------------


def hard_and_wrong(n: int, n_classes: int, hard: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True classes, labels that are wrong on most of the hard samples only, and opinions that know which are."""
    random = np.random.default_rng(seed)
    truth = random.integers(n_classes, size=n)
    is_hard = random.random(n) < hard
    wrong = is_hard & (random.random(n) < 2 / 3)
    labels = np.where(wrong, (truth + random.integers(1, n_classes, n)) % n_classes, truth)
    sure = np.where(is_hard, random.uniform(0.93, 0.95, n), random.uniform(0.95, 1, n))
    p = np.full((n, n_classes), (1 - sure[:, None]) / (n_classes - 1))
    p[np.arange(n), truth] = sure
    return truth, labels, p


@pytest.mark.parametrize("hard", [0.1, 0.3, 0.5])
def test_labels_that_are_wrong_on_hard_samples_are_counted(hard):
    truth, labels, p = hard_and_wrong(4000, 5, hard, seed=1)
    rate = (truth != labels).mean()
    estimate = estimate_of_hard_samples(p, labels)
    assert estimate.rate == pytest.approx(rate, abs=0.005)
    assert estimate_noise(p, labels).rate < rate / 2  # counting where networks are sure misses them
    low, high = estimate.interval
    assert low <= estimate.rate <= high
    assert estimate.per_class.mean() == pytest.approx(rate, abs=0.02)
    assert estimate.matrix.sum(1) == pytest.approx(1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(5, 80))
def test_the_confident_joint_is_counted_as_by_hand(seed, n_classes, n):
    random = np.random.default_rng(seed)
    p, labels = random.dirichlet(np.ones(n_classes), n), random.integers(n_classes, size=n)
    usual = {c: np.mean([p[i, c] for i in range(n) if labels[i] == c]) for c in set(labels.tolist())}
    rare = [c for c in usual if (labels == c).sum() < min(5, n / n_classes / 2)]
    of_others = np.mean([p[i, labels[i]] for i in range(n) if labels[i] not in rare])
    usual |= {c: max(usual[c], of_others) for c in rare}
    joint = np.zeros((n_classes, n_classes))
    for i in range(n):
        enough = [c for c in usual if p[i, c] >= usual[c]]
        if enough:
            joint[max(enough, key=lambda c: p[i, c]), labels[i]] += 1
    right = sum(
        joint[c, c] / joint[:, c].sum() * (labels == c).sum() for c in range(n_classes) if joint[:, c].sum() > 0
    )
    estimate = estimate_of_hard_samples(p, labels)
    assert estimate.rate == pytest.approx(1 - right / n, abs=1e-12)
    assert 0 <= estimate.interval[0] <= estimate.rate <= estimate.interval[1] <= 1
    assert ((estimate.per_class >= 0) & (estimate.per_class <= 1)).all()


@pytest.mark.parametrize("modern", [True, False])
def test_labels_are_planted_among_those_of_images(modern, monkeypatch):
    """For images, whose labels people gave; for tables it counts where networks are sure."""
    used = []
    monkeypatch.setattr(fitting, "estimate_by_planting", lambda *said: used.append("planted") or ESTIMATE)
    monkeypatch.setattr(fitting, "estimate_noise", lambda *said: used.append("class") or ESTIMATE)
    x = np.random.default_rng(0).random((30, 16, 16) if modern else (30, 4))
    RobustClassifier(epochs=1, random_state=0, device="cpu").fit(x, np.arange(30) % 2)
    assert used == ["planted" if modern else "class"]


ESTIMATE = NoiseEstimate(0.1, (0.0, 0.2), np.full(2, 0.1), np.eye(2), n=30)
