"""`coteach run --recipe modern`: the plan it makes of flags and data, the network, and what it refuses."""

import tomllib
from dataclasses import asdict, replace

import pytest
import torch

from coteach.data import Dataset
from coteach.modern import modern_batch, modern_plan
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from run_cases import silent

MODERN = Experiment(dataset="cifar10", method="coteaching", recipe="modern")


def pictures(n: int = 40, channels: int = 3, side: int = 16) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 4
    x = torch.randint(0, 120, (n, channels, side, side), generator=generator) + 30 * y[:, None, None, None]
    return Dataset("pictures", x.byte(), y, x[:20].byte(), y[:20], ("a", "b", "c", "d"))


def test_the_recipe_is_the_plan():
    assert MODERN.network_name == "fast_cnn"
    plan = asdict(MODERN.plan())
    assert plan | modern_plan(40) == plan
    assert MODERN.plan_and_notes()[1] == []


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"epochs": 8}, {"epochs": 8, "ramp": 6, "warmup": 4}),
        ({"epochs": 1}, {"epochs": 1, "ramp": 1, "warmup": 0}),
        ({"batch_size": 256}, {"batch_size": 256, "lr": 0.375}),
        ({"mirror": "no", "nesterov": "no", "decoupled_decay": "no"}, {"mirror": False, "nesterov": False}),
        ({"weak_selection": "yes"}, {"weak_selection": True}),
        ({"weak_selection": "yes", "cutout": 0, "strong_view": 1}, {"weak_selection": True, "cutout": 0}),
        ({"weight_decay": 0}, {"weight_decay": 0, "decoupled_decay": True}),
        ({"decay_start": 10}, {"one_cycle": 0.0, "decay_start": 10}),
        ({"optimizer": "adam"}, {"optimizer": "adam", "lr": 0.001, "nesterov": False}),
        ({"lookahead": 0, "cutout": 0, "shift": 0}, {"lookahead": 0, "cutout": 0, "shift": 0}),
        ({"mixup": 0.2, "label_smoothing": 0.1, "momentum": 0.5}, {"mixup": 0.2, "momentum": 0.5}),
    ],
    ids=str,
)
def test_every_piece_is_a_flag(given, expected):
    plan = asdict(replace(MODERN, **given).plan())
    assert {name: plan[name] for name in expected} == expected
    replace(MODERN, **given).check()


@pytest.mark.parametrize("epochs", [1, 2, 10, 40, 90])
def test_without_a_cycle_the_rate_falls_over_the_last_three_fifths(epochs):
    plan, notes = replace(MODERN, one_cycle=0, epochs=epochs).plan_and_notes()
    rates = [plan.learning_rate(epoch) for epoch in plan.all_epochs]
    full = max(1, 2 * epochs // 5)
    assert rates[:full] == [1.5] * full
    falling = [1.5 * (epochs - epoch) / (epochs - full) for epoch in plan.all_epochs[full:]]
    assert rates[full:] == pytest.approx(falling)
    assert notes == []


@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "cifar100", "digits", "openset-svhn"])
def test_the_papers_recipes_have_none_of_it(dataset):
    plan, off = asdict(Experiment(dataset=dataset).plan()), asdict(prepare.Plan())
    for name in ("nesterov", "decoupled_decay", "one_cycle", "lookahead", "mirror", "shift", "cutout", "mixup"):
        assert plan[name] == off[name] == False  # noqa: E712 - 0 and 0.0, too


@pytest.mark.parametrize(
    "given, message",
    [
        ({"nesterov": "yes", "optimizer": "adam"}, "nesterov belongs to sgd"),
        ({"momentum": 0.5, "recipe": "paper"}, "momentum belongs to sgd"),
        ({"decoupled_decay": "yes", "recipe": "paper"}, "no weight decay to decouple"),
        ({"weak_selection": "yes", "cutout": 0}, "weak selection is for images that are cut"),
        ({"one_cycle": 0.2, "decay_start": 3}, "both move the learning rate"),
        ({"recipe": "new"}, "there is no recipe 'new'"),
        ({"mirror": "perhaps"}, "there is no answer to mirror 'perhaps'"),
        ({"width": 0}, "width is 0"),
        ({"width": 2, "network": "cnn7"}, "cnn7 has one width only"),
        ({"momentum": 1}, "momentum is 1"),
        ({"weight_decay": -1}, "weight_decay is -1"),
        ({"mixup": float("inf")}, "mixup is inf"),
        ({"one_cycle": 1.0}, "one_cycle is 1.0"),
        ({"lookahead": -1}, "lookahead is -1"),
    ],
    ids=str,
)
def test_a_mistake_is_told(given, message):
    with pytest.raises(ValueError, match=message):
        replace(MODERN, **given).check()


def test_a_run_fits_the_recipe_to_its_images(tmp_path):
    asked = Experiment(method="coteaching", recipe="modern", tau=0.1, epochs=2, device="cpu", out=tmp_path / "run")
    result = run(asked, pictures(), say=silent)
    stored = tomllib.loads((result.folder / "config.toml").read_text())["plan"]
    assert (stored["batch_size"], stored["lr"]) == (modern_batch(40), 1.5 * 32 / 1024)
    assert (stored["shift"], stored["cutout"], stored["mirror"], stored["width"]) == (1, 4, True, 0.25)
    assert stored["network"] == result.summary["network"] == "fast_cnn"
    grey = replace(asked, out=tmp_path / "grey", width=0.125, shift=3)
    stored = tomllib.loads((run(grey, pictures(channels=1), say=silent).folder / "config.toml").read_text())[
        "plan"
    ]
    assert (stored["shift"], stored["cutout"], stored["mirror"], stored["width"]) == (3, 4, False, 0.125)


@pytest.mark.parametrize("method, both", [("coteaching", True), ("cotraining", False), ("iterative", False)])
def test_only_whole_images_are_tested_with_their_mirror_images(method, both):
    options = prepare.network_options(replace(MODERN, method=method), (3, 32, 32), "cpu")
    assert options == {"width": 0.25, "mirror": both}
    assert prepare.network_options(MODERN, (1, 32, 32), "cuda") == {"width": 1.0, "mirror": False}
    assert prepare.network_options(replace(MODERN, recipe="paper"), (3, 32, 32), "cuda") == {}


def test_mirrored_images_are_told_where_tests_have_none(tmp_path):
    asked = Experiment(method="cotraining", recipe="modern", epochs=1, device="cpu", out=tmp_path / "run")
    result = run(asked, pictures(), say=silent)
    assert tomllib.loads((result.folder / "config.toml").read_text())["plan"]["mirror"]


@pytest.mark.parametrize("name", ["shift", "cutout"])
def test_pixels_beyond_the_image_are_refused(name, tmp_path):
    asked = Experiment(recipe="modern", epochs=1, device="cpu", out=tmp_path / "run", **{name: 16})
    with pytest.raises(ValueError, match=f"{name} is 16 of 16 pixels"):
        run(asked, pictures(), say=silent)


def test_what_is_not_an_image_has_no_modern_recipe(tmp_path):
    with pytest.raises(
        ValueError, match=r"the modern recipe is for images, and samples of digits have shape \(64,\)"
    ):
        run(Experiment(recipe="modern", network="mlp", out=tmp_path / "run"), say=silent)
    with pytest.raises(
        ValueError, match=r"shift is for images, and samples of digits have shape \(64,\): leave --shift out"
    ):
        run(Experiment(shift=2, out=tmp_path / "run"), say=silent)
    assert not (tmp_path / "run").exists()
