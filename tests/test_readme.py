"""The README: its Python prints what it says, and its tables are those of the raw files."""

import json
import re
import tomllib
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

import coteach

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 90
SCORES = (
    "average_precision",
    "cleanlab_self_confidence",
    "cleanlab_normalized_margin",
    "cleanlab_confidence_weighted_entropy",
)
SETS = {
    "aggre": "photos, most of three people (CIFAR-10N aggre)",
    "rand1": "photos, one person each (rand1)",
    "worst": "photos, the worst of three (worst)",
    "youtube": "YouTube comments",
    "sms": "SMS",
    "semeval": "SemEval",
    "trec": "TREC questions",
}


def test_it_is_short():
    assert len(TEXT.splitlines()) <= MOST_LINES


# ---- its Python -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_readmes_python_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert len([line for line in lines.splitlines() if line]) == 8
    exec(lines, {})
    said = capsys.readouterr().out
    number = re.compile(r"\d+")
    assert number.sub("0", said) == number.sub("0", shown)
    for ours, theirs in zip(number.findall(said), number.findall(shown), strict=True):
        assert int(ours) == pytest.approx(int(theirs), rel=0.03, abs=2)  # another processor rounds otherwise


@pytest.mark.slow
def test_there_is_no_gain_in_accuracy_at_symmetric_noise_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Under symmetric noise of 30 %, the example above gains no accuracy" in TEXT
    digits = coteach.data.load("digits")
    x, y = (
        np.concatenate([np.asarray(part) for part in parts])
        for parts in ((digits.x_train, digits.x_test), (digits.y_train, digits.y_test))
    )
    given = coteach.noise.corrupt(y[:1200], "symmetric", 0.3).labels
    fits = [
        coteach.RobustClassifier(method, noise_rate=rate, random_state=0).fit(x[:1200], given)
        for method, rate in (("coteaching", 0.3), ("standard", 0))
    ]
    robust, plain = (fit.score(x[1200:], y[1200:]) for fit in fits)
    assert robust == pytest.approx(plain, abs=0.02)


# ---- its tables -------------------------------------------------------------------------------------------------


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins so, below its head."""
    table = TEXT[TEXT.index(heading) :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def accuracy(file: str) -> str:
    cells = json.loads((ROOT / "results/summary.json").read_text())
    (cell,) = [cell for cell in cells if cell["file"] == file]
    spread = "" if cell["std"] is None else f" ± {cell['std']:.2f}"
    return f"{cell['mean']:.2f}{spread}"


def test_what_was_measured_with_noise_made_by_a_program_is_in_the_raw_files():
    targets = tomllib.loads((ROOT / "src/coteach/paper/targets.toml").read_text(encoding="utf-8"))["row"]
    known = [(row["experiment"], row.get("noise"), row.get("mean", {}).get("coteaching_plus")) for row in targets]
    found = rows("| | plain network | published |")
    assert len(found) == 5
    for name, plain, published, authors, best in found:
        data, rate = re.fullmatch(r"(\S+), symmetric (\d+) %", name).groups()
        data, noise = data.lower().replace("-", ""), f"symmetric-0.{int(rate) // 10}.json"
        net = "-cnn7" if data == "cifar100" else ""
        loss = "softmax_twice" if data == "mnist" else "softmax_twice-after-cross_entropy"
        assert plain == accuracy(f"{data}/standard-authors{net}-{noise}")
        assert (data, f"symmetric 0.{int(rate) // 10}", float(published)) in known
        assert authors == accuracy(f"{data}/coteaching_plus-authors{net}-{noise}")
        assert best == accuracy(f"ablation/{data}-coteaching-{loss}-authors{net}-{noise}")


def test_what_was_found_beside_cleanlab_is_in_the_raw_files():
    texts, photos = (
        json.loads((ROOT / f"benchmarks/results/{name}.json").read_text()) for name in ("real", "real-photos")
    )
    raw = [*photos, *(row for row in texts if row["samples"] != 4000)]
    targets = tomllib.loads((ROOT / "src/coteach/paper/targets.toml").read_text(encoding="utf-8"))["row"]
    published = {
        row["dataset"].removeprefix("cifar10n-"): f"{row['mean']['coteaching_plus']:.1f}"
        for row in targets
        if row.get("source") == "best" and "coteaching_plus" in row["mean"]
    }
    wanted = []
    for key, name in SETS.items():
        runs = [row for row in raw if row["set"] == key]
        wrong, ours, *theirs = (mean(row[column] for row in runs) for column in ("wrong", *SCORES))
        accuracies = (
            100 * mean(row[column] for row in runs) for column in ("accuracy", "clean_learning_accuracy")
        )
        wanted.append([name, f"{100 * wrong:.1f} %", f"{ours:.3f}", f"{max(theirs):.3f}"])
        wanted[-1] += [*(f"{accuracy:.1f}" for accuracy in accuracies), published.get(key, "–")]
    assert rows("| | wrong | found |") == wanted
