"""Any torch optimiser in RobustClassifier: by name, by class, with options that it knows."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from coteach import networks
from coteach.classifier.options import TORCHS, plan_fields
from coteach.engine.setup import choose_engine
from coteach.methods import METHODS
from coteach.plan import Plan
from estimator_cases import PAIRS, quick, three_clouds

REFUSED = ("lbfgs", "sparseadam", "muon")
WORKING = sorted(TORCHS.keys() - set(REFUSED))


@pytest.fixture
def clouds():
    return three_clouds()


@pytest.mark.parametrize("name", WORKING)
def test_every_optimiser_of_torch_learns(name, clouds):
    """Adadelta and Rprop have scales of their own."""
    lr = {"adadelta": 1.0, "asgd": 0.5, "sgd": 0.1}.get(name, 0.02)
    assert quick(optimizer=name, lr=lr, epochs=8).fit(*clouds).score(*clouds) > 0.9


@pytest.mark.parametrize("method", PAIRS)
def test_every_method_learns_with_another_optimiser(method):
    x, y = three_clouds()
    x = np.hstack([x, x])  # each half of a sample tells its class
    assert quick(method, optimizer=torch.optim.AdamW, epochs=8).fit(x, y).score(x, y) > 0.9


@pytest.mark.slow
def test_names_and_classes_are_the_same_and_options_reach_them(clouds):
    def answers(**options):
        return quick(**options).fit(*clouds).predict_proba(clouds[0])

    assert (answers(optimizer="AdamW") == answers(optimizer=torch.optim.AdamW)).all()
    assert (answers(optimizer="Adam") == answers()).all()
    assert (answers(optimizer=torch.optim.Adam) == answers()).all()
    assert (answers(optimizer="rmsprop", optimizer__alpha=0.5) != answers(optimizer="rmsprop")).any()
    assert (answers(optimizer__amsgrad=True, optimizer__betas=(0.5, 0.9)) != answers()).any()
    same = {"optimizer__betas": (0.9, 0.999)}  # torch's defaults, but no longer our faster form
    np.testing.assert_allclose(answers(**same), answers(), atol=1e-5)


def test_the_learning_rate_follows_the_schedule(clouds):
    rates = []

    class Telling(torch.optim.SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            super().step(closure)

    quick("standard", optimizer=Telling, epochs=5, lr=0.1, batch_size=120).fit(*clouds)
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.075, 0.05, 0.025])


@pytest.mark.parametrize(
    "optimizer, options, expected",
    [
        ("adam", {}, Plan()),
        (torch.optim.Adam, {"weight_decay": 0.1}, Plan(weight_decay=0.1)),
        ("sgd", {}, Plan(optimizer="sgd", momentum=0.9)),
        (torch.optim.SGD, {}, Plan(optimizer="sgd", momentum=0.0)),
        ("sgd", {"momentum": 0.5}, Plan(optimizer="sgd", momentum=0.5)),
        (
            "sgd",
            {"dampening": 0.1},
            Plan(optimizer="SGD", optimizer_options=(("momentum", 0.9), ("dampening", 0.1))),
        ),
        (torch.optim.RMSprop, {}, Plan(optimizer="RMSprop")),
    ],
)
def test_what_a_plan_says_of_it(optimizer, options, expected):
    assert Plan(**plan_fields(optimizer, options)) == expected


def test_only_our_own_optimisers_are_captured_on_a_gpu():
    network = networks.build("mlp", shape=(64,), n_classes=10)
    for optimizer, captured in (("adam", True), ("sgd", True), ("AdamW", False)):
        engine = choose_engine(network, 2, METHODS["coteaching"], Plan(optimizer=optimizer), 1000, "cuda")
        assert engine.captured is captured


def test_grid_search_over_optimisers(clouds):
    grid = {"optimizer": ["adam", torch.optim.AdamW], "optimizer__weight_decay": [0.0, 0.1]}
    search = GridSearchCV(quick(), grid, cv=2, error_score="raise").fit(*clouds)
    assert len(search.cv_results_["mean_test_score"]) == 4
    model = quick(optimizer=torch.optim.AdamW, optimizer__weight_decay=0.1)
    assert clone(model).get_params() == model.get_params()


class NoRate(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=0.1)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"optimizer": "adaw"}, "there is no optimizer 'adaw' .did you mean 'adamw'"),
        ({"optimizer": 3}, "optimizer is 3"),
        ({"optimizer": torch.nn.Linear}, "give a class of torch.optim"),
        ({"optimizer": "lbfgs"}, "LBFGS computes the loss again"),
        ({"optimizer": torch.optim.SparseAdam}, "SparseAdam needs sparse gradients"),
        ({"optimizer": "muon"}, "Muon refuses this network"),
        ({"optimizer": NoRate}, "NoRate has no argument lr"),
        ({"optimizer__momentum": 0.5}, "there is no option of Adam 'momentum'"),
        ({"optimizer__lr": 0.5}, "there is no option of Adam 'lr'"),
        ({"optimizer": "adamw", "optimizer__weight_decays": 1}, "did you mean 'weight_decay'"),
        ({"optimizer__weight_decay": -1}, "Adam refuses this network or its options .Invalid weight_decay"),
        ({"optimizer": "sgd", "optimizer__momentum": "much"}, "SGD refuses"),
    ],
)
def test_what_cannot_be_is_told(options, message, clouds):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(*clouds)
