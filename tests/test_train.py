"""Whole trainings: the vectorised trainer against the plain loop, runs together against each alone."""

from collections.abc import Callable
from dataclasses import replace

import plain
import pytest
import torch
from torch import Tensor, nn

from coteach.fidelity import AUTHORS, PAPER, parse
from coteach.losses import LOSSES
from coteach.methods import METHODS, Method
from coteach.plan import Plan
from coteach.train import Problem, Training, fit

F, C = 8, 3
PLAN = Plan(epochs=6, batch_size=16, warmup=2, ramp=3, lr=0.01, decay_start=3)
FIDELITIES = {"paper": PAPER, "authors": AUTHORS}


def problem(n: int = 60, n_test: int = 40, runs: int = 3, flips: float = 0.3) -> Problem:
    """Three clouds that overlap; each run has its own wrong labels, noise rate and seed."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(C, F, generator=generator, dtype=torch.float64)
    truth = torch.randint(0, C, (n + n_test,), generator=generator)
    x = centres[truth] + torch.randn(n + n_test, F, generator=generator, dtype=torch.float64)
    wrong_RM = torch.rand(runs, n, generator=generator) < flips
    y_RM = torch.where(wrong_RM, (truth[:n] + 1) % C, truth[:n])
    return Problem(
        x_M=x[:n],
        y_RM=y_RM,
        x_test=x[n:],
        y_test=truth[n:],
        n_classes=C,
        noise_rates=[0.3, 0.45, 0.2][:runs],
        seeds=[1, 2, 30][:runs],
        clean_RM=~wrong_RM,
        matrix_RCC=torch.stack([(1 - f) * torch.eye(C) + f / C for f in (0.3, 0.4, 0.5)][:runs]).double(),
    )


def one_run(p: Problem, run: int) -> Problem:
    only = slice(run, run + 1)
    return replace(
        p,
        y_RM=p.y_RM[only],
        noise_rates=p.noise_rates[only],
        seeds=p.seeds[only],
        clean_RM=p.clean_RM[only],
        matrix_RCC=p.matrix_RCC[only],
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(F, 10), nn.ReLU(), nn.Linear(10, C))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(F, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, C))


def convolutional() -> nn.Module:
    """On the same eight numbers, as an image of 2 × 4."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, C),
    )


def run_fit(
    p: Problem, method: Method, plan: Plan, build: Callable[[], nn.Module] = mlp, batched: bool | None = None
) -> tuple[Training, list[list[dict]]]:
    """The training, and for each run its rows, one an epoch."""
    epochs: list[list[dict]] = []
    training = fit(
        p,
        method,
        plan,
        build,
        dtype=torch.float64,
        batched=batched,
        on_epoch=lambda epoch: epochs.append(epoch.rows),
    )
    return training, [list(rows) for rows in zip(*epochs, strict=True)]


def assert_same_rows(found: list[dict], expected: list[dict]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["events"] == theirs["events"], mine["epoch"]
        for key in mine.keys() - {"events"}:
            assert mine[key] == pytest.approx(theirs[key], abs=1e-9), (mine["epoch"], key)


def assert_same_weights(found: nn.Module, expected: nn.Module) -> None:
    mine, theirs = found.state_dict(), expected.state_dict()
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-9, atol=1e-9)


def assert_trains_like_the_plain_loop(
    name: str,
    plan: Plan,
    build: Callable[[], nn.Module] = mlp,
    p: Problem | None = None,
    method: Method | None = None,
    of_stages: Callable[[str, Plan], list[plain.Stage]] = plain.stages,
) -> list[list[dict]]:
    p = p or problem()
    training, rows = run_fit(p, method or METHODS[name], plan, build)
    for run in range(len(p.seeds)):
        pair, plain_rows = plain.train(name, p, run, plan, build, of_stages)
        assert_same_rows(rows[run], plain_rows)
        for n, network in enumerate(pair.networks):
            assert_same_weights(training.stack.network(n, run), network.eval())
    return rows


def events(rows: list[list[dict]]) -> set[str]:
    return {event for run in rows for row in run for event in row["events"]}


# ---- against the plain loop -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
@pytest.mark.parametrize("name", METHODS)
def test_method_trains_like_the_plain_loop(name, fidelity):
    rows = assert_trains_like_the_plain_loop(name, replace(PLAN, fidelity=fidelity))
    learnt = [[row["test_accuracy"][0] for row in run] for run in rows]
    assert max(max(run) for run in learnt) > 0.5  # something was learnt, or the comparison would be empty


@pytest.mark.parametrize("fidelity", FIDELITIES.values(), ids=FIDELITIES)
@pytest.mark.parametrize("name", METHODS)
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
@pytest.mark.parametrize("name", METHODS)
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


def opinionated() -> nn.Module:
    """Predicts class 0 for everything, whatever its seed: no two of them disagree."""
    network = mlp()
    with torch.no_grad():
        network[2].bias.copy_(torch.tensor([30.0, 0.0, 0.0]))
    return network


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


def late(epochs: range) -> tuple[Method, Callable[[str, Plan], list[plain.Stage]]]:
    """Co-teaching+ that begins after thousands of epochs, in the library and in the plain loop."""
    plus = METHODS["coteaching_plus"]
    method = replace(plus, phases=lambda plan: [replace(plus.phases(plan)[-1], epochs=epochs)])
    return method, lambda name, plan: [replace(plain.stages(name, plan)[-1], epochs=epochs)]


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


def test_nobody_looks_at_the_clean_mask_or_the_test_labels():
    p = problem()
    blind = replace(p, clean_RM=~p.clean_RM, y_test=(p.y_test + 1) % C)
    for method in METHODS.values():
        seeing, _ = run_fit(p, method, PLAN)
        unseeing, _ = run_fit(blind, method, PLAN)
        assert torch.equal(seeing.stack.theta_NRP, unseeing.stack.theta_NRP)


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

    fit(problem(), METHODS["f_correction"], PLAN, mlp, dtype=torch.float64, on_epoch=on_epoch)
    every = range(1, PLAN.epochs + 1)
    assert seen == [(e, True) for e in every] + [(e, False) for e in every]
    standard, _ = run_fit(problem(), METHODS["standard"], PLAN)
    assert torch.equal(ends[0], standard.stack.theta_NRP)
    assert not torch.equal(ends[0], ends[1])


def test_a_known_matrix_of_no_noise_is_standard_training():
    p = replace(problem(), matrix_RCC=torch.eye(C, dtype=torch.float64).expand(3, C, C))
    known, _ = run_fit(p, METHODS["f_correction_known"], PLAN)
    standard, _ = run_fit(p, METHODS["standard"], PLAN)
    torch.testing.assert_close(known.stack.theta_NRP, standard.stack.theta_NRP, rtol=1e-9, atol=1e-9)


def test_single_switches_train_like_the_plain_loop():
    """Halfway houses between the two fidelities."""
    for text in ("paper+rescue", "paper+divided_twice", "authors-softmax_twice", "authors-rescue-floor"):
        assert_trains_like_the_plain_loop("coteaching_plus", replace(PLAN, fidelity=parse(text)))
