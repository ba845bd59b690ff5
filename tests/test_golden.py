"""Golden files: what every network picked and lost in the first steps of a tiny run, per method and fidelity.

A refactor leaves the picks exactly and the losses to 1e-9. A change that is meant to change results writes them
anew:

    COTEACH_REGENERATE_GOLDEN=1 python -m pytest tests/test_golden.py

A method added to METHODS is skipped here until that has been done once.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from coteach.engine import Engine
from coteach.fidelity import AUTHORS, PAPER
from coteach.methods import METHODS, Method, Phase
from coteach.plan import Plan
from coteach.train import fit
from tiny import BY_RULE, Known

FOLDER = Path(__file__).parent / "golden"
REGENERATE = os.environ.get("COTEACH_REGENERATE_GOLDEN") == "1"
FIDELITIES = {"paper": PAPER, "authors": AUTHORS}
RECORDED = ("standard decoupling f_correction f_correction_known mentornet coteaching coteaching_plus cotraining "
            "jocor").split()  # fmt: skip
# Six steps an epoch, so 54 in all (108 for f_correction); every schedule turns on the way.
PLAN = Plan(epochs=9, batch_size=16, warmup=2, ramp=4, lr=0.005, decay_start=5)


def problem() -> Known:
    """Five clouds that overlap, drawn by NumPy's legacy generator, whose numbers are frozen."""
    random = np.random.RandomState(0)
    truth = random.randint(0, 5, 120)
    x = torch.from_numpy(random.randn(5, 8)[truth] + random.randn(120, 8))
    wrong = torch.from_numpy(random.rand(96) < 0.3)
    truth = torch.from_numpy(truth).long()
    return Known(
        x_M=x[:96],
        y_RM=torch.where(wrong, (truth[:96] + 1) % 5, truth[:96])[None],
        x_test=x[96:],
        y_test=truth[96:],
        n_classes=5,
        noise_rates=[0.3],
        seeds=[1],
        clean_RM=~wrong[None],
        matrix_RCC=(0.7 * torch.eye(5) + 0.3 * torch.eye(5).roll(1, 1))[None].double(),
    )


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 5))


class Recorder:
    """Listens to a method's phases: the losses as they are computed, the picks as they are weighed."""

    def __init__(self) -> None:
        self.losses: list[list[float | None]] = []
        self.picks: list[str] = []
        self.latest_NB = torch.empty(0)

    def listening(self, method: Method) -> Method:
        return replace(method, phases=lambda plan: [self.tapped(phase) for phase in method.phases(plan)])

    def tapped(self, phase: Phase) -> Phase:
        def loss(logits_NRBC: Tensor, target_NRB: Tensor) -> Tensor:
            loss_NRB = phase.loss(logits_NRBC, target_NRB)
            self.latest_NB = loss_NRB.detach()[:, 0]
            return loss_NRB

        def weigh(picked_NRB: Tensor) -> Tensor:
            self.note(picked_NRB[:, 0] > 0)
            return phase.weigh(picked_NRB)

        return replace(phase, loss=loss, weigh=weigh)

    def note(self, picked_NB: Tensor) -> None:
        """The mean loss of each network's picks, null without any; the picks as hexadecimal, sample 0 lowest."""
        means = [
            loss_B[mask].mean().item() if mask.any() else None
            for loss_B, mask in zip_rows(self.latest_NB, picked_NB)
        ]
        self.losses.append(means)
        bits = 2 ** torch.arange(picked_NB.shape[-1])
        self.picks.append(" ".join(f"{number:04x}" for number in (picked_NB * bits).sum(-1).tolist()))


def zip_rows(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    return list(zip(*tensors, strict=True))


def recorded(method: Method, plan: Plan, build: Callable[[], nn.Module] = network) -> dict:
    recorder = Recorder()
    accuracies: list[list[float]] = []
    p = problem()
    fit(
        p,
        recorder.listening(method),
        plan,
        build,
        engine=Engine(torch.float64),
        on_epoch=lambda epoch: accuracies.append(p.rows(epoch)[0]["test_accuracy"]),
    )
    return {"losses": recorder.losses, "picks": recorder.picks, "test_accuracy": accuracies}


def as_text(record: dict) -> str:
    """A line for each step."""
    lists = [
        f'"{name}": [\n' + ",\n".join(json.dumps(item) for item in items) + "\n]" for name, items in record.items()
    ]
    return "{" + ",\n".join(lists) + "}\n"


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("name", BY_RULE)
def test_nothing_has_changed(name, fidelity):
    path = FOLDER / f"{name}-{fidelity}.json"
    found = recorded(METHODS[name], replace(PLAN, fidelity=FIDELITIES[fidelity]))
    if REGENERATE:
        path.write_text(as_text(found))
    if not path.exists() and name not in RECORDED:
        pytest.skip(f"{name} has no golden file yet: COTEACH_REGENERATE_GOLDEN=1 writes it")
    golden = json.loads(path.read_text())
    assert len(found["losses"]) >= 50
    assert found["picks"] == golden["picks"]
    assert found["test_accuracy"] == golden["test_accuracy"]
    assert len(found["losses"]) == len(golden["losses"])
    for step, (mine, theirs) in enumerate(zip(found["losses"], golden["losses"], strict=True)):
        assert mine == pytest.approx(theirs, abs=1e-9), step


def test_every_golden_file_belongs_to_a_method():
    expected = {f"{name}-{fidelity}.json" for name in METHODS for fidelity in FIDELITIES}
    assert {path.name for path in FOLDER.iterdir()} <= expected
