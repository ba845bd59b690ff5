"""DivideMix against a plain loop written from its paper, and its pieces one by one."""

from dataclasses import replace

import pytest

from coteach.plan import OF_METHOD
from plain_cases import assert_trains_like_the_plain_loop
from tiny import PLAN, pictured, pictures

PAPERS = replace(PLAN, **(OF_METHOD["dividemix"] | {"epochs": 4, "warmup": 2}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"guess_weight": 0.0},
        {"mixup": 0.0},
        {"guess_ramp": 0, "temperature": 0.8},
        {"confidence_penalty": 1.0},
        {"label_smoothing": 0.1, "loss": "gce"},
        {"shift": 1, "mirror": True, "strong_view": 1, "cutout": 2},
    ],
    ids=str,
)
def test_it_trains_like_the_loop_of_its_paper(changes):
    assert_trains_like_the_plain_loop("dividemix", replace(PAPERS, **changes), pictured, pictures(runs=1))
