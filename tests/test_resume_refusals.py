"""What stands in the way of going on: other settings, damaged files, a second process, disks that fail."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from coteach import cli
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from resume_cases import HERE, Stop, assert_same_folder, experiment, read_header, stopped
from run_cases import silent


@pytest.fixture(autouse=True)
def every_epoch_is_kept(monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)


@pytest.fixture
def unfinished(tmp_path) -> Path:
    stopped([experiment("coteaching", out=tmp_path / "run")], 2)
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(folder: Path, match: str, **more) -> None:
    before = contents(folder)
    with pytest.raises(ValueError, match=match):
        run(Experiment(resume=folder, **more), say=silent)
    assert contents(folder) == before


def test_a_finished_run_and_a_folder_without_one_are_refused(tmp_path, unfinished):
    refused(tmp_path, "no run in")
    with pytest.raises(ValueError, match="no run in"):
        run(Experiment(resume=tmp_path / "nowhere"), say=silent)
    run(Experiment(resume=unfinished), say=silent)
    refused(unfinished, "finished")


def test_another_setting_is_refused_with_its_name(unfinished):
    refused(unfinished, "lr is 0.5, but the run in .* was begun with None", lr=0.5)
    refused(unfinished, "out is elsewhere", out=Path("elsewhere"))
    run(Experiment(resume=unfinished, method="coteaching", epochs=3, out=unfinished), say=silent)


def changed(folder: Path, change) -> None:
    path = folder / checkpoint.CHECKPOINT_NAME
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
        (lambda h, t: h.update(format=3), "format 3, but this version reads 2"),
        (lambda h, t: h.pop("lengths"), "no checkpoint of coteach, or damaged"),
        (lambda h, t: h.update(waiting=[["a", 2]]), "no checkpoint of coteach, or damaged"),
        (lambda h, t: h.update(halved=[float("inf")]), "no checkpoint of coteach, or damaged"),
        (lambda h, t: h["lengths"][0].update({"metrics.jsonl": 10**9}), "metrics.jsonl has lost rows"),
        (lambda h, t: t.pop("stack.theta"), "too many or too few"),
        (lambda h, t: t.update({"stack.theta": t["stack.theta"][..., :-1].clone()}), "shape"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_with_the_difference(unfinished, change, match):
    changed(unfinished, change)
    refused(unfinished, match)


def test_a_damaged_checkpoint_or_config_is_refused(unfinished):
    path = unfinished / checkpoint.CHECKPOINT_NAME
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
        run(e, dataset, say=silent, on_epoch=stop)
    other = replace(dataset, x_test=dataset.x_test + 1)
    with pytest.raises(ValueError, match="data.sha256"):
        run(Experiment(resume=tmp_path / "run"), other, say=silent)
    with pytest.raises(ValueError, match="your own"):
        run(Experiment(resume=tmp_path / "run"), say=silent)
    run(Experiment(resume=tmp_path / "run"), dataset, say=silent)


@pytest.mark.slow
def test_two_processes_on_one_folder(unfinished):
    holder = "import sys; from pathlib import Path; from coteach.runs.folder import locked\n"
    holder += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
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
    run(Experiment(resume=unfinished), say=silent)
    assert not (unfinished / ".lock").exists()


def test_a_new_run_in_the_folder_of_an_unfinished_one_is_told_of_resume(unfinished):
    with pytest.raises(ValueError, match=f"go on with `coteach run --resume {unfinished}`, give"):
        run(experiment("coteaching", out=unfinished), say=silent)
    with pytest.raises(ValueError, match=f"go on with `coteach run --resume {unfinished} --data-dir 'my data'`"):
        run(experiment("coteaching", out=unfinished, data_dir="my data"), say=silent)


def test_the_command_goes_on(unfinished, capsys):
    cli.main(["run", "--resume", str(unfinished)])
    assert (unfinished / "summary.json").exists()
    with pytest.raises(SystemExit):
        cli.main(["run", "--resume", str(unfinished)])
    assert "finished" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["coteaching", "f_correction"])
def test_the_bar_goes_on_where_the_run_stopped(tmp_path, monkeypatch, method):
    from coteach.cli import run as command

    e = experiment(method, epochs=3, seeds=(1, 2), group=2, out=tmp_path / "run")
    stopped([e], 2)
    shown = []

    class Bars:
        task_ids = []

        def __enter__(self):
            self.console = self
            return self

        def __exit__(self, *error):
            pass

        def print(self, *line, **how):
            pass

        def add_task(self, name, total, completed, note):
            self.task_ids = [0]
            shown.append([name, total, completed])

        def update(self, task, advance, description, note):
            shown[0][0] = description
            shown[0][2] += advance

    monkeypatch.setattr(command, "progress_bars", Bars)
    cli.main(["run", "--resume", str(tmp_path / "run")])
    total = 6 if method == "f_correction" else 3
    assert shown == [[f"training {method}", total, total]]


# ---- disks ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("what", ["full", "read-only", "gone"])
def test_a_disk_that_fails_is_told_and_the_last_checkpoint_stays(tmp_path, monkeypatch, what):
    """A full disk is simulated where the bytes go out; the others are real."""
    import errno

    out = tmp_path / "run"
    e = experiment("coteaching", seeds=(1,), out=out)
    whole = run(replace(e, out=tmp_path / "whole"), say=silent)
    real = os.fsync
    kept = []

    def fail(epoch):
        if epoch.number == 2:
            kept.append((out / checkpoint.CHECKPOINT_NAME).read_bytes())
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
        run(e, say=silent, on_epoch=fail)
    monkeypatch.setattr(os, "fsync", real)
    if what != "full":
        out.unlink(missing_ok=True)
        os.rename(tmp_path / "kept", out)
    assert (out / checkpoint.CHECKPOINT_NAME).read_bytes() == kept[0]
    assert_same_folder(run(Experiment(resume=out), say=silent).folder, whole.folder)


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
