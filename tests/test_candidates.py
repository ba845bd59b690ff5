"""benchmarks/held_out.py: what is left is run, a line each, and nothing twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SETTINGS = ["method=standard,epochs=2", "method=dividemix,epochs=2,warmup=1"]


@pytest.fixture
def held_out(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import held_out

    return held_out


def run(*options: str) -> str:
    command = [sys.executable, BENCHMARKS / "held_out.py", "--device", "cpu", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_runs_are_lines_and_are_not_run_again(tmp_path):
    out = tmp_path / "runs.jsonl"
    (tmp_path / "settings.txt").write_text(f"# the first\n{SETTINGS[0]}  # plain\n\n{SETTINGS[1]}\n")
    command = ["--settings", f"@{tmp_path}/settings.txt", "--out", str(out), "--samples", "200"]
    assert "2 of 2 runs are left" in run(*command, "--minutes", "0")
    assert "0 of 2 runs are left" in run(*command)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["setting"] for row in rows] == SETTINGS
    assert all((row["samples"], row["held_out"], row["seed"]) == (200, 130, 1) for row in rows)
    before = out.read_text()
    out.write_text(before + before[:40])  # as if a run had been cut off while it was written
    assert "0 of 4 runs are left" in run(*command, "--seeds", "1", "2")
    rows = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    assert [(row["seed"], row["setting"]) for row in rows] == [(n, s) for n in (1, 2) for s in SETTINGS]


def test_a_run_begins_only_if_it_will_end_in_time(held_out):
    done = {("p", "slow", 1): {"seconds": 100}, ("p", "fast", 1): {"seconds": 1}}
    left = [("p", "slow", 2), ("p", "fast", 2), ("p", "unknown", 1)]
    assert list(held_out.in_time(left, done, 1)) == [("p", "fast", 2)]
    assert list(held_out.in_time(left, done, 2)) == left
    assert list(held_out.in_time(left, {}, 0.1)) == left


def test_the_best_on_all_problems_comes_first(held_out):
    def row(accuracy):
        return {"held_out_accuracy": accuracy}

    done = {("p", "a", 1): row(50.0), ("p", "a", 2): row(52.0), ("q", "a", 1): row(70.0)}
    done |= {("p", "b", 1): row(60.0), ("q", "b", 1): row(70.0), ("p", "c", 1): row(99.0)}
    lines = held_out.table(done, ["a", "b", "c", "d"], ["p", "q"]).splitlines()[2:]
    assert [line.split(" | ")[-1] for line in lines] == ["b |", "a |", "c |"]
    assert lines[1] == "| 60.50 | 51.00 ± 1.41 (2) | 70.00 (1) | a |"


@pytest.mark.parametrize(
    "name, datasets",
    [
        ("candidates.txt", ["cifar10n-worst", "cifar10"]),
        ("candidates-paper.txt", ["mnist", "cifar10", "cifar100"]),
    ],
)
def test_every_candidate_is_an_experiment(held_out, name, datasets):
    settings = list(held_out.listed([f"@{BENCHMARKS / name}"]))
    assert len(set(settings)) == len(settings) > 10
    for setting in settings:
        for dataset in datasets:
            held_out.Experiment(dataset, **held_out.parsed(setting)).check()
