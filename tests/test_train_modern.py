"""Whole trainings with the ingredients of today: against the plain loop, and each run as if it were alone."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from coteach.engine import Engine
from coteach.fidelity import AUTHORS
from coteach.losses import cross_entropy
from coteach.methods import METHODS
from coteach.train import fit
from plain_cases import assert_trains_like_the_plain_loop
from tiny import (
    BY_RULE,
    EVERYTHING,
    INGREDIENTS,
    PLAN,
    C,
    assert_same_rows,
    assert_same_weights,
    events,
    one_run,
    pictured,
    pictures,
    problem,
    run_fit,
)

SHORT = replace(PLAN, epochs=4)


def unnormed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(60, 8), nn.Tanh(), nn.Linear(8, C))


def counting() -> nn.Module:
    """Its batch norm takes the mean over all batches that it has seen, and so has to count them."""
    network = pictured()
    network[1].momentum = None
    return network


@pytest.mark.parametrize("name", BY_RULE)
def test_every_method_with_everything_trains_like_the_plain_loop(name):
    rows = assert_trains_like_the_plain_loop(name, EVERYTHING, pictured, pictures(runs=2))
    assert max(row["test_accuracy"][0] for run in rows for row in run) > 0.5


@pytest.mark.parametrize("name", BY_RULE)
def test_every_method_with_everything_and_adam_trains_like_the_plain_loop(name):
    plan = replace(EVERYTHING, optimizer="adam", nesterov=False, lr=0.01, fidelity=AUTHORS)
    assert_trains_like_the_plain_loop(name, plan, pictured, pictures(runs=1))


@pytest.mark.parametrize("changes", INGREDIENTS.values(), ids=INGREDIENTS)
def test_each_ingredient_alone_trains_like_the_plain_loop(changes):
    plan = replace(SHORT, **changes)
    assert_trains_like_the_plain_loop("coteaching", plan, pictured, pictures(runs=1))
    with_it, _ = run_fit(pictures(runs=1), METHODS["coteaching"], plan, pictured)
    without, _ = run_fit(pictures(runs=1), METHODS["coteaching"], SHORT, pictured)
    assert not torch.allclose(with_it.stack.theta_NRP, without.stack.theta_NRP, rtol=1e-3)


@pytest.mark.parametrize("build", [unnormed, counting])
def test_other_networks_train_like_the_plain_loop(build):
    assert_trains_like_the_plain_loop("coteaching_plus", EVERYTHING, build, pictures(runs=2))


def test_any_loss_with_everything_trains_like_the_plain_loop():
    for loss in ("gce", "softmax_twice"):
        plan = replace(EVERYTHING, loss=loss, warmup_loss="cross_entropy")
        assert_trains_like_the_plain_loop("coteaching", plan, pictured, pictures(runs=1))


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", ["standard", "jocor", "coteaching_plus", "cotraining", "f_correction"])
def test_runs_together_are_each_alone_with_everything(name, batched):
    p = pictures()
    together, rows = run_fit(p, METHODS[name], EVERYTHING, pictured, batched)
    for run in range(3):
        alone, (expected,) = run_fit(one_run(p, run), METHODS[name], EVERYTHING, pictured)
        assert_same_rows(rows[run], expected)
        for n in range(METHODS[name].networks):
            assert_same_weights(together.stack.network(n, run), alone.stack.network(n, 0))


def test_an_epoch_ends_with_the_average_even_of_a_network_that_sat_its_last_step_out():
    """One image is not finite: its batch is sat out, often enough the last of an epoch."""
    p = pictures(runs=2)
    x_M = p.x_M.clone()
    x_M[7] = torch.inf
    last_sat_out = []

    def after(epoch) -> None:
        training = epoch.training
        assert torch.equal(training.lookahead.slow_NRP, training.stack.theta_NRP)
        finite_SNR = training.records.finite_SNR
        last_sat_out.append(bool((finite_SNR[:-1].any(0) & ~finite_SNR[-1]).any()))

    plan = replace(SHORT, lookahead=2)
    fit(replace(p, x_M=x_M), METHODS["coteaching"], plan, unnormed, engine=Engine(torch.float64), on_epoch=after)
    assert any(last_sat_out)


def test_a_learnt_loss_that_is_not_finite_is_sat_out_though_what_was_looked_at_is_finite():
    """A loss that is infinite wherever a gradient is wanted, but whose gradient is finite."""
    method = METHODS["coteaching"]

    def loss(logits, target):
        return cross_entropy(logits, target) + (torch.inf if logits.requires_grad else 0)

    spoilt = replace(method, phases=lambda plan: [replace(phase, loss=loss) for phase in method.phases(plan)])
    training, rows = run_fit(pictures(runs=1), spoilt, EVERYTHING, pictured)
    untrained, _ = run_fit(pictures(runs=1), method, replace(EVERYTHING, lr=0.0), pictured)
    assert torch.equal(training.stack.theta_NRP, untrained.stack.theta_NRP)
    assert not training.stack.buffers["1.running_mean"].any()
    assert "non_finite_loss" in events(rows)


# ---- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["mirror", "shift", "cutout"])
def test_samples_that_are_no_images_are_not_changed_as_such(change):
    with pytest.raises(ValueError, match=rf"^{change} need.* images .*not samples of shape \(8,\): leave"):
        run_fit(problem(), METHODS["standard"], replace(PLAN, **{change: 1}))


def test_token_numbers_are_not_mixed():
    p = replace(problem(), x_M=problem().x_M.long())
    with pytest.raises(ValueError, match="token numbers have none: leave mixup out"):
        run_fit(p, METHODS["standard"], replace(PLAN, mixup=1.0))


@pytest.mark.parametrize("changes", [{"mixup": 1.0}, {"cutout": 2, "weak_selection": True}])
def test_the_method_in_rounds_learns_what_it_looks_at(changes):
    with pytest.raises(ValueError, match="iterative selects nothing"):
        run_fit(pictures(), METHODS["iterative"], replace(PLAN, **changes), pictured)


def test_the_method_in_rounds_smooths_labels():
    ends = [
        run_fit(pictures(runs=1), METHODS["iterative"], replace(SHORT, label_smoothing=share), pictured)[0]
        for share in (0.0, 0.2)
    ]
    assert not torch.allclose(ends[0].stack.theta_NRP, ends[1].stack.theta_NRP, rtol=1e-3)
