"""benchmarks/people.py: rows that are there are not measured again."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_after_an_interruption_the_same_command_goes_on(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import people

    out, measured = tmp_path / "people.json", []

    def pretended(problem, part, seed, options):
        if len(measured) == 2:
            measured.append("stopped")
            raise KeyboardInterrupt
        measured.append((problem, part, seed))
        return {"problem": problem, "part": part, "seed": seed}

    monkeypatch.setattr(people, "measured", pretended)
    monkeypatch.setattr(
        sys, "argv", ["people.py", "--parts", "told", "folds", "--seeds", "1", "2", "--out", str(out)]
    )
    with pytest.raises(KeyboardInterrupt):
        people.main()
    assert len(json.loads(out.read_text())) == 2
    people.main()
    rows = [(row["problem"], row["part"], row["seed"]) for row in json.loads(out.read_text())]
    assert rows == [("cifar10n-worst", part, seed) for seed in (1, 2) for part in ("told", "folds")]
    assert [row for row in measured if row != "stopped"] == rows
