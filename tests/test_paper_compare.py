"""Our numbers beside the known ones, and the summary of all cells."""

import json
from dataclasses import replace

import pytest

from coteach.data import DATASETS
from coteach.paper import compare
from coteach.paper.presets import cells, preset_names, with_epochs
from coteach.runs.experiment import Experiment
from measured_cases import cell_named, pretend

CONTRACT = {
    "experiment", "dataset", "network", "method", "fidelity", "noise", "rate", "noise_seed", "epochs", "seeds",
    "mean", "std", "max", "mean_per_network", "ensemble", "label_precision", "hardware", "torch", "commit",
}  # fmt: skip

# ---- known numbers --------------------------------------------------------------------------------------------


def all_addresses():
    return [c.address for n in preset_names() for c in cells(n, then=True)]


def test_every_known_number_has_a_cell_unless_it_says_why_not():
    addresses = all_addresses()
    for target in compare.targets():
        fitting = [address for address in addresses if target.fits(address)]
        assert bool(fitting) != bool(target.not_measured), target
        assert target.where["experiment"] in preset_names()
        assert {"method", "experiment"} <= target.where.keys()
        if target.bar is not None:
            assert target.bar_fidelity in {address["fidelity"] for address in fitting}, target


def test_no_source_has_two_numbers_for_a_cell():
    for address in all_addresses():
        sources = [target.source for target in compare.targets() if target.fits(address)]
        assert len(set(sources)) == len(sources), address


def test_the_numbers_are_those_printed():
    printed = [t for t in compare.targets() if t.source in ("paper", "wang2018")]
    assert len(printed) == 6 * 3 + 5 * 3  # the paper's two tables
    assert {t.where["method"] for t in printed if t.borrowed} == {"standard", "iterative"}
    assert sum(t.mean for t in printed) == pytest.approx(
        26.14 + 26.10 + 0.63 + 26.22 + 27.41 + 26.54 + 19.58 + 22.61 + 32.84 + 35.47 + 37.09 + 41.19
        + 35.56 + 36.28 + 44.37 + 45.49 + 45.60 + 47.73 + 62.92 + 79.27 + 79.28 + 79.43 + 79.28
        + 58.63 + 79.27 + 79.38 + 79.42 + 79.89 + 56.44 + 79.72 + 77.73 + 80.12 + 80.62
    )  # fmt: skip
    assert all(t.max is None or t.max >= t.mean for t in compare.targets())
    assert (
        sum(t.source == "jocor" for t in compare.targets()) == 6 * 6 + 2 * 5 + 2
    )  # MNIST and JoCoR on CIFAR-100 beside two kinds of cells
    bars = {
        (t.where["experiment"], t.where["method"], t.where.get("rate")): t.bar for t in compare.targets() if t.bar
    }
    assert bars == {
        ("mnist", "coteaching_plus", 0.2): 0.3,
        ("mnist", "coteaching_plus", 0.5): 0.6,
        ("cifar10", "coteaching_plus", 0.2): 1.5,
        ("cifar100", "coteaching_plus", 0.2): 2,
        ("cifar100", "coteaching_plus", 0.5): 2,
        ("openset", "coteaching_plus", None): 2,
        ("openset", "standard", None): 3,
        ("openset", "iterative", None): 3,
    }


# ---- the table ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_our_number_beside_the_known_one(tmp_path):
    pretend(cell_named("mnist", "coteaching_plus-authors-symmetric-0.2"), tmp_path, 97.4, 97.7)
    pretend(cell_named("mnist", "coteaching_plus-paper-symmetric-0.2"), tmp_path, 97.4, 97.7)
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0)
    pretend(cell_named("mnist", "f_correction-authors-pair-0.45"), tmp_path, 50.0)
    lines = compare.comparison(tmp_path)
    found = {
        (line.cell["method"], line.cell["fidelity"], line.target and line.target.source): line for line in lines
    }
    assert len(found) == len(lines) == 6

    bar = found["coteaching_plus", "authors", "jocor"]
    assert bar.difference == pytest.approx(97.55 - 97.81)
    assert (bar.allowed, bar.within) == (0.3, True)  # the bar, though more than the spread
    spread = found["coteaching_plus", "paper", "jocor"]
    assert spread.allowed == pytest.approx(0.3 / 2**0.5)
    assert spread.within is False
    assert ("coteaching_plus", "paper", "preliminary") not in found  # that was as the authors do
    assert found["standard", "authors", "jocor"].within is None  # one seed has no spread
    assert found["f_correction", "authors", None].difference is None

    text = compare.markdown(lines).splitlines()
    assert len(text) == 8
    assert {line.count("|") for line in text} == {len(compare.COMPARISON_HEADER) + 1}
    assert "97.55 ± 0.21 | 2 | 97.81 | -0.26 | yes (± 0.30) | jocor |" in text[2]
    assert compare.comparison(tmp_path, "cifar10") == []


@pytest.mark.slow
def test_a_shorter_or_outdated_cell_is_compared_with_nothing(tmp_path):
    cell = cell_named("mnist", "coteaching_plus-authors-symmetric-0.2")
    pretend(replace(cell, experiment=replace(cell.experiment, epochs=5)), tmp_path, 90.0)
    pretend(replace(cell, experiment=replace(cell.experiment, lr=0.1)), tmp_path, 90.0)
    assert [line.target for line in compare.comparison(tmp_path)] == [None, None]
    pretend(cell, tmp_path, 90.0)
    assert [line.target is None for line in compare.comparison(tmp_path)] == [False, False, True]


def test_a_number_of_the_plain_cell_is_not_held_against_another_loss(tmp_path):
    pretend(cell_named("openset", "standard-softmax_twice-paper"), tmp_path, 70.0)
    pretend(cell_named("openset", "standard-paper"), tmp_path, 63.0)
    assert [line.target and line.target.source for line in compare.comparison(tmp_path)] == ["wang2018", None]


def test_the_summary_keeps_the_contract_in_the_order_of_the_presets(tmp_path):
    pretend(cell_named("openset", "coteaching_plus-paper"), tmp_path, 79.0)
    pretend(cell_named("mnist", "standard-authors-pair-0.45"), tmp_path, 50.0, 52.0, 54.0)
    pretend(cell_named("mnist", "coteaching_plus-authors-pair-0.45"), tmp_path, 80.0, 90.0)
    path = compare.write_results_summary(tmp_path)
    assert path == tmp_path / "summary.json"
    objects = json.loads(path.read_text())
    assert all(one.keys() >= CONTRACT for one in objects)
    assert [(one["experiment"], one["method"]) for one in objects] == [
        ("mnist", "coteaching_plus"),
        ("mnist", "standard"),
        ("openset", "coteaching_plus"),
    ]
    assert [one["mean"] for one in objects] == [85, 52, 79]
    assert [one["std"] for one in objects] == [pytest.approx(50**0.5), 2, None]
    assert (objects[2]["noise"], objects[2]["rate"], objects[2]["dataset"]) == ("openset", 0.4, "openset-cifar100")
    assert objects[0]["network"] == "mlp"
    assert objects[0]["data"] == {}
    assert {one["dataset"] for one in objects} <= DATASETS.keys()
    compare.write_results_summary(tmp_path)
    assert json.loads(path.read_text()) == objects  # it is no cell itself


def test_the_summary_tells_apart_what_differs_in_its_data_alone(tmp_path):
    for preset in ("news", "news-glove100"):
        pretend(cell_named(preset, "standard-paper-pair-0.45"), tmp_path, 50.0)
    vectors = [one["data"]["vectors"] for one in compare.summary(tmp_path)]
    assert vectors == ["spacy.md.300d.txt", "glove.6B.100d.txt"]


def test_fewer_epochs_shorten_the_estimate_too():
    experiment = Experiment(dataset="mnist", method="f_correction", estimate_epochs=10)
    assert with_epochs(experiment, 2).plan().estimate_epochs == 2
    assert with_epochs(experiment, 20).plan().estimate_epochs == 10
    assert with_epochs(experiment, None) == experiment
