"""`coteach audit` as a user meets it, on small real files."""

import csv
import importlib
import json
import re
import subprocess
import sys
import webbrowser
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification

from coteach import RobustClassifier
from coteach.audit.judge import HIGH_NOISE_RATE, judge, note_on_high_estimate, notes_on_doubted_classes
from coteach.audit.samples import FEWEST, LabelledSamples, Skipped, usable
from coteach.classifier.options import USUAL_EPOCHS
from coteach.cli import main
from coteach.cli.audit import AUDIT_METHODS, Audit
from coteach.files import as_csv
from coteach.labels.ledger import Suspects
from coteach.modern import MODERN_EPOCHS
from coteach.names import ONLY_IN_RUNS

NPZ = Path("data.npz")
FILES = [
    *("cleaned.csv", "encoding.json", "model.md", "model.safetensors", "quality.csv"),
    *("review.html", "summary.json", "suspects.csv"),
]


def clouds(n: int = 90, classes: int = 3, wrong: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Far apart, with the first few labels moved to the next class: (x, given, true)."""
    random = np.random.default_rng(0)
    true = np.arange(n) % classes
    x = random.normal(size=(n, 4)) + 8 * np.eye(classes, 4)[true]
    given = np.where(np.arange(n) < wrong, (true + 1) % classes, true)
    return x, given, true


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def npz(here):
    x, given, _ = clouds()
    np.savez(here / "data.npz", x=x, y=given)
    return here / "data.npz"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def refused(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["audit", *words])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("coteach: ")
    assert message.count("\n") == 1
    return message


@pytest.mark.slow
def test_the_wrong_labels_are_found_and_everything_is_written(npz, capsys):
    main(["audit", "--npz", "data.npz", "--noise-rate", "0.0667", "--epochs", "10", "--device", "cpu"])
    folder = npz.parent / "runs" / "audit"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    suspects = rows(folder / "suspects.csv")
    assert {row["id"] for row in suspects} == {str(i) for i in range(6)}
    _, given, true = clouds()
    for row in suspects:
        assert row["given"] == str(given[int(row["id"])])
        assert row["suggested"] == str(true[int(row["id"])])
        assert float(row["quality"]) < 0.5
        for n in (1, 2):
            assert float(row[f"p_suggested_{n}"]) > float(row[f"p_given_{n}"])
    assert [float(row["quality"]) for row in suspects] == sorted(float(row["quality"]) for row in suspects)
    assert rows(folder / "cleaned.csv") == [{"id": str(i), "label": str(given[i])} for i in range(6, 90)]
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["samples"], summary["suspects"], summary["left"]) == (90, 6, 84)
    assert [(c["class"], c["samples"], c["suspects"]) for c in summary["classes"]] == [
        (str(c), int((given == c).sum()), 2) for c in range(3)
    ]
    assert summary["pairs"][0] == {"given": "0", "suggested": "2", "suspects": 2}
    assert (summary["noise_rate"], summary["noise_interval"]) == (0.0667, None)
    assert {"coteach", "torch", "numpy", "python"} <= set(summary["versions"])
    assert summary["settings"]["classifier"]["epochs"] == 10
    assert summary["seconds"]["training"] > 0
    said = capsys.readouterr().out
    assert "about" not in said  # how long it takes, which is under half a minute
    assert "written to runs/audit" in said


@pytest.mark.slow
def test_the_probabilities_are_each_networks(npz):
    main("audit --npz data.npz --noise-rate 0.1 --epochs 2 --out out".split())
    classifier = RobustClassifier.load("out/model.safetensors")
    p_NMC = classifier.networks_proba(clouds()[0])
    for row in rows(Path("out/suspects.csv")):
        i, given, suggested = int(row["id"]), int(row["given"]), int(row["suggested"])
        for n in (0, 1):
            assert float(row[f"p_given_{n + 1}"]) == pytest.approx(p_NMC[n, i, given], abs=2e-6)
            assert float(row[f"p_suggested_{n + 1}"]) == pytest.approx(p_NMC[n, i, suggested], abs=2e-6)


def test_the_noise_rate_is_estimated_and_told_with_its_interval(npz, capsys):
    main("audit --npz data.npz --epochs 8 --out out".split())
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["noise_rate_estimated"]
    low, high = summary["noise_interval"]
    assert low <= summary["noise_rate"] <= high
    assert low <= 6 / 90 <= high
    assert len(rows(Path("out/suspects.csv"))) == round(summary["noise_rate"] * 90)
    assert all(0 <= c["noise_rate"] <= 1 for c in summary["classes"])
    assert "wrong labels, estimated" in capsys.readouterr().out


def test_the_same_seed_writes_the_same_files(npz):
    for out in ("one", "two", "other"):
        seed = "1" if out == "other" else "0"
        main(["audit", "--npz", "data.npz", "--epochs", "2", "--seed", seed, "--out", "out"])
        Path("out").rename(out)
    for name in FILES:
        one, two = (Path(out, name).read_text(errors="replace") for out in ("one", "two"))
        if name == "summary.json":
            one, two = (json.dumps(json.loads(text) | {"seconds": 0}) for text in (one, two))
        assert one == two, name
    assert Path("one/model.safetensors").read_bytes() != Path("other/model.safetensors").read_bytes()


def test_a_share_decides_how_many_are_listed(npz):
    for share, n in (("0", 0), ("0.5", 45), ("1", 90)):
        main(
            [
                "audit",
                "--npz",
                "data.npz",
                "--noise-rate",
                "0.1",
                "--epochs",
                "1",
                "--share",
                share,
                "--out",
                share,
            ]
        )
        assert len(rows(Path(share, "suspects.csv"))) == n
        assert len(rows(Path(share, "cleaned.csv"))) == 90 - n


def test_a_class_that_is_doubted_as_a_whole_is_told(npz, capsys):
    main("audit --npz data.npz --noise-rate 0.1 --epochs 1 --share 1 --out out".split())
    told = "most of whose samples are suspects: '0' (30 of 30), '1' (30 of 30), '2' (30 of 30)\n"
    assert told in capsys.readouterr().out


def test_doubted_classes_are_told_in_one_note():
    given, none = np.repeat(np.arange(8), 2), np.zeros(16)
    suspects = Suspects(index=none, given=given, suggested=none, quality=none)
    (told,) = notes_on_doubted_classes(np.repeat(np.arange(9), 2), suspects)
    assert told.endswith("'3' (2 of 2), '4' (2 of 2) and 3 more")
    assert notes_on_doubted_classes(np.repeat(np.arange(8), 9), suspects) == []


def lines_of(page: Path) -> str:
    (lines,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return lines


def test_the_lines_that_load_the_model_run(npz):
    main("audit --npz data.npz --noise-rate 0.07 --epochs 10 --out out".split())
    names: dict = {}
    exec(lines_of(Path("out/model.md")), names)
    assert (names["labels"] == clouds()[2]).mean() > 0.95
    assert names["probabilities"].shape == (90, 3)


OWN = """
from torch import nn
count = 0
def small(n_features, n_classes):
    return nn.Linear(n_features, n_classes)
"""


def test_a_module_of_ones_own_is_found_in_the_current_folder(npz, monkeypatch):
    (npz.parent / "mine_for_audit.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    importlib.invalidate_caches()
    main("audit --npz data.npz --network mine_for_audit:small --noise-rate 0.07 --epochs 5 --out out".split())
    names: dict = {}
    exec(lines_of(Path("out/model.md")), names)
    assert [type(network).__name__ for network in names["classifier"].networks_] == ["Linear", "Linear"]
    assert names["labels"].shape == (90,)
    sys.modules.pop("mine_for_audit")


def test_a_network_of_ours_is_chosen_by_its_name(npz):
    main("audit --npz data.npz --network mlp3 --method standard --noise-rate 0.07 --epochs 1 --out out".split())
    assert json.loads(Path("out/summary.json").read_text())["settings"]["classifier"]["module"] == "mlp3"
    assert "p_given_2" not in Path("out/suspects.csv").read_text()  # one network only
    exec(lines_of(Path("out/model.md")), {})


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--npz data.npz --images .",
        "--npz nowhere.npz",
        "--npz .",
        "--images data.npz",
        "--table data.npz --label y",
        "--npz data.npz --label y",
        "--npz data.npz --method coteechin",
        "--npz data.npz --method iterative",
        "--npz data.npz --loss l2",
        "--npz data.npz --noise-rate 1",
        "--npz data.npz --noise-rate -0.1",
        "--npz data.npz --share 1.5",
        "--npz data.npz --epochs 0",
        "--npz data.npz --size 1",
        "--npz data.npz --seed -1",
        "--npz data.npz --seed 4294967296",
        "--npz data.npz --device cuda:7",
        "--npz data.npz --network nonsense",
        "--npz data.npz --network nowhere_at_all:net",
        "--npz data.npz --network os:nothing",
        "--npz data.npz --network os:sep",
        "--npz data.npz --network cnn7",
    ],
)
def test_a_mistake_is_exit_code_2_and_leaves_nothing(words, npz, capsys):
    refused(words.split(), capsys)
    assert [path.name for path in npz.parent.iterdir()] == ["data.npz"]


@pytest.mark.parametrize(
    "words, said",
    [
        ("--noise-rate 10", "--noise-rate is 10: "),
        ("--share 1.5", "--share is 1.5: "),
        ("--momentum 1", "--momentum is 1: "),
        ("--epochs 0", "--epochs is 0: "),
        ("--size 1", "--size is 1: "),
        ("--seed -1", "--seed is -1: "),
        ("--network nonsense", "--network is nonsense: "),
    ],
)
def test_a_mistake_names_the_flag(words, said, npz, capsys):
    assert refused(["--npz", "data.npz", *words.split()], capsys).startswith(f"coteach: {said}")


def test_a_table_given_as_arrays_is_told(here, capsys):
    (here / "truth.csv").write_text("a,b\n1,2\n")
    assert "truth.csv is a CSV: give it with --table" in refused("--npz truth.csv".split(), capsys)


def test_columns_cannot_play_two_parts(here, capsys):
    (here / "t.csv").write_text("a,b\n1,2\n")
    assert "--label" in refused(["--table", "t.csv"], capsys)
    assert "named twice" in refused("--table t.csv --label a --text a".split(), capsys)


def test_a_folder_that_is_taken_or_cannot_be_written_is_refused_before_reading(npz, capsys, monkeypatch):
    def unread(*_: object) -> None:
        raise AssertionError("the data were read first")

    monkeypatch.setattr("coteach.cli.audit.read_samples", unread)
    Path("full").mkdir()
    Path("full/file").touch()
    assert "not empty" in refused("--npz data.npz --out full".split(), capsys)
    assert "is a file" in refused("--npz data.npz --out data.npz".split(), capsys)
    assert "cannot write" in refused("--npz data.npz --out full/file/x".split(), capsys)


def test_an_empty_folder_of_the_users_stays(npz, capsys):
    Path("mine").mkdir()
    refused("--npz data.npz --device cuda:7 --out mine".split(), capsys)
    assert Path("mine").is_dir()


def test_without_out_the_folders_are_numbered(npz):
    for _ in range(2):
        main("audit --npz data.npz --noise-rate 0.1 --epochs 1".split())
    assert sorted(path.name for path in Path("runs").iterdir()) == ["audit", "audit-2"]


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_says_that_nothing_was_written(npz, capsys, monkeypatch):
    monkeypatch.setattr("coteach.audit.judge.judge", stopped)
    with pytest.raises(SystemExit) as stop:
        main("audit --npz data.npz --epochs 1 --out out".split())
    assert stop.value.code == 130
    assert "stopped; nothing was written." in capsys.readouterr().err
    assert not Path("out").exists()


def test_ctrl_c_says_what_was_written(npz, capsys, monkeypatch):
    monkeypatch.setattr("coteach.audit.write.write_encoding", stopped)
    with pytest.raises(SystemExit) as stop:
        main("audit --npz data.npz --epochs 1 --noise-rate 0.1 --out out".split())
    assert stop.value.code == 130
    assert (
        "stopped; written to out: cleaned.csv, model.safetensors, quality.csv, suspects.csv."
        in capsys.readouterr().err
    )


def test_a_full_disk_is_one_sentence(npz, capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coteach.audit.write.write_encoding", full)
    assert "make room" in refused("--npz data.npz --epochs 1 --noise-rate 0.1 --out out".split(), capsys)


def test_help_and_mistakes_load_nothing_heavy(here):
    script = (
        "import sys\nfrom coteach.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as stop:\n    print('code', stop.code)\n"
        "print([name for name in ('torch', 'sklearn', 'scipy', 'PIL', 'pyarrow') if name in sys.modules])"
    )
    for words, code in ((["--help"], 0), (["--npz", "nowhere.npz"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", script, "audit", *words], cwd=here, capture_output=True, text=True, check=True
        )
        assert f"code {code}\n[]" in done.stdout, done.stdout + done.stderr


def test_the_help_tells_the_classifiers_defaults():
    classifier = RobustClassifier()
    hints = {f.name: str(f) for f in fields(Audit)}
    assert f"default={classifier.method!r}" in hints["method"]
    assert f"default='{MODERN_EPOCHS} if modern, else {USUAL_EPOCHS}'" in hints["epochs"]
    assert not set(AUDIT_METHODS) & set(ONLY_IN_RUNS)
    assert Audit().noise_rate == classifier.noise_rate


# ---- what can be judged ---------------------------------------------------------------------------------------


def plain_samples(y: list, ids: list[str] | None = None, skipped: int = 0) -> LabelledSamples:
    x = np.zeros((len(y), 2))
    lost = tuple(Skipped(f"file {i}", "damaged") for i in range(skipped))
    return LabelledSamples(x, np.array(y), ids or [f"n{i}" for i in range(len(y))], "arrays", NPZ, lost)


def test_a_class_of_one_sample_is_left_out_and_named():
    samples = usable(plain_samples([0] * 9 + [1] * 9 + [2]))
    assert len(samples) == 18
    assert list(samples.counts) == ["0", "1"]
    assert samples.skipped == (Skipped("n18", "the only sample of its class '2'"),)


def test_small_classes_stay_and_are_noted():
    samples = usable(plain_samples(["a"] * 9 + ["b"] * 4))
    assert len(samples) == 13
    assert "fewer than 5 samples" in samples.notes[0]
    assert "'b'" in samples.notes[0]


@pytest.mark.parametrize(
    "samples, said",
    [
        (plain_samples([0] * 20), "of one class, besides labels that occur once: give two classes or more"),
        (plain_samples([0] * 19 + [1]), "of one class, besides labels that occur once: give two classes or more"),
        (plain_samples([0, 1] * (FEWEST // 2 - 1)), "at least 10"),
        (plain_samples(list(range(20))), "that no other has: give labels that several share"),
        (
            plain_samples([0, 1] * 8, skipped=17),
            "17 of 33 samples cannot be used, the first being file 0 (damaged)",
        ),
        (plain_samples([0, 1] * 8, ids=["same"] * 16), "'same' occurs more than once"),
        (plain_samples(["train", "val"] * 8), "parts of a data set"),
    ],
)
def test_what_cannot_be_judged_is_refused(samples, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        usable(samples)


def test_look_alikes_and_formulas_are_noted_and_left_as_they_are():
    samples = usable(plain_samples(["Cat", "cat ", "=cmd", "-1", "+1", "1.0"] * 4))
    assert [note.split(" differ")[0] for note in samples.notes if "differ" in note] == [
        "labels '+1' and '1.0'",
        "labels 'Cat' and 'cat '",
    ]
    (formula,) = (note for note in samples.notes if "formula" in note)
    assert formula.startswith("1 id(s) or label(s)")  # numbers are none
    assert list(samples.counts) == ["+1", "-1", "1.0", "=cmd", "Cat", "cat "]


def test_codes_of_many_digits_are_no_look_alikes():
    samples = usable(plain_samples(["90071992547409930", "90071992547409931", "1_0", "10"] * 4))
    assert not [note for note in samples.notes if "differ" in note]


def test_csv_is_read_back_as_it_was():
    cells = [["a,b", 'say "x"', "two\nlines", "=1+1", "é", " ", "\ttab"]]
    text = as_csv(cells)
    assert list(csv.reader(text.splitlines(keepends=True))) == cells


def test_what_the_classifier_warns_of_is_among_the_notes(recwarn):
    x, given, _ = clouds()
    samples = LabelledSamples(x * 1e3, given, [str(i) for i in range(90)], "arrays", NPZ, notes=("first",))
    findings = judge(RobustClassifier(epochs=2, noise_rate=0.1, lr=1e30, random_state=0), samples)
    assert findings.notes[0] == "first"
    assert any("not finite" in note for note in findings.notes)
    assert not len(recwarn)


def test_a_high_estimate_is_doubted():
    classifier = RobustClassifier()
    classifier.noise_rate_ = 0.54
    assert "54 %" in note_on_high_estimate(classifier)[0]
    classifier.noise_rate_ = 0.2
    assert not note_on_high_estimate(classifier)
    told = RobustClassifier(noise_rate=0.54)
    told.noise_rate_ = 0.54
    assert not note_on_high_estimate(told)


def test_an_estimate_is_doubted_once_and_by_its_flag():
    x, y = make_classification(100, 12, n_informative=8, n_classes=4, class_sep=0.5, random_state=0)
    samples = LabelledSamples(x, y, [str(i) for i in range(100)], "arrays", NPZ)
    findings = judge(RobustClassifier(epochs=5, random_state=0), samples)
    about = [note for note in findings.notes if "noise" in note or "estimate" in note]
    assert findings.classifier.noise_rate_ > HIGH_NOISE_RATE
    assert len(about) == 1
    assert "give --noise-rate, or embeddings with --npz" in about[0]


def said_of(skipped: tuple[Skipped, ...], capsys) -> list[str]:
    from coteach.cli.audit import print_samples

    print_samples(
        LabelledSamples(np.zeros((2, 2)), np.array([0, 1]), ["a", "b"], "images", Path("photos"), skipped)
    )
    return capsys.readouterr().out.splitlines()[1:]


def test_a_terminal_gets_no_control_characters(capsys):
    odd = Skipped("a\x1b[31m[bold]\n.png", "not\x1b an image")
    assert said_of((odd,), capsys) == ["skipped: a\\x1b[31m[bold]\\n.png (not\\x1b an image)"]


def test_what_is_skipped_for_one_reason_is_one_line(capsys):
    files = tuple(Skipped(f"{i}.txt", "not an image") for i in range(12))
    lines = said_of(
        (Skipped("x.png", "damaged"), *files, *(Skipped(str(i), f"reason {i}") for i in range(9))), capsys
    )
    assert lines[:2] == [
        "skipped: x.png (damaged)",
        "skipped: 12 (not an image): 0.txt; 1.txt; 2.txt; 9 more, see summary.json",
    ]
    assert len(lines) == 11
    assert "1 other reason" in lines[-1]
    assert said_of(files[:2], capsys) == ["skipped: 2 (not an image): 0.txt; 1.txt"]


def test_names_with_quotes_and_backslashes_are_shown_as_they_are():
    names = ["it's", 'say "x"', "a\\b"]
    (note,) = usable(plain_samples([name for name in names for _ in range(4)])).notes
    assert note.endswith("about: 'a\\b', 'it's', 'say \"x\"'")


@pytest.mark.parametrize("seconds", [3600.0, None])
def test_the_bar_is_filled_when_the_training_ends(seconds, monkeypatch):
    from io import StringIO

    from rich.console import Console

    from coteach.cli import audit

    file = StringIO()
    monkeypatch.setattr(audit, "console", Console(file=file, width=100))  # no terminal: the last state is written
    with audit.expected_progress("training", seconds) as say:
        say("round 2 of at most 6")
    assert file.getvalue().split() == ["training", "━" * 40, "took", "1", "s"]


@pytest.mark.parametrize("seconds, words", [(0.2, "1 s"), (59, "59 s"), (240, "4 min"), (3 * 3600, "3.0 h")])
def test_durations_are_rounded(seconds, words):
    from coteach.cli.audit import duration_text

    assert duration_text(seconds) == words


# ---- the page in the browser -----------------------------------------------------------------------------------


def test_open_shows_the_page_that_was_written_and_later_shows_it_again(tmp_path, monkeypatch, capsys):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) < 3)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("d.npz", x=rng.normal(size=(60, 3)) + 4 * np.eye(3)[np.arange(60) % 3], y=np.arange(60) % 3)
    words = "audit --npz d.npz --noise-rate 0.1 --epochs 1 --device cpu --open"
    main(words.split())
    assert opened == [(tmp_path / "runs" / "audit" / "review.html").as_uri()]
    main("audit --open".split())
    assert opened[1:] == opened[:1]
    main("audit --open --out runs/audit".split())
    assert "no browser was found: open the file in one." in capsys.readouterr().out
    main([*words.split(), "--check", "10"])
    assert opened[-1] == (tmp_path / "runs" / "audit-2" / "check.html").as_uri()


@pytest.mark.parametrize(
    "words, said",
    [
        ("--open", "runs/audit holds no review.html: give data to audit, or the folder of an audit as --out"),
        ("--open --epochs 3", "no data are given"),
        ("--open --apply d.csv", "leave --open out"),
    ],
)
def test_open_needs_data_or_a_page(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("d.csv").touch()
    with pytest.raises(SystemExit) as left:
        main(["audit", *words.split()])
    assert left.value.code == 2
    assert said in capsys.readouterr().err
