"""Compiled steps on a CPU, where no user gets them, but where they can be tested: near the uncompiled ones."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from coteach.engine import Engine
from coteach.engine.precision import Precision
from coteach.engine.steps import compiled
from coteach.engine.training import Training
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.train import finite_and_live, fit
from modern_cases import assert_notices_what_is_not_finite, bytes_problem, narrow, spoilt
from tiny import EVERYTHING, PLAN, Known, events, mlp, pictured, pictures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="there is no compiler here"),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::UserWarning"
    ),  # of the compiler's own making
]


def trained(p: Known, method: str, plan: Plan, build, **engine) -> tuple[Training, list[list[dict]]]:
    rows: list[list[dict]] = []
    graphs = counters["stats"]["unique_graphs"]
    training = fit(
        p, METHODS[method], plan, build, engine=Engine(**engine), on_epoch=lambda e: rows.append(p.rows(e))
    )
    # what does not compile goes on uncompiled, and a test would not notice
    assert (counters["stats"]["unique_graphs"] > graphs) == engine["compiled"]
    return training, rows


def test_the_fast_network_stays_near_the_uncompiled_one():
    """In bfloat16, where a compiled maximum once found none of its places again, and divided by nothing."""
    ends, losses = [], []
    for is_compiled in (False, True):
        training, rows = trained(
            bytes_problem(1), "mentornet", EVERYTHING, narrow,
            batched=False, precision=Precision.BF16, compiled=is_compiled,
        )  # fmt: skip
        assert "non_finite_loss" not in events(rows)
        ends.append(training.stack.theta_NRP.detach())
        losses.append([row["train_loss"] for (row,) in rows])
    assert ends[1].isfinite().all()
    assert (ends[1] - ends[0]).norm() < 0.05 * ends[0].norm()
    assert losses[1] == pytest.approx(losses[0], abs=0.02)


def test_a_compiled_step_notices_what_is_not_finite():
    assert_notices_what_is_not_finite(torch.compile(finite_and_live, dynamic=False), "cpu")
    assert_notices_what_is_not_finite(compiled(finite_and_live), "cpu")


def test_compiled_networks_sit_out_what_is_not_finite():
    ends: list[Tensor] = []
    for is_compiled in (False, True):
        training, rows = trained(
            spoilt(), "coteaching", replace(PLAN, epochs=3), mlp, dtype=torch.float64, compiled=is_compiled
        )
        assert "non_finite_loss" in events(rows)
        ends.append(training.stack.theta_NRP.detach())
    assert ends[1].isfinite().all()
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["coteaching", "dividemix"])
def test_what_is_learnt_besides_labels_compiles(method):
    """With a small network: the fast one ends up to 0.001 apart with dividemix and strong views."""
    plan = replace(
        EVERYTHING, epochs=3, warmup=1, strong_view=2, guess_weight=0.5, guess_ramp=1, class_balance=0.5
    )
    if method == "coteaching":
        plan = replace(plan, mixture=True, memory_weight=1.0)
    ends: list[Tensor] = []
    for is_compiled in (False, True):
        training, rows = trained(
            pictures(runs=1), method, plan, pictured, batched=False, dtype=torch.float64, compiled=is_compiled
        )
        assert "non_finite_loss" not in events(rows)
        ends.append(training.stack.theta_NRP.detach())
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-6, atol=1e-6)
