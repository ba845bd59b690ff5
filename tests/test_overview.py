"""Figures of everything together say what the numbers say, and the figure of the claims what their table says."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import claims
import matplotlib.pyplot as plt
import pytest

from coteach.cli import main
from coteach.paper import overview
from coteach.paper.compare import measured_cells
from coteach.paper.heat import FULL, colour_of, readable_on, signed
from coteach.paper.presets import preset_names
from measured_cases import cell_named, pretend
from page_cases import contrast

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def records():
    return measured_cells(RESULTS)


def texts(path) -> list[str]:
    found = ElementTree.parse(path).iter()
    return [" ".join("".join(element.itertext()).split()) for element in found if element.tag.endswith("}text")]


def known(file: str) -> float:
    return next(
        cell["mean"] for cell in json.loads((RESULTS / "summary.json").read_text()) if cell["file"] == file
    )


# ---- every method on every data set -----------------------------------------------------------------------------


@pytest.mark.slow  # reads every cell
def test_every_row_takes_the_cell_that_it_names(records):
    cifar = overview.column_cells(records, overview.COLUMN_GROUPS[1], ("symmetric", 0.5))
    files = {
        "Standard (%)": "cifar10/standard-authors-symmetric-0.5.json",
        "F-correction, true matrix": "cifar10/f_correction_known-authors-held_out-0-symmetric-0.5.json",
        "JoCoR": "jocor/cifar10-jocor-authors-symmetric-0.5.json",
        "Co-teaching+, as published": "cifar10/coteaching_plus-paper-symmetric-0.5.json",
        "Co-teaching+, authors' code": "cifar10/coteaching_plus-authors-symmetric-0.5.json",
        "Co-teaching, recommended loss": (
            "ablation/cifar10-coteaching-softmax_twice-after-cross_entropy-authors-symmetric-0.5.json"
        ),
    }
    assert {row.label: cifar[row]["mean"] for row in cifar if row.label in files} == {
        label: known(file) for label, file in files.items()
    }


@pytest.mark.slow  # reads every cell
def test_no_setting_compares_methods_on_different_data(records):
    for group in overview.COLUMN_GROUPS:
        for noise in overview.COLUMN_NOISES:
            found = overview.column_cells(records, group, noise).values()
            assert len({s["network"] for s in found}) <= 1, (group.label, "the authors pool NEWS in their own way")
            assert len({s["dataset"] for s in found}) <= 1


@pytest.mark.slow  # reads every cell
def test_the_overview_has_every_number_and_its_message_is_that_of_the_numbers(records):
    found = texts(RESULTS / "overview.svg")
    columns = [
        some for group in overview.COLUMN_GROUPS for noise in overview.COLUMN_NOISES
        if (some := overview.column_cells(records, group, noise))
    ]  # fmt: skip
    assert len(columns) == 17
    gains, best = [], 0
    for some in columns:
        means = {row.label: s["mean"] for row, s in some.items()}
        standard, ours = means.pop("Standard (%)"), means.get("Co-teaching, recommended loss")
        for label, mean in means.items():
            assert signed(mean - standard) in found, label
        means.pop("F-correction, true matrix", None)
        if ours is not None:
            gains.append(ours - standard)
            best += ours == max(means.values())
    said = (
        f"{min(gains):+.0f} to {max(gains):+.0f} points over a plain network, the best in {best} of {len(gains)}"
    )
    assert said in " ".join(found)


def test_a_cell_is_readable_whatever_its_colour():
    for points in range(-60, 61):
        ground = colour_of(points)
        assert contrast(readable_on(ground), ground) >= 4.5, points
    assert colour_of(FULL) == colour_of(2 * FULL) != colour_of(FULL / 2)
    assert [signed(points) for points in (0.4, -0.4, 1.5, -11.6)] == ["0", "0", "+2", "−12"]


# ---- what we recommend ------------------------------------------------------------------------------------------


@pytest.mark.slow  # reads every cell
def test_the_first_figure_is_of_the_setting_with_the_smallest_lead(records):
    """It says so; a setting that is picked for its looks would not be ours to show."""
    leads = {}
    for noise in overview.COLUMN_NOISES[:3]:
        some = {
            row.label: s["mean"] for row, s in overview.column_cells(records, overview.SHOWN[0], noise).items()
        }
        leads[noise] = some["Co-teaching, recommended loss"] - some["Co-teaching+, authors' code"]
    assert min(leads, key=lambda noise: leads[noise]) == overview.SHOWN[1]


@pytest.mark.slow  # reads every cell
def test_the_first_figure_says_what_its_three_lines_show(records):
    found = " ".join(texts(RESULTS / "default.svg"))
    plain = "cifar10/standard-authors-symmetric-0.2.json"
    (record,) = (r for r in records if r["file"] == plain)
    curves = [run["curves"]["test_accuracy"] for run in record["runs"]]
    by_epoch = [100 * sum(points) / len(points) for points in zip(*curves, strict=True)]
    ours = known("ablation/cifar10-coteaching-softmax_twice-after-cross_entropy-authors-symmetric-0.2.json")
    fall = f"a plain network falls from {max(by_epoch):.0f} to {known(plain):.0f} % test accuracy"
    assert f"{fall}, the recommended training stays at {ours:.0f} %" in found
    for file in (plain, "cifar10/coteaching_plus-authors-symmetric-0.2.json"):
        assert f"{known(file):.1f} %" in found


@pytest.mark.slow  # reads every cell
def test_what_falls_is_not_said_to_stay(records):
    lines = overview.recommended(records)
    falling = json.loads(json.dumps(lines[0]))
    for run in falling["runs"]:
        run["curves"]["test_accuracy"][50] = 0.99
    assert "stays at 60 %" in overview.recommended_message(lines)
    assert "ends at 60 %" in overview.recommended_message([falling, *lines[1:]])


# ---- the command ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_report_without_a_name_draws_all_that_is_there(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "results"
    with pytest.raises(SystemExit):
        main(["reproduce", "--only-report"])
    assert "nothing is measured in results" in capsys.readouterr().err
    pretend(cell_named("tiny-imagenet", "standard-authors-listed_classes-symmetric-0.5"), out, 30.0)
    main(["reproduce", "--only-report"])
    assert {path.relative_to(out).as_posix() for path in out.rglob("*.*g")} == {
        "overview.svg", "tiny-imagenet/tiny-imagenet.svg",
    }  # fmt: skip
    first = (out / "overview.svg").read_bytes()
    main(["reproduce", "--only-report"])
    assert (out / "overview.svg").read_bytes() == first
    assert not (out / "default.svg").exists(), "two of its three lines are missing"
    assert plt.get_fignums() == []


# ---- claims -----------------------------------------------------------------------------------------------------


def test_every_claim_has_a_verdict_at_large_that_it_has_on_some_data_set():
    found = claims.claims()
    assert [claim.number for claim in found] == list(range(1, len(found) + 1))
    for claim in found:
        assert {claim.verdict, *claim.on.values()} <= claims.VERDICTS.keys(), claim.number
        assert claim.on.keys() <= set(claims.DATASETS)
        seen = set(claim.on.values())
        assert claim.verdict in seen or (claim.verdict == "partly" and len(seen) > 1), claim.number
        assert claim.verdict != "holds" or seen == {"holds"}
        assert set(claim.presets) <= set(preset_names())


def test_the_figure_of_the_claims_is_that_of_their_table(tmp_path):
    """And of today: docs/fill.py draws it."""
    shown = texts(ROOT / "docs" / "images" / "claims.svg")
    found = claims.claims()
    assert claims.message(found) in shown
    for verdict in claims.VERDICTS:
        assert shown.count(verdict) == sum(list(claim.on.values()).count(verdict) for claim in found)
    assert len(claims.verdicts(found)) == sum(len(claim.on) for claim in found), "no cell has two claims"
    for claim in found:
        assert any(text.startswith(f"{claim.claim} (") for text in shown)
    theirs = [claim.verdict for claim in found if not claim.ours]
    numbers = [int(number) for number in re.findall(r"\d+", claims.message(found))]
    assert numbers == [len(theirs), *(theirs.count(verdict) for verdict in claims.VERDICTS)]


def test_a_page_gets_the_columns_that_it_asks_for():
    header, rule, *rows = claims.claims_table(["number", "verdict", "presets"]).splitlines()
    assert header == "|  | verdict | `coteach reproduce` … |"
    assert len(rows) == len(claims.claims())
    assert rows[7] == '| 8 | <span class="verdict holds">● holds</span> | `mnist`, `cifar10`, `cifar100`, `news` |'
    assert rule == "| --- | --- | --- |"


def test_claims_are_readable():
    grounds = list(claims.GROUNDS.values())
    for ground in grounds:
        assert contrast(readable_on(ground), ground) >= 4.5


def test_the_idea_is_drawn_for_day_and_night_and_told_in_words():
    text = (ROOT / "docs" / "images" / "idea.svg").read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert {"title", "desc"} <= {element.tag.rpartition("}")[2] for element in root}
    day, night = text.split("@media (prefers-color-scheme:dark)")
    for style in (day, night):
        rules = dict(re.findall(r"\.(\w+)\{fill:(#\w{6})", style))
        for name in ("ink", "soft", "a", "right"):
            assert contrast(rules[name], rules["ground"]) >= (4.5 if name in ("ink", "soft") else 3), name
