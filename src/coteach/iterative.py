"""Iterative learning on open-set noise (Wang et al., CVPR 2018): a program of its own, not a rule.

Round by round a network learns from weighted samples, and its features then tell anew which samples lie apart
from their class. As its authors run it: ten rounds, 5 epochs in the first and 10 in each other from the weights
before; Adam, batches of 100, and the 7-layer CNN whose output layer sees 256 features (`cnn7_dense`).

1. Train: the softmax loss of each sample times its weight, plus a contrastive loss of margin 1 on the features.
2. Judge: in each class, the local outlier factor (2,000 neighbours, cosine distance, contamination 0.4) splits
   the samples; an inlier scores 1, an outlier 0. Scores are cumulated over the rounds.
3. Weigh: a sample weighs its mean score so far; the lowest half of each class are the outliers of the next round.

Where the sources at hand say nothing, decided here:

- The score is the verdict, not the factor: only so does the contamination matter and is a mean score a weight.
  Equal scores are ranked by the cumulated factors, then by position; half of an odd number is rounded down.
- 2,000 neighbours are two fifths of a class of CIFAR-10, and a smaller class has that share: if all samples of a
  class are neighbours, the factor no longer tells them apart.
- A class of one sample cannot be judged and scores 1; features that are not finite score 0.
- In the first round every sample weighs 1 and is an inlier. The last is not judged: nobody would learn from it.
- The pairs are all pairs of a mini-batch, so that none must be drawn. Two inliers of a class are similar; two of
  different classes, or an inlier and an outlier, are not; two outliers say nothing about each other.
- The weighted softmax losses are divided by the batch's size, not by the sum of weights, so that a batch of
  outliers moves little. The pairs' mean loss, ½d² or ½max(0, 1 - d)², is added with factor 1.
- Only the weights are carried over: Adam's moments start afresh in each round. The learning rate is the plan's.
- A plan of fewer epochs than 95 ends early, one of more goes on in the last round.

R runs (N = 1 network each), M samples, B samples of a mini-batch, C classes, F features.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from coteach import rules
from coteach.engine import PLAIN_ENGINE, Engine
from coteach.engine.batches import same_view
from coteach.engine.optimisers import new_optimiser
from coteach.engine.records import Choice
from coteach.engine.stack import Stack
from coteach.engine.steps import Captured
from coteach.engine.stream import closing_streams
from coteach.engine.training import Epoch, Problem, Training, start
from coteach.learning import lesson
from coteach.measure import chunk_size, predict
from coteach.methods import Phase, chosen_loss
from coteach.plan import Plan, check_guesses
from coteach.signals import guarded_steps
from coteach.train import finite_and_live, train_epoch

COINCIDENT = 1e-12  # squared distance of samples in one place, where a distance has no gradient


class Belief:
    """What the rounds so far say of every sample.

    Attributes
    ----------
    weight_RM : float tensor
        Mean score, from 0 (an outlier in every round) to 1.
    inlier_RM : bool tensor
        False for the lowest half of each class.
    """

    def __init__(self, y_RM: Tensor, dtype: torch.dtype):
        self.y_RM = y_RM.cpu().numpy()
        self.judgements = 0
        self.score_RM = np.zeros(y_RM.shape)
        self.factor_RM = np.zeros(y_RM.shape)
        # filled anew after each round, always in the same place, where a captured step looks for them
        self.weight_RM = torch.ones(y_RM.shape, dtype=dtype, device=y_RM.device)
        self.inlier_RM = torch.ones_like(y_RM, dtype=torch.bool)

    def judge(self, features_RMF: np.ndarray, neighbours: int, contamination: float) -> None:
        """Add the scores of another round."""
        self.judgements += 1
        for r, features_MF in enumerate(features_RMF):
            for members in classes(self.y_RM[r]):
                score, factor = local_outliers(features_MF[members], neighbours, contamination)
                self.score_RM[r, members] += score
                self.factor_RM[r, members] += factor
            inlier_M = ~lowest_half(self.score_RM[r], self.factor_RM[r], self.y_RM[r])
            self.inlier_RM[r].copy_(torch.from_numpy(inlier_M))
        self.weight_RM.copy_(torch.from_numpy(self.score_RM / self.judgements))


def classes(y_M: np.ndarray) -> list[np.ndarray]:
    """The positions of each class's samples."""
    return [np.flatnonzero(y_M == label) for label in np.unique(y_M)]


def local_outliers(x_MF: np.ndarray, neighbours: int, contamination: float) -> tuple[np.ndarray, np.ndarray]:
    """Score (1 for an inlier, else 0) and negative local outlier factor of the samples of one class."""
    from sklearn.neighbors import LocalOutlierFactor  # not above: every run would wait a second for it

    finite_M = np.isfinite(x_MF).all(1)
    score_M, factor_M = finite_M.astype(float), np.where(finite_M, -1.0, -np.inf)
    # float64: in a class that has been drawn together, distances are as small as float32's round-off
    finite_x = x_MF[finite_M].astype(np.float64)
    if len(finite_x) > 1:
        lof = LocalOutlierFactor(
            n_neighbors=min(neighbours, max(1, len(finite_x) * 2 // 5)),
            algorithm="brute",
            metric="cosine",
            contamination=contamination,
            n_jobs=torch.get_num_threads(),
        )
        score_M[finite_M] = lof.fit_predict(finite_x) > 0
        factor_M[finite_M] = lof.negative_outlier_factor_
    return score_M, factor_M


def lowest_half(score_M: np.ndarray, factor_M: np.ndarray, y_M: np.ndarray) -> np.ndarray:
    """Mask of the lowest half of each class by score, among equals by factor."""
    lowest_M = np.zeros(len(y_M), dtype=bool)
    for members in classes(y_M):
        order = np.lexsort((factor_M[members], score_M[members]))
        lowest_M[members[order[: len(members) // 2]]] = True
    return lowest_M


def contrastive(features_RBF: Tensor, y_RB: Tensor, inlier_RB: Tensor, margin: float = 1.0) -> Tensor:
    """Mean contrastive loss of each run over the pairs of its mini-batch with at least one inlier (R)."""
    features_RBF = features_RBF.double()  # a distance is a small difference of large products
    square_RB = features_RBF.square().sum(-1)
    product_RBB = features_RBF @ features_RBF.mT
    square_RBB = (square_RB[:, :, None] + square_RB[:, None] - 2 * product_RBB).clamp(min=COINCIDENT)
    one, other = inlier_RB[:, :, None], inlier_RB[:, None]
    similar_RBB = one & other & (y_RB[:, :, None] == y_RB[:, None])
    counted_RBB = (one | other).triu(1)
    apart_RBB = (margin - square_RBB.sqrt()).clamp(min=0).square()
    loss_RBB = torch.where(similar_RBB, square_RBB, apart_RBB) / 2
    return torch.where(counted_RBB, loss_RBB, 0).sum((1, 2)) / counted_RBB.sum((1, 2)).clamp(min=1)


def with_features(stack: Stack, x_NRB: Tensor) -> tuple[Tensor, Tensor]:
    """logits_NRBC, and features_RBF: what the output layers were given on the way."""
    layers = [output_layer(network) for network in stack.modules]
    given: dict[nn.Module, Tensor] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda layer, inputs: given.update({layer: inputs[0].flatten(1)}))
        for layer in layers
    ]
    try:
        logits_NRBC = stack(x_NRB)
    finally:
        for hook in hooks:
            hook.remove()
    return logits_NRBC, torch.stack([given[layer] for layer in layers])


def output_layer(network: nn.Module) -> nn.Linear:
    layers = [m for m in network.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise ValueError("iterative needs a network that ends in a linear layer: choose one such as cnn7_dense.")
    return layers[-1]


def training_features(training: Training) -> np.ndarray:
    """features_RMF of the training set, without anything random."""
    stack, problem = training.stack, training.problem

    def features(x_NRB: Tensor) -> Tensor:
        return with_features(stack, x_NRB)[1].to(stack.dtype).cpu()

    chunk = chunk_size(problem.x_M, stack)
    pieces = predict(stack, problem.x_M, chunk, view=training.view, augment=problem.augment, call=features)
    return torch.cat(list(pieces), 1).numpy()


def weighted_mini_batch(training: Training, phase: Phase, belief: Belief, margin: float) -> Callable[[], None]:
    """Learn from the next mini-batch. No shape depends on the data, so this can be captured as a graph."""
    stack, batches, clock = training.stack, training.batches, training.clock

    def learn() -> None:
        index_RB = batches.index(clock.step_1)
        x_RB, y_RB = batches.take(clock.step_1)
        logits_NRBC, features_RBF = with_features(stack, training.view(x_RB, 1))
        loss_NRB = phase.loss(logits_NRBC, y_RB[None])
        weight_NRB = belief.weight_RM.gather(1, index_RB)[None]
        every = torch.ones_like(loss_NRB, dtype=torch.bool)
        chosen = Choice(loss_NRB, logits_NRBC.argmax(-1), every, weight_NRB, weight_NRB > 0, y_RB[None])
        pairs_R = contrastive(features_RBF, y_RB, belief.inlier_RM.gather(1, index_RB), margin)
        learnt_NRB, _ = lesson(training, phase.loss, x_RB, logits_NRBC, chosen)
        # the loss of the pairs, as one more sample
        losses = torch.cat([learnt_NRB, pairs_R[None, :, None].to(loss_NRB.dtype)], -1)
        weights = torch.cat([weight_NRB / batches.size, torch.ones_like(weight_NRB[..., :1])], -1)
        gradients = stack.gradients(losses, weights)
        finite_NR, live_NR = finite_and_live(phase, chosen, losses, weights, stack.sums(gradients))
        training.step(gradients, live_NR)
        stack.keep_statistics(finite_NR)
        training.record(logits_NRBC.detach(), y_RB, chosen, finite_NR)

    return learn


def rounds_of(epochs: int, rounds: int = 10, first: int = 5, later: int = 10) -> list[range]:
    """The epochs of each round; a shorter plan ends early, a longer one goes on in the last round."""
    starts = [1, *range(first + 1, epochs + 1, later)][:rounds]
    return [range(a, b) for a, b in zip(starts, [*starts[1:], epochs + 1], strict=True)]


def fit_iterative(
    problem: Problem,
    plan: Plan,
    build: Callable[[], nn.Module],
    *,
    rounds: int = 10,
    first_epochs: int = 5,
    later_epochs: int = 10,
    neighbours: int = 2000,
    contamination: float = 0.4,
    margin: float = 1.0,
    engine: Engine = PLAIN_ENGINE,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_round: Callable[[Belief], None] = lambda belief: None,
) -> Training:
    """Train `plan.epochs` epochs in rounds and report each epoch, as `train.fit` does.

    Parameters
    ----------
    problem : Problem
        On the device where the training is to run.
    build : callable
        Makes one network with a linear output layer; what that layer sees are the features.
    neighbours, contamination : int, float
        Of the local outlier factor; at most two fifths of a class are neighbours.
    margin : float
        Distance from which on the features of a dissimilar pair are far enough apart.
    engine : Engine
        How it runs; the networks of the runs always one after the other, nothing compiled.
    on_round : callable
        Called after each judgement.
    """
    check_guesses("iterative", plan)
    engine = replace(engine, batched=False, compiled=False)  # the features are caught from plain modules
    phase = Phase(plan.all_epochs, rules.standard, chosen_loss(plan))
    belief = Belief(problem.y_RM, engine.dtype)
    with closing_streams(problem.x_M), guarded_steps() as guarded:
        training = start(problem, 1, plan, build, engine, same_view)
        for position, epochs in enumerate(rounds_of(plan.epochs, rounds, first_epochs, later_epochs)):
            if position > 0:
                belief.judge(training_features(training), neighbours, contamination)
                on_round(belief)
                training = replace(training, optimiser=new_optimiser(training.stack, plan))
            learn = weighted_mini_batch(training, phase, belief, margin)
            if engine.captured:
                learn = Captured(learn)
            learn = guarded(learn)
            for epoch in epochs:
                train_epoch(training, epoch, learn)
                on_epoch(Epoch(epoch, training, phase, weight_RM=belief.weight_RM))
        return training
