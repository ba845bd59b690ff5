"""The ledger: what it adds up, against networks that stand still; and what it finds."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score

from coteach.engine import Engine
from coteach.engine.records import Ledgers
from coteach.labels.ledger import average_precision, suspects
from coteach.methods import METHODS
from coteach.train import fit
from tiny import BY_RULE, PLAN, assert_same_weights, mlp, normed, problem

DOUBLE = Engine(torch.float64)


def kept(name: str, plan=PLAN, build=mlp, p=None, engine=DOUBLE) -> tuple:
    training = fit(p or problem(), METHODS[name], plan, build, engine=engine, ledger=True)
    assert training.ledger is not None
    return training, training.ledger


def averaged(ledger: Ledgers, total_NRM: torch.Tensor) -> torch.Tensor:
    return total_NRM / ledger.seen_NRM


@pytest.mark.parametrize("batched", [True, False])
def test_of_networks_that_stand_still_every_epoch_says_the_same(batched):
    p = problem()
    training, ledger = kept("coteaching", replace(PLAN, lr=0.0), p=p, engine=Engine(torch.float64, batched))
    dealt = training.batches.per_epoch * training.batches.size
    assert (ledger.seen_NRM.sum(-1) == PLAN.epochs * dealt).all()
    assert (ledger.seen_NRM > 0).all()
    for n in range(2):
        for r in range(3):
            with torch.no_grad():
                logits_MC = training.stack.network(n, r)(p.x_M)
            p_MC, y_M = logits_MC.softmax(-1), p.y_RM[r]
            of_given = p_MC[torch.arange(60), y_M]
            others = p_MC.clone()
            others[torch.arange(60), y_M] = -1
            expected = {
                "given_NRM": of_given,
                "margin_NRM": (of_given / others.amax(-1)).log(),
                "loss_NRM": torch.nn.functional.cross_entropy(logits_MC, y_M, reduction="none"),
            }
            for key, value in expected.items():
                torch.testing.assert_close(averaged(ledger, getattr(ledger, key))[n, r], value)
            assert torch.equal(ledger.prediction_NRM[n, r].long(), p_MC.argmax(-1))
            assert torch.equal(ledger.other_NRM[n, r].long(), others.argmax(-1))


@pytest.mark.parametrize("name", BY_RULE)
def test_keeping_it_changes_nothing(name):
    with_it, ledger = kept(name)
    without = fit(problem(), METHODS[name], PLAN, mlp, engine=DOUBLE)
    assert without.ledger is None
    for n in range(METHODS[name].networks):
        assert_same_weights(with_it.stack.network(n, 1), without.stack.network(n, 1))
    assert ((ledger.picks_NRM >= 0) & (ledger.picks_NRM <= ledger.seen_NRM)).all()


@pytest.mark.parametrize("name", ["coteaching", "coteaching_plus"])
def test_the_kept_share_is_of_what_there_was_to_pick_from(name):
    p = problem()
    learnt_C, among_C, since = torch.zeros(3, 3), torch.zeros(3, 3), None  # runs and classes

    def after(epoch):
        nonlocal since
        training = epoch.training
        if epoch.number == 3:
            since = training.ledger.counts()
        elif epoch.number > 3:
            given_SRB = training.batches.in_batch_order(p.y_RM)
            for r, c in itertools.product(range(3), range(3)):
                of_class_SB = (given_SRB[:, r] == c)[:, None]
                learnt_C[r, c] += (training.records.learnt_SNRB[:, :, r] & of_class_SB).sum()
                among_C[r, c] += (training.records.among_SNRB[:, :, r] & of_class_SB).sum()

    training = fit(p, METHODS[name], PLAN, mlp, engine=DOUBLE, ledger=True, on_epoch=after)
    np.testing.assert_allclose(training.ledger.kept_share(p.y_RM, 3, since), learnt_C / among_C)
    assert (training.ledger.candidates_NRM <= training.ledger.seen_NRM).all()
    assert np.isnan(training.ledger.kept_share(p.y_RM, 4)[:, 3]).all()


def test_picks_are_those_that_were_learnt():
    _, standard = kept("standard")
    assert torch.equal(standard.picks_NRM, standard.seen_NRM)
    kept_shares = []

    def after(epoch):
        kept_shares.append(epoch.training.records.learnt_SNRB.sum((0, 3)))

    training = fit(problem(), METHODS["coteaching_plus"], PLAN, mlp, engine=DOUBLE, ledger=True, on_epoch=after)
    assert torch.equal(training.ledger.picks_NRM.sum(-1), torch.stack(kept_shares).sum(0).int())


@pytest.mark.parametrize("name", ["coteaching", "f_correction"])
def test_batched_looped_and_alone_are_the_same(name):
    ledgers = [kept(name, build=normed, engine=Engine(torch.float64, batched))[1] for batched in (True, False)]
    alone = kept(name, build=normed, p=problem().part(range(1, 2)))[1]
    for key, value in vars(ledgers[0]).items():
        if key.endswith("NRM"):
            torch.testing.assert_close(getattr(ledgers[1], key), value)
            torch.testing.assert_close(getattr(alone, key)[:, 0], value[:, 1])


def test_opinions_that_are_not_finite_do_not_count():
    p = problem()
    x_M = torch.as_tensor(p.x_M).clone()
    x_M[7] = torch.inf
    p = replace(p, x_M=x_M)
    _, ledger = kept("coteaching", p=p)
    assert (ledger.seen_NRM[..., 7] == 0).all()
    quality_RM = ledger.quality()
    assert (quality_RM[:, 7] == 0.5).all()
    assert np.isfinite(quality_RM).all()


@pytest.mark.parametrize("name", [name for name in BY_RULE if METHODS[name].networks == 2])
def test_wrong_labels_have_a_low_quality(name):
    """Against the share of wrong labels, which is what a shuffled list would reach."""
    p = problem(n=600, flips=0.3)
    _, ledger = kept(name, replace(PLAN, epochs=20, batch_size=32), p=p)
    quality_RM = ledger.quality()
    assert ((quality_RM >= 0) & (quality_RM <= 1)).all()
    for quality_M, clean_M in zip(quality_RM, p.clean_RM.numpy(), strict=True):
        wrong_M = ~clean_M
        assert average_precision_score(wrong_M, -quality_M) > 1.5 * wrong_M.mean()


def test_the_truth_is_suggested_for_most_wrong_labels():
    p = problem(n=600, flips=0.3)
    _, ledger = kept("coteaching", replace(PLAN, epochs=20, batch_size=32), p=p)
    truth_M = (p.y_RM - (~p.clean_RM).long()).remainder(3).numpy()  # labels were flipped to the next class
    for suggested_M, right_M, clean_M in zip(ledger.suggestion(), truth_M, p.clean_RM.numpy(), strict=True):
        assert (suggested_M[~clean_M] == right_M[~clean_M]).mean() > 0.6  # half would be chance


@given(quality=arrays(float, st.integers(1, 30), elements=st.floats(0, 1)), share=st.floats(0, 1))
def test_suspects_are_the_worst_first_and_ties_in_order(quality, share):
    given_M, suggested = np.arange(len(quality)), np.arange(len(quality)) + 1
    found = suspects(given_M, quality, suggested, share)
    expected = sorted(range(len(quality)), key=lambda i: (quality[i], i))[: round(share * len(quality))]
    assert found.index.tolist() == expected
    assert len(found) == len(expected)
    assert found.quality.tolist() == [quality[i] for i in expected]
    assert (found.suggested == found.given + 1).all()


@given(
    arrays(float, st.shared(st.integers(1, 30), key="n"), elements=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])),
    arrays(bool, st.shared(st.integers(1, 30), key="n")),
)
def test_average_precision_is_scikit_learn_s_with_ties_and_without(quality_M, wrong_M):
    found = average_precision(quality_M, wrong_M)
    if not wrong_M.any():
        assert found is None
    else:
        assert found == pytest.approx(average_precision_score(wrong_M, 1 - quality_M), abs=1e-12)
        apart_M = quality_M + np.arange(len(quality_M)) / 1000
        expected = average_precision_score(wrong_M, 1 - apart_M)
        assert average_precision(apart_M, wrong_M) == pytest.approx(expected, abs=1e-12)
