"""RobustClassifier among scikit-learn's tools, and what it promises beyond them."""

import io
import json
import re

import joblib
import numpy as np
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from coteach import METHODS, RobustClassifier, noise
from coteach.classifier.options import plan_of
from coteach.data import load
from coteach.networks.models import MLP
from coteach.stages import listening
from estimator_cases import PAIRS, TRAINABLE, Dropping, quick, three_clouds


@pytest.fixture
def clouds():
    return three_clouds()


SMALL = [RobustClassifier(name, noise_rate=0.2, epochs=5, lr=0.01, module__hidden=(32,)) for name in PAIRS]


@parametrize_with_checks(SMALL)  # pyrefly: ignore[missing-argument]
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_method_learns_and_answers_in_the_users_labels(name, clouds):
    x, y = np.hstack([clouds[0]] * 2), clouds[1]  # each half of a sample tells its class
    words = np.array(["ash", "birch", "cedar"], dtype=object)[y]
    model = quick(name, epochs=6).fit(x, words)
    p = model.predict_proba(x)
    assert list(model.classes_) == ["ash", "birch", "cedar"]
    assert p.shape == (120, 3)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-6)
    assert (p >= 0).all()
    assert (p <= 1).all()
    assert (model.predict(x) == model.classes_[p.argmax(1)]).all()
    assert model.score(x, words) > 0.9
    assert len(model.networks_) == METHODS[name].networks


@pytest.mark.slow
def test_it_beats_plain_training_where_two_fifths_of_the_labels_are_wrong():
    digits = load("digits")
    x, y, x_test, y_test = (
        tensor.numpy() for tensor in (digits.x_train, digits.y_train, digits.x_test, digits.y_test)
    )
    for seed in (1, 2):
        given = noise.corrupt(y, "symmetric", 0.4, 10, seed).labels
        options = {"noise_rate": 0.4, "epochs": 40, "random_state": seed}
        plain = RobustClassifier("standard", **options).fit(x, given).score(x_test, y_test)
        assert RobustClassifier("coteaching", **options).fit(x, given).score(x_test, y_test) > plain + 0.02


# ---- scikit-learn's tools -------------------------------------------------------------------------------------


def test_grid_search_over_the_module_and_the_optimiser(clouds):
    x, y = clouds
    grid = {"module__hidden": [(4,), (8, 6)], "optimizer__weight_decay": [0.0, 0.1]}
    search = GridSearchCV(quick(), grid, cv=2, error_score="raise").fit(x, y)
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 4
    for hidden in grid["module__hidden"]:
        widths = [m.out_features for m in clone_with(search, hidden).fit(x, y).networks_[0].hidden[::2]]
        assert tuple(widths) == hidden
    assert search.best_estimator_.get_params()["module__hidden"] == search.best_params_["module__hidden"]


def clone_with(search, hidden):
    return clone(search.best_estimator_).set_params(module__hidden=hidden)


def test_inside_a_pipeline_and_a_cross_validation(clouds):
    x, y = clouds
    pipeline = make_pipeline(MinMaxScaler(), quick())
    assert pipeline.fit(x, y).score(x, y) > 0.9
    pipeline.set_params(robustclassifier__module__hidden=(7,)).fit(x, y)
    assert pipeline[-1].networks_[0].output.in_features == 7
    p = cross_val_predict(quick(), x, y, cv=3, method="predict_proba")
    assert (p.argmax(1) == y).mean() > 0.9


@pytest.mark.slow
def test_in_processes_as_in_this_one(clouds):
    x, y = clouds
    one, two = (cross_val_predict(quick(), x, y, cv=2, method="predict_proba", n_jobs=n) for n in (1, 2))
    assert (one == two).all()
    grid = {"optimizer": ["adam", torch.optim.AdamW], "module__hidden": [(4,)]}
    search = GridSearchCV(
        make_pipeline(MinMaxScaler(), quick()),
        {f"robustclassifier__{k}": v for k, v in grid.items()},
        cv=2,
        n_jobs=2,
    )
    assert search.fit(x, y).score(x, y) > 0.9
    get_reusable_executor().shutdown(wait=True)  # joblib keeps its processes, which other tests see


def test_options_of_module_and_optimiser_survive_clone_and_set_params():
    model = RobustClassifier(module=MLP, module__hidden=(3,), optimizer__weight_decay=0.1)
    assert clone(model).get_params() == model.get_params()
    assert model.get_params()["module__hidden"] == (3,)
    assert "module__hidden=(3,)" in repr(model)
    other = clone(model).set_params(module__hidden=(5,), epochs=2)
    assert (model.get_params()["module__hidden"], other.get_params()["module__hidden"]) == ((3,), (5,))
    assert other.epochs == 2
    with pytest.raises(TypeError, match="no parameter 'epoch'"):
        RobustClassifier(epoch=3)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=3)


def test_weight_decay_and_momentum_reach_the_optimiser(clouds):
    def size(**options):
        return sum(p.square().sum() for p in quick(**options).fit(*clouds).networks_[0].parameters()).item()

    assert size(optimizer__weight_decay=1.0) < 0.5 * size()
    assert size(optimizer="sgd", optimizer__momentum=0.0) != size(optimizer="sgd", optimizer__momentum=0.9)


def test_it_goes_through_joblib(clouds):
    x, y = clouds
    model, file = quick().fit(x, y), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    assert (joblib.load(file).predict_proba(x) == model.predict_proba(x)).all()


# ---- modules --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_module_may_be_a_name_a_class_a_factory_or_an_instance(clouds):
    x, y = clouds
    for module, options in (
        ("mlp3", {}),
        (MLP, {"module__hidden": (9,)}),
        (Dropping, {"module__width": 16}),
        (lambda shape, n_outputs: nn.Linear(shape[0], n_outputs), {}),
        (Dropping(5, 3), {}),
    ):
        model = quick(module=module, epochs=10, **options).fit(x, y)
        assert model.score(x, y) > 0.9
        assert not any(network.training for network in model.networks_)
    assert quick(module=Dropping, module__width=11).fit(x, y).networks_[1].layers[0].out_features == 11


def test_an_instance_is_left_alone_and_every_network_drawn_anew_apart_from_frozen_layers(clouds):
    module = Dropping(5, 3)
    module.layers[0].requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    one, two = quick(module=module, lr=1e-9).fit(*clouds).networks_
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(one.layers[0].weight, module.layers[0].weight)
    assert torch.equal(one.layers[0].weight, two.layers[0].weight)
    weights = [network.layers[2].weight for network in (module, one, two)]
    assert not any(torch.allclose(weights[i], weights[j], atol=1e-3) for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("name", PAIRS)
def test_the_networks_are_plain_modules_whose_mean_is_the_answer(name, clouds):
    x, y = clouds
    model = quick(name).fit(x, y)
    one, two = model.inputs(x), model.inputs(x)
    if name == "cotraining":  # each sees its half
        one[:, 3:], two[:, :3] = 0, 0
    with torch.no_grad():
        p = [model.networks_[n](view).softmax(-1).numpy() for n, view in enumerate((one, two))]
    assert model.networks_proba(x).shape == (2, 120, 3)
    np.testing.assert_allclose(model.networks_proba(x), p, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(x), (p[0] + p[1]) / 2, atol=1e-6)


# ---- randomness, history, warm start --------------------------------------------------------------------------


@pytest.mark.parametrize("module", [None, Dropping])
def test_the_same_seed_gives_the_same_answers(module, clouds):
    x, y = clouds

    def answers(random_state):
        return quick(module=module, random_state=random_state).fit(x, y).predict_proba(x)

    assert (answers(3) == answers(3)).all()
    assert (answers(3) != answers(4)).any()
    assert (answers(np.random.RandomState(5)) == answers(np.random.RandomState(5))).all()
    assert (answers(None) != answers(None)).any()


@pytest.mark.parametrize("module", [None, Dropping])
@pytest.mark.parametrize("random_state", [None, 3])
def test_fit_and_predict_leave_the_global_state_as_it_was(module, random_state, clouds):
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state(), np.random.get_state()
        quick(module=module, random_state=random_state).fit(*clouds).predict(clouds[0])
        assert torch.equal(torch.get_rng_state(), before[0])
        for a, b in zip(np.random.get_state(), before[1], strict=True):
            np.testing.assert_array_equal(a, b)
        assert torch.get_num_threads() == 2
        assert torch.is_grad_enabled()
    finally:
        torch.set_num_threads(1)


def test_history_has_a_row_an_epoch_and_says_nothing_that_is_not_known(clouds):
    history = quick("f_correction", epochs=4).fit(*clouds).history_
    assert [row["epoch"] for row in history] == [1, 2, 3, 4]
    history = quick(noise_rate=0.25, epochs=4, ramp=2, batch_size=40).fit(*clouds).history_
    assert [row["keep_rate"] for row in history] == [0.875, 0.75, 0.75, 0.75]
    assert [row["kept"] for row in history] == [35, 30, 30, 30]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert set(history[0]) == {"epoch", "train_loss", "disagreement", "kept", "keep_rate", "events"}
    json.dumps(history)


@pytest.mark.parametrize("name", ["coteaching_plus", "coteaching_plus_own", "decoupling"])
def test_no_method_starts_dead(name, clouds):
    """Without a warm-up nothing would be learnt once both networks predict one class."""
    for epochs in (1, 2, 3):
        assert quick(name, epochs=epochs).fit(*clouds).history_[0]["kept"] > 1


def test_warm_start_goes_on_where_it_stopped(clouds):
    x, y = clouds
    model = quick(warm_start=True).fit(x, y)
    first = model.networks_[0].output.weight.clone()
    model.set_params(lr=1e-9, epochs=2).fit(x, y)
    torch.testing.assert_close(model.networks_[0].output.weight, first)
    assert [row["epoch"] for row in model.history_] == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="warm_start"):
        model.fit(x, y + 1)
    model.set_params(warm_start=False).fit(x, y)
    assert len(model.history_) == 2
    assert not torch.allclose(model.networks_[0].output.weight, first)


def test_a_bar_is_shown_when_asked_for(clouds, capsys):
    quick().fit(*clouds)
    assert capsys.readouterr().out == ""
    quick(verbose=1).fit(*clouds)
    assert "3/3" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:the noise rate is hardly known")  # after so few epochs
@pytest.mark.parametrize(
    "method, options, parts, total",
    [
        ("coteaching", {}, 5, "15/15"),  # folds
        ("f_correction", {"validation_is_clean": True}, 5, "15/15"),
        ("coteaching", {"validation_is_clean": False}, 8, "24/24"),  # rates
        ("f_correction", {"validation_is_clean": False}, 8, "24/24"),  # Co-teaching stands in for it
    ],
)
def test_the_bar_counts_the_epochs_of_the_estimate_too(method, options, parts, total, clouds, capsys):
    given = options | {"validation_data": clouds} if options else {}
    stages: list[str] = []
    with listening(stages.append):
        quick(method, noise_rate="auto", verbose=1).fit(*clouds, **given)
    steps = [f"estimating the noise rate {k} of {parts}" for k in range(1, parts + 1)]
    assert stages == [*steps, f"training {method}"]
    estimate, training = capsys.readouterr().out.splitlines()[-2:]
    assert re.search(f"{steps[-1]} .* {total} ", estimate)
    assert re.search(rf"training {method} .* (3/3|6/6) ", training)


# ---- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"method": "coteachin"}, "did you mean 'coteaching'"),
        ({"method": "coteaching+"}, "did you mean 'coteaching_plus'"),
        ({"method": "f_correction_known"}, "only for `coteach run`, because it needs the true transition matrix"),
        ({"method": "iterative"}, "only for `coteach run`, because it is for images of no class"),
        ({"loss": "hinge"}, "there is no loss 'hinge': choose"),
        ({"warmup_loss": "hinge"}, "there is no loss 'hinge': choose"),
        ({"loss": "gce", "warmup_loss": "gce"}, "warmup_loss is gce, as loss is: leave it out, or give another."),
        ({"method": "f_correction", "warmup_loss": "gce"}, "f_correction has no warm-up: leave warmup_loss out."),
        ({"loss": "gce", "warmup_loss": "mae", "warmup": 0}, "warmup_loss needs a warm-up, and it has no epochs"),
        ({"patience": 0}, "patience is 0"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"early_stopping": True, "validation_fraction": 0.001}, "no sample of any class"),
        ({"noise_rate": "much"}, "noise_rate is 'much'"),
        ({"noise_rate": 1.0}, "noise_rate is 1.0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": "many"}, "epochs is 'many'"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"lr": 0}, "lr is 0"),
        ({"device": "tpu"}, "there is no device"),
        ({"device": "mps"}, "device is mps, but .* float64"),
        ({"module": 3}, "module is 3"),
        ({"module": lambda: 3}, "module makes int"),
        ({"module": "mlpp"}, "there is no network"),
        ({"module": nn.Linear(5, 2)}, r"logits of shape \(2, 3\)"),
        ({"module": nn.Linear(5, 3), "module__bias": False}, "module is an instance"),
        ({"module__depth": 3}, "cannot be built"),
    ],
)
def test_a_mistake_in_an_argument_is_told_by_fit(options, message, clouds):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(*clouds)


def test_a_warm_up_may_have_a_loss_of_its_own(clouds):
    plain = quick(epochs=4).fit(*clouds).history_
    assert quick(epochs=4, loss="mae").fit(*clouds).history_[0] != plain[0]
    for warmup in (2, None):  # by default three quarters of so few epochs
        both = quick(epochs=4, loss="mae", warmup=warmup, warmup_loss="cross_entropy").fit(*clouds).history_
        assert [row["train_loss"] == other["train_loss"] for row, other in zip(both, plain, strict=True)] == [
            row["epoch"] <= (warmup or 3) for row in plain
        ]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, ("softmax_twice", "cross_entropy", 15)),
        ({"epochs": 26}, ("softmax_twice", "cross_entropy", 19)),
        ({"epochs": 100}, ("softmax_twice", "cross_entropy", 20)),
        ({"epochs": 1}, ("softmax_twice", "cross_entropy", 1)),
        ({"warmup": 7}, ("softmax_twice", "cross_entropy", 7)),
        ({"warmup": 0}, (None, None, 0)),
        ({"loss": "cross_entropy"}, ("cross_entropy", None, 4)),
        ({"loss": "gce"}, ("gce", None, 4)),
        ({"loss": "gce", "warmup_loss": "mae"}, ("gce", "mae", 15)),
        ({"method": "mentornet"}, (None, None, 4)),
        ({"method": "mentornet", "loss": "mae", "warmup_loss": "gce", "epochs": 50}, ("mae", "gce", 20)),
        ({"method": "cotraining", "epochs": 100}, (None, None, 75)),
    ],
)
def test_which_losses_a_training_has_and_when(options, expected):
    plan = plan_of(RobustClassifier(**options).get_params(), {}, 1000)
    assert (plan.loss, plan.warmup_loss, plan.warmup) == expected


@pytest.mark.parametrize(
    "samples, batch_size, epochs, expected",
    [
        (60_000, None, 20, 10),
        (60_000, None, 200, 10),
        (60_000, None, 8, 6),
        (128 * 32, None, 200, 10),  # 32 steps an epoch: 320 in 10 epochs
        (128 * 31, None, 200, 11),
        (128 * 16, None, 200, 20),
        (100, None, 200, 27),  # 12 steps of 8 samples
        (100, 100, 200, 150),  # one step an epoch
        (100, 1000, 200, 150),  # batches are no larger than the data
    ],
)
def test_a_warm_up_with_a_loss_of_its_own_has_ten_epochs_and_some_steps(samples, batch_size, epochs, expected):
    params = RobustClassifier(epochs=epochs, batch_size=batch_size).get_params()
    assert plan_of(params, {}, samples).warmup == expected


def test_a_loss_that_is_never_finite_is_told(clouds):
    with pytest.warns(ConvergenceWarning, match="lower lr"):
        quick(lr=1e30, standardize=False).fit(*clouds)


def test_an_interrupted_prediction_leaves_torch_as_it_was(clouds, monkeypatch):
    """While the traceback lives, as in a notebook: what is suspended in it must not be in another mode."""
    model = quick().fit(*clouds)

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.Tensor, "double", interrupt)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        model.predict(clouds[0])
    assert interrupted.tb is not None
    assert torch.is_grad_enabled()
