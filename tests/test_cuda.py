"""On a GPU, against the same on the CPU: captured, compiled, side by side, in groups; skipped without one."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import pooling_cases
from coteach import draws
from coteach.data import Dataset
from coteach.engine import Engine
from coteach.engine.batches import same_view
from coteach.engine.precision import Precision
from coteach.engine.steps import Captured
from coteach.engine.training import start
from coteach.methods import METHODS
from coteach.networks.models import SmallCNN
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from coteach.train import finite_and_live, fit, mini_batch, train_epoch
from modern_cases import assert_notices_what_is_not_finite, bytes_problem, narrow, spoilt
from tiny import (
    BY_RULE,
    EVERYTHING,
    FIDELITIES,
    INGREDIENTS,
    PLAN,
    Known,
    assert_same_weights,
    convolutional,
    mlp,
    normed,
    opinionated,
    pictured,
    pictures,
    problem,
    train,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def on_gpu(p: Known) -> Known:
    moved = {name: getattr(p, name).cuda() for name in ("x_M", "y_RM", "x_test", "y_test", "clean_RM")}
    return replace(p, **moved)


def assert_same_on_gpu(name, plan, build, gpu: Engine, *, batched_on_cpu: bool = True, made=problem):
    rows: dict[str, list] = {"cpu": [], "gpu": []}
    cpu = train(made(), METHODS[name], plan, build, engine=Engine(torch.float64, batched_on_cpu),
                on_epoch=lambda e: rows["cpu"].extend(made().rows(e)))  # fmt: skip
    p = on_gpu(made())
    there = train(p, METHODS[name], plan, build, engine=gpu, on_epoch=lambda e: rows["gpu"].extend(p.rows(e)))
    for n in range(METHODS[name].networks):
        for run_ in range(len(p.seeds)):
            assert_same_weights(there.stack.network(n, run_).cpu(), cpu.stack.network(n, run_))
    for mine, theirs in zip(rows["gpu"], rows["cpu"], strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            assert value == pytest.approx(theirs[key], abs=1e-9), (mine["epoch"], key)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("build", [mlp, normed, convolutional])
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("name", METHODS)
def test_captured_is_the_cpu(name, fidelity, build, batched):
    plan = replace(PLAN, fidelity=FIDELITIES[fidelity])
    assert_same_on_gpu(name, plan, build, Engine(torch.float64, batched, captured=True))


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", BY_RULE)
def test_captured_with_everything_is_the_cpu(name, batched):
    engine = Engine(torch.float64, batched, captured=True)
    assert_same_on_gpu(name, EVERYTHING, pictured, engine, made=pictures)


@pytest.mark.parametrize("changes", INGREDIENTS.values(), ids=INGREDIENTS)
def test_each_ingredient_captured_is_the_cpu(changes):
    plan = replace(PLAN, epochs=4, **changes)
    assert_same_on_gpu("coteaching", plan, pictured, Engine(torch.float64, captured=True), made=pictures)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("build", [normed, opinionated])
def test_those_who_sit_out_are_the_cpu(build, optimizer):
    plan = replace(PLAN, warmup=0, optimizer=optimizer, weight_decay=0.01)
    assert_same_on_gpu("coteaching_plus", plan, build, Engine(torch.float64, captured=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler's own making
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", ["coteaching_plus", "f_correction", "cotraining"])
def test_compiled_is_the_cpu(name, batched):
    plan = replace(PLAN, epochs=4)
    assert_same_on_gpu(name, plan, normed, Engine(torch.float64, batched, compiled=True, captured=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", ["coteaching_plus", "jocor"])
def test_compiled_with_everything_is_the_cpu(name, batched):
    engine = Engine(torch.float64, batched, compiled=True, captured=True)
    assert_same_on_gpu(name, EVERYTHING, pictured, engine, made=pictures)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("plan", [EVERYTHING, replace(EVERYTHING, mixup=0.0, weak_selection=False)])
def test_the_fast_network_compiled_in_half_precision_stays_near_the_uncompiled_one(plan):
    p = on_gpu(bytes_problem())
    losses: dict[bool, list] = {False: [], True: []}
    for compiled, rows in losses.items():
        engine = Engine(batched=False, precision=Precision.BF16, captured=True, compiled=compiled)
        with engine.precision.set():
            training = fit(p, METHODS["coteaching"], plan, narrow, engine=engine,
                           on_epoch=lambda e, rows=rows: rows.extend(p.rows(e)))  # fmt: skip
        assert training.stack.theta_NRP.isfinite().all()
        assert not any("non_finite_loss" in row["events"] for row in rows)
    near = [row["train_loss"] for row in losses[False]]
    assert [row["train_loss"] for row in losses[True]] == pytest.approx(near, abs=0.05)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("compiled", [True, False])
def test_networks_sit_out_what_is_not_finite(compiled):
    assert_notices_what_is_not_finite(Engine(compiled=compiled).compiler(finite_and_live), "cuda")
    engine = Engine(torch.float64, compiled=compiled, captured=True)
    assert_same_on_gpu("coteaching", PLAN, mlp, engine, made=spoilt)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_draws_compile_and_are_the_cpus():
    key_R1 = draws.keys([3, 4], "augment", 1, 2)
    compiled = torch.compile(draws.uniform, dynamic=False)  # which raises here, instead of going on uncompiled
    assert torch.equal(compiled(key_R1.cuda(), 700).cpu(), draws.uniform(key_R1, 700))


@pytest.mark.parametrize("precision", [Precision.TF32, Precision.BF16])
def test_low_precision_learns_in_float32(precision):
    engine = Engine(precision=precision, batched=False, captured=True)
    p = on_gpu(problem())
    p = replace(p, x_M=p.x_M.float(), x_test=p.x_test.float())
    with precision.set():
        training = fit(p, METHODS["coteaching"], PLAN, convolutional, engine=engine)
    assert training.stack.theta_NRP.dtype == torch.float32
    assert training.stack.theta_NRP.isfinite().all()


def test_pooling_kernels_are_torch():
    pooling_cases.assert_the_operator_is_torch("cuda")
    pooling_cases.assert_many_tiles_are_torch("cuda")
    pooling_cases.assert_nan_goes_through("cuda")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_pooled_training_is_a_training(compiled):
    """To the accuracy of TF32, which is what two orders of summation differ by after a few steps."""
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8)
    p = on_gpu(replace(problem(), x_M=images[:60], x_test=images[:40]))
    losses: dict[bool, list] = {False: [], True: []}
    for pooled, rows in losses.items():
        engine = Engine(batched=True, precision=Precision.TF32, captured=True, compiled=compiled, pooled=pooled)
        with engine.precision.set():
            fit(p, METHODS["coteaching"], replace(PLAN, lr=1e-4), lambda: SmallCNN(3), engine=engine,
                on_epoch=lambda e, rows=rows: rows.extend(row["train_loss"] for row in p.rows(e)))  # fmt: skip
    assert losses[True] == pytest.approx(losses[False], rel=2e-3)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("plan, made, build", [(PLAN, problem, normed), (EVERYTHING, pictures, pictured)])
def test_the_host_waits_for_nothing_inside_an_epoch(plan, made, build):
    phase = METHODS["coteaching_plus"].phases(plan)[-1]
    training = start(on_gpu(made()), 2, plan, build, Engine(torch.float64), same_view)
    learn = mini_batch(training, phase)
    step = Captured(learn)
    train_epoch(training, 1, step)
    train_epoch(training, 2, step)
    assert step.runs > Captured.RUNS_BEFORE
    torch.cuda.set_sync_debug_mode("error")
    try:
        training.clock.step_1.zero_()
        for _ in range(training.batches.per_epoch):
            step()
            learn()
            training.clock.step_1.zero_()
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Asking(nn.Module):
    """Asks for a value in the middle of a step, which no graph can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x):
        return self.layers(x) * (1.0 if x.sum().item() else 2.0)


def test_a_step_that_cannot_be_captured_goes_on_as_it_is():
    with pytest.warns(UserWarning, match="uncaptured"):
        assert_same_on_gpu(
            "coteaching", PLAN, Asking, Engine(torch.float64, False, captured=True), batched_on_cpu=False
        )


def test_runs_that_do_not_fit_go_on_in_halves(tmp_path):
    """On a device that is nearly full: what is said, counted and written, and the same results."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(64, 4096, generator=generator), torch.arange(64) % 2
    wide = Dataset.from_arrays(x, y, x, y)  # a million weights a network
    experiment = Experiment(epochs=2, seeds=tuple(range(8)), network="mlp", tau=0.2, device="cuda", batch_size=16)
    said: list[str] = []
    whole = run(replace(experiment, out=tmp_path / "whole"), wide, say=said.append)
    assert not any("memory" in line for line in said)
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 300 * 2**20) / total)
    try:
        halved = run(replace(experiment, out=tmp_path / "halved", group=8), wide, say=said.append)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("do not fit into memory" in line for line in said)
    assert halved.summary["events"]["out_of_memory"] >= 8
    assert len(halved.rows) == len(whole.rows) == 16
    for mine in halved.rows:
        (theirs,) = [row for row in whole.rows if (row["seed"], row["epoch"]) == (mine["seed"], mine["epoch"])]
        assert mine["test_accuracy"] == theirs["test_accuracy"]


def test_deterministic_runs_repeat_to_the_byte(tmp_path, dataset):
    texts = []
    for i in range(2):
        experiment = Experiment(epochs=3, seeds=(1, 2), tau=0.2, device="cuda", deterministic=True, batch_size=16)
        result = run(replace(experiment, out=tmp_path / str(i)), dataset, say=lambda line: None)
        texts.append((result.folder / "metrics.jsonl").read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("batched", [True, False])
def test_a_ledger_kept_by_a_captured_step_is_the_cpus(batched):
    cpu = fit(problem(), METHODS["coteaching_plus"], PLAN, mlp, engine=Engine(torch.float64), ledger=True)
    gpu = Engine(torch.float64, batched, captured=True)
    there = fit(on_gpu(problem()), METHODS["coteaching_plus"], PLAN, mlp, engine=gpu, ledger=True)
    for key, value in vars(cpu.ledger).items():
        torch.testing.assert_close(getattr(there.ledger, key).cpu(), value, rtol=1e-9, atol=1e-9)
