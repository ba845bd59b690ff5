"""To cleanlab and back, on plain arrays; and with cleanlab itself where it is installed."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import coteach
from coteach.labels.cleanlab import issues_of, issues_table, suspects_from_issues, suspects_from_scores
from coteach.labels.estimate import estimate_noise
from coteach.labels.ledger import Suspects, suspects

PAGE = Path(__file__).parents[1] / "docs/cleanlab.md"
QUALITIES = [0.0, 0.25, 0.5, 0.75, 1.0]


@st.composite
def judged(draw):
    """Labels with a quality, many of them equal, and for each another class."""
    n = draw(st.integers(1, 12))
    labels = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    steps = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
    quality = np.array(draw(st.lists(st.sampled_from(QUALITIES), min_size=n, max_size=n)))
    return labels, quality, (labels + steps) % 4, draw(st.floats(0, 1))


def same(one: Suspects, other: Suspects) -> bool:
    names = ("index", "given", "suggested", "quality")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@given(judged())
def test_there_and_back_are_the_same_suspects(drawn):
    labels, quality, suggested, share = drawn
    expected = suspects(labels, quality, suggested, share)
    table = issues_table(*drawn)
    assert list(table) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert same(suspects_from_issues(table), expected)
    names = np.array(["a", "b", "c", "d"])
    assert same(suspects_from_issues(table, names), suspects(names[labels], quality, names[suggested], share))


@given(judged())
def test_the_rows_of_a_table_are_those_of_the_samples(drawn):
    labels, quality, suggested, share = drawn
    table = issues_table(*drawn)
    assert table["is_label_issue"].sum() == round(share * len(labels))
    assert np.array_equal(table["given_label"], labels)
    assert np.array_equal(table["label_quality"], quality)
    for i, doubted in enumerate(table["is_label_issue"]):
        expected = suggested[i] if doubted or quality[i] < 0.5 else labels[i]
        assert table["predicted_label"][i] == expected
    if 0 < table["is_label_issue"].sum() < len(labels):
        assert quality[table["is_label_issue"]].max() <= quality[~table["is_label_issue"]].min()


def test_a_classifiers_issues_are_its_suspects(dataset):
    names = np.array(["pear", "apple", "fig"])  # not in the order of their names
    y = names[np.where(np.arange(120) % 10 == 0, (dataset.y_train.numpy() + 1) % 3, dataset.y_train.numpy())]
    classifier = coteach.RobustClassifier(noise_rate=0.1, epochs=5, lr=0.02, random_state=0)
    classifier.fit(dataset.x_train.numpy(), y)
    table = issues_of(classifier)
    assert np.array_equal(classifier.classes_[table["given_label"]], y)
    assert table["is_label_issue"].sum() == 12
    assert same(suspects_from_issues(table, classifier.classes_), classifier.suspects())
    assert issues_of(classifier, share=0.5)["is_label_issue"].sum() == 60
    assert not issues_of(classifier, share=0)["is_label_issue"].any()
    with pytest.raises(ValueError, match="share is 2"):
        issues_of(classifier, share=2)


def test_a_classifier_that_is_not_fitted_has_no_issues():
    with pytest.raises(NotFittedError):
        issues_of(coteach.RobustClassifier())


def probabilities(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Networks that are nearly sure of the right class, and labels of which every fifth is wrong."""
    truth = np.arange(n) % 3
    p = np.full((n, 3), 0.02)
    p[np.arange(n), truth] = 0.9
    p[np.arange(n), (truth + 1) % 3] = 0.08
    return p, np.where(np.arange(n) % 5 == 0, (truth + 2) % 3, truth)


def test_scores_become_suspects():
    p, labels = probabilities()
    quality = p[np.arange(len(p)), labels]
    found = suspects_from_scores(labels, quality, p)
    assert len(found) == round(estimate_noise(p, labels).rate * len(p)) == 40
    assert found.index.tolist() == list(range(0, 200, 5))
    assert np.array_equal(found.suggested, np.arange(0, 200, 5) % 3)
    assert found.quality.tolist() == [0.02] * 40
    few = suspects_from_scores(labels, quality, p, share=0.01, classes=["x", "y", "z"])
    assert (few.index.tolist(), few.given.tolist(), few.suggested.tolist()) == ([0, 5], ["z", "y"], ["x", "z"])


def test_the_suggestion_is_never_the_given_label():
    p, labels = probabilities()
    everyone = suspects_from_scores(labels, np.ones(200), p, share=1)
    assert (everyone.suggested != everyone.given).all()
    sure = np.eye(3)[labels]  # no other class has any probability
    assert (suspects_from_scores(labels, np.ones(200), sure, share=1).suggested != labels).all()
    assert p.max() == 0.9  # the caller's probabilities are left alone


def test_mistakes_are_told():
    p, labels = probabilities()
    with pytest.raises(ValueError, match="one number from 0 to 1"):
        issues_table([0, 1], [0.5, 1.5], [1, 0], 0.5)
    with pytest.raises(ValueError, match="one number from 0 to 1"):
        issues_table([0, 1], [0.5, np.nan], [1, 0], 0.5)
    with pytest.raises(ValueError, match="one label per sample"):
        issues_table([0, 1, 1], [0.5, 0.5], [1, 0], 0.5)
    with pytest.raises(ValueError, match="one label per sample"):
        issues_table([0, 1], [0.5, 0.5], [1], 0.5)
    with pytest.raises(ValueError, match="share is -1"):
        issues_table([0, 1], [0.5, 0.5], [1, 0], -1)
    with pytest.raises(ValueError, match="no column predicted_label"):
        suspects_from_issues({"is_label_issue": [True], "label_quality": [0.5], "given_label": [1]})
    with pytest.raises(ValueError, match="one label per sample"):
        suspects_from_scores(labels, np.ones(3), p)
    with pytest.raises(ValueError, match="share is 7"):
        suspects_from_scores(labels, np.ones(200), p, share=7)
    with pytest.raises(ValueError, match="apply softmax"):
        suspects_from_scores(labels, np.ones(200), 2 * p)


# ---- with cleanlab itself -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")  # cleanlab's own are not ours to mend
def test_the_pages_lines_run_with_cleanlab():
    pytest.importorskip(
        "cleanlab", reason="cleanlab is not among the tests' packages: pip install cleanlab==2.9.0"
    )
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    wrong = names["wrong"]
    assert wrong.sum() == 348
    assert names["learner"].score(names["x"], names["truth"]) > 0.95
    assert wrong[names["is_issue"]].mean() > 0.8
    assert abs(names["estimate"].rate - wrong.mean()) < 0.03
    assert np.allclose(names["matching"].noise_matrix, names["estimate"].matrix.T)
    for found in (names["by_scores"], names["by_table"]):
        assert wrong[found.index].mean() > 0.8
        assert np.all(np.diff(found.quality) >= 0)
    assert same(names["back_again"], names["classifier"].suspects())
