"""SelectiveTrainingClassifier: scikit-learn's contract, and what the rounds promise."""

import math
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.metrics import average_precision_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from coteach import SelectiveTrainingClassifier
from coteach.labels.folds import deal_folds
from coteach.labels.quality import likeliest_classes, quality_of_labels
from coteach.noise import corrupt
from coteach.selective.linear import Axes, fit_stack
from estimator_cases import four_clouds, three_clouds

CHECKED = [
    SelectiveTrainingClassifier(),
    SelectiveTrainingClassifier(rule="coteaching", noise_rate=0.1, rounds=2),
    SelectiveTrainingClassifier(GaussianNB(), rule="jocor", noise_rate=0.2, rounds=2, folds=2),
]
DEALT = "folds are dealt and samples kept by number, so a weight of two is not two samples"


def unlike(estimator: SelectiveTrainingClassifier) -> dict[str, str]:
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    return dict.fromkeys(names, DEALT)


def found(quality: np.ndarray, wrong: np.ndarray) -> float:
    """Average precision."""
    return float(average_precision_score(wrong, -quality))


@pytest.mark.filterwarnings("ignore:rounds unlearn")  # as they should of labels that were drawn at random
@parametrize_with_checks(CHECKED, expected_failed_checks=unlike)  # pyrefly: ignore
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


# ---- the rounds against the description, in plain Python -------------------------------------------------------


class Counting(ClassifierMixin, BaseEstimator):
    """Probability of a class for a word: how often the word came with it, and one more of each class."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = [(word, label) for (word,), label in zip(np.asarray(X).tolist(), y.tolist(), strict=True)]
        return self

    def predict_proba(self, X):
        rows = []
        for (word,) in np.asarray(X).tolist():
            counts = [1 + self.seen_.count((word, c)) for c in self.classes_.tolist()]
            rows.append([n / sum(counts) for n in counts])
        return np.array(rows)


def plain_scores(p, labels):
    """Of each class for each sample: its probability against what is usual of it, by ratio and by difference."""
    classes = range(len(p[0]))
    given = {c: [row[c] for row, label in zip(p, labels, strict=True) if label == c] for c in classes}
    usual = {c: sum(of) / len(of) if of else 1.0 for c, of in given.items()}
    return [[math.log((row[c] + 0.001) / (usual[c] + 0.001)) + row[c] - usual[c] for c in classes] for row in p]


def plain_doubt(p, labels):
    """One minus the quality of each label, in the words of the description."""
    doubts = []
    for scores, label in zip(plain_scores(p, labels), labels, strict=True):
        other = max(score for c, score in enumerate(scores) if c != label)
        doubts.append(1 - 1 / (1 + math.exp(other - scores[label])))
    return doubts


def plain_likeliest(p, labels):
    """The likeliest class of each sample and its lead, by Bayes: how often is a class given as this label?"""
    scores = plain_scores(p, labels)
    classes = range(len(p[0]))
    shares = [[math.exp(s) / sum(map(math.exp, row)) for s in row] for row in scores]
    given_as = [[0.0 for _ in classes] for _ in classes]
    for row, label in zip(shares, labels, strict=True):
        for c in classes:
            given_as[c][label] += row[c]
    given_as = [[n / sum(row) for n in row] for row in given_as]
    found = []
    for row, label in zip(scores, labels, strict=True):
        weights = [math.exp(row[c]) * (given_as[c][label] + 0.001) for c in classes]
        best, second = sorted(weights)[::-1][:2]
        found.append((weights.index(best), (best - second) / sum(weights)))
    return found


def plain_rounds(words, labels, folds, rule, rate, rounds, ramp):
    """Fit; keep the samples of small doubt; fit again. Each copy a list of the samples it learns from."""
    n_classes, n, copies = max(labels) + 1, len(words), len(folds)
    learnt, known = [list(range(n)) for _ in range(copies)], []

    def probabilities(copy):
        rows = []
        for i in range(n):
            mine = [j for j in learnt[copy] if folds[copy][j] != folds[copy][i]]
            counts = [1 + sum(words[j] == words[i] and labels[j] == c for j in mine) for c in range(n_classes)]
            counts = [k if any(labels[j] == c for j in mine) else 0 for c, k in enumerate(counts)]
            rows.append([k / sum(counts) for k in counts])
        return rows

    for number in range(1, rounds + 1):
        loss = [plain_doubt(probabilities(c), labels) for c in range(copies)]
        joint = [sum(mine[i] for mine in loss) for i in range(n)]
        by = [joint] * copies if rule == "jocor" else loss
        keep = math.ceil((1 - rate * min(number / ramp, 1)) * n - 1e-9)
        picked = [sorted(range(n), key=lambda i, mine=mine: (mine[i], i))[:keep] for mine in by]
        if rule == "coteaching":
            picked = picked[::-1]
        few = []
        for c in range(n_classes):
            of_class = [i for i in range(n) if labels[i] == c]
            few += sorted(of_class, key=lambda i: (joint[i], i))[:2]
        next_learnt = [sorted({*mine, *few}) for mine in picked]
        if number > ramp and next_learnt in known:
            break
        known.append(next_learnt)
        learnt = next_learnt
    return learnt, [probabilities(c) for c in range(copies)]


@pytest.mark.parametrize("rule", ["mentornet", "coteaching", "jocor"])
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_rounds_are_those_of_the_description(rule, rounds):
    rng = np.random.default_rng(rounds)
    truth = np.arange(40) % 3
    words, labels = (
        truth * 2 + rng.integers(2, size=40),
        np.where(rng.random(40) < 0.3, rng.integers(3, size=40), truth),
    )
    model = SelectiveTrainingClassifier(
        Counting(), rule, noise_rate=0.3, rounds=rounds, ramp=2, folds=4, neighbours=0, random_state=rng
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(random_state=np.random.RandomState(3)).fit(words[:, None], labels)
    seed = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    folds = [deal_folds(labels, 4, seed + n).tolist() for n in range(1 if rule == "mentornet" else 2)]
    learnt, p = plain_rounds(words.tolist(), labels.tolist(), folds, rule, 0.3, rounds, ramp=2)
    first = plain_rounds(words.tolist(), labels.tolist(), folds, rule, 0.3, 0, ramp=2)[1]
    assert [np.flatnonzero(kept).tolist() for kept in model.kept_] == learnt
    np.testing.assert_allclose(model.held_out_proba_, (np.mean(p, 0) + np.mean(first, 0)) / 2, atol=1e-9)


def test_the_likeliest_classes_are_those_of_the_description():
    rng = np.random.default_rng(0)
    labels, p = rng.integers(4, size=50), rng.dirichlet(np.ones(4) / 2, size=50)
    p[np.arange(50), labels] += 0.5
    p /= p.sum(1, keepdims=True)
    classes, lead = likeliest_classes([p], labels)
    expected = plain_likeliest(p.tolist(), labels.tolist())
    assert (classes != labels).any()
    assert classes.tolist() == [c for c, _ in expected]
    np.testing.assert_allclose(lead, [by for _, by in expected])


# ---- our own regressions ---------------------------------------------------------------------------------------


def test_regressions_of_a_stack_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 5)) * [1, 2, 3, 0.1, 1], rng.integers(3, size=200)
    x[np.arange(200), y] += 1.5
    counts_LM = np.stack([np.ones(200), np.arange(200) % 4 != 0, np.arange(200) % 3 + 1.0])
    axes = Axes.of(torch.from_numpy(x).float())
    x_MF = axes.along(torch.from_numpy(x).float())
    theta_LFC = fit_stack(
        x_MF, torch.from_numpy(y), torch.from_numpy(counts_LM).float(), axes.variance_F, 0.05, torch.zeros(3, 6, 3)
    )
    for counts_M, theta_FC in zip(counts_LM, theta_LFC, strict=True):
        plain = LogisticRegression(C=1 / (0.05 * counts_M.sum()), tol=1e-8, max_iter=1000)
        plain.fit(x / axes.scale, y, sample_weight=counts_M)
        p_MC = (x_MF @ theta_FC).double().softmax(-1).numpy()
        np.testing.assert_allclose(p_MC, plain.predict_proba(x / axes.scale), atol=2e-3)


def test_few_samples_of_many_features_have_axes_too():
    x = np.random.default_rng(0).integers(0, 2, (24, 1280)).astype(float)
    x[:, ::2] = 0  # with these the eigenvalues do not settle in float32
    y = np.arange(24) % 2
    x[:, 1] = 20 * y
    assert SelectiveTrainingClassifier(noise_rate=0, random_state=0, standardize=True).fit(x, y).score(x, y) == 1


def test_samples_that_do_not_count_change_nothing():
    x, y = three_clouds()[:2]
    axes = Axes.of(torch.from_numpy(x).float())
    x_MF, y_M = axes.along(torch.from_numpy(x).float()), torch.from_numpy(y)
    counts_LM = (torch.arange(len(y)) % 2 == 0)[None].float()
    start = torch.zeros(1, x_MF.shape[1], 3)
    all_of = fit_stack(x_MF, y_M, counts_LM, axes.variance_F, 0.1, start)
    half = fit_stack(x_MF[::2], y_M[::2], torch.ones(1, len(y_M[::2])), axes.variance_F, 0.1, start)
    torch.testing.assert_close(all_of, half, atol=1e-4, rtol=1e-3)


# ---- what it is for ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    x, truth = load_digits(return_X_y=True)
    return x[:700], truth[:700], corrupt(truth[:700], "pair", 0.3).labels, x[700:], truth[700:]


@pytest.mark.slow
def test_rounds_find_wrong_labels_that_one_fit_does_not(digits):
    x, truth, y, x_test, truth_test = digits
    once, often = (SelectiveTrainingClassifier(rounds=rounds, random_state=0).fit(x, y) for rounds in (0, 6))
    share = [found(model.label_quality_, y != truth) for model in (once, often)]
    assert share[1] > share[0] + 0.05
    assert share[1] > 0.93
    assert often.score(x_test, truth_test) > once.score(x_test, truth_test) + 0.05
    assert abs(often.noise_rate_ - 0.3) < 0.06
    worst = often.suspects()
    assert len(worst) == round(often.noise_rate_ * len(y))
    assert (worst.suggested == truth[worst.index])[:100].mean() > 0.9
    assert often.kept_.mean() == pytest.approx(1 - often.noise_rate_, abs=0.01)


def test_a_quality_below_half_means_that_another_class_is_likelier_against_what_is_usual():
    labels = np.array([0] * 6 + [1] * 4)
    sure = np.array([0.9, 0.9, 0.9, 0.9, 0.9, 0.6, 0.6, 0.6, 0.6, 0.6])  # of class 0: of class 1 nobody is sure
    p = np.stack([sure, 1 - sure], 1)
    quality, suggested = quality_of_labels([p], labels)
    assert (quality[:5] > 0.5).all()
    assert quality[5] < 0.5  # 0 is likelier than 1, yet less likely than it usually is of class 0
    assert (quality[6:] > 0.5).all()
    assert suggested.tolist() == [1] * 6 + [0] * 4
    same = quality_of_labels([p, p], labels)[0]
    np.testing.assert_allclose(same, quality)


@pytest.mark.parametrize("alike", [True, False], ids=["misspelt", "rare"])
def test_classes_of_two_samples_are_not_suggested_for_all_others(alike):
    rng = np.random.default_rng(0)
    truth, centres = rng.integers(0, 2, 300), rng.normal(size=(5, 10)) * 1.5
    rare = np.repeat([2, 3, 4], 2)
    at = np.append(truth, rare % 2 if alike else rare)
    x, y = centres[at] + rng.normal(size=(306, 10)), np.append(truth, rare)
    y[:60] = 1 - truth[:60]
    model = SelectiveTrainingClassifier(random_state=0).fit(x, y)
    assert model.score(centres[truth] + rng.normal(size=(300, 10)), truth) > 0.95
    assert (model.suggested_labels_[:300] > 1).mean() < 0.05
    assert abs(model.noise_rate_ - 0.2) < 0.05
    assert (model.suspects(0.15).index < 300).all()  # so few are neither trusted nor doubted most


def test_a_class_that_is_given_too_often_does_not_drive_out_the_others():
    rng = np.random.default_rng(1)
    x, truth = rng.normal(size=(600, 4)), np.arange(600) % 2
    x[:, 0] += 2.5 * truth
    y = np.where((truth == 1) & (rng.random(600) < 0.4), 0, truth)
    model = SelectiveTrainingClassifier(noise_rate=0.2, random_state=0).fit(x[:400], y[:400])
    left_out = ~model.kept_[0]
    assert (y[:400][left_out] == 0).mean() > 0.6  # only zeros are wrong
    assert model.predict(x[400:]).mean() > 0.35  # of 0.5 in truth
    assert model.score(x[400:], truth[400:]) > 0.8


def test_models_learn_corrected_labels_unless_told_that_none_is_wrong(digits):
    x, truth, y, x_test, truth_test = digits
    corrected, as_given, trusted = (
        SelectiveTrainingClassifier(random_state=0, **settings).fit(x, y)
        for settings in ({}, {"relabel": False}, {"noise_rate": 0})
    )
    assert (corrected.learnt_labels_ != truth).mean() < (y != truth).mean() / 3
    assert (as_given.learnt_labels_ == y).all()
    assert (trusted.learnt_labels_ == y).all()
    assert corrected.score(x_test, truth_test) > as_given.score(x_test, truth_test)


def test_no_class_vanishes_when_labels_are_corrected():
    x, y = three_clouds()[:2]
    y[:3] = 3  # which nothing speaks for but the labels
    model = SelectiveTrainingClassifier(noise_rate=0.1, random_state=0).fit(x, y)
    assert set(model.learnt_labels_) == {0, 1, 2, 3}


def test_the_rounds_end_when_nothing_changes():
    x, y = three_clouds()[:2]
    model = SelectiveTrainingClassifier(noise_rate=0.1, rounds=50, random_state=0).fit(x, y)
    assert 3 <= len(model.history_) - 1 < 20
    assert model.history_[-1]["kept"] == [math.ceil(0.9 * len(y))]


def test_where_rounds_unlearn_the_labels_all_samples_are_learnt_from_and_it_says_so():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0)  # all true: half of them left out are lost to no gain
    y[x.sum(1) > 1.2] = 0
    with pytest.warns(UserWarning, match="unlearn more of the given labels"):
        model = SelectiveTrainingClassifier(noise_rate=0.7, rounds=8, neighbours=0, random_state=0).fit(x, y)
    assert model.kept_.all()


def test_it_takes_tables_with_words_and_gaps_if_the_estimator_does():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    truth = np.arange(120) % 2
    number = truth + rng.normal(scale=0.3, size=120)
    number[::7] = np.nan
    colour = pandas.Categorical(np.where(rng.random(120) < 0.9, truth, 1 - truth).astype(str))
    table = pandas.DataFrame({"number": number, "colour": colour})
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=10, random_state=0)
    y = np.where(np.arange(120) % 10 == 3, 1 - truth, truth)
    model = SelectiveTrainingClassifier(trees, noise_rate=0.1, rounds=2, folds=3, random_state=0).fit(table, y)
    assert model.score(table, truth) > 0.9
    assert found(model.label_quality_, y != truth) > 0.8
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["number", "colour"]


@pytest.mark.parametrize("made", ["csr_matrix", "csc_matrix", "coo_array"])
def test_it_takes_sparse_tables_if_the_estimator_does(made):
    x, y = three_clouds()[:2]
    x = np.where(x > 0, x, 0)
    table = getattr(scipy.sparse, made)(x)
    model, dense = (
        SelectiveTrainingClassifier(LogisticRegression(), noise_rate=0.1, neighbours=0, random_state=0).fit(of, y)
        for of in (table, x)
    )
    np.testing.assert_allclose(model.predict_proba(table), dense.predict_proba(x), atol=1e-3)
    np.testing.assert_allclose(model.label_quality_, dense.label_quality_, atol=1e-2)


def test_it_takes_texts_and_images_if_the_estimator_does():
    truth = np.arange(60) % 2
    texts = [f"{'good' if t else 'bad'} number {n}" for n, t in enumerate(truth)]
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    images = truth[:, None, None, None] * np.ones((60, 1, 2, 2))
    flat = make_pipeline(FunctionTransformer(lambda x: x.reshape(len(x), -1)), LogisticRegression())
    for estimator, x in ((words, texts), (words, np.array(texts)), (flat, images)):
        model = SelectiveTrainingClassifier(estimator, noise_rate=0.1, rounds=1, random_state=0).fit(x, truth)
        assert model.score(x, truth) == 1


@pytest.mark.parametrize("standardize", ["auto", False])
@pytest.mark.parametrize("scale, offset", [(1e-30, 0), (1e30, 0), (1e100, 0), (1, 1e9)])
def test_neither_the_unit_nor_the_zero_of_features_matters(scale, offset, standardize):
    x, y = three_clouds()[:2]
    model, moved = (
        SelectiveTrainingClassifier(standardize=standardize, random_state=0).fit(z, y)
        for z in (x, x * scale + offset)
    )
    np.testing.assert_allclose(moved.label_quality_, model.label_quality_, atol=1e-3)
    np.testing.assert_allclose(moved.predict_proba(x * scale + offset), model.predict_proba(x), atol=1e-3)


@pytest.mark.parametrize("estimator", [None, LogisticRegression(), HistGradientBoostingClassifier(max_iter=3)])
@pytest.mark.parametrize("y", [[0, 1], [0, 1, 1], [0] + [1] * 9], ids=len)
def test_a_class_may_have_one_sample_only(y, estimator):
    x = np.random.default_rng(0).normal(size=(len(y), 3))
    model = SelectiveTrainingClassifier(estimator, random_state=0).fit(x, y)
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1)


def test_weights_reach_the_estimator_or_are_refused():
    x, y = three_clouds()[:2]
    weight = np.where(y == 0, 5.0, 1.0)
    plain, weighed = (
        SelectiveTrainingClassifier(LogisticRegression(), noise_rate=0, rounds=0, random_state=0).fit(x, y, w)
        for w in (None, weight)
    )
    expected = LogisticRegression().fit(x, y, weight)
    np.testing.assert_allclose(weighed.predict_proba(x), expected.predict_proba(x))
    assert abs(plain.predict_proba(x) - weighed.predict_proba(x)).max() > 0.01
    with pytest.raises(ValueError, match="KNeighborsClassifier takes no sample_weight"):
        SelectiveTrainingClassifier(KNeighborsClassifier()).fit(x, y, weight)


@pytest.mark.slow
def test_warm_starts_end_where_cold_ones_do(digits):
    x, _, y, *_ = digits
    x, y = x[:200] / 16, y[:200]
    base = LogisticRegression(max_iter=500, tol=1e-7)
    cold, warm = (
        SelectiveTrainingClassifier(
            clone(base).set_params(warm_start=on), noise_rate=0.3, rounds=2, random_state=0
        )
        for on in (False, True)
    )
    np.testing.assert_allclose(cold.fit(x, y).held_out_proba_, warm.fit(x, y).held_out_proba_, atol=2e-3)


def test_a_warm_start_leaves_no_trees_of_earlier_labels(digits):
    x, _, y, *_ = digits
    cold, warm = (
        SelectiveTrainingClassifier(
            RandomForestClassifier(5, warm_start=on, random_state=0),
            noise_rate=0.3,
            rounds=2,
            folds=2,
            random_state=0,
        ).fit(x[:200], y[:200])
        for on in (False, True)
    )
    np.testing.assert_array_equal(cold.predict_proba(x[200:300]), warm.predict_proba(x[200:300]))


def test_only_the_proportions_of_weights_matter_to_the_votes_of_neighbours():
    x, y = four_clouds()
    one, thousandth = (
        SelectiveTrainingClassifier(noise_rate=0.1, random_state=0).fit(
            x, y, sample_weight=np.full(len(y), weight)
        )
        for weight in (1, 1e-3)
    )
    assert one.neighbour_model_ is not None
    np.testing.assert_allclose(
        one.neighbour_model_.predict_proba(x), thousandth.neighbour_model_.predict_proba(x), atol=1e-6
    )


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"rule": "decoupling"}, "rule"),
        ({"relabel": "no"}, "relabel is 'no': give True or False"),
        ({"keep_per_class": 1}, "keep_per_class is 1: give True or False"),
        ({"folds": 1}, "folds is 1"),
        ({"folds": 0}, "auto"),
        ({"rounds": -1}, "rounds is -1"),
        ({"noise_rate": 1.0}, "noise_rate is 1.0"),
        ({"estimator": Perceptron()}, "Perceptron has no predict_proba"),
        ({"estimator": GaussianNB}, "give a classifier such as RandomForestClassifier()"),
        ({"estimator": "forest"}, "estimator is 'forest': give a classifier"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(parameters, message):
    x, y = three_clouds()[:2]
    with pytest.raises(ValueError, match=message):
        SelectiveTrainingClassifier(**parameters).fit(x, y)


@pytest.mark.parametrize("rule", ["mentornet", "coteaching"])
def test_without_folds_it_takes_the_losses_of_what_is_learnt(rule, digits):
    x, truth, y, *_ = digits
    model = SelectiveTrainingClassifier(rule=rule, noise_rate=0.3, folds=0, random_state=0).fit(x, y)
    assert found(model.label_quality_, y != truth) > 0.9


def test_the_same_seed_gives_the_same_and_another_other_folds(digits):
    x, _, y, *_ = digits
    one, same, other = (
        SelectiveTrainingClassifier(random_state=s, rounds=1).fit(x[:200], y[:200]) for s in (0, 0, 1)
    )
    assert (one.label_quality_ == same.label_quality_).all()
    assert (one.label_quality_ != other.label_quality_).any()


def test_a_refit_that_fails_leaves_the_model_there_was():
    x, y = np.repeat(np.eye(2), 20, axis=0), np.array(["cat"] * 20 + ["dog"] * 20)
    model = SelectiveTrainingClassifier(noise_rate=0.1, rounds=1).fit(x, y)
    before = model.predict(x).tolist()
    with pytest.raises(ValueError, match="one class only"):
        model.fit(np.ones((6, 5)), ["fish"] * 6)
    assert model.n_features_in_ == 2
    assert model.predict(x).tolist() == before
