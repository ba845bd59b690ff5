"""What is measured in each epoch, on the device; one copy to the host when the epoch is over.

N networks, R runs, B samples of a batch, C classes. What cannot be said, such as a precision of nothing, is None.
"""

import torch
from torch import Tensor

from coteach.augment import Augment
from coteach.engine.batches import View, evaluation_input
from coteach.networks.stack import Stack
from coteach.rules import Batch, Rule, disagreement

EVENTS = {
    "no_disagreement": "batches on which the networks agreed throughout, so that there was nothing to pick",
    "nothing_kept": "batches whose share to keep came to no sample, so that all candidates were taken",
    "non_finite_loss": "batches with a loss or gradient that is not finite, which a network sat out: lower --lr",
    "one_class": "networks that predict one class for the whole test set: if it lasts, give a longer --warmup",
    "consensus": "epochs in which the networks agreed throughout, so that two are no better than one",
}


class Tally:
    """Sums over the mini-batches of one epoch, a number for each run."""

    def __init__(self, runs: int, device: torch.device | str):
        self.zeros_R = torch.zeros(runs, dtype=torch.float64, device=device)
        self.sums: dict[str, Tensor] = {}

    def add(self, **values_R: Tensor) -> None:
        for name, value_R in values_R.items():
            self.sums[name] = self.sums.get(name, self.zeros_R) + value_R

    def count(self, seen: Batch, rule: Rule, weight_NRB: Tensor, sound_NR: Tensor, clean_RB: Tensor) -> None:
        """One mini-batch: what was learnt from it, how clean that was, and what went wrong."""
        learnt_NRB = (weight_NRB > 0) & sound_NR[..., None]
        n_learnt_NR = learnt_NRB.sum(-1)
        loss_NR = torch.where(learnt_NRB, seen.loss_NRB, 0).sum(-1) / n_learnt_NR.clamp(min=1)
        without_candidates_R, without_share_R = rule.shortfalls(seen)
        self.add(
            steps=torch.ones_like(self.zeros_R),
            updates=(n_learnt_NR > 0).sum(0),
            loss=loss_NR.sum(0),
            learnt=n_learnt_NR.sum(0),
            learnt_clean=(learnt_NRB & clean_RB).sum((0, -1)),
            clean=clean_RB.sum(-1) * len(learnt_NRB),
            differ=disagreement(seen)[0].double().mean(-1),
            no_disagreement=without_candidates_R,
            nothing_kept=without_share_R,
            non_finite_loss=(~sound_NR).any(0),
        )

    def rows(self, networks: int) -> list[dict]:
        """One dictionary for each run; counting itself never waits for the device, only this does."""
        names = list(self.sums)
        table = torch.stack([self.sums[name] for name in names], -1).tolist()
        return [_row(dict(zip(names, values, strict=True)), networks) for values in table]


def _row(total: dict[str, float], networks: int) -> dict:
    pair = networks > 1
    events = {name: int(total[name]) for name in EVENTS if total.get(name)}
    if pair and total["differ"] == 0:
        events["consensus"] = 1
    return {
        "train_loss": _ratio(total["loss"], total["updates"]),
        "label_precision": _ratio(total["learnt_clean"], total["learnt"]),
        "label_recall": _ratio(total["learnt_clean"], total["clean"]),
        "disagreement": _ratio(total["differ"], total["steps"]) if pair else None,
        "kept": _ratio(total["learnt"], total["steps"] * networks),
        "events": events,
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def evaluate(
    stack: Stack, x_M: Tensor, y_M: Tensor, view: View, augment: Augment | None = None, chunk: int = 1024
) -> list[dict]:
    """Test accuracy of each network and of their mean softmax, and how far apart the two networks are.

    `total_variation` is ½Σ|p - q| between their softmax outputs, averaged over the test set.
    """
    networks, runs, _ = stack.theta_NRP.shape
    pieces = []
    with stack.evaluating():
        for x_B, y_B in zip(x_M.split(chunk), y_M.split(chunk), strict=True):
            x_RB = evaluation_input(x_B, stack.theta_NRP.dtype, augment, runs)
            p_NRBC = stack(view(x_RB, networks)).softmax(-1)
            prediction_NRB = p_NRBC.argmax(-1)
            pieces.append(
                (
                    (prediction_NRB == y_B).sum(-1),
                    (p_NRBC.mean(0).argmax(-1) == y_B).sum(-1),
                    (p_NRBC[0] - p_NRBC[-1]).abs().sum((-2, -1)).double() / 2,
                    torch.nn.functional.one_hot(prediction_NRB, p_NRBC.shape[-1]).sum(-2),
                )
            )
    right_NR, ensemble_R, variation_R, predicted_NRC = (torch.stack(p).sum(0) for p in zip(*pieces, strict=True))
    one_class_R = ((predicted_NRC > 0).sum(-1) == 1).sum(0)
    rows = zip(right_NR.T.tolist(), ensemble_R.tolist(), variation_R.tolist(), one_class_R.tolist(), strict=True)
    return [
        {
            "test_accuracy": [n / len(y_M) for n in right],
            "ensemble_accuracy": ensemble / len(y_M),
            "total_variation": variation / len(y_M) if networks > 1 else None,
            "events": {"one_class": one_class} if one_class else {},
        }
        for right, ensemble, variation, one_class in rows
    ]


def last_ten(rows: list[dict]) -> tuple[float, float]:
    """Mean and maximum over the last ten epochs of the networks' mean test accuracy, as the paper's tables."""
    means = [sum(row["test_accuracy"]) / len(row["test_accuracy"]) for row in rows[-10:]]
    return sum(means) / len(means), max(means)
