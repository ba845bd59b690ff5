"""Trackers: what they hear, that they can do no harm, and TensorBoard's files read back."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from coteach.cli import main
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.folder import read_config, read_rows
from coteach.runs.run import run, run_together
from coteach.runs.tensorboard import TensorBoard, scalars
from run_cases import experiment, silent

DOCS = Path(__file__).parents[1] / "docs" / "extending.md"


class Records:
    """A tracker that notes what it hears; and fails, if asked to, when it hears that."""

    def __init__(self, fails_at=None):
        self.told, self.fails_at = [], fails_at

    def begin(self, folder, config):
        self.note("begin", (folder, config))

    def epoch(self, rows):
        self.note("epoch", rows)

    def end(self, summary):
        self.note("end", summary)

    def note(self, kind, content):
        self.told.append((kind, content))
        if kind == self.fails_at:
            raise ConnectionError("the server\nis gone")

    @property
    def kinds(self):
        return [kind for kind, _ in self.told]


class Stop(Exception):
    pass


def stop_after(n):
    def stop(epoch):
        if epoch.number == n:
            raise Stop

    return stop


@pytest.mark.slow
def test_a_tracker_is_told_what_the_folder_gets(tmp_path):
    records = Records()
    result = run(experiment(tmp_path), trackers=[records], say=silent)
    assert records.kinds == ["begin", *["epoch"] * 3, "end"]
    assert records.told[0][1] == (result.folder, read_config(result.folder))
    assert [row for kind, rows in records.told if kind == "epoch" for row in rows] == read_rows(
        result.folder / "metrics.jsonl"
    )
    assert records.told[-1][1] == result.summary


def test_only_the_epochs_of_the_training_itself_are_told(tmp_path):
    records = Records()
    result = run(experiment(tmp_path, method="f_correction"), trackers=[records], say=silent)
    assert (result.folder / "estimate.jsonl").exists()
    assert records.kinds == ["begin", *["epoch"] * 3, "end"]


@pytest.mark.parametrize("fails_at", ["begin", "epoch", "end"])
def test_a_tracker_that_fails_is_told_of_once_and_the_run_goes_on(tmp_path, fails_at):
    failing, records, said = Records(fails_at), Records(), []
    whole = run(experiment(tmp_path, out=tmp_path / "whole"), say=silent)
    result = run(experiment(tmp_path), trackers=[failing, records], say=said.append)
    assert failing.kinds[-1] == fails_at
    assert failing.kinds.count(fails_at) == 1
    assert [line for line in said if "tracker" in line] == [
        "the tracker Records failed (ConnectionError: the server is gone): the run goes on without it"
    ]
    assert records.kinds == ["begin", *["epoch"] * 3, "end"]
    assert (result.folder / "metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()


def test_a_run_that_is_stopped_ends_without_a_summary_and_begins_again(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)
    records = Records()
    with pytest.raises(Stop):
        run(experiment(tmp_path), trackers=[records], say=silent, on_epoch=stop_after(2))
    assert records.told[-1] == ("end", None)
    run(Experiment(resume=tmp_path / "run"), trackers=[records], say=silent)
    assert records.kinds == ["begin", "epoch", "epoch", "end", "begin", "epoch", "end"]


def test_a_stack_of_several_experiments_has_no_trackers(tmp_path):
    with pytest.raises(ValueError, match="one experiment"):
        run_together([experiment(tmp_path), experiment(tmp_path, out=tmp_path / "b")], trackers=[Records()])
    assert not list(tmp_path.iterdir())


# ---- TensorBoard ----------------------------------------------------------------------------------------------


def read_back(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    tags: Any = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def expected(folder: Path, seed: int) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list] = {}
    for row in read_rows(folder / "metrics.jsonl"):
        for name, value in scalars(row).items() if row["seed"] == seed else ():
            found.setdefault(name, []).append((row["epoch"], pytest.approx(value, rel=1e-6)))  # float32 there
    return found


def test_tensorboards_files_have_every_number_of_every_seed(tmp_path):
    result = run(experiment(tmp_path), trackers=[TensorBoard()], say=silent)
    for seed in (1, 2):
        found = read_back(result.folder / "tensorboard" / f"seed-{seed}")
        assert found == expected(result.folder, seed)
        assert {"test_accuracy/1", "test_accuracy/2", "ensemble_accuracy", "train_loss", "label_precision"} <= set(
            found
        )
        assert [step for step, _ in found["train_loss"]] == [1, 2, 3]


def test_events_are_counted_and_what_is_null_is_left_out():
    row = {"seed": 1, "epoch": 4, "test_accuracy": [0.5, 0.6], "label_precision": None, "events": {"empty": 2}}
    assert scalars(row) == {"test_accuracy/1": 0.5, "test_accuracy/2": 0.6, "events/empty": 2}


def test_a_resumed_run_writes_over_what_was_cut_off(tmp_path, monkeypatch):
    """The third epoch was written for TensorBoard, but no checkpoint had it; it comes again, and counts once."""
    monkeypatch.setattr(checkpoint, "COST", 1e9)
    written = checkpoint.Checkpoints.write
    calls = []

    def write(self, *arguments, **named):
        calls.append(1)
        if len(calls) <= 2:
            written(self, *arguments, **named)

    e = experiment(tmp_path, epochs=5)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.Checkpoints, "write", write)
        with pytest.raises(Stop):
            run(e, trackers=[TensorBoard()], say=silent, on_epoch=stop_after(3))
    result = run(Experiment(resume=tmp_path / "run"), trackers=[TensorBoard()], say=silent)
    found = read_back(result.folder / "tensorboard" / "seed-1")
    assert found == expected(result.folder, 1)
    assert [step for step, _ in found["train_loss"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("words, where", [([], "run/tensorboard"), (["logs"], "logs/run")])
def test_the_flag(tmp_path, monkeypatch, words, where):
    monkeypatch.chdir(tmp_path)
    main(["run", "--epochs", "2", "--device", "cpu", "--tensorboard", *words, "--out", "run"])
    assert read_back(tmp_path / where / "seed-1") == expected(tmp_path / "run", 1)
    assert "tensorboard" not in read_config(tmp_path / "run")["experiment"]


def test_a_run_can_be_resumed_with_and_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)
    with pytest.raises(Stop):
        run(experiment(tmp_path), say=silent, on_epoch=stop_after(2))
    main(["run", "--resume", str(tmp_path / "run"), "--tensorboard"])
    steps = [step for step, _ in read_back(tmp_path / "run" / "tensorboard" / "seed-2")["train_loss"]]
    assert steps == [3]


def test_without_tensorboard_it_is_said_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--tensorboard", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert "pip install tensorboard" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# ---- the documentation ----------------------------------------------------------------------------------------


def test_the_page_on_extending_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    section = DOCS.read_text("utf-8").split("## Your own tracker in ten lines")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    body = blocks[0][blocks[0].index("class Best") : blocks[0].index("coteach.run")]
    assert len([line for line in body.splitlines()[1:] if line.strip()]) <= 10
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("seed ")]
    rows = read_rows(tmp_path / "runs" / "best" / "metrics.jsonl")
    assert len(told) == 2
    for seed, line in zip((1, 2), told, strict=True):
        best = max(row["ensemble_accuracy"] for row in rows if row["seed"] == seed)
        assert f"seed {seed}: {best:.1%} after epoch " in line
    assert read_back(tmp_path / "runs" / "watched" / "tensorboard" / "seed-1")
