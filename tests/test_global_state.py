"""A call of the library leaves alone what belongs to the whole process, and gives the same in any thread."""

import csv
import os
import signal
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from coteach import Ledger, Pair, RobustClassifier, Selection, SelectiveTrainingClassifier, encode
from coteach.audit.tables import read_csv
from coteach.engine.setup import Setup
from coteach.files import npy_header
from coteach.isolation import generators_restored, one_at_a_time
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from estimator_cases import Dropping, quick, three_clouds
from resume_cases import experiment, stopped
from run_cases import silent

X, Y = three_clouds(60)
IMAGES = np.random.default_rng(0).random((24, 8, 8)).astype(np.float32)


def convolving(n_classes):
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, n_classes))


def means(x):
    return x.mean((2, 3))


def process_state() -> dict:
    return {
        "paths": list(sys.path),
        "torch's generator": torch.get_rng_state().tolist(),
        "NumPy's generator": np.random.get_state()[1].tolist(),
        "threads": torch.get_num_threads(),
        "determinism": torch.get_deterministic_debug_mode(),
        "precision": torch.backends.cuda.matmul.fp32_precision,
        "grad": torch.is_grad_enabled(),
        "type": torch.get_default_dtype(),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "variables": dict(os.environ),
        "folder": Path.cwd(),
        "cells": csv.field_size_limit(),
    }


def own_loop() -> np.ndarray:
    """A pair, a selection and a ledger."""
    pair = Pair(lambda: nn.Sequential(nn.Linear(X.shape[1], 8), nn.ReLU(), nn.Linear(8, 3)))
    selection = Selection("coteaching", noise_rate=0.2, steps=3, ledger=Ledger(len(X)))
    for _ in range(3):
        selection(pair(torch.tensor(X).float()), torch.tensor(Y), range(len(X))).backward()
        selection.next_epoch()
    return selection.ledger.quality()


def linear_rounds() -> np.ndarray:
    return SelectiveTrainingClassifier(random_state=0).fit(X, Y).predict_proba(X)


CALLS = {
    "rounds": linear_rounds,
    "loop": own_loop,
    "encoder": lambda: encode((IMAGES[:2, None] * 255).astype(np.uint8), "efficientnet-lite0", size=32),
    "code of one's own": lambda: encode(IMAGES[:2, None], "test_global_state:means"),
    "mlp": lambda: quick().fit(X, Y).networks_proba(X),
    "estimating": lambda: quick(noise_rate="auto").fit(X, Y).networks_proba(X),
    "dropout": lambda: quick(module=Dropping).fit(X, Y).networks_proba(X),
    "convolutions": lambda: quick(module=convolving, epochs=2).fit(IMAGES, Y[:24]).networks_proba(IMAGES),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_fits_in_threads_are_those_of_one_thread(name):
    before = process_state()
    alone = CALLS[name]()
    assert process_state() == before
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: CALLS[name](), range(6)))
    assert all(np.array_equal(one, alone) for one in together)
    assert process_state() == before


@pytest.mark.slow
def test_an_export_to_onnx_leaves_everything(tmp_path, monkeypatch):
    """torch.export sets a variable."""
    pytest.importorskip("onnxscript")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    model = quick(epochs=1).fit(X, Y)
    before = process_state()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: model.export_onnx(tmp_path / f"{n}.onnx"), range(2)))
    assert process_state() == before
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()


def test_networks_made_and_read_in_threads_leave_the_generator(tmp_path):
    quick(epochs=1).fit(X, Y).save(tmp_path / "model")
    before = process_state()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: RobustClassifier.load(tmp_path / "model"), range(24)))
    assert process_state() == before


def test_a_run_and_one_that_goes_on_leave_the_generator(tmp_path):
    before = process_state()
    stopped([experiment("coteaching", seeds=(1,), out=tmp_path / "run")], 2)
    torch.rand(3)
    torch.set_rng_state(torch.get_rng_state())
    between = process_state()
    result = run(Experiment(resume=tmp_path / "run"), say=silent)
    result.network()
    assert process_state() == between
    assert before | {"torch's generator": 0} == between | {"torch's generator": 0}


def test_what_torch_sets_for_itself_goes_with_the_training(monkeypatch):
    """A compilation sets the first variable, wherever it is; cuBLAS needs the second for determinism."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    from coteach.engine import Engine

    before = process_state()
    with Setup("cpu", Engine(), 1, deterministic=True).active():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = "somewhere"
        assert torch.are_deterministic_algorithms_enabled()
    assert process_state() == before


def test_no_two_threads_are_inside_at_once_and_one_may_be_twice():
    inside, most = [], []

    def work(_):
        with one_at_a_time(), generators_restored():
            inside.append(1)
            most.append(len(inside))
            torch.rand(10)
            inside.pop()

    before = process_state()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(50)))
    assert max(most) == 1
    assert process_state() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_during_a_training_does_not_wait_for_it():
    entered, leave = threading.Event(), threading.Event()

    def train():
        with one_at_a_time():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=train)
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        with one_at_a_time():
            os._exit(0)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_reading_in_threads_leaves_filters_and_limits(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},{'x' * 200_000}\n" for i in range(3)))

    def work(i):
        for _ in range(20):
            with (tmp_path / "a.npy").open("rb") as file:
                npy_header(file)
            assert len(read_csv(tmp_path / "t.csv")) == 3

    before = process_state()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert process_state() == before
