"""What RobustClassifier finds out about labels: quality, noise rate, validation, classes that starve."""

from contextlib import nullcontext

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import average_precision_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from coteach import RobustClassifier, noise
from coteach.classifier.fitting import held_out, warn_if_uncertain
from coteach.classifier.options import seed_of
from coteach.labels.estimate import NoiseEstimate
from coteach.labels.ledger import starved
from estimator_cases import quick, three_clouds


@pytest.fixture
def clouds():
    return three_clouds()


def test_suspects_are_mostly_wrong_and_the_truth_is_suggested():
    """Digits with a fifth of the labels wrong: of as many suspects, nine in ten are wrong indeed."""
    x, y = load_digits(return_X_y=True)
    names = np.array([f"digit {label}" for label in range(10)])
    flipped = noise.corrupt(y, "symmetric", 0.2, seed=0)
    classifier = RobustClassifier(noise_rate=0.2, epochs=15, random_state=0).fit(x, names[flipped.labels])
    assert classifier.label_quality_.shape == y.shape
    assert ((classifier.label_quality_ >= 0) & (classifier.label_quality_ <= 1)).all()
    assert len(classifier.suspects()) == round(0.2 * len(y))
    found = classifier.suspects((~flipped.clean).mean())
    assert (np.diff(found.quality) >= 0).all()
    assert (found.given == names[flipped.labels][found.index]).all()
    assert (~flipped.clean)[found.index].mean() > 0.9
    wrong = found.index[~flipped.clean[found.index]]
    assert (classifier.suggested_labels_[wrong] == names[y][wrong]).mean() > 0.9
    assert not (found.suggested == found.given).any()
    assert len(classifier.suspects(0)) == 0
    with pytest.raises(ValueError, match=r"share is 10: .*0 to 1; the 10 worst are suspects\(1\).index\[:10\]"):
        classifier.suspects(10)
    assert (classifier.suspects(1).index[:10] == found.index[:10]).all()
    for share in (-1, 1.5, "all"):
        with pytest.raises(ValueError, match="from 0 to 1.$"):
            classifier.suspects(share)
    with pytest.raises(NotFittedError):
        RobustClassifier().suspects()


@pytest.mark.slow
@pytest.mark.parametrize("kind, rate", [("none", None), ("symmetric", 0.4)])
def test_an_unknown_noise_rate_is_estimated(kind, rate):
    x, y = load_digits(return_X_y=True)
    x, y = x[:1000], y[:1000]
    flipped = noise.corrupt(y, kind, rate, seed=0)
    classifier = RobustClassifier(noise_rate="auto", epochs=15, random_state=0).fit(x, flipped.labels)
    estimate = classifier.noise_estimate_
    assert classifier.noise_rate_ == estimate.rate
    assert abs(estimate.rate - flipped.rate) < 0.04
    assert estimate.interval[0] <= flipped.rate <= estimate.interval[1]


def test_an_estimate_is_the_same_again(clouds):
    one, two = (quick(noise_rate="auto").fit(*clouds) for _ in range(2))
    assert one.noise_rate_ == two.noise_rate_
    assert (one.predict_proba(clouds[0]) == two.predict_proba(clouds[0])).all()


def test_an_estimate_that_says_little_says_so(clouds):
    x, y = clouds[0][:6], clouds[1][:6]
    with pytest.warns(UserWarning, match=r"hardly known, anything from \d+% to \d+% .*give noise_rate"):
        found = quick(noise_rate="auto").fit(x, y)
    low, high = found.noise_estimate_.interval
    assert high - low > 0.5
    quick(noise_rate=0.3).fit(x, y)  # without a word
    quick(noise_rate="auto").fit(*clouds)


@pytest.mark.slow
def test_a_high_estimate_from_few_labels_is_told_to_be_a_guess():
    """Four classes that overlap, every label right: what the networks get wrong looks like wrong labels."""
    x, y = make_classification(200, 12, n_informative=8, n_classes=4, class_sep=0.7, random_state=0)
    with pytest.warns(
        UserWarning, match=r"a noise rate of \d+% is a guess, from 100 labels of 4 .*give noise_rate"
    ):
        found = RobustClassifier(random_state=0).fit(x[:100], y[:100])
    assert found.noise_estimate_.interval[0] > 0  # so the interval does not say it


@pytest.mark.parametrize(
    "rate, n, tried, told",
    [
        (0.05, 99, (), None),  # the networks agree with nearly all labels
        (0.2, 99, (), "a guess"),
        (0.2, 100, (), None),
        (0.2, 99, ((0.2, 0.9),), None),  # of validation labels
        (0.51, 100, (), "were not learnt"),
        (0.5, 100, (), None),
    ],
)
def test_when_an_estimate_is_doubted(rate, n, tried, told):
    estimate = NoiseEstimate(rate, (rate, rate), np.full(2, rate), np.eye(2), n, tried)
    with pytest.warns(UserWarning, match=told) if told else nullcontext():
        warn_if_uncertain(estimate, 2)


UNTOLD = RobustClassifier(epochs=4, lr=0.01, module__hidden=(32,))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the noise rate is hardly known")  # of ten samples, as it should
@pytest.mark.filterwarnings(r"ignore:a noise rate of \d+% is a guess")
@parametrize_with_checks([UNTOLD])  # pyrefly: ignore[missing-argument]
def test_scikit_learns_checks_with_an_unknown_noise_rate(estimator, check):
    check(estimator)


# ---- validation -----------------------------------------------------------------------------------------------


def few_digits(rate: float, kind: str = "symmetric", n: int = 900, seed: int = 0):
    """Samples, given labels, true labels."""
    x, y = load_digits(return_X_y=True)
    x, y = x[:n], y[:n]
    return x, noise.corrupt(y, kind, rate, 10, seed).labels, y


@pytest.mark.slow
def test_early_stopping_takes_the_best_epoch_on_noisy_labels():
    """Plain training learns wrong labels by heart: the longer, the worse."""
    x, given, y = few_digits(0.4)
    options = {"epochs": 40, "random_state": 0, "lr": 0.005, "batch_size": 64}
    long = RobustClassifier("standard", noise_rate=0, **options).fit(x[:600], given[:600])
    model = RobustClassifier("standard", noise_rate=0, early_stopping=True, validation_fraction=0.2, **options)
    model.fit(x[:600], given[:600])
    accuracies = [row["validation_accuracy"] for row in model.history_]
    assert model.best_epoch_ == 1 + np.argmax(accuracies)  # the first of the best
    assert len(model.history_) == model.best_epoch_ + model.patience
    assert model.score(x[600:], y[600:]) > long.score(x[600:], y[600:]) + 0.05
    assert long.best_epoch_ is None
    assert "validation_accuracy" not in long.history_[0]


def test_the_networks_are_those_of_the_best_epoch(clouds):
    x, y = clouds
    wrong = (y + 1) % 3  # the accuracy on these is highest in the first epoch, and falls from there
    options = {"epochs": 6, "lr": 0.0003, "random_state": 1}
    model = quick(early_stopping=True, patience=2, **options).fit(x, y, validation_data=(x, wrong))
    assert model.best_epoch_ == 1
    assert len(model.history_) == 3
    assert (model.predict(x) == wrong).mean() == model.history_[0]["validation_accuracy"]
    assert (model.predict(x) == wrong).mean() > model.history_[2]["validation_accuracy"]
    p = model.predict_proba(x)[np.arange(120), wrong]
    assert -np.log(p).mean() == pytest.approx(model.history_[0]["validation_loss"], abs=1e-4)


def test_a_validation_set_is_watched_even_when_nothing_stops(clouds):
    x, y = clouds
    model = quick().fit(x, y, validation_data=(x[:30].tolist(), y[:30].tolist()))
    assert len(model.history_) == 3
    assert model.history_[-1]["validation_accuracy"] == model.score(x[:30], y[:30])
    assert model.best_epoch_ is None
    assert (model.predict_proba(x) == quick().fit(x, y).predict_proba(x)).all()


def test_patience_lasts_from_one_fit_to_the_next(clouds):
    model = quick(early_stopping=True, warm_start=True, epochs=4, patience=2).fit(*clouds)
    first = len(model.history_)
    model.fit(*clouds)
    assert [row["epoch"] for row in model.history_] == list(range(1, len(model.history_) + 1))
    assert first < model.best_epoch_ <= len(model.history_)


def test_samples_held_out_have_a_quality_too():
    """Found as well as the others: a mean over the epochs, of networks that never learnt from them."""
    x, given, y = few_digits(0.2)
    model = RobustClassifier(
        noise_rate=0.2, epochs=15, early_stopping=True, validation_fraction=0.3, patience=15, random_state=0
    ).fit(x, given)
    held = held_out(given, 0.3, seed_of(0))
    assert 0.25 < held.mean() < 0.35
    for part in (held, ~held):
        assert average_precision_score((given != y)[part], -model.label_quality_[part]) > 0.85
    wrong = held & (given != y)
    assert (model.suggested_labels_[wrong] == y[wrong]).mean() > 0.85
    assert average_precision_score(given != y, -model.label_quality_) > 0.85  # one scale for both


def test_the_quality_of_a_sample_held_out_is_what_networks_that_stand_still_say_of_it(clouds):
    x, y = clouds
    model = quick(lr=1e-9, early_stopping=True, validation_fraction=0.5, epochs=2).fit(x, y)
    held = held_out(y, 0.5, seed_of(0))
    p = model.networks_proba(x)[:, held]
    given = np.take_along_axis(p, y[held][None, :, None], -1)
    np.put_along_axis(p, y[held][None, :, None], -1, -1)
    log_odds = np.log(given[..., 0] / p.max(-1)).mean(0)
    np.testing.assert_allclose(model.label_quality_[held], 1 / (1 + np.exp(-log_odds)), atol=1e-4)
    doubter = given[..., 0].argmin(0)
    np.testing.assert_array_equal(model.suggested_labels_[held], p.argmax(-1)[doubter, np.arange(held.sum())])


@hypothesis.given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_share_of_every_class_is_held_out_but_never_all_of_it(labels, share):
    labels = np.array(labels)
    try:
        held = held_out(labels, share, seed=3)
    except ValueError:
        assert all(round(share * n) == 0 or n == 1 for n in np.bincount(labels) if n)
        return
    for c in np.unique(labels):
        n = (labels == c).sum()
        assert held[labels == c].sum() == min(round(share * n), n - 1)


@pytest.mark.parametrize(
    "data, options, message",
    [
        ((np.zeros((2, 5)), [0, 3]), {}, "the validation label 3 is none"),
        ((np.zeros((2, 5)), ["0", "1"]), {}, "the validation label '0' is none"),
        ((np.zeros((2, 4)), [0, 1]), {}, "4 features"),
        ((np.zeros((3, 5)), [0, 1]), {}, "3 validation samples but 2 validation labels"),
        (None, {"validation_is_clean": True}, "give both, or neither"),
    ],
)
def test_a_mistake_in_the_validation_set_is_told(data, options, message, clouds):
    with pytest.raises(ValueError, match=message):
        quick().fit(*clouds, validation_data=data, **options)


STOPPING = RobustClassifier(
    noise_rate=0.2, epochs=3, lr=0.01, module__hidden=(32,), early_stopping=True, validation_fraction=0.3
)


@parametrize_with_checks([STOPPING])  # pyrefly: ignore[missing-argument]
def test_scikit_learns_checks_with_early_stopping(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("kind, rate", [("symmetric", 0.3), ("pair", 0.45)])
def test_clean_validation_labels_tell_the_rate(kind, rate):
    x, given, y = few_digits(rate, kind, n=1500)
    clean = x[:200], y[:200]
    model = RobustClassifier(epochs=12, random_state=0, lr=0.005, batch_size=64)
    model.fit(x[200:], given[200:], validation_data=clean, validation_is_clean=True)
    wrong = (given != y)[200:].mean()
    assert model.noise_rate_ == model.noise_estimate_.rate == pytest.approx(wrong, abs=0.04)
    assert model.noise_estimate_.interval[0] <= wrong <= model.noise_estimate_.interval[1]


def test_noisy_validation_labels_choose_among_rates():
    x, given, _ = few_digits(0.5, n=500)
    model = RobustClassifier(epochs=4, random_state=0, lr=0.005, batch_size=64)
    model.fit(x[200:], given[200:], validation_data=(x[:200], given[:200]))
    tried = dict(model.noise_estimate_.tried)
    assert tried[model.noise_rate_] == max(tried.values())
    assert list(tried) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert model.noise_estimate_.interval[0] <= model.noise_rate_ <= model.noise_estimate_.interval[1]


# ---- classes of different sizes -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_share_of_each_class_is_kept_when_asked_for():
    """Small losses over all samples keep next to nothing of a class that is mostly wrong."""
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [200, 200, 30])
    x = random.normal(size=(430, 5)) + 3 * np.eye(3, 5)[y]
    given = np.where((y == 2) & (random.random(430) < 0.5), 0, y)
    options = {"noise_rate": 0.3, "epochs": 20}
    with pytest.warns(UserWarning, match="share is kept of the rare class 2: set keep_per_class=True"):
        plainly = quick(**options).fit(x, given)
    by_class = quick(keep_per_class=True, **options).fit(x, given)  # without a word
    assert (by_class.predict(x[y == 2]) == 2).mean() > (plainly.predict(x[y == 2]) == 2).mean()
    assert plainly.kept_share_[2] < 0.5 * plainly.kept_share_[:2].min()
    assert (by_class.kept_share_ > 0.69).all()


def test_the_kept_share_counts_from_the_end_of_the_ramp(clouds):
    assert (quick("standard").fit(*clouds).kept_share_ == 1).all()
    shares = quick(noise_rate=0.25, epochs=6, ramp=4, batch_size=40).fit(*clouds).kept_share_
    assert shares.shape == (3,)
    assert shares.mean() == pytest.approx(0.75)  # before its end more is kept
    shares = quick(noise_rate=0.25, epochs=2, ramp=2, batch_size=40).fit(*clouds).kept_share_
    assert shares.mean() == pytest.approx((0.875 + 0.75) / 2)


def test_starved_classes():
    even, counts = np.full(4, 0.8), np.array([100, 100, 10, 10])
    assert not starved(even, counts).any()
    assert starved(np.array([0.9, 0.8, 0.3, 0.8]), counts).tolist() == [False, False, True, False]
    assert not starved(np.array([0.9, 0.8, 0.3, 0.8]), np.array([100, 100, 1, 10])).any()  # one sample is chance
    assert starved(np.array([0.9, np.nan, 0.3, 0.8]), counts).tolist() == [False, False, True, False]
    assert not starved(np.array([0.9, 0.9, 0.1]), np.array([52, 48, 45])).any()  # not rarer than by chance
    assert not starved(np.full(3, np.nan), counts[:3]).any()
