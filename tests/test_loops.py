"""Pair, Selection and Ledger in a loop of one's own: pick for pick what the engine does, and the plain rule."""

import copy
import math
from collections import namedtuple
from dataclasses import make_dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import coteach
from coteach.engine import Engine
from coteach.engine.batches import same_view
from coteach.engine.records import Ledgers
from coteach.engine.training import start
from coteach.loops.selection import goes_with_any_loop
from coteach.methods import METHODS
from coteach.train import fit
from tiny import PLAN, assert_same_weights, mlp, one_run, problem

ANY_LOOP = [name for name, method in METHODS.items() if goes_with_any_loop(method)]
DOUBLE = Engine(torch.float64)
frozen = partial(make_dataclass, frozen=True)


def pair_of(*networks: nn.Module) -> coteach.Pair:
    ready = iter([copy.deepcopy(network) for network in networks])
    return coteach.Pair(lambda: next(ready))


def some_batch(size: int, networks: int = 2, classes: int = 3, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(networks, size, classes, generator=generator, dtype=torch.float64, requires_grad=True)
    return logits, torch.randint(0, classes, (size,), generator=generator)


# ---- against the engine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ANY_LOOP)
@pytest.mark.parametrize("per_class", [False, True])
def test_a_loop_of_ones_own_is_the_engines_training(name, per_class):
    """The same picks in every epoch, the same weights at the end, the same ledger to the last bit."""
    p, plan, networks = one_run(problem(), 0), replace(PLAN, keep_per_class=per_class), METHODS[name].networks
    picks: list[torch.Tensor] = []
    trained = fit(
        p, METHODS[name], plan, mlp, engine=DOUBLE, ledger=True,
        on_epoch=lambda e: picks.append(e.training.records.learnt_SNRB.clone()),
    )  # fmt: skip
    fresh = start(p, networks, plan, mlp, DOUBLE, same_view)
    begun = [fresh.stack.network(n, 0) for n in range(networks)]
    model = pair_of(*begun) if networks == 2 else begun[0]
    ledger = coteach.Ledger(len(p.x_M))
    selection = coteach.Selection(
        name, p.noise_rates[0], epochs=plan.epochs, ramp=plan.ramp, warmup=plan.warmup, window=plan.batch_size,
        keep_per_class=per_class, ledger=ledger,
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters())
    for epoch in plan.all_epochs:
        optimiser.param_groups[0]["lr"] = plan.learning_rate(epoch)
        fresh.batches.shuffle(epoch)
        for step, index in enumerate(fresh.batches.order_SRB[:, 0]):
            optimiser.zero_grad()
            selection(model(p.x_M[index]), p.y_RM[0, index], index).backward()
            assert torch.equal(selection.picked, picks[epoch - 1][step, :, 0])
            for network, some in zip(getattr(model, "networks", [model]), selection.picked.any(-1), strict=True):
                if not some:  # nothing to learn from: Adam would coast on
                    network.zero_grad(set_to_none=True)
            optimiser.step()
        selection.next_epoch()
    for n, network in enumerate(getattr(model, "networks", [model])):
        assert_same_weights(network, trained.stack.network(n, 0))
    assert trained.ledger is not None
    assert np.allclose(ledger.quality(), trained.ledger.quality()[0], rtol=0, atol=1e-12)
    noted = ledger.seen_NM.sum(0).numpy() > 0
    assert np.array_equal(ledger.suggestion()[noted], trained.ledger.suggestion()[0][noted])
    assert torch.equal(ledger.picks_NM, trained.ledger.picks_NRM[:, 0])


def test_the_ledger_has_the_numbers_of_the_classifier(monkeypatch):
    seen, note, close = [], Ledgers.note, Ledgers.close

    def noting(self, step_1, logits_NRBC, y_RB):
        seen.append((logits_NRBC.clone(), y_RB.clone()))
        note(self, step_1, logits_NRBC, y_RB)

    def closing(self, batches, records):
        orders.append(batches.order_SRB.clone())
        close(self, batches, records)

    orders: list[torch.Tensor] = []
    monkeypatch.setattr(Ledgers, "note", noting)
    monkeypatch.setattr(Ledgers, "close", closing)
    x = np.random.default_rng(0).normal(size=(90, 4))
    y = np.where(x[:, 0] > 0, "cat", "dog")
    classifier = coteach.RobustClassifier(noise_rate=0.2, epochs=4, random_state=0).fit(x, y)
    ledger = coteach.Ledger(90, classes=classifier.classes_.tolist())
    batches = iter(seen)
    for order_SRB in orders:
        for index_RB in order_SRB:
            logits_NRBC, y_RB = next(batches)
            ledger.note(index_RB[0].numpy(), logits_NRBC[:, 0].numpy(), y_RB[0].numpy())
        ledger.next_epoch()
    assert np.array_equal(ledger.quality(), classifier.label_quality_)
    ours, theirs = ledger.suspects(classifier.noise_rate_), classifier.suspects()
    for field in ("index", "given", "suggested", "quality"):
        assert getattr(ours, field).tolist() == getattr(theirs, field).tolist()


# ---- Pair -----------------------------------------------------------------------------------------------------


def test_one_optimiser_over_both_is_two():
    pair, apart = coteach.Pair(mlp), coteach.Pair(mlp)
    together = torch.optim.Adam(pair.parameters(), 0.01)
    each = [torch.optim.Adam(network.parameters(), 0.01) for network in apart.networks]
    x, y = torch.randn(20, 8), torch.randint(0, 3, (20,))
    for _ in range(3):
        together.zero_grad()
        coteach.Selection("coteaching", 0.3, epochs=1, window=0)(pair(x), y).backward()
        together.step()
        weights = coteach.rules.weights("coteaching", [n(x) for n in apart.networks], y, 0.7)
        for network, weight_B, optimiser in zip(apart.networks, weights, each, strict=True):
            optimiser.zero_grad()
            (weight_B * nn.functional.cross_entropy(network(x), y, reduction="none")).sum().backward()
            optimiser.step()
    for mine, theirs in zip(pair.networks, apart.networks, strict=True):
        for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q)


def test_seeds_decide_the_weights_and_the_generator_is_left_alone():
    before = torch.get_rng_state()
    first, second = coteach.Pair(mlp), coteach.Pair(mlp, seeds=(1, 0))
    assert torch.equal(before, torch.get_rng_state())
    for n in range(2):
        assert torch.equal(first.networks[n][0].weight, second.networks[1 - n][0].weight)
    assert not torch.equal(first.networks[0][0].weight, first.networks[1][0].weight)


class OfDicts(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.head, self.kind = nn.Linear(4, 3), kind

    def forward(self, x, scale=1.0):
        logits = self.head(x * scale)
        if self.kind is tuple:
            return (logits,)
        return {"logits": logits, "features": x} if self.kind is dict else SimpleNamespace(logits=logits, other=7)


def test_it_returns_what_the_networks_return_with_both_logits_inside():
    x = torch.ones(5, 4)
    of_dicts, of_objects = coteach.Pair(lambda: OfDicts(dict)), coteach.Pair(lambda: OfDicts(object))
    out = of_dicts(x=x, scale=2.0)
    assert isinstance(out, dict)
    assert torch.equal(out["logits"][1], of_dicts.networks[1].head(2 * x))
    assert all(torch.equal(part, x) for part in out["features"])
    assert of_objects(x).logits.shape == (2, 5, 3)
    assert of_objects(x).other == 7
    torch.testing.assert_close(of_objects.ensemble(x), of_objects(x).logits.softmax(-1).mean(0))


@pytest.mark.parametrize("made", [namedtuple("Named", "logits other"), frozen("Frozen", ["logits", "other"])])
def test_outputs_that_nothing_can_be_set_in(made):
    class Model(nn.Linear):
        def forward(self, input):
            return made(super().forward(input), 7)

    out = coteach.Pair(lambda: Model(4, 3))(torch.ones(5, 4))
    assert (type(out), out.logits.shape, out.other) == (made, (2, 5, 3), 7)
    assert coteach.Selection("coteaching", 0.2, steps=10)(out, torch.zeros(5, dtype=torch.int64)) > 0


def test_ensembling_leaves_every_mode_as_it_was():
    pair = coteach.Pair(lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)))
    pair.networks[0][0].eval()  # frozen by its user
    x = torch.randn(6, 4)
    assert torch.equal(pair.ensemble(x), pair.ensemble(x))
    assert pair.training
    assert not pair.networks[0][0].training
    assert pair.networks[1][0].training
    assert pair.networks[1][0].num_batches_tracked == 0


def test_a_frozen_backbone_may_be_shared_and_weights_that_learn_may_not():
    backbone = nn.Linear(4, 8)
    with pytest.raises(ValueError, match=r"both networks learn the same weights 0\.weight: freeze them"):
        coteach.Pair(lambda: nn.Sequential(backbone, nn.Linear(8, 3)))
    pair = coteach.Pair(lambda: nn.Sequential(backbone.requires_grad_(False), nn.Linear(8, 3)))
    assert sum(p.numel() for p in pair.parameters()) == backbone.weight.numel() + 8 + 2 * (3 * 8 + 3)
    pair(torch.ones(2, 4)).sum().backward()
    assert backbone.weight.grad is None


def test_what_is_there_once_is_in_a_file_once(tmp_path):
    """safetensors refuses a tensor under two names, and Hugging Face's Trainer writes such files."""
    backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).requires_grad_(False)
    pair = coteach.Pair(lambda: nn.Sequential(backbone, nn.Linear(8, 3)))
    save_file(pair.state_dict(), tmp_path / "pair.safetensors")
    backbone_again = copy.deepcopy(backbone)
    backbone_again[0].weight.zero_()
    again = coteach.Pair(lambda: nn.Sequential(backbone_again, nn.Linear(8, 3)), seeds=(5, 6))
    again.load_state_dict(load_file(tmp_path / "pair.safetensors"))
    x = torch.randn(3, 4)
    assert torch.equal(again.eval()(x), pair.eval()(x))
    inside, other = nn.Sequential(pair), nn.Sequential(copy.deepcopy(again))
    other.load_state_dict(inside.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        again.load_state_dict({})


def test_a_state_dict_goes_round_and_so_does_a_copy():
    pair, other = coteach.Pair(mlp), coteach.Pair(mlp, seeds=(5, 6))
    other.load_state_dict(pair.state_dict())
    x = torch.randn(3, 8)
    assert torch.equal(other(x), pair(x))
    assert torch.equal(copy.deepcopy(pair)(x), pair(x))


def test_gradients_are_clipped_network_by_network():
    pair = coteach.Pair(mlp)
    loss = pair(torch.ones(4, 8))
    (1000 * loss[0].square().mean() + 1e-3 * loss[1].square().mean()).backward()
    quiet = pair.networks[1][0].weight.grad.clone()
    norms = pair.clip_gradients(1.0)
    assert norms[0] > 1 > norms[1]
    assert torch.equal(pair.networks[1][0].weight.grad, quiet)
    total = torch.cat([p.grad.flatten() for p in pair.networks[0].parameters()]).norm()
    assert math.isclose(total.item(), 1.0, rel_tol=1e-4)


@pytest.mark.slow
def test_compiled_and_in_half_precision_it_is_an_ordinary_module():
    pair = coteach.Pair(mlp)
    x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
    compiled = torch.compile(pair, backend="aot_eager")
    torch.testing.assert_close(compiled(x), pair(x))
    with torch.autocast("cpu", torch.bfloat16):
        logits = pair(x)
        loss = coteach.Selection("coteaching", 0.2, steps=10)(logits, y)
    assert logits.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in pair.parameters())


# ---- Selection ------------------------------------------------------------------------------------------------


def plain_window(batches, keep: float, window: int):
    """What Co-teaching picks when a batch is ranked among the latest losses: a list of (network, batch) masks."""
    latest: list[list[float]] = [[], []]
    for loss_NB in batches:
        size, picks = len(loss_NB[0]), []
        for n in range(2):
            ranked = (latest[n] + list(loss_NB[n]))[-max(window, size) :]
            n_keep = math.ceil(keep * len(ranked) - 1e-9) or len(ranked)
            order = sorted(range(len(ranked)), key=lambda i, ranked=ranked: (ranked[i], i))
            kept = set(order[:n_keep])
            picks.append([len(ranked) - size + i in kept for i in range(size)])
            latest[n] = ranked
        yield [picks[1], picks[0]]  # each learns what its peer picked


@given(st.integers(0, 10), st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 20))
def test_a_small_batch_is_ranked_among_the_latest_losses(seed, sizes, window):
    batches = [some_batch(size, seed=seed + 31 * i) for i, size in enumerate(sizes)]
    losses = [
        [nn.functional.cross_entropy(one, y, reduction="none").tolist() for one in logits] for logits, y in batches
    ]
    selection = coteach.Selection("coteaching", 0.4, epochs=1, window=window)
    for (logits, y), expected in zip(batches, plain_window(losses, 0.6, window), strict=True):
        selection(logits, y)
        assert selection.picked.tolist() == expected


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_in_small_batches_the_right_share_is_kept_and_weighs_alike(size):
    selection = coteach.Selection("coteaching", 0.2, epochs=1)
    kept, weight = 0, 0.0
    for step in range(512 // size):
        logits, y = some_batch(size, seed=step)
        selection(logits, y).backward()
        kept += selection.picked.sum().item()
        given_class = logits.grad.gather(-1, y.expand(2, -1)[..., None])[..., 0]
        weight += (
            (given_class / (logits.softmax(-1).gather(-1, y.expand(2, -1)[..., None])[..., 0] - 1)).sum().item()
        )
    assert abs(kept / 1024 - 0.8) < 0.05
    assert abs(weight / (512 / size) / 2 - 1) < 0.05  # on average a batch weighs as one whose samples all count


def test_without_a_window_small_batches_would_leave_out_too_few():
    """What the window is for: of eight samples, ten percent rounded up is none."""
    kept = {}
    for window in (0, 64):
        selection, kept[window] = coteach.Selection("coteaching", 0.1, epochs=1, window=window), 0
        for step in range(64):
            selection(*some_batch(8, seed=step))
            kept[window] += selection.picked.sum().item()
    assert kept[0] == 1024
    assert abs(kept[64] / 1024 - 0.9) < 0.03


def test_the_share_moves_by_steps_and_by_epochs():
    logits, y = some_batch(10)
    by_steps = coteach.Selection("coteaching", 0.4, steps=8, ramp=4)
    found = []
    for _ in range(10):
        by_steps(logits, y)
        found.append(by_steps.keep)
    assert found == [coteach.schedules.keep_rate(step, 0.4, 4) for step in range(1, 11)]
    by_epochs = coteach.Selection("coteaching", 0.4, epochs=4)
    found = []
    for _ in range(4):
        by_epochs(logits, y)
        found.append(by_epochs.keep)
        by_epochs.next_epoch()
    assert found == [coteach.schedules.keep_rate(epoch, 0.4, 4) for epoch in range(1, 5)]


def test_evaluation_is_the_loss_of_all_samples_and_moves_nothing():
    logits, y = some_batch(10)
    selection = coteach.Selection("coteaching", 0.5, steps=4, ramp=1)
    of_all = sum(nn.functional.cross_entropy(one, y) for one in logits)
    with torch.no_grad():
        torch.testing.assert_close(selection(logits, y), of_all)
    torch.testing.assert_close(selection.eval()(logits, y), of_all)
    assert selection.step == 0
    assert selection.train()(logits, y) < of_all
    assert selection.step == 1


def test_a_sample_that_nobody_picks_cannot_spoil_the_loss():
    logits, y = some_batch(8)
    with torch.no_grad():
        logits[:, 3] = torch.nan
    loss = coteach.Selection("coteaching", 0.5, epochs=1, window=0)(logits, y)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad[:, [0, 1, 2, 4, 5, 6, 7]].isfinite().all()


def test_it_goes_on_from_a_state_dict():
    batches = [(some_batch(6, seed=i), torch.arange(6) + 6 * i) for i in range(8)]

    def new():
        return coteach.Selection("coteaching", 0.3, steps=8, window=20, ledger=coteach.Ledger(48))

    whole, first, second = new(), new(), new()
    for (logits, y), index in batches:
        whole(logits, y, index)
    for (logits, y), index in batches[:4]:
        first(logits, y, index)
    second.load_state_dict(first.state_dict())
    for (logits, y), index in batches[4:]:
        second(logits, y, index)
    assert torch.equal(second.picked, whole.picked)
    assert np.array_equal(second.ledger.quality(), whole.ledger.quality())
    with pytest.raises(ValueError, match="sample 0 comes twice in epoch 1"):
        second(*batches[0][0], batches[0][1])


def test_the_noise_rate_is_learnt_on_the_way():
    """Three clouds, a third of the labels wrong."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 3, (3000,), generator=generator)
    x = 3 * torch.eye(3)[truth] + torch.randn(3000, 3, generator=generator)
    noise = coteach.noise.corrupt(truth, "symmetric", 0.3, n_classes=3)
    y = torch.from_numpy(noise.labels)
    pair = coteach.Pair(lambda: nn.Linear(3, 3))
    selection = coteach.Selection("coteaching", steps=200)
    optimiser = torch.optim.Adam(pair.parameters(), 0.05)
    for step in range(200):
        index = torch.arange(step * 30, step * 30 + 30) % 3000
        optimiser.zero_grad()
        selection(pair(x[index]), y[index]).backward()
        optimiser.step()
    assert abs(selection.noise_rate_ - noise.rate) < 0.05
    assert selection.keep == 1 - selection.noise_rate_


def test_auto_says_when_it_has_seen_too_little():
    selection = coteach.Selection("coteaching", steps=40)
    for step in range(20):
        selection(*some_batch(8, seed=step))
    with pytest.warns(UserWarning, match="'auto' has seen fewer than 256 samples by now"):
        selection(*some_batch(8))
    assert selection.keep == 1
    for step in range(20):
        selection(*some_batch(8, seed=step))
    assert selection.keep < 1


# ---- Ledger ---------------------------------------------------------------------------------------------------


def test_a_ledger_takes_arrays_of_any_kind():
    logits, y = some_batch(5)
    kinds = [np.asarray, torch.as_tensor, lambda a: np.asarray(a).tolist(), Readable]
    qualities = []
    for kind in kinds:
        ledger = coteach.Ledger(5)
        ledger.note(kind(np.arange(5)), kind(logits.detach().numpy()), kind(y.numpy()))
        qualities.append(ledger.quality().tolist())
    assert all(quality == qualities[0] for quality in qualities)
    half = coteach.Ledger(5)
    half.note(np.arange(5), logits.to(torch.bfloat16), y)
    assert np.allclose(half.quality(), qualities[0], atol=0.02)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.uint32, np.int32, np.uint64])
def test_numbers_of_any_width_are_the_same_samples(dtype):
    """A byte is a mask to torch, where it is used as an index."""
    (logits, y), order = some_batch(6), np.array([5, 3, 1, 0, 2, 4])
    expected, ledger = coteach.Ledger(6), coteach.Ledger(6)
    expected.note(order, logits, y)
    ledger.note(order.astype(dtype), logits, y.numpy().astype(dtype))
    assert ledger.quality().tolist() == expected.quality().tolist()
    selection = coteach.Selection("coteaching", 0.2, steps=10)
    assert selection(logits, torch.from_numpy(y.numpy().astype(dtype))) == selection(logits, y)


def test_opinions_in_another_precision_are_added_up_too():
    """As where a ledger goes on on another device, or a model was trained in double precision before."""
    logits, y = some_batch(6)
    once, mixed = coteach.Ledger(6), coteach.Ledger(6)
    for epoch in range(2):
        once.note(np.arange(6), logits, y)
        mixed.note(np.arange(6), logits.float() if epoch else logits, y)
        once.next_epoch()
        mixed.next_epoch()
    assert np.allclose(once.quality(), mixed.quality(), atol=1e-6)


def test_repeats_are_noted_once_where_they_are_expected():
    logits, y = some_batch(6)
    expected, ledger = coteach.Ledger(4), coteach.Ledger(4, repeats=True)
    expected.note([2, 0], logits[:, :2], y[:2], picked=torch.ones(2, 2, dtype=torch.bool))
    expected.note([3], logits[:, 4:5], y[4:5], picked=torch.ones(2, 1, dtype=torch.bool))
    ledger.note([2, 0, 2], logits[:, :3], y[:3], picked=torch.ones(2, 3, dtype=torch.bool))
    ledger.note([0, 3, 3], logits[:, 3:], y[3:], picked=torch.ones(2, 3, dtype=torch.bool))
    assert ledger.to_frame().equals(expected.to_frame())
    ledger.next_epoch()
    ledger.note([0], logits[:, :1], y[:1])
    assert ledger.seen_NM.tolist() == [[2, 0, 1, 1]] * 2


class Readable:
    """An array of another framework: NumPy can read it."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


def test_a_file_holds_all_of_it(tmp_path):
    ledger = coteach.Ledger(6, classes=["a", "b", "c"])
    logits, y = some_batch(5)
    ledger.note(np.arange(5), logits, y, picked=torch.ones(2, 5, dtype=torch.bool))
    ledger.next_epoch()
    ledger.save(tmp_path / "ledger.safetensors")
    again = coteach.Ledger.load(tmp_path / "ledger.safetensors")
    assert again.to_frame().equals(ledger.to_frame())
    assert again.epoch == 2
    frame = again.to_frame()
    assert frame.loc[5, ["given", "suggested"]].isna().all()
    assert frame.loc[5, ["quality", "seen", "picked"]].tolist() == [0.5, 0, 0]
    assert frame.loc[0, "given"] == "abc"[y[0]]
    assert frame.loc[0, "picked"] == 1
    (tmp_path / "other").write_bytes(b"no ledger")
    with pytest.raises(ValueError, match=r"was not written by Ledger\.save"):
        coteach.Ledger.load(tmp_path / "other")


def test_samples_that_were_never_noted_are_no_suspects():
    ledger = coteach.Ledger(10)
    assert len(ledger.suspects(0.5)) == 0
    logits, y = some_batch(4)
    ledger.note(np.array([1, 3, 5, 7]), logits, y)
    assert sorted(ledger.suspects(1).index.tolist()) == [1, 3, 5, 7]
    assert (ledger.suggestion()[[0, 2, 4]] == -1).all()


def test_an_opinion_that_is_not_finite_is_not_counted():
    ledger, (logits, y) = coteach.Ledger(4), some_batch(4)
    with torch.no_grad():
        logits[0, 2] = torch.nan
    ledger.note(np.arange(4), logits, y)
    assert ledger.seen_NM.tolist() == [[1, 1, 0, 1], [1, 1, 1, 1]]
    assert np.isfinite(ledger.quality()).all()


# ---- wrong use ------------------------------------------------------------------------------------------------


def wrong(message, **options):
    with pytest.raises(ValueError, match=message):
        coteach.Selection(**({"noise_rate": 0.2, "steps": 10} | options))


def test_wrong_settings_get_one_clear_sentence():
    wrong(r"noise_rate is 1: give 'auto', or a share in \[0, 1\) such as 0\.2", noise_rate=1)
    wrong("noise_rate is -0.1", noise_rate=-0.1)
    wrong("noise_rate is 'some'", noise_rate="some")
    wrong("give steps, how often it will be called in all, or epochs: one of them", steps=None)
    wrong("give steps", epochs=3)
    wrong("steps is 0: give a whole number of at least 1", steps=0)
    wrong("window is -1", window=-1)
    for name in METHODS.keys() - set(ANY_LOOP):
        wrong(f"{name} is more than a rule and a loss: choose one of standard,", method=name)
    wrong("there is no method 'coteachin' .did you mean 'coteaching'", method="coteachin")
    wrong("window is None", window=None)
    wrong("ledger is 9: give a coteach.Ledger", ledger=9)
    wrong("loss", loss="nonsense")
    with pytest.raises(ValueError, match="build is a Linear: give a function that makes a network"):
        coteach.Pair(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="give two that differ"):
        coteach.Pair(mlp, seeds=(1, 1))
    with pytest.raises(ValueError, match=r"build makes int: let it make a torch\.nn\.Module"):
        coteach.Pair(lambda: 3)
    with pytest.warns(UserWarning, match="both networks begin with the same weights"):
        pair_of(same := mlp(), same)
    with pytest.raises(ValueError, match="samples is 0: give the number of training samples"):
        coteach.Ledger(0)


def test_wrong_calls_get_one_clear_sentence():
    logits, y = some_batch(6)
    selection = coteach.Selection("coteaching", 0.2, steps=10)
    with pytest.raises(ValueError, match=r"logits of 1 network.* but coteaching compares two: give \(2, B"):
        selection(logits[0], y)
    with pytest.raises(ValueError, match="labels must be whole numbers from 0 to 2, not 5: encode them first"):
        selection(logits, y + 3)
    with pytest.raises(ValueError, match="labels must be whole numbers"):
        selection(logits, y - 1)
    with pytest.raises(ValueError, match=r"give \(N, B, C\) for N networks, and \(B,\)"):
        selection(logits, y[:3])
    with pytest.raises(ValueError, match="labels must be whole numbers from 0 to 2: encode them first"):
        selection(logits, y.double())
    with pytest.raises(ValueError, match="labels or index of NoneType: give whole numbers, one for each sample"):
        selection(logits, None)
    with pytest.raises(ValueError, match="the batch is empty: leave it out"):
        selection(logits[:, :0], y[:0])
    with pytest.raises(ValueError, match="the state holds no ledger"):
        coteach.Selection("coteaching", 0.2, steps=10, ledger=coteach.Ledger(8)).load_state_dict(
            selection.state_dict()
        )
    with pytest.raises(ValueError, match="logits of 3 classes, but 2 names: give each class one"):
        coteach.Ledger(8, classes=["cat", "dog"]).note(np.arange(6), logits, y)
    ledger = coteach.Ledger(8)
    with pytest.raises(ValueError, match="index is of torch.float32: give whole numbers"):
        ledger.note(torch.arange(6.0), logits, y)
    with pytest.raises(ValueError, match="the ledger needs to know the samples: hand their numbers over as index"):
        coteach.Selection("coteaching", 0.2, steps=10, ledger=ledger)(logits, y)
    ledger.note(np.arange(6), logits, y)
    with pytest.raises(ValueError, match=r"sample 0 comes twice in epoch 1.*call next_epoch\(\) after each epoch"):
        ledger.note(np.arange(6), logits, y)
    ledger.next_epoch()
    with pytest.raises(ValueError, match="sample 1 comes twice in epoch 2"):
        ledger.note([0, 1, 1, 2, 3, 4], logits, y)
    with pytest.raises(ValueError, match="index 8 is none of the 8 samples"):
        ledger.note([8, 1, 2, 3, 4, 5], logits, y)
    with pytest.raises(ValueError, match=r"index has shape \(2,\) for 6 labels"):
        ledger.note([0, 1], logits, y)
    with pytest.raises(ValueError, match="logits of 1 networks, but before of 2: note all"):
        ledger.note(np.arange(6), logits[0], y)
    with pytest.raises(ValueError, match="share is 2"):
        ledger.suspects(2)
    with pytest.raises(ValueError, match=r"a network returns a tuple without logits.*something that has them as"):
        coteach.Pair(lambda: OfDicts(tuple))(torch.ones(2, 4))
