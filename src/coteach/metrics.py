"""What is measured in each epoch, on the device; one copy to the host when the epoch is over.

S steps, N networks, R runs, B samples of a batch, C classes. What cannot be said, such as a precision of nothing,
is None.
"""

import math

import torch
from torch import Tensor

from coteach.augment import Augment
from coteach.engine.batches import View, evaluation_input
from coteach.engine.records import Records
from coteach.engine.stack import Stack
from coteach.engine.stream import Stream, chunks
from coteach.labels.histograms import BINS, EDGES
from coteach.names import EVENTS
from coteach.rules import Rule, all_of, rounded


def count(records: Records, rule: Rule, clean_SRB: Tensor, keep_R1: Tensor, round_up: bool) -> list[dict]:
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
        "learnt_clean": (learnt_SNRB & clean_SRB[:, None]).sum((0, 1, 3)),
        "clean": clean_SRB.sum((0, 2)) * learnt_SNRB.shape[1],
        "differ": differ_SRB.double().mean(2).sum(0),
        "no_disagreement": (n_among_SNR1 == 0).all(1).sum((0, 2)),
        "nothing_kept": starved_SNR1.any(1).sum((0, 2)) * (rule.pick is not all_of),
        "non_finite_loss": (~records.finite_SNR).any(1).sum(0),
    }
    table_RK = torch.stack([sum_R.double() for sum_R in sums_R.values()], -1).tolist()  # waits, once
    steps, networks = n_learnt_SNR.shape[:2]
    return [_row(dict(zip(sums_R, values, strict=True)), steps, networks) for values in table_RK]


def _row(total: dict[str, float], steps: int, networks: int) -> dict:
    pair = networks > 1
    events = {name: int(total[name]) for name in EVENTS if total.get(name)}
    if pair and total["differ"] == 0:
        events["consensus"] = 1
    return {
        "train_loss": _ratio(total["loss"], total["updates"]),
        "label_precision": _ratio(total["learnt_clean"], total["learnt"]),
        "label_recall": _ratio(total["learnt_clean"], total["clean"]),
        "disagreement": total["differ"] / steps if pair else None,
        "kept": total["learnt"] / (steps * networks),
        "events": events,
    }


def loss_histograms(records: Records, clean_SRB: Tensor) -> list[dict[str, list[int]]]:
    """How many losses of an epoch, of all networks, lie in each bin: of right and of wrong labels, for each run.

    What is not finite is left out.
    """
    runs = clean_SRB.shape[1]
    inner = torch.tensor(EDGES[1:-1], dtype=records.loss_SNRB.dtype, device=records.loss_SNRB.device)
    bin_SNRB = torch.bucketize(records.loss_SNRB, inner, right=True)
    run_R1 = torch.arange(runs, device=inner.device)[:, None]
    place_SNRB = (2 * run_R1 + ~clean_SRB[:, None]) * BINS + bin_SNRB
    counted = place_SNRB[records.loss_SNRB.isfinite()]
    right_and_wrong = torch.bincount(counted, minlength=2 * runs * BINS).view(runs, 2, BINS).tolist()
    return [{"right": right, "wrong": wrong} for right, wrong in right_and_wrong]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


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
    with stack.evaluating():
        for x_B, y_B in zip(chunks(x_M, len(y_M), chunk), y_M.split(chunk), strict=True):
            x_RB = evaluation_input(x_B, stack.theta_NRP.dtype, augment, runs)
            p_NRBC = stack(view(x_RB, networks)).softmax(-1)
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
    table = torch.cat(
        [right_NR, ensemble_1R, variation_1R, one_class_R[None]]
    ).T.tolist()  # one wait for the device
    return [
        {
            "test_accuracy": [n / len(y_M) for n in right],
            "ensemble_accuracy": ensemble / len(y_M),
            "total_variation": variation / len(y_M) if networks > 1 and math.isfinite(variation) else None,
            "events": {"one_class": int(one_class)} if one_class else {},
        }
        for *right, ensemble, variation, one_class in table
    ]


def chunk_size(x_M: Tensor | Stream, stack: Stack) -> int:
    """As many as keep a device busy without filling it: layers may be thirty times as wide as their input."""
    device = stack.theta_NRP.device
    numbers = torch.cuda.get_device_properties(device).total_memory // 512 if device.type == "cuda" else 2**21
    copies = stack.shape[0] * stack.shape[1] if stack.batched else 1
    return max(64, numbers // (x_M.shape[1:].numel() * copies))


def last_ten(rows: list[dict]) -> tuple[float, float]:
    """Mean and maximum over the last ten epochs of the networks' mean test accuracy, as the paper's tables."""
    means = [sum(row["test_accuracy"]) / len(row["test_accuracy"]) for row in rows[-10:]]
    return sum(means) / len(means), max(means)
