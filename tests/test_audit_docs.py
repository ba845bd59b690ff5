"""Every command of docs/own-data.md, on small data under the names it uses."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coteach.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "own-data.md").read_text(encoding="utf-8")
(LINES,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


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
    tables = {
        "people.csv": [["name", "age", "group"], *([f"p{i}", 30 * (i % 2) + i % 5, labels[i]] for i in range(24))],
        "letters.csv": [["body", "topic"], *([f"dear {labels[i]} number {i % 5}", labels[i]] for i in range(24))],
    }
    for name, rows in tables.items():
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)


@pytest.mark.parametrize("command", [line for line in COMMANDS if "--apply" not in line])
def test_the_commands_work_as_they_stand(command, data):
    program, *words = command.split()
    assert program == "coteach"
    main(words)
    written = {path.name for path in Path("runs/audit").iterdir()}
    named = set(re.findall(r"`([a-z]+\.(?:csv|html|json|md|safetensors))`", PAGE.partition("## What is read")[0]))
    assert written <= named
    assert named - written <= {"encoding.safetensors", "decisions.csv", "corrected.csv"}
    assert json.loads(Path("runs/audit/summary.json").read_text())["samples"] == 24


def test_there_are_commands():
    assert len(COMMANDS) == 5


def test_decisions_are_applied_as_it_says(data):
    (command,) = (line for line in COMMANDS if "--apply" in line)
    main(["audit", "--npz", "embeddings.npz"])
    Path("decisions.csv").write_text("id,given,decision,label,audit\n", encoding="utf-8")
    main(command.split()[1:])
    assert Path("runs/audit/corrected.csv").read_text() == Path("runs/audit/cleaned.csv").read_text()
