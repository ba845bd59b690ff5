"""The report of runs as a file: what is in it, what it cannot do, what is refused, and what it costs to write."""

import base64
import hashlib
import re
import shlex
import subprocess
import sys
import webbrowser
import xml.etree.ElementTree as ElementTree
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach import cli, figures
from coteach.cli import main
from coteach.methods import METHODS
from coteach.names import EVENTS, MEASURE_MEANINGS, MEASURES, METHOD_FACTS
from coteach.pages import page_file
from coteach.paper.presets import cells
from coteach.plan import Plan
from coteach.report import charts, labels, tables
from coteach.report.page import report_page
from coteach.report.read import read_run
from coteach.rules import all_of
from coteach.runs.experiment import Experiment
from page_cases import HOSTILE, contrast, schemes
from report_runs import changed_experiment, write_run
from test_review import Parts


def page_of(*folders: Path) -> str:
    return report_page([read_run(folder) for folder in folders])


def texts_of(page: str, tag: str) -> list[str]:
    found = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page, re.DOTALL)
    return [re.sub(r"<[^>]*>", "", text) for text in found]


# ---- nothing that users wrote becomes markup -------------------------------------------------------------------


@pytest.mark.slow
def test_hostile_names_are_text_and_nothing_else(tmp_path):
    def two_runs(place: Path, hostile: str) -> list[Path]:
        folders = [write_run(place / name, events={hostile: 1}) for name in (hostile.replace("/", "∕"), "other")]
        for folder, loss in zip(folders, (hostile, "gce"), strict=True):
            changed_experiment(folder, dataset=hostile, method=hostile, fidelity=hostile, loss=loss)
        return folders

    plain = Parts(page_of(*two_runs(tmp_path / "plain", "plain")))
    for hostile in ("".join(HOSTILE).strip(), *HOSTILE[:4]):
        parts = Parts(page_of(*two_runs(tmp_path / str(len(hostile)), hostile)))
        assert [tag for tag, _ in parts.tags] == [tag for tag, _ in plain.tags]
        assert [list(attributes) for _, attributes in parts.tags] == [list(a) for _, a in plain.tags]
        assert {name: parts.inside[name] for name in ("style", "script")} == {
            name: plain.inside[name] for name in ("style", "script")
        }


def test_names_in_charts_are_short_and_whole_in_the_legend(tmp_path):
    long = "long " * 50
    folders = [write_run(tmp_path / str(i)) for i in range(3)]
    for folder, name in zip(folders, ("two\nlines", HOSTILE[0], long), strict=True):
        changed_experiment(folder, method=name)
    page = page_of(*folders)
    (chart, *_) = re.findall(r'<svg class="drawn".*?</svg>', page, re.DOTALL)
    root = ElementTree.fromstring(chart)
    assert {element.tag for element in root.iter()} == {"svg", "path", "text", "g"}
    names = {element.text or "" for element in root.iterfind("g/g/text")}
    assert max(map(len, names)) == charts.LONGEST_NAME
    assert {"two lines", HOSTILE[0]} < names
    assert long.strip() in " ".join(texts_of(page, "li"))


def test_the_policy_lets_the_pages_own_script_and_style_run_and_nothing_else(tmp_path):
    parts = Parts(page_of(write_run(tmp_path / "run")))
    (policy,) = (a["content"] for tag, a in parts.tags if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert set(rules) == {"default-src", "img-src", "style-src", "script-src", "base-uri", "form-action"}
    assert (rules["default-src"], rules["img-src"]) == ("'none'", "data:")
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(parts.inside[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert "innerHTML" not in page_file("report", "report.js")


@pytest.mark.slow
def test_the_page_asks_nobody_and_its_ids_are_its_own(tmp_path):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", noise="symmetric")]
    page = page_of(*folders)
    assert page == page_of(*folders), "the same runs give the same bytes"
    tags = Parts(page).tags
    for tag, attributes in tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("data:", "#")), (tag, value)
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', page)
    assert set(used) <= set(ids)


# ---- what is in it ---------------------------------------------------------------------------------------------


def test_everything_is_there_in_words(tmp_path):
    write_run(tmp_path / "one", events={"no_disagreement": 2, "one_class": 1})
    write_run(tmp_path / "two", method="standard", noise="symmetric")
    page = page_of(tmp_path / "one", tmp_path / "two")
    assert texts_of(page, "h1") == ["digits, pair 40 % · digits, symmetric 40 %"]
    assert texts_of(page, "h2") == ["Overview", "Results", "Events", "One by one", "To repeat it"]
    captions = texts_of(page, "figcaption")
    for name, (text, _) in MEASURES.items():
        alone = name in ("disagreement", "total_variation", "keep_rate")  # which a single network has not
        assert captions.count(text) == (1 if alone else 2)
        meaning = MEASURE_MEANINGS[name].replace("'", "&#39;")
        assert page.count(f'meaning">{meaning}<') == captions.count(text)
    assert "69.00 ± 0.71" in page  # 50 + 5 x 3.5 + 1.5: the mean of six epochs and two seeds
    for name, count in (("no_disagreement", 4), ("one_class", 2)):
        assert f'<td>{name}</td><td class="number">{count}</td><td>seed 1, epoch 3</td>' in page
        assert EVENTS[name] in page
    assert "2.13.0" in page
    assert "a processor" in page
    assert page.count("<caption>") == page.count("<table") == 3 + 2 * 3
    assert "No ledger" not in page
    assert re.findall(r"<th(?![^>]*scope=)", page.replace("<thead", "")) == []


def test_an_unfinished_run_is_shown_as_far_as_it_got_and_marked(tmp_path):
    write_run(tmp_path / "half", reached=4)
    write_run(tmp_path / "begun", method="standard", reached=2)
    (tmp_path / "begun" / "metrics.jsonl").write_text("")
    page = page_of(tmp_path / "half", tmp_path / "begun")
    assert "2 experiments, 2 of them unfinished; 4 runs, one for each seed." in page
    assert "4 of 6" in page
    assert "64.00 ± 0.71 <b>unfinished</b>" in page
    assert "unfinished: no epoch yet" in page
    assert page.count("Unfinished: as far as it got.") == 2


def test_what_is_not_known_is_not_pretended(tmp_path):
    clean = page_of(write_run(tmp_path / "clean", noise="none", tau=0.2))
    assert "wrong labels" not in clean.replace("which are wrong is not known", "")
    assert "True flips" not in clean
    assert "Estimated flips" in clean
    without = page_of(write_run(tmp_path / "without", ledger=False))
    assert without.count("No ledger was kept") == 1
    assert "True flips" in without
    assert "Estimated flips" not in without


@pytest.mark.slow
def test_of_own_labels_nothing_is_told_that_nobody_knows(tmp_path):
    write_run(tmp_path / "own", dataset="own", noise="none", tau=0.2)
    write_run(tmp_path / "half", dataset="own", noise="none", tau=0.2, method="standard", reached=2)
    assert "label precision (%)" not in texts_of(page_of(tmp_path / "own", tmp_path / "half"), "figcaption")
    (table, *_) = re.findall(
        r"<table class=.sortable results.*?</table>", page_of(tmp_path / "half", tmp_path / "own"), re.DOTALL
    )
    cells = texts_of(table, "td")
    assert len(cells) == 2 * 7
    assert cells[3] == cells[10] == "–"
    alone = texts_of(page_of(tmp_path / "half"), "figcaption")
    assert [text for text in alone if not text.startswith("epoch")] == ["test accuracy (%)"], "no λ, either"


def test_matrices_hold_the_numbers_or_where_classes_are_many_a_picture(tmp_path):
    folder = write_run(tmp_path / "few")
    run = read_run(folder)
    assert run.noise is not None
    cells = labels.true_matrix(run).cells
    np.testing.assert_array_equal(
        [[int(text) for text, _ in row] for row in cells], np.round(100 * run.noise.matrix)
    )
    assert cells[0][:2] == [("60", 6), ("40", 4)]
    assert '<td class="s6">60</td><td class="s4">40</td>' in page_of(folder)
    many = page_of(write_run(tmp_path / "many", n_classes=30))
    assert many.count('src="data:image/png;base64,') == 3
    assert "30 classes" in many


@pytest.mark.slow
def test_known_numbers_stand_beside_a_run_of_the_papers_settings_only(tmp_path):
    cell = next(c for c in cells("mnist") if c.name == "coteaching-authors-symmetric-0.5")
    e = cell.experiment
    changes = {"dataset": e.dataset, "method": e.method, "fidelity": e.fidelity, "epochs": e.epochs}
    folder = write_run(tmp_path / "run", noise=str(e.noise), rate=float(e.rate or 0), **changes)
    lines = tables.known_lines([read_run(folder)])
    assert lines
    assert {line.cell["experiment"] for line in lines} <= {"mnist", "ablation", "jocor"}
    assert all(line.difference is not None and line.cell["mean"] == pytest.approx(69) for line in lines)
    page = page_of(folder)
    assert all(line.target is not None and f"{line.target.mean:.2f}" in page for line in lines)
    changed_experiment(folder, epochs=7)
    assert tables.known_lines([read_run(folder)]) == []
    assert 'id="known"' in page
    assert 'id="known"' not in page_of(folder)


experiments = st.builds(
    Experiment,
    method=st.sampled_from(sorted(METHODS)),
    loss=st.sampled_from([None, "gce"]),
    fidelity=st.sampled_from(["paper", "authors", "paper+softmax_twice"]),
    noise=st.sampled_from([None, "pair", "none"]),
    rate=st.none() | st.floats(0, 0.9),
    tau=st.none() | st.floats(0, 0.9),
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True).map(tuple),
    epochs=st.none() | st.integers(1, 300),
    lr=st.none() | st.floats(1e-6, 1),
    keep_per_class=st.booleans(),
    ledger=st.booleans(),
    keep_type=st.sampled_from([None, 1, 2]),
    device=st.sampled_from(["auto", "cpu", "a 'b' $c"]),
    matrix=st.sampled_from([None, Path("with a space.txt")]),
)


@pytest.mark.slow
@given(experiments)
def test_a_command_repeats_its_run_and_says_no_more_than_it_must(experiment):
    command = tables.command(replace_experiment(experiment))
    words = shlex.split(command)
    assert words[:2] == ["coteach", "run"]
    assert cli.parsed(words[1:]) == experiment
    told = sum(getattr(experiment, f.name) != getattr(Experiment(), f.name) for f in fields(Experiment))
    assert sum(word.startswith("--") for word in words) == told


def replace_experiment(experiment: Experiment):
    return type("Stub", (), {"experiment": experiment})()


def test_own_data_are_handed_in_again():
    stub = replace_experiment(Experiment(dataset="own", method="jocor", tau=0.2, seeds=(1, 2)))
    call = tables.command(stub)
    assert call == "coteach.run(coteach.Experiment(method='jocor', tau=0.2, seeds=(1, 2)), data)"


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        {"method": "agree"},
        {"loss": "taylor"},
        {"warmup_loss": "taylor"},
        {"network": "my net"},
        {"method": "a'\n#", "loss": "b\r"},
    ],
)
def test_names_that_a_user_registered_are_repeated_in_python(names, own):
    dataset = {"dataset": "own"} if own else {}
    experiment = Experiment(**dataset, noise="pair", rate=0.4, seeds=(1, 2), **names)
    note, call = tables.command(replace_experiment(experiment)).splitlines()
    assert note.startswith("# first import the file that registers the ")
    assert all(f"the {what.removeprefix('warmup_')} {name!r}" in note for what, name in names.items())
    called = eval(call, {"coteach": StubLibrary, "data": "data"})
    assert called == ((replace(experiment, dataset="digits"), "data") if own else (experiment,))


class StubLibrary:
    Experiment = Experiment

    @staticmethod
    def run(*arguments):
        return arguments


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_keep_rate_is_shown_of_the_methods_whose_rules_look_at_it(name):
    phases = METHODS[name].phases(Plan(epochs=20, warmup=5, ramp=5))
    assert (not METHOD_FACTS[name].has_keep_rate) == all(phase.rule.pick is all_of for phase in phases)


# ---- the command -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_of_one_run_lies_in_its_folder_and_of_several_here(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/a", "runs/b"):
        write_run(tmp_path / name)
    write_run(tmp_path / "runs" / "half", reached=2)
    main(["report", "runs/a"])
    assert capsys.readouterr().out == "written: runs/a/report.html\n"
    main(["report", "runs"])
    out = capsys.readouterr().out
    assert (
        out == "note: 1 unfinished run is left out, such as runs/half: name it to see it\nwritten: report.html\n"
    )
    main(["report", "runs/b", "runs/a", "--out", "elsewhere.html"])
    assert Path("elsewhere.html").exists()
    main(["report", "runs"])  # over its own


def test_a_file_that_is_not_ours_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    Path("mine.html").write_text("<p>my own")
    for place in ("mine.html", ".", "gone/report.html"):
        with pytest.raises(SystemExit) as stop:
            main(["report", "run", "--out", place])
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith(f"coteach: {place} ")
        assert error.count("\n") == 1
    assert Path("mine.html").read_text() == "<p>my own"


@pytest.mark.parametrize(
    "words, message",
    [
        ("report", "no run is named"),
        ("report nowhere", "there is no folder nowhere"),
        ("report --figures --open", "leave one of them out"),
        ("report --figures mnist --results empty", "no cell of mnist is in empty"),
        ("report --figures --results empty", "nothing is measured in empty"),
        ("report --figures nowhere", "there is no folder nowhere"),
        ("report nowhere --panels test_accuracy", "add --figures"),
        ("report --figures --panels test_accuracy", "the paper's figures have theirs"),
        (
            "report nowhere --figures --panels label_precison",
            "no panel 'label_precison' (did you mean 'label_precision'?): choose one of test_accuracy, "
            "label_precision, disagreement, total_variation, keep_rate.",
        ),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_open_opens_the_page(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) == 1)
    folder = write_run(tmp_path / "a run")
    main(["report", str(folder), "--open"])
    assert opened == [(folder / "report.html").resolve().as_uri()]
    assert "no browser" not in capsys.readouterr().out
    main(["report", str(folder), "--open"])
    assert "no browser was found" in capsys.readouterr().out


HEAVY = """
import sys
from coteach.cli import main
main(sys.argv[1:])
print("heavy", [name for name in ("torch", "sklearn", "scipy", "pooch") if name in sys.modules])
"""


@pytest.mark.slow
def test_a_report_is_written_without_torch(tmp_path):
    write_run(tmp_path / "run", n_classes=30)
    words = [sys.executable, "-c", HEAVY, "report", "run"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "written: run/report.html\nheavy []\n"


# ---- colours ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_shapes_stand_out_from_their_ground(scheme):
    colours = schemes("report", "report")[scheme]
    for ground in ("ground", "paper"):
        for name in ("ink", "muted", "accent"):
            assert contrast(colours[name], colours[ground]) >= 4.5
    for name in ("right", "wrong", "edge", "accent"):
        assert contrast(colours[name], colours["paper"]) >= 3
    for shade in re.findall(
        r"\.s\d+ \{ background: color-mix\(in srgb, var\(--accent\) (\d+)%", page_file("report", "report.css")
    ):
        assert contrast(mixed(colours["accent"], colours["paper"], int(shade) / 100), colours["ink"]) >= 4.5


def mixed(one: str, other: str, share: float) -> str:
    pairs = [(int(one[k : k + 2], 16), int(other[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def test_the_lines_of_all_methods_are_seen_on_a_dark_ground():
    style = page_file("report", "report.css")
    for colour in set(figures.COLOURS.values()) - {"#000000"}:  # which is the ink
        found = re.findall(rf'\[color="{colour.lower()}"\] {{ color: (#\w{{6}}); }}', style)
        assert contrast((found or [colour])[0], schemes("report", "report")["dark"]["paper"]) >= 3, colour


def test_a_shade_of_every_tenth_is_there():
    style = page_file("report", "report.css")
    assert {f"s{k}" for k in range(1, labels.SHADES + 1)} == set(re.findall(r"^\.(s\d+) ", style, re.MULTILINE))
