"""`coteach reproduce`: what is measured, what is written, what is said, and going on after Ctrl-C."""

import json
import signal
import subprocess
import sys
import time

import pytest

from coteach.cli import main
from coteach.cli import reproduce as command
from coteach.paper import measured, presets, reproduce
from coteach.paper.presets import cells, preset_names
from coteach.runs.run import run_together
from measured_cases import pretend, pretend_all

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
presets.preset_tables = lambda: {{"tiny": {TINY!r}}}
from coteach.cli import main
try:
    main(["reproduce", *sys.argv[1:]])
finally:
    print("heavy", [name for name in ("torch", "sklearn", "matplotlib", "scipy", "pooch") if name in sys.modules])
"""


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A preset of 4 cells in 2 stacks, in a folder of its own; gives the stacks that are run."""
    monkeypatch.setattr(presets, "preset_tables", lambda: {"tiny": TINY})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    stacks = []

    def spy(experiments, *arguments, **options):
        stacks.append([(e.method, e.noise, e.seeds) for e in experiments])
        return run_together(experiments, *arguments, **options)

    monkeypatch.setattr(reproduce, "run_together", spy)
    return stacks


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("only_report", [[], ["--only-report"]])
def test_without_anything_missing_neither_data_nor_torch_are_needed(tiny, tmp_path, only_report):
    pretend_all("tiny", tmp_path / "results", then=False)
    words = [sys.executable, "-c", ALONE, "tiny", "--data-dir", "nowhere", *only_report]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "4 of 4 cells are in results" in done.stdout
    assert "heavy ['matplotlib']" in done.stdout
    assert (tmp_path / "results" / "tiny" / "README.md").exists()
    assert (tmp_path / "results" / "tiny" / "tiny.svg").exists()


@pytest.mark.slow
def test_only_report_trains_nothing_and_shows_what_is_there(tiny, tmp_path, capsys):
    pretend(cells("tiny")[1], tmp_path / "results", 61.0)
    main(["reproduce", "tiny", "--only-report"])
    assert tiny == []
    assert "1 of 4 cells" in (tmp_path / "results" / "tiny" / "README.md").read_text()
    out = capsys.readouterr().out
    assert "61.00" in out
    assert "0 of 4 cells are in results" in out  # one of its two seeds is


@pytest.mark.slow
def test_after_an_interruption_the_same_command_goes_on(tiny, tmp_path, monkeypatch, capsys):
    unbroken = reproduce.run_together

    def interrupted(experiments, *arguments, **options):
        if tiny:
            raise KeyboardInterrupt
        return unbroken(experiments, *arguments, **options)

    monkeypatch.setattr(reproduce, "run_together", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "tiny", "--device", "cpu"])
    assert stop.value.code == 130
    assert "finished are in results: the same command goes on from there" in capsys.readouterr().err
    before = {path: path.read_bytes() for path in tmp_path.glob("results/tiny/*.json")}
    assert len(before) == 2
    monkeypatch.setattr(reproduce, "run_together", unbroken)
    main(["reproduce", "tiny", "--device", "cpu"])
    assert [stack[0][0] for stack in tiny] == ["standard", "coteaching"]
    assert {path: path.read_bytes() for path in before} == before
    assert len(list(tmp_path.glob("results/tiny/*.json"))) == 4


@pytest.mark.slow
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

    monkeypatch.setattr(command, "progress_note", interrupt)
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
    monkeypatch.setattr(presets, "preset_tables", lambda: {"tiny": TINY | {"cells": [*TINY["cells"], *more]}})
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


@pytest.mark.slow
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
    monkeypatch.setattr(presets, "preset_tables", lambda: {"tiny": TINY, "other": TINY})
    pretend(cells("other")[0], tmp_path / "results", 61.0)
    main(["reproduce", "tiny", "--only-report"])
    assert "61.00" in capsys.readouterr().out


@pytest.mark.slow
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


@pytest.mark.slow
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
