"""`coteach reproduce human`: its cells, the numbers they stand beside, its page and figure, and going on."""

import copy
import json
from dataclasses import replace
from statistics import fmean

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from coteach.cli import main
from coteach.data import cifar
from coteach.paper import beside, compare, figures, measured, page, presets, reproduce
from coteach.paper.measured import preset_records
from coteach.paper.presets import asked_for, cells
from coteach.runs.run import run_together
from data_files import cifar_bytes, publish, write_folder
from measured_cases import cell_named, pretend

LABEL_SETS = ("cifar10n-aggre", "cifar10n-rand1", "cifar10n-worst", "cifar100n")
METHODS = {"standard", "decoupling", "f_correction", "mentornet", "coteaching", "coteaching_plus", "jocor"}


def human(name):
    return cell_named("human", name)


def pretend_people(cell, out, *lasts):
    """As if measured: the last ten epochs lie two points below the last, a network's by itself three."""
    pretend(cell, out, *(last - 3 for last in lasts), average_precision=0.9)
    record = measured.load_json(measured.path_of(cell, out))
    runs = [run | {"last": x, "ensemble": x - 2} for run, x in zip(record["runs"], lasts, strict=True)]
    measured.write_json(measured.path_of(cell, out), measured.merged(cell, record | {"runs": runs}, None))


# ---- cells ----------------------------------------------------------------------------------------------------


def test_every_method_meets_every_label_set_with_the_modern_recipe():
    found = [cell for cell in cells("human") if cell.experiment.comes_labelled]
    plain = [cell for cell in found if cell.experiment.epochs is None]
    assert {(c.experiment.method, c.experiment.dataset) for c in plain} == {
        (method, name) for method in METHODS for name in LABEL_SETS
    }
    assert len(plain) == 28
    for cell in cells("human"):
        e = cell.experiment
        assert (e.recipe, e.network_name, e.fidelity, cell.seeds) == ("modern", "fast_cnn", "paper", (1, 2, 3))
        assert cell.row.startswith(presets.names.METHOD_LABELS[e.method])
        assert "paper" not in cell.row


def test_what_else_is_asked_of_the_recipe():
    others = {cell.name: cell for cell in cells("human")[28:]}
    flipped = [f"cifar10-coteaching-paper-{noise}" for noise in ("symmetric-0.2", "symmetric-0.5", "pair-0.45")]
    assert list(others) == [*flipped, "cifar10n-worst-coteaching-paper-width-2-epochs-80"]
    assert len(reproduce.stacks([(others[name], (1,)) for name in flipped])) == 1
    long = others["cifar10n-worst-coteaching-paper-width-2-epochs-80"]
    assert long.row == "Co-teaching, width 2, 80 epochs"
    assert (long.address["width"], long.address["epochs"], long.config["width"]) == (2, 80, 2)


def test_the_width_is_told_so_that_a_cpu_measures_the_same_cell():
    cell = human("cifar10n-worst-coteaching-paper")
    assert cell.experiment.width == 1
    assert cell.address["width"] is None  # it is usual
    left_out = replace(cell, experiment=replace(cell.experiment, width=None))
    assert left_out.hash != cell.hash


def test_a_users_epochs_are_not_told_as_the_presets():
    rows = {cell.row for cell in asked_for("human", epochs=2)}
    assert "Co-teaching, width 2" in rows
    assert not any("epochs" in row for row in rows)


def test_compilation_is_handed_on_and_leaves_the_hash():
    plain, compiled = (asked_for("human", compile_steps=answer)[0] for answer in ("auto", "yes"))
    assert (plain.experiment.compile, compiled.experiment.compile) == ("auto", "yes")
    assert plain.hash == compiled.hash


def test_compilation_on_a_cpu_is_refused_in_one_sentence(home, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "human", *home, "--compile", "yes"])
    assert "compile is yes, but on a CPU it makes steps slower" in capsys.readouterr().err


# ---- known numbers --------------------------------------------------------------------------------------------


def test_the_published_numbers_are_those_of_the_two_tables():
    known = {
        (t.source, t.where["method"], t.where["dataset"]): t.mean
        for t in compare.targets()
        if t.other_learner and t.where["experiment"] == "human"
    }
    assert len(known) == 11 * 4 + 7 * 2
    best = [known["best", "coteaching", name] for name in LABEL_SETS]
    assert best == [91.20, 90.33, 83.83, 60.37]
    assert [known["best", "ProMix", name] for name in LABEL_SETS] == [97.65, 97.39, 96.34, 73.79]
    assert [known["rerun", "coteaching_plus", name] for name in LABEL_SETS[2:]] == [78.9, 54.8]
    # of the columns, so that no digit is mistyped
    sums = [sum(v for (s, _, d), v in known.items() if (s, d) == ("best", name)) for name in LABEL_SETS]
    assert sums == pytest.approx([1026.53, 1018.89, 972.92, 717.28])


def test_the_best_epoch_stands_beside_the_last_and_the_last_ten_beside_the_last_ten(tmp_path):
    pretend_people(human("cifar10n-worst-coteaching-paper"), tmp_path, 87.0, 88.0)
    best, rerun = compare.comparison(tmp_path)
    assert (best.target.source, best.ours, best.difference) == ("best", 87.5, pytest.approx(87.5 - 83.83))
    assert (rerun.target.source, rerun.ours, rerun.difference) == ("rerun", 84.5, pytest.approx(84.5 - 73.6))
    assert best.texts()[3] == "87.50 ± 0.71"
    assert [line.within for line in (best, rerun)] == [None, None]  # another network: near says nothing
    assert [text.count("Ours beside it") for text in compare.sources([best, rerun])] == [1, 0]


def test_a_cell_of_which_nothing_is_known_tells_what_its_neighbours_tell(tmp_path):
    pretend_people(human("cifar10n-worst-mentornet-paper"), tmp_path, 86.0)
    pretend(cell_named("mnist", "f_correction-authors-pair-0.45"), tmp_path, 50.0)
    lines = compare.comparison(tmp_path)
    assert [(line.target, line.ours) for line in lines] == [(None, 50), (None, 86)]


def test_a_larger_network_is_not_held_against_the_published(tmp_path):
    pretend_people(human("cifar10n-worst-coteaching-paper-width-2-epochs-80"), tmp_path, 89.0)
    assert [line.target for line in compare.comparison(tmp_path)] == [None]


def test_every_cell_of_the_summary_has_the_last_epoch_and_the_average_precision(tmp_path):
    pretend_people(human("cifar10n-worst-coteaching-paper"), tmp_path, 87.0, 88.0)
    cell = cell_named("mnist", "f_correction-authors-pair-0.45")
    pretend(cell, tmp_path, 50.0)
    path = measured.path_of(cell, tmp_path)
    old = measured.load_json(path)
    for key in ("last", "average_precision", "last_per_seed", "average_precision_per_seed"):
        del old["summary"][key]  # a file from before they were known
    measured.write_json(path, old)
    older, people = compare.summary(tmp_path)
    assert (older["last"], older["average_precision"]) == (None, None)
    assert (people["experiment"], people["last"], people["last_per_seed"]) == ("human", 87.5, [87, 88])
    assert people["average_precision"] == 0.9


# ---- page and figure ------------------------------------------------------------------------------------------


def test_the_page_has_one_table_for_all_label_sets(tmp_path):
    for name in ("cifar10n-aggre", "cifar10n-worst"):
        pretend_people(human(f"{name}-coteaching-paper"), tmp_path, 87.0, 88.0)
    pretend_people(human("cifar10-coteaching-paper-pair-0.45"), tmp_path, 80.0)
    lines = "\n".join(page.page_lines("human", None, preset_records("human", None, tmp_path), [])).splitlines()
    assert lines.count("| | cifar10n-aggre | cifar10n-worst |") == 5
    assert lines.count("| | cifar10, pair 45 % |") == 5
    last = lines.index("## Ensemble, last epoch: test accuracy (%) of the networks' mean softmax")
    assert lines[last + 4] == "| Co-teaching | 87.50 ± 0.71 (2) | 87.50 ± 0.71 (2) |"
    assert "| Co-teaching | 85.50 ± 0.71 (2) | 85.50 ± 0.71 (2) |" in lines  # the last ten
    assert "| Co-teaching | 0.9000 ± 0.0000 (2) | 0.9000 ± 0.0000 (2) |" in lines
    assert "| human | Co-teaching | cifar10n-worst | 87.50 ± 0.71 | 2 | 83.83 | +3.67 |  | best |" in lines
    assert not any(line.startswith("Within") for line in lines)


def test_pages_of_runs_that_do_not_tell_their_last_epoch_stay_as_they_are(tmp_path):
    pretend(cell_named("mnist", "f_correction-authors-pair-0.45"), tmp_path, 50.0)
    records = preset_records("mnist", None, tmp_path)
    assert not any("nsemble" in line for line in page.page_lines("mnist", None, records, []))


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws records, and gives the panels of the figure."""
    close = plt.close
    monkeypatch.setattr(plt, "close", lambda figure: None)

    def draw(records):
        paths = figures.preset_figures(records, tmp_path, "human")
        return paths, [ax for number in plt.get_fignums() for ax in plt.figure(number).axes]

    yield draw
    close("all")


def test_the_figure_has_ours_and_the_published_of_each_label_set(drawn, tmp_path):
    pretend_people(human("cifar10n-worst-coteaching-paper"), tmp_path, 87.0, 88.0)
    pretend_people(human("cifar10n-aggre-mentornet-paper"), tmp_path, 93.0)
    pretend_people(human("cifar10n-worst-coteaching-paper-width-2-epochs-80"), tmp_path, 89.0)
    pretend_people(human("cifar10-coteaching-paper-pair-0.45"), tmp_path, 80.0)
    paths, (worst, aggre) = drawn(preset_records("human", None, tmp_path))
    assert [path.name for path in paths] == ["human.svg"]
    assert [ax.get_title() for ax in (worst, aggre)] == ["cifar10n-worst", "cifar10n-aggre"]

    def numbers(ax):
        return {float(x) for line in ax.lines if line.get_marker() in "oDs" for x in line.get_xdata()}

    assert numbers(worst) == {87.5, 85.5, 83.83, 73.6}
    assert numbers(aggre) == {93.0, 91.0}
    legend = [text.get_text() for text in plt.gcf().legends[0].get_texts()]
    assert legend == [mark.meaning for mark in (*beside.OUR_MARKS.values(), *beside.KNOWN_MARKS.values())]


def test_without_any_label_set_there_is_no_figure(drawn, tmp_path):
    pretend_people(human("cifar10-coteaching-paper-pair-0.45"), tmp_path, 80.0)
    assert drawn(preset_records("human", None, tmp_path)) == ([], [])


# ---- in miniature, for real -----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A CIFAR-10 of 100 images with labels of people, and a narrow network; gives the words of the command."""
    random = np.random.default_rng(0)
    rows = {f"data_batch_{i}.bin": 20 for i in range(1, 6)} | {"test_batch.bin": 20}
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, rows=rows))
    parts = {
        name: (random.integers(0, 10, n), random.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8))
        for name, n in rows.items()
    }
    files = {name: cifar_bytes(*part) for name, part in parts.items()}
    names = {"batches.meta.txt": "\n".join(cifar.TEN).encode() + b"\n\n"}
    write_folder(tmp_path / "data" / "cifar-10-batches-bin", files | names)
    true = np.concatenate([labels for labels, _ in list(parts.values())[:-1]])
    wrong = {
        name: np.where(random.random(100) < share, (true + 1) % 10, true)
        for name, share in (("aggre_label", 0.1), ("random_label1", 0.2), ("worse_label", 0.4))
    }
    others = dict.fromkeys(("random_label2", "random_label3"), wrong["random_label1"])
    path = tmp_path / "data" / "cifar-n" / "CIFAR-10_human.pt"
    path.parent.mkdir()
    torch.save({"clean_label": true} | wrong | others, path, pickle_protocol=2)
    publish(monkeypatch, "cifar10n", path)
    table = copy.deepcopy(presets.preset_tables()["human"]) | {"width": 0.1}
    table["cells"][-1]["width"] = 0.2
    monkeypatch.setattr(presets, "preset_tables", lambda: {"human": table})
    monkeypatch.setattr(presets, "USUAL_WIDTH", 0.1)
    monkeypatch.chdir(tmp_path)
    return ["--data-dir", str(tmp_path / "data"), "--device", "cpu"]


@pytest.mark.slow
def test_a_label_set_is_measured_stopped_gone_on_with_and_told(home, tmp_path, monkeypatch, capsys):
    words = ["reproduce", "human", *home, "--epochs", "2", "--cells", "cifar10n-worst"]
    begun = []

    def stopped(experiments, *arguments, **options):
        if len(begun) == 3:
            raise KeyboardInterrupt
        return counted(experiments, *arguments, **options)

    def counted(experiments, *arguments, **options):
        begun.append(experiments[0].method)
        assert experiments[0].seeds == (1, 2, 3)
        return run_together(experiments, *arguments, **options)

    monkeypatch.setattr(reproduce, "run_together", stopped)
    with pytest.raises(SystemExit, match="130"):
        main(words)
    folder = tmp_path / "results" / "human"
    before = {path: path.read_bytes() for path in folder.glob("*.json")}
    assert len(before) == 3
    monkeypatch.setattr(reproduce, "run_together", counted)
    main(words)
    assert {path: path.read_bytes() for path in before} == before
    assert begun[:3] == ["coteaching", "standard", "coteaching_plus"]
    assert begun[3:] == ["jocor", "mentornet", "decoupling", "f_correction", "coteaching"]

    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert len(summary) == 8
    for cell in summary:
        assert (cell["experiment"], cell["noise"], cell["epochs"], cell["seeds"]) == (
            "human",
            "human",
            2,
            [1, 2, 3],
        )
        assert cell["last"] == pytest.approx(fmean(cell["last_per_seed"]))
        assert 0.2 < cell["average_precision"] < 1
    text = (folder / "README-epochs-2.md").read_text()
    for name in METHODS:
        assert f"\n| {presets.names.METHOD_LABELS[name]} | " in text
    assert "![human-epochs-2](human-epochs-2.svg)" in text
    assert (folder / "human-epochs-2.svg").exists()
    assert "results/human/human-epochs-2.svg" in capsys.readouterr().out


@pytest.mark.slow
def test_flipped_labels_of_the_modern_recipe_have_their_average_precision_too(home, tmp_path):
    main(["reproduce", "human", *home, "--epochs", "1", "--seeds", "1", "--cells", "cifar10-coteaching"])
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert [(cell["noise"], cell["rate"]) for cell in summary] == [
        ("pair", 0.45),
        ("symmetric", 0.2),
        ("symmetric", 0.5),
    ]
    assert all(0 < cell["average_precision"] < 1 for cell in summary)
