"""Runs that are stopped, by whatever, and go on: byte by byte what they would have been."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from coteach import cli
from coteach.engine import Engine
from coteach.engine.state import State, fill, state_of
from coteach.methods import METHODS
from coteach.runs import checkpoint
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.runs.run import run, run_together
from coteach.train import fit
from tiny import BY_RULE, FIDELITIES, PLAN, normed, problem

HERE = Path(__file__).parent
SAME_BYTES = ("metrics.jsonl", "estimate.jsonl", "config.toml")


def quiet(line: str) -> None:
    pass


@pytest.fixture(autouse=True)
def every_epoch_is_kept(monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1.0)


def assert_same_folder(mine: Path, theirs: Path) -> None:
    assert sorted(p.name for p in mine.iterdir()) == sorted(p.name for p in theirs.iterdir())
    assert (theirs / "networks").is_dir()
    for path in theirs.rglob("*"):
        if path.name in SAME_BYTES or path.parent.name == "networks":
            assert (mine / path.relative_to(theirs)).read_bytes() == path.read_bytes(), path.name
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (mine, theirs)]
    assert summaries[0] | {"seconds": 0} == summaries[1] | {"seconds": 0}


def experiment(method: str, **more) -> Experiment:
    usual = {
        "noise": "pair",
        "rate": 0.45,
        "epochs": 3,
        "batch_size": 256,
        "warmup": 1,
        "seeds": (1, 2),
        "group": 1,
    }
    return Experiment(method=method, device="cpu", **usual | more)


# ---- one training, in one process -----------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("name", BY_RULE)
def test_a_training_goes_on_as_if_it_had_never_stopped(name, fidelity, batched, optimizer):
    plan = replace(PLAN, epochs=4, fidelity=FIDELITIES[fidelity], optimizer=optimizer)

    def trained(since=None):
        epochs = []

        def after(epoch):
            tensors = {key: t.detach().clone() for key, t in state_of(epoch.training).items()}
            epochs.append((State(epoch.phase, epoch.number, tensors), epoch.rows))

        fit(problem(), METHODS[name], plan, normed, engine=Engine(torch.float32, batched), ledger=True,
            since=since, on_epoch=after)  # fmt: skip
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


def survive(tasks: list[tuple[Experiment, Path, list]]) -> None:
    """Each experiment dies the deaths of its list, goes on each time, and ends; see killed.py."""
    lines = [
        json.dumps({"experiment": files.plain(files.described(e)), "out": str(out), "deaths": deaths})
        for e, out, deaths in tasks
    ]
    done = subprocess.run(
        [sys.executable, HERE / "killed.py"],
        input="\n".join(lines),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_killed_at_any_moment_every_method_ends_with_the_same_bytes(tmp_path):
    """Once in the middle of each method's epochs, and once of all while a file was being written."""
    deaths = [["step", 7], ["before_rename", 4], ["rows", 2], ["step", 8], ["before_rename", 1]]
    tasks = [(experiment(name), tmp_path / name, [deaths[i % 5]]) for i, name in enumerate(BY_RULE)]
    tasks.append((experiment("coteaching_plus"), tmp_path / "many", deaths))
    survive(tasks)
    for e, folder, _ in tasks:
        whole = run(replace(e, out=tmp_path / "whole" / folder.name), say=quiet)
        assert_same_folder(folder, whole.folder)


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    survive([(experiment("coteaching"), tmp_path / "early", [["step", 1], ["step", 2]])])
    assert_same_folder(
        tmp_path / "early", run(replace(experiment("coteaching"), out=tmp_path / "w"), say=quiet).folder
    )


def listening() -> None:
    """In the new process: what runs in the background is told to ignore Ctrl-C, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_stops_a_run_with_a_word_on_how_to_go_on(tmp_path, name):
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "coteach.cli",
        "run",
        "--epochs",
        "2000",
        "--device",
        "cpu",
        "--out",
        str(out),
    ]
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=listening,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")},
    )  # fmt: skip
    until = time.monotonic() + 120
    while not (out / checkpoint.NAME).exists():
        assert time.monotonic() < until
        assert started.poll() is None, started.communicate()
        time.sleep(0.05)
    os.kill(started.pid, getattr(signal, name))
    said = "".join("".join(started.communicate(timeout=60)).split())  # the terminal may break the line anywhere
    assert started.returncode == (130 if name == "SIGINT" else 143)
    assert f"stopped;`coteachrun--resume{out}`goeson" in said
    assert not (out / ".lock").exists()
    assert checkpoint.read(out).state.epoch >= 1


# ---- together, in groups, twice -------------------------------------------------------------------------------


class Stop(Exception):
    pass


def stopped(experiments: list[Experiment], after: int) -> None:
    """Run them until `after` epochs of groups have ended."""
    epochs = []

    def count(epoch):
        epochs.append(epoch.number)
        if len(epochs) == after:
            raise Stop

    with pytest.raises(Stop):
        run_together(experiments, say=quiet, on_epoch=count)


@pytest.mark.parametrize("after", [1, 3, 4, 5, 6])
def test_experiments_that_run_together_go_on_together(tmp_path, after):
    base = experiment("coteaching_plus", group=2, noise="symmetric", epochs=3)
    experiments = [
        replace(base, rate=0.2, seeds=(1, 2), out=tmp_path / "a"),
        replace(base, rate=0.5, seeds=(2,), out=tmp_path / "b"),
    ]
    whole = run_together([replace(e, out=tmp_path / "whole" / e.out.name) for e in experiments], say=quiet)
    stopped(experiments, after)
    rest: list = []
    again = run_together([replace(e, resume=e.out) for e in experiments], say=quiet, on_epoch=rest.append)
    assert len(rest) == 6 - after
    for mine, theirs in zip(again, whole, strict=True):
        assert_same_folder(mine.folder, theirs.folder)
        assert mine.rows == theirs.rows
        for seed in theirs.summary["seeds"]:
            for a, b in zip(mine.network(1, seed).parameters(), theirs.network(1, seed).parameters(), strict=True):
                assert torch.equal(a, b)


def test_a_group_that_was_halved_stays_halved(tmp_path, monkeypatch):
    from coteach.runs import run as runner

    real = runner.fit

    def crowded(part, *arguments, **named):
        if len(part.seeds) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(part, *arguments, **named)

    monkeypatch.setattr(runner, "fit", crowded)
    e = experiment("coteaching", group=2, epochs=2, out=tmp_path / "run")
    whole = run(replace(e, out=tmp_path / "whole"), say=quiet)
    stopped([e], 3)
    said: list[str] = []
    mine = run(Experiment(resume=tmp_path / "run"), say=said.append)
    assert not any("do not fit" in line for line in said)
    assert_same_folder(mine.folder, whole.folder)
    assert mine.summary["events"] == whole.summary["events"]


def test_the_seconds_of_both_parts_count(tmp_path):
    e = experiment("standard", out=tmp_path / "run")
    stopped([e], 2)
    kept = checkpoint.read(tmp_path / "run")
    path, state = tmp_path / "run" / checkpoint.NAME, load_file(tmp_path / "run" / checkpoint.NAME)
    header = read_header(path) | {"seconds": 1000.0}
    save_file(state, path, {"coteach": json.dumps(header)})
    assert kept.seconds < 1000
    assert run(Experiment(resume=tmp_path / "run"), say=quiet).summary["seconds"] >= 1000


def read_header(path: Path) -> dict:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["coteach"])


# ---- what is refused ------------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path) -> Path:
    stopped([experiment("coteaching", out=tmp_path / "run")], 2)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(folder: Path, match: str, **more) -> None:
    before = contents(folder)
    with pytest.raises(ValueError, match=match):
        run(Experiment(resume=folder, **more), say=quiet)
    assert contents(folder) == before


def test_a_finished_run_and_a_folder_without_one_are_refused(tmp_path, unfinished):
    refused(tmp_path, "no run in")
    with pytest.raises(ValueError, match="no run in"):
        run(Experiment(resume=tmp_path / "nowhere"), say=quiet)
    run(Experiment(resume=unfinished), say=quiet)
    refused(unfinished, "finished")


def test_another_setting_is_refused_with_its_name(unfinished):
    refused(unfinished, "lr is 0.5, but the run in .* was begun with None", lr=0.5)
    refused(unfinished, "out is elsewhere", out=Path("elsewhere"))
    run(Experiment(resume=unfinished, method="coteaching", epochs=3, out=unfinished), say=quiet)


def changed(folder: Path, change) -> None:
    path = folder / checkpoint.NAME
    header, tensors = read_header(path), load_file(path)
    change(header, tensors)
    save_file(tensors, path, {"coteach": json.dumps(header)})


@pytest.mark.parametrize(
    "change, match",
    [
        (lambda h, t: h["config"]["versions"].update(coteach="0.0.1"), "versions.coteach 0.0.1, now"),
        (lambda h, t: h["config"]["versions"].update(torch="1.0"), "versions.torch 1.0, now"),
        (lambda h, t: h["config"]["plan"].update(lr=7.0), "plan.lr 7.0, now 0.005"),
        (lambda h, t: h["config"]["data"].update(sha256="0"), "data.sha256 0, now"),
        (lambda h, t: h.update(format=2), "format 2, but this version reads 1"),
        (lambda h, t: h.pop("lengths"), "no checkpoint of coteach, or damaged"),
        (lambda h, t: h.update(waiting=[["a", 2]]), "no checkpoint of coteach, or damaged"),
        (lambda h, t: h["lengths"][0].update({"metrics.jsonl": 10**9}), "metrics.jsonl has lost rows"),
        (lambda h, t: t.pop("stack.theta"), "too many or too few"),
        (lambda h, t: t.update({"stack.theta": t["stack.theta"][..., :-1].clone()}), "shape"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_with_the_difference(unfinished, change, match):
    changed(unfinished, change)
    refused(unfinished, match)


def test_a_damaged_checkpoint_or_config_is_refused(unfinished):
    path = unfinished / checkpoint.NAME
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-10], b"{" * 5000):
        path.write_bytes(damaged)
        refused(unfinished, "no checkpoint of coteach, or damaged")
    path.write_bytes(whole)
    config = (unfinished / "config.toml").read_text()
    for text in ("x = [", "experiment = 1", config.replace("[engine]", "[motor]"), "\0"):
        (unfinished / "config.toml").write_text(text)
        refused(unfinished, "config.toml is damaged")
    (unfinished / "config.toml").write_text(
        config.replace('method = "coteaching"', 'method = "coteaching"\nnew = 1')
    )
    refused(unfinished, "does not know")
    (unfinished / "config.toml").write_text(config.replace("rate = 0.45", "rate = 0.4"))
    refused(unfinished, "noise_sha256|experiment.rate")


def test_other_data_are_refused(tmp_path, dataset):
    e = Experiment(method="coteaching", tau=0.2, epochs=3, out=tmp_path / "run")

    def stop(epoch):
        if epoch.number == 2:
            raise Stop

    with pytest.raises(Stop):
        run(e, dataset, say=quiet, on_epoch=stop)
    other = replace(dataset, x_test=dataset.x_test + 1)
    with pytest.raises(ValueError, match="data.sha256"):
        run(Experiment(resume=tmp_path / "run"), other, say=quiet)
    with pytest.raises(ValueError, match="your own"):
        run(Experiment(resume=tmp_path / "run"), say=quiet)
    run(Experiment(resume=tmp_path / "run"), dataset, say=quiet)


def test_two_processes_on_one_folder(unfinished):
    holder = "import sys; from pathlib import Path; from coteach.runs.lock import held\n"
    holder += "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", holder, str(unfinished)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(HERE.parent / "src")},
    )  # fmt: skip
    assert other.stdout.readline() == "held\n"
    refused(unfinished, "another process is writing")
    other.kill()  # the lock goes with its process
    other.wait()
    other.stdin.close()
    other.stdout.close()
    run(Experiment(resume=unfinished), say=quiet)
    assert not (unfinished / ".lock").exists()


def test_a_new_run_in_the_folder_of_an_unfinished_one_is_told_of_resume(unfinished):
    with pytest.raises(ValueError, match=f"go on with --resume {unfinished}"):
        run(experiment("coteaching", out=unfinished), say=quiet)


def test_the_command_goes_on(unfinished, capsys):
    cli.main(["run", "--resume", str(unfinished)])
    assert (unfinished / "summary.json").exists()
    with pytest.raises(SystemExit):
        cli.main(["run", "--resume", str(unfinished)])
    assert "finished" in capsys.readouterr().err


# ---- disks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["full", "read-only", "gone"])
def test_a_disk_that_fails_is_told_and_the_last_checkpoint_stays(tmp_path, monkeypatch, what):
    """A full disk is simulated where the bytes go out; the others are real."""
    import errno

    out = tmp_path / "run"
    e = experiment("coteaching", seeds=(1,), out=out)
    whole = run(replace(e, out=tmp_path / "whole"), say=quiet)
    real = os.fsync
    kept = []

    def fail(epoch):
        if epoch.number == 2:
            kept.append((out / checkpoint.NAME).read_bytes())
            if what == "full":

                def no_space(descriptor):
                    raise OSError(errno.ENOSPC, "No space left on device")

                monkeypatch.setattr(os, "fsync", no_space)
            elif what == "read-only":
                os.rename(out, tmp_path / "kept")
                out.write_text("a file where the folder was")
            else:
                os.rename(out, tmp_path / "kept")

    with pytest.raises(ValueError, match=f"cannot write to {out} .*: mend that, then .*--resume {out}"):
        run(e, say=quiet, on_epoch=fail)
    monkeypatch.setattr(os, "fsync", real)
    if what != "full":
        out.unlink(missing_ok=True)
        os.rename(tmp_path / "kept", out)
    assert (out / checkpoint.NAME).read_bytes() == kept[0]
    assert_same_folder(run(Experiment(resume=out), say=quiet).folder, whole.folder)


def test_checkpoints_cost_little(tmp_path, monkeypatch):
    """Where writing takes long, epochs go by without."""
    monkeypatch.setattr(checkpoint, "COST", 0.05)
    times = iter([0.0, 10.0, 10.0, 11.0, 20.0, 30.9, 31.1, 31.1, 31.2])
    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: next(times))
    kept = checkpoint.Checkpoints([tmp_path], {})
    assert kept.due()  # at 10
    kept.write([], [], [], 0.0)  # from 10 to 11: a second, so none for twenty
    assert not kept.due()  # at 20
    assert not kept.due()  # at 30.9
    assert kept.due()  # at 31.1
    kept.write([], [], [], 0.0)
