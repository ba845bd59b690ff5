"""Runs of a stack keep apart: together is each alone, and what spoils one leaves the others as they are."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from coteach.engine.training import Problem
from coteach.losses import LOSSES
from coteach.methods import METHODS, Method
from tiny import (
    FIDELITIES,
    PLAN,
    F,
    assert_same_rows,
    assert_same_weights,
    events,
    normed,
    one_run,
    problem,
    run_fit,
)

# ---- undefined losses -----------------------------------------------------------------------------------------


def with_one_outlier(value: float) -> Problem:
    p = problem(runs=1)
    x_M = p.x_M.clone()
    x_M[7] = value * torch.tensor([1.0, -1.0]).repeat(F // 2)
    return replace(p, x_M=x_M)


@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
@pytest.mark.parametrize("name", METHODS)
def test_a_sample_that_overflows_does_not_destroy_the_networks(name, fidelity):
    """1.7e308 is a legal feature, and its activations are infinite: whoever picks it sits the step out."""
    plan = replace(PLAN, fidelity=fidelity)
    for value in (1.7e308, -1.7e308):
        training, _ = run_fit(with_one_outlier(value), METHODS[name], plan)
        assert training.stack.theta_NRP.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_an_undefined_loss_is_an_event(name):
    """Whether anybody picks it or not: it decides who sits out."""
    rows = [run_fit(with_one_outlier(value), METHODS[name], PLAN)[1] for value in (1.7e308, -1.7e308)]
    assert "non_finite_loss" in events(rows[0]) | events(rows[1])


def test_an_infinite_loss_that_nobody_picks_changes_nothing():
    """MentorNet keeps at most seven tenths of a batch: the largest loss may as well be infinite."""
    mentornet = METHODS["mentornet"]

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        losses = LOSSES["cross_entropy"](logits, target)
        return losses.masked_fill(losses == losses.amax(-1, keepdim=True), torch.inf)

    method = replace(mentornet, phases=lambda plan: [replace(ph, loss=loss) for ph in mentornet.phases(plan)])
    plan, p = replace(PLAN, ramp=1), replace(problem(), noise_rates=[0.3, 0.4, 0.5])
    infinite, _ = run_fit(p, method, plan)
    finite, _ = run_fit(p, mentornet, plan)
    assert torch.equal(infinite.stack.theta_NRP, finite.stack.theta_NRP)


def test_a_run_with_undefined_losses_leaves_the_others_alone():
    p = problem(runs=2)

    def spoilt() -> Method:
        standard = METHODS["standard"]

        def loss(logits: Tensor, target: Tensor) -> Tensor:
            losses = LOSSES["cross_entropy"](logits, target)
            return torch.cat([losses[:, :1] * torch.nan, losses[:, 1:]], 1)

        return replace(standard, phases=lambda plan: [replace(ph, loss=loss) for ph in standard.phases(plan)])

    training, rows = run_fit(p, spoilt(), PLAN)
    alone, alone_rows = run_fit(one_run(p, 1), METHODS["standard"], PLAN)
    untrained, _ = run_fit(p, METHODS["standard"], replace(PLAN, lr=0.0))
    assert torch.equal(training.stack.theta_NRP[:, 0], untrained.stack.theta_NRP[:, 0])
    torch.testing.assert_close(training.stack.theta_NRP[:, 1], alone.stack.theta_NRP[:, 0], rtol=1e-9, atol=1e-9)
    assert_same_rows(rows[1], alone_rows[0])
    assert all(row["events"]["non_finite_loss"] == 3 for row in rows[0])


# ---- runs together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
@pytest.mark.parametrize("name", METHODS)
def test_runs_together_are_each_alone(name, fidelity):
    plan, p = replace(PLAN, fidelity=fidelity), problem()
    batched, rows = run_fit(p, METHODS[name], plan, normed, batched=True)
    looped, loop_rows = run_fit(p, METHODS[name], plan, normed, batched=False)
    for run in range(len(p.seeds)):
        alone, (alone_rows,) = run_fit(one_run(p, run), METHODS[name], plan, normed)
        assert_same_rows(rows[run], alone_rows)
        assert_same_rows(loop_rows[run], alone_rows)
        for n in range(METHODS[name].networks):
            assert_same_weights(batched.stack.network(n, run), alone.stack.network(n, 0))
            assert_same_weights(looped.stack.network(n, run), alone.stack.network(n, 0))


def test_runs_differ_and_repeat():
    """Equal labels and rates, another seed: other networks. The same call again: the same bits."""
    p = problem(runs=2)
    p = replace(p, y_RM=p.y_RM[:1].expand(2, -1), noise_rates=[0.3, 0.3], clean_RM=p.clean_RM[:1].expand(2, -1))
    first, _ = run_fit(p, METHODS["coteaching_plus"], PLAN)
    again, _ = run_fit(p, METHODS["coteaching_plus"], PLAN)
    assert torch.equal(first.stack.theta_NRP, again.stack.theta_NRP)
    assert (first.stack.theta_NRP[:, 0] != first.stack.theta_NRP[:, 1]).any(-1).all()


def test_a_training_is_given_neither_the_clean_mask_nor_test_labels():
    given = {f.name for f in fields(Problem)}
    assert given == {"x_M", "y_RM", "n_classes", "noise_rates", "seeds", "matrix_RCC", "augment"}
