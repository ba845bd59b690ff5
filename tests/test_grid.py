"""Grids that are killed, shared out or asked for twice: nothing is lost, and nothing is run twice."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import coteach
import parallel_work
from coteach.cli import main, parsed
from coteach.paper import measured, reproduce, running
from coteach.paper.running import LOCAL_RAY
from coteach.runs import checkpoint, parallel
from coteach.runs.experiment import IN_RUN_FOLDER
from coteach.runs.folder import locked
from grid_cases import cell, contents, epochs_logged, two_stacks
from run_cases import silent

HERE = Path(__file__).parent
ALL_EPOCHS = sorted(
    f"{method}, paper, warmup 1, 3 epochs (pair 45 %, symmetric 20 %) {epoch}"
    for method in ("Co-teaching", "Standard")
    for epoch in (1, 2, 3)
)


class Stop(Exception):
    pass


@pytest.fixture(autouse=True)
def every_epoch_is_kept_and_nobody_waits(monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)
    monkeypatch.setattr(reproduce, "WAIT", 0.01)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the two stacks come to without any trouble."""
    out = tmp_path_factory.mktemp("whole")
    reproduce.measure_cells(two_stacks(), out, commit="c", say=silent)
    return contents(out)


def stopped(wanted, out, at, commit="c"):
    """Measured until an epoch, which is the last that is kept."""

    def stop(p):
        if p.rows[0]["epoch"] == at:
            raise Stop

    with pytest.raises(Stop):
        reproduce.measure_cells(wanted, out, commit=commit, say=silent, on_progress=stop)


def measured_again(wanted, out, commit="c", **how):
    """The epochs that are run, and what is said."""
    epochs, said = [], []

    def note(p):
        epochs.extend(row["epoch"] for row in p.rows)

    reproduce.measure_cells(wanted, out, commit=commit, say=said.append, on_progress=note, **how)
    return epochs, said


def test_progress_counts_what_was_done_before(tmp_path):
    wanted = [cell(seeds=(1, 2))]
    done = []
    reproduce.measure_cells(
        wanted, tmp_path / "whole", commit="c", say=silent, on_progress=lambda p: done.append(p.done)
    )
    stopped(wanted, tmp_path / "out", at=2)
    again = []
    reproduce.measure_cells(
        wanted, tmp_path / "out", commit="c", say=silent, on_progress=lambda p: again.append(p.done)
    )
    assert again == done[2:]


# ---- in so many minutes ---------------------------------------------------------------------------------------


def test_no_stack_begins_that_would_end_too_late_and_the_same_call_measures_it_later(tmp_path, monkeypatch, whole):
    now = [0.0]
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: now[0])
    epochs, said = [], []

    def ten_seconds(p):  # for the four runs of a stack: 30 seconds a stack
        epochs.extend(row["epoch"] for row in p.rows)
        now[0] += 10

    def measure(minutes):
        how = {"commit": "c", "minutes": minutes, "say": said.append, "on_progress": ten_seconds}
        return reproduce.measure_cells(two_stacks(), tmp_path, **how)

    assert len(measure(0.9)) == 4
    assert epochs == [1] * 4 + [2] * 4 + [3] * 4
    assert said[-1] == "stacks of cells that would end too late: 1; the same command measures them"
    assert len(contents(tmp_path)) == 2
    measure(0.9)
    assert len(epochs) == 24
    assert contents(tmp_path) == whole


def test_a_network_of_twice_the_width_is_expected_to_take_four_times_as_long(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: now[0])
    modern = {"recipe": "modern", "network": "mlp", "warmup": None}
    wanted = [cell(width=width, **modern) for width in (1, 2)]
    jobs = [running.StackJob(i, [(c, c.seeds)], tmp_path / str(i), "t", None, "c") for i, c in enumerate(wanted)]
    with reproduce.Measuring(jobs, tmp_path, silent, lambda p: None, until=49.0) as measuring:
        handed_out = measuring.hand_out()
        job = next(handed_out)
        measuring.trained[0], now[0] = measuring.total[0], 10.0
        monkeypatch.setattr(reproduce, "add_runs", lambda *arguments: None)
        measuring.records[0] = [{}]
        measuring.write(job)
        assert list(handed_out) == []
        assert measuring.late == {1}


# ---- killed ---------------------------------------------------------------------------------------------------


def die(out, *rounds):
    done = subprocess.run(
        [sys.executable, HERE / "grid_cases.py", str(out)],
        input="\n".join(map(json.dumps, rounds)),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost_and_nothing_is_run_twice(tmp_path, whole):
    """In an epoch, between the summaries of a stack, between its cells' files, and before the first of them."""
    out = tmp_path / "out"
    out.mkdir()
    moments = [["step", 7], ["summary.json", 2], ["coteaching-*.json", 2], ["step", 12], ["standard-*.json", 1]]
    die(out, *([moment] for moment in moments), [None])
    assert contents(out) == whole
    assert epochs_logged(out) == ALL_EPOCHS
    assert sorted(path.name for path in out.iterdir()) == ["epochs", "tiny"]


@pytest.mark.slow
def test_several_processes_share_the_work_and_go_on_with_that_of_the_dead(tmp_path, whole):
    out = tmp_path / "out"
    out.mkdir()
    die(out, [["step", 7], None, None])
    assert contents(out) == whole
    assert epochs_logged(out) == ALL_EPOCHS
    assert sorted(path.name for path in out.iterdir()) == ["epochs", "tiny"]


def test_a_stack_of_another_process_is_waited_for_and_not_run_if_it_was_done(tmp_path):
    wanted = [cell(seeds=(1,))]
    reproduce.measure_cells(wanted, tmp_path / "done", say=silent)
    out = tmp_path / "out"
    folder = running.folder_of([(wanted[0], (1,))], out)
    folder.mkdir(parents=True)
    lock = locked(folder)
    lock.__enter__()
    said = []

    def other_ends(line):
        said.append(line)
        (tmp_path / "done" / "tiny").rename(out / "tiny")
        lock.__exit__(None, None, None)

    epochs = []
    reproduce.measure_cells(wanted, out, say=other_ends, on_progress=lambda p: epochs.extend(p.rows))
    assert said == ["another process is measuring the last 1 stacks: waiting for it"]
    assert epochs == []
    assert [path.name for path in out.iterdir()] == ["tiny"]


# ---- going on -------------------------------------------------------------------------------------------------


def test_what_was_begun_goes_on(tmp_path, whole):
    stopped(two_stacks(), tmp_path, at=2)
    epochs, said = measured_again(two_stacks(), tmp_path)
    assert sorted(epochs) == [1, 1, 1, 1, 2, 2, 2, 2] + [3] * 8  # the second stack, and the last of the first
    assert "going on after epoch 2" in said
    assert contents(tmp_path) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.slow
def test_what_was_begun_with_other_threads_goes_on_with_those(tmp_path):
    torch.set_num_threads(2)
    try:
        stopped([cell()], tmp_path, at=2)
    finally:
        torch.set_num_threads(1)
    (config,) = tmp_path.glob(".running/*/runs/0/config.toml")
    assert "threads = 2" in config.read_text()
    assert measured_again([cell()], tmp_path)[0] == [3, 3]


def test_what_cannot_go_on_begins_anew_and_says_so(tmp_path, monkeypatch):
    wanted = [cell(seeds=(1,))]
    stopped(wanted, tmp_path, at=2)
    (folder,) = (tmp_path / ".running").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(coteach, "__version__", "9")
        stopped(wanted, tmp_path, at=2)
    for commit in ("c", "d"):  # the version is back; then another commit
        epochs = []
        said = []

        def stop(p, epochs=epochs):
            epochs.append(p.rows[0]["epoch"])
            if len(epochs) == 2:
                raise Stop

        with pytest.raises(Stop):
            reproduce.measure_cells(wanted, tmp_path, commit=commit, say=said.append, on_progress=stop)
        assert epochs == [1, 2]
        (line,) = [line for line in said if "beginning anew" in line]
        assert ("versions.coteach 9, now" in line) if commit == "c" else ("the code of c, now d" in line)
    (folder / "runs" / "0" / checkpoint.CHECKPOINT_NAME).write_bytes(b"damaged")
    epochs, said = measured_again(wanted, tmp_path, commit="d")
    assert epochs == [1, 2, 3]
    assert any("damaged: beginning anew" in line for line in said)


def test_a_full_disk_does_not_throw_away_what_was_begun(tmp_path, monkeypatch):
    wanted = [cell(seeds=(1,))]
    stopped(wanted, tmp_path, at=1)

    def full(epoch, group):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("coteach.runs.progress.Writer.write", lambda self, epoch, group: full(epoch, group))
        with pytest.raises(ValueError, match="No space left"):
            reproduce.measure_cells(wanted, tmp_path, commit="c", say=silent)
    assert measured_again(wanted, tmp_path)[0] == [2, 3]


def test_a_stack_is_ended_as_it_was_begun_whatever_else_is_asked_for(tmp_path, monkeypatch):
    stopped([cell()], tmp_path, at=2)
    ran = []
    run_together = reproduce.run_together

    def spy(experiments, *arguments, **named):
        ran.append([(e.method, e.seeds, e.resume is not None) for e in experiments])
        return run_together(experiments, *arguments, **named)

    monkeypatch.setattr(reproduce, "run_together", spy)
    measured_again([cell(seeds=(1,))], tmp_path)  # fewer seeds: what was begun stays for when they are asked for
    assert ran == [[("coteaching", (1,), False)]]
    ran.clear()
    measured_again([cell(seeds=(1, 2, 3)), cell("symmetric", 0.2)], tmp_path)
    assert ran == [
        [("coteaching", (1, 2), True)],
        [("coteaching", (3,), False), ("coteaching", (1, 2), False)],
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"cells": 1}', '{"cells": [["x", [1]]]}', '{"cells": []}']
)
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path, text):
    about = tmp_path / ".running" / "x" / "stack.json"
    about.parent.mkdir(parents=True)
    about.write_text(text)
    todo = [(cell(), (1, 2))]
    assert running.unfinished_stacks(todo, [cell()], tmp_path) == ([], todo)
    assert about.exists()


def test_seeds_of_a_cell_that_two_processes_measured_are_all_kept(tmp_path):
    """Each reads the file, adds its seed and writes it."""
    from threading import Thread

    (path,) = reproduce.measure_cells([cell(seeds=(1,))], tmp_path, say=silent)
    one = json.loads(path.read_text())
    seeds = range(2, 12)
    more = [one | {"runs": [one["runs"][0] | {"seed": seed}]} for seed in seeds]
    threads = [Thread(target=measured.add_runs, args=(cell(), tmp_path, record)) for record in more]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert json.loads(path.read_text())["summary"]["seeds"] == [1, *seeds]
    assert [p.name for p in tmp_path.iterdir()] == ["tiny"]


def test_a_folder_that_goes_while_it_is_made_is_made_again(tmp_path, monkeypatch):
    real, lost = Path.mkdir, []

    def mkdir(path, *how, **named):
        if not lost:
            lost.append(path)
            raise FileExistsError(17, "File exists")  # as pathlib's, if the folder goes before it has looked
        real(path, *how, **named)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with running.exclusive(tmp_path / "folder"):
        assert lost == [tmp_path / "folder"]
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot write to"), running.exclusive(tmp_path / "file"):
        pass


# ---- several processes, several machines ----------------------------------------------------------------------


@pytest.mark.slow
def test_processes_come_to_the_same(tmp_path, whole):
    stopped(two_stacks(), tmp_path, at=2)
    epochs, said = measured_again(two_stacks(), tmp_path, processes=2)
    assert len(epochs) == 4 * 3 + 4
    assert any("going on after epoch 2" in line for line in said)
    assert contents(tmp_path) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.slow
def test_ray_comes_to_the_same_and_brings_back_lost_workers(tmp_path, whole, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # the workers find parallel_work there
    with parallel.connected(None) as there:
        assert there["CPU"] >= 1
        heard = []
        items = [("dies", str(tmp_path / "died")), ("lives", str(tmp_path / "never"))]
        done = parallel.on_ray(parallel_work.die_once, items, heard.append, {"num_cpus": 1})
        assert sorted(done) == items
        assert sorted(heard) == ["dies, but lives", *["dies, to begin with"] * 2, "lives, to begin with"]
        with pytest.raises(ValueError, match="^the rate is 2$"):
            list(parallel.on_ray(parallel_work.raise_it, [ValueError("the rate is 2")], silent, {"num_cpus": 1}))
        stopped(two_stacks(), tmp_path / "out", at=2)
        epochs, said = measured_again(two_stacks(), tmp_path / "out", ray="local")
        assert any("going on after epoch 2" in line for line in said)
    assert len(epochs) == 4 * 3 + 4
    assert contents(tmp_path / "out") == whole
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tiny"]


def test_a_worker_that_does_not_see_the_folder_trains_elsewhere(tmp_path):
    """As on a machine that shares no file system; another folder of that name is not taken for it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    job = running.StackJob(0, [(cell(seeds=(1,)), (1,))], folder, "mine", None, "c")
    replace(job, token="another").write_about()
    heard = []
    reproduce.train_stack(job, heard.append)
    assert [kind for kind, *_ in heard if kind != "note"] == ["epoch"] * 3 + ["records"]
    assert heard[-1][2][0]["runs"][0]["commit"] == "c"
    assert [path.name for path in folder.iterdir()] == ["stack.json"]


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), max_size=5), st.integers(1, 40))
def test_stacks_are_halved_only_to_fill_empty_places(sizes, places):
    cells = [[cell(seeds=tuple(range(n)), rate=0.1 + i / 10) for i, n in enumerate(s)] for s in sizes]
    stacks = [[(c, c.seeds) for c in one] for one in cells]
    divided = reproduce.divided(stacks, places)

    def runs(found):
        return [(c.column, seed) for one in found for c, seeds in one for seed in seeds]

    assert runs(divided) == runs(stacks)
    assert all(seeds for one in divided for _, seeds in one)
    assert len(divided) == (max(len(stacks), min(places, len(runs(stacks)))) if stacks else 0)


@pytest.mark.parametrize(
    "how, device, match",
    [
        ({"processes": 2, "ray": "local"}, "cpu", "two ways"),
        ({"processes": 0}, "cpu", "at least 1"),
        ({"processes": "many"}, "cpu", "at least 1"),
        ({"processes": 2}, "cuda:1", "every process gets its own"),
        ({"ray": "local"}, "cuda:0", "every process gets its own"),
    ],
)
def test_ways_that_cannot_be(how, device, match):
    with (
        pytest.raises(ValueError, match=match),
        reproduce.workers(how.get("processes"), how.get("ray"), device),
    ):
        pass


def test_each_process_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = []
    for number in range(3):
        reproduce.prepare_process(2, number)
        found.append(os.environ.pop("CUDA_VISIBLE_DEVICES"))
    assert found == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-7")
    reproduce.prepare_process(2, 1)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-7"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    reproduce.prepare_process(0, 1)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_task_takes_a_gpu_where_there_is_one():
    some, none = {"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0}
    assert reproduce.resources_of_a_stack("auto", some) == {"num_cpus": 1, "num_gpus": 1}
    assert reproduce.resources_of_a_stack("cpu", some) == reproduce.resources_of_a_stack("auto", none)
    assert reproduce.resources_of_a_stack("auto", none) == {"num_cpus": 1, "num_gpus": 0}
    with pytest.raises(ValueError, match="no GPU"):
        reproduce.resources_of_a_stack("cuda", none)


def test_without_ray_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install ray"), parallel.connected(None):
        pass


def test_flags_that_may_stand_alone(tmp_path, capsys):
    assert parsed("reproduce mnist --ray".split()).ray == LOCAL_RAY
    alone = parsed("reproduce mnist --ray --all".split())
    assert (alone.ray, alone.all) == (LOCAL_RAY, True)
    assert parsed("reproduce mnist --ray a:1 --all".split()).ray == "a:1"
    assert parsed("run --tensorboard".split()).tensorboard == IN_RUN_FOLDER
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "--ray", "mnist", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "put mnist before --ray" in capsys.readouterr().err
