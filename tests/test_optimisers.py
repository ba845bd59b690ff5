"""The optimiser of a whole stack against one torch optimiser for each network."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from coteach.engine import optimisers
from coteach.engine.clock import Clock
from coteach.engine.optimisers import (
    Lookahead,
    MaskedOptimiser,
    TorchAdam,
    TorchOptimiser,
    TorchSGD,
    new_optimiser,
)
from coteach.engine.stack import Stack
from coteach.plan import Plan

N, R, P, STEPS = 2, 3, 5, 12


def torchs(stack: Stack, plan: Plan) -> TorchAdam | TorchSGD:
    return TorchAdam(stack, plan) if plan.optimizer == "adam" else TorchSGD(stack, plan)


OPTIMISERS = [torchs, MaskedOptimiser]
KINDS = {
    "adam": Plan(optimizer="adam"),
    "adam with weight decay": Plan(optimizer="adam", weight_decay=0.1),
    "sgd": Plan(optimizer="sgd", momentum=0.9),
    "sgd with weight decay": Plan(optimizer="sgd", momentum=0.9, weight_decay=0.1),
    "sgd without momentum": Plan(optimizer="sgd", momentum=0.0),
    "adam with decoupled decay": Plan(optimizer="adam", weight_decay=0.1, decoupled_decay=True),
    "sgd with decoupled decay": Plan(optimizer="sgd", momentum=0.9, weight_decay=0.1, decoupled_decay=True),
    "nesterov": Plan(optimizer="sgd", momentum=0.85, nesterov=True),
    "nesterov without momentum": Plan(optimizer="sgd", momentum=0.0, nesterov=True),
    "nesterov with weight decay": Plan(optimizer="sgd", momentum=0.85, nesterov=True, weight_decay=0.1),
    "nesterov with decoupled decay": Plan(
        optimizer="sgd", momentum=0.85, nesterov=True, weight_decay=0.1, decoupled_decay=True
    ),
}


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learning_rate(step: int) -> float:
    return 0.1 / (1 + step)


def beta1(step: int) -> float:
    return 0.9 if step < STEPS // 2 else 0.1


def stack_of(theta_NRP: Tensor, batched: bool) -> Stack:
    """Networks of P parameters, in two tensors, with these weights."""
    stack = Stack(
        lambda: nn.Linear(P - 1, 1), list(range(theta_NRP.shape[1])), len(theta_NRP),
        dtype=theta_NRP.dtype, batched=batched,
    )  # fmt: skip
    stack.theta_NRP.data.copy_(theta_NRP)
    return stack


def as_given(kind: type, stack: Stack, of_NRP: Tensor) -> list[Tensor]:
    """As one tensor, or a tensor for each leaf of a loop."""
    if stack.batched or kind is MaskedOptimiser:
        return [of_NRP]
    return [piece for row_P in of_NRP.flatten(0, 1) for piece in (row_P[: P - 1].view(1, -1), row_P[P - 1 :])]


def at(lr: float, beta1: float) -> Clock:
    clock = Clock(Plan(), [], "cpu")
    clock.lr.fill_(lr)
    clock.beta1.fill_(beta1)
    return clock


def plain(plan: Plan, theta_P: Tensor, gradient_SP: Tensor, live_S: Tensor) -> Tensor:
    """torch's own on one network; a step that it sits out is not taken at all."""
    weights = theta_P.clone().requires_grad_()
    if plan.optimizer == "adam":
        kind = torch.optim.AdamW if plan.decoupled_decay else torch.optim.Adam
        optimiser = kind([weights], weight_decay=plan.weight_decay, foreach=False, fused=False)
    else:
        optimiser = torch.optim.SGD(
            [weights],
            momentum=plan.momentum,
            weight_decay=0.0 if plan.decoupled_decay else plan.weight_decay,
            nesterov=plan.nesterov and plan.momentum > 0,  # torch wants some; of none it makes no difference
            foreach=False,
            fused=False,
        )
    for step, (gradient, live) in enumerate(zip(gradient_SP, live_S.tolist(), strict=True)):
        if live:
            (group,) = optimiser.param_groups
            group["lr"] = learning_rate(step)
            if plan.optimizer == "adam":
                group["betas"] = (beta1(step), 0.999)
            weights.grad = gradient.clone()
            if plan.optimizer == "sgd" and plan.decoupled_decay:  # torch has none of its own
                weights.data *= 1 - learning_rate(step) * plan.weight_decay
            optimiser.step()
    return weights.detach()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("liveness", ["always", "sometimes", "never"])
@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
def test_optimiser_is_torchs_for_every_network(plan, liveness, kind, batched):
    gradient_SNRP = numbers(1, STEPS, N, R, P)
    live_SNR = {
        "always": torch.ones(STEPS, N, R, dtype=torch.bool),
        "sometimes": numbers(2, STEPS, N, R) > 0,
        "never": torch.zeros(STEPS, N, R, dtype=torch.bool),
    }[liveness]
    start_NRP = numbers(0, N, R, P)
    stack = stack_of(start_NRP, batched)
    optimiser = kind(stack, plan)
    for step in range(STEPS):
        sat_out = ~live_SNR[step][..., None]
        spoilt = gradient_SNRP[step].masked_fill(sat_out, torch.nan)  # what sits out may well be undefined
        optimiser.step(as_given(kind, stack, spoilt), live_SNR[step], at(learning_rate(step), beta1(step)))
    for n in range(N):
        for r in range(R):
            expected = plain(plan, start_NRP[n, r], gradient_SNRP[:, n, r], live_SNR[:, n, r])
            torch.testing.assert_close(stack.theta_NRP.detach()[n, r], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
def test_a_step_with_a_zero_gradient_is_not_a_step_sat_out(plan, kind):
    """Row 3: the authors' loss of 0 still lets Adam move on its moments."""
    ends = []
    for live in (True, False):
        stack = stack_of(numbers(0, 1, 1, P), batched=True)
        optimiser = kind(stack, plan)
        optimiser.step([numbers(1, 1, 1, P)], torch.tensor([[True]]), at(0.1, 0.9))
        before = stack.theta_NRP.detach().clone()
        optimiser.step([torch.zeros(1, 1, P, dtype=torch.float64)], torch.tensor([[live]]), at(0.1, 0.9))
        ends.append(stack.theta_NRP.detach() - before)
    assert not ends[1].any()
    coasts = plan.optimizer == "adam" or plan.momentum > 0 or plan.weight_decay > 0
    assert bool(ends[0].all()) == coasts


def test_what_has_decayed_to_nothing_is_nothing_and_no_weight_changes_by_it(monkeypatch):
    """Adam's means stick at numbers so small that a CPU is twenty times slower on them, unless cleared."""
    gradient_NRP = numbers(1, N, R, P).float()
    gradient_NRP[..., 0] = 1e-21  # its square is one of these numbers at once

    def trained() -> tuple[Tensor, Tensor]:
        """The weights, and what Adam remembers, after three gradients and then none."""
        stack = stack_of(numbers(0, N, R, P).float(), batched=True)
        adam = TorchAdam(stack, Plan())
        for step in range(1500):
            gradient = gradient_NRP if step < 3 else torch.zeros_like(gradient_NRP)
            adam.step([gradient], torch.ones(N, R, dtype=torch.bool), at(0.01, 0.9))
        return stack.theta_NRP.detach(), torch.stack([t for row in (*adam.means, *adam.squares) for t in row])

    def tiny(remembered: Tensor) -> bool:
        return bool(((remembered != 0) & (remembered.abs() < torch.finfo(torch.float32).tiny)).any())

    weights, remembered = trained()
    monkeypatch.setattr(optimisers, "CLEARED_EVERY", 10**9)
    as_torch_does, stuck = trained()
    assert torch.equal(weights, as_torch_does)
    assert tiny(stuck)
    assert not tiny(remembered)


class Halving(torch.optim.Optimizer):
    """An optimiser of one's own: halves each weight, and moves by lr."""

    def __init__(self, params, lr=1.0):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):  # pyrefly: ignore[bad-override]
        for group in self.param_groups:
            for p in group["params"]:
                p.div_(2).sub_(p.grad, alpha=group["lr"])


ANY = {
    "AdamW": ("AdamW", {"weight_decay": 0.1, "betas": (0.8, 0.99)}),
    "RMSprop": ("RMSprop", {"momentum": 0.5}),
    "Adagrad": ("Adagrad", {}),
    "Adafactor": ("Adafactor", {}),  # looks at the shapes of the weights
    "SGD with Nesterov's momentum": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "one's own": (Halving, {}),
}


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("liveness", ["always", "sometimes"])
@pytest.mark.parametrize("kind, options", ANY.values(), ids=ANY)
def test_any_optimiser_of_torchs_is_itself_for_every_network(kind, options, liveness, batched):
    gradient_SNRP, start_NRP = numbers(1, STEPS, N, R, P), numbers(0, N, R, P)
    live_SNR = numbers(2, STEPS, N, R) > (0 if liveness == "sometimes" else -100)
    stack = stack_of(start_NRP, batched)
    optimiser = new_optimiser(stack, Plan(optimizer=kind, optimizer_options=tuple(options.items())))
    assert isinstance(optimiser, TorchOptimiser)
    for step in range(STEPS):
        spoilt = gradient_SNRP[step].masked_fill(~live_SNR[step][..., None], torch.nan)
        optimiser.step(as_given(TorchOptimiser, stack, spoilt), live_SNR[step], at(learning_rate(step), 0.9))
    torchs = getattr(torch.optim, kind) if isinstance(kind, str) else kind
    for n in range(N):
        for r in range(R):
            weights = [t.clone() for t in in_shape(start_NRP[n, r])]
            expected = torchs(weights, lr=1.0, **options)
            for step in range(STEPS):
                if live_SNR[step, n, r]:
                    expected.param_groups[0]["lr"] = learning_rate(step)
                    for p, gradient in zip(weights, in_shape(gradient_SNRP[step, n, r]), strict=True):
                        p.grad = gradient
                    expected.step()
            found = in_shape(stack.theta_NRP.detach()[n, r])
            for mine, theirs in zip(found, weights, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def in_shape(of_P: Tensor) -> list[Tensor]:
    return [of_P[: P - 1].view(1, -1), of_P[P - 1 :]]


# ---- how tensors lie in memory --------------------------------------------------------------------------------


class Last(nn.Conv2d):
    """Its weights lie with their channels last, also on a CPU."""

    channels_last = True

    def __init__(self):
        super().__init__(3, 4, (2, 5))


@pytest.mark.parametrize("plan", [Plan(optimizer="adam"), Plan(optimizer="sgd"), Plan(optimizer="RMSprop")])
def test_a_gradient_may_lie_in_another_order_than_its_weights(plan):
    """As one that several processes have added up does."""
    ends = []
    for order in (torch.contiguous_format, torch.channels_last):
        stack = Stack(Last, [1], 1, dtype=torch.float64, batched=False)
        optimiser = new_optimiser(stack, plan)
        for step in range(3):
            gradients = [numbers(10 * step + p.dim(), *p.shape) for p in stack.leaves]
            gradients = [g.contiguous(memory_format=order) if g.dim() == 4 else g for g in gradients]
            optimiser.step(gradients, torch.ones(1, 1, dtype=torch.bool), at(0.1, 0.9))
        ends.append(stack.theta_NRP.detach().clone())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=1e-12)


# ---- lookahead ------------------------------------------------------------------------------------------------


def clock_of(plan: Plan, epoch: int, step: int, steps: int) -> Clock:
    clock = Clock(plan, [0.2], "cpu", steps)
    clock.set_epoch(epoch)
    clock.step_1.fill_(step)
    return clock


@pytest.mark.parametrize("every, steps", [(1, 3), (2, 5), (5, 5), (7, 3)])
def test_weights_return_to_their_moving_average(every, steps):
    """Written out for single numbers: after every so many steps of an epoch, and at its end."""
    plan = Plan(epochs=3, lookahead=every)
    stack = stack_of(numbers(0, N, R, P), batched=True)
    lookahead = Lookahead(stack, every)
    fast, slow = numbers(0, N, R, P), numbers(0, N, R, P)
    returns, taken, memory = 0, 0, 0.0
    for epoch in (1, 2, 3):
        for step in range(steps):
            move = numbers(100 * epoch + step, N, R, P)
            stack.theta_NRP.data += move
            fast = fast + move
            lookahead.step(clock_of(plan, epoch, step, steps))
            taken += 1
            if (step + 1) % every == 0 or step + 1 == steps:
                returns += 1
                memory = 0.95**every * (taken / (3 * steps)) ** 3
                fast = slow = memory * slow + (1 - memory) * fast
            torch.testing.assert_close(stack.theta_NRP.detach(), fast, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(lookahead.state()["slow"], stack.theta_NRP.detach(), rtol=0, atol=0)
    assert returns == 3 * -(-steps // every)
    assert memory == pytest.approx(0.95**every)


def test_lookahead_leaves_a_network_that_sat_out_where_it_was_to_the_bit():
    stack = stack_of(numbers(0, N, R, P), batched=True)
    lookahead = Lookahead(stack, 2)
    for step in range(4):
        stack.theta_NRP.data[0] += numbers(step, R, P)  # of the other, nothing
        lookahead.step(clock_of(Plan(epochs=1), 1, step, 4))
    assert torch.equal(stack.theta_NRP.detach()[1], numbers(0, N, R, P)[1])
    assert not torch.equal(stack.theta_NRP.detach()[0], numbers(0, N, R, P)[0])


# ---- the learning rate of a step ------------------------------------------------------------------------------


def test_the_rate_of_one_cycle_is_that_of_the_step():
    plan = Plan(epochs=5, lr=2.0, one_cycle=0.3)
    rates = [clock_of(plan, epoch, step, 4).lr.item() for epoch in plan.all_epochs for step in range(4)]
    expected = np.interp(np.arange(20) / 20, [0, 0.3, 1], [0.4, 2.0, 0.0])
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    assert max(rates) == 2.0
    assert min(rates) > 0
