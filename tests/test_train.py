"""Whole trainings: the vectorised trainer against the plain loop, every method in both fidelities."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from coteach.engine import Engine
from coteach.fidelity import AUTHORS, parse
from coteach.losses import LOSSES
from coteach.methods import METHODS, Method
from coteach.names import WITHOUT_WARMUP
from coteach.plan import Plan
from coteach.train import fit
from plain_cases import assert_trains_like_the_plain_loop
from plain_methods import Stage, stages
from tiny import (
    BY_RULE,
    FIDELITIES,
    PLAN,
    C,
    convolutional,
    events,
    mlp,
    normed,
    opinionated,
    problem,
    run_fit,
)

# ---- against the plain loop -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
@pytest.mark.parametrize("name", BY_RULE)
def test_method_trains_like_the_plain_loop(name, fidelity):
    rows = assert_trains_like_the_plain_loop(name, replace(PLAN, fidelity=fidelity))
    learnt = [[row["test_accuracy"][0] for row in run] for run in rows]
    assert max(max(run) for run in learnt) > 0.5  # something was learnt, or the comparison would be empty


@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
@pytest.mark.parametrize("name", BY_RULE)
def test_method_trains_like_the_plain_loop_with_sgd(name, fidelity):
    """As on the open-sets: momentum, weight decay, milestones, λ of type 2, parallel warm-up."""
    plan = replace(
        PLAN,
        fidelity=fidelity,
        optimizer="sgd",
        lr=0.1,
        weight_decay=1e-3,
        milestones=(3, 5),
        keep_type=2,
        horizon=8,
        parallel_warmup=True,
    )
    assert_trains_like_the_plain_loop(name, plan)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", BY_RULE)
def test_any_method_goes_with_any_loss(name, loss):
    plan = replace(PLAN, epochs=4, loss=loss, warmup=1, weight_decay=0.01)
    assert_trains_like_the_plain_loop(name, plan, p=problem(runs=1))


@pytest.mark.parametrize("build", [normed, convolutional])
@pytest.mark.parametrize("name", ["coteaching_plus", "cotraining", "f_correction"])
def test_batch_norm_and_convolutions_train_like_the_plain_loop(name, build):
    assert_trains_like_the_plain_loop(name, replace(PLAN, epochs=4), build, problem(runs=2))


@pytest.mark.parametrize("batch_size", [1, 7, 60, 100])
@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
def test_any_batch_size(batch_size, fidelity):
    """One sample a batch, a remainder to drop, one whole batch, and more than there are samples."""
    n = 8 if batch_size == 1 else 60
    plan = replace(PLAN, epochs=4, batch_size=batch_size, fidelity=fidelity)
    assert_trains_like_the_plain_loop("coteaching_plus", plan, p=problem(n=n, runs=2))


# ---- a batch without disagreement -----------------------------------------------------------------------------


def test_the_paper_skips_a_batch_without_disagreement():
    plan = replace(PLAN, warmup=0)
    rows = assert_trains_like_the_plain_loop("coteaching_plus", plan, opinionated)
    assert {"no_disagreement", "consensus", "one_class"} <= events(rows)
    assert all(row["kept"] == 0 and row["label_precision"] is None for run in rows for row in run)
    training, _ = run_fit(problem(), METHODS["coteaching_plus"], plan, opinionated)
    untrained, _ = run_fit(problem(), METHODS["coteaching_plus"], replace(plan, lr=0.0), opinionated)
    assert torch.equal(training.stack.theta_NRP, untrained.stack.theta_NRP)


def test_the_authors_learn_from_the_whole_batch_instead():
    plan = replace(PLAN, warmup=0, fidelity=AUTHORS)
    rows = assert_trains_like_the_plain_loop("coteaching_plus", plan, opinionated)
    assert "no_disagreement" in events(rows)
    assert all(row["kept"] == 16 for run in rows for row in run)


def late(epochs: range) -> tuple[Method, Callable[[str, Plan], list[Stage]]]:
    """Co-teaching+ that begins after thousands of epochs, in the library and in the plain loop."""
    plus = METHODS["coteaching_plus"]
    method = replace(plus, phases=lambda plan: [replace(plus.phases(plan)[-1], epochs=epochs)])
    return method, lambda name, plan: [replace(stages(name, plan)[-1], epochs=epochs)]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_rescue_ends_at_epoch_times_step_5000_and_then_coasts(optimizer):
    """Three steps an epoch, 0 to 2: the last one is rescued up to epoch 2499, the second up to 4999."""
    plan = replace(PLAN, warmup=0, epochs=6000, fidelity=AUTHORS, optimizer=optimizer)
    for first, rescued in ((2498, [3, 3, 2, 2]), (4998, [2, 2, 1, 1])):
        epochs = range(first, first + 4)
        method, of_stages = late(epochs)
        rows = assert_trains_like_the_plain_loop(
            "coteaching_plus", plan, opinionated, method=method, of_stages=of_stages
        )
        for run in rows:
            assert [row["events"]["no_disagreement"] for row in run] == [3, 3, 3, 3]
            assert [row["kept"] for row in run] == pytest.approx([16 * n / 3 for n in rescued])


# ---- phases ---------------------------------------------------------------------------------------------------


def test_the_warm_up_is_coteaching_or_two_networks_in_parallel():
    """In the warm-up's epochs nothing tells Co-teaching+ from it; in the first epoch after, everything does."""

    def path(name: str, epochs: int, **changes) -> Tensor:
        plan = replace(PLAN, epochs=epochs, decay_start=epochs, warmup=2, **changes)
        return run_fit(problem(), METHODS[name], plan)[0].stack.theta_NRP

    assert torch.equal(path("coteaching_plus", 2), path("coteaching", 2))
    assert not torch.equal(path("coteaching_plus", 3), path("coteaching", 3))
    parallel = path("coteaching_plus", 2, parallel_warmup=True)
    assert not torch.equal(parallel, path("coteaching", 2))
    torch.testing.assert_close(parallel[:1], path("mentornet", 2), rtol=1e-9, atol=1e-9)


def test_a_warm_up_of_nothing_is_none():
    rows = assert_trains_like_the_plain_loop("coteaching_plus", replace(PLAN, warmup=0))
    assert all(len(run) == PLAN.epochs for run in rows)


def test_f_correction_estimates_with_one_training_and_corrects_with_a_fresh_one():
    seen: list[tuple[int, bool]] = []
    ends = []

    def on_epoch(epoch) -> None:
        seen.append((epoch.number, epoch.preliminary))
        if epoch.number == PLAN.epochs:
            ends.append(epoch.training.stack.theta_NRP.detach().clone())

    fit(problem(), METHODS["f_correction"], PLAN, mlp, engine=Engine(torch.float64), on_epoch=on_epoch)
    every = range(1, PLAN.epochs + 1)
    assert seen == [(e, True) for e in every] + [(e, False) for e in every]
    standard, _ = run_fit(problem(), METHODS["standard"], PLAN)
    assert torch.equal(ends[0], standard.stack.theta_NRP)
    assert not torch.equal(ends[0], ends[1])


def test_f_corrections_estimate_can_be_cut_short():
    rows = assert_trains_like_the_plain_loop("f_correction", replace(PLAN, estimate_epochs=2))
    assert [row["epoch"] for row in rows[0]] == [1, 2, *range(1, PLAN.epochs + 1)]


def test_a_known_matrix_of_no_noise_is_standard_training():
    p = replace(problem(), matrix_RCC=torch.eye(C, dtype=torch.float64).expand(3, C, C))
    known, _ = run_fit(p, METHODS["f_correction_known"], PLAN)
    standard, _ = run_fit(p, METHODS["standard"], PLAN)
    torch.testing.assert_close(known.stack.theta_NRP, standard.stack.theta_NRP, rtol=1e-9, atol=1e-9)


def test_fewer_steps_of_an_epoch_train_like_the_plain_loop():
    whole = PLAN.steps(len(problem().x_M))
    assert whole > 2
    assert_trains_like_the_plain_loop("coteaching", replace(PLAN, steps_per_epoch=2))
    assert replace(PLAN, steps_per_epoch=whole + 1).steps(len(problem().x_M)) == whole


@pytest.mark.parametrize("name", [name for name in BY_RULE if name not in WITHOUT_WARMUP])
def test_a_loss_of_its_own_for_the_warm_up_trains_like_the_plain_loop(name):
    changed = replace(PLAN, loss="gce", warmup_loss="cross_entropy")
    assert_trains_like_the_plain_loop(name, changed)
    loss_after = [phase.loss for phase in METHODS[name].planned(changed)]
    assert len(loss_after) > 1
    assert loss_after[0] is not loss_after[-1]


@pytest.mark.parametrize("name", ["f_correction", "f_correction_known"])
def test_a_training_that_begins_anew_has_no_warm_up(name):
    with pytest.raises(ValueError, match="begins anew in between"):
        METHODS[name].planned(replace(PLAN, warmup_loss="gce"))


def test_the_loss_of_the_warm_up_is_the_authors_own():
    """Which makes their loss one that other rules can be given."""
    plus = METHODS["coteaching_plus"]
    authors = plus.planned(replace(PLAN, fidelity=FIDELITIES["authors"]))
    given = plus.planned(
        replace(PLAN, fidelity=FIDELITIES["authors"], loss="softmax_twice", warmup_loss="cross_entropy")
    )
    assert given == authors


def test_single_switches_train_like_the_plain_loop():
    """Halfway houses between the two fidelities."""
    for text in ("paper+rescue", "paper+divided_twice", "authors-softmax_twice", "authors-rescue-floor"):
        assert_trains_like_the_plain_loop("coteaching_plus", replace(PLAN, fidelity=parse(text)))


def test_an_estimate_has_a_cycle_of_its_own():
    """F-correction's first training ends with its learning rate at nearly zero, however short it is."""
    plan = replace(PLAN, optimizer="sgd", lr=0.1, one_cycle=0.25, estimate_epochs=3)
    rates: dict[bool, list[float]] = {True: [], False: []}

    def after(epoch):
        rates[epoch.preliminary] += epoch.training.clock.lr_S.tolist()

    fit(problem(runs=1), METHODS["f_correction"], plan, mlp, engine=Engine(torch.float64), on_epoch=after)
    for found, epochs in ((rates[True], 3), (rates[False], PLAN.epochs)):
        assert len(found) == epochs * 3
        assert found[-1] == pytest.approx(0.1 / len(found) / 0.75)
        assert max(found) == pytest.approx(0.1, rel=0.15)
