"""The paper's figures and tables as presets: what they expand to, how they are measured and resumed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from coteach import files, names
from coteach.fidelity import SWITCHES
from coteach.paper import compare, measured, presets, reproduce
from coteach.paper.presets import Cell, cells, preset_names
from coteach.runs.experiment import Experiment, differing_fields
from coteach.runs.folder import write_summary
from coteach.runs.run import MAY_DIFFER, run, run_together
from run_cases import silent

CONTRACT = {
    "experiment", "dataset", "network", "method", "fidelity", "noise", "rate", "noise_seed", "epochs", "seeds",
    "mean", "std", "max", "mean_per_network", "ensemble", "label_precision", "hardware", "torch", "commit",
}  # fmt: skip


def tiny(noise="pair", rate=0.45, seeds=(1, 2), preset="tiny", **changes) -> Cell:
    usual = {"dataset": "digits", "method": "coteaching", "epochs": 2, "device": "cpu"}
    e = Experiment(noise=noise, rate=rate, **(usual | changes))
    return Cell(preset, e, seeds, "Tiny", presets.row_label(e), presets.column_label(e))


class Spy:
    """Stands before run_together: counts what is run, and may break down at the n-th stack."""

    def __init__(self, monkeypatch, fail_at=None):
        self.stacks, self.fail_at = [], fail_at
        monkeypatch.setattr(reproduce, "run_together", self)

    def __call__(self, experiments, *arguments, **options):
        if len(self.stacks) == self.fail_at:
            raise KeyboardInterrupt
        self.stacks.append([(e.noise, e.method, e.seeds) for e in experiments])
        return run_together(experiments, *arguments, **options)


def measure(wanted, out, **options):
    return reproduce.measure_cells(wanted, out, say=silent, **options)


# ---- presets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, n_cells, n_runs, n_cells_then, n_runs_then",
    [
        ("divergence", 24, 240, 24, 240),  # (3 methods + Co-teaching+ as the paper) × 3 noises × 2 networks
        ("mnist", 33, 165, 33, 165),  # (5 methods + Co-teaching+ as the paper + F-correction in 5 ways) × 3 noises
        ("cifar10", 36, 108, 36, 180),  # and Decoupling without a warm start
        ("cifar100", 24, 24, 27, 81),
        ("news", 42, 126, 42, 210),  # 6 methods and one in two ways × 2 readings × 3 noises
        ("openset", 8, 8, 9, 27),  # five methods, and bounded losses
        ("openset-svhn", 5, 5, 5, 15),
        ("openset-imagenet32", 5, 5, 5, 15),
        ("tiny-imagenet", 6, 6, 22, 66),  # three methods with another order of classes, too
        ("tiny-imagenet-200", 18, 18, 18, 54),
        ("jocor", 27, 81, 39, 135),
        ("winner", 41, 123, 41, 123),  # one recipe, DivideMix, and one ingredient less
        ("human", 32, 96, 32, 96),  # 7 methods × 4 label sets, three noises, and one that is larger and longer
    ],
)
def test_presets_expand_to_the_cells_of_the_paper(name, n_cells, n_runs, n_cells_then, n_runs_then):
    first = cells(name)
    then = cells(name, then=True)
    assert (len(first), sum(len(cell.seeds) for cell in first)) == (n_cells, n_runs)
    assert (len(then), sum(len(cell.seeds) for cell in then)) == (n_cells_then, n_runs_then)
    assert {cell.name for cell in first} <= {cell.name for cell in then}


def test_the_ablation_has_every_rule_with_every_loss_and_every_switch_alone():
    for dataset in ("mnist", "cifar10"):
        found = [c.experiment for c in cells("ablation") if c.experiment.dataset == dataset]
        plain = {(e.method, e.loss) for e in found if e.fidelity == "authors" and e.tau is None}
        for method in ("standard", "decoupling", "mentornet", "coteaching", "jocor", "cotraining"):
            assert {(method, loss) for loss in (None, "softmax_twice", "mae", "gce")} <= plain
        for method in ("coteaching_plus", "coteaching_plus_own"):
            assert {(method, loss) for loss in (None, "cross_entropy", "mae", "gce")} <= plain
        alone = {e.fidelity for e in found if e.method == "coteaching_plus"}
        irrelevant = {"narrow_cnn7", "flat_pooling", "news_70_30", "tiny_crops", "linear_type2", "openset_mixture"}
        irrelevant |= {"listed_classes"}
        relevant = SWITCHES.keys() - irrelevant - ({"warmup_short"} if dataset == "mnist" else set())
        assert {"paper", "authors", *(f"paper+{switch}" for switch in relevant)} <= alone
        told = {(e.keep_type, round(e.tau - e.rate, 3)) for e in found if e.tau and e.rate}
        assert told == {(1, -0.1), (1, 0.1), (2, -0.1), (2, 0), (2, 0.1)}


@pytest.mark.parametrize("name", preset_names())
def test_every_cell_is_a_sound_experiment_with_a_name_and_a_hash_of_its_own(name):
    all_cells = cells(name, then=True)
    assert all_cells
    for cell in all_cells:
        replace(cell.experiment, seeds=cell.seeds).check()
        assert cell.name == cell.name.strip("-. ")
        assert not set(cell.name) & set('/\\ :*?"<>|')
        assert cell.row
        assert cell.column
    assert len({cell.name for cell in all_cells}) == len(all_cells)
    assert len({cell.hash for cell in all_cells}) == len(all_cells)
    assert len({(cell.row, cell.column) for cell in all_cells}) == len(all_cells)


def test_every_method_is_measured_and_has_a_label():
    measured = {c.experiment.method for n in preset_names() for c in cells(n, then=True)}
    assert measured == names.METHOD_MEANINGS.keys() == names.METHOD_LABELS.keys()


def test_the_first_cell_of_a_figure_is_its_most_telling_one():
    assert [cells(n)[0].name for n in ("mnist", "openset")] == [
        "coteaching_plus-authors-pair-0.45",
        "coteaching_plus-paper",
    ]


def test_a_preset_that_is_not_there_is_told_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'cifar100'"):
        cells("cifar-100")


@pytest.mark.parametrize("mistake", [{"noise": "pair 1.5"}, {"loss": "mea"}, {"colour": "red"}], ids=str)
def test_a_mistake_in_the_presets_is_refused(monkeypatch, mistake):
    table = {"title": "Tiny", "dataset": "digits", "cells": [{"method": "standard"} | mistake]}
    monkeypatch.setattr(presets, "preset_tables", lambda: {"tiny": table})
    with pytest.raises(ValueError, match="1.5|mea|colour"):
        cells("tiny")


def test_presets_do_not_load_torch():
    code = "import sys, coteach.paper.presets as p; p.cells('ablation'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", preset_names())
def test_stacks_are_of_cells_that_may_run_together(name):
    todo = [(cell, cell.seeds) for cell in cells(name, then=True)]
    stacks = reproduce.stacks(todo)
    assert sorted(cell.name for one in stacks for cell, _ in one) == sorted(cell.name for cell, _ in todo)
    for one in stacks:
        first = one[0][0]
        for cell, _ in one:
            assert differing_fields(first.experiment, cell.experiment) <= MAY_DIFFER
            assert cell.data == first.data
    assert len({id(one) for one in stacks}) == len({cell_key(cell) for cell, _ in todo})


def cell_key(cell):
    """All but the noise and τ, read off the name."""
    e = cell.experiment
    numbers = (e.keep_type, e.warmup, e.held_out, e.estimate_epochs, e.joint_weight, e.decay_start, e.width)
    besides = [e.steps_per_epoch, *(getattr(e, name) for name in presets.BESIDES)]
    return (e.dataset, e.method, e.loss, e.warmup_loss, e.fidelity, e.network, *numbers, *besides)


def test_open_sets_of_another_share_are_other_images_and_do_not_run_together():
    todo = [(tiny(noise=None, rate=rate, dataset="openset-cifar100"), (1,)) for rate in (0.2, 0.4)]
    assert len(reproduce.stacks(todo)) == 2


# ---- the hash -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "mnist"}, {"method": "standard"}, {"loss": "gce"}, {"fidelity": "authors"}, {"rate": 0.4},
        {"noise": "symmetric"}, {"noise_seed": 1}, {"tau": 0.3}, {"epochs": 3}, {"batch_size": 32}, {"warmup": 0},
        {"ramp": 2}, {"keep_type": 2}, {"network": "mlp3"}, {"optimizer": "sgd"}, {"lr": 0.1},
        {"precision": "bf16"}, {"fidelity": "paper+floor"}, {"joint_weight": 0.1}, {"steps_per_epoch": 2},
        {"warmup_loss": "gce"}, {"decay_start": 2}, {"width": 2, "network": "fast_cnn"}, {"cutout": 8},
    ],
    ids=str,
)  # fmt: skip
def test_the_hash_changes_with_whatever_decides_the_result(change):
    cell = tiny()
    assert replace(cell, experiment=replace(cell.experiment, **change)).hash != cell.hash


def test_an_option_that_is_off_leaves_the_hash_as_it_is(monkeypatch):
    before = tiny().hash
    plain = presets.asdict
    monkeypatch.setattr(presets, "asdict", lambda plan: plain(plan) | {"some_new_option": None, "another": False})
    assert tiny().hash == before
    monkeypatch.setattr(presets, "asdict", lambda plan: plain(plan) | {"some_new_option": 3})
    assert tiny().hash != before


def test_the_hash_changes_with_the_data_but_not_with_where_and_on_what_it_runs():
    cell = tiny()
    assert replace(cell, data={"classes": 5}).hash != cell.hash
    elsewhere = replace(cell.experiment, device="cuda", group=1, data_dir="/x", out="/y", stack="loop", seeds=(9,))
    same = replace(cell, experiment=elsewhere, seeds=(7,), title="another", preset="another", row="r", column="c")
    assert same.hash == cell.hash
    spelt_out = replace(cell.experiment, tau=0.45, network="mlp", lr=0.005)  # the defaults
    assert replace(cell, experiment=spelt_out).hash == cell.hash


# ---- measuring ------------------------------------------------------------------------------------------------


def test_a_cell_says_what_its_run_says(tmp_path):
    noises = [tiny(), tiny("symmetric", 0.2)]
    seen = []
    paths = measure(noises, tmp_path, commit="abc", on_progress=seen.append)
    assert [path.name for path in paths] == [
        "coteaching-paper-epochs-2-pair-0.45.json",
        "coteaching-paper-epochs-2-symmetric-0.2.json",
    ]
    assert [(p.done, p.total) for p in seen] == [(4, 8), (8, 8)]  # 2 epochs of 2 × 2 runs
    together = [replace(c.experiment, seeds=(1, 2), out=tmp_path / "runs" / c.column) for c in noises]
    for path, result in zip(paths, run_together(together, say=silent), strict=True):
        record = json.loads(path.read_text())
        for key in CONTRACT - {"experiment", "hardware", "torch", "commit"}:
            assert record["summary"][key] == pytest.approx(result.summary[key]), key
        assert record["data"]["noise_sha256"] == result.summary["noise_sha256"]
        assert record["data"]["samples"] == 1297
        assert [r["commit"] for r in record["runs"]] == ["abc", "abc"]
        for run_of_seed in record["runs"]:
            rows = [row for row in result.rows if row["seed"] == run_of_seed["seed"]]
            curves = run_of_seed["curves"]
            assert set(curves) == {"test_accuracy", "label_precision", "disagreement", "total_variation"}
            assert curves["total_variation"] == [round(row["total_variation"], 5) for row in rows]
            assert curves["test_accuracy"] == [round(sum(row["test_accuracy"]) / 2, 5) for row in rows]
    assert not list(tmp_path.glob("**/.*"))


def test_what_one_network_does_not_have_is_null(tmp_path):
    (path,) = measure([tiny(method="standard", seeds=(1,))], tmp_path)
    record = json.loads(path.read_text())
    assert record["runs"][0]["curves"]["disagreement"] == [None, None]
    assert len(record["summary"]["mean_per_network"]) == 1
    assert record["summary"]["std"] is None


def test_what_is_there_is_not_measured_again(tmp_path, monkeypatch):
    wanted = [tiny(), tiny("symmetric", 0.2)]
    measure(wanted, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*.json")}
    spy, said = Spy(monkeypatch), []
    reproduce.measure_cells(wanted, tmp_path, say=said.append)
    assert spy.stacks == []
    assert said == [f"2 of 2 cells are in {tmp_path} already"]
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*.json")} == before


def test_only_the_seeds_that_are_missing_are_run_and_merged(tmp_path, monkeypatch):
    (path,) = measure([tiny(seeds=(2,))], tmp_path)
    old = json.loads(path.read_text())
    spy = Spy(monkeypatch)
    measure([tiny(seeds=(1, 2, 3))], tmp_path)
    assert spy.stacks == [[("pair", "coteaching", (1, 3))]]
    new = json.loads(path.read_text())
    assert new["summary"]["seeds"] == [1, 2, 3]
    assert new["runs"][1] == old["runs"][0]
    alone = run(replace(tiny().experiment, seeds=(1, 2, 3), out=tmp_path / "alone"), say=silent)
    for key in ("mean", "std", "max", "ensemble", "last", "label_precision"):
        assert new["summary"][key] == pytest.approx(alone.summary[key], abs=0.5), key  # float32, stacked otherwise
    measure([tiny(seeds=(1,))], tmp_path)
    assert json.loads(path.read_text()) == new  # fewer seeds than are there take nothing away


def test_cells_of_a_stack_may_miss_different_seeds(tmp_path, monkeypatch):
    measure([tiny(seeds=(1,))], tmp_path)
    spy = Spy(monkeypatch)
    measure([tiny(), tiny("symmetric", 0.2)], tmp_path)
    assert spy.stacks == [[("pair", "coteaching", (2,)), ("symmetric", "coteaching", (1, 2))]]
    assert [c["seeds"] for c in compare.summary(tmp_path)] == [[1, 2], [1, 2]]


def test_a_cell_measured_in_another_way_is_replaced(tmp_path, monkeypatch):
    (path,) = measure([tiny(seeds=(1,))], tmp_path)
    old = json.loads(path.read_text())
    other, said = tiny(seeds=(1,), lr=0.01), []
    assert reproduce.path_of(other, tmp_path) == path
    reproduce.measure_cells([other], tmp_path, say=said.append)
    assert "in another way" in said[0]
    assert json.loads(path.read_text())["hash"] == other.hash != old["hash"]


def test_what_another_preset_has_measured_is_taken_over(tmp_path, monkeypatch):
    (theirs,) = measure([tiny(seeds=(1,), preset="theirs")], tmp_path)
    spy = Spy(monkeypatch)
    (ours,) = measure([tiny(preset="ours")], tmp_path)
    assert spy.stacks == [[("pair", "coteaching", (2,))]]
    record = json.loads(ours.read_text())
    assert record["runs"][0] == json.loads(theirs.read_text())["runs"][0]
    assert record["preset"] == record["summary"]["experiment"] == "ours"


def test_a_seed_that_is_there_is_kept_and_the_seconds_of_a_stack_are_shared_out(tmp_path, dataset):
    result = run(replace(tiny().experiment, seeds=(1, 2), out=tmp_path / "run"), dataset, say=silent)
    result.summary["seconds"] = 12.0
    write_summary(result.folder, result.summary)
    new = measured.measurement(result.folder, dataset, 4, None)
    assert [r["seconds"] for r in new["runs"]] == [3, 3]
    before = measured.merged(tiny(), new | {"runs": [new["runs"][0] | {"mean": 7.0}]}, None)
    both = measured.merged(tiny(), new, before)
    assert [r["mean"] == 7 for r in both["runs"]] == [True, False]
    assert both["summary"]["seconds"] == 6


def test_cells_say_how_the_last_epoch_ended_and_how_well_wrong_labels_of_people_are_found(
    tmp_path, dataset, monkeypatch
):
    given = dataset.y_train.where(torch.arange(120) >= 30, (dataset.y_train + 1) % 3)
    people = replace(dataset, name="cifar10n-worst", given=given)
    monkeypatch.setattr(reproduce.data, "load", lambda *a, **o: people)
    changes = {"dataset": "cifar10n-worst", "recipe": "paper", "network": "mlp", "batch_size": 16}
    (path,) = measure([tiny(None, None, **changes)], tmp_path)
    cell, runs = (json.loads(path.read_text())[key] for key in ("summary", "runs"))
    assert (cell["noise"], cell["dataset"], cell["rate"]) == ("human", "cifar10n-worst", None)
    assert cell["last"] == pytest.approx(np.mean([run["last"] for run in runs]))
    assert [len(run["curves"]["test_accuracy"]) for run in runs] == [2, 2]
    assert 0.3 < cell["average_precision"] == pytest.approx(np.mean([run["average_precision"] for run in runs]))
    older = [{k: v for k, v in run.items() if k not in ("last", "average_precision")} for run in runs]
    summary = measured.summarise_cell(tiny(), older)
    assert (summary["last"], summary["average_precision"]) == (None, None)


def test_runs_on_other_data_are_not_mixed(tmp_path, dataset, monkeypatch):
    measure([tiny(seeds=(1,))], tmp_path)
    monkeypatch.setattr(reproduce.data, "load", lambda *a, **o: replace(dataset, name="digits"))
    with pytest.raises(ValueError, match="measured on other data"):
        measure([tiny(seeds=(1, 2), batch_size=None)], tmp_path)


def test_a_crash_leaves_whole_files(tmp_path, monkeypatch):
    wanted = [tiny(seeds=(1,)), tiny(seeds=(1,), method="standard"), tiny("symmetric", 0.2, seeds=(1,))]
    Spy(monkeypatch, fail_at=1)
    with pytest.raises(KeyboardInterrupt):
        measure(wanted, tmp_path)
    assert len(measured.in_folder(tmp_path)) == 2  # of the first stack, both noises
    spy = Spy(monkeypatch)
    measure(wanted, tmp_path)
    assert spy.stacks == [[("pair", "standard", (1,))]]
    assert len(measured.in_folder(tmp_path)) == 3


def test_a_kill_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    (path,) = measure([tiny(seeds=(1,))], tmp_path)
    before = path.read_bytes()

    def killed(source, target):
        if target == path:
            raise KeyboardInterrupt
        os.replace(source, target)  # the run's own summary

    monkeypatch.setattr(files, "os", SimpleNamespace(replace=killed, getpid=os.getpid, fsync=os.fsync))
    with pytest.raises(KeyboardInterrupt):
        measure([tiny(seeds=(1, 2))], tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "other" / "x.json"
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(ValueError, match="x.json is damaged: remove it"):
        measure([tiny()], tmp_path)
    path.write_text('{"of": "somebody else"}')
    assert measured.in_folder(tmp_path) == []


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "deep", "huge", "not text", "long number"])
def test_whatever_lies_in_the_folder_is_named_at_once(tmp_path, kind, monkeypatch):
    path = tmp_path / "other" / "x.json"
    path.parent.mkdir()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "huge":
            monkeypatch.setattr(measured, "MOST_RESULT_BYTES", 10)
            path.write_text('{"a":    1}')
        case _:
            contents = {"deep": b"[" * 200_000, "not text": b"\xff\xfe{}", "long number": b"9" * 10_000}
            path.write_bytes(contents[kind])
    with pytest.raises(ValueError, match="x.json is damaged: remove it"):
        measured.in_folder(tmp_path)


@pytest.mark.parametrize("summary", [3, [], {}, {"seeds": 1}])
def test_other_json_is_no_cell(tmp_path, summary):
    (tmp_path / "other").mkdir()
    record = {"hash": 1, "data": 2, "summary": summary, "runs": []}
    (tmp_path / "other" / "x.json").write_text(json.dumps(record))
    assert measured.in_folder(tmp_path) == []


def test_a_wrong_seed_is_refused_before_anything_runs(tmp_path, monkeypatch):
    spy = Spy(monkeypatch)
    with pytest.raises(ValueError, match="repeat"):
        measure([tiny(seeds=(1, 1))], tmp_path)
    assert spy.stacks == []


def test_a_preset_is_measured_by_its_name(tmp_path, monkeypatch):
    grid = {"method": ["coteaching", "standard"], "fidelity": "authors"}
    table = {"title": "Tiny", "dataset": "digits", "first": 1, "then": 2, "cells": [grid]}
    table |= {"noise": ["pair 0.45", "symmetric 0.2"]}
    monkeypatch.setattr(presets, "preset_tables", lambda: {"tiny": table})
    spy = Spy(monkeypatch)
    paths = reproduce.reproduce("tiny", epochs=1, out=tmp_path, device="cpu", say=silent)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        "tiny/coteaching-authors-epochs-1-pair-0.45.json",
        "tiny/coteaching-authors-epochs-1-symmetric-0.2.json",
        "tiny/standard-authors-epochs-1-pair-0.45.json",
        "tiny/standard-authors-epochs-1-symmetric-0.2.json",
    ]
    reproduce.reproduce("tiny", epochs=1, out=tmp_path, device="cpu", then=True, say=silent)
    reproduce.reproduce("tiny", seeds=(2, 5), epochs=1, out=tmp_path, device="cpu", say=silent)
    assert [seeds for stack in spy.stacks for _, method, seeds in stack] == [(1,)] * 4 + [(2,)] * 4 + [(5,)] * 4
    assert len(compare.summary(tmp_path)) == 4


def test_word_vectors_that_are_not_there_are_named(tmp_path):
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "spacy.md.300d.txt").touch()
    (tmp_path / "glove.6B.zip").touch()
    assert reproduce.find_vectors("spacy.md.300d.txt", tmp_path) == tmp_path / "vectors" / "spacy.md.300d.txt"
    assert reproduce.find_vectors("glove.6B.300d.txt", tmp_path) == tmp_path / "glove.6B.zip"
    with pytest.raises(ValueError, match="glove.6B.100d.txt are not in"):
        reproduce.find_vectors("glove.6B.100d.txt", tmp_path)
