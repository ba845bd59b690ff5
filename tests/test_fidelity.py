"""Fidelity as a word, and every switch alone: it changes the thing it names and nothing else."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coteach.fidelity import AUTHORS, PAPER, SWITCHES, Fidelity, parse
from coteach.losses import softmax_twice
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs.experiment import Experiment
from tiny import PLAN, opinionated, problem, run_fit

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "fidelity.md").read_text("utf-8")

# ---- the word -------------------------------------------------------------------------------------------------


@given(st.sets(st.sampled_from(list(SWITCHES))))
def test_a_fidelity_is_written_and_read_back(on):
    fidelity = Fidelity(frozenset(on))
    assert parse(str(fidelity)) == fidelity
    assert {switch for switch in SWITCHES if getattr(fidelity, switch)} == on


@given(
    st.sampled_from(["paper", "authors"]),
    st.lists(st.tuples(st.sampled_from("+-"), st.sampled_from(list(SWITCHES)))),
)
def test_switches_are_turned_one_after_the_other(base, turns):
    """The last word on a switch counts."""
    on = set(SWITCHES if base == "authors" else ())
    for sign, switch in turns:
        on = on | {switch} if sign == "+" else on - {switch}
    assert parse(base + "".join(sign + switch for sign, switch in turns)).on == on


def test_the_two_names():
    assert (str(PAPER), str(AUTHORS)) == ("paper", "authors")
    assert (parse("paper"), parse(" authors ")) == (PAPER, AUTHORS)
    assert str(parse("paper+softmax_twice")) == "paper+softmax_twice"
    assert str(parse("authors-beta1_drop")) == "authors-beta1_drop"


@pytest.mark.parametrize(
    "text, hint",
    [
        ("", "begin with 'paper' or 'authors'"),
        ("papers", "begin with"),
        ("+floor", "begin with"),
        ("floor", "begin with"),
        ("paper+", "no fidelity switch ''"),
        ("paper+flor", "did you mean 'floor'"),
        ("authors-Rescue", "did you mean 'rescue'"),
        ("paper floor", "begin with"),
    ],
)
def test_a_misspelt_fidelity_is_told(text, hint):
    with pytest.raises(ValueError, match=hint):
        parse(text)


def test_a_misspelt_switch_is_no_attribute():
    with pytest.raises(AttributeError):
        PAPER.flor  # noqa: B018


def test_every_row_that_changes_a_result_has_a_switch():
    """Rows 14 to 16 are the same in both or reported apart, 19 changes nothing, 20 and 21 are words; 22 is the
    warm-up, told below the table."""
    rows = [row for row, _ in SWITCHES.values()]
    assert sorted(rows) == [*range(1, 14), 17, 18, 22, 28]
    assert all(story for _, story in SWITCHES.values())


def test_the_page_has_every_row_once_and_every_switch_under_its_number():
    rows = re.findall(r"^\| (\d+) \| (?:`(\w+)` \|)?", PAGE, re.MULTILINE)
    assert sorted(int(row) for row, _ in rows) == list(range(1, 29))
    assert {name: int(row) for row, name in rows if name} == {name: row for name, (row, _) in SWITCHES.items()}
    assert "| 1 | `softmax_twice` | only ℓ, without a name; " in PAGE


def test_pages_have_the_bounds_of_softmax_twice():
    ten_classes = torch.tensor([99.0] + [0.0] * 9)
    lowest, highest = (softmax_twice(ten_classes, torch.tensor(label)).item() for label in (0, 1))
    assert f"({lowest:.2f} to {highest:.2f} for ten classes)" in PAGE
    method, report = (
        (DOCS / page).read_text("utf-8") for page in ("methods/coteaching_plus.md", "replication.md")
    )
    assert f"from {lowest:.2f} to {highest:.2f} for ten classes" in method
    assert f"between {lowest:.2f} and {highest:.2f}" in report


# ---- switches of the trainer ----------------------------------------------------------------------------------

PLUS = "coteaching_plus"
WARMED = replace(PLAN, warmup=2, epochs=4)
IN_THE_TRAINER = {
    "softmax_twice": (PLUS, WARMED),
    "divided_twice": (PLUS, replace(WARMED, optimizer="sgd")),
    "rescue": (PLUS, replace(WARMED, warmup=0)),
    "floor": (PLUS, WARMED),
    "ramp_from_zero": ("coteaching", WARMED),
    "beta1_drop": ("standard", WARMED),
    "lr_above_zero": ("standard", WARMED),
    "linear_type2": ("coteaching", replace(PLAN, keep_type=2, ramp=1, horizon=5)),
}


def weights(method: str, plan: Plan, fidelity: str, build=None) -> torch.Tensor:
    training, _ = run_fit(problem(), METHODS[method], replace(plan, fidelity=parse(fidelity)), **build or {})
    return training.stack.theta_NRP.detach()


@pytest.mark.parametrize("switch", IN_THE_TRAINER)
def test_a_switch_alone_changes_the_training(switch):
    method, plan = IN_THE_TRAINER[switch]
    build = {"build": opinionated} if switch == "rescue" else {}
    assert not torch.equal(weights(method, plan, "paper", build), weights(method, plan, f"paper+{switch}", build))
    assert not torch.equal(
        weights(method, plan, "authors", build), weights(method, plan, f"authors-{switch}", build)
    )


@pytest.mark.parametrize(
    "method", "standard decoupling f_correction mentornet coteaching cotraining jocor".split()
)
def test_rows_1_to_3_are_about_coteaching_plus_alone(method):
    """Baselines learn with the cross-entropy of the logits, its mean, and no rescue in either fidelity."""
    assert torch.equal(
        weights(method, WARMED, "paper"), weights(method, WARMED, "paper+softmax_twice+divided_twice+rescue")
    )


def test_softmax_twice_spares_the_warm_up_and_a_loss_that_was_asked_for():
    only_warm = replace(PLAN, epochs=2, warmup=2)
    assert torch.equal(weights(PLUS, only_warm, "paper"), weights(PLUS, only_warm, "paper+softmax_twice"))
    asked = replace(WARMED, loss="gce")
    assert torch.equal(weights(PLUS, asked, "paper"), weights(PLUS, asked, "paper+softmax_twice"))
    twice = replace(WARMED, warmup=0, loss="softmax_twice")
    assert torch.equal(
        weights(PLUS, twice, "paper"), weights(PLUS, replace(twice, loss=None), "paper+softmax_twice")
    )


def test_whole_test_batches_leaves_the_incomplete_one_out():
    """40 test samples in batches of 16: the last 8 are not looked at."""
    p = problem()
    cut = replace(p, x_test=p.x_test[:32], y_test=p.y_test[:32])
    standard = METHODS["standard"]
    on, rows = run_fit(p, standard, replace(WARMED, fidelity=parse("paper+whole_test_batches")))
    off, all_rows = run_fit(p, standard, WARMED)
    _, cut_rows = run_fit(cut, standard, WARMED)
    assert torch.equal(on.stack.theta_NRP, off.stack.theta_NRP)
    assert rows == cut_rows
    assert rows != all_rows
    small = replace(p, x_test=p.x_test[:10], y_test=p.y_test[:10])  # less than one batch is kept
    assert (
        run_fit(small, standard, replace(WARMED, fidelity=parse("paper+whole_test_batches")))[1]
        == run_fit(small, standard, WARMED)[1]
    )


# ---- switches of what is trained on and for how long ----------------------------------------------------------


def set_up(dataset: str, fidelity: str) -> dict:
    experiment = Experiment(dataset=dataset, fidelity=fidelity)
    recipe, plan = experiment.usual, experiment.plan()
    return {
        "epochs": plan.epochs,
        "warmup": plan.warmup,
        "network": experiment.network_name,
        "data": recipe.data,
        "augment": recipe.augment,
    }


AROUND_THE_TRAINER = [
    ("epoch_short", "mnist", {"epochs": 199}),
    ("epoch_short", "cifar10", {"epochs": 199}),
    ("warmup_short", "mnist", {}),
    ("warmup_short", "cifar10", {"warmup": 19}),
    ("warmup_short", "cifar100", {"warmup": 4}),
    ("warmup_short", "tiny-imagenet", {"warmup": 99}),
    ("narrow_cnn7", "cifar100", {"network": "cnn7"}),
    ("flat_pooling", "news", {"network": "news_flat"}),
    ("news_70_30", "news", {"data": {"split": "70/30"}}),
    ("tiny_crops", "tiny-imagenet", {"network": "preact_resnet18_authors", "augment": "tiny_crops"}),
    ("openset_mixture", "openset-cifar100", {"data": {"style": "authors"}}),
    ("listed_classes", "tiny-imagenet", {"data": {"as_listed": True}}),
]


@pytest.mark.parametrize("switch, dataset, changes", AROUND_THE_TRAINER)
def test_a_switch_alone_changes_the_set_up_it_names(switch, dataset, changes):
    off, on = set_up(dataset, "paper"), set_up(dataset, f"paper+{switch}")
    assert {name: on[name] for name in on if on[name] != off[name]} == changes


def test_every_switch_is_tried():
    tried = {switch for switch, _, _ in AROUND_THE_TRAINER} | set(IN_THE_TRAINER) | {"whole_test_batches"}
    assert tried == set(SWITCHES)


@pytest.mark.parametrize(
    "dataset, warmup", [("mnist", 0), ("news", 0), ("cifar10", 20), ("cifar100", 5), ("tiny-imagenet", 100)]
)
def test_warm_ups_are_the_appendixs(dataset, warmup):
    plan = Experiment(dataset=dataset).plan()
    assert (plan.epochs, plan.warmup, plan.parallel_warmup) == (200, warmup, False)
    assert (plan.optimizer, plan.lr, plan.batch_size, plan.decay_start) == ("adam", 0.001, 128, 80)
    assert (plan.ramp, plan.keep_type, plan.milestones, plan.weight_decay) == (10, 1, (), 0.0)


@pytest.mark.parametrize("outside", ["cifar100", "svhn", "imagenet32"])
def test_open_sets_are_the_papers(outside):
    plan = Experiment(dataset=f"openset-{outside}").plan()
    assert (plan.epochs, plan.warmup, plan.parallel_warmup) == (100, 55, True)
    assert (plan.optimizer, plan.lr, plan.momentum, plan.weight_decay) == ("sgd", 0.01, 0.9, 1e-4)
    assert (plan.milestones, plan.ramp, plan.keep_type, plan.horizon) == ((40, 80), 10, 2, 200)
