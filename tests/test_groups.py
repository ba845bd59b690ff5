"""Runs in groups, and groups that do not fit: nothing lost, nothing twice, the same results."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coteach.runs import run as runner
from coteach.runs.experiment import Experiment
from coteach.runs.folder import read_rows
from coteach.runs.run import in_groups, run
from run_cases import crowded


@pytest.mark.slow
@given(runs=st.integers(1, 40), size=st.integers(1, 50), room=st.integers(1, 50))
def test_every_run_is_trained_once_in_order_and_in_groups_that_fit(runs, size, room):
    begun, halved = [], []

    def train(group: range) -> range:
        begun.append(group)
        if len(group) > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return group

    done, waiting = [], [range(i, min(i + size, runs)) for i in range(0, runs, size)]

    def one_more(group: range, trained: range) -> None:
        assert trained == group
        assert group not in waiting
        done.append(group)

    in_groups(waiting, train, one_more, halved.append)
    assert [run for group in done for run in group] == list(range(runs))
    assert all(1 <= len(group) <= min(size, room) for group in done)
    assert halved == [group for group in begun if len(group) > room]
    assert len(begun) == len(done) + len(halved)


@pytest.mark.parametrize("error", [RuntimeError("something else"), ValueError("a mistake")])
def test_other_errors_are_not_out_of_memory(error):
    def train(group: range) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        in_groups([range(4)], train, lambda *done: None, lambda group: None)


@pytest.mark.slow
def test_one_run_that_does_not_fit_is_an_error():
    def train(group: range) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(RuntimeError, match="allocate"):
        in_groups([range(4)], train, lambda *done: None, lambda group: None)


EXPERIMENT = Experiment(
    method="f_correction", epochs=3, seeds=(1, 2, 3, 4, 5), tau=0.2, noise="symmetric", rate=0.2, batch_size=16
)


def rows_by_run(folder) -> dict:
    return {(row["seed"], row["epoch"]): row for row in read_rows(folder / "metrics.jsonl")}


def test_groups_change_nothing(tmp_path, dataset):
    whole, parts = (
        run(replace(EXPERIMENT, out=tmp_path / str(group), group=group), dataset, say=lambda line: None)
        for group in (5, 2)
    )
    assert rows_by_run(parts.folder).keys() == rows_by_run(whole.folder).keys()
    for key, row in rows_by_run(whole.folder).items():
        mine = rows_by_run(parts.folder)[key]
        assert mine["test_accuracy"] == row["test_accuracy"]
        assert mine["train_loss"] == pytest.approx(row["train_loss"], rel=1e-4)  # float32, other sums
    for seed in EXPERIMENT.seeds:
        mine, theirs = parts.network(0, seed), whole.network(0, seed)
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="no run with seed 9"):
        whole.network(0, 9)


@pytest.mark.slow
def test_a_group_that_runs_out_of_memory_goes_on_in_halves(tmp_path, dataset, monkeypatch):
    """In the second training, when rows of the first are already written."""
    real, left = runner.fit, []

    def fit_in_little_room(problem, *arguments, on_epoch, **named):
        def crowded(epoch):
            on_epoch(epoch)
            left.append(weakref.ref(epoch.training.stack))
            if len(problem.seeds) > 2 and epoch.number == 2 and not epoch.preliminary:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        return real(problem, *arguments, on_epoch=crowded, **named)

    said: list[str] = []
    whole = run(replace(EXPERIMENT, out=tmp_path / "whole", group=2), dataset, say=lambda line: None)
    monkeypatch.setattr(runner, "fit", fit_in_little_room)
    result = run(replace(EXPERIMENT, out=tmp_path / "halved"), dataset, say=said.append)
    assert "5 runs together do not fit into memory: going on with 2 at a time" in said
    assert len(result.rows) == 15
    found = rows_by_run(result.folder)
    assert len(read_rows(result.folder / "metrics.jsonl")) == len(found) == 15
    assert len(read_rows(result.folder / "estimate.jsonl")) == 15
    assert result.summary["events"]["out_of_memory"] == 5
    for (seed, epoch), row in rows_by_run(whole.folder).items():
        events = dict(found[seed, epoch]["events"])
        assert events.pop("out_of_memory", None) == (1 if epoch == 1 else None)
        assert found[seed, epoch] | {"events": events} == row
    gc.collect()
    del result
    gc.collect()
    assert not any(stack() for stack in left)  # nothing holds on to what did not fit


def test_a_machine_out_of_memory_is_halved_too_and_those_that_wait_with_it():
    begun = []

    def train(group: range) -> range:
        begun.append(group)
        if len(group) > 2:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")
        return group

    done, waiting = [], [range(4), range(4, 8)]
    in_groups(waiting, train, lambda group, trained: done.append((group, trained)), lambda group: None)
    assert done == [(g, g) for g in (range(2), range(2, 4), range(4, 6), range(6, 8))]
    assert not waiting
    assert [len(group) for group in begun] == [4, 2, 2, 2, 2]


@pytest.mark.slow
def test_a_run_begun_again_twice_says_so(tmp_path, dataset, monkeypatch):
    crowded(monkeypatch)
    experiment = Experiment(method="standard", epochs=2, tau=0.2, seeds=(1, 2, 3, 4), out=tmp_path / "o")
    run(experiment, dataset, say=lambda line: None)
    rows = {(row["seed"], row["epoch"]): row for row in read_rows(tmp_path / "o" / "metrics.jsonl")}
    assert [rows[seed, 1]["events"].get("out_of_memory") for seed in (1, 2, 3, 4)] == [2, 2, 1, 1]
    assert not any("out_of_memory" in rows[seed, 2]["events"] for seed in (1, 2, 3, 4))
