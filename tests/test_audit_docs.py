"""Every command of docs/own-data.md, on small data under the names it uses."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coteach.cli import main
from test_review import facts_of

PAGE = (Path(__file__).parents[1] / "docs" / "own-data.md").read_text(encoding="utf-8")
LINES, COPY, MERGE, ENCODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NO_AUDIT = re.compile("--apply|--calibrate")
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


SOMETIMES = {
    "encoding.safetensors",
    "corrected.csv",
    "tokenizer.json",
    *("calibration.json", "calibrated-suspects.csv", "calibrated-cleaned.csv"),
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    labels = np.array(["one", "two"])[np.arange(24) % 2]
    embeddings = random.normal(size=(24, 3)) + 9 * (labels == "two")[:, None]
    exec(LINES, {"embeddings": embeddings, "labels": labels, "names": np.array([f"n{i}" for i in range(24)])})
    for i, label in enumerate(labels):
        Path("photos", label).mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 7), 100 * (i % 2) + i).save(Path("photos", label, f"{i}.png"))
    by_path = np.argsort(labels, kind="stable")
    ids = [f"{labels[i]}/{i}.png" for i in by_path]
    np.savez("photos.npz", x=embeddings[by_path], ids=ids)
    np.save("letters.npy", embeddings)
    tables = {
        "people.csv": [["name", "age", "group"], *([f"p{i}", 30 * (i % 2) + i % 5, labels[i]] for i in range(24))],
        "letters.csv": [["body", "topic"], *([f"dear {labels[i]} number {i % 5}", labels[i]] for i in range(24))],
    }
    for name, rows in tables.items():
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)


@pytest.mark.slow
@pytest.mark.parametrize("command", [line for line in COMMANDS if not NO_AUDIT.search(line)])
def test_the_commands_work_as_they_stand(command, data):
    program, *words = command.split()
    assert program == "coteach"
    main(words)
    written = {path.name for path in Path("runs/audit").iterdir()}
    named = set(re.findall(r"`([a-z-]+\.(?:csv|html|json|md|safetensors))`", PAGE.partition("## What is read")[0]))
    assert written <= named
    assert named - written <= SOMETIMES | (set() if "--check" in command else {"check.csv", "check.html"})
    assert json.loads(Path("runs/audit/summary.json").read_text())["samples"] == 24


def test_there_are_commands():
    assert len(COMMANDS) == 9


def test_decisions_are_applied_as_it_says(data):
    (command,) = (line for line in COMMANDS if "--apply" in line)
    main(["audit", "--npz", "embeddings.npz"])
    Path(command.split()[3]).write_text("id,given,decision,label,audit\n", encoding="utf-8")
    main(command.split()[1:])
    assert Path("runs/audit/corrected.csv").read_text() == Path("runs/audit/cleaned.csv").read_text()


def test_a_check_is_calibrated_as_it_says(data, capsys):
    (command,) = (line for line in COMMANDS if "--calibrate" in line)
    main("audit --npz embeddings.npz --check 20 --noise-rate 0.1 --epochs 1".split())
    facts = facts_of(Path("runs/audit/check.html"))
    rows = [
        (name, facts["classes"][c], "keep", facts["classes"][c], facts["fingerprint"])
        for name, c in zip(facts["id"], facts["given"], strict=True)
    ]
    with Path(command.split()[3]).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "given", "decision", "label", "audit"), *rows])
    main(command.split()[1:])
    assert "0.0 %, between 0.0" in capsys.readouterr().out
    written = {path.name for path in Path("runs/audit").iterdir()}
    assert {"calibration.json", "calibrated-suspects.csv", "calibrated-cleaned.csv"} <= written


def test_texts_are_encoded_as_it_says():
    names: dict = {}
    exec(ENCODE, names)
    assert names["x"].shape == (2, 256)


def corrected(lines: list[str]) -> None:
    Path("runs/audit").mkdir(parents=True)
    Path("runs/audit/corrected.csv").write_text("id,label\n" + "\n".join(lines) + "\n", encoding="utf-8")


def test_images_are_copied_into_folders_by_their_corrected_labels(data):
    Image.new("L", (5, 5), 7).save("photos/two/0.png")  # of the name of another in photos/one
    corrected(["two/1.png,two", "one/0.png,two", "two/0.png,two", "two/3.png,one"])
    exec(COPY, {})
    copied = sorted(path.as_posix() for path in Path("photos-corrected").rglob("*.png"))
    assert copied == [
        f"photos-corrected/{path}" for path in ("one/two/3.png", "two/one/0.png", "two/two/0.png", "two/two/1.png")
    ]
    assert Path(copied[1]).read_bytes() == Path("photos/one/0.png").read_bytes()
    assert Path("photos/one/0.png").exists()


@pytest.mark.parametrize("by", ["id", "number"])
def test_corrected_labels_are_put_into_the_table(by, data):
    corrected(["p1,two", "p4,two", "p2,one"] if by == "id" else ["1,two", "4,two", "2,one"])
    ((line, instead),) = re.findall(r"( +name = row.*?)  # without --id: (.*)", MERGE)
    exec(MERGE if by == "id" else MERGE.replace(line, f"        {instead}"), {})
    with Path("people-corrected.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["age"], row["group"]) for row in rows] == [
        ("p1", "31", "two"),
        ("p2", "2", "one"),
        ("p4", "4", "two"),
    ]


@pytest.mark.parametrize("more", ["", " --id name"])
def test_the_numbers_of_the_rows_are_those_of_the_audit(more, data):
    """Also with a blank line, and a row that cannot be used."""
    lines = Path("people.csv").read_text(encoding="utf-8").splitlines()
    Path("people.csv").write_text("\n".join([*lines[:5], "", "odd", *lines[5:]]) + "\n", encoding="utf-8")
    main(f"audit --table people.csv --label group --epochs 1 --noise-rate 0.1 --share 0{more}".split())
    Path("runs/audit/cleaned.csv").rename("runs/audit/corrected.csv")
    ((line, instead),) = re.findall(r"( +name = row.*?)  # without --id: (.*)", MERGE)
    exec(MERGE if more else MERGE.replace(line, f"        {instead}"), {})
    assert Path("people-corrected.csv").read_text(encoding="utf-8").splitlines() == lines
