"""Runs that are stopped, by whatever, and go on: byte by byte what they would have been."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from coteach import cli
from coteach.cli import run as command
from coteach.data.base import Rows
from coteach.engine import Engine
from coteach.engine.precision import Precision
from coteach.engine.stack import fill
from coteach.engine.stream import Stream
from coteach.engine.training import State, state_of
from coteach.methods import METHODS
from coteach.runs import checkpoint
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.runs.run import run, run_together
from coteach.train import fit
from modern_cases import bytes_problem, narrow
from resume_cases import HERE, assert_same_folder, experiment, read_header, stopped, survive
from run_cases import crowded, silent
from tiny import BY_RULE, EVERYTHING, FIDELITIES, PLAN, normed, pictured, pictures, problem


@pytest.fixture(autouse=True)
def every_epoch_is_kept(monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)


# ---- one training, in one process -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("name", BY_RULE)
def test_a_training_goes_on_as_if_it_had_never_stopped(name, fidelity, batched, optimizer):
    plan = replace(PLAN, epochs=4, fidelity=FIDELITIES[fidelity], optimizer=optimizer)

    assert_goes_on(problem, METHODS[name], plan, normed, batched)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", BY_RULE)
def test_a_training_with_everything_goes_on_as_if_it_had_never_stopped(name, optimizer, batched):
    plan = replace(EVERYTHING, epochs=3, optimizer=optimizer)
    assert_goes_on(partial(pictures, runs=2), METHODS[name], plan, pictured, batched)


@pytest.mark.parametrize("name", ["coteaching", "f_correction"])
def test_a_streamed_training_with_everything_goes_on_too(name):
    def streamed():
        p = pictures(runs=2)
        return replace(p, x_M=Stream(Rows(p.x_M), "cpu"))

    assert_goes_on(streamed, METHODS[name], replace(EVERYTHING, epochs=3), pictured, False)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_training_of_the_fast_network_goes_on_too(optimizer):
    """Whose weights lie in memory in another order than they are saved in."""
    plan = replace(EVERYTHING, epochs=2, optimizer=optimizer)
    assert_goes_on(partial(bytes_problem, 1), METHODS["coteaching"], plan, narrow, False)


def assert_goes_on(made, method, plan, build, batched):
    """From every epoch on: the same rows, and the same bytes of all that was learnt."""

    def trained(since=None):
        epochs = []

        def after(epoch):
            tensors = {key: t.detach().clone() for key, t in state_of(epoch.training).items()}
            epochs.append((State(epoch.position, epoch.number, tensors), p.rows(epoch)))

        p = made()
        fit(p, method, plan, build, engine=Engine(torch.float32, batched), ledger=True, resume_from=since,
            on_epoch=after)  # fmt: skip
        return epochs

    torch.manual_seed(0)
    whole = trained()
    for i, (state, _) in enumerate(whole[:-1]):
        torch.manual_seed(99)  # what the generator happens to be must not matter
        rest = trained(state)
        assert [rows for _, rows in rest] == [rows for _, rows in whole[i + 1 :]]
        end, expected = rest[-1][0], whole[-1][0]
        assert (end.phase, end.epoch) == (expected.phase, expected.epoch)
        assert end.tensors.keys() == expected.tensors.keys()
        for key, tensor in end.tensors.items():
            assert torch.equal(tensor, expected.tensors[key]), (state.phase, state.epoch, key)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="too many or too few"):
        fill({"a": torch.zeros(2)}, {"b": torch.zeros(2)})
    with pytest.raises(ValueError, match="shape"):
        fill({"a": torch.zeros(2)}, {"a": torch.zeros(3)})


# ---- processes that are killed --------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_any_moment_every_method_ends_with_the_same_bytes(tmp_path):
    """Once in the middle of each method's epochs, and once of all while a file was being written."""
    deaths = [["step", 7], ["before_rename", 4], ["rows", 2], ["step", 8], ["before_rename", 1]]
    tasks = [(experiment(name), tmp_path / name, [deaths[i % 5]]) for i, name in enumerate(BY_RULE)]
    tasks.append((experiment("coteaching_plus"), tmp_path / "many", deaths))
    survive(tasks)
    for e, folder, _ in tasks:
        whole = run(replace(e, out=tmp_path / "whole" / folder.name), say=silent)
        assert_same_folder(folder, whole.folder)


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    survive([(experiment("coteaching"), tmp_path / "early", [["step", 1], ["step", 2]])])
    assert_same_folder(
        tmp_path / "early", run(replace(experiment("coteaching"), out=tmp_path / "w"), say=silent).folder
    )


def has_learnt(out: Path) -> bool:
    """Whether an epoch is kept; the first checkpoint is written before there is any."""
    return (out / checkpoint.CHECKPOINT_NAME).exists() and checkpoint.read_checkpoint(out).state is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_stops_a_run_with_a_word_on_how_to_go_on(tmp_path, name):
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "coteach",
        "run",
        "--epochs",
        "2000",
        "--device",
        "cpu",
        "--out",
        str(out),
    ]
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")},
    )  # fmt: skip
    until = time.monotonic() + 120
    while not has_learnt(out):
        assert time.monotonic() < until
        assert started.poll() is None, started.communicate()
        time.sleep(0.05)
    os.kill(started.pid, getattr(signal, name))
    said = "".join("".join(started.communicate(timeout=60)).split())  # the terminal may break the line anywhere
    assert started.returncode == (130 if name == "SIGINT" else 143)
    assert f"stopped;`coteachrun--resume{out}`goeson" in said
    assert not (out / ".lock").exists()
    assert checkpoint.read_checkpoint(out).state.epoch >= 1


def test_the_command_that_goes_on_works_as_it_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")  # and no line of it is broken
    out, data_dir = tmp_path / "a run", tmp_path / "my data"
    shown = command.accuracy_note
    words = ["run", "--epochs", "3", "--device", "cpu", "--out", str(out), "--data-dir", str(data_dir)]
    for again in range(2):
        monkeypatch.setattr(command, "accuracy_note", interrupt)
        with pytest.raises(SystemExit, match="130"):
            cli.main(words)
        words = shlex.split(capsys.readouterr().out.split("note: stopped; `")[1].split("` goes on\n")[0])[1:]
        assert words == ["run", "--resume", str(out), "--data-dir", str(data_dir)], again
    monkeypatch.setattr(command, "accuracy_note", shown)
    cli.main(words)
    assert (out / "summary.json").exists()


def interrupt(epoch):
    raise KeyboardInterrupt


# ---- together, in groups, twice -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3, 4, 5, 6])
def test_experiments_that_run_together_go_on_together(tmp_path, after):
    base = experiment("coteaching_plus", group=2, noise="symmetric", epochs=3)
    experiments = [
        replace(base, rate=0.2, seeds=(1, 2), out=tmp_path / "a"),
        replace(base, rate=0.5, seeds=(2,), out=tmp_path / "b"),
    ]
    whole = run_together([replace(e, out=tmp_path / "whole" / e.out.name) for e in experiments], say=silent)
    stopped(experiments, after)
    rest: list = []
    again = run_together([replace(e, resume=e.out) for e in experiments], say=silent, on_epoch=rest.append)
    assert len(rest) == 6 - after
    for mine, theirs in zip(again, whole, strict=True):
        assert_same_folder(mine.folder, theirs.folder)
        assert mine.rows == theirs.rows
        for seed in theirs.summary["seeds"]:
            for a, b in zip(mine.network(1, seed).parameters(), theirs.network(1, seed).parameters(), strict=True):
                assert torch.equal(a, b)


@pytest.mark.slow
def test_a_group_that_was_halved_stays_halved(tmp_path, monkeypatch):
    crowded(monkeypatch)
    e = experiment("coteaching", group=2, epochs=2, out=tmp_path / "run")
    whole = run(replace(e, out=tmp_path / "whole"), say=silent)
    stopped([e], 3)
    said: list[str] = []
    mine = run(Experiment(resume=tmp_path / "run"), say=said.append)
    assert not any("do not fit" in line for line in said)
    assert_same_folder(mine.folder, whole.folder)
    assert mine.summary["events"] == whole.summary["events"]


def test_the_seconds_of_both_parts_count(tmp_path):
    e = experiment("standard", out=tmp_path / "run")
    stopped([e], 2)
    kept = checkpoint.read_checkpoint(tmp_path / "run")
    path, state = (
        tmp_path / "run" / checkpoint.CHECKPOINT_NAME,
        load_file(tmp_path / "run" / checkpoint.CHECKPOINT_NAME),
    )
    header = read_header(path) | {"seconds": 1000.0}
    save_file(state, path, {"coteach": json.dumps(header)})
    assert kept.seconds < 1000
    assert run(Experiment(resume=tmp_path / "run"), say=silent).summary["seconds"] >= 1000


@pytest.mark.parametrize("flag", [f.name for f in fields(Engine) if f.name not in ("dtype", "precision")])
def test_a_run_goes_on_with_the_engine_it_was_begun_with(flag, tmp_path):
    plain = Engine(batched=False, precision=Precision.TF32)
    begun = replace(plain, **{flag: True})
    there = {f.name: getattr(begun, f.name) for f in fields(Engine)} | {
        "precision": "tf32",
        "device": "cuda",
        "group": 2,
    }
    config = {"engine": there, "hardware": {"threads": 1}, "experiment": {}}
    files.write_config(tmp_path, config)
    assert checkpoint.stored_setup(tmp_path).setup.engine == begun != plain


def test_a_run_from_before_there_were_two_streams_of_noise_goes_on(tmp_path):
    e = experiment("standard", out=tmp_path / "run", noise_stream="1.17")
    stopped([e], 2)
    config = tmp_path / "run" / "config.toml"
    before = config.read_text()
    config.write_text(before.replace('noise_stream = "1.17"\n', ""))
    assert config.read_text() != before
    assert run(Experiment(resume=tmp_path / "run"), say=silent).rows


def test_a_run_goes_on_with_the_noise_it_was_begun_with(tmp_path):
    whole = run(experiment("standard", out=tmp_path / "whole", noise_stream="1.17"), say=silent)
    stopped([experiment("standard", out=tmp_path / "run", noise_stream="1.17")], 2)
    resumed = run(Experiment(resume=tmp_path / "run"), say=silent)
    assert resumed.summary["noise_sha256"] == whole.summary["noise_sha256"]
    assert_same_folder(resumed.folder, whole.folder)


def test_a_run_from_before_pooling_goes_on_without():
    before, now, pooled = (
        {"engine": {"batched": True} | more} for more in ({}, {"pooled": False}, {"pooled": True})
    )
    assert checkpoint.difference(before, now) is None
    assert checkpoint.difference(before, pooled) == ("engine.pooled", False, True)
