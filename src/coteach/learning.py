"""What a step learns: picked samples as they were looked at, smoothed, in a stronger view, or in mixtures.

And, where the plan asks for it, what the rule throws away: guesses of its classes. Everything here is off in the
paper's recipes. Shapes: N networks, R runs, B samples of a mini-batch, C classes, X what is learnt in all.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from coteach.engine.records import Choice
from coteach.engine.training import Training
from coteach.guesses import class_imbalance, guessed, memory_term, soft_cross_entropy
from coteach.losses import Loss, smoothed
from coteach.plan import Plan

Mixing = tuple[Tensor, Tensor]  # partner_NRB, and the share_RB of the sample itself


def learns_otherwise(plan: Plan) -> bool:
    """Whether what is learnt from is not what was looked at, which takes a forward pass of its own."""
    return bool(plan.mixup or plan.strong_view or (plan.weak_selection and plan.cutout))


def learns_more(plan: Plan) -> bool:
    """Whether more is learnt than the labels of what was picked."""
    return bool(plan.guess_weight or plan.memory_weight or plan.class_balance)


def lesson(
    training: Training, loss: Loss, x_RB: Tensor, looked_at_NRBC: Tensor, chosen: Choice
) -> tuple[Tensor, Tensor]:
    """loss_NRX with a gradient, and weight_NRX: first of the samples of the mini-batch, then of all else."""
    plan = training.plan
    logits_NRBC, mixing = looked_at_NRBC, None
    if learns_otherwise(plan):
        logits_NRBC, mixing = learnt_view(training, x_RB, chosen)
    if plan.label_smoothing:
        loss = smoothed(loss, plan.label_smoothing)
    as_looked_at = not (learns_otherwise(plan) or plan.label_smoothing)
    if as_looked_at:  # computed already
        loss_NRB = chosen.loss_NRB
    else:
        loss_NRB = of_mixture(lambda target_NRB: loss(logits_NRBC, target_NRB), chosen.target_NRB, mixing)
    if not learns_more(plan):
        return loss_NRB, chosen.weight_NRB
    losses, weights = [], [chosen.weight_NRB]
    if training.memory:
        index_RB = training.batches.index(training.clock.step_1)
        memory_NRBC = training.memory.renewed(index_RB, looked_at_NRBC)
        held_NRB = of_mixture(lambda t_NRBC: memory_term(logits_NRBC, t_NRBC), memory_NRBC, mixing)
        loss_NRB = loss_NRB + plan.memory_weight * held_NRB
    losses.append(loss_NRB)
    if plan.guess_weight:
        guess_NRB = soft_cross_entropy(logits_NRBC, guessed(looked_at_NRBC.detach()[None], plan.sharpening))
        if mixing:
            partner_NRB, share_RB = mixing
            of_partner_NRB = loss(logits_NRBC, chosen.target_NRB.gather(-1, partner_NRB))
            guess_NRB = share_RB * guess_NRB + (1 - share_RB) * of_partner_NRB
        losses.append(guess_NRB)
        weights.append(training.clock.guessing.to(guess_NRB.dtype) * mean_weight(~chosen.learnt_NRB, guess_NRB))
    if plan.class_balance:
        losses.append(class_imbalance(logits_NRBC)[..., None])
        weights.append(torch.full_like(losses[-1], plan.class_balance))
    return torch.cat(losses, -1), torch.cat(weights, -1)


def learnt_view(training: Training, x_RB: Tensor, chosen: Choice) -> tuple[Tensor, Mixing | None]:
    """logits_NRBC of what is learnt from, and how it was mixed."""
    stack, batches, clock = training.stack, training.batches, training.clock
    x_NRB = training.view(batches.strengthened(x_RB, clock.step_1), stack.shape[0])
    if not training.plan.mixup:
        return stack(x_NRB), None
    share_RB, u_RB = batches.mixtures(clock.step_1)
    partner_NRB = partners(chosen.learnt_NRB, u_RB)
    return stack(mixed(x_NRB, partner_NRB, share_RB)), (partner_NRB, share_RB)


def of_mixture(loss_of: Callable[[Tensor], Tensor], target: Tensor, mixing: Mixing | None) -> Tensor:
    """The loss of a sample's own target, or of its own and its partner's by their shares; target_NRB or NRBC."""
    if mixing is None:
        return loss_of(target)
    partner_NRB, share_RB = mixing
    return share_RB * loss_of(target) + (1 - share_RB) * loss_of(of_partners(target, partner_NRB))


def of_partners(target: Tensor, partner_NRB: Tensor) -> Tensor:
    """target_NRB or target_NRBC of each sample's partner."""
    if target.dim() == partner_NRB.dim():
        return target.gather(-1, partner_NRB)
    return target.gather(-2, partner_NRB[..., None].expand_as(target))


def mean_weight(mask_NRB: Tensor, like: Tensor) -> Tensor:
    """1/n for each of the n samples, else 0."""
    return mask_NRB.to(like.dtype) / mask_NRB.sum(-1, keepdim=True).clamp(min=1)


def partners(kept_NRB: Tensor, u_RB: Tensor) -> Tensor:
    """For each sample the place of a kept one, by a number in [0, 1); of any one where none is kept.

    >>> partners(torch.tensor([[False, True, False, True]]), torch.tensor([0.1, 0.6, 0.4, 0.9])).tolist()
    [[1, 3, 1, 3]]
    """
    kept_first_NRB = kept_NRB.logical_not().to(torch.uint8).argsort(dim=-1, stable=True)
    n_NR1 = kept_NRB.sum(-1, keepdim=True).clamp(min=1)
    return kept_first_NRB.gather(-1, torch.minimum((u_RB * n_NR1).long(), n_NR1 - 1))


def mixed(x_NRB: Tensor, partner_NRB: Tensor, share_RB: Tensor) -> Tensor:
    """A share of each sample, and the rest of its partner (Zhang et al., 2018)."""
    networks, runs, size = partner_NRB.shape
    batch_NR1 = torch.arange(networks * runs, device=partner_NRB.device).view(networks, runs, 1) * size
    other_NRB = x_NRB.flatten(0, 2).index_select(0, (batch_NR1 + partner_NRB).flatten()).view_as(x_NRB)
    share = share_RB.reshape(*share_RB.shape, *[1] * (x_NRB.dim() - 3)).to(x_NRB.dtype)
    return share * x_NRB + (1 - share) * other_NRB
