"""The methods written out for a reader: stages of picking and learning, their losses and schedules once more.

The rules are the oracle's; nothing here is taken from the library but the plan's numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oracle
from coteach.methods import METHODS, Phase
from coteach.plan import Plan
from coteach.rules import Batch, all_of, rounded

Losses = Callable[[list[Tensor], list[Tensor]], list[Tensor]]  # of every network: logits and targets to losses


@dataclass(frozen=True)
class Stage:
    """Some epochs in which the same samples are picked in the same way and learnt with the same loss."""

    epochs: range
    rule: Callable[[oracle.Opinions], oracle.Picks]
    losses: Losses
    weight: Callable[[int, int], float] = lambda n_picked, n_batch: 1 / n_picked  # of each picked sample
    own_labels: bool = False
    rescue: bool = False
    fresh: str | None = None  # start again, with the loss corrected by the "estimated" or the "known" matrix
    nothing_kept: Callable[[oracle.Opinions], bool] | None = None  # the oracle knows it of its own rules
    divided: bool = False  # all samples are learnt, with labels that are refined or guessed


# ---- the methods ----------------------------------------------------------------------------------------------


def stages(name: str, plan: Plan) -> list[Stage]:
    """The stages of a method; one that is not written out here is taken from its phases as they are."""
    every, warm = range(1, plan.epochs + 1), range(1, plan.warmup + 1)
    later = range(plan.warmup + 1, plan.epochs + 1)
    plain_loss, first_loss = plan.loss or "cross_entropy", plan.warmup_loss or plan.loss or "cross_entropy"
    loss, first = each(SAMPLE_LOSSES[plain_loss]), each(SAMPLE_LOSSES[first_loss])
    authors = plan.fidelity
    match name:
        case "standard" | "mentornet" | "coteaching":
            return [Stage(warm, oracle.RULES[name], first), Stage(later, oracle.RULES[name], loss)]
        case "decoupling":
            bounded = lambda n, batch: 1 / max(0.1 * batch, n)  # noqa: E731
            return [Stage(warm, oracle.standard, first), Stage(later, oracle.decoupling, loss, bounded)]
        case "coteaching_plus" | "coteaching_plus_own":
            exchange = name == "coteaching_plus"
            weight = (lambda n, batch: 1 / n / n) if authors.divided_twice else Stage.weight
            start = oracle.mentornet if plan.parallel_warmup or not exchange else oracle.coteaching
            twice = authors.softmax_twice and plan.loss is None
            return [
                Stage(warm, start, first, weight),
                Stage(
                    later,
                    oracle.coteaching_plus if exchange else oracle.coteaching_plus_own,
                    each(SAMPLE_LOSSES["softmax_twice"]) if twice else loss,
                    weight,
                    rescue=authors.rescue,
                ),
            ]
        case "dividemix":
            surer = each(less_confident(SAMPLE_LOSSES[first_loss], plan.confidence_penalty))
            return [Stage(warm, oracle.standard, surer), Stage(later, oracle.dividemix, loss, divided=True)]
        case "cotraining":
            begin = max(plan.warmup, min(plan.ramp, plan.epochs // 2))
            return [
                Stage(warm, oracle.standard, first),
                Stage(range(plan.warmup + 1, begin + 1), oracle.standard, loss),
                Stage(range(begin + 1, plan.epochs + 1), oracle.cotraining, loss, own_labels=True),
            ]
        case "jocor":
            return [
                Stage(warm, oracle.jocor, joint(SAMPLE_LOSSES[first_loss], plan.joint_weight)),
                Stage(later, oracle.jocor, joint(SAMPLE_LOSSES[plain_loss], plan.joint_weight)),
            ]
        case "f_correction":
            estimate = every if plan.estimate_epochs is None else range(1, plan.estimate_epochs + 1)
            return [Stage(estimate, oracle.standard, loss), Stage(every, oracle.standard, loss, fresh="estimated")]
        case "f_correction_known":
            return [Stage(every, oracle.standard, loss, fresh="known")]
    return [taken_over(phase) for phase in METHODS[name].phases(plan)]


def taken_over(phase: Phase) -> Stage:
    """A phase of the registry run by the plain loop: proves the trainer, not the phase's own functions."""

    def losses(logits: list[Tensor], targets: list[Tensor]) -> list[Tensor]:
        return list(phase.loss(torch.stack(logits)[:, None], torch.stack(targets)[:, None])[:, 0])

    def batch(o: oracle.Opinions) -> Batch:
        logits, losses = (torch.tensor(n, dtype=torch.float64)[:, None] for n in (o.logits, o.losses))
        return Batch(logits, losses, torch.tensor([[float(o.keep)]], dtype=torch.float64), o.round_up)

    def rule(o: oracle.Opinions) -> oracle.Picks:
        return [mask.nonzero().flatten().tolist() for mask in phase.rule(batch(o))[:, 0]]

    def nothing_kept(o: oracle.Opinions) -> bool:
        b = batch(o)
        n_among = phase.rule.among(b).sum(-1)
        none = rounded(b.keep_R1.squeeze(-1) * n_among, b.round_up) == 0
        return phase.rule.pick is not all_of and bool(((n_among > 0) & none).any())

    def weight(n_picked: int, n_batch: int) -> float:
        picked = (torch.arange(n_batch) < n_picked).double()[None, None]
        return phase.weigh(picked).max().item()

    return Stage(
        phase.epochs, rule, losses, weight, phase.own_labels, phase.rescue, phase.corrected_by, nothing_kept
    )


# ---- losses of samples: logits_BC, target_B -------------------------------------------------------------------


def probability(logits: Tensor, target: Tensor) -> Tensor:
    return F.softmax(logits, 1)[torch.arange(len(target)), target]


SAMPLE_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda logits, target: F.cross_entropy(logits, target, reduction="none"),
    "softmax_twice": lambda logits, target: F.cross_entropy(F.softmax(logits, 1), target, reduction="none"),
    "mae": lambda logits, target: 2 - 2 * probability(logits, target),
    "gce": lambda logits, target: (1 - probability(logits, target) ** 0.7) / 0.7,
    "sce": lambda logits, target: (
        0.1 * F.cross_entropy(logits, target, reduction="none") + 4 * (1 - probability(logits, target))
    ),
}


def less_confident(loss: Callable[[Tensor, Tensor], Tensor], weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    def penalised(logits: Tensor, target: Tensor) -> Tensor:
        p = F.softmax(logits, 1)
        return loss(logits, target) + weight * (p * p.log()).sum(1)

    return penalised


def each(loss: Callable[[Tensor, Tensor], Tensor]) -> Losses:
    return lambda logits, targets: [loss(z, t) for z, t in zip(logits, targets, strict=True)]


def joint(loss: Callable[[Tensor, Tensor], Tensor], c: float) -> Losses:
    """JoCoR: one loss of both networks, half of it to each, so that their sum is the whole."""

    def losses(logits: list[Tensor], targets: list[Tensor]) -> list[Tensor]:
        log_p, log_q = (F.log_softmax(z, 1) for z in logits)
        divergence = (log_p.exp() * (log_p - log_q) + log_q.exp() * (log_q - log_p)).sum(1)
        whole = (1 - c) * (loss(logits[0], targets[0]) + loss(logits[1], targets[1])) + c * divergence
        return [whole / 2, whole / 2]

    return losses


def corrected(losses: Losses, matrix_CC: Tensor) -> Losses:
    """F-correction: the loss of what the noise makes of the predictions, p · T."""
    return lambda logits, targets: losses([(F.softmax(z, 1) @ matrix_CC).log() for z in logits], targets)


@contextmanager
def evaluation(networks: list[nn.Module]) -> Iterator[None]:
    for network in networks:
        network.eval()
    with torch.no_grad():
        yield
    for network in networks:
        network.train()


def estimated_matrix(network: nn.Module, x_M: Tensor) -> Tensor:
    """Row i: the posterior at the sample surest of class i, without the top three per cent below 100 classes."""
    with evaluation([network]):
        p_MC = F.softmax(network(x_M), 1)
    rows = []
    for i in range(p_MC.shape[1]):
        of_class = p_MC[:, i].tolist()
        bound = np.percentile(of_class, 97, method="higher") if p_MC.shape[1] < 100 else np.inf
        surest = max(range(len(of_class)), key=lambda m: of_class[m] if of_class[m] < bound else 0.0)
        rows.append(p_MC[surest])
    return torch.stack(rows)


# ---- schedules ------------------------------------------------------------------------------------------------


def keep_rate(plan: Plan, e: int, tau: float) -> Fraction | float:
    """λ(e): exact where the paper's formula is followed, in doubles where the authors' array is."""
    exact, horizon = Fraction(str(tau)), plan.horizon
    if plan.keep_type == 2 and e > plan.ramp:
        if plan.fidelity.linear_type2:
            return 1 - float(np.linspace(tau, 2 * tau, horizon - plan.ramp)[e - plan.ramp])
        return 1 - (1 + Fraction(e - plan.ramp, horizon - plan.ramp)) * exact
    if plan.fidelity.ramp_from_zero:
        return 1 - (float(np.linspace(0, tau, plan.ramp)[e]) if e < plan.ramp else tau)
    return 1 - min(Fraction(e, plan.ramp) * exact, exact)


def learning_rate(plan: Plan, e: int) -> float:
    if plan.milestones:
        return plan.lr * 0.1 ** len([m for m in plan.milestones if e > m])
    last = plan.epochs + (1 if plan.fidelity.lr_above_zero else 0)
    return plan.lr * min(1.0, (last - e) / (last - plan.decay_start))


def beta1(plan: Plan, e: int) -> float:
    return 0.1 if plan.fidelity.beta1_drop and e >= plan.decay_start else 0.9
