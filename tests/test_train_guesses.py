"""Whole trainings that learn more than the labels of what a rule picks."""

from dataclasses import replace

import pytest
import torch

from coteach import Experiment, RobustClassifier
from coteach.classifier import fitting
from coteach.engine import Engine
from coteach.engine.distributed import Processes
from coteach.engine.training import State, state_of
from coteach.methods import METHODS
from coteach.names import DROPPING_NOTHING, WITHOUT_SMALL_LOSSES
from coteach.plan import OF_METHOD, Plan
from coteach.rules import BY_MIXTURE, all_of, everything
from coteach.runs import run as runner
from coteach.train import fit
from plain_cases import assert_trains_like_the_plain_loop
from run_cases import silent
from tiny import (
    BY_RULE,
    EVERYTHING,
    PLAN,
    assert_same_rows,
    assert_same_weights,
    mlp,
    one_run,
    pictured,
    pictures,
    problem,
    run_fit,
)

BESIDES = replace(EVERYTHING, strong_view=1, guess_weight=0.7, guess_ramp=1, memory_weight=1.0, class_balance=0.5)
DIVIDED = replace(EVERYTHING, **(OF_METHOD["dividemix"] | {"warmup": 2}), strong_view=1)
MIXTURE = replace(BESIDES, mixture=True)
CASES = {"coteaching": MIXTURE, "coteaching_plus": MIXTURE, "mentornet": MIXTURE, "dividemix": DIVIDED}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["standard", "coteaching", "jocor", "decoupling"])
def test_everything_besides_labels_trains_like_the_plain_loop(name):
    assert_trains_like_the_plain_loop(name, BESIDES, pictured, pictures(runs=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_with_a_mixture_it_trains_like_the_plain_loop(name):
    assert_trains_like_the_plain_loop(name, CASES[name], pictured, pictures(runs=1))


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", ["coteaching", "dividemix"])
def test_runs_together_are_each_alone(name, batched):
    p, plan = pictures(), CASES[name]
    together, rows = run_fit(p, METHODS[name], plan, pictured, batched)
    for run in range(3):
        alone, (expected,) = run_fit(one_run(p, run), METHODS[name], plan, pictured)
        assert_same_rows(rows[run], expected)
        for n in range(2):
            assert_same_weights(together.stack.network(n, run), alone.stack.network(n, 0))


@pytest.mark.parametrize("name", CASES)
def test_a_training_goes_on_as_if_it_had_never_stopped(name):
    states: list[State] = []

    def after(epoch) -> None:
        tensors = {key: tensor.detach().clone() for key, tensor in state_of(epoch.training).items()}
        states.append(State(epoch.position, epoch.number, tensors))

    options = {"engine": Engine(torch.float64)}
    whole = fit(pictures(), METHODS[name], CASES[name], pictured, on_epoch=after, **options)
    assert [state.epoch for state in states] == [1, 2, 3, 4]
    for state in states[:-1]:
        resumed = fit(pictures(), METHODS[name], CASES[name], pictured, resume_from=state, **options)
        assert torch.equal(resumed.stack.theta_NRP, whole.stack.theta_NRP)


def test_before_the_warm_up_ends_dividemix_is_standard_training():
    plan = replace(PLAN, epochs=2, warmup=2, **{k: v for k, v in OF_METHOD["dividemix"].items() if k != "warmup"})
    divided, _ = run_fit(problem(), METHODS["dividemix"], plan)
    standard, _ = run_fit(problem(), METHODS["standard"], replace(PLAN, epochs=2, warmup=2))
    torch.testing.assert_close(divided.stack.theta_NRP[:1], standard.stack.theta_NRP, rtol=1e-9, atol=1e-9)


def test_a_mixture_needs_no_noise_rate():
    """Whatever rate is given, the same is learnt."""
    p = pictures(runs=1)
    plans = {"dividemix": DIVIDED, "coteaching": MIXTURE}
    for name, plan in plans.items():
        ends = [
            run_fit(replace(p, noise_rates=[rate]), METHODS[name], plan, pictured)[0].stack.theta_NRP
            for rate in (0.0, 0.6)
        ]
        assert torch.equal(*ends)


def test_what_is_not_finite_is_sat_out():
    p = pictures(runs=1)
    x_M = p.x_M.clone()
    x_M[7] = torch.nan
    for name, plan in CASES.items():
        plan = replace(plan, lookahead=0)
        training, rows = run_fit(replace(p, x_M=x_M), METHODS[name], plan, pictured)
        assert training.stack.theta_NRP.isfinite().all(), name
        assert any("non_finite_loss" in row["events"] for row in rows[0])


def test_a_method_without_small_losses_has_no_use_for_a_mixture():
    for name in ("standard", "decoupling", "f_correction", "cotraining"):
        with pytest.raises(ValueError, match=f"{name} picks no small losses"):
            run_fit(problem(), METHODS[name], replace(PLAN, mixture=True))


def test_what_is_said_of_methods_is_true_of_their_rules():
    for name in BY_RULE:
        rules = [phase.rule for phase in METHODS[name].phases(PLAN)]
        by_losses = any(rule.by_mixture() != rule or rule.pick in BY_MIXTURE.values() for rule in rules)
        assert by_losses == (name not in WITHOUT_SMALL_LOSSES), name
        learn_all = all(rule.among is everything and rule.pick is all_of for rule in rules)
        assert learn_all == (name in DROPPING_NOTHING), name


@pytest.mark.parametrize(
    "method, changes",
    [(name, {"mixture": "yes"}) for name in WITHOUT_SMALL_LOSSES]
    + [
        ("iterative", {name: 1 if name in ("mixup", "strong_view") else 0.5})
        for name in ("mixup", "strong_view", "guess_weight", "memory_weight", "class_balance")
    ]
    + [("iterative", {"weak_selection": "yes", "cutout": 2})],
    ids=str,
)
def test_a_refused_command_leaves_no_folder_behind(method, changes, tmp_path):
    (name, *_) = changes
    asked = Experiment(method=method, epochs=4, device="cpu", out=tmp_path / "run", **changes)
    with pytest.raises(ValueError, match=f": leave {name} out"):
        asked.check()
    with pytest.raises(ValueError, match=f": leave {name} out"):
        runner.run(asked, say=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["standard", "cotraining"])
def test_a_classifier_refuses_a_useless_mixture_before_it_trains(method, monkeypatch):
    monkeypatch.setattr(fitting, "estimated", lambda job: pytest.fail("it trains"))
    with pytest.raises(ValueError, match=f"^{method} picks no small losses .*: leave mixture out"):
        RobustClassifier(method=method, mixture=True).fit([[0.0, 0.0], [1.0, 1.0]] * 4, [0, 1] * 4)


REFUSED = [
    ({"method": "dividemix", "memory_weight": 1.0}, "dividemix changes the labels"),
    ({"method": "dividemix", "keep_per_class": True}, "keeps no share of them: leave keep_per_class out"),
    ({"method": "standard", "guess_weight": 0.5}, "standard drops no samples .*: leave guess_weight out"),
    ({"method": "f_correction", "guess_weight": 0.5}, "f_correction drops no samples"),
    ({"method": "coteaching", "guess_ramp": 3}, "no guesses to ramp up"),
    ({"method": "coteaching", "temperature": 0.3}, "no guesses to sharpen"),
    ({"method": "coteaching", "memory_decay": 0.3}, "no memory to decay"),
    ({"method": "coteaching", "confidence_penalty": 1.0}, "belongs to dividemix's warm-up"),
    ({"method": "dividemix", "warmup": 0}, "networks that have warmed up"),
    ({"method": "coteaching", "guess_weight": -1}, "guess_weight is -1"),
    ({"method": "coteaching", "memory_weight": 1, "memory_decay": 1.0}, "memory_decay is 1.0"),
    ({"method": "coteaching", "guess_weight": 1, "temperature": 0}, "temperature is 0"),
    ({"method": "coteaching", "strong_view": 1.5}, "strong_view is 1.5"),
    ({"method": "coteaching", "class_balance": float("inf")}, "class_balance is inf"),
]


@pytest.mark.parametrize("options, message", REFUSED, ids=str)
def test_a_mistake_is_told_in_a_run_and_in_a_classifier(options, message):
    with pytest.raises(ValueError, match=message):
        Experiment(epochs=4, **options).check()
    with pytest.raises(ValueError, match=message):
        RobustClassifier(epochs=4, noise_rate=0, **options).fit([[0.0], [1.0]] * 4, [0, 1] * 4)


def test_a_mixture_and_a_share_of_each_class_contradict_each_other():
    with pytest.raises(ValueError, match="both say what is kept"):
        Experiment(method="coteaching", mixture="yes", keep_per_class=True).check()
    model = RobustClassifier(mixture=True, keep_per_class=True, epochs=2, noise_rate=0)
    with pytest.raises(ValueError, match="both say what is kept"):
        model.fit([[0.0], [1.0]] * 4, [0, 1] * 4)


def test_a_methods_own_settings_give_way_to_the_users():
    plan = Experiment(dataset="cifar10n-worst", method="dividemix").plan()
    assert (plan.mixup, plan.guess_weight, plan.guess_ramp, plan.class_balance) == (4.0, 25.0, 16, 1.0)
    assert (plan.epochs, plan.warmup, plan.sharpening) == (40, 10, 0.5)
    plan = Experiment(method="dividemix", guess_weight=0, mixup=0, class_balance=0, temperature=0.7).plan()
    assert (plan.mixup, plan.guess_weight, plan.class_balance, plan.sharpening) == (0, 0, 0, 0.7)


@pytest.mark.parametrize(
    "asked, expected",
    [
        ({"dataset": "digits"}, 10),
        ({"dataset": "mnist"}, 10),
        ({"dataset": "cifar10"}, 10),
        ({"dataset": "cifar100"}, 30),
        ({"dataset": "cifar100n", "recipe": "paper"}, 30),
        ({"dataset": "cifar100n"}, 10),  # a quarter of 40
        ({"dataset": "cifar100", "recipe": "modern", "epochs": 80}, 20),
        ({"dataset": "cifar100", "warmup": 3}, 3),
        ({"dataset": "mnist", "fidelity": "authors"}, 10),  # whose warm-up is another method's
        ({"dataset": "tiny-imagenet"}, 10),
    ],
    ids=str,
)
def test_the_warm_up_of_dividemix_is_its_papers_and_no_data_sets(asked, expected):
    experiment = Experiment(method="dividemix", **asked)
    experiment.check()
    assert experiment.plan().warmup == expected


@pytest.mark.parametrize(
    "asked, expected",
    [
        ({"dataset": "mnist"}, 10),
        ({"dataset": "news", "fidelity": "authors"}, 10),
        ({"dataset": "mnist", "epochs": 20}, 5),
        ({"dataset": "mnist", "epochs": 3}, 1),
        ({"dataset": "mnist", "epochs": 1}, 0),
        ({"dataset": "mnist", "warmup": 2}, 2),
        ({"dataset": "cifar10"}, 20),
        ({"dataset": "cifar10n-worst"}, 10),
    ],
    ids=str,
)
def test_a_mixture_has_a_warm_up_where_the_data_set_has_none(asked, expected):
    experiment = Experiment(method="coteaching", mixture="yes", **asked)
    experiment.check()
    assert experiment.plan().warmup == expected


def test_all_of_it_is_off_unless_asked_for():
    off = Plan()
    for plan in (Experiment(method="coteaching").plan(), Experiment(dataset="cifar100n", method="jocor").plan()):
        for name in (*OF_METHOD["dividemix"], "strong_view", "mixture", "memory_weight", "temperature"):
            if name != "warmup":
                assert getattr(plan, name) == getattr(off, name), name
                assert not getattr(plan, name), name


@pytest.mark.slow
def test_a_classifier_learns_with_all_of_it():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    truth = (x[:, 0] > 0).long()
    y = torch.where(torch.rand(400, generator=generator) < 0.3, 1 - truth, truth)
    besides = {"mixture": True, "guess_weight": 0.3, "memory_weight": 1.0, "class_balance": 0.5}
    model = RobustClassifier(noise_rate=0.3, epochs=15, lr=0.01, random_state=0, device="cpu", **besides)
    model.fit(x.numpy(), y.numpy())
    assert (model.predict(x.numpy()) == truth.numpy()).mean() > 0.88


@pytest.mark.parametrize("name", ["guess_weight", "memory_weight", "class_balance", "mixture"])
def test_what_needs_all_samples_in_one_place_is_for_one_process(name):
    plan = replace(PLAN, **{name: True if name == "mixture" else 1.0})
    two = Processes()
    two.size = 2
    with pytest.raises(ValueError, match=f"^{name} is for one process: leave it out"):
        fit(problem(), METHODS["coteaching"], plan, mlp, processes=two)
