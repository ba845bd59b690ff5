"""How a training is run when nobody says: the rules, and what overrides them."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn

from coteach import networks
from coteach.engine import setup
from coteach.engine.precision import Precision
from coteach.engine.setup import Options, choose_engine, choose_threads
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs.experiment import Experiment

KERNELS_RUN = setup.kernels_run
PAIR = METHODS["coteaching"]
SHAPES = {"mlp": (1, 28, 28)}  # of any other network: (3, 32, 32)


def engine(name: str, device: str = "cuda", networks_in_all: int = 2, epochs: int = 200, method=PAIR.name, **said):
    network = networks.build(name, shape=SHAPES.get(name, (3, 32, 32)), n_classes=10)
    return choose_engine(
        network, networks_in_all, METHODS[method], Plan(epochs=epochs), 60_000, device, Options(**said)
    )


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    monkeypatch.setattr(setup, "can_compile", lambda: True)
    monkeypatch.setattr(setup, "kernels_run", lambda device: True)


@pytest.mark.parametrize(
    "name, device, in_all, batched",
    [
        ("mlp", "cuda", 2, True),
        ("mlp", "cuda:1", 30, True),
        ("mlp", "cpu", 2, False),  # a large product each is enough for a CPU
        ("small_cnn", "cuda", 1, False),
        ("small_cnn", "cuda", 2, True),
        ("small_cnn", "cuda", 30, True),
        ("small_cnn", "cpu", 30, False),
        ("cnn7", "cuda", 30, False),
    ],
)
def test_what_is_batched(name, device, in_all, batched):
    assert engine(name, device, in_all).batched is batched
    assert engine(name, device, in_all, stack="batched").batched
    assert not engine(name, device, in_all, stack="loop").batched


def test_without_our_kernels_a_pair_of_convolutional_networks_is_faster_in_a_loop(monkeypatch):
    for precision in ("float32", "bf16"):
        assert not engine("small_cnn", precision=precision).batched
        assert engine("small_cnn", networks_in_all=3, precision=precision).batched
    unpooled = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.Flatten())
    assert not choose_engine(unpooled, 2, PAIR, Plan(), 60_000, "cuda").batched
    assert choose_engine(unpooled[:3], 2, PAIR, Plan(), 60_000, "cuda").batched
    monkeypatch.setattr(setup, "kernels_run", lambda device: False)
    assert not engine("small_cnn").batched


def test_small_networks_are_batched_on_a_cpu():
    small = networks.build("mlp", shape=(64,), n_classes=10)
    assert choose_engine(small, 2, PAIR, Plan(batch_size=64), 1000, "cpu").batched


def test_a_recurrent_network_is_never_batched():
    network = nn.Sequential(nn.Conv1d(1, 1, 1), nn.LSTM(4, 4))
    assert not choose_engine(network, 30, PAIR, Plan(), 1000, "cuda").batched


def test_only_convolutions_on_a_gpu_leave_float32():
    assert engine("mlp").precision is Precision.FLOAT32
    assert engine("cnn7").precision is Precision.TF32
    assert engine("cnn7", "cpu").precision is Precision.FLOAT32
    for name in ("float32", "tf32", "bf16"):
        assert engine("cnn7", precision=name).precision is Precision(name)


@pytest.mark.parametrize("can, precision", [(True, Precision.BF16), (False, Precision.FLOAT32)])
def test_on_a_cpu_only_the_fast_network_goes_in_half_and_only_where_that_is_faster(monkeypatch, can, precision):
    monkeypatch.setattr(setup, "cpu_multiplies_in_half", lambda: can)
    assert engine("fast_cnn", "cpu").precision is precision
    assert engine("fast_cnn", "cpu", precision="float32").precision is Precision.FLOAT32
    assert engine("cnn7", "cpu").precision is Precision.FLOAT32


def test_long_trainings_on_a_gpu_are_compiled(monkeypatch):
    assert engine("mlp").compiled
    assert not engine("mlp", epochs=20).compiled
    assert not engine("mlp", networks_in_all=30, epochs=20).compiled
    assert engine("preact_resnet18", epochs=20).compiled  # few steps, but large ones
    assert not engine("preact_resnet18", epochs=10).compiled
    assert engine("mlp", epochs=20, compile="yes").compiled
    assert not engine("mlp", compile="no").compiled
    assert not engine("mlp", deterministic=True).compiled
    assert not engine("mlp", "cpu").compiled
    with pytest.raises(ValueError, match="on a CPU"):
        engine("mlp", "cpu", compile="yes")
    monkeypatch.setattr(setup, "can_compile", lambda: False)
    assert not engine("mlp").compiled


def test_only_batched_networks_in_tf32_are_pooled(monkeypatch):
    assert engine("small_cnn", networks_in_all=30).pooled
    assert not engine("small_cnn", "cpu", 30, stack="batched", precision="tf32").pooled
    assert not engine("small_cnn", networks_in_all=30, stack="loop").pooled
    for precision in ("float32", "bf16"):
        assert not engine("small_cnn", networks_in_all=30, precision=precision).pooled
    monkeypatch.setattr(setup, "kernels_run", lambda device: False)
    assert not engine("small_cnn", networks_in_all=30).pooled


@pytest.mark.parametrize("capability, pooled_convolution, runs", [
    ((9, 0), lambda *tensors: None, True),
    ((7, 5), lambda *tensors: None, False),
    ((9, 0), lambda *tensors: 1 / 0, False),
])  # fmt: skip
def test_kernels_that_cannot_be_built_are_left_out(capability, pooled_convolution, runs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: None)
    monkeypatch.setattr(setup, "pooled_convolution", pooled_convolution)
    assert KERNELS_RUN.__wrapped__("cuda") is runs


def test_a_gpu_captures():
    assert engine("mlp").captured
    assert not engine("mlp", "cpu").captured


def test_threads_follow_the_work_of_a_step(monkeypatch):
    monkeypatch.setattr(setup.torch, "get_num_threads", lambda: 8)
    small, large = (networks.build("mlp", shape=(n,), n_classes=10) for n in (64, 784))
    assert choose_threads(small, 2, Plan(batch_size=64)) == 1
    assert choose_threads(large, 2, Plan()) == 8
    assert choose_threads(small, 200, Plan()) == 8
    assert choose_threads(networks.build("small_cnn", shape=(3, 32, 32), n_classes=10), 1, Plan(batch_size=2)) == 8


def test_the_choices_are_written_down(tmp_path, dataset):
    import tomllib

    from coteach.runs.run import run

    experiment = Experiment(epochs=1, tau=0.1, batch_size=16, seeds=(1, 2, 3), out=tmp_path / "run")
    folder = run(replace(experiment, group=2), dataset, say=lambda line: None).folder
    assert tomllib.loads((folder / "config.toml").read_text())["engine"] == {
        "device": "cpu",
        "precision": "float32",
        "batched": True,
        "compiled": False,
        "captured": False,
        "pooled": False,
        "streamed": False,
        "group": 2,
    }
