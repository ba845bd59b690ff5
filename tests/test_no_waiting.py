"""A step asks the device for nothing and makes nothing on the host: on a device without numbers it would fail.

So it can be captured in a CUDA graph, and that can be tested without a GPU.
"""

from dataclasses import replace

import pytest
import torch

from coteach.dividemix import VIEWS
from coteach.engine import Engine
from coteach.engine.batches import half_views, same_view
from coteach.engine.training import start
from coteach.methods import METHODS
from coteach.mixture import clean_probability
from coteach.train import NOTHING_BUT_LABELS, by_mixture, mini_batch
from modern_cases import bytes_problem, narrow
from tiny import BY_RULE, EVERYTHING, INGREDIENTS, PLAN, mlp, pictured, pictures, problem

NOWHERE = "meta"  # its tensors have shapes, and no numbers


def steps_nowhere(name, plan, made, build, batched=None):
    """Every phase's step."""
    p = made()
    p = replace(p, x_M=p.x_M.to(NOWHERE), y_RM=p.y_RM.to(NOWHERE))
    dtype = p.x_M.dtype if p.x_M.is_floating_point() else torch.float32
    phases = METHODS[name].planned(plan)
    divided = any(phase.divided for phase in phases)
    view = half_views if METHODS[name].views else same_view
    training = start(
        p, METHODS[name].networks, plan, build, Engine(dtype, batched), view,
        ledger=True, views=VIEWS if divided else 1, mixture=divided or plan.mixture,
    )  # fmt: skip
    for phase in by_mixture(METHODS[name], phases) if plan.mixture else phases:
        warm = divided and not phase.divided
        mini_batch(replace(training, plan=replace(plan, **NOTHING_BUT_LABELS)) if warm else training, phase)()


@pytest.mark.parametrize("changes", INGREDIENTS.values(), ids=INGREDIENTS)
def test_with_each_ingredient(changes):
    steps_nowhere("coteaching", replace(PLAN, **changes), pictures, pictured)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", BY_RULE)
def test_of_every_method(name, batched):
    steps_nowhere(name, PLAN, problem, mlp, batched)
    steps_nowhere(name, EVERYTHING, pictures, pictured, batched)


def test_of_what_learns_from_dropped_samples_on_the_fast_network():
    plan = replace(EVERYTHING, mixture=True, strong_view=2, guess_weight=0.5, guess_ramp=2, memory_weight=3.0,
                   class_balance=1.0)  # fmt: skip
    steps_nowhere("coteaching", plan, bytes_problem, narrow)
    steps_nowhere("dividemix", replace(plan, mixture=False, memory_weight=0.0), bytes_problem, narrow)


def test_the_mixture_of_losses():
    assert clean_probability(torch.empty(2, 3, 60, device=NOWHERE)).shape == (2, 3, 60)


def test_a_device_without_numbers_notices_who_waits():
    class Asks(torch.nn.Linear):
        def forward(self, input):
            return super().forward(input) * float(input.sum())

    with pytest.raises(RuntimeError, match="meta"):
        steps_nowhere("standard", PLAN, problem, lambda: Asks(8, 3), batched=False)


def test_a_device_without_numbers_notices_what_is_made_on_the_host():
    class Adds(torch.nn.Linear):
        def forward(self, input):
            return super().forward(input) + torch.zeros(3, dtype=input.dtype)

    with pytest.raises(RuntimeError, match="meta"):
        steps_nowhere("standard", PLAN, problem, lambda: Adds(8, 3), batched=False)
