"""Every loss against a formula written another way, its gradient against finite differences."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coteach import names
from coteach.losses import (
    LOSSES,
    Loss,
    cross_entropy,
    forward_corrected,
    joint,
    smoothed,
    transition_from_posteriors,
)

SEEDS = st.integers(0, 2**32)


def draw(seed: int, *leading: int, classes: int = 4, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(*leading, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, classes, leading, generator=generator)


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


# One sample at a time, from the definitions of the papers that introduced them.
PLAIN = {
    "cross_entropy": lambda scores, y: -math.log(softmax(scores)[y]),
    "softmax_twice": lambda scores, y: -math.log(softmax(softmax(scores))[y]),
    "mae": lambda scores, y: sum(abs((k == y) - p) for k, p in enumerate(softmax(scores))),
    "gce": lambda scores, y: (1 - softmax(scores)[y] ** 0.7) / 0.7,
    "sce": lambda scores, y: (
        -0.1 * math.log(softmax(scores)[y]) - sum(p * (0 if k == y else -4) for k, p in enumerate(softmax(scores)))
    ),
}


def test_every_loss_has_a_plain_formula_and_a_name():
    assert set(LOSSES) == set(PLAIN) == set(names.LOSS_MEANINGS)


@pytest.mark.parametrize("name", PLAIN)
@given(seed=SEEDS)
def test_loss_is_its_formula(name, seed):
    logits, target = draw(seed, 2, 3, 5)
    found = LOSSES[name](logits, target)
    expected = [
        PLAIN[name](scores, y)
        for scores, y in zip(logits.flatten(0, -2).tolist(), target.flatten().tolist(), strict=True)
    ]
    assert found.shape == target.shape
    np.testing.assert_allclose(found.flatten(), expected, rtol=1e-12, atol=1e-12)


@given(seed=SEEDS)
def test_cross_entropy_is_torchs(seed):
    logits, target = draw(seed, 2, 3, 5)
    flat, labels = logits.flatten(0, -2), target.flatten()
    torch.testing.assert_close(
        LOSSES["cross_entropy"](flat, labels), F.cross_entropy(flat, labels, reduction="none")
    )
    torch.testing.assert_close(
        LOSSES["softmax_twice"](flat, labels), F.cross_entropy(flat.softmax(1), labels, reduction="none")
    )


def test_softmax_twice_is_bounded_and_close_to_one_minus_p():
    """Row 1: between two values that differ by 1, whatever the logits."""
    logits, target = draw(0, 500, classes=10, scale=20.0)
    loss = LOSSES["softmax_twice"](logits, target)
    lowest, highest = math.log(math.e + 9) - 1, math.log(math.e + 9)
    assert loss.min() >= lowest - 1e-9
    assert loss.max() <= highest + 1e-9
    p = logits.softmax(-1).gather(-1, target[:, None]).squeeze(-1)
    assert ((loss - lowest) - (1 - p)).abs().max() < 0.2


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradient(loss):
    logits, target = draw(1, 2, 3, 4)
    assert torch.autograd.gradcheck(lambda z: loss(z, target), logits.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [*LOSSES, "corrected", "joint"])
def test_finite_for_extreme_logits(name, dtype):
    extreme = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [0.0, 0.0, 0.0]], dtype=dtype)
    logits = torch.stack([extreme, -extreme])[:, None].requires_grad_()
    identity = torch.eye(3, dtype=dtype)[None]
    special = {"corrected": forward_corrected(cross_entropy, identity), "joint": joint(cross_entropy, 0.5)}
    loss = (LOSSES | special)[name](logits, torch.tensor([0, 0, 1]).expand(2, 1, 3))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.isfinite().all()
    assert gradient.isfinite().all()


# ---- F-correction ---------------------------------------------------------------------------------------------


def transitions(seed: int, runs: int, classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(runs, classes, classes, generator=generator, dtype=torch.float64).softmax(-1)


@given(seed=SEEDS)
def test_forward_corrected_is_minus_log_of_p_times_t(seed):
    """-log((p · T)[y]), each run with its own T, row i telling where class i goes."""
    logits_NRBC, target_NRB = draw(seed, 2, 3, 5)
    transition_RCC = transitions(seed, 3, 4)
    found = forward_corrected(cross_entropy, transition_RCC)(logits_NRBC, target_NRB)
    for n, r, b in np.ndindex(2, 3, 5):
        p = softmax(logits_NRBC[n, r, b].tolist())
        y = int(target_NRB[n, r, b])
        noisy = sum(p[i] * transition_RCC[r, i, y].item() for i in range(4))
        assert found[n, r, b].item() == pytest.approx(-math.log(noisy), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_forward_corrected_by_nothing_is_the_loss(loss):
    logits, target = draw(2, 1, 2, 6)
    identity = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    torch.testing.assert_close(
        forward_corrected(loss, identity)(logits, target), loss(logits, target), rtol=1e-12, atol=1e-12
    )


def test_forward_corrected_gradient():
    logits, target = draw(3, 1, 2, 4)
    corrected = forward_corrected(cross_entropy, transitions(3, 2, 4))
    assert torch.autograd.gradcheck(lambda z: corrected(z, target), logits.requires_grad_())


# ---- JoCoR ----------------------------------------------------------------------------------------------------


@given(seed=SEEDS, weight=st.sampled_from([0.0, 0.3, 0.85, 0.9, 1.0]))
def test_joint_sums_to_jocors_formula(seed, weight):
    """(1-c)(CE₁ + CE₂) + c(KL(p‖q) + KL(q‖p)) over the two networks."""
    logits_NRBC, target_NRB = draw(seed, 2, 3, 5)
    found = joint(cross_entropy, weight)(logits_NRBC, target_NRB.expand(2, 3, 5)).sum(0)
    for r, b in np.ndindex(3, 5):
        p, q = (softmax(logits_NRBC[n, r, b].tolist()) for n in range(2))
        y_1, y_2 = target_NRB[:, r, b].tolist()
        divergence = sum(a * math.log(a / b) + b * math.log(b / a) for a, b in zip(p, q, strict=True))
        supervised = -math.log(p[y_1]) - math.log(q[y_2])
        assert found[r, b].item() == pytest.approx((1 - weight) * supervised + weight * divergence, rel=1e-10)


def test_joint_pulls_both_networks_and_agrees_with_torchs_divergence():
    logits, target = draw(4, 2, 1, 6)
    logits.requires_grad_()
    log_p = logits.log_softmax(-1)
    by_torch = F.kl_div(log_p[1], log_p[0], log_target=True, reduction="sum")
    by_torch = by_torch + F.kl_div(log_p[0], log_p[1], log_target=True, reduction="sum")
    ours = joint(cross_entropy, 1.0)(logits, target).sum()
    torch.testing.assert_close(ours, by_torch)
    (found,), (expected,) = torch.autograd.grad(ours, logits), torch.autograd.grad(by_torch, logits)
    torch.testing.assert_close(found, expected)
    assert found.abs().sum((1, 2, 3)).gt(0).all()
    assert torch.autograd.gradcheck(lambda z: joint(cross_entropy, 0.9)(z, target), logits)


# ---- smoothed labels ------------------------------------------------------------------------------------------


def all_losses() -> dict[str, Loss]:
    """For four classes, two networks and three runs."""
    matrices = transitions(5, 3, 4)
    return (
        LOSSES
        | {f"{name}, corrected": forward_corrected(loss, matrices) for name, loss in LOSSES.items()}
        | {f"{name}, joint": joint(loss, 0.3) for name, loss in LOSSES.items()}
        | {"joint, corrected": joint(forward_corrected(cross_entropy, matrices), 0.3)}
    )


@pytest.mark.parametrize("loss", all_losses().values(), ids=all_losses())
def test_a_smoothed_label_is_a_little_of_every_class(loss):
    """Class by class: the label weighs 1 - s + s/C, any other s/C."""
    logits, target = draw(6, 2, 3, 5)
    share, classes = 0.3, 4
    expected = torch.zeros(2, 3, 5, dtype=torch.float64)
    for label in range(classes):
        of_label = loss(logits, torch.full_like(target, label))
        expected += ((1 - share) * (target == label).double() + share / classes) * of_label
    torch.testing.assert_close(smoothed(loss, share)(logits, target), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", all_losses().values(), ids=all_losses())
def test_a_label_smoothed_by_nothing_is_the_label(loss):
    logits, target = draw(7, 2, 3, 5)
    torch.testing.assert_close(smoothed(loss, 0.0)(logits, target), loss(logits, target), rtol=1e-12, atol=1e-12)


@given(seed=SEEDS, share=st.floats(0, 1))
def test_smoothed_cross_entropy_is_torchs(seed, share):
    logits, target = draw(seed, 6)
    expected = F.cross_entropy(logits, target, reduction="none", label_smoothing=share)
    torch.testing.assert_close(smoothed(cross_entropy, share)(logits, target), expected, rtol=1e-12, atol=1e-12)


def test_smoothed_gradient():
    logits, target = draw(8, 2, 1, 3)
    loss = smoothed(joint(cross_entropy, 0.3), 0.2)
    assert torch.autograd.gradcheck(lambda z: loss(z, target), logits.requires_grad_())


# ---- the matrix of F-correction -------------------------------------------------------------------------------


def test_what_one_row_of_the_estimate_leaves_out_the_next_rows_still_read():
    """The authors overwrite it, so that the second row would begin with a zero."""
    sure = torch.linspace(0.1, 0.45, 40)
    p_MC = torch.stack([sure, sure.roll(1), 1 - sure - sure.roll(1)], 1)  # two of 40 are left out of each class
    assert torch.equal(transition_from_posteriors(p_MC), p_MC[[37, 38, 3]])
    overwritten = torch.where(p_MC >= sure[38], 0, p_MC)
    assert overwritten[38, 0] == 0
