"""Whole trainings written out for a reader: one run, plain modules, torch.optim, lists of indices.

Only the initial weights and the order of the samples come from the library's own draws.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oracle
from coteach import draws
from coteach.engine.stack import Stack
from coteach.engine.training import Problem
from coteach.methods import METHODS
from coteach.plan import Plan
from plain_methods import Stage, beta1, corrected, estimated_matrix, evaluation, keep_rate, learning_rate, stages


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
class Records:
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


def optimiser_of(network: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    weights = list(network.parameters())
    if plan.optimizer == "sgd":
        return torch.optim.SGD(weights, momentum=plan.momentum, weight_decay=plan.weight_decay, fused=False)
    return torch.optim.Adam(weights, weight_decay=plan.weight_decay, fused=False)


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
            told = problem.matrix_RCC if stage.fresh == "known" else None
            matrix = estimated_matrix(pair.networks[0], problem.x_M) if told is None else told[run]
            stage = replace(stage, losses=corrected(stage.losses, matrix))
            pair = new_pair(name, problem, run, plan, build, generation=position)
        for epoch in stage.epochs:
            records = Records()
            train_epoch(pair, stage, problem, run, plan, epoch, records)
            rows.append(row(pair, problem, run, plan, stage, epoch, records))
    return pair, rows


def train_epoch(
    pair: Pair, stage: Stage, problem: Problem, run: int, plan: Plan, epoch: int, records: Records
) -> None:
    for optimiser in pair.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(plan, epoch)
            if "betas" in group:
                group["betas"] = (beta1(plan, epoch), 0.999)
    for step, index in enumerate(order(problem, run, plan, epoch)):
        train_step(pair, stage, problem, run, plan, epoch, step, index, records)


def order(problem: Problem, run: int, plan: Plan, epoch: int) -> list[Tensor]:
    """Steps 2 and 3: the samples shuffled and cut into mini-batches; a remainder is dropped unless it is all."""
    n = len(problem.x_M)
    shuffled = draws.permutation(draws.keys([problem.seeds[run]], "shuffle", epoch), n)[0]
    size = min(plan.batch_size, n)
    whole = [shuffled[start : start + size] for start in range(0, n - size + 1, size)]
    return whole[: plan.steps_per_epoch]


def train_step(
    pair: Pair,
    stage: Stage,
    problem: Problem,
    run: int,
    plan: Plan,
    epoch: int,
    step: int,
    index: Tensor,
    records: Records,
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

    records.n_steps += 1
    records.happened("no_disagreement", int(nothing_picked))
    starved = stage.nothing_kept(opinions) if stage.nothing_kept else oracle.nothing_kept(stage.rule, opinions)
    records.happened("nothing_kept", int(starved))
    records.shares_of_disagreement.append(len(oracle.disagreement(opinions)) / len(index))
    records.n_clean += sum(clean) * len(networks)
    for n in networks:
        records.n_learnt += len(picks[n])
        records.n_learnt_clean += sum(clean[i] for i in picks[n])
        if picks[n] and finite[n]:
            records.losses.append(losses[n][picks[n]].mean().item())


# ---- what is reported -----------------------------------------------------------------------------------------


def row(pair: Pair, problem: Problem, run: int, plan: Plan, stage: Stage, epoch: int, records: Records) -> dict:
    x, y = problem.x_test, problem.y_test
    if plan.fidelity.whole_test_batches and len(y) > plan.batch_size:
        whole = len(y) // plan.batch_size * plan.batch_size
        x, y = x[:whole], y[:whole]
    with evaluation(pair.networks):
        p = [F.softmax(net(view), 1) for net, view in zip(pair.networks, pair.views(x), strict=True)]
    two = len(p) == 2
    given = not stage.own_labels  # of labels that networks made themselves, clean or not says nothing
    predictions = [q.argmax(1) for q in p]
    records.happened("one_class", sum(len(set(prediction.tolist())) == 1 for prediction in predictions))
    records.happened("consensus", int(two and not any(records.shares_of_disagreement)))
    return {
        "seed": problem.seeds[run],
        "epoch": epoch,
        "test_accuracy": [(prediction == y).double().mean().item() for prediction in predictions],
        "ensemble_accuracy": ((sum(p) / len(p)).argmax(1) == y).double().mean().item(),
        "total_variation": ((p[0] - p[1]).abs().sum(1) / 2).mean().item() if two else None,
        "train_loss": sum(records.losses) / len(records.losses) if records.losses else None,
        "label_precision": records.n_learnt_clean / records.n_learnt if records.n_learnt and given else None,
        "label_recall": records.n_learnt_clean / records.n_clean if records.n_clean and given else None,
        "disagreement": sum(records.shares_of_disagreement) / records.n_steps if two else None,
        "kept": records.n_learnt / records.n_steps / len(p),
        "keep_rate": float(keep_rate(plan, epoch, problem.noise_rates[run])),
        "events": records.events,
    }
