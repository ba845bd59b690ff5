"""Figures of runs for a paper, and the tables beside them: what is in which panel, told, and refused."""

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from coteach import figures
from coteach.cli import main
from coteach.figures import Grid, draw_grid, numbered, over_seeds
from report_runs import changed_experiment, write_run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are written, kept open for a look at them."""
    close = plt.close
    monkeypatch.setattr(plt, "close", lambda figure: None)
    yield lambda: [plt.figure(number) for number in plt.get_fignums()]
    close("all")


def refused(words: str, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    return capsys.readouterr().err


def texts(path: str) -> set[str]:
    found = [element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")]
    return {text.replace("\N{NO-BREAK SPACE}", " ") for text in found}


# ---- figures ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figures_of_runs_and_of_the_paper_in_all_formats(capsys):
    write_run(Path("runs/a"))
    write_run(Path("runs/b"), dataset="mnist")
    main(["report", "runs", "--figures", "--out", "drawn"])
    curves = {f"curves-{name}.{suffix}" for name in ("digits", "mnist") for suffix in figures.FIGURE_FORMATS}
    assert {path.name for path in Path("drawn").iterdir()} == curves | {"table.csv", "table.md"}
    begin = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    for name in curves:
        assert Path("drawn", name).read_bytes().startswith(begin[name[-3:]])
    results = Path(__file__).parents[1] / "results"
    main(["report", "--figures", "divergence", "--results", str(results)])
    assert {path.name for path in Path("figures").iterdir()} == {f"divergence.{f}" for f in figures.FIGURE_FORMATS}
    assert "written: figures/divergence.pdf" in capsys.readouterr().out
    same = Path("figures/divergence.svg").read_bytes() == (results / "divergence" / "divergence.svg").read_bytes()
    assert same, "the figure that is kept with the results"


@pytest.mark.slow
def test_noises_are_side_by_side_and_measures_below_each_other(drawn):
    write_run(Path("runs/a"))
    write_run(Path("runs/b"), noise="symmetric")
    write_run(Path("runs/c"), noise="symmetric", method="standard", fidelity="authors")
    main(["report", "runs", "--figures"])
    (figure,) = drawn()
    first, second, third, fourth = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["pair 40 %", "symmetric 40 %", "", ""]
    assert [ax.get_ylabel() for ax in figure.axes] == ["test accuracy (%)", "", "label precision (%)", ""]
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "", "epoch", "epoch"]
    for ax in (first, third):
        assert [line.get_label() for line in ax.lines] == ["Co-teaching"]
    for ax in (second, fourth):
        assert [line.get_label() for line in ax.lines] == ["Standard, authors", "Co-teaching"]
    looks = [{line.get_label(): line.get_color() for line in ax.lines} for ax in (first, second)]
    assert looks[0]["Co-teaching"] == looks[1]["Co-teaching"]
    assert first.lines[0].get_ydata() == pytest.approx([56.5, 61.5, 66.5, 71.5, 76.5, 81.5])
    assert "digits. Mean of 2 seeds, band: ± 1 standard deviation; 6 epochs." in texts("figures/curves-digits.svg")


@pytest.mark.slow
def test_panels_are_those_asked_for_in_that_order(drawn):
    write_run(Path("run"), tau=0.3)
    main("report run --figures --panels keep_rate disagreement keep_rate".split())
    (figure,) = drawn()
    assert [ax.get_ylabel() for ax in figure.axes] == ["keep rate λ", "disagreement (%)"]
    told = "digits. Mean of 2 seeds, band: ± 1 standard deviation; 6 epochs. All: τ 0.3."
    assert told in texts("figures/curves-digits.svg")


@pytest.mark.parametrize("low, high, shown", [(50.4, 50.5, 2.0), (0.0, 50.0, 55.0)])
def test_a_flat_line_looks_flat(low, high, shown, drawn):
    line = {"standard": ([1, 2, 3], np.array([[low, high, low]]))}
    draw_grid(Grid([""], ["pair"], ["label_precision"], ["standard"], lambda *where: line), [Path("flat.svg")], "")
    ((ax,),) = (figure.axes for figure in drawn())
    bottom, top = ax.get_ylim()
    assert top - bottom == pytest.approx(shown)
    assert bottom + top == pytest.approx(low + high)


@pytest.mark.slow
def test_a_panel_without_a_line_leaves_its_words_to_the_others(drawn):
    write_run(Path("runs/a"), method="standard")
    write_run(Path("runs/b"), noise="symmetric")
    main("report runs --figures --panels disagreement test_accuracy total_variation".split())
    (figure,) = drawn()
    panels = [(ax.get_title(), ax.get_ylabel(), ax.get_xlabel()) for ax in figure.axes if ax.axison]
    assert panels == [
        ("symmetric 40 %", "disagreement (%)", ""),
        ("pair 40 %", "test accuracy (%)", "epoch"),
        ("", "", ""),
        ("", "total variation", "epoch"),
    ]


@pytest.mark.slow
def test_of_own_labels_there_is_no_precision_to_draw(drawn, capsys):
    write_run(Path("own"), dataset="own", noise="none", tau=0.2)
    main(["report", "own", "--figures"])
    (figure,) = drawn()
    assert [ax.get_ylabel() for ax in figure.axes] == ["test accuracy (%)"]
    assert figure.axes[0].get_title() == "labels as they are"
    error = refused("report own --figures --panels label_precision", capsys)
    assert error == "coteach: no run has label_precision: leave it out of --panels.\n"


@pytest.mark.slow
def test_hostile_names_are_text(capsys):
    for name in ("a", "b"):
        changed_experiment(write_run(Path("runs") / name), dataset="<b>$x$</b>\n|", method="</svg>|\n" + "m" * 60)
    main(["report", "runs", "--figures"])
    (path,) = Path("figures").glob("*.svg")
    assert path.name == "curves-b-x-b.svg"
    assert any(text.startswith("<b>$x$</b> |. Mean of 2 seeds") for text in texts(str(path)))
    table = Path("figures/table.md").read_text().splitlines()
    assert len(table) == 2 + 2 + 2
    assert all(line.replace("\\|", "").count("|") == 9 for line in table[:4])


def test_seeds_and_epochs_in_words():
    assert over_seeds([1, 1]) == "One seed"
    assert over_seeds([3, 1]) == "Mean of 1 to 3 seeds, band: ± 1 standard deviation; thin: one seed"
    assert over_seeds([3, 2]) == "Mean of 2 to 3 seeds, band: ± 1 standard deviation"
    assert [numbered(counts, "epoch") for counts in ([1], [30, 30], [30, 4])] == [
        "1 epoch",
        "30 epochs",
        "4 to 30 epochs",
    ]


# ---- tables ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_tables_hold_the_numbers_of_the_runs():
    write_run(Path("runs/a"), seeds=(1, 2, 3))
    write_run(Path("runs/b"), noise="symmetric", method="standard", seeds=(4,))
    write_run(Path("runs/c"), dataset="own", noise="none", tau=0.2)
    write_run(Path("half"), method="jocor", reached=4)
    main(["report", "runs", "half", "--figures"])
    with Path("figures/table.csv").open(newline="") as file:
        rows = {(row["data"], row["noise"], row["method"]): row for row in csv.DictReader(file)}
    assert set(rows) == {
        ("digits", "pair 40 %", "Co-teaching"),
        ("digits", "pair 40 %", "JoCoR, unfinished"),
        ("digits", "symmetric 40 %", "Standard"),
        ("own data", "labels as they are", "Co-teaching"),
    }
    for folder, row in zip("abc", (rows[key] for key in sorted(rows) if "JoCoR" not in key[2]), strict=True):
        s = json.loads(Path("runs", folder, "summary.json").read_text())
        assert (int(row["n"]), int(row["epochs"])) == (len(s["seeds"]), 6)
        for name in ("mean", "std", "max", "label_precision"):
            assert row[name] == "" if s[name] is None else float(row[name]) == pytest.approx(s[name], abs=1e-4)
    unfinished = rows["digits", "pair 40 %", "JoCoR, unfinished"]
    assert (unfinished["n"], unfinished["epochs"], float(unfinished["mean"])) == ("2", "4", pytest.approx(64))
    lines = Path("figures/table.md").read_text().splitlines()
    assert "| digits | Standard | symmetric 40 % | 1 | 6 | 71.50 | 71.50 | 67.00 |" in lines
    assert "| own data | Co-teaching | labels as they are | 2 | 6 | 69.00 ± 0.71 | 69.50 | – |" in lines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table.csv", "table.md"])
def test_tables_that_are_not_ours_are_left_alone(name, capsys):
    write_run(Path("run"))
    Path("mine").mkdir()
    Path("mine", name).write_text("my own\n")
    error = refused("report run --figures --out mine", capsys)
    assert error.startswith(f"coteach: mine/{name} is there, and no table of ours")
    assert [path.read_text() for path in Path("mine").iterdir()] == ["my own\n"]
    Path("mine", name).unlink()
    for _ in range(2):  # over its own
        main(["report", "run", "--figures", "--out", "mine"])
