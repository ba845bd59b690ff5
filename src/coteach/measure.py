"""What the networks say of samples, and what is counted of an epoch: the one loop of prediction and evaluation.

It all happens on the device, with one copy to the host when an epoch is over. S steps, N networks, R runs,
B samples of a batch, M samples, C classes. What cannot be said, such as a precision of nothing, is None.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from coteach.augment import Augment
from coteach.engine.batches import View, evaluation_input, same_view
from coteach.engine.precision import Precision
from coteach.engine.records import Records
from coteach.engine.stack import Stack
from coteach.engine.steps import SIDE_STREAMS
from coteach.engine.stream import Stream, chunks
from coteach.engine.training import Epoch, Training
from coteach.losses import Loss
from coteach.names import EVENTS, LOSS_BINS, LOSS_EDGES
from coteach.rules import LIKELY, Rule, rounded


class Networks(Protocol):
    """N networks × R runs that can be asked: a stack, or plain modules in the guise of one."""

    shape: tuple[int, int]

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def evaluating(self) -> AbstractContextManager[None]: ...

    def __call__(self, x_NRB: Tensor) -> Tensor: ...


class PlainModules:
    """Trained modules in the guise of a stack of one run; copied where they lie or are laid out otherwise."""

    dtype = torch.float32

    def __init__(self, modules: Sequence[nn.Module], device: str, precision: Precision = Precision.FLOAT32):
        self.modules = [as_it_is_quick(m, device) for m in modules]
        self.device, self.shape = torch.device(device), (len(modules), 1)
        self.precision = precision

    def evaluating(self) -> AbstractContextManager[None]:
        return torch.no_grad()  # they are in evaluation mode

    def __call__(self, x_NRB: Tensor) -> Tensor:
        with self.precision.forward(self.device.type):
            logits = [m(x_B) for m, x_B in zip(self.modules, x_NRB[:, 0], strict=True)]
        return torch.stack(logits)[:, None].float()


def as_it_is_quick(module: nn.Module, device: str) -> nn.Module:
    """The module on the device, with its channels last if that is how it was trained."""
    if getattr(module, "channels_last", False):
        return copy.deepcopy(module).to(device, memory_format=torch.channels_last)  # pyrefly: ignore[no-matching-overload]
    return module if device == "cpu" else copy.deepcopy(module).to(device)


# ---- prediction -----------------------------------------------------------------------------------------------


def predict(
    networks: Networks,
    x_M: Tensor | Stream,
    chunk: int,
    *,
    n: int | None = None,
    view: View = same_view,
    augment: Augment | None = None,
    call: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Tensor]:
    """logits_NRBC of the first `n` samples, at most `chunk` at a time, without anything random.

    `call` takes x_NRB… instead of the networks, to catch something else on the way.
    """
    call = call or networks
    for x_B in chunks(x_M, len(x_M) if n is None else n, chunk):
        with networks.evaluating():  # not around the loop: an interrupted caller would stay in this mode
            x_RB = evaluation_input(x_B.to(networks.device), networks.dtype, augment, networks.shape[1])
            logits_NRBC = call(view(x_RB, networks.shape[0]))
        yield logits_NRBC


def posteriors(training: Training, x_M: Tensor | Stream) -> Tensor:
    """p_NRMC of samples that need not be those of the training."""
    return all_logits(training, x_M).softmax(-1)


def all_logits(training: Training, x_M: Tensor | Stream) -> Tensor:
    """logits_NRMC of the same."""
    return torch.cat(list(in_pieces(training, x_M)), -2)


def predicted_classes(training: Training, x_M: Tensor | Stream) -> Tensor:
    """class_NRM: the likeliest to each network."""
    return torch.cat([logits_NRBC.argmax(-1) for logits_NRBC in in_pieces(training, x_M)], -1)


def in_pieces(training: Training, x_M: Tensor | Stream) -> Iterator[Tensor]:
    """logits_NRBC of one part of the samples after the other."""
    stack, augment = training.stack, training.problem.augment
    return predict(stack, x_M, chunk_size(x_M, stack), view=training.view, augment=augment)


def losses_of_all(training: Training, loss: Loss) -> Tensor:
    """loss_NRM of the training samples under their given labels, without anything random; nan if held out."""
    problem, chunk = training.problem, chunk_size(training.problem.x_M, training.stack)
    losses = [
        loss(logits_NRBC, y_RB.expand(logits_NRBC.shape[:-1]))
        for logits_NRBC, y_RB in zip(in_pieces(training, problem.x_M), problem.y_RM.split(chunk, 1), strict=True)
    ]
    loss_NRM = torch.cat(losses, -1)
    return loss_NRM if training.held_out is None else loss_NRM.index_fill(-1, training.held_out.held_V, torch.nan)


def judge_by_held_out(training: Training, loss: Loss) -> None:
    """Ask about the samples that are held out: which epoch fits them best, and what the ledger is to know."""
    held_out, best = training.held_out, training.best
    assert held_out is not None
    assert best is not None
    logits_NRVC = all_logits(training, held_out.x_V)
    y_NRV = held_out.y_RV.expand(logits_NRVC.shape[:-1])
    if training.ledger:
        training.ledger.add_held_out(held_out.held_V, logits_NRVC, held_out.y_RV)
    best.judge(loss(logits_NRVC, y_NRV).double().mean(-1).sum(0))  # networks that learn together stay together


def chunk_size(x_M: Tensor | Stream, stack: Stack) -> int:
    """As many as keep a device busy without filling it: layers may be thirty times as wide as their input."""
    device, networks = stack.theta_NRP.device, stack.shape[0] * stack.shape[1]
    if device.type == "cuda":
        numbers = torch.cuda.get_device_properties(device).total_memory // 512
        copies = networks if stack.batched else min(networks, SIDE_STREAMS)
    else:
        numbers, copies = 2**21, networks if stack.batched else 1
    return max(64, numbers // (x_M.shape[1:].numel() * copies))


def evaluate(
    stack: Stack,
    x_M: Tensor | Stream,
    y_M: Tensor,
    view: View,
    augment: Augment | None = None,
    chunk: int | None = None,
) -> list[dict]:
    """Test accuracy of each network and of their mean softmax, and how far apart the two networks are.

    On as many samples as there are labels. `total_variation` is ½Σ|p - q| between their softmax outputs, averaged.
    """
    networks, runs = stack.shape
    chunk = chunk or chunk_size(x_M, stack)
    pieces = []
    logits = predict(stack, x_M, chunk, n=len(y_M), view=view, augment=augment)
    for logits_NRBC, y_B in zip(logits, y_M.split(chunk), strict=True):
        p_NRBC = logits_NRBC.softmax(-1)
        prediction_NRB = p_NRBC.argmax(-1)
        predicted_NRC = p_NRBC.new_zeros(*stack.shape, p_NRBC.shape[-1]).scatter(-1, prediction_NRB, 1)
        pieces.append(
            (
                (prediction_NRB == y_B).sum(-1),
                (p_NRBC.mean(0).argmax(-1) == y_B).sum(-1)[None],
                (p_NRBC[0] - p_NRBC[-1]).abs().sum((-2, -1)).double()[None] / 2,
                predicted_NRC.flatten(1),
            )
        )
    right_NR, ensemble_1R, variation_1R, predicted = (torch.stack(p).sum(0) for p in zip(*pieces, strict=True))
    one_class_R = ((predicted.unflatten(1, (runs, -1)) > 0).sum(-1) == 1).sum(0)
    table = torch.cat([right_NR, ensemble_1R, variation_1R, one_class_R[None]])
    return [
        {
            "test_accuracy": [n / len(y_M) for n in right],
            "ensemble_accuracy": ensemble / len(y_M),
            "total_variation": variation / len(y_M) if networks > 1 and math.isfinite(variation) else None,
            "events": {"one_class": int(one_class)} if one_class else {},
        }
        for *right, ensemble, variation, one_class in table.T.tolist()  # one wait for the device
    ]


# ---- an epoch in numbers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """What a training is measured against, and no method sees: a test set, and which given labels are right."""

    x_test: Tensor | Stream
    y_test: Tensor
    clean_RM: Tensor | None = None  # None where nobody knows

    def part(self, group: range) -> "Reference":
        """The same for some of the runs."""
        clean_RM = None if self.clean_RM is None else self.clean_RM[group.start : group.stop]
        return Reference(self.x_test, self.y_test, clean_RM)


def measure(epoch: Epoch, reference: Reference | None = None) -> list[dict]:
    """A row for each run: counts over the mini-batches of an epoch; with a reference its test scores, too."""
    problem, plan = epoch.training.problem, epoch.training.plan
    # scores first: a GPU still learns while their many kernels are sent to it, and counting waits for its end
    scores = [{"events": {}} for _ in problem.seeds] if reference is None else scores_of(epoch.training, reference)
    counts = counts_of(epoch, None if reference is None else reference.clean_RM)
    if reference and (reference.clean_RM is None or epoch.phase.own_labels):  # what is learnt are no given labels
        unknown = {"label_precision": None, "label_recall": None}
        counts = [{"train_loss": row["train_loss"]} | unknown | row | unknown for row in counts]
    return [
        {"seed": seed, "epoch": epoch.number, **score, **row}
        | {"keep_rate": row.get("keep_rate", plan.keep_rate(epoch.number, tau))}
        | {"events": score["events"] | row["events"]}
        for seed, tau, score, row in zip(problem.seeds, problem.noise_rates, scores, counts, strict=True)
    ]


def scores_of(training: Training, reference: Reference) -> list[dict]:
    n_test, plan = len(reference.y_test), training.plan
    if plan.fidelity.whole_test_batches and n_test > plan.batch_size:
        n_test -= n_test % plan.batch_size
    y_test, augment = reference.y_test[:n_test], training.problem.augment
    return evaluate(training.stack, reference.x_test, y_test, training.view, augment)


def counts_of(epoch: Epoch, clean_RM: Tensor | None) -> list[dict]:
    """What was learnt in an epoch, and how clean that was if anybody knows."""
    training = epoch.training
    clean_SRB = None if clean_RM is None else training.batches.in_batch_order(clean_RM)
    round_up = not training.plan.fidelity.floor
    rows = count(training.records, epoch.phase.rule, clean_SRB, training.clock.keep_R1, round_up)
    if training.clean_NRM is not None:
        clean_NRM, held_out = training.clean_NRM, training.held_out
        learnt_NRM = clean_NRM if held_out is None else clean_NRM[..., held_out.learnt_M]
        share_R = (learnt_NRM >= LIKELY).double().mean((0, 2)).tolist()
        rows = [row | {"keep_rate": share} for row, share in zip(rows, share_R, strict=True)]
    if epoch.weight_RM is None:
        return rows
    weighed = count_weighed(training, epoch.weight_RM, clean_SRB)
    return [row | weighed_row for row, weighed_row in zip(rows, weighed, strict=True)]


def count(records: Records, rule: Rule, clean_SRB: Tensor | None, keep_R1: Tensor, round_up: bool) -> list[dict]:
    """What was learnt in an epoch, how clean that was, and what went wrong: a dictionary for each run."""
    learnt_SNRB = records.learnt_SNRB & records.finite_SNR[..., None]
    n_learnt_SNR = learnt_SNRB.sum(-1)
    loss_SNR = torch.where(learnt_SNRB, records.loss_SNRB, 0).sum(-1) / n_learnt_SNR.clamp(min=1)
    differ_SRB = (records.prediction_SNRB != records.prediction_SNRB[:, :1]).any(1)
    n_among_SNR1 = records.among_SNRB.sum(-1, keepdim=True)
    starved_SNR1 = (n_among_SNR1 > 0) & (rounded(keep_R1 * n_among_SNR1, round_up) == 0)
    sums_R = {
        "updates": (n_learnt_SNR > 0).sum((0, 1)),
        "loss": loss_SNR.sum((0, 1), dtype=torch.float64),
        "learnt": n_learnt_SNR.sum((0, 1)),
        "differ": differ_SRB.double().mean(2).sum(0),
        "no_disagreement": (n_among_SNR1 == 0).all(1).sum((0, 2)),
        "nothing_kept": starved_SNR1.any(1).sum((0, 2)) * rule.keeps_a_share,
        "non_finite_loss": (~records.finite_SNR).any(1).sum(0),
    }
    if clean_SRB is not None:
        sums_R["learnt_clean"] = (learnt_SNRB & clean_SRB[:, None]).sum((0, 1, 3))
        sums_R["clean"] = clean_SRB.sum((0, 2)) * learnt_SNRB.shape[1]
    table_RK = torch.stack([sum_R.double() for sum_R in sums_R.values()], -1).tolist()  # waits, once
    steps, networks = n_learnt_SNR.shape[:2]
    return [_row(dict(zip(sums_R, values, strict=True)), steps, networks) for values in table_RK]


def _row(total: dict[str, float], steps: int, networks: int) -> dict:
    pair = networks > 1
    events = {name: int(total[name]) for name in EVENTS if total.get(name)}
    if pair and total["differ"] == 0:
        events["consensus"] = 1
    return _loss_and_labels(total) | {
        "disagreement": total["differ"] / steps if pair else None,
        "kept": total["learnt"] / (steps * networks),
        "events": events,
    }


def _loss_and_labels(total: dict[str, float]) -> dict:
    found = {"train_loss": _ratio(total["loss"], total["updates"])}
    if "clean" in total:
        found["label_precision"] = _ratio(total["learnt_clean"], total["learnt"])
        found["label_recall"] = _ratio(total["learnt_clean"], total["clean"])
    return found


def count_weighed(training: Training, weight_RM: Tensor, clean_SRB: Tensor | None) -> list[dict]:
    """The same where a sample counts as much as it weighs: Iterative, one network a run."""
    records, batches = training.records, training.batches
    weight_SRB = batches.in_batch_order(weight_RM).double() * records.finite_SNR[:, 0, :, None]
    weight_SR = weight_SRB.sum(-1)
    loss_SRB = torch.where(weight_SRB > 0, records.loss_SNRB[:, 0], 0)
    mean_SR = (weight_SRB * loss_SRB).sum(-1) / torch.where(weight_SR > 0, weight_SR, 1)
    sums_R = {
        "loss": mean_SR.sum(0),
        "updates": (weight_SR > 0).sum(0),
        "learnt": weight_SR.sum(0),
        "weight": weight_RM.double().mean(1),
    }
    if clean_SRB is not None:
        sums_R |= {"learnt_clean": (weight_SRB * clean_SRB).sum((0, 2)), "clean": clean_SRB.sum((0, 2))}
    table_RK = torch.stack([sum_R.double() for sum_R in sums_R.values()], -1).tolist()
    rows = []
    for total in (dict(zip(sums_R, values, strict=True)) for values in table_RK):
        more = {"kept": total["learnt"] / batches.per_epoch, "keep_rate": total["weight"]}
        rows.append(_loss_and_labels(total) | more)
    return rows


def loss_histograms(records: Records, clean_SRB: Tensor) -> list[dict[str, list[int]]]:
    """How many losses of an epoch, of all networks, lie in each bin: of right and of wrong labels, for each run.

    What is not finite is left out.
    """
    runs = clean_SRB.shape[1]
    inner = torch.tensor(LOSS_EDGES[1:-1], dtype=records.loss_SNRB.dtype, device=records.loss_SNRB.device)
    bin_SNRB = torch.bucketize(records.loss_SNRB, inner, right=True)
    run_R1 = torch.arange(runs, device=inner.device)[:, None]
    place_SNRB = (2 * run_R1 + ~clean_SRB[:, None]) * LOSS_BINS + bin_SNRB
    counted = place_SNRB[records.loss_SNRB.isfinite()]
    right_and_wrong = torch.bincount(counted, minlength=2 * runs * LOSS_BINS).view(runs, 2, LOSS_BINS).tolist()
    return [{"right": right, "wrong": wrong} for right, wrong in right_and_wrong]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
