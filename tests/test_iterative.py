"""Iterative learning: judging, pairs and training against plain loops, and strangers among three clouds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import LocalOutlierFactor
from torch import nn

from coteach.data.base import Rows
from coteach.engine import Engine
from coteach.engine.batches import same_view
from coteach.engine.stack import Stack
from coteach.engine.stream import Stream
from coteach.engine.training import Epoch, start
from coteach.iterative import (
    Belief,
    contrastive,
    fit_iterative,
    rounds_of,
    weighted_mini_batch,
    with_features,
)
from coteach.measure import count
from coteach.methods import METHODS
from coteach.networks import build
from coteach.plan import Plan
from coteach.train import train_epoch
from tiny import PLAN, Known, assert_same_rows, assert_same_weights, mlp, normed, one_run, problem, run_fit

ROW = {
    "seed", "epoch", "test_accuracy", "ensemble_accuracy", "train_loss", "label_precision", "label_recall",
    "disagreement", "total_variation", "keep_rate", "kept", "events",
}  # fmt: skip
ROUNDS = {"rounds": 3, "first_epochs": 2, "later_epochs": 2}
DOUBLE = Engine(torch.float64)


def fitted(p: Known, plan: Plan = PLAN, net=mlp, **options):
    """The training, for each run its rows, and (weights, inliers) after each judgement."""
    epochs, beliefs = [], []
    options = {"engine": DOUBLE, **ROUNDS, **options}
    training = fit_iterative(
        p,
        plan,
        net,
        on_epoch=lambda epoch: epochs.append(p.rows(epoch)),
        on_round=lambda belief: beliefs.append((belief.weight_RM.clone(), belief.inlier_RM.clone())),
        **options,
    )
    return training, [list(rows) for rows in zip(*epochs, strict=True)], beliefs


# ---- judging --------------------------------------------------------------------------------------------------


def plainly_judged(features_by_round, y, neighbours, contamination):
    """Weights and inliers after each round, sample by sample."""
    score, factor = dict.fromkeys(range(len(y)), 0), dict.fromkeys(range(len(y)), 0.0)
    answers = []
    for n_rounds, features in enumerate(features_by_round, start=1):
        inliers = set(range(len(y)))
        for label in sorted(set(y.tolist())):
            members = [i for i in range(len(y)) if y[i] == label]
            verdict, factors = [1] * len(members), [-1.0] * len(members)
            if len(members) > 1:
                k = min(neighbours, max(1, int(0.4 * len(members))))
                lof = LocalOutlierFactor(n_neighbors=k, metric="cosine", contamination=contamination)
                verdict = lof.fit_predict(np.array([features[i] for i in members]))
                factors = lof.negative_outlier_factor_
            for i, v, f in zip(members, verdict, factors, strict=True):
                score[i] += v == 1
                factor[i] += f
            ranked = sorted(members, key=lambda i: (score[i], factor[i], i))
            inliers -= set(ranked[: len(members) // 2])
        weights = [score[i] / n_rounds for i in range(len(y))]
        answers.append((weights, [i in inliers for i in range(len(y))]))
    return answers


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 4),
    st.integers(1, 50),
    st.sampled_from([0.1, 0.4, 0.5]),
)
def test_judging_is_the_plain_loop(seed, n, n_classes, neighbours, contamination):
    """Classes of one or two samples and fewer samples than neighbours among them."""
    random = np.random.default_rng(seed)
    y = random.integers(0, n_classes, n)
    rounds = random.normal(size=(3, n, 4)) + 1
    belief = Belief(torch.from_numpy(np.stack([y, y])), torch.float64)
    for (weights, inliers), features in zip(
        plainly_judged(rounds, y, neighbours, contamination), rounds, strict=True
    ):
        belief.judge(np.stack([features, features]), neighbours, contamination)
        for r in range(2):
            assert belief.weight_RM[r].tolist() == pytest.approx(weights)
            assert belief.inlier_RM[r].tolist() == inliers


def test_runs_are_judged_by_their_own_labels_and_features():
    random = np.random.default_rng(0)
    y, features = random.integers(0, 3, (2, 50)), random.normal(size=(2, 50, 4))
    together = Belief(torch.from_numpy(y), torch.float64)
    together.judge(features, 5, 0.4)
    for r in range(2):
        alone = Belief(torch.from_numpy(y[r : r + 1]), torch.float64)
        alone.judge(features[r : r + 1], 5, 0.4)
        assert torch.equal(alone.inlier_RM[0], together.inlier_RM[r])
    assert not torch.equal(together.inlier_RM[0], together.inlier_RM[1])


def test_features_that_are_not_finite_are_outliers():
    features = np.random.default_rng(0).normal(size=(1, 20, 3))
    features[0, 7, 1], features[0, 3, 0] = np.nan, np.inf
    belief = Belief(torch.zeros(1, 20, dtype=torch.int64), torch.float64)
    belief.judge(features, 2000, 0.1)
    assert belief.weight_RM[0, [3, 7]].tolist() == [0, 0]
    assert not belief.inlier_RM[0, [3, 7]].any()
    assert belief.weight_RM.sum() >= 15


# ---- pairs ----------------------------------------------------------------------------------------------------


def plain_contrastive(features, y, inlier, margin):
    losses = []
    for i in range(len(y)):
        for j in range(i):
            if inlier[i] or inlier[j]:
                distance = sum((a - b) ** 2 for a, b in zip(features[i], features[j], strict=True)) ** 0.5
                similar = inlier[i] and inlier[j] and y[i] == y[j]
                losses.append((distance**2 if similar else max(0.0, margin - distance) ** 2) / 2)
    return sum(losses) / len(losses) if losses else 0.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.5, 1.0, 3.0]))
def test_the_contrastive_loss_is_the_double_loop(seed, n, margin):
    random = np.random.default_rng(seed)
    features, y = random.normal(size=(2, n, 3)), random.integers(0, 3, (2, n))
    inlier = random.random((2, n)) < 0.6
    found = contrastive(*(torch.from_numpy(a) for a in (features, y, inlier)), margin=margin)
    assert found.tolist() == pytest.approx(
        [plain_contrastive(*run, margin) for run in zip(features, y, inlier, strict=True)]
    )


def test_samples_in_one_place_have_a_finite_gradient():
    features = torch.ones(1, 4, 3, requires_grad=True)
    loss = contrastive(features, torch.tensor([[0, 0, 1, 1]]), torch.tensor([[True, True, True, False]]))
    assert loss.item() == pytest.approx(5 / 12, abs=1e-5)  # five of the six pairs should be apart
    assert torch.isfinite(torch.autograd.grad(loss.sum(), features)[0]).all()


def test_features_are_those_of_the_network():
    stack = Stack(lambda: build("cnn7_dense", shape=(3, 32, 32), n_classes=4), [1, 2], 1, batched=False)
    x = torch.rand(1, 2, 3, 3, 32, 32)
    with stack.evaluating():
        logits_NRBC, features_RBF = with_features(stack, x)
        for r in range(2):
            network = stack.network(0, r)
            torch.testing.assert_close(features_RBF[r], network.features(x[0, r]))
            torch.testing.assert_close(logits_NRBC[0, r], network(x[0, r]))
    assert features_RBF.shape == (2, 3, 256)
    assert not any(m._forward_pre_hooks for module in stack.modules for m in module.modules())


def test_a_network_without_an_output_layer_is_refused():
    with pytest.raises(ValueError, match="ends in a linear layer"):
        fitted(problem(), net=lambda: nn.Sequential(nn.Unflatten(1, (8, 1)), nn.Conv1d(8, 3, 1), nn.Flatten()))


# ---- rounds ---------------------------------------------------------------------------------------------------


def test_the_authors_ten_rounds_take_95_epochs():
    rounds = rounds_of(95)
    assert [len(epochs) for epochs in rounds] == [5] + 9 * [10]
    assert [epoch for epochs in rounds for epoch in epochs] == list(range(1, 96))


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 7), st.integers(1, 7))
def test_rounds_cover_any_plan(epochs, rounds, first, later):
    found = rounds_of(epochs, rounds, first, later)
    assert [epoch for one in found for epoch in one] == list(range(1, epochs + 1))
    assert len(found) <= rounds
    assert all(len(one) > 0 for one in found)
    if epochs == first + (rounds - 1) * later:
        assert [len(one) for one in found] == [first] + (rounds - 1) * [later]


# ---- training -------------------------------------------------------------------------------------------------


def plain_training(p: Known, plan: Plan, net, margin: float):
    """One run of `ROUNDS` with torch's own modules and Adam; the network and the weights at the end."""
    starting = start(p, 1, plan, net, Engine(torch.float64, batched=False), same_view)
    network, batches = starting.stack.network(0, 0).train(), starting.batches
    x, y = p.x_M, p.y_RM[0]
    weight, inlier, judged = torch.ones(len(y), dtype=torch.float64), [True] * len(y), []
    for epochs in (range(1, 3), range(3, 5), range(5, 7)):
        if epochs.start > 1:
            with torch.no_grad():
                judged.append(network.eval()[:-1](x).numpy())
            network.train()
            weights, inlier = plainly_judged(judged, y, 2000, 0.4)[-1]
            weight = torch.tensor(weights, dtype=torch.float64)
        adam = torch.optim.Adam(network.parameters())
        for epoch in epochs:
            adam.param_groups[0]["lr"] = plan.learning_rate(epoch)
            batches.shuffle(epoch)
            for index in batches.order_SRB[:, 0]:
                features = network[:-1](x[index])
                loss = (
                    weight[index] * nn.functional.cross_entropy(network[-1](features), y[index], reduction="none")
                ).mean()
                pairs = [
                    (features[i] - features[j]).square().sum() / 2
                    if inlier[a] and inlier[b] and y[a] == y[b]
                    else (margin - (features[i] - features[j]).norm()).clamp(min=0).square() / 2
                    for i, a in enumerate(index.tolist())
                    for j, b in enumerate(index.tolist())
                    if i < j and (inlier[a] or inlier[b])
                ]
                adam.zero_grad()
                (loss + torch.stack(pairs).mean()).backward()
                adam.step()
    return network.eval(), weight


@pytest.mark.parametrize("net", [mlp, normed])
def test_it_trains_like_the_plain_loop(net):
    p = problem(runs=2)
    training, _, beliefs = fitted(p, net=net, margin=1.5)
    for r in range(2):
        network, weight = plain_training(one_run(p, r), PLAN, net, margin=1.5)
        assert_same_weights(training.stack.network(0, r), network)
        assert beliefs[-1][0][r].tolist() == pytest.approx(weight.tolist())
    assert len(beliefs) == 2


@pytest.mark.parametrize("net", [mlp, normed])
def test_the_same_seed_is_the_same_run_alone_or_with_others(net):
    p = problem()
    training, rows, beliefs = fitted(p, net=net)
    torch.rand(3)  # the global generator's state must not matter
    again, rows_again, _ = fitted(p, net=net)
    assert rows == rows_again
    assert torch.equal(training.stack.theta_NRP, again.stack.theta_NRP)
    for r in range(3):
        alone, (rows_alone,), beliefs_alone = fitted(one_run(p, r), net=net)
        assert_same_rows(rows_alone, rows[r])
        assert_same_weights(alone.stack.network(0, 0), training.stack.network(0, r))
        assert torch.equal(beliefs_alone[-1][1][0], beliefs[-1][1][r])
    assert not torch.equal(training.stack.theta_NRP[0, 0], training.stack.theta_NRP[0, 1])


def test_streamed_samples_are_the_same_training():
    p = problem(runs=2)
    resident, rows, _ = fitted(p)
    streamed, streamed_rows, _ = fitted(
        replace(p, x_M=Stream(Rows(p.x_M), "cpu"), x_test=Stream(Rows(p.x_test), "cpu"))
    )
    assert rows == streamed_rows
    assert torch.equal(resident.stack.theta_NRP, streamed.stack.theta_NRP)


@pytest.mark.parametrize("loss", ["cross_entropy", "mae"])
def test_the_first_round_without_pairs_is_standard(loss):
    """A margin of 0 and a class for every sample leave the contrastive loss at 0."""
    p = problem(n=16, runs=1)
    p = replace(p, y_RM=torch.arange(16)[None], n_classes=16)
    plan = replace(PLAN, epochs=2, loss=loss)
    wide = lambda: nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 16))  # noqa: E731
    training, (rows,), _ = fitted(p, plan, wide, margin=0.0)
    standard, (standard_rows,) = run_fit(p, METHODS["standard"], plan, wide)
    assert_same_weights(training.stack.network(0, 0), standard.stack.network(0, 0))
    assert_same_rows(
        [row | {"keep_rate": None} for row in rows], [row | {"keep_rate": None} for row in standard_rows]
    )


# ---- rows -----------------------------------------------------------------------------------------------------


def test_rows_keep_the_contract():
    p = problem()
    _, rows, beliefs = fitted(p)
    for r, seed in enumerate(p.seeds):
        assert [(row["seed"], row["epoch"]) for row in rows[r]] == [(seed, e) for e in range(1, 7)]
        for row in rows[r]:
            assert set(row) == ROW
            assert len(row["test_accuracy"]) == 1
            assert row["test_accuracy"] == [row["ensemble_accuracy"]]
            assert row["disagreement"] is None
            assert row["total_variation"] is None
        assert all(row["keep_rate"] == 1 and row["kept"] == 16 and row["label_recall"] == 1 for row in rows[r][:2])
        for row, (weight_RM, _) in zip(rows[r][2::2], beliefs, strict=True):
            assert row["keep_rate"] == pytest.approx(weight_RM[r].mean().item())
            assert row["kept"] < 16


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_weights_of_0_and_1_count_as_in_other_methods(share):
    """And half the weights count half, which leaves means as they are."""
    p = problem()
    phase = METHODS["standard"].phases(PLAN)[0]
    training = start(p, 1, PLAN, mlp, Engine(torch.float64, batched=False), same_view)
    belief = Belief(p.y_RM, torch.float64)
    belief.weight_RM.copy_(share * (torch.arange(60) % 3 > 0).expand(3, -1))
    train_epoch(training, 1, weighted_mini_batch(training, phase, belief, 1.0))
    training.records.finite_SNR[1, 0, 2] = False  # as if the third run had sat out its second batch
    clean_SRB = training.batches.in_batch_order(p.clean_RM)
    expected = count(training.records, phase.rule, clean_SRB, training.clock.keep_R1, True)
    for row, other in zip(p.rows(Epoch(1, training, phase, weight_RM=belief.weight_RM)), expected, strict=True):
        for key in ("train_loss", "label_precision"):
            assert row[key] == pytest.approx(other[key])
        for key in ("label_recall", "kept"):
            assert row[key] == pytest.approx(share * other[key])
        assert row["keep_rate"] == pytest.approx(share * 2 / 3)
        assert row["events"].get("non_finite_loss") == other["events"].get("non_finite_loss")


@pytest.mark.parametrize("net", [mlp, normed])
def test_a_batch_that_is_not_finite_is_sat_out(net):
    p = problem(runs=1)
    assert isinstance(p.x_M, torch.Tensor)
    p.x_M[5] = torch.nan
    training, (rows,), beliefs = fitted(p, net=net)
    assert all(torch.isfinite(t).all() for t in (training.stack.theta_NRP, *training.stack.statistics))
    sat_out = [row["events"].get("non_finite_loss", 0) for row in rows[:2]]
    assert [row["kept"] for row in rows[:2]] == pytest.approx([16 * (1 - n / 3) for n in sat_out])
    assert 1 in sat_out
    assert beliefs[-1][0][0, 5] == 0


# ---- three clouds and strangers -------------------------------------------------------------------------------


def clouds(n: int = 240, strangers: float = 0.35) -> tuple[Known, torch.Tensor]:
    """Three classes in eight dimensions; strangers come from all around, labelled at random."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (n + 90,), generator=generator)
    x = 3 * torch.eye(3, 8)[y] + 0.5 * torch.randn(n + 90, 8, generator=generator)
    strange = torch.rand(n, generator=generator) < strangers
    x[:n][strange] = 3 * torch.randn(int(strange.sum()), 8, generator=generator)
    x = x.double()
    p = Known(x[:n], y[None, :n], 3, [strangers], [4], x_test=x[n:], y_test=y[n:], clean_RM=~strange[None])
    return p, strange


def test_strangers_are_found_and_weigh_less():
    p, strange = clouds()
    plan = Plan(epochs=20, batch_size=40, lr=0.005, decay_start=20)
    _, (rows,), beliefs = fitted(p, plan, rounds=4, first_epochs=5, later_epochs=5)
    weight, inlier = beliefs[-1][0][0], beliefs[-1][1][0]
    assert strange[~inlier].double().mean() > 0.6  # of 35 %, in the lowest half
    assert (~inlier)[strange].double().mean() > 0.9
    assert weight[strange].mean() < 0.2
    assert weight[~strange].mean() > 0.8
    assert rows[-1]["label_precision"] > rows[0]["label_precision"] + 0.2
    assert rows[-1]["test_accuracy"][0] > 0.9


# ---- on a GPU -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("net", [mlp, normed])
def test_a_gpu_trains_as_the_cpu(net, captured):
    p = problem()
    there = replace(p, **{k: getattr(p, k).cuda() for k in ("x_M", "y_RM", "x_test", "y_test", "clean_RM")})
    cpu, cpu_rows, cpu_beliefs = fitted(p, net=net)
    gpu, gpu_rows, gpu_beliefs = fitted(there, net=net, engine=Engine(torch.float64, captured=captured))
    for r in range(3):
        assert_same_rows(gpu_rows[r], cpu_rows[r])
        assert_same_weights(gpu.stack.network(0, r).cpu(), cpu.stack.network(0, r))
    for (weight, inlier), (expected_weight, expected_inlier) in zip(gpu_beliefs, cpu_beliefs, strict=True):
        assert torch.equal(weight.cpu(), expected_weight)
        assert torch.equal(inlier.cpu(), expected_inlier)
