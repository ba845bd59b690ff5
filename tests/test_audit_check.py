"""`--check` and `--calibrate`: a page with a random sample, and what the decisions about it say."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from coteach.audit.check import CHECK_COLUMNS
from coteach.cli import main
from test_review import facts_of, parts_of


def wrong_clouds() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """300 samples of three classes far apart, sixty with another label."""
    rng = np.random.default_rng(0)
    truth = np.arange(300) % 3
    x = rng.normal(size=(300, 4)) + 6 * np.eye(4)[truth]
    given = truth.copy()
    given[:60] = (truth[:60] + 1) % 3
    return x, given, truth


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    x, given, truth = wrong_clouds()
    np.savez(folder / "d.npz", x=x, y=given)
    out = folder / "out"
    main(
        f"audit --npz {folder / 'd.npz'} --check 50 --noise-rate 0.2 --epochs 10 --device cpu --out {out}".split()
    )
    return out, given, truth


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def decide(out: Path, truth: np.ndarray, path: Path, most: int = 50) -> Path:
    """As the page exports it, by somebody who knows the truth."""
    facts = facts_of(out / "check.html")
    lines = [("id", "given", "decision", "label", "audit")]
    for name, c in list(zip(facts["id"], facts["given"], strict=True))[:most]:
        given, true = facts["classes"][c], str(truth[int(name)])
        lines.append((name, given, "keep" if given == true else "relabel", true, facts["fingerprint"]))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    return path


def test_the_page_has_samples_of_all_qualities(audited):
    out, given, _ = audited
    facts, check = facts_of(out / "check.html"), rows(out / "check.csv")
    assert facts["flag"] == "calibrate"
    assert facts_of(out / "review.html")["flag"] == "apply"
    assert [row["id"] for row in check] == facts["id"]
    assert tuple(check[0]) == CHECK_COLUMNS
    assert len(check) == 50
    suspects = {row["id"] for row in rows(out / "suspects.csv")}
    assert 0 < len(suspects & {row["id"] for row in check}) < 50
    quality = {row["id"]: row for row in rows(out / "quality.csv")}
    assert len(quality) == 300
    assert all(quality[row["id"]]["given"] == row["given"] == str(given[int(row["id"])]) for row in check)


def test_decisions_tell_how_many_are_wrong(audited, tmp_path, capsys):
    out, given, truth = audited
    main(["audit", "--calibrate", str(decide(out, truth, tmp_path / "d.csv")), "--out", str(out)])
    said = capsys.readouterr().out
    found = json.loads((out / "calibration.json").read_text())
    low, high = found["interval"]
    assert low <= 0.2 <= high
    assert f"{100 * found['rate']:.1f} %, between {100 * low:.1f} and {100 * high:.1f} %" in said
    assert "from 50 decisions; each interval" in said
    assert 30 <= found["cut"] <= found["stop"] <= 150
    assert [part["samples"] for part in found["first"]] == sorted(part["samples"] for part in found["first"])
    suspects, cleaned = (rows(out / f"calibrated-{name}.csv") for name in ("suspects", "cleaned"))
    wrong_left = [row["label"] != str(truth[int(row["id"])]) for row in cleaned]
    assert np.mean(wrong_left) < 0.05
    checked = {row["id"] for row in rows(out / "check.csv")}
    assert not checked & {row["id"] for row in suspects}  # a person has decided about these
    assert checked <= {row["id"] for row in cleaned}
    assert len(suspects) + len(cleaned) == 300


def test_a_part_of_the_decisions_is_a_smaller_sample(audited, tmp_path, capsys):
    out, _, truth = audited
    main(["audit", "--calibrate", str(decide(out, truth, tmp_path / "d.csv", 40)), "--out", str(out)])
    assert "from 40 decisions, 10 left open" in capsys.readouterr().out


def test_the_end_of_the_list_is_told_where_all_or_no_labels_are_wrong(audited, tmp_path, capsys):
    out, given, _ = audited
    for truth, said in (
        (given, "there is nothing more to look at\nnowhere are labels more often wrong than right"),
        ((given + 1) % 3, "look at all 300: nowhere is less than one label in ten wrong\nthe first 300"),
    ):
        main(["audit", "--calibrate", str(decide(out, truth, tmp_path / "d.csv")), "--out", str(out)])
        assert said in capsys.readouterr().out


def test_those_not_sure_about_are_open(audited, tmp_path, capsys):
    out, _, truth = audited
    path = decide(out, truth, tmp_path / "d.csv")
    lines = rows(path)
    for row in lines[40:]:
        row.update(decision="unsure", label="", note="too dark")
    lines[0]["note"] = "sure"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [*lines[0]], restval="")
        table.writeheader()
        table.writerows(lines)
    main(["audit", "--calibrate", str(path), "--out", str(out)])
    assert "from 40 decisions, 10 left open" in capsys.readouterr().out


def test_the_page_knows_the_parts_and_shows_trusted_samples(audited):
    out, _, _ = audited
    facts, check, quality = facts_of(out / "check.html"), rows(out / "check.csv"), rows(out / "quality.csv")
    assert facts["part"] == [int(row["part"]) for row in check]
    assert {facts["part_samples"][int(row["part"])] == int(row["part_samples"]) for row in check} == {True}
    assert sum(facts["part_samples"]) == facts["samples"] == 300
    of_id = {row["id"]: float(row["quality"]) for row in quality}  # six digits, so that some are alike
    order = sorted(of_id.values())
    assert [order[rank - 1] for rank in facts["rank"]] == [of_id[name] for name in facts["id"]]
    examples = json.loads(parts_of(out / "check.html").inside["examples-data"])
    trusted = {row["id"] for row in quality if row["suspect"] == "0"} - set(facts["id"])
    assert set(examples["id"]) <= trusted
    assert {len(some) for some in examples["given"]} == {3}


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda text: text.replace(text.split(",")[-1].strip(), "0123456789abcdef"), "belongs to another audit"),
        (lambda text: "\n".join(text.splitlines()[:4]), "decide about more, and export again"),
        (lambda text: text + text.splitlines()[1] + "\n", "decides twice"),
        (lambda text: text.replace("keep", "maybe"), "give keep, relabel, drop"),
        (lambda text: "", "is empty"),
    ],
)
def test_decisions_that_do_not_fit_are_one_sentence_and_nothing_is_lost(change, said, audited, tmp_path, capsys):
    out, _, truth = audited
    path = decide(out, truth, tmp_path / "d.csv")
    path.write_text(change(path.read_text()))
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    with pytest.raises(SystemExit) as left:
        main(["audit", "--calibrate", str(path), "--out", str(out)])
    assert left.value.code == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


CHANGED = "the files there were changed since"


def fourth(cell: str):
    """A row with another fourth cell, which is a number."""
    return lambda row: ",".join([*row.split(",")[:3], cell, *row.split(",")[4:]])


@pytest.mark.parametrize(
    "name, change, said",
    [
        ("quality.csv", fourth("0.5"), CHANGED),
        ("quality.csv", fourth("nan"), CHANGED),
        ("quality.csv", fourth("x"), "is damaged (could not convert string to float"),
        ("check.csv", lambda row: row[:-1] + "99", CHANGED),
        ("check.csv", fourth("7" * 30), CHANGED),
    ],
)
def test_numbers_that_a_calibration_counts_with_are_those_of_the_audit(
    name, change, said, audited, tmp_path, capsys
):
    out = shutil.copytree(audited[0], tmp_path / "out")
    path = decide(out, audited[2], tmp_path / "d.csv")
    lines = (out / name).read_text().splitlines()
    (out / name).write_text("\n".join([lines[0], change(lines[1]), *lines[2:]]) + "\n")
    refused_and_as_it_was(out, path, said, capsys)


@pytest.mark.parametrize("name", ["calibration.json", "calibrated-suspects.csv", "calibrated-cleaned.csv"])
@pytest.mark.parametrize("what", ["link", "folder"])
def test_a_link_or_folder_in_the_place_of_one_file_leaves_all_as_they_were(name, what, audited, tmp_path, capsys):
    out = shutil.copytree(audited[0], tmp_path / "out", ignore=shutil.ignore_patterns("calibrat*"))
    path = decide(out, audited[2], tmp_path / "d.csv")
    (tmp_path / "outside").write_text("kept")
    (out / name).symlink_to("../outside") if what == "link" else (out / name).mkdir()
    refused_and_as_it_was(out, path, f"{name} is a {what}", capsys)
    assert (tmp_path / "outside").read_text() == "kept"


def refused_and_as_it_was(out: Path, decisions: Path, said: str, capsys) -> None:
    before = {p.name: p.read_bytes() if p.is_file() else "folder" for p in out.iterdir()}
    with pytest.raises(SystemExit) as left:
        main(["audit", "--calibrate", str(decisions), "--out", str(out)])
    assert left.value.code == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert said in message
    assert {p.name: p.read_bytes() if p.is_file() else "folder" for p in out.iterdir()} == before


@pytest.mark.slow
def test_a_spreadsheet_may_write_the_numbers_in_other_words(audited, tmp_path):
    out = shutil.copytree(audited[0], tmp_path / "out", ignore=shutil.ignore_patterns("calibrat*"))
    path = decide(out, audited[2], tmp_path / "d.csv")
    main(["audit", "--calibrate", str(path), "--out", str(out)])
    found = (out / "calibration.json").read_bytes()
    check = rows(out / "check.csv")
    with (out / "check.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, CHECK_COLUMNS)
        writer.writeheader()
        writer.writerows(row | {"part": f"{row['part']}.0"} for row in check)
    main(["audit", "--calibrate", str(path), "--out", str(out)])
    assert (out / "calibration.json").read_bytes() == found


def test_decisions_about_suspects_are_no_random_sample(audited, tmp_path, capsys):
    out, _, _ = audited
    facts = facts_of(out / "review.html")
    given = facts["classes"][facts["given"][0]]
    path = tmp_path / "d.csv"
    path.write_text(
        f"id,given,decision,label,audit\n{facts['id'][0]},{given},keep,{given},{facts['fingerprint']}\n"
    )
    with pytest.raises(SystemExit):
        main(["audit", "--calibrate", str(path), "--out", str(out)])
    assert "no random sample: export those of check.html" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        ("--calibrate gone.csv", "gone.csv does not exist"),
        ("--calibrate d.npz --epochs 3", "takes --out alone: leave --epochs out"),
        ("--npz d.npz --check 5", "--check is 5: give a whole number of at least 10"),
        ("--calibrate d.npz --out empty", "holds no check.csv"),
    ],
)
def test_mistakes_are_one_sentence(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("d.npz").write_bytes(b"")
    Path("empty").mkdir()
    with pytest.raises(SystemExit) as left:
        main(["audit", *words.split()])
    assert left.value.code == 2
    assert said in capsys.readouterr().err
