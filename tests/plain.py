"""The trainings of the library written out for a reader: one run, plain modules, torch.optim, lists of indices.

Only the initial weights and the order of the samples come from the library's own draws. The rules are the oracle's,
the losses and schedules are written here once more.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import oracle
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coteach import draws
from coteach.methods import METHODS, Phase
from coteach.networks.stack import Stack
from coteach.plan import Plan
from coteach.rules import Batch
from coteach.train import Problem

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


# ---- the methods ----------------------------------------------------------------------------------------------


def stages(name: str, plan: Plan) -> list[Stage]:
    """The stages of a method; one that is not written out here is taken from its phases as they are."""
    every, warm = range(1, plan.epochs + 1), range(1, plan.warmup + 1)
    later = range(plan.warmup + 1, plan.epochs + 1)
    loss = each(SAMPLE_LOSSES[plan.loss or "cross_entropy"])
    authors = plan.fidelity
    match name:
        case "standard" | "mentornet" | "coteaching":
            return [Stage(every, oracle.RULES[name], loss)]
        case "decoupling":
            bounded = lambda n, batch: 1 / max(0.1 * batch, n)  # noqa: E731
            return [Stage(warm, oracle.standard, loss), Stage(later, oracle.decoupling, loss, bounded)]
        case "coteaching_plus":
            weight = (lambda n, batch: 1 / n / n) if authors.divided_twice else Stage.weight
            start = oracle.mentornet if plan.parallel_warmup else oracle.coteaching
            twice = authors.softmax_twice and plan.loss is None
            return [
                Stage(warm, start, loss, weight),
                Stage(
                    later,
                    oracle.coteaching_plus,
                    each(SAMPLE_LOSSES["softmax_twice"]) if twice else loss,
                    weight,
                    rescue=authors.rescue,
                ),
            ]
        case "cotraining":
            begin = max(plan.warmup, min(plan.ramp, plan.epochs // 2))
            return [
                Stage(range(1, begin + 1), oracle.standard, loss),
                Stage(range(begin + 1, plan.epochs + 1), oracle.cotraining, loss, own_labels=True),
            ]
        case "jocor":
            return [
                Stage(every, oracle.jocor, joint(SAMPLE_LOSSES[plan.loss or "cross_entropy"], plan.joint_weight))
            ]
        case "f_correction":
            return [
                Stage(every, oracle.standard, loss),
                Stage(every, oracle.standard, loss, fresh="estimated"),
            ]
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
        return bool(phase.rule.without_share(batch(o)))

    def weight(n_picked: int, n_batch: int) -> float:
        return phase.weigh(torch.arange(n_batch)[None, None] < n_picked).max().item()

    return Stage(
        phase.epochs, rule, losses, weight, phase.own_labels, phase.rescue, phase.transition, nothing_kept
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


def estimated_matrix(network: nn.Module, x_M: Tensor) -> Tensor:
    """Row i: the posterior at the sample that is surest of class i, the top three per cent left out."""
    with evaluation([network]):
        p_MC = F.softmax(network(x_M), 1)
    rows = []
    for i in range(p_MC.shape[1]):
        of_class = p_MC[:, i].tolist()
        bound = np.percentile(of_class, 97, method="higher")
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


def optimiser_of(network: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    weights = list(network.parameters())
    if plan.optimizer == "sgd":
        return torch.optim.SGD(weights, momentum=plan.momentum, weight_decay=plan.weight_decay, fused=False)
    return torch.optim.Adam(weights, weight_decay=plan.weight_decay, fused=False)


# ---- the loop -------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """The networks of one run (two, or one), each with its optimiser."""

    networks: list[nn.Module]
    optimisers: list[torch.optim.Optimizer]
    halves: bool = False

    def views(self, x: Tensor) -> list[Tensor]:
        if not self.halves:
            return [x for _ in self.networks]
        left, right = x.clone(), x.clone()
        middle = math.ceil(x.shape[-1] / 2)
        left[..., middle:] = 0
        right[..., :middle] = 0
        return [left, right]


@dataclass
class Diary:
    """What happened in an epoch."""

    losses: list[float] = field(default_factory=list)
    n_learnt: int = 0
    n_learnt_clean: int = 0
    n_clean: int = 0
    n_steps: int = 0
    shares_of_disagreement: list[float] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)

    def happened(self, event: str, times: int = 1) -> None:
        if times:
            self.events[event] = self.events.get(event, 0) + times


def new_pair(
    name: str, problem: Problem, run: int, plan: Plan, build: Callable[[], nn.Module], generation: int
) -> Pair:
    method = METHODS[name]
    stack = Stack(build, [problem.seeds[run]], method.networks, dtype=torch.float64, generation=generation)
    networks = [stack.network(n, 0).train() for n in range(method.networks)]
    return Pair(networks, [optimiser_of(network, plan) for network in networks], method.views)


def train(
    name: str,
    problem: Problem,
    run: int,
    plan: Plan,
    build: Callable[[], nn.Module],
    of_stages: Callable[[str, Plan], list[Stage]] = stages,
) -> tuple[Pair, list[dict]]:
    """One run of a method: its networks, and what each epoch ended with."""
    rows = []
    pair = new_pair(name, problem, run, plan, build, generation=0)
    for position, stage in enumerate(of_stages(name, plan)):
        if stage.fresh:
            known = stage.fresh == "known"
            matrix = problem.matrix_RCC[run] if known else estimated_matrix(pair.networks[0], problem.x_M)
            stage = replace(stage, losses=corrected(stage.losses, matrix))
            pair = new_pair(name, problem, run, plan, build, generation=position)
        for epoch in stage.epochs:
            diary = Diary()
            train_epoch(pair, stage, problem, run, plan, epoch, diary)
            rows.append(row(pair, problem, run, plan, epoch, diary))
    return pair, rows


def train_epoch(
    pair: Pair, stage: Stage, problem: Problem, run: int, plan: Plan, epoch: int, diary: Diary
) -> None:
    for optimiser in pair.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(plan, epoch)
            if "betas" in group:
                group["betas"] = (beta1(plan, epoch), 0.999)
    for step, index in enumerate(order(problem, run, plan, epoch)):
        train_step(pair, stage, problem, run, plan, epoch, step, index, diary)


def order(problem: Problem, run: int, plan: Plan, epoch: int) -> list[Tensor]:
    """Steps 2 and 3: the samples shuffled and cut into mini-batches; a remainder is dropped unless it is all."""
    n = len(problem.x_M)
    shuffled = draws.permutation(draws.keys([problem.seeds[run]], "shuffle", epoch), n)[0]
    size = min(plan.batch_size, n)
    return [shuffled[start : start + size] for start in range(0, n - size + 1, size)]


def train_step(
    pair: Pair,
    stage: Stage,
    problem: Problem,
    run: int,
    plan: Plan,
    epoch: int,
    step: int,
    index: Tensor,
    diary: Diary,
) -> None:
    networks = range(len(pair.networks))
    x, y, clean = problem.x_M[index], problem.y_RM[run, index], problem.clean_RM[run, index].tolist()
    logits = [network(view) for network, view in zip(pair.networks, pair.views(x), strict=True)]
    targets = [y for _ in networks]
    if stage.own_labels:
        targets = [logits[1].argmax(1), logits[0].argmax(1)]
    losses = stage.losses(logits, targets)
    opinions = oracle.Opinions(
        [z.tolist() for z in logits],
        [loss.tolist() for loss in losses],
        keep_rate(plan, epoch, problem.noise_rates[run]),
        round_up=not plan.fidelity.floor,
    )
    picks = stage.rule(opinions)
    nothing_picked = not picks[0]
    weights = [stage.weight(len(picked), len(index)) if picked else 0.0 for picked in picks]
    if nothing_picked and stage.rescue and epoch * step < 5000:
        picks = [list(range(len(index))) for _ in networks]
        weights = [1 / len(index) for _ in networks]

    objectives = [losses[n][picks[n]].sum() * weights[n] for n in networks]
    finite = [bool(objective.isfinite()) for objective in objectives]
    for network in pair.networks:
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
    sum(objective for objective, sound in zip(objectives, finite, strict=True) if sound).backward()
    for n in networks:
        if finite[n] and (picks[n] or stage.rescue):  # with the authors, Adam coasts on a gradient of zero
            pair.optimisers[n].step()

    diary.n_steps += 1
    diary.happened("no_disagreement", int(nothing_picked))
    starved = stage.nothing_kept(opinions) if stage.nothing_kept else oracle.nothing_kept(stage.rule, opinions)
    diary.happened("nothing_kept", int(starved))
    diary.shares_of_disagreement.append(len(oracle.disagreement(opinions)) / len(index))
    diary.n_clean += sum(clean) * len(networks)
    for n in networks:
        diary.n_learnt += len(picks[n])
        diary.n_learnt_clean += sum(clean[i] for i in picks[n])
        if picks[n] and finite[n]:
            diary.losses.append(losses[n][picks[n]].mean().item())


# ---- what is reported -----------------------------------------------------------------------------------------


@contextmanager
def evaluation(networks: list[nn.Module]) -> Iterator[None]:
    for network in networks:
        network.eval()
    with torch.no_grad():
        yield
    for network in networks:
        network.train()


def row(pair: Pair, problem: Problem, run: int, plan: Plan, epoch: int, diary: Diary) -> dict:
    x, y = problem.x_test, problem.y_test
    if plan.fidelity.whole_test_batches and len(y) > plan.batch_size:
        whole = len(y) // plan.batch_size * plan.batch_size
        x, y = x[:whole], y[:whole]
    with evaluation(pair.networks):
        p = [F.softmax(net(view), 1) for net, view in zip(pair.networks, pair.views(x), strict=True)]
    two = len(p) == 2
    predictions = [q.argmax(1) for q in p]
    diary.happened("one_class", sum(len(set(prediction.tolist())) == 1 for prediction in predictions))
    diary.happened("consensus", int(two and not any(diary.shares_of_disagreement)))
    return {
        "seed": problem.seeds[run],
        "epoch": epoch,
        "test_accuracy": [(prediction == y).double().mean().item() for prediction in predictions],
        "ensemble_accuracy": ((sum(p) / len(p)).argmax(1) == y).double().mean().item(),
        "total_variation": ((p[0] - p[1]).abs().sum(1) / 2).mean().item() if two else None,
        "train_loss": sum(diary.losses) / len(diary.losses) if diary.losses else None,
        "label_precision": diary.n_learnt_clean / diary.n_learnt if diary.n_learnt else None,
        "label_recall": diary.n_learnt_clean / diary.n_clean if diary.n_clean else None,
        "disagreement": sum(diary.shares_of_disagreement) / diary.n_steps if two else None,
        "kept": diary.n_learnt / diary.n_steps / len(p),
        "keep_rate": float(keep_rate(plan, epoch, problem.noise_rates[run])),
        "events": diary.events,
    }
