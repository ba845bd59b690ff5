"""A fit that fails or is stopped leaves the model there was; one that succeeds replaces all of it at once."""

import numpy as np
import pandas as pd
import pytest
from torch import nn

from coteach import RobustClassifier
from coteach.classifier import fitting
from estimator_cases import quick, three_clouds

X, Y = three_clouds(60)
OTHER_LABELS = np.array(list("abc"))[Y]
TWO_CLASSES = np.array(["cat", "dog"])[Y % 2]


class Interrupted(nn.Module):
    """A linear network whose training ends with Ctrl-C, or with an error, at one of its steps."""

    left, error = 10**9, KeyboardInterrupt

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.layer = nn.Linear(n_features, n_classes)

    def forward(self, x):
        Interrupted.left -= 1
        if Interrupted.left < 0:
            raise Interrupted.error
        return self.layer(x)


def stopping_after(steps, error=KeyboardInterrupt):
    Interrupted.left, Interrupted.error = steps, error


@pytest.fixture(autouse=True)
def _never_stopped():
    yield
    stopping_after(10**9)


def learnt(classifier) -> dict:
    return {name: value for name, value in vars(classifier).items() if name.endswith("_")}


def refuse_change(classifier, before, answers):
    after = learnt(classifier)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert np.array_equal(classifier.predict_proba(X), answers)


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_refit_that_is_stopped_leaves_the_model_whole(steps, warm, error, tmp_path):
    classifier = quick(module=Interrupted, warm_start=warm, epochs=8).fit(X, TWO_CLASSES)
    before, answers = learnt(classifier), classifier.predict_proba(X)
    stopping_after(steps, error)
    with pytest.raises(error):
        classifier.fit(X * 9, TWO_CLASSES if warm else OTHER_LABELS)
    stopping_after(10**9)
    refuse_change(classifier, before, answers)
    classifier.save(tmp_path / "model.safetensors")
    again = RobustClassifier.load(tmp_path / "model.safetensors", module=Interrupted)
    assert np.array_equal(again.predict_proba(X), answers)


@pytest.mark.parametrize(
    "params, arguments",
    [
        ({"method": "cotraining"}, {"X": X[:, :1]}),
        ({}, {"X": X, "validation_data": (X, ["z"] * len(X))}),
        ({}, {"X": pd.DataFrame(X, columns=list("fghij")), "validation_is_clean": True}),
        ({"batch_size": 1, "module": lambda n_features, n_classes: nn.BatchNorm1d(5)}, {"X": X}),
    ],
    ids=["too narrow", "validation labels", "names", "batches of one"],
)
def test_a_refit_that_is_refused_leaves_the_model_whole(params, arguments):
    classifier = quick().fit(X, TWO_CLASSES)
    before, answers = learnt(classifier), classifier.predict_proba(X)
    with pytest.raises(ValueError):
        classifier.set_params(**params).fit(y=OTHER_LABELS, **arguments)
    refuse_change(classifier, before, answers)


def test_a_refit_leaves_nothing_of_the_model_before():
    classifier = quick().fit(pd.DataFrame(X, columns=list("fghij")), TWO_CLASSES)
    classifier.fit(X[:, :4], OTHER_LABELS)
    assert not hasattr(classifier, "feature_names_in_")
    assert classifier.predict(X[:, :4]).tolist() == quick().fit(X[:, :4], OTHER_LABELS).predict(X[:, :4]).tolist()


def test_a_warning_that_is_an_error_leaves_the_model_whole(monkeypatch):
    """That of a rare class is the last thing that fit does."""
    classifier = quick().fit(X, TWO_CLASSES)
    before, answers = learnt(classifier), classifier.predict_proba(X)
    monkeypatch.setattr(fitting, "starved", lambda *counts: np.array([True, False, False]))
    with pytest.raises(UserWarning, match="rare class 'a'"):
        classifier.fit(X, OTHER_LABELS)
    refuse_change(classifier, before, answers)


def test_a_warning_names_the_line_that_called_fit(monkeypatch):
    monkeypatch.setattr(fitting, "starved", lambda *counts: np.array([True, False, False]))
    with pytest.warns(UserWarning) as caught:
        quick(noise_rate="auto").fit(X[:6], Y[:6])
    assert [warning.filename for warning in caught] == [__file__] * 2


def test_a_model_that_is_asked_during_its_refit_answers_as_before():
    asked = []

    class Asking(nn.Linear):
        def forward(self, input):
            if asking:
                asked.append(classifier.predict(X).tolist())
            return super().forward(input)

    asking = False
    classifier = quick(module=lambda n_features, n_classes: Asking(n_features, n_classes), epochs=1)
    before = classifier.fit(X, TWO_CLASSES).predict(X).tolist()
    for network in classifier.networks_:
        network.forward = lambda x, layer=network: nn.Linear.forward(layer, x)
    asking = True
    classifier.fit(X, OTHER_LABELS)
    asking = False
    assert asked
    assert asked == [before] * len(asked)
