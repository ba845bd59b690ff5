"""Samples that are held out, and the weights of the epoch that fits their given labels best."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import plain
from coteach.data.base import Rows
from coteach.engine import Engine
from coteach.engine.held_out import hold_out
from coteach.engine.stream import Stream
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from coteach.train import fit
from plain_cases import assert_trains_like_the_plain_loop
from plain_methods import estimated_matrix
from resume_cases import experiment, stopped
from run_cases import silent
from tiny import BY_RULE, PLAN, F, convolutional, mlp, normed, problem, run_fit

HELD = replace(PLAN, held_out=0.2, lr=0.1)  # so fast that the last epoch is not the best
BY_MIXTURE = {"coteaching": replace(HELD, mixture=True), "dividemix": HELD}


@pytest.mark.parametrize("name", BY_RULE)
def test_every_method_trains_like_the_plain_loop(name):
    assert_trains_like_the_plain_loop(name, HELD)


@pytest.mark.parametrize("name", BY_MIXTURE)
def test_a_mixture_is_of_samples_that_are_learnt(name):
    assert_trains_like_the_plain_loop(name, BY_MIXTURE[name], p=problem(runs=2))


@pytest.mark.parametrize("name", BY_MIXTURE)
def test_labels_that_are_held_out_change_nothing_that_is_learnt(name):
    p, latest, shares = problem(runs=1), [], []
    held_V = hold_out(p, HELD).held_V
    other_RM = p.y_RM.index_add(1, held_V, torch.ones_like(held_V)[None]) % p.n_classes
    for y_RM in (p.y_RM, other_RM):
        training, (rows,) = run_fit(replace(p, y_RM=y_RM), METHODS[name], BY_MIXTURE[name])
        latest.append(training.best.latest["theta"])
        shares.append([row["keep_rate"] for row in rows])
    assert torch.equal(*latest)
    assert shares[0] == shares[1]


@pytest.mark.parametrize("build", [normed, convolutional])
def test_batch_norms_statistics_are_those_of_the_best_epoch_too(build):
    assert_trains_like_the_plain_loop("f_correction", replace(HELD, epochs=4), build, problem(runs=2))


def test_the_best_epoch_is_not_the_last():
    """Or the tests above would not tell one from the other."""
    best, _ = run_fit(problem(), METHODS["standard"], HELD)
    assert best.best is not None
    assert not torch.equal(best.stack.theta_NRP, best.best.latest["theta"])


def test_the_estimate_is_read_off_the_best_weights():
    p = problem(runs=1)
    training, _ = run_fit(p, METHODS["f_correction"], HELD)
    assert training.matrix_RCC is not None
    first, _ = plain.train("standard", p, 0, HELD, mlp)
    torch.testing.assert_close(training.matrix_RCC[0], estimated_matrix(first.best[0], p.x_M))
    assert not torch.allclose(training.matrix_RCC[0], estimated_matrix(first.networks[0], p.x_M))


def test_no_outlier_is_left_out_of_the_estimate_from_100_classes_on():
    hundred = replace(problem(runs=1), n_classes=100)
    assert_trains_like_the_plain_loop("f_correction", replace(HELD, epochs=4), lambda: nn.Linear(F, 100), hundred)


def test_the_same_samples_are_held_out_for_every_run_and_none_of_them_is_dealt():
    p = problem(n=60, runs=2)
    held = hold_out(p, HELD)
    assert sorted([*held.held_V.tolist(), *held.learnt_M.tolist()]) == list(range(60))
    assert len(held.held_V) == 12
    dealt = set()
    fit(
        p, METHODS["standard"], HELD, mlp, engine=Engine(torch.float64),
        on_epoch=lambda epoch: dealt.update(epoch.training.batches.order_SRB.flatten().tolist()),
    )  # fmt: skip
    assert dealt == set(held.learnt_M.tolist())


def test_the_ledger_knows_what_networks_thought_of_samples_that_were_held_out():
    p = problem(n=60, runs=1)
    plan = replace(HELD, epochs=1, batch_size=12)  # a whole number of batches, so that every sample is seen
    training = fit(p, METHODS["standard"], plan, mlp, engine=Engine(torch.float64), ledger=True)
    held = hold_out(p, HELD).held_V
    logits = training.best.stack.network(0, 0)(p.x_M[held])  # of the only epoch
    odds = logits.softmax(1)
    given = odds.gather(1, p.y_RM[0, held][:, None])[:, 0]
    other = odds.scatter(1, p.y_RM[0, held][:, None], -1).max(1).values
    expected = (given.log() - other.log()).sigmoid()
    torch.testing.assert_close(torch.from_numpy(training.ledger.quality()[0])[held], expected.detach())
    assert (training.ledger.seen_NRM == 1).all()


def test_streamed_samples_are_held_out_alike():
    p = problem(n=60, runs=1)
    from_memory, _ = run_fit(p, METHODS["f_correction"], HELD)
    streamed, _ = run_fit(replace(p, x_M=Stream(Rows(p.x_M), "cpu")), METHODS["f_correction"], HELD)
    assert torch.equal(from_memory.stack.theta_NRP, streamed.stack.theta_NRP)


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="all of 1 samples: give a smaller share"):
        hold_out(problem(n=1, runs=1), Plan(held_out=0.5))


# ---- as runs have it ------------------------------------------------------------------------------------------


def test_f_correction_holds_a_tenth_out_unless_told_otherwise():
    assert Experiment(method="f_correction").plan().held_out == 0.1
    assert Experiment(method="f_correction_known").plan().held_out == 0.1
    assert Experiment(method="f_correction", held_out=0).plan().held_out == 0
    assert Experiment(method="standard").plan().held_out == 0
    assert Experiment(method="coteaching", held_out=0.2).plan().held_out == 0.2


@pytest.mark.parametrize("share", [-0.1, 1, "a"])
def test_other_shares_are_refused(share):
    with pytest.raises(ValueError, match="held_out is"):
        Experiment(held_out=share).check()


def test_rounds_hold_nothing_out():
    with pytest.raises(ValueError, match="iterative learns from all samples"):
        Experiment(method="iterative", dataset="openset-cifar100", held_out=0.1).check()


def test_a_run_of_f_correction_from_before_goes_on_without(tmp_path):
    whole = run(experiment("f_correction", out=tmp_path / "whole", held_out=0.0), say=silent)
    stopped([experiment("f_correction", out=tmp_path / "run", held_out=0.0)], 4)
    config = tmp_path / "run" / "config.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(("held_out", "one_cycle"))]
    config.write_text("\n".join(lines) + "\n")
    resumed = run(Experiment(resume=tmp_path / "run"), say=silent)
    assert resumed.rows == whole.rows
    for path in (whole.folder / "networks").iterdir():
        assert (resumed.folder / "networks" / path.name).read_bytes() == path.read_bytes()
