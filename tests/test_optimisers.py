"""The optimiser of a whole stack against one torch optimiser for each network."""

import pytest
import torch
from torch import Tensor, nn

from coteach.engine import optimisers
from coteach.engine.clock import Clock
from coteach.engine.optimisers import MaskedOptimiser, TorchAdam, TorchOptimiser, TorchSGD, new_optimiser
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
        optimiser = torch.optim.Adam([weights], weight_decay=plan.weight_decay, foreach=False, fused=False)
    else:
        optimiser = torch.optim.SGD(
            [weights], momentum=plan.momentum, weight_decay=plan.weight_decay, foreach=False, fused=False
        )
    for step, (gradient, live) in enumerate(zip(gradient_SP, live_S.tolist(), strict=True)):
        if live:
            (group,) = optimiser.param_groups
            group["lr"] = learning_rate(step)
            if plan.optimizer == "adam":
                group["betas"] = (beta1(step), 0.999)
            weights.grad = gradient.clone()
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
    """Of one's own: halves each weight, and moves by lr."""

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
