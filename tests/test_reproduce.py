"""`coteach reproduce`: what is measured, what is written and drawn, what is told, and going on after Ctrl-C."""

import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from coteach.cli import main
from coteach.paper import compare, measured, presets, reproduce, stack
from coteach.paper.presets import cells, preset_names
from coteach.report import preset_figures, preset_page, terminal
from coteach.report.reproduce import comparison_tables, in_order
from coteach.report.screen import console
from coteach.runs.run import run_together

TINY = {
    "title": "Figure 0: digits",
    "dataset": "digits",
    "noise": ["pair 0.45", "symmetric 0.2"],
    "fidelity": "authors",
    "epochs": 2,
    "first": 2,
    "then": 3,
    "cells": [{"method": ["standard", "coteaching"]}, {"method": "mentornet", "first": 0}],
}
ALONE = f"""
import sys
from coteach.paper import presets
presets.read = lambda: {{"tiny": {TINY!r}}}
from coteach.cli import main
try:
    main(["reproduce", *sys.argv[1:]])
finally:
    print("heavy", [name for name in ("torch", "sklearn", "matplotlib", "scipy", "pooch") if name in sys.modules])
"""


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A preset of 4 cells in 2 stacks, in a folder of its own; gives the stacks that are run."""
    monkeypatch.setattr(presets, "read", lambda: {"tiny": TINY})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    stacks = []

    def spy(experiments, *arguments, **options):
        stacks.append([(e.method, e.noise, e.seeds) for e in experiments])
        return run_together(experiments, *arguments, **options)

    monkeypatch.setattr(stack, "run_together", spy)
    return stacks


def pretend(cell, out, *means, n_epochs=3, data=None, **changes):
    """A file as if the cell had been measured with these means."""
    curves = {name: [0.5, None, 0.7][:n_epochs] for name in measured.CURVES}
    run = {"max": 99.0, "mean_per_network": [1.0], "ensemble": 3.0, "label_precision": None, "seconds": 30}
    run |= {"hardware": "Abacus", "commit": None, "versions": {"torch": "2.99"}, "curves": curves}
    runs = [run | {"seed": i, "mean": mean} | changes for i, mean in enumerate(means, start=1)]
    about = {"classes": 10, "note": ""} | (data or {})
    measured.write(measured.path_of(cell, out), measured.merged(cell, {"data": about, "runs": runs}, None))


def pretend_all(name, out, then=True):
    for i, cell in enumerate(cells(name, then=then)):
        pretend(cell, out, *(50 + i % 7 + seed for seed in cell.seeds))


# ---- the command ----------------------------------------------------------------------------------------------


def test_a_preset_is_measured_drawn_compared_and_told(tiny, tmp_path, capsys):
    main(["reproduce", "tiny", "--device", "cpu"])
    assert [len(stack) for stack in tiny] == [2, 2]
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert [one["method"] for one in summary] == ["standard", "standard", "coteaching", "coteaching"]
    assert all(one["seeds"] == [1, 2] for one in summary)
    page = (tmp_path / "results" / "tiny" / "README.md").read_text()
    out = capsys.readouterr().out
    for one in summary:
        assert f"| {one['mean']:.2f} ± {one['std']:.2f} (2) |" in page
        assert f"{one['mean']:.2f} ± {one['std']:.2f}" in out
    for text in ("# Figure 0: digits", "`coteach reproduce tiny`, 4 of 4 cells", "0 of 2 that `--all` adds"):
        assert text in page
    assert "![tiny](tiny.svg)" in page
    assert "minutes of" in page
    assert (tmp_path / "results" / "tiny" / "tiny.svg").read_text().count("<svg") == 1
    assert "results/tiny/tiny.svg" in out


def test_seeds_epochs_all_and_out_are_obeyed(tiny, tmp_path):
    main("reproduce tiny --seeds 5 --epochs 1 --all --out there --device cpu".split())
    assert [seeds for stack in tiny for _, _, seeds in stack] == [(5,)] * 6
    folder = tmp_path / "there" / "tiny"
    assert len(list(folder.glob("*-epochs-1-*.json"))) == 6
    page = (folder / "README-epochs-1.md").read_text()
    assert "`coteach reproduce tiny --seeds 5 --epochs 1 --all`" in page
    assert {path.name for path in folder.glob("*.svg")} == {"tiny-epochs-1.svg"}
    assert not (folder / "README.md").exists()  # that is of the preset's own epochs


def test_cells_that_are_named_are_measured_alone(tiny, tmp_path, capsys):
    main("reproduce tiny --cells standard --device cpu".split())
    main("reproduce tiny --cells pair --seeds 1 --device cpu".split())
    assert tiny == [
        [("standard", "pair", (1, 2)), ("standard", "symmetric", (1, 2))],
        [("coteaching", "pair", (1,))],
    ]
    assert "3 of 4 cells" in (tmp_path / "results" / "tiny" / "README.md").read_text()
    for wrong, way in (("mentor", "give --all, too"), ("mentör", "names are such as standard-authors-epochs-2")):
        with pytest.raises(SystemExit, match="2"):
            main(["reproduce", "tiny", "--cells", wrong])
        assert f"no cell of tiny has '{wrong}' in its name: {way}" in capsys.readouterr().err


@pytest.mark.parametrize("only_report", [[], ["--only-report"]])
def test_without_anything_missing_neither_data_nor_torch_are_needed(tiny, tmp_path, only_report):
    pretend_all("tiny", tmp_path / "results", then=False)
    words = [sys.executable, "-c", ALONE, "tiny", "--data-dir", "nowhere", *only_report]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "4 of 4 cells are in results" in done.stdout
    assert "heavy ['matplotlib']" in done.stdout
    assert (tmp_path / "results" / "tiny" / "README.md").exists()
    assert (tmp_path / "results" / "tiny" / "tiny.svg").exists()


def test_only_report_trains_nothing_and_shows_what_is_there(tiny, tmp_path, capsys):
    pretend(cells("tiny")[1], tmp_path / "results", 61.0)
    main(["reproduce", "tiny", "--only-report"])
    assert tiny == []
    assert "1 of 4 cells" in (tmp_path / "results" / "tiny" / "README.md").read_text()
    out = capsys.readouterr().out
    assert "61.00" in out
    assert "0 of 4 cells are in results" in out  # one of its two seeds is


def test_after_an_interruption_the_same_command_goes_on(tiny, tmp_path, monkeypatch, capsys):
    unbroken = stack.run_together

    def interrupted(experiments, *arguments, **options):
        if tiny:
            raise KeyboardInterrupt
        return unbroken(experiments, *arguments, **options)

    monkeypatch.setattr(stack, "run_together", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "tiny", "--device", "cpu"])
    assert stop.value.code == 130
    assert "finished are in results: the same command goes on from there" in capsys.readouterr().err
    before = {path: path.read_bytes() for path in tmp_path.glob("results/tiny/*.json")}
    assert len(before) == 2
    monkeypatch.setattr(stack, "run_together", unbroken)
    main(["reproduce", "tiny", "--device", "cpu"])
    assert [stack[0][0] for stack in tiny] == ["standard", "coteaching"]
    assert {path: path.read_bytes() for path in before} == before
    assert len(list(tmp_path.glob("results/tiny/*.json"))) == 4


def test_ctrl_c_in_a_terminal(tmp_path):
    words = [sys.executable, "-c", ALONE, "tiny", "--epochs", "50", "--device", "cpu"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(list(tmp_path.glob("results/tiny/standard-*.json"))) < 2:  # the slower stack is next
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    assert len(measured.in_folder(tmp_path / "results")) == 2


def test_a_stack_of_one_cell_goes_on_with_the_same_command_too(tiny, monkeypatch, capsys):
    def interrupt(epoch):
        raise KeyboardInterrupt

    monkeypatch.setattr(terminal, "progress_note", interrupt)
    with pytest.raises(SystemExit, match="130"):
        main("reproduce tiny --cells standard-authors-epochs-2-pair --device cpu".split())
    out = capsys.readouterr().out
    assert "note: stopped; the same command goes on" in out
    assert "coteach run" not in out


# ---- epochs that are too few, or of which nothing is there ------------------------------------------------------


@pytest.fixture
def warm(tiny, monkeypatch):
    """With two cells of a warm-up of 20 epochs, and one of a warm-up that shrinks with the epochs."""
    more = [{"method": "coteaching", "warmup": 20, "epochs": 50}]
    more += [{"method": "jocor", "loss": "gce", "warmup_loss": "cross_entropy", "noise": "pair 0.45"}]
    monkeypatch.setattr(presets, "read", lambda: {"tiny": TINY | {"cells": [*TINY["cells"], *more]}})
    return tiny


@pytest.mark.parametrize("epochs, n_cells", [(1, 4), (3, 5), (20, 5), (21, 7)])
def test_the_list_leaves_out_what_so_few_epochs_cannot_hold(warm, epochs, n_cells, capsys):
    main(["reproduce", "--epochs", str(epochs)])
    assert f"tiny Figure 0: digits {n_cells} 0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [[], ["--cells", "warmup"]], ids=str)
def test_a_cell_that_so_few_epochs_cannot_hold_is_named(warm, words, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "tiny", "--epochs", "2", *words])
    assert capsys.readouterr().err == (
        "coteach: --epochs 2 is too few for the warm-up of tiny's cell "
        "coteaching-authors-warmup-20-epochs-50-pair-0.45: give --epochs 21 or more, or other --cells.\n"
    )
    with pytest.raises(ValueError, match="give --epochs 2 or more, or other --cells"):
        reproduce.reproduce("tiny", epochs=1, only="jocor", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_other_cells_are_measured_in_so_few_epochs(warm, tmp_path):
    main("reproduce tiny --epochs 1 --seeds 1 --cells standard --device cpu".split())
    assert warm == [[("standard", "pair", (1,)), ("standard", "symmetric", (1,))]]
    assert (tmp_path / "results" / "tiny" / "README-epochs-1.md").exists()


def test_a_report_of_nothing_says_of_which_epochs(warm, tmp_path, capsys):
    for epochs, told in (
        ([], "no cell of tiny is in results: leave --only-report out, and they are measured."),
        (["--epochs", "3"], "no cell of tiny with --epochs 3 is in results: leave --epochs out for"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["reproduce", "tiny", "--only-report", *epochs])
        assert told in capsys.readouterr().err
        pretend(cells("tiny")[0], tmp_path / "results", 61.0)


def test_a_report_is_of_what_another_preset_has_measured_as_well(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(presets, "read", lambda: {"tiny": TINY, "other": TINY})
    pretend(cells("other")[0], tmp_path / "results", 61.0)
    main(["reproduce", "tiny", "--only-report"])
    assert "61.00" in capsys.readouterr().out


def test_the_list_loads_nothing_heavy_and_counts_what_is_there(tiny, tmp_path):
    pretend(cells("tiny")[0], tmp_path / "results", 1.0, 2.0)
    pretend(cells("tiny")[1], tmp_path / "results", 1.0)  # half of its seeds
    words = [sys.executable, "-c", ALONE]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "heavy []" in done.stdout
    assert [line.split() for line in done.stdout.splitlines()][1] == "tiny Figure 0: digits 4 1 8".split()
    more = subprocess.run([*words, "--all"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.split() for line in more.stdout.splitlines()][1] == "tiny Figure 0: digits 6 0 18".split()
    assert not (tmp_path / "results" / "summary.json").exists()


def test_the_list_has_every_preset(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["reproduce"])
    first_words = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [word for word in first_words if word in preset_names()] == preset_names()


def test_a_wrong_name_is_told_with_the_nearest_before_torch_is_loaded(tmp_path):
    words = [sys.executable, "-c", ALONE, "tinny"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean 'tiny'" in done.stderr
    assert "heavy []" in done.stdout
    assert not list(tmp_path.iterdir())


# ---- the page -------------------------------------------------------------------------------------------------


def cell_named(preset, name):
    return next(cell for cell in cells(preset, then=True) if cell.name == name)


def page_of(name, out):
    return "\n".join(preset_page.page(name, None, in_order(name, None, out), [])).splitlines()


def test_the_page_has_our_numbers_the_known_ones_and_every_seed_where_one_is_far_off(tmp_path):
    pretend(cell_named("mnist", "coteaching_plus-authors-pair-0.45"), tmp_path, 80.0, 81.0, 10.0)
    pretend(cell_named("mnist", "coteaching_plus-authors-symmetric-0.5"), tmp_path, 95.0, 96.0, 97.0)
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0)
    page = page_of("mnist", tmp_path)
    assert "| Co-teaching+, authors | 57.00 ± 40.71 (3) | 96.00 ± 1.00 (3) |" in page
    assert "| Standard |  | 52.00 (1) |" in page
    assert [line for line in page if ": 80.00" in line] == [
        "| Co-teaching+, authors | pair 45 % | 1: 80.00, 2: 81.00, 3: 10.00 (guesses) |"
    ]
    assert any("| 96.00 ± 1.00 | 3 | 95.80 | +0.20 | yes (± 0.60) | jocor |" in line for line in page)
    assert any(line.startswith("- jocor: Wei et al.") for line in page)
    assert "- 3.5 minutes of Abacus, torch 2.99: 7 runs" in page


def test_seeds_are_listed_where_one_is_far_off_or_learnt_nothing(tmp_path):
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0, 54.9)
    assert not any("each seed" in line for line in page_of("mnist", tmp_path))
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 52.0, 54.9, 58.0)
    assert any("| 1: 52.00, 2: 54.90, 3: 58.00 |" in line for line in page_of("mnist", tmp_path))
    pretend(cell_named("mnist", "standard-authors-symmetric-0.5"), tmp_path, 14.9, 14.8)
    assert any("1: 14.90 (guesses), 2: 14.80 (guesses)" in line for line in page_of("mnist", tmp_path))


def test_a_figure_of_another_curve_has_a_table_of_it(tmp_path):
    cell = cells("divergence")[0]
    pretend(cell, tmp_path, 80.0, 80.0)
    page = page_of("divergence", tmp_path)
    assert "## Total variation, mean over the last ten epochs" in page
    assert f"| {cell.row} | 0.6000 ± 0.0000 (2) |" in page


def test_what_the_data_lack_is_said(tmp_path):
    pretend(cells("news")[0], tmp_path, 30.0, data={"note": "vectors of spaCy"})
    assert "Data: vectors of spaCy." in page_of("news", tmp_path)


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("then", [False, True])
def test_the_command_is_read_off_the_cells(name, then, tmp_path):
    pretend_all(name, tmp_path, then)
    records = in_order(name, None, tmp_path)
    first = {cell.name: cell.seeds for cell in cells(name)}
    more = then and first != {cell.name: cell.seeds for cell in cells(name, then=True)}
    assert preset_page.command(name, None, records) == f"coteach reproduce {name}" + (" --all" if more else "")


def test_outdated_cells_and_those_of_other_epochs_are_not_on_the_page(tmp_path):
    cell = cell_named("mnist", "standard-authors-symmetric-0.5")
    pretend(replace(cell, experiment=replace(cell.experiment, epochs=5)), tmp_path, 1.0)
    pretend(replace(cell, experiment=replace(cell.experiment, lr=0.1)), tmp_path, 1.0)
    assert in_order("mnist", None, tmp_path) == []
    assert len(in_order("mnist", 5, tmp_path)) == 1


@pytest.mark.parametrize("name", ["mnist", "ablation", "openset"])
def test_the_terminals_tables_fit_into_100_columns_and_show_every_cell(name, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_width", 100)
    pretend_all(name, tmp_path)
    records = in_order(name, None, tmp_path)
    with console.capture() as shown:
        for table in comparison_tables(compare.beside(records)):
            console.print(table)
    text = shown.get()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for record in records:
        assert f"{record['summary']['mean']:.2f}" in text


# ---- figures --------------------------------------------------------------------------------------------------


@pytest.fixture
def axes_of(monkeypatch, tmp_path):
    """Draws a preset, and gives the axes that are in use."""
    close = plt.close
    monkeypatch.setattr(plt, "close", lambda figure: None)

    def draw(records):
        close("all")
        preset_figures.preset_figures(records, tmp_path, "figure")
        return [ax for number in plt.get_fignums() for ax in plt.figure(number).axes if ax.axison]

    yield draw
    close("all")


def texts(path) -> set[str]:
    return {element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")}


@pytest.mark.parametrize("name", ["mnist", "openset", "ablation"])
def test_a_figure_is_small_and_the_same_bytes_each_time(name, tmp_path):
    pretend_all(name, tmp_path)
    records = in_order(name, None, tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        preset_figures.preset_figures(records, tmp_path / folder, name)
    figures = sorted(path.name for path in (tmp_path / "one").iterdir())
    if name == "ablation":
        several = {"epochs": ("cifar10", "cifar100", "mnist"), "keep": ("cifar10", "mnist")}
        several |= {"losses": ("cifar10", "cifar100", "mnist", "news"), "switches": several["keep"]}
        assert figures == [f"ablation-{block}-{data}.svg" for block, some in several.items() for data in some]
    else:
        assert figures == [f"{name}.svg"]
    for figure in figures:
        content = (tmp_path / "one" / figure).read_bytes()
        assert content == (tmp_path / "two" / figure).read_bytes()
        assert len(content) < 300_000
        assert len(texts(tmp_path / "one" / figure)) > 5
    assert plt.get_fignums() == []


def test_full_curves_of_200_epochs_stay_small(tmp_path):
    rng = np.random.default_rng(0)
    for cell in cells("news", then=True):
        noisy = {name: (0.5 + rng.normal(size=200) / 50).round(5).tolist() for name in measured.CURVES}
        pretend(cell, tmp_path, 50.0, 51.0, curves=noisy)
    (path,) = preset_figures.preset_figures(in_order("news", None, tmp_path), tmp_path, "news")
    assert path.stat().st_size < 400_000


def test_curves_are_those_of_the_cells(axes_of, tmp_path):
    cell = cell_named("mnist", "coteaching-authors-pair-0.45")
    pretend(cell, tmp_path, 50.0, 51.0)
    accuracy, precision = axes_of(in_order("mnist", None, tmp_path))
    for ax, name in ((accuracy, "test accuracy (%)"), (precision, "label precision (%)")):
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [50, np.nan, 70])
        assert ax.get_ylabel() == name
    assert accuracy.get_title() == "pair 45 %"


@pytest.mark.parametrize(
    "name, titles, n_lines",
    [
        ("mnist", ["pair 45 %", "symmetric 50 %", "symmetric 20 %"], None),
        ("divergence", [f"{n}, {c}" for n in ("mlp", "mlp3") for c in ("pair 45 %", "symmetric 50 %")], 4),
        ("openset", ["openset 40 %"], None),
        ("news", ["news_flat, authors, pair 45 %", "news, paper, pair 45 %"], 6),
        ("jocor", ["mnist, mlp, pair 45 %", "cifar10, cnn7, symmetric 20 %"], None),
    ],
)
def test_panels(name, titles, n_lines, axes_of, tmp_path):
    pretend_all(name, tmp_path)
    records = in_order(name, None, tmp_path)
    axes = axes_of(records)
    by_title = {ax.get_title(): ax for ax in axes if ax.get_title()}
    assert set(titles) <= by_title.keys()
    assert sum(len(ax.lines) for ax in by_title.values()) == len(records)
    if n_lines is not None:
        assert {len(ax.lines) for ax in by_title.values()} == {n_lines}
    per_panel = 1 if name == "divergence" else 2
    assert len(axes) == per_panel * len(by_title)


def test_a_line_has_the_same_look_in_every_panel(axes_of, tmp_path):
    pretend_all("cifar10", tmp_path)
    looks = {}
    for ax in axes_of(in_order("cifar10", None, tmp_path)):
        for line in ax.lines:
            looks.setdefault(line.get_label(), set()).add((line.get_color(), line.get_linestyle()))
    assert all(len(look) == 1 for look in looks.values())
    assert len(set.union(*looks.values())) == len(looks)


def test_when_a_loss_begins_is_shown_by_four_lines(axes_of, tmp_path):
    pretend_all("ablation", tmp_path)
    records = [r for r in in_order("ablation", None, tmp_path) if r["summary"]["dataset"] == "cifar10"]
    lines = [line for ax in axes_of(records) if ax.get_xlabel() == "epoch" for line in ax.lines]
    names = ("Co-teaching, then softmax twice", "Co-teaching, softmax twice", "Co-teaching", "Co-teaching+")
    assert sorted(line.get_label() for line in lines) == sorted(3 * names)
    drawn = preset_figures.in_time(records)["cifar10"]
    assert len(drawn) == len(lines)
    assert {preset_figures.begins(record["summary"]) for record in drawn} == set(names)
    told = [record["summary"][key] for record in drawn for key in ("tau", "keep_type")]
    assert not any(told)


def test_dots_show_mean_spread_and_every_seed_of_every_cell(tmp_path, axes_of):
    pretend_all("ablation", tmp_path)
    records = in_order("ablation", None, tmp_path)
    drawn = [dot.record["file"] for dots in preset_figures.blocks(records).values() for dot in dots]
    assert set(drawn) == {record["file"] for record in records}
    seen = set()
    for ax in axes_of(records):
        for line in ax.lines:
            seen.add(tuple(np.atleast_1d(line.get_xdata()).tolist()))
    for record in records:
        s = record["summary"]
        assert tuple(s["mean_per_seed"]) in seen
        assert (s["mean"],) in seen


def test_no_two_cells_share_a_line_of_dots(tmp_path):
    pretend_all("ablation", tmp_path)
    for name, dots in preset_figures.blocks(in_order("ablation", None, tmp_path)).items():
        places = [(d.heading, d.label, d.record["column"]) for d in dots]
        assert len(set(places)) == len(places), name


def test_losses_are_the_ones_that_are_trained_with():
    def loss(method, fidelity, name=None, warmup=19, **more):
        summary = {"method": method, "loss": name, "fidelity": fidelity, **more}
        return preset_figures.loss_of({"summary": summary, "config": {"warmup": warmup} if warmup else {}})

    assert loss("coteaching_plus", "authors", warmup=0) == "softmax_twice"
    assert loss("coteaching_plus", "authors") == "softmax_twice after cross_entropy"
    assert loss("coteaching_plus", "authors", warmup_loss="gce") == "softmax_twice after gce"
    assert loss("coteaching_plus", "paper") == "cross_entropy"
    assert loss("coteaching", "authors") == "cross_entropy"
    assert loss("coteaching_plus", "authors", "gce") == "gce"
    assert loss("coteaching", "authors", "softmax_twice", warmup_loss=None) == "softmax_twice"
    assert loss("coteaching", "authors", "gce", warmup_loss="cross_entropy") == "gce after cross_entropy"


def test_a_loss_after_another_stands_behind_it_alone():
    headings = ["gce", "softmax_twice after cross_entropy", "cross_entropy", "softmax_twice"]
    in_place = ["cross_entropy", "softmax_twice", "softmax_twice after cross_entropy", "gce"]
    assert sorted(headings, key=preset_figures.place_of) == in_place
