"""One training by several processes is the training of one: the same picks, the same weights, one folder."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

import distributed_work
from coteach.data import Dataset
from coteach.engine import setup
from coteach.engine.distributed import ONE_PROCESS, Processes
from coteach.methods import METHODS
from coteach.runs import folder as files
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.runs.progress import refuse_different
from coteach.runs.run import refusing_to_halve, run
from coteach.train import fit
from tiny import EVERYTHING, PLAN, mlp, normed, pictured, pictures

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src")}

Launched = Callable[..., list[tuple[int, str, str]]]


@pytest.fixture(scope="module")
def launched(tmp_path_factory) -> Iterator[Launched]:
    """launched(size, what, *arguments): exit code, output and errors of each process; see distributed_work.py."""
    program = subprocess.Popen(
        [sys.executable, HERE / "distributed_work.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip

    def work(size: int, what: str, *arguments: str | Path) -> list[tuple[int, str, str]]:
        folder = tmp_path_factory.mktemp("words")
        program.stdin.write(json.dumps([size, what, [str(a) for a in arguments], str(folder)]) + "\n")
        program.stdin.flush()
        codes = json.loads(program.stdout.readline())
        words = [[(folder / f"{rank}.{stream}").read_text() for stream in ("out", "err")] for rank in range(size)]
        return [(code, *said) for code, said in zip(codes, words, strict=True)]

    yield work
    program.stdin.close()
    program.stdout.close()
    program.wait()


# ---- every method, by 1, 2 and 4 processes --------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return distributed_work.all_trained(ONE_PROCESS)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_every_method_picks_and_learns_the_same_in_any_number_of_processes(size, launched, alone, tmp_path):
    for code, _, words in launched(size, "fits", tmp_path):
        assert code == 0, words
    of_rank = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(size)]
    for theirs in of_rank[1:]:  # to the bit, or the processes would drift apart
        assert theirs.keys() == of_rank[0].keys()
        for key, t in theirs.items():
            torch.testing.assert_close(t, of_rank[0][key], rtol=0, atol=0, equal_nan=True, msg=key)
    assert of_rank[0].keys() == alone.keys()
    for key, mine in of_rank[0].items():
        case, _, what = key.partition("/")
        if case.startswith("normed"):
            continue
        if what == "rows":
            assert_same_rows(as_rows(mine), as_rows(alone[key]))
        elif not mine.is_floating_point():
            assert torch.equal(mine, alone[key]), key
        else:
            torch.testing.assert_close(mine, alone[key], rtol=1e-6, atol=1e-6, equal_nan=True, msg=key)
    assert_normed_by_parts(of_rank[0], alone)


def assert_normed_by_parts(mine: dict[str, Tensor], whole: dict[str, Tensor]) -> None:
    """While nothing moves, equal parts' running means average to the whole's; their variances do not."""
    mean, variance = (f"normed and still/stack.buffer.1.running_{what}" for what in ("mean", "var"))
    torch.testing.assert_close(mine[mean], whole[mean], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(mine[variance], whole[variance], rtol=1e-3)


def test_the_cases_would_show_a_difference(alone):
    """Where everything were picked always, or nothing learnt, equality would say little."""
    for key, picks in alone.items():
        case, _, what = key.partition("/")
        if what == "picks" and not case.startswith(("standard", "f_correction", "normed and still")):
            assert 0 < picks.double().mean() < 1, case
    events = {event for row in as_rows(alone["poisoned/rows"]) for event in row["events"]}
    assert "non_finite_loss" in events


def as_rows(text: Tensor) -> list[dict]:
    return [row for epoch in json.loads(bytes(text.tolist())) for row in epoch]


def assert_same_rows(found: list[dict], expected: list[dict]) -> None:
    assert len(found) == len(expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in mine.items():
            exact = key == "events" or theirs[key] is None
            near = theirs[key] if exact else pytest.approx(theirs[key], rel=1e-6, abs=1e-6)
            assert value == near, (
                mine["seed"],
                mine["epoch"],
                key,
            )


def part_of(rank: int, size: int) -> Processes:
    processes = Processes()
    processes.rank, processes.size = rank, size
    return processes


@given(st.integers(0, 1000), st.integers(1, 40))
def test_parts_are_everything_once_and_nearly_equal(n, size):
    parts = [range(n)[part_of(rank, size).part(n)] for rank in range(size)]
    assert [i for part in parts for i in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


# ---- whole runs -----------------------------------------------------------------------------------------------

DIGITS = Experiment(
    method="coteaching_plus",
    noise="pair",
    rate=0.45,
    epochs=4,
    warmup=1,
    batch_size=150,
    seeds=(1, 2),
    device="cpu",
)
COMMAND = [
    "run", "--method", "coteaching_plus", "--noise", "pair", "--rate", "0.45", "--epochs", "4", "--warmup", "1",
    "--batch-size", "150", "--seeds", "1", "2", "--device", "cpu",
]  # fmt: skip


def quiet(line: str) -> None:
    pass


def weights(folder: Path) -> dict[str, Tensor]:
    return {
        f"{path.name}/{name}": t
        for path in sorted((folder / "networks").iterdir())
        for name, t in load_file(path).items()
    }


def assert_same_run(mine: Path, theirs: Path, tolerance: float) -> None:
    assert sorted(p.name for p in mine.iterdir()) == sorted(p.name for p in theirs.iterdir())
    assert_same_rows(files.read_rows(mine / "metrics.jsonl"), files.read_rows(theirs / "metrics.jsonl"))
    found, expected = weights(mine), weights(theirs)
    assert found.keys() == expected.keys()
    for name, t in found.items():
        torch.testing.assert_close(t, expected[name], rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.slow
def test_torchrun_writes_the_folder_of_one_process_and_a_killed_one_is_resumed(launched, tmp_path):
    whole = run(replace(DIGITS, out=tmp_path / "alone"), say=quiet).folder
    by_torchrun = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "coteach",
         *COMMAND, "--out", tmp_path / "two"],
        env=ENVIRONMENT, capture_output=True, text=True,
    )  # fmt: skip
    assert by_torchrun.returncode == 0, by_torchrun.stderr
    assert by_torchrun.stdout.count("written to") == 1
    assert_same_run(tmp_path / "two", whole, 1e-5)

    dead = tmp_path / "dead"
    (code, _, words), (killed, *_) = launched(2, "dying", "14", *COMMAND, "--out", dead)
    assert killed == -9
    assert code == 2
    assert words.count("\n") == 1
    assert "another process of this training has ended" in words
    assert f"`--resume {dead}` goes on" in words
    assert not (dead / "summary.json").exists()
    shutil.copytree(dead, tmp_path / "fewer")
    fewer = run(Experiment(resume=tmp_path / "fewer"), say=quiet).folder  # by one process instead of two
    assert_same_run(fewer, whole, 1e-5)
    for code, _, words in launched(2, "command", "run", "--resume", dead):
        assert code == 0, words
    assert_same_run(dead, tmp_path / "two", 0)  # to the bit
    assert (dead / "metrics.jsonl").read_bytes() == (tmp_path / "two" / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_the_example_runs_in_two_processes_and_one_of_them_prints(launched):
    (code, out, words), (other, nothing, _) = launched(
        2, "example", HERE.parent / "examples" / "many_devices.py", "--epochs", "2", "--samples", "200"
    )
    assert code == other == 0, words
    assert "2 processes" in out
    assert nothing == ""


def test_only_run_is_for_several_processes():
    done = subprocess.run(
        [sys.executable, "-m", "coteach", "data"],
        env=ENVIRONMENT | {"WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "coteach: several processes train together in `coteach run` only.\n"


# ---- what is refused ------------------------------------------------------------------------------------------


class Second(Processes):
    """A second process that is given something else than it would make itself."""

    rank, size = 1, 2

    def __init__(self, other):
        self.other = other

    def broadcast(self, make):
        return self.other


def test_processes_that_were_given_different_things_are_refused():
    config = {"plan": {"lr": 0.1}, "data": {"sha256": "a"}, "hardware": {"name": "this"}}
    refuse_different(Second([config | {"hardware": {"name": "that"}}]), [config])
    with pytest.raises(ValueError, match=r"process 1 has data.sha256 a, but the first has b"):
        refuse_different(Second([config | {"data": {"sha256": "b"}}]), [config])


def test_parts_of_nothing_are_refused_and_of_one_where_a_network_normalises():
    setup.refuse_small_batches(mlp(), replace(PLAN, batch_size=4), 4)
    with pytest.raises(ValueError, match="batch_size is 3, which 4 processes share: give at least 4"):
        setup.refuse_small_batches(mlp(), replace(PLAN, batch_size=3), 4)
    with pytest.raises(ValueError, match="give at least 8"):
        setup.refuse_small_batches(normed(), replace(PLAN, batch_size=7), 4)


def test_mixtures_are_made_in_one_process():
    """The second sample of a mixture may lie in another process."""
    with pytest.raises(ValueError, match="^mixup mixes samples of a whole mini-batch: train in one process, or"):
        fit(pictures(), METHODS["coteaching"], EVERYTHING, pictured, processes=part_of(0, 2))


def test_the_number_of_processes_decides_the_result_of_a_network_that_normalises_and_of_no_other(monkeypatch):
    pixels = torch.zeros(40, 3, 32, 32, dtype=torch.uint8).numpy()
    images = Dataset.from_arrays(pixels, np.arange(40) % 2, pixels, np.arange(40) % 2)
    monkeypatch.setattr(prepare, "join", lambda device: Second(None))

    def prepared(**more):
        experiment = prepare.named_after(images, Experiment(batch_size=8, epochs=2, device="cpu", tau=0.1, **more))
        return prepare.prepare([experiment], images, None)

    assert prepared(network="cnn7").configs(1)[0]["engine"]["processes"] == 2
    assert prepared(network="mlp").configs(1)[0]["engine"]["processes"] is None
    with pytest.raises(ValueError, match="iterative trains in one process"):
        prepared(network="cnn7_dense", method="iterative")


def test_several_processes_do_not_halve_their_groups_each_for_itself():
    with pytest.raises(torch.OutOfMemoryError), refusing_to_halve(1):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    with pytest.raises(ValueError, match="smaller --group"), refusing_to_halve(2):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    with pytest.raises(RuntimeError, match="something else"), refusing_to_halve(2):
        raise RuntimeError("something else")


def test_each_process_takes_the_gpu_of_its_number(monkeypatch):
    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert setup.own_device("cuda:1") == "cuda:1"  # alone
    monkeypatch.setattr(setup, "world_size", lambda: 2)
    assert [setup.own_device(name) for name in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    assert taken == [1, 1]
    with pytest.raises(ValueError, match="each process takes a GPU of its own"):
        setup.own_device("cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="more processes than the 2 GPUs"):
        setup.own_device("auto")
