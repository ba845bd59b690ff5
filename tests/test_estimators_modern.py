"""RobustClassifier on images: the modern recipe as a plan, each of its pieces, and that it learns."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from coteach import RobustClassifier
from coteach.classifier.options import plan_of, with_defaults
from coteach.modern import modern_plan
from coteach.plan import Plan

IMAGE = (3, 32, 32)


def planned(samples: int = 50_000, shape: tuple[int, ...] = IMAGE, **options) -> Plan:
    classifier = RobustClassifier(**options)
    return plan_of(classifier.get_params(deep=False), classifier._routed("optimizer__"), samples, shape)


def test_images_are_learnt_by_the_recipe_as_it_stands():
    plan = planned()
    assert asdict(plan) | modern_plan(40) == asdict(plan)  # nothing of it is lost on the way
    assert (plan.epochs, plan.loss, plan.warmup_loss, plan.keep_per_class) == (40, None, None, False)
    assert planned(optimizer="sgd") == plan


def test_what_fit_has_filled_in_makes_the_same_plan():
    params = with_defaults(RobustClassifier().get_params(deep=False), {}, IMAGE)
    assert plan_of(params, {}, 50_000, IMAGE) == planned()


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"batch_size": 256}, {"batch_size": 256, "lr": 1.5 / 4}),
        ({"lr": 0.3}, {"lr": 0.3, "one_cycle": 0.23}),
        ({"ramp": 7, "warmup": 3}, {"ramp": 7, "warmup": 3}),
        ({"epochs": 8}, {"epochs": 8, "ramp": 6, "warmup": 4}),
        ({"one_cycle": 0.0, "lookahead": 0}, {"one_cycle": 0.0, "lookahead": 0, "nesterov": True}),
        ({"mirror": False, "shift": 3, "cutout": 0}, {"mirror": False, "shift": 3, "cutout": 0}),
        ({"mixup": 0.5, "label_smoothing": 0.1}, {"mixup": 0.5, "label_smoothing": 0.1}),
        ({"weak_selection": True}, {"weak_selection": True}),
        ({"weak_selection": True, "cutout": 0, "strong_view": 1}, {"weak_selection": True, "cutout": 0}),
        ({"optimizer__weight_decay": 0}, {"weight_decay": 0, "decoupled_decay": True}),
        ({"recipe": "paper", "decoupled_decay": True, "optimizer__weight_decay": 0.1}, {"weight_decay": 0.1}),
        (
            {"recipe": "paper", "optimizer": "adamw", "decoupled_decay": True, "optimizer__weight_decay": 0.1},
            {"decoupled_decay": True, "weight_decay": 0.0},
        ),
        ({"decoupled_decay": False}, {"decoupled_decay": False, "weight_decay": 0.009}),
        ({"optimizer__momentum": 0.5}, {"momentum": 0.5, "nesterov": True, "weight_decay": 0.009}),
        ({"optimizer__weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_decay": True}),
        ({"optimizer": "adam"}, {"optimizer": "adam", "lr": 0.001, "nesterov": False, "mirror": True}),
        ({"optimizer": "adam"}, {"weight_decay": 0.0}),  # the recipe's is for SGD, and not part of a gradient
        ({"optimizer": "adam", "optimizer__weight_decay": 0.1}, {"weight_decay": 0.1}),
        ({"optimizer": "SGD"}, {"optimizer": "sgd", "lr": 1.5, "nesterov": True}),
        (
            {"optimizer": torch.optim.SGD, "optimizer__nesterov": True, "optimizer__momentum": 0.9},
            {"nesterov": True},
        ),
        ({"optimizer__dampening": 0.1}, {"optimizer_options": (("momentum", 0.9), ("dampening", 0.1))}),
        ({"loss": "gce"}, {"loss": "gce"}),
        ({"keep_per_class": True}, {"keep_per_class": True}),
        ({"recipe": "paper"}, {"optimizer": "adam", "lr": 0.001, "epochs": 20, "mirror": False, "cutout": 0}),
        ({"module": "cnn7"}, {"optimizer": "adam", "epochs": 20, "one_cycle": 0.0}),
        ({"module": "cnn7", "recipe": "modern"}, {"optimizer": "sgd", "epochs": 40, "one_cycle": 0.23}),
        ({"method": "cotraining"}, {"warmup": 30}),
    ],
    ids=str,
)
def test_every_piece_of_the_recipe_can_be_set(given, expected):
    plan = asdict(planned(**given))
    assert {name: plan[name] for name in expected} == expected


def test_without_a_cycle_the_rate_falls_as_in_the_papers_recipe():
    for epochs in (1, 2, 10, 40):
        plan, papers = planned(one_cycle=0, epochs=epochs, lr=0.1), planned(recipe="paper", epochs=epochs, lr=0.1)
        rates = [plan.learning_rate(epoch) for epoch in plan.all_epochs]
        assert rates == [papers.learning_rate(epoch) for epoch in papers.all_epochs]
        assert (min(rates) < rates[0]) == (epochs > 1)


def test_nesterovs_form_needs_no_momentum_beside_it():
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    RobustClassifier(noise_rate=0, epochs=1, optimizer="sgd", optimizer__nesterov=True).fit(x, y)


@pytest.mark.parametrize(
    "shape, expected",
    [
        ((3, 64, 96), {"shift": 4, "cutout": 16, "mirror": True}),
        ((1, 28, 28), {"shift": 2, "cutout": 7, "mirror": False}),
        ((4, 16, 16), {"shift": 1, "cutout": 4, "mirror": False}),
        ((1, 8, 8), {"optimizer": "adam", "epochs": 20}),
        ((64,), {"optimizer": "adam", "epochs": 20, "loss": "softmax_twice", "warmup_loss": "cross_entropy"}),
    ],
    ids=str,
)
def test_the_recipe_follows_the_shape_of_a_sample(shape, expected):
    plan = asdict(planned(shape=shape))
    assert {name: plan[name] for name in expected} == expected


@pytest.mark.parametrize(
    "options, message",
    [
        ({"recipe": "old"}, "there is no recipe 'old'"),
        ({"recipe": "modern"}, "which is for images, and X has none"),
        ({"mirror": True}, "mirror is for images, and X has none"),
        ({"mirror": "yes"}, "mirror is 'yes': give True, False"),
        ({"mixup": -1}, "mixup is -1"),
        ({"one_cycle": 1}, "one_cycle is 1: give a share from 0 to below 1"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"lookahead": 1.5}, "lookahead is 1.5"),
        ({"weak_selection": True}, "images that are cut .*: leave weak_selection out, or give cutout"),
        ({"decoupled_decay": True}, "no weight decay to decouple: leave decoupled_decay out, or give a weight"),
    ],
    ids=str,
)
def test_a_mistake_in_the_recipe_is_told(options, message):
    with pytest.raises(ValueError, match=message):
        RobustClassifier(epochs=1, noise_rate=0, **options).fit(np.eye(6), [0, 1] * 3)


@pytest.mark.parametrize("name", ["shift", "cutout"])
def test_pixels_beyond_the_image_are_told(name):
    with pytest.raises(ValueError, match=f"{name} is 16 of 16 pixels"):
        RobustClassifier(epochs=1, noise_rate=0, **{name: 16}).fit(np.zeros((6, 16, 16)), [0, 1] * 3)


def test_images_are_learnt_in_a_few_epochs():
    """Not by chance: a learning rate that is lost on the way learns nothing in so few."""
    random = np.random.default_rng(0)
    y = np.arange(96) % 3
    x = random.normal(size=(96, 16, 16, 3)) + 2 * np.eye(3)[y][:, None, None]
    model = RobustClassifier(epochs=12, noise_rate=0, device="cpu", random_state=0).fit(x, y)
    assert model.score(x, y) == 1
    assert model.history_[-1]["train_loss"] < 0.5


# ---- going on, stopping, saving -------------------------------------------------------------------------------

FLAGS = np.random.default_rng(0).random((12, 16, 16, 3)), np.arange(12) % 2


def quick(**options) -> RobustClassifier:
    options = {"epochs": 1, "noise_rate": 0.1, "device": "cpu", "random_state": 0} | options
    return RobustClassifier(**options)


def saved_and_loaded(model: RobustClassifier, path) -> RobustClassifier:
    model.save(path)
    return RobustClassifier.load(path)


@pytest.mark.parametrize(
    "before, network",
    [({"recipe": "paper"}, "mlp"), ({"module__width": 0.5}, "fast_cnn"), ({}, "fast_cnn")],
    ids=str,
)
def test_a_training_goes_on_with_the_network_there_is(before, network, tmp_path):
    model = quick(**before).fit(*FLAGS)
    model = saved_and_loaded(model, tmp_path / "first").set_params(recipe="auto", warm_start=True)
    options = model.network_options_
    model.fit(*FLAGS)
    assert (model.network_, model.network_options_, len(model.history_)) == (network, options, 2)
    again = saved_and_loaded(model, tmp_path / "second")
    np.testing.assert_array_equal(again.predict_proba(FLAGS[0]), model.predict_proba(FLAGS[0]))


@pytest.mark.parametrize(
    "before, then",
    [
        ({"module": "mlp"}, {"module": "fast_cnn"}),
        ({}, {"module__width": 0.5}),
        ({}, {"module": torch.nn.Flatten}),
        ({"module": torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2))}, {"module": None}),
    ],
    ids=str,
)
def test_another_network_to_go_on_with_is_refused(before, then):
    model = quick(warm_start=True, **before).fit(*FLAGS).set_params(**then)
    with pytest.raises(ValueError, match="goes on with the network there is"):
        model.fit(*FLAGS)


def test_a_cycle_is_not_stopped_before_its_end():
    model = quick(epochs=6, early_stopping=True, validation_fraction=0.4, patience=1).fit(*FLAGS)
    assert len(model.history_) == 6
    assert model.best_epoch_ == 1 + np.argmax([row["validation_accuracy"] for row in model.history_])


def test_answers_and_numbers_of_numpy_are_saved(tmp_path):
    options = {
        "mirror": np.True_,
        "mixup": np.float32(0.5),
        "cutout": np.int64(4),
        "module__width": np.float32(0.25),
    }
    again = saved_and_loaded(quick(**options).fit(*FLAGS), tmp_path / "model")
    assert (again.mirror, again.mixup, again.network_options_) == (True, 0.5, {"width": 0.25, "mirror": True})
