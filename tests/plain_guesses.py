"""What is learnt from doubtful samples, written out for a reader: one sample, one network, one number at a time.

DivideMix is written from its paper (Li, Socher and Hoi, ICLR 2020, Algorithm 1), with the mini-batches of this
library: of all samples, each part of which counts by its mean.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coteach.plan import Plan
from plain_ingredients import mixed, mixtures, shown, strengthened

# ---- the mixture of losses ------------------------------------------------------------------------------------


def clean_probabilities(losses: list[float]) -> list[float]:
    """Two Gaussians over the scaled losses: k-means to begin with, then at most ten rounds of EM."""
    low, high = min(losses), max(losses)
    x = np.array([(loss - low) / (high - low) for loss in losses])
    centres = [0.0, 1.0]
    for _ in range(20):
        near_first = abs(x - centres[0]) <= abs(x - centres[1])
        centres = [x[near_first].mean(), x[~near_first].mean()]
    shares = np.array([near_first, ~near_first], dtype=float)
    parameters, before = m_step(x, shares), -math.inf
    for _ in range(10):
        shares, likelihood = e_step(x, parameters)
        parameters = m_step(x, shares)
        if abs(likelihood - before) < 0.01:
            break
        before = likelihood
    shares, _ = e_step(x, parameters)
    lower = min((0, 1), key=lambda k: parameters[k][1])
    return shares[lower].tolist()


def e_step(x: np.ndarray, parameters: list[tuple[float, float, float]]) -> tuple[np.ndarray, float]:
    joint = np.array(
        [w * np.exp(-((x - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v) for w, m, v in parameters]
    )
    return joint / joint.sum(0), float(np.log(joint.sum(0)).mean())


def m_step(x: np.ndarray, shares: np.ndarray) -> list[tuple[float, float, float]]:
    found = []
    for share in shares:
        n = share.sum()
        mean = (share * x).sum() / n
        found.append((n / len(x), mean, (share * (x - mean) ** 2).sum() / n + 0.0005))
    return found


# ---- formulas of one sample -----------------------------------------------------------------------------------


def sharpen(p: list[float], temperature: float) -> list[float]:
    powers = [number ** (1 / temperature) for number in p]
    return [power / sum(powers) for power in powers]


def co_guess(logits: list[list[Tensor]], sample: int, temperature: float) -> list[float]:
    """The mean prediction of all networks for all views of a sample, sharpened; logits by view and network."""
    opinions = [F.softmax(z[sample], 0) for view in logits for z in view]
    return sharpen((sum(opinions) / len(opinions)).tolist(), temperature)


def co_refine(
    logits: list[list[Tensor]], network: int, sample: int, label: int, w: float, plan: Plan
) -> list[float]:
    """w of the given label, the rest the network's own mean prediction, sharpened."""
    views = [F.softmax(view[network][sample], 0).tolist() for view in logits]
    mean = [sum(numbers) / len(views) for numbers in zip(*views, strict=True)]
    smooth = plan.label_smoothing
    given = [(1 - smooth) * (c == label) + smooth / len(mean) for c in range(len(mean))]
    return sharpen([w * y + (1 - w) * p for y, p in zip(given, mean, strict=True)], plan.temperature or 0.5)


def guess_weight(plan: Plan, epoch: int, step: int, steps: int) -> float:
    """Nothing in the warm-up; then all at once, or in a straight line over the ramp."""
    since = epoch - 1 - plan.warmup + step / steps
    if since < 0:
        return 0.0
    return plan.guess_weight * (min(since / plan.guess_ramp, 1) if plan.guess_ramp else 1)


def imbalance(predictions: list[Tensor], weights: list[float]) -> Tensor:
    """KL divergence of the mean prediction from equal classes."""
    mean = torch.stack([weight * p for weight, p in zip(weights, predictions, strict=True)]).sum(0)
    prior = 1 / len(mean)
    return torch.stack([prior * torch.log(prior / share) for share in mean]).sum()


class Memories:
    """ELR: what a network thought of each sample, fading with β."""

    def __init__(self, samples: int, classes: int, plan: Plan):
        self.t = torch.zeros(samples, classes, dtype=torch.float64)
        self.beta = plan.memory_decay or 0.7

    def renew(self, index: Tensor, logits: Tensor) -> Tensor:
        for place, scores in zip(index.tolist(), logits.detach(), strict=True):
            self.t[place] = self.beta * self.t[place] + (1 - self.beta) * F.softmax(scores, 0)
        return self.t[index].clone()


def held(logits: Tensor, t: Tensor) -> Tensor:
    """ELR's term for each sample."""
    return torch.stack(
        [torch.log(1 - (row * F.softmax(scores, 0)).sum()) for row, scores in zip(t, logits, strict=True)]
    )


# ---- DivideMix's step -----------------------------------------------------------------------------------------

Call = Callable[[list[Tensor]], list[Tensor]]


def divided_objectives(
    call: Call, look: Call, x: Tensor, y: Tensor, picks: list[list[int]], clean: list[list[float]],
    losses: Callable[[list[Tensor], list[Tensor]], list[Tensor]], plan: Plan, seed: int, epoch: int, step: int,
    steps: int,
) -> list[Tensor]:  # fmt: skip
    """The loss of each network; `call` learns, `look` does not. `clean` is each network's own opinion."""
    both = [shown(x, plan, seed, epoch, step, view) for view in (1, 2)]
    logits = [look([view, view]) for view in both]
    strong = [strengthened(view, plan, seed, epoch, step, i + 1) for i, view in enumerate(both)]
    everything = torch.cat(strong)
    temperature = plan.temperature or 0.5
    n_samples = len(y)
    objectives, mixtures_of, targets_of, believed_of = [], [], [], []
    for n in (0, 1):
        peer = clean[1 - n]
        targets = [
            co_refine(logits, n, i, int(y[i]), peer[i], plan)
            if i in picks[n]
            else co_guess(logits, i, temperature)
            for i in range(n_samples)
        ] * 2
        believed = [i for i in range(2 * n_samples) if i % n_samples in picks[n]]
        rest = [i for i in range(2 * n_samples) if i % n_samples not in picks[n]]
        images, soft = everything, torch.tensor(targets, dtype=torch.float64)
        if plan.mixup:
            shares, which = (of[step] for of in mixtures(plan, seed, epoch, steps, 2 * n_samples))
            shares = np.array([max(share, 1 - share) for share in shares])
            others = [partner(believed, rest, number) for number in which]
            images = mixed(images, others, shares)
            soft = mixed(soft, others, shares)
        mixtures_of.append(images)
        targets_of.append(soft)
        believed_of.append((believed, rest))
    for n, z in enumerate(call(mixtures_of)):
        believed, rest = believed_of[n]
        p, soft = F.softmax(z, 1), targets_of[n]
        classes = z.shape[1]
        of_class = [losses([z, z], [torch.full((len(z),), c) for _ in (0, 1)])[0] for c in range(classes)]
        objective = torch.zeros((), dtype=torch.float64)
        for i in believed:
            objective = objective + sum(soft[i, c] * of_class[c][i] for c in range(classes)) / len(believed)
        for i in rest:
            error = sum((p[i, c] - soft[i, c]) ** 2 for c in range(classes)) / classes
            objective = objective + guess_weight(plan, epoch, step, steps) * error / len(rest)
        parts = [part for part in (believed, rest) if part]
        order = [i for part in parts for i in part]
        weights = [1 / len(part) / len(parts) for part in parts for _ in part]
        objectives.append(objective + plan.class_balance * imbalance([p[i] for i in order], weights))
    return objectives


def partner(believed: list[int], rest: list[int], number: float) -> int:
    """One of the believed samples half of the time, else one of the rest."""
    first = number < 0.5
    number = (2 * number) % 1
    part = believed if (first and believed) or not rest else rest
    return part[math.floor(number * len(part))]
