"""A stack against the plain modules it is made of: batched, looped, one by one."""

import copy

import pytest
import torch
from torch import Tensor, nn

from coteach.engine.precision import PaddedConv2d, pad_convolutions, unpad_convolutions
from coteach.engine.stack import Stack, batches_well
from tiny import convolutional

SEEDS, N, B, F, C = [3, 5, 8], 2, 6, 8, 3


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(F, 7), nn.ReLU(), nn.Linear(7, C))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(F, 7), nn.BatchNorm1d(7), nn.Softsign(), nn.Linear(7, C))


BUILDS = {"mlp": mlp, "normed": normed, "convolutional": convolutional}


def inputs(seed: int = 0, batch: int = B) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, len(SEEDS), batch, F, generator=generator, dtype=torch.float64)


def make(name: str, **options) -> Stack:
    return Stack(BUILDS[name], SEEDS, N, dtype=torch.float64, **options)


def moved(stack: Stack, steps: int = 3) -> tuple[Tensor, Tensor]:
    """Some training steps: the last logits and gradient, with the buffers left behind in the stack."""
    logits = gradient = torch.empty(0)
    for step in range(steps):
        logits = stack(inputs(step))
        loss_NRB = (logits.square() * torch.arange(1, C + 1)).sum(-1)
        rows = stack.by_network(stack.gradients(loss_NRB, torch.ones_like(loss_NRB)))
        gradient = torch.cat([g.flatten() for row in rows for g in row]).view_as(stack.theta_NRP)
        stack.theta_NRP.data -= 0.01 * gradient
    return logits.detach(), gradient


def moved_plainly(networks: list[list[nn.Module]], steps: int = 3) -> tuple[Tensor, Tensor]:
    logits: list[list[Tensor]] = []
    for step in range(steps):
        x = inputs(step)
        logits = [[network(x[n, r]) for r, network in enumerate(row)] for n, row in enumerate(networks)]
        for n, row in enumerate(networks):
            for r, network in enumerate(row):
                network.zero_grad()
                (logits[n][r].square() * torch.arange(1, C + 1)).sum().backward()
                for parameter in network.parameters():
                    parameter.data.sub_(parameter.grad, alpha=0.01)
    gradient = [[torch.cat([p.grad.flatten() for p in m.parameters()]) for m in row] for row in networks]
    logits_NRBC = torch.stack([torch.stack(row) for row in logits]).detach()
    return logits_NRBC, torch.stack([torch.stack(row) for row in gradient])


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", BUILDS)
def test_stack_is_its_plain_modules(name, batched):
    stack = make(name, batched=batched)
    networks = [[stack.network(n, r).train() for r in range(len(SEEDS))] for n in range(N)]
    logits, gradient = moved(stack)
    plain_logits, plain_gradient = moved_plainly(networks)
    close(logits, plain_logits)
    close(gradient, plain_gradient)
    for n in range(N):
        for r in range(len(SEEDS)):
            mine, theirs = stack.network(n, r).state_dict(), networks[n][r].state_dict()
            assert mine.keys() == theirs.keys()
            for key in mine:
                close(mine[key], theirs[key])


@pytest.mark.parametrize("name", ["normed", "convolutional"])
@pytest.mark.parametrize("batched", [True, False])
def test_evaluating_uses_and_keeps_the_running_statistics(name, batched):
    stack = make(name, batched=batched)
    moved(stack)
    before = {key: value.clone() for key, value in stack.buffers.items()}
    x = inputs(9, batch=1)  # one sample: a batch norm in training could not take it
    with stack.evaluating():
        logits = stack(x)
    assert not logits.requires_grad
    for n in range(N):
        for r in range(len(SEEDS)):
            close(logits[n, r], stack.network(n, r)(x[n, r]).detach())
    assert all(torch.equal(before[key], stack.buffers[key]) for key in before)
    assert all(module.training for module in stack.modules)
    assert any("running_mean" in key for key in before)
    means = next(value for key, value in before.items() if "running_mean" in key)
    assert len({tuple(row) for row in means.flatten(0, 1).tolist()}) == N * len(SEEDS)


def test_a_network_is_a_copy():
    stack = make("normed")
    network = stack.network(1, 2)
    assert not network.training
    before = copy.deepcopy(network.state_dict())
    moved(stack)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert stack.network(1, 2).get_parameter("0.weight").any()


@pytest.mark.parametrize("batched", [True, False])
def test_leaves_and_gradients_belong_to_their_network(batched):
    stack = make("normed", batched=batched)
    x = inputs()
    loss_NRB = stack(x).square().sum(-1)
    weight_NRB = torch.zeros_like(loss_NRB)
    weight_NRB[1, 2] = 1
    gradients = stack.gradients(loss_NRB, weight_NRB)
    touched = [any(g.any() for g in row) for row in stack.by_network(gradients)]
    assert touched == [False] * 5 + [True]
    for row, theta_P in zip(stack.by_network(stack.leaves), stack.theta_NRP.flatten(0, 1), strict=True):
        assert torch.equal(torch.cat([leaf.flatten() for leaf in row]), theta_P)
    assert stack.sums(gradients).isfinite().all()
    for value in (torch.nan, torch.inf, -torch.inf):
        spoilt = [g.clone() for g in gradients]
        stack.by_network(spoilt)[3][0].view(-1)[-1] = value
        assert stack.sums(spoilt).isfinite().flatten().tolist() == [True] * 3 + [False] + [True] * 2


@pytest.mark.parametrize("batched", [True, False])
def test_one_network_of_one_tensor(batched):
    stack = Stack(lambda: nn.Linear(F, C, bias=False), [1], 1, dtype=torch.float64, batched=batched)
    loss_NRB = stack(inputs()[:1, :1]).square().sum(-1)
    gradients = stack.gradients(loss_NRB, torch.ones_like(loss_NRB))
    assert stack.sums(gradients).shape == (1, 1)


def test_padded_convolutions_are_the_same():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, 9, 9, generator=generator, dtype=torch.float64)
    conv = nn.Sequential(nn.Conv2d(3, 13, 3, padding=1, stride=2), nn.Conv2d(13, 16, 2, bias=False)).double()
    plain = copy.deepcopy(conv)
    pad_convolutions(conv)
    close(conv(x), plain(x))
    for network in (conv, plain):
        network(x).square().sum().backward()
    for mine, theirs in zip(conv.parameters(), plain.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    assert all(type(m) is PaddedConv2d for m in conv)
    unpad_convolutions(conv)
    assert all(type(m) is nn.Conv2d for m in conv)


def test_networks_and_runs_and_generations_start_apart():
    theta = [make("mlp", generation=g).theta_NRP.detach().flatten(0, 1) for g in range(2)]
    rows = torch.cat(theta)
    assert len({tuple(row) for row in rows.tolist()}) == 2 * N * len(SEEDS)
    correlation = torch.corrcoef(rows) - torch.eye(len(rows), dtype=torch.float64)
    assert correlation.abs().max() < 0.7  # not the same numbers in another guise


def test_a_run_starts_the_same_alone_and_among_others():
    together = make("mlp").theta_NRP
    for r, seed in enumerate(SEEDS):
        alone = Stack(mlp, [seed], N, dtype=torch.float64).theta_NRP
        assert torch.equal(together[:, r], alone[:, 0])
    one = Stack(mlp, SEEDS, 1, dtype=torch.float64).theta_NRP
    assert torch.equal(together[:1], one)


def test_initialisation_is_torchs_default_and_leaves_its_generator_alone():
    state = torch.random.get_rng_state()
    stack = Stack(mlp, SEEDS, N)
    assert torch.equal(state, torch.random.get_rng_state())
    weight = torch.stack(
        [stack.network(n, r).get_parameter("0.weight") for n in range(N) for r in range(len(SEEDS))]
    )
    assert weight.abs().max() <= F**-0.5  # uniform in ±1/√fan-in
    assert weight.abs().max() > 0.9 * F**-0.5


def test_precision_does_not_change_the_initial_weights():
    assert torch.equal(Stack(mlp, SEEDS, N).theta_NRP.double(), make("mlp").theta_NRP)


def test_what_is_batched_of_itself():
    assert batches_well(mlp())
    assert batches_well(normed())
    assert not batches_well(convolutional())
    assert not Stack(convolutional, SEEDS, N).batched


def test_a_network_that_sat_out_keeps_its_batch_norm_statistics():
    stack = Stack(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), [1, 2], 2)
    x = torch.randn(2, 2, 5, 3)
    x[1, 0] = torch.inf
    before = {name: buffer.clone() for name, buffer in stack.buffers.items()}
    stack(x)
    stack.keep_statistics(torch.tensor([[True, True], [False, True]]))
    for name in ("1.running_mean", "1.running_var"):
        assert torch.equal(stack.buffers[name][1, 0], before[name][1, 0])
        assert not torch.equal(stack.buffers[name][0, 0], before[name][0, 0])
        assert stack.buffers[name].isfinite().all()


def test_frozen_parameters_are_not_trained():
    def build() -> nn.Module:
        module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        module[0].requires_grad_(False)
        return module

    stack = Stack(build, [1, 2], 2)
    assert stack.theta_NRP.shape == (2, 2, 4 * 2 + 2)
    x = torch.randn(2, 2, 5, 3)
    alone = torch.stack([torch.stack([stack.network(n, r)(x[n, r]) for r in range(2)]) for n in range(2)])
    torch.testing.assert_close(stack(x), alone)
    assert not torch.equal(stack.network(0, 0)[0].weight, stack.network(1, 0)[0].weight)
