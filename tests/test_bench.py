"""`make bench`: its contract, the arithmetic of its columns, and that what it compares with is right."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import bench
import cases
import plain_loops as loops
import pytest
import timing
import torch
import torch.nn.functional as F
from cases import Case, make_case, stand_in
from hypothesis import given
from hypothesis import strategies as st
from roofline import Rates, Work, epoch_work, forward, roofline_seconds, training_step
from torch import nn

from coteach import draws, modern, rules
from coteach.augment import random_cutout
from coteach.engine import Engine
from coteach.engine.batches import same_view
from coteach.engine.precision import Precision
from coteach.engine.training import Epoch, Problem, start
from coteach.methods import METHODS
from coteach.networks.fast import FastCNN
from coteach.networks.models import MLP
from coteach.plan import Plan
from coteach.runs.experiment import Experiment
from coteach.train import fit

BENCH = Path(bench.__file__)

CONTRACT = {
    *("dataset", "device", "runs", "seconds_per_epoch", "plain_seconds_per_epoch", "ratio"),
    *("floor_seconds_per_epoch", "peak_memory_bytes"),
}


def silent(*anything) -> None:
    """Takes what is meant for a progress bar or a reader."""


@pytest.fixture
def case() -> Case:
    """Two batches of digits."""
    return replace(make_case(Experiment("digits"), "cpu"), samples=128)


# ---- the command ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_json_is_one_list_with_the_contracts_keys(tmp_path):
    words = "--dataset digits --device cpu --runs 1 2 --epochs 1 --json"
    command = [sys.executable, BENCH, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [line["runs"] for line in found] == [1, 2]
    for line in found:
        assert set(line) >= CONTRACT
        assert (line["dataset"], line["device"], line["data"]) == ("digits", "cpu", "published")
        assert all(line[key] > 0 for key in CONTRACT - {"dataset", "device"})
        assert line["ratio"] == pytest.approx(
            line["plain_seconds_per_epoch"] * line["runs"] / line["seconds_per_epoch"]
        )
        assert line["loader_ratio"] == pytest.approx(
            line["loader_seconds_per_epoch"] * line["runs"] / line["seconds_per_epoch"]
        )
        assert line["seconds_per_run_and_epoch"] == line["seconds_per_epoch"] / line["runs"]
        assert line["evaluation_share"] > 0
    assert found[0]["plain_seconds_per_epoch"] == found[1]["plain_seconds_per_epoch"]
    assert found[1]["floor_seconds_per_epoch"] > found[0]["floor_seconds_per_epoch"]
    assert not list(tmp_path.iterdir())


def test_the_table_of_another_method_leaves_the_plain_loops_out(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measured_rates", lambda device, precision: Rates(1e9, 1e9))
    monkeypatch.setattr(bench, "time_plain", None)
    bench.main("--dataset digits --method jocor --epochs 1 --device cpu".split())
    out, err = capsys.readouterr()
    told = " ".join(out.split())  # the machine's name decides where a line ends
    for word in ("digits", "mlp", "cpu", "per item", "roofline", "MB", "torch", "–", "matrix product 1 GFLOP/s"):
        assert word in told
    assert "jocor is compared with the roofline alone" in err


@pytest.mark.parametrize("stack", ["batched", "loop"])
def test_the_stack_is_as_it_was_asked_for(stack, monkeypatch, capsys):
    monkeypatch.setattr(bench, "measured_rates", lambda device, precision: Rates(1e9, 1e9))
    bench.main(f"--dataset digits --method jocor --stack {stack} --epochs 1 --device cpu --json".split())
    assert [line["batched"] for line in json.loads(capsys.readouterr().out)] == [stack == "batched"]


@pytest.mark.slow
def test_scaling_varies_samples_batch_size_and_runs_one_at_a_time(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measured_rates", lambda device, precision: Rates(1e9, 1e9))
    monkeypatch.setattr(bench, "RUNS", {"cpu": (1, 2)})
    bench.main("--dataset digits --scaling --epochs 1 --device cpu --json".split())
    found = json.loads(capsys.readouterr().out)
    by_name = {
        name: [line for line in found if line["varied"] == name] for name in ("samples", "batch_size", "runs")
    }
    assert [line["value"] for line in by_name["samples"]] == [324, 648, 1297]
    assert [line["value"] for line in by_name["batch_size"]] == [32, 64, 128, 256, 512]
    assert [line["value"] for line in by_name["runs"]] == [1, 2]
    usual = {"samples": 1297, "batch_size": 64, "runs": 1}
    for line in found:
        assert {name: line[name] for name in usual} == usual | {line["varied"]: line["value"]}
        assert line["seconds_per_sample"] == pytest.approx(
            line["seconds_per_epoch"] / line["samples"] / line["runs"]
        )
    tables = [table.splitlines() for table in bench.scaling_tables(found)]
    assert [len(rows) for _title, _head, _rule, *rows in tables] == [3, 5, 2]
    assert all(title.startswith("digits, our epoch against") for title, *_ in tables)


@pytest.mark.parametrize(
    "words",
    [
        "--dataset openset-svhn",
        "--dataset mnst",
        "--method coteechin",
        "--runs 0",
        "--runs",
        "--epochs 0",
        "--device cuda:7",
        "--dataset news",
    ],
)
def test_a_mistake_is_exit_code_2_and_one_line(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COTEACH_DATA", os.fspath(tmp_path))
    with pytest.raises(SystemExit) as stop:
        bench.main(words.split())
    assert stop.value.code == 2
    told = [line for line in capsys.readouterr().err.splitlines() if " error: " in line]
    assert len(told) == 1
    assert not list(tmp_path.iterdir())


# ---- what is measured -----------------------------------------------------------------------------------------


def test_data_that_are_not_there_are_replaced_not_downloaded(tmp_path, monkeypatch):
    monkeypatch.setitem(cases.SHAPES, "mnist", (200, 50, (1, 28, 28), 10))
    told = []
    options = bench.flags().parse_args(["--data-dir", str(tmp_path)])
    found = bench.new_case("mnist", "paper", 1, "cpu", options, told.append)
    assert not found.published
    assert "stand in" in told[0]
    assert found.dataset.x_train.shape == (200, 1, 28, 28)
    assert not list(tmp_path.iterdir())


def test_a_stand_in_can_be_learnt_but_not_at_once():
    """By the nearest class mean, the best there is for it; a network of a few epochs does worse."""
    dataset = stand_in("mnist", 4000, 1000, (1, 28, 28), 10)
    x, x_test = dataset.x_train.flatten(1).float(), dataset.x_test.flatten(1).float()
    assert dataset.x_train.dtype == torch.uint8
    means = torch.stack([x[dataset.y_train == c].mean(0) for c in range(10)])
    accuracy = (torch.cdist(x_test, means).argmin(1) == dataset.y_test).double().mean()
    assert 0.6 < accuracy < 0.99


@pytest.mark.parametrize("name", METHODS)
def test_of_every_method_as_many_epochs_are_timed_as_asked(name, case):
    case = replace(case, experiment=replace(case.experiment, method=name))
    found = timing.time_ours(case, 2, silent)
    assert len(found.seconds) == 2
    assert found.evaluation_seconds > 0
    assert found.peak_memory


@pytest.mark.parametrize("warmup, limit, timed", [(0, 1e9, [2, 3, 4]), (1, 1e9, [3, 4, 5]), (1, 5.0, [3, 4])])
def test_epochs_before_the_last_phase_and_its_first_are_not_timed(warmup, limit, timed, case, monkeypatch):
    """On a clock by which epoch e takes e seconds; a slow training ends early."""
    case = replace(case, experiment=replace(case.experiment, warmup=warmup))
    now = 0.0
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    monkeypatch.setattr(timing, "evaluate_once_more", silent)

    def fit(problem, method, plan, build, on_epoch, **more):
        nonlocal now
        for number in plan.all_epochs:
            now += number
            on_epoch(Epoch(number, None, None))

    monkeypatch.setattr(timing, "fit", fit)
    monkeypatch.setattr(timing, "measure", silent)
    assert timing.time_ours(case, 3, silent, limit).seconds == timed


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system does not forget a peak")
def test_the_peak_of_memory_begins_anew():
    peaks = [timing.peak_memory("cpu") or 0]
    block = torch.ones(2**28, dtype=torch.uint8)
    peaks.append(timing.peak_memory("cpu") or 0)
    del block
    timing.forget_peak_memory("cpu")
    peaks.append(timing.peak_memory("cpu") or 0)
    assert peaks[1] > peaks[0]
    assert 0 < peaks[2] < peaks[1] - 2**27


@pytest.mark.skipif(not timing.STAT.exists(), reason="this system does not tell")
def test_strangers_on_the_cores_are_noticed(monkeypatch, tmp_path):
    """Ten seconds on a clock of our own, in which all cores worked five and we three of them."""
    monkeypatch.setattr(timing, "STAT", tmp_path / "stat")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    tick = os.sysconf("SC_CLK_TCK")

    def at(clock: float, busy: float, mine: float) -> None:
        half, cores = int(busy / 2 * tick), "cpu0 1 1 1"
        (tmp_path / "stat").write_text(f"cpu  {half} 0 {half} {int(9 * tick)} 7 0 0 0 {half} 0\n{cores}\n")
        monkeypatch.setattr(timing.time, "perf_counter", lambda: clock)
        monkeypatch.setattr(os, "times", lambda: (mine / 4, mine / 4, mine / 4, mine / 4, clock))

    at(clock=100, busy=40, mine=20)
    others = timing.OtherProcesses()
    at(clock=110, busy=45, mine=23)
    assert others.share() == pytest.approx(2 / 20)
    at(clock=110, busy=45, mine=26)
    assert others.share() == 0


def test_of_a_slow_plain_loop_a_part_is_timed_and_scaled(case, monkeypatch):
    """Every stretch takes one second by this clock, so that half of an epoch was done in it."""
    case = replace(case, samples=1280)
    monkeypatch.setattr(timing, "seconds", lambda device, work: work() and 1.0 or 1.0)
    found = timing.time_plain(case, "tensor_dataset", silent, longest=0.5)
    assert found.share == 0.5
    assert found.seconds == [2.0 + 2.0] * timing.PLAIN_EPOCHS
    assert 0 < found.updated <= 1
    assert found.evaluation_share == 0.5
    whole = timing.time_plain(case, "tensor_dataset", silent, longest=1.0)
    assert (whole.share, whole.seconds) == (1, [2.0] * timing.PLAIN_EPOCHS)


def test_ratio_counts_the_runs_that_we_do_together():
    assert bench.ratio(plain_seconds=10, our_seconds=2, runs=1) == 5
    assert bench.ratio(plain_seconds=10, our_seconds=2, runs=4) == 20


# ---- the plain loops ------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), keep_rate=st.floats(0, 1), everywhere=st.booleans())
def test_plain_loops_pick_what_our_rules_pick(seed, keep_rate, everywhere):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randint(-2, 3, (2, 1, 12, 3), generator=random).double()  # few values: many ties
    y = torch.randint(0, 3, (12,), generator=random)
    loss = torch.stack([F.cross_entropy(network[0], y, reduction="none")[None] for network in logits])
    rule = rules.coteaching if everywhere else rules.coteaching_plus
    learnt = rule(rules.Batch(logits, loss, torch.tensor([[keep_rate]], dtype=torch.float64)))
    mine, peers = loops.small_losses(logits[0, 0], logits[1, 0], y, keep_rate, everywhere)
    assert sorted(peers.tolist()) == learnt[0, 0].nonzero().flatten().tolist()
    assert sorted(mine.tolist()) == learnt[1, 0].nonzero().flatten().tolist()


def test_plain_training_follows_our_rule_step_by_step(case):
    x, y, *_ = case.tensors
    batches = list(zip(x.double().split(16), y.split(16), strict=True))
    batches.append(
        (torch.zeros(16, 64, dtype=torch.float64), y[:16])
    )  # where two networks agree, or differ, on all
    torch.manual_seed(3)
    pair, same = (loops.new_pair(lambda: MLP(64, 10).double(), 0.01, "cpu") for _ in range(2))
    for network, copy in zip(pair.networks, same.networks, strict=True):
        copy.load_state_dict(network.state_dict())

    updates = 0
    for x_B, y_B in batches:
        logits = torch.stack([network(x_B) for network in same.networks])[:, None]
        loss = torch.stack([F.cross_entropy(one[0], y_B, reduction="none")[None] for one in logits])
        keep_R1 = torch.tensor([[0.6]], dtype=torch.float64)
        learnt = rules.coteaching_plus(rules.Batch(logits.detach(), loss.detach(), keep_R1))
        if learnt.any():
            updates += 1
            for optimiser in same.optimisers:
                optimiser.zero_grad()
            sum(loss[n][learnt[n]].mean() for n in range(2)).backward()
            for optimiser in same.optimisers:
                optimiser.step()
    assert loops.train(pair, batches, 0.6) == updates
    for network, copy in zip(pair.networks, same.networks, strict=True):
        for one, other in zip(network.parameters(), copy.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_where_nothing_disagrees_nothing_is_learnt():
    pair = loops.new_pair(lambda: MLP(4, 3), 0.01, "cpu")
    pair.networks[1].load_state_dict(pair.networks[0].state_dict())
    before = [p.clone() for p in pair.networks[0].parameters()]
    assert loops.train(pair, [(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64))], 0.5) == 0
    assert all(torch.equal(a, b) for a, b in zip(before, pair.networks[0].parameters(), strict=True))


@pytest.mark.parametrize("kind", ["per_item", "tensor_dataset"])
def test_plain_loops_learn(kind):
    case = make_case(Experiment("digits"), "cpu")
    options = {"workers": 0} if kind == "per_item" else {}
    batches, test_batches = getattr(loops, kind)(*case.tensors, 64, **options)
    torch.manual_seed(1)
    pair = loops.new_pair(case.build, 0.005, "cpu")
    before = loops.evaluate(pair, test_batches)
    loops.train(pair, batches, 0.8, warm_up=True)
    for _ in range(4):
        loops.train(pair, batches, 0.8)
    assert max(before) < 0.4
    assert min(loops.evaluate(pair, test_batches)) > 0.75


@pytest.mark.parametrize("channels", [1, 3])
def test_both_loaders_give_the_same_images(channels):
    x = torch.randint(0, 256, (10, channels, 5, 4), dtype=torch.uint8)
    y = torch.arange(10)
    per_item, tensor_dataset = loops.per_item(x, y, x, y, 4, workers=0), loops.tensor_dataset(x, y, x, y, 4)
    (items, labels), (tensors, same_labels) = (next(iter(test)) for _, test in (per_item, tensor_dataset))
    assert torch.equal(items, x.float() / 255)
    assert torch.equal(items, tensors)
    assert torch.equal(labels, same_labels)


# ---- the plain loop of today ----------------------------------------------------------------------------------

M, BATCH, EPOCHS, TAU = 64, 16, 3, 0.3
MODERN = replace(
    Plan(epochs=EPOCHS, **modern.modern_plan(EPOCHS, BATCH)), mirror=False, shift=0, cutout=0, lookahead=3, ramp=1
)


def thin() -> nn.Module:
    return FastCNN(4, 3, 16, width=1 / 8)


def some_images(n: int, side: int = 16) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, side, side), generator=torch.Generator().manual_seed(0)).byte()


def modern_pair(plan: Plan, steps: int, build=thin, half: bool = False) -> loops.ModernPair:
    return loops.ModernPair(
        build, "cpu", plan.epochs * steps, lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay,
        rise=plan.one_cycle, lookahead=plan.lookahead, half=half,
    )  # fmt: skip


def test_the_loop_of_today_learns_step_by_step_as_we_do():
    """The same batches in the same order: after three epochs of four steps all weights are the same."""
    # not bytes: where pixels are equal, round-off would decide which of them is the largest
    x, y = torch.rand(M, 3, 16, 16, dtype=torch.float64), torch.arange(M) % 4
    problem = Problem(x, y[None], 4, [TAU], [5])
    engine = Engine(dtype=torch.float64, batched=False)
    begin = start(problem, 2, MODERN, thin, engine, same_view)
    networks = iter([begin.stack.network(n, 0) for n in range(2)])
    ours = fit(problem, METHODS["coteaching"], MODERN, thin, engine=engine).stack
    pair = modern_pair(MODERN, M // BATCH, lambda: next(networks))
    for epoch in MODERN.all_epochs:
        order = draws.permutation(draws.keys([5], "shuffle", epoch), M)[0]
        batches = [(x[index], y[index]) for index in order.split(BATCH)]
        assert pair.train(batches, MODERN.keep_rate(epoch, TAU)) == M // BATCH
    for n, network in enumerate(pair.networks):
        for (name, one), other in zip(
            network.state_dict().items(), ours.network(n, 0).state_dict().values(), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize("half", [False, True])
def test_the_loop_of_today_learns(half):
    y = torch.arange(320) % 3
    x = some_images(320)
    x[torch.arange(320), y] //= 4  # each class lacks a colour
    options = {"mirror": True, "shift": 1, "cutout": 4}
    batches, tests = loops.on_device(x[:256], y[:256], x[256:], y[256:], 32, "cpu", **options)
    torch.manual_seed(1)
    pair = modern_pair(replace(MODERN, epochs=6, lr=0.2), len(batches), half=half)
    before = pair.test(tests)
    for _ in range(6):
        assert pair.train(batches, 0.9) == 8
    assert max(before) < 0.5
    assert min(pair.test(tests)) > 0.9


def test_its_images_are_mirrored_and_shifted_over_a_reflected_border():
    """Every change of the one image is drawn sooner or later, and nothing else."""
    x = some_images(1, side=5)
    padded = F.pad(x / 255, (1, 1, 1, 1), mode="reflect")
    shifts = [padded[0, :, i : i + 5, j : j + 5] for i in range(3) for j in range(3)]
    wanted = {tuple(image.flatten().tolist()) for one in shifts for image in (one, one.flip(-1))}
    y = torch.zeros(400, dtype=torch.int64)
    torch.manual_seed(0)
    images = loops.ImagesOnDevice(x.expand(400, -1, -1, -1), y, 200, "cpu", mirror=True, shift=1, cutout=0)
    found = torch.cat([x_B for x_B, _ in images])
    assert {tuple(image.flatten().tolist()) for image in found} == wanted
    plain = loops.ImagesOnDevice(x.expand(9, -1, -1, -1), y[:9], 4, "cpu", mirror=False, shift=0, cutout=0)
    assert len(plain) == 2
    assert all(torch.equal(x_B, (x / 255).expand(4, -1, -1, -1)) for x_B, _ in plain)


def test_its_batches_have_every_sample_once_with_its_label():
    x, y = some_images(32), torch.arange(32)
    images = loops.ImagesOnDevice(x, y, 16, "cpu", mirror=False, shift=0, cutout=0)
    (x_1, y_1), (x_2, y_2) = images
    labels = torch.cat([y_1, y_2])
    assert sorted(labels.tolist()) == list(range(32))
    assert labels.tolist() != list(range(32))
    assert torch.equal(torch.cat([x_1, x_2]), x[labels] / 255)


def test_it_cuts_squares_as_we_do():
    """On average over all centres, for an even and an odd side."""
    x = some_images(1, side=5).double().expand(400, -1, -1, -1) / 255
    torch.manual_seed(0)
    for side in (2, 3):
        centres = torch.cartesian_prod(torch.arange(5), torch.arange(5)) / 5 + 0.01
        wanted = random_cutout(x[:25], centres, side)
        found = loops.cut(x, side)
        assert {hash(tuple(i.flatten().round(decimals=9).tolist())) for i in found} == {
            hash(tuple(i.flatten().round(decimals=9).tolist())) for i in wanted
        }


def test_the_modern_row_has_its_own_loop_beside_it(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measured_rates", lambda device, precision: Rates(1e9, 1e9))
    monkeypatch.setitem(cases.SHAPES, "images-32", (64, 16, (3, 16, 16), 3))
    bench.main("--dataset images-32 --recipe modern --epochs 1 --device cpu --json".split())
    (line,) = json.loads(capsys.readouterr().out)
    assert all(line[key] for key in CONTRACT)
    assert (line["dataset"], line["recipe"], line["network"]) == ("images-32", "modern", "fast_cnn")
    assert (line["method"], line["plain_loop"], line["batch_size"]) == ("coteaching", "on_device", 32)
    assert line["ratio"] == pytest.approx(line["plain_seconds_per_epoch"] / line["seconds_per_epoch"])
    assert line["loader_seconds_per_epoch"] is None
    table = bench.comparison_table([line])
    assert "images-32, modern" in table
    assert table.splitlines()[-1].partition(")")[2].split()[:2] == ["–", "–"]  # of the two other loops


@pytest.mark.parametrize(
    "words, device, wanted",
    [
        ("", "cpu", [("mnist", "paper")]),
        ("", "cuda", [("mnist", "paper"), ("cifar10", "paper"), ("cifar10", "modern")]),
        ("--method jocor", "cuda", [("mnist", "paper"), ("cifar10", "paper")]),
        ("--scaling", "cuda", [("mnist", "paper"), ("cifar10", "paper")]),
        ("--recipe modern", "cpu", [("cifar10", "modern")]),
        ("--dataset digits", "cuda", [("digits", "paper")]),
        ("--dataset images-64 digits --recipe modern", "cpu", [("images-64", "modern"), ("digits", "modern")]),
    ],
)  # fmt: skip
def test_what_is_timed(words, device, wanted):
    assert bench.cases_asked_for(bench.flags().parse_args(words.split()), device) == wanted


# ---- the roofline --------------------------------------------------------------------------------------------


def test_a_step_of_the_mlp_is_counted_as_by_hand():
    batch, n_in, hidden, n_out = 128, 784, 256, 10
    first, second = 2 * batch * n_in * hidden, 2 * batch * hidden * n_out
    parameters = n_in * hidden + hidden + hidden * n_out + n_out
    put_out = batch * (hidden + hidden + n_out)  # first layer, ReLU, second layer
    found = training_step(MLP(n_in, n_out), torch.zeros(batch, 1, 28, 28, dtype=torch.uint8))
    # Twice for the weights of both layers, once more for what the second hands back to the first.
    assert found.flop == 2 * (first + second) + second
    assert found.bytes == 4 * (4 * 2 * parameters + 2 * put_out)


@pytest.mark.parametrize("stride, groups, padding", [(1, 1, 1), (2, 1, 0), (1, 4, 1)])
def test_a_convolution_is_counted_as_by_hand(stride, groups, padding):
    batch, n_in, n_out, side, kernel = 5, 8, 12, 10, 3
    out = (side + 2 * padding - kernel) // stride + 1
    layer = nn.Conv2d(n_in, n_out, kernel, stride, padding, groups=groups, bias=False)
    of_layer = 2 * batch * n_out * out**2 * (n_in // groups) * kernel**2
    found = training_step(nn.Sequential(layer, nn.Flatten()), torch.zeros(batch, n_in, side, side), "sgd")
    assert found.flop == 2 * of_layer  # forward, and the gradient of the weights; nothing is handed back
    numbers = (
        3 * layer.weight.numel() + 2 * batch * n_out * out**2
    )  # parameters, gradient, momentum; put out twice
    assert found.bytes == 2 * 4 * numbers


def test_a_step_of_the_fast_network_is_counted_as_by_hand():
    """Patches are not learnt and hand nothing back; the first convolution hands nothing back."""
    batch, channels, side, classes = 6, 3, 16, 5
    network = FastCNN(classes, channels, side, width=1 / 8, mirror=True)
    patches = 2 * batch * 15**2 * 12 * (channels * 2**2)
    blocks, n_in, pixels = [], 24, 15
    for n_out in (8, 32):
        blocks.append(2 * batch * pixels**2 * n_out * n_in * 9)
        pixels //= 2
        blocks.append(2 * batch * pixels**2 * n_out * n_out * 9)
        n_in = n_out
    output = 2 * batch * 32 * classes
    x_B = torch.zeros(batch, channels, side, side)
    found = training_step(network, x_B, "sgd")
    assert found.flop == patches + 2 * blocks[0] + 3 * sum(blocks[1:]) + 3 * output
    assert forward(network, x_B).flop == 2 * (patches + sum(blocks) + output)  # an image and its mirror image


def test_in_half_precision_layers_put_out_half_the_bytes():
    network, x_B = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten()), torch.zeros(3, 2, 6, 6)
    sizes = {"steps": 1, "test_samples": 3, "networks": 1, "runs": 1}
    full, half = (
        epoch_work(lambda: network, x_B, **sizes, optimizer="sgd", precision=p)
        for p in (Precision.FLOAT32, Precision.BF16)
    )
    assert full.flop == half.flop
    put_out = 3 * 4 * 4**2 * 2  # of the convolution and of nn.Flatten
    assert full.bytes - half.bytes == 2 * 2 * put_out * 2  # written and read, in training and in testing


def test_an_epoch_is_its_steps_and_its_evaluation():
    x_B = torch.zeros(32, 1, 4, 4, dtype=torch.uint8)
    step = training_step(MLP(16, 3), x_B)
    found = epoch_work(lambda: MLP(16, 3), x_B, steps=5, test_samples=64, networks=2, runs=3)
    forward = 2 * 32 * (16 * 256 + 256 * 3)
    put_out = 4 * 2 * 32 * (256 + 256 + 3)
    samples = 32 * 16
    assert found.flop == 6 * (5 * step.flop + 2 * forward)
    assert found.bytes == 6 * (5 * step.bytes + 2 * put_out) + (3 * 5 + 2) * samples


def test_the_roofline_is_arithmetic_and_bytes_one_after_the_other():
    assert roofline_seconds(Work(flop=6e9, bytes=1e9), Rates(flop_per_second=2e9, bytes_per_second=4e9)) == 3.25
    assert math.isclose(roofline_seconds(Work(1, 0) * 3 + Work(0, 5), Rates(1, 1)), 8)
