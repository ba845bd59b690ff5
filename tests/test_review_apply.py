"""`coteach audit --apply decisions.csv`: decisions about suspects become labels, or one sentence."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach.audit.decisions import DECISION_COLUMNS, apply_decisions, audit_fingerprint, read_cells
from coteach.cli import main
from coteach.cli.audit import Audit
from coteach.files import as_csv
from review_audits import made_up, write_audit

CLASSES = ["a", "b,c", 'say "d"', "two\nlines", "e\rf"]


@pytest.fixture
def audit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings = made_up(CLASSES, 60, 20)
    write_audit(findings, Path("runs/audit"))
    return findings


def mark(folder: Path) -> str:
    suspects = read_cells(folder / "suspects.csv", ("id", "given", "suggested"))
    return audit_fingerprint(suspects, read_cells(folder / "cleaned.csv", ("id", "label")))


def decided(*rows: list[str], columns: tuple[str, ...] = DECISION_COLUMNS) -> Path:
    """decisions.csv about the audit in runs/audit."""
    path = Path("decisions.csv")
    path.write_text(as_csv([columns, *rows]), encoding="utf-8", newline="")
    return path


def labels(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row["label"] for row in csv.DictReader(file)}


def refused(words: str, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["audit", *words.split()])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("coteach: ")
    assert message.count("\n") == 1
    assert not Path("runs/audit/corrected.csv").exists()
    return message


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@pytest.mark.slow
@given(st.data(), st.lists(WORDS, min_size=2, max_size=5, unique=True))
def test_every_decision_is_in_the_labels_and_nothing_else_changes(tmp_path_factory, data, classes):
    folder = tmp_path_factory.mktemp("audit")
    classes = [c.rstrip("\0") or "0" for c in classes]  # NumPy drops these
    findings = made_up(list(dict.fromkeys([*classes, "x", "y"])), 24, 10)
    findings.samples.ids[:] = [f"{i}{data.draw(WORDS)}" for i in range(24)]
    write_audit(findings, folder)
    expected = labels(folder / "cleaned.csv")
    assert expected == {findings.samples.ids[i]: findings.samples.y[i] for i in range(24) if findings.trusted[i]}
    rows = []
    for s, i in enumerate(findings.suspects.index):
        name, was = findings.samples.ids[i], str(findings.suspects.given[s])
        word = data.draw(st.sampled_from(["", "keep", "relabel", "drop"]))
        others = [c for c in findings.samples.counts if c != was]
        label = {"keep": was, "relabel": data.draw(st.sampled_from(others))}.get(word, "")
        if word:
            rows.append([name, was, word, label, mark(folder)])
        if word in ("keep", "relabel"):
            expected[name] = label
    path = folder / "decisions.csv"
    path.write_text(as_csv([DECISION_COLUMNS, *data.draw(st.permutations(rows))]), encoding="utf-8", newline="")
    done = apply_decisions(path, folder)
    assert labels(folder / "corrected.csv") == expected
    assert done["rows"] == len(expected)
    assert done["undecided"] == 10 - len(rows)
    assert [done[word] for word in ("keep", "relabel", "drop")] == [
        sum(row[2] == word for row in rows) for word in ("keep", "relabel", "drop")
    ]


def suspect(audit, s: int) -> tuple[str, str]:
    return audit.samples.ids[audit.suspects.index[s]], str(audit.suspects.given[s])


def test_the_command_tells_what_it_did_and_can_be_given_again(audit, capsys):
    (one, given_1), (two, given_2) = suspect(audit, 0), suspect(audit, 1)
    now = mark(Path("runs/audit"))
    decided([one, given_1, "keep", given_1, now], [two, given_2, "drop", "", now])
    main("audit --apply decisions.csv".split())
    said = capsys.readouterr().out
    assert "1 kept, 0 relabelled, 1 dropped, 18 not decided and left out" in said
    assert "runs/audit/corrected.csv: 41 labels" in said
    assert said.splitlines()[-1].startswith("next: ")
    assert labels(Path("runs/audit/corrected.csv"))[one] == given_1
    decided([two, given_2, "relabel", "a", now])
    main("audit --apply decisions.csv --out runs/audit".split())
    again = labels(Path("runs/audit/corrected.csv"))
    assert again[two] == "a"
    assert one not in again


def test_a_spreadsheet_may_have_saved_it(audit):
    """With semicolons, a mark of the byte order, other line ends, columns in another order and one more."""
    name, was = suspect(audit, 0)
    order = ("audit", "label", "remark", "id", "decision", "given")
    row = dict(zip(DECISION_COLUMNS, [name, was, "relabel", "b,c", mark(Path("runs/audit"))], strict=True)) | {
        "remark": "?"
    }
    with Path("decisions.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows([order, [row[column] for column in order]])
    main("audit --apply decisions.csv".split())
    assert labels(Path("runs/audit/corrected.csv"))[name] == "b,c"


def test_no_decisions_leave_the_trusted_labels(audit):
    decided()
    main("audit --apply decisions.csv".split())
    assert Path("runs/audit/corrected.csv").read_bytes() == Path("runs/audit/cleaned.csv").read_bytes()


BAD = {
    "id": ("no such", "is no suspect"),
    "given": ("another", "is no suspect"),
    "decision": ("explode", "give keep, relabel, drop"),
    "label": ("no class", "give a class of the audit"),
    "audit": ("0123456789abcdef", "belongs to another audit"),
}


def test_what_nobody_was_sure_about_is_left_out(audit, capsys):
    """As a page of version 0.2 exports it; a mere note has no decision."""
    (one, given_1), (two, given_2), (three, given_3) = (suspect(audit, s) for s in range(3))
    now = mark(Path("runs/audit"))
    rows = [
        [one, given_1, "keep", given_1, now, ""],
        [two, given_2, "unsure", "", now, "blurred"],
        [three, given_3, "", "", now, "keep, or not?"],
    ]
    decided(*rows, columns=(*DECISION_COLUMNS, "note"))
    main("audit --apply decisions.csv".split())
    said = capsys.readouterr().out
    assert "1 kept, 0 relabelled, 0 dropped, 19 not decided and left out (1 not sure)" in said
    corrected = labels(Path("runs/audit/corrected.csv"))
    assert [name in corrected for name in (one, two, three)] == [True, False, False]


def test_an_unsure_label_is_refused(audit, capsys):
    name, was = suspect(audit, 0)
    decided([name, was, "unsure", was, mark(Path("runs/audit"))])
    assert "none otherwise" in refused("--apply decisions.csv", capsys)


@pytest.mark.parametrize("column", BAD)
def test_each_cell_is_checked(column, audit, capsys):
    name, was = suspect(audit, 2)
    other, was_other = suspect(audit, 3)
    now = mark(Path("runs/audit"))
    wrong, said = BAD[column]
    row = dict(zip(DECISION_COLUMNS, [name, was, "relabel", "a", now], strict=True)) | {column: wrong}
    decided([other, was_other, "drop", "", now], list(row.values()))
    assert said in refused("--apply decisions.csv", capsys)


@pytest.mark.parametrize("word, label", [("keep", "a"), ("keep", ""), ("drop", "a"), ("relabel", "")])
def test_decision_and_label_agree(word, label, audit, capsys):
    s = next(s for s in range(20) if audit.suspects.given[s] != "a")
    name, was = suspect(audit, s)
    decided([name, was, word, label, mark(Path("runs/audit"))])
    assert "give a class of the audit" in refused("--apply decisions.csv", capsys)


def test_a_label_is_not_relabelled_as_itself(audit, capsys):
    """A calibration would count it as wrong; the page writes "keep"."""
    name, was = suspect(audit, 0)
    decided([name, was, "relabel", was, mark(Path("runs/audit"))])
    assert "the given label to keep" in refused("--apply decisions.csv", capsys)


def test_a_trusted_sample_and_one_decided_twice_are_refused(audit, capsys):
    now = mark(Path("runs/audit"))
    trusted = next(i for i in range(60) if audit.trusted[i])
    label = str(audit.samples.y[trusted])
    decided([audit.samples.ids[trusted], label, "keep", label, now])
    assert "is no suspect" in refused("--apply decisions.csv", capsys)
    name, was = suspect(audit, 0)
    decided([name, was, "drop", "", now], [name, was, "keep", was, now])
    assert "decides twice" in refused("--apply decisions.csv", capsys)


def test_changed_files_of_the_audit_are_noticed(audit, capsys):
    name, was = suspect(audit, 0)
    decided([name, was, "drop", "", mark(Path("runs/audit"))])
    cleaned = Path("runs/audit/cleaned.csv")
    with cleaned.open("a", encoding="utf-8", newline="") as file:
        file.write("new,a\n")
    assert refused("--apply decisions.csv", capsys).endswith("give the folder of its review page with --out.\n")
    Path("runs/audit/check.csv").touch()
    told = refused("--apply decisions.csv", capsys)
    assert told.endswith("with --out, or decisions of check.html with --calibrate.\n")


def test_what_is_no_file_of_decisions_is_refused(audit, capsys):
    assert "nowhere.csv does not exist: is it still in your downloads?" in refused("--apply nowhere.csv", capsys)
    assert "not a file" in refused("--apply runs", capsys)
    os.mkfifo("pipe.csv")
    assert "not a file" in refused("--apply pipe.csv", capsys)
    assert "suspects.csv holds no decisions" in refused("--apply runs/audit/suspects.csv", capsys)
    Path("odd.csv").write_bytes(b"id,given,decision,label,audit\n\x81,a,keep,a,0\n")
    assert "UTF-8" in refused("--apply odd.csv", capsys)
    Path("short.csv").write_bytes(b"id,given,decision,label,audit\n1,a,keep\n")
    assert "3 cells instead of 5" in refused("--apply short.csv", capsys)
    Path("empty.csv").touch()
    assert "is empty" in refused("--apply empty.csv", capsys)
    decided()
    Path("elsewhere").mkdir()
    assert "holds no suspects.csv" in refused("--apply decisions.csv --out elsewhere", capsys)


def test_other_flags_make_no_sense_with_it(audit, capsys):
    decided()
    for words in ("--npz x.npz", "--epochs 3", "--keep-per-class", "--noise-rate 0.1", "--label a"):
        flag = words.split()[0]
        assert f"leave {flag} out" in refused(f"--apply decisions.csv {words}", capsys)
    Audit(apply=Path("decisions.csv"), out=Path("runs/audit")).check_flags()


def test_applying_loads_nothing_heavy(audit):
    decided()
    script = (
        "import sys\nfrom coteach.cli import main\nmain(['audit', '--apply', 'decisions.csv'])\n"
        "assert not [name for name in ('torch', 'sklearn', 'PIL') if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
