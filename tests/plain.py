"""Whole trainings written out for a reader: one run, plain modules, torch.optim, lists of indices.

Only the initial weights and the order of the samples come from the library's own draws.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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
from plain_guesses import (
    Memories,
    clean_probabilities,
    co_guess,
    divided_objectives,
    guess_weight,
    held,
    imbalance,
)
from plain_ingredients import Average, mixed, mixtures, one_cycle, partners, shown, shrink, smoothed, strengthened
from plain_methods import Stage, beta1, corrected, estimated_matrix, evaluation, keep_rate, learning_rate, stages


@dataclass
class Pair:
    """The networks of one run (two, or one), each with its optimiser."""

    networks: list[nn.Module]
    optimisers: list[torch.optim.Optimizer]
    averages: list[Average]
    halves: bool = False
    memories: list[Memories] = field(default_factory=list)
    best: list[nn.Module] = field(default_factory=list)  # by the labels that are held out
    lowest: float = math.inf

    def call(self, x: list[Tensor]) -> list[Tensor]:
        """Logits of every network, each on its own batch."""
        return [network(of_network) for network, of_network in zip(self.networks, x, strict=True)]

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Batch norm then remembers nothing of what it was shown."""
        before = [copy.deepcopy(dict(network.named_buffers())) for network in self.networks]
        with torch.no_grad():
            yield
        for network, buffers in zip(self.networks, before, strict=True):
            for name, buffer in network.named_buffers():
                buffer.copy_(buffers[name])

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
        decay = 0.0 if plan.decoupled_decay else plan.weight_decay
        return torch.optim.SGD(
            weights, momentum=plan.momentum, weight_decay=decay, nesterov=plan.nesterov, fused=False
        )
    kind = torch.optim.AdamW if plan.decoupled_decay else torch.optim.Adam
    return kind(weights, weight_decay=plan.weight_decay, fused=False)


def new_pair(
    name: str, problem: Problem, run: int, plan: Plan, build: Callable[[], nn.Module], generation: int
) -> Pair:
    method = METHODS[name]
    stack = Stack(build, [problem.seeds[run]], method.networks, dtype=torch.float64, generation=generation)
    networks = [stack.network(n, 0).train() for n in range(method.networks)]
    return Pair(
        networks,
        [optimiser_of(network, plan) for network in networks],
        [Average(network) for network in networks],
        method.views,
        [Memories(len(problem.x_M), problem.n_classes, plan) for _ in networks],
    )


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
    every_stage = of_stages(name, plan)
    divided = any(stage.divided for stage in every_stage)
    for position, stage in enumerate(every_stage):
        if plan.mixture:
            stage = replace(stage, rule=oracle.BY_MIXTURE.get(stage.rule, stage.rule))
        if stage.fresh:
            told = problem.matrix_RCC if stage.fresh == "known" else None
            matrix = estimated_matrix(result(pair, plan)[0], problem.x_M) if told is None else told[run]
            stage = replace(stage, losses=corrected(stage.losses, matrix))
            pair = new_pair(name, problem, run, plan, build, generation=position)
        for epoch in stage.epochs:
            records = Records()
            clean = split(pair, problem, run, plan, epoch) if divided or plan.mixture else None
            only_labels = divided and not stage.divided
            now = replace(plan, mixup=0.0, guess_weight=0.0, class_balance=0.0) if only_labels else plan
            train_epoch(pair, stage, problem, run, now, epoch, records, clean)
            if plan.held_out:
                judge(pair, stage, problem, run, plan)
            rows.append(row(pair, problem, run, plan, stage, epoch, records, clean))
    return pair, rows


def held_and_learnt(n: int, plan: Plan) -> tuple[list[int], list[int]]:
    """Which samples are held out, and which are learnt from, each in their order."""
    if not plan.held_out:
        return [], list(range(n))
    shuffled = draws.permutation(draws.keys([0], "held out"), n)[0].tolist()
    n_held = max(1, round(plan.held_out * n))
    return sorted(shuffled[:n_held]), sorted(shuffled[n_held:])


def judge(pair: Pair, stage: Stage, problem: Problem, run: int, plan: Plan) -> None:
    """Keep the networks as they are now if their mean losses on held-out labels never had a lower sum."""
    held, _ = held_and_learnt(len(problem.x_M), plan)
    with evaluation(pair.networks):
        logits = pair.call(pair.views(problem.x_M[held]))
        losses = stage.losses(logits, [problem.y_RM[run, held] for _ in logits])
    total = sum(loss.mean().item() for loss in losses)
    if total < pair.lowest:
        pair.best, pair.lowest = copy.deepcopy(pair.networks), total


def result(pair: Pair, plan: Plan) -> list[nn.Module]:
    """The networks that count."""
    return pair.best if plan.held_out else pair.networks


def split(pair: Pair, problem: Problem, run: int, plan: Plan, epoch: int) -> list[list[float]]:
    """How likely each network finds each label right, by its losses of all it may learn; all of them at first."""
    if epoch <= plan.warmup:
        return [[1.0] * len(problem.x_M) for _ in pair.networks]
    with evaluation(pair.networks):
        logits = pair.call(pair.views(problem.x_M))
    y = problem.y_RM[run]
    _, learnt = held_and_learnt(len(y), plan)
    found = []
    for z in logits:
        likely = clean_probabilities(F.cross_entropy(z[learnt], y[learnt], reduction="none").tolist())
        of_sample = dict(zip(learnt, likely, strict=True))
        found.append([of_sample.get(i, 0.0) for i in range(len(y))])
    return found


def train_epoch(
    pair: Pair,
    stage: Stage,
    problem: Problem,
    run: int,
    plan: Plan,
    epoch: int,
    records: Records,
    clean: list[list[float]] | None,
) -> None:
    batches = order(problem, run, plan, epoch)
    for step, index in enumerate(batches):
        for optimiser in pair.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(plan, epoch)
                if plan.one_cycle:
                    group["lr"] = one_cycle(plan, (epoch - 1) * len(batches) + step, plan.epochs * len(batches))
                if "betas" in group:
                    group["betas"] = (beta1(plan, epoch), 0.999)
        train_step(pair, stage, problem, run, plan, epoch, step, len(batches), index, records, clean)
        if plan.lookahead:
            for network, average in zip(pair.networks, pair.averages, strict=True):
                average.after_step(network, plan, step + 1, len(batches), epoch)


def order(problem: Problem, run: int, plan: Plan, epoch: int) -> list[Tensor]:
    """Steps 2 and 3: the samples shuffled and cut into mini-batches; a remainder is dropped unless it is all."""
    learnt = torch.tensor(held_and_learnt(len(problem.x_M), plan)[1])
    n = len(learnt)
    shuffled = learnt[draws.permutation(draws.keys([problem.seeds[run]], "shuffle", epoch), n)[0]]
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
    steps: int,
    index: Tensor,
    records: Records,
    believed: list[list[float]] | None,
) -> None:
    networks = range(len(pair.networks))
    x, y, clean = problem.x_M[index], problem.y_RM[run, index], problem.clean_RM[run, index].tolist()
    as_stored = x
    seed = problem.seeds[run]
    x = shown(x, plan, seed, epoch, step)
    twice = bool(plan.mixup or plan.strong_view or (plan.weak_selection and plan.cutout))  # looked at, then learnt
    twice = twice or stage.divided
    with pair.looking() if twice else nullcontext():
        logits = pair.call(pair.views(x))
    targets = [y for _ in networks]
    if stage.own_labels:
        targets = [logits[1].argmax(1), logits[0].argmax(1)]
    losses = stage.losses(logits, targets)
    opinions = oracle.Opinions(
        [z.tolist() for z in logits],
        [loss.tolist() for loss in losses],
        keep_rate(plan, epoch, problem.noise_rates[run]),
        round_up=not plan.fidelity.floor,
        clean=[[of_network[i] for i in index] for of_network in believed] if believed else None,
    )
    picks = stage.rule(opinions)
    nothing_picked = not picks[0]
    weights = [stage.weight(len(picked), len(index)) if picked else 0.0 for picked in picks]
    if nothing_picked and stage.rescue and epoch * step < 5000:
        picks = [list(range(len(index))) for _ in networks]
        weights = [1 / len(index) for _ in networks]

    of_learning = smoothed(stage.losses, plan.label_smoothing) if plan.label_smoothing else stage.losses
    learnt = of_learning(logits, targets) if plan.label_smoothing else losses
    looked_at, share, of_others = logits, torch.ones(len(index)).double(), targets
    others = [list(range(len(index))) for _ in networks]
    if twice and not stage.divided:
        views = pair.views(strengthened(x, plan, seed, epoch, step))
        if not plan.mixup:
            logits = pair.call(views)
            learnt = of_learning(logits, targets)
        else:
            shares, which = (of_steps[step] for of_steps in mixtures(plan, seed, epoch, steps, len(index)))
            others = [partners(picked, which) for picked in picks]
            logits = pair.call([mixed(view, other, shares) for view, other in zip(views, others, strict=True)])
            of_others = [target[other] for target, other in zip(targets, others, strict=True)]
            share = torch.from_numpy(shares)
            both = zip(of_learning(logits, targets), of_learning(logits, of_others), strict=True)
            learnt = [share * own + (1 - share) * other for own, other in both]

    if plan.memory_weight:
        learnt = list(learnt)
        memories = [pair.memories[n].renew(index, looked_at[n]) for n in networks]
        for n in networks:
            both = held(logits[n], memories[n]), held(logits[n], memories[n][others[n]])
            learnt[n] = learnt[n] + plan.memory_weight * (share * both[0] + (1 - share) * both[1])
    objectives = [learnt[n][picks[n]].sum() * weights[n] for n in networks]
    more = False
    if stage.divided:

        def look(views: list[Tensor]) -> list[Tensor]:
            with pair.looking():
                return pair.call(views)

        assert opinions.clean is not None
        objectives = divided_objectives(
            pair.call, look, as_stored, y, picks, opinions.clean, stage.losses, plan, seed, epoch, step, steps,
        )  # fmt: skip
        more = bool(plan.class_balance or guess_weight(plan, epoch, step, steps))
    elif plan.guess_weight:
        for n in networks:
            rest = [i for i in range(len(index)) if i not in picks[n]]
            weight = guess_weight(plan, epoch, step, steps)
            more = more or bool(weight and rest)
            of_other = of_learning(logits, of_others)[n]
            for i in rest:
                guess = torch.tensor(co_guess([looked_at], i, plan.temperature or 0.5), dtype=torch.float64)
                of_guess = -(guess * F.log_softmax(logits[n][i], 0)).sum()
                both = share[i] * of_guess + (1 - share[i]) * of_other[i]
                objectives[n] = objectives[n] + weight * both / len(rest)
    if plan.class_balance and not stage.divided:
        more = True
        equal = [1 / len(index)] * len(index)
        for n in networks:
            penalty = imbalance(list(F.softmax(logits[n], 1)), equal)
            objectives[n] = objectives[n] + plan.class_balance * penalty
    finite = [bool(objective.isfinite()) for objective in objectives]
    for network in pair.networks:
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
    sum(objective for objective, sound in zip(objectives, finite, strict=True) if sound).backward()
    for n in networks:
        if finite[n] and (picks[n] or stage.rescue or more):  # with the authors, Adam coasts on a gradient of zero
            if plan.optimizer == "sgd" and plan.decoupled_decay:
                shrink(pair.networks[n], plan.weight_decay * pair.optimisers[n].param_groups[0]["lr"])
            pair.optimisers[n].step()

    records.n_steps += 1
    by_mixture = stage.rule in oracle.BY_MIXTURE.values()
    none = not oracle.candidates(stage.rule, opinions) if by_mixture else nothing_picked
    records.happened("no_disagreement", int(none))
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


def share_believed(clean: list[list[float]], learnt: list[int]) -> float:
    return sum(of[i] >= 0.5 for of in clean for i in learnt) / len(clean) / len(learnt)


def row(
    pair: Pair,
    problem: Problem,
    run: int,
    plan: Plan,
    stage: Stage,
    epoch: int,
    records: Records,
    clean: list[list[float]] | None,
) -> dict:
    x, y = problem.x_test, problem.y_test
    if plan.fidelity.whole_test_batches and len(y) > plan.batch_size:
        whole = len(y) // plan.batch_size * plan.batch_size
        x, y = x[:whole], y[:whole]
    networks = result(pair, plan)
    with evaluation(networks):
        p = [F.softmax(net(view), 1) for net, view in zip(networks, pair.views(x), strict=True)]
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
        "keep_rate": float(keep_rate(plan, epoch, problem.noise_rates[run]))
        if clean is None
        else share_believed(clean, held_and_learnt(len(problem.x_M), plan)[1]),
        "events": records.events,
    }
