"""Formulas for what is learnt besides labels: against plain numbers, and at their limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from coteach.engine.memory import Memory
from coteach.guesses import class_imbalance, guessed, memory_term, refined, sharpened, squared_error
from coteach.losses import LOSSES, cross_entropy, less_confident, of_soft_labels
from plain_guesses import Memories, co_guess, co_refine, held, imbalance, sharpen
from tiny import PLAN

V, N, R, B, C = 2, 2, 3, 5, 4


def logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5), st.floats(0.2, 2))
def test_sharpening_is_a_power_scaled_to_one(numbers, temperature):
    p = torch.tensor(numbers, dtype=torch.float64) / sum(numbers)
    torch.testing.assert_close(
        sharpened(p, temperature), torch.tensor(sharpen(p.tolist(), temperature), dtype=torch.float64)
    )


def test_sharpening_stands_a_class_that_is_ruled_out():
    assert sharpened(torch.tensor([1.0, 0.0, 0.0]), 0.5).tolist() == [1, 0, 0]


def test_guesses_and_refined_labels_are_the_plain_ones():
    z = logits(V, N, R, B, C)
    label, clean = torch.randint(0, C, (N, R, B)), torch.rand(N, R, B, dtype=torch.float64)
    guess_NRBC = guessed(z, 0.5)
    better_NRBC = refined(F.one_hot(label, C).double(), z, clean, 0.5)
    for n in range(N):
        for r in range(R):
            of_run = [[z[v, m, r] for m in range(N)] for v in range(V)]
            for b in range(B):
                expected = torch.tensor(co_guess(of_run, b, 0.5)).double()
                torch.testing.assert_close(guess_NRBC[n, r, b], expected, atol=1e-6, rtol=1e-6)
                plain = co_refine(of_run, n, b, int(label[n, r, b]), clean[n, r, b].item(), PLAN)
                torch.testing.assert_close(
                    better_NRBC[n, r, b], torch.tensor(plain).double(), atol=1e-6, rtol=1e-6
                )


def test_a_label_that_is_surely_right_stays_and_one_that_is_not_is_forgotten():
    z = logits(V, N, R, B, C)
    label = F.one_hot(torch.zeros(N, R, B, dtype=torch.long), C).double()
    assert torch.equal(refined(label, z, torch.ones(N, R, B).double(), 0.5), label)
    torch.testing.assert_close(
        refined(label, z, torch.zeros(N, R, B).double(), 1.0), z.softmax(-1).mean(0), atol=1e-12, rtol=0
    )


def test_the_penalty_is_the_divergence_from_equal_classes():
    z = logits(N, R, B, C)
    weight = torch.rand(N, R, B, dtype=torch.float64)
    weight /= weight.sum(-1, keepdim=True)
    found = class_imbalance(z, weight)
    for n in range(N):
        for r in range(R):
            expected = imbalance(list(z[n, r].softmax(-1)), weight[n, r].tolist())
            torch.testing.assert_close(found[n, r], expected)
    assert (found > 0).all()
    torch.testing.assert_close(
        class_imbalance(torch.eye(C).double()), torch.zeros(()).double(), atol=1e-12, rtol=0
    )


def test_the_penalty_is_finite_for_a_class_that_nobody_predicts():
    z = torch.tensor([[1000.0, 0.0], [1000.0, 0.0]], requires_grad=True)
    penalty = class_imbalance(z)
    penalty.backward()
    assert penalty.isfinite()
    assert z.grad.isfinite().all()


def test_the_memory_is_the_plain_one():
    plain, memory = Memories(8, C, PLAN), Memory((1, 1, 8, C), 0.7, torch.float64, torch.device("cpu"))
    for step in range(4):
        z, index = logits(5, C, seed=step), torch.randperm(8)[:5]
        found = memory.renewed(index[None], z[None, None])[0, 0]
        expected = plain.renew(index, z)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(memory_term(z, found), held(z, expected))
    torch.testing.assert_close(memory.target_NRMC[0, 0], plain.t)


def test_a_memory_takes_nothing_that_is_not_finite():
    memory = Memory((1, 1, 2, C), 0.7, torch.float64, torch.device("cpu"))
    memory.renewed(torch.tensor([[0, 1]]), torch.full((1, 1, 2, C), torch.nan).double())
    assert not memory.target_NRMC.any()


def test_a_sure_memory_keeps_its_logarithm_finite():
    z = torch.tensor([[50.0, 0.0]], requires_grad=True)
    term = memory_term(z, torch.tensor([[1.0, 0.0]]))
    term.backward(torch.ones(1))
    assert term.item() == pytest.approx(math.log(1e-4))
    assert z.grad.isfinite().all()


def test_soft_labels_weigh_the_loss_of_each_class():
    z, target = logits(N, R, B, C), logits(N, R, B, C, seed=1).softmax(-1)
    for loss in LOSSES.values():
        expected = sum(target[..., c] * loss(z, torch.full((N, R, B), c)) for c in range(C))
        torch.testing.assert_close(of_soft_labels(loss, z, target), expected)
        hard = torch.randint(0, C, (N, R, B))
        torch.testing.assert_close(of_soft_labels(loss, z, F.one_hot(hard, C).double()), loss(z, hard))


def test_the_squared_error_is_a_mean_over_classes():
    z, target = logits(B, C), logits(B, C, seed=1).softmax(-1)
    torch.testing.assert_close(
        squared_error(z, target), F.mse_loss(z.softmax(-1), target, reduction="none").mean(-1)
    )


def test_less_confidence_is_the_negative_entropy():
    z, label = logits(B, C), torch.randint(0, C, (B,))
    entropy = torch.distributions.Categorical(logits=z).entropy()
    torch.testing.assert_close(
        less_confident(cross_entropy, 0.7)(z, label), cross_entropy(z, label) - 0.7 * entropy
    )
