"""Convolution, ReLU and max-pool as one operator: what it is, when it is taken, and its place in a stack."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import pooling_cases
from coteach.engine import pooling
from coteach.engine.pooling import PooledSequential, can_pool, pool_convolutions
from coteach.engine.stack import Stack
from coteach.networks.models import SmallCNN

pooling.convolved.register_kernel("cpu")(pooling_cases.forward)
pooling.convolved_backward.register_kernel("cpu")(pooling_cases.backward)

TESTS = Path(__file__).parent


def test_the_operator_is_torch():
    pooling_cases.assert_the_operator_is_torch("cpu")
    pooling_cases.assert_nan_goes_through("cpu")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_interpreted_are_torch():
    paths = os.pathsep.join([str(TESTS), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, TESTS / "pooling_cases.py"], env=environment, check=True)


@pytest.mark.slow
def test_the_operator_is_what_it_says_of_itself():
    """Its fake for the compiler, its gradient and its schema, as torch checks them."""
    x, w, b = pooling_cases.case(*pooling_cases.SHAPES[0])
    w_GFKO = torch.randn(2, 4, 3 * 6 * 6, 6)
    arguments = (x.requires_grad_(), w_GFKO.requires_grad_(), b.requires_grad_())
    torch.library.opcheck(pooling.convolved, arguments)
    y, place = pooling.convolved(*arguments)
    for with_input in (True, False):
        arguments = (torch.ones_like(y), x.detach(), w_GFKO.detach(), place, with_input)
        torch.library.opcheck(pooling.convolved_backward, arguments)


def block(conv: nn.Module | None = None, relu: nn.Module | None = None, pool: nn.Module | None = None) -> list:
    return [conv or nn.Conv2d(2, 3, 5), relu or nn.ReLU(), pool or nn.MaxPool2d(2)]


class Subclassed(nn.Conv2d):
    pass


NOT_POOLED = {
    "padding": block(nn.Conv2d(2, 3, 5, padding=2)),
    "padding by a word": block(nn.Conv2d(2, 3, 5, padding="same")),
    "a stride": block(nn.Conv2d(2, 3, 3, stride=2)),
    "dilation": block(nn.Conv2d(2, 3, 3, dilation=2)),
    "groups": block(nn.Conv2d(2, 4, 5, groups=2)),
    "no bias": block(nn.Conv2d(2, 3, 5, bias=False)),
    "an even kernel": block(nn.Conv2d(2, 3, 4)),
    "an oblong kernel": block(nn.Conv2d(2, 3, (3, 5))),
    "a convolution of one's own": block(Subclassed(2, 3, 5)),
    "another activation": block(relu=nn.Softsign()),
    "a larger pool": block(pool=nn.MaxPool2d(3)),
    "an overlapping pool": block(pool=nn.MaxPool2d(2, 1)),
    "a padded pool": block(pool=nn.MaxPool2d(2, padding=1)),
    "a mean": block(pool=nn.AvgPool2d(2)),
    "an end before the pool": block()[:2],
    "a larger patch than was timed": block(nn.Conv2d(2, 3, 11)),
    "more channels than were timed": block(nn.Conv2d(2, 33, 5)),
}


@pytest.mark.parametrize("modules", NOT_POOLED.values(), ids=NOT_POOLED)
def test_what_the_operator_cannot_do_is_left_to_the_modules(modules, monkeypatch):
    monkeypatch.setattr(pooling, "convolved", None)
    x = torch.rand(2, 2, 14, 14)
    assert torch.equal(PooledSequential(*modules)(x), nn.Sequential(*modules)(x))


@pytest.mark.parametrize(
    "x, pooled",
    [
        (torch.rand(2, 2, 14, 14), True),
        (torch.rand(2, 2, 6, 8), True),
        (torch.rand(2, 2, 13, 14), False),
        (torch.rand(2, 2, 14, 13), False),
        (torch.rand(2, 2, 14, 14).double(), False),
    ],
)
def test_which_images_are_pooled(x, pooled):
    conv, *after = block()
    assert can_pool(conv, after, x) is pooled


def test_images_of_other_channels_are_refused_as_torch_does():
    with pytest.raises(RuntimeError, match="channels"):
        PooledSequential(*block())(torch.rand(1, 8, 14, 14))


def test_one_image_without_a_batch():
    modules, x = block(), torch.rand(2, 14, 14)
    assert torch.equal(PooledSequential(*modules)(x), nn.Sequential(*modules)(x))


@pytest.mark.parametrize("i", range(3))
def test_modules_with_hooks_are_called(i):
    modules, x = block(), torch.rand(1, 2, 14, 14)
    modules[i].register_forward_hook(lambda module, inputs, output: output * 2)
    assert torch.equal(PooledSequential(*modules)(x), nn.Sequential(*modules)(x))


class Views(nn.Module):
    """One network for several views of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(*block(), nn.Flatten(), nn.Linear(75, 3))

    def forward(self, x):
        return torch.func.vmap(self.network, in_dims=1)(x).mean(0)


def test_a_network_that_maps_over_views():
    x_NRB = torch.rand(2, 2, 4, 5, 2, 14, 14)
    plain, pooled = (Stack(Views, [1, 2], 2, batched=True, pooled=pooled)(x_NRB) for pooled in (False, True))
    torch.testing.assert_close(pooled, plain)


def test_a_part_of_a_sequence_is_pooled():
    plain = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), *block(), nn.Flatten(), nn.Linear(75, 3))
    pooled = PooledSequential(*plain)
    x = torch.rand(4, 1, 14, 14)
    torch.testing.assert_close(pooled(x), plain(x))


@pytest.mark.parametrize("shared", [True, False], ids=["the same samples", "samples of their own"])
def test_a_pooled_stack_is_the_same_stack(shared):
    plain, pooled = (
        Stack(lambda: SmallCNN(10), [1, 2, 3], 2, batched=True, pooled=pooled) for pooled in (False, True)
    )
    assert type(pooled.modules[0].convolutions) is PooledSequential
    x_NRB = torch.rand(2, 3, 4, 3, 32, 32)
    if shared:
        x_NRB = x_NRB[:1].expand(2, -1, -1, -1, -1, -1)
    outcomes = []
    for stack in (plain, pooled):
        logits = stack(x_NRB)
        outcomes.append((logits.detach(), *stack.gradients(logits.square().sum(-1), torch.ones(2, 3, 4))))
    torch.testing.assert_close(*outcomes)
    x_B = x_NRB[0, 0]
    for n, r in ((0, 0), (1, 2)):
        network = pooled.network(n, r)
        assert type(network.convolutions) is nn.Sequential
        assert torch.equal(network(x_B), plain.network(n, r)(x_B))


@pytest.mark.parametrize("frozen", [(0,), (3,), (0, 3)], ids=str)
def test_frozen_convolutions_are_pooled_too(frozen):
    def build() -> nn.Module:
        network = nn.Sequential(*block(), *block(nn.Conv2d(3, 4, 1)), nn.Flatten(), nn.Linear(36, 3))
        for i in frozen:
            network[i].requires_grad_(False)
        return network

    x_NRB = torch.rand(2, 2, 4, 2, 16, 16)
    outcomes = []
    for pooled in (False, True):
        stack = Stack(build, [1, 2], 2, batched=True, pooled=pooled)
        logits = stack(x_NRB)
        outcomes.append((logits.detach(), *stack.gradients(logits.square().sum(-1), torch.ones(2, 2, 4))))
    torch.testing.assert_close(*outcomes)


@pytest.mark.slow
def test_the_compiler_takes_a_pooled_stack_as_a_whole():
    """A training would go on without it where it could not, and only be slower."""
    stack = Stack(lambda: SmallCNN(3), [1, 2], 2, batched=True, pooled=True)
    x_NRB = torch.rand(2, 4, 3, 32, 32).expand(2, -1, -1, -1, -1, -1)
    compiled = torch.compile(stack._batched, backend="aot_eager", fullgraph=True, dynamic=False)
    outcomes = []
    for forward in (stack._batched, compiled):
        logits = forward(x_NRB)
        outcomes.append((logits.detach(), *stack.gradients(logits.square().sum(-1), torch.ones(2, 2, 4))))
    torch.testing.assert_close(*outcomes)


def test_one_batch_of_a_whole_stack_is_evaluated_in_one_call():
    stack = Stack(lambda: SmallCNN(10), [1, 2, 3], 2, batched=True, pooled=True)
    x_B = torch.rand(4, 3, 32, 32)
    with stack.evaluating():
        logits = stack(x_B.expand(2, 3, -1, -1, -1, -1))
    torch.testing.assert_close(logits[1, 2], stack.network(1, 2)(x_B))


def test_other_modules_are_left_as_they_are():
    network = nn.ModuleDict({"a": nn.Sequential(*block()), "b": nn.ModuleList([nn.Sequential(nn.ReLU())])})
    pool_convolutions(network)
    assert [type(m) for m in network.modules()].count(PooledSequential) == 2
    assert type(network) is nn.ModuleDict
