"""The paper and the authors' code differ; each difference that changes a result is a switch.

A fidelity is written as one word: `paper` has every switch off, `authors` every switch on, and
`paper+softmax_twice` or `authors-beta1_drop+floor` turn single ones. docs/fidelity.md tells the story of each row.
"""

import re
from dataclasses import dataclass

from coteach.names import check_name

SWITCHES = {
    "softmax_twice": (1, "Co-teaching+'s loss after the warm-up is cross-entropy of the softmax outputs"),
    "divided_twice": (2, "Co-teaching+'s mean loss is divided once more by the number of samples kept"),
    "rescue": (
        3,
        "no disagreement: learn from the whole batch while epoch × step < 5000, then coast on Adam's moments",
    ),
    "floor": (4, "the number of samples to keep is rounded down, not up"),
    "ramp_from_zero": (5, "λ's ramp is e/(E_k - 1), not e/E_k"),
    "epoch_short": (6, "one epoch less is trained where the number of epochs is not given (199 of 200)"),
    "beta1_drop": (7, "Adam's β1 falls from 0.9 to 0.1 when the learning rate starts to fall"),
    "lr_above_zero": (8, "the learning rate would reach zero one epoch after the last, not at the last"),
    "narrow_cnn7": (9, "the 7-layer CNN's sixth convolution has 16 channels, not 196"),
    "flat_pooling": (10, "NEWS: the flattened word vectors are pooled, mixing neighbouring coordinates"),
    "news_70_30": (11, "NEWS: first 70 % to train, last 30 % to test, instead of the split by date"),
    "tiny_crops": (12, "Tiny-ImageNet: random-resized crops of 56, flips, normalised; other head"),
    "whole_test_batches": (13, "the test set's last, incomplete batch is left out"),
    "linear_type2": (17, "λ type 2 reaches 1 - 2τ one epoch before E_max"),
    "openset_mixture": (18, "open-sets: first 60 % of CIFAR-10 and 20,000 outside images of any class"),
    "warmup_short": (22, "the warm-up ends one epoch early (epoch < warm-up, counted from 1)"),
    "listed_classes": (28, "Tiny-ImageNet: classes numbered as wnids.txt lists them, not by their sorted ids"),
}


@dataclass(frozen=True)
class Fidelity:
    """The switches that are on. `fidelity.softmax_twice` asks for one; `str(fidelity)` writes it down."""

    on: frozenset[str] = frozenset()

    def __getattr__(self, switch: str) -> bool:
        if switch not in SWITCHES:
            raise AttributeError(switch)
        return switch in self.on

    def __str__(self) -> str:
        off = [name for name in SWITCHES if name not in self.on]
        if len(off) < len(SWITCHES) / 2:
            return "authors" + "".join(f"-{name}" for name in off)
        return "paper" + "".join(f"+{name}" for name in SWITCHES if name in self.on)


PAPER = Fidelity()
AUTHORS = Fidelity(frozenset(SWITCHES))


def parse(text: str) -> Fidelity:
    """`paper`, `authors`, or one of them with switches added or taken away: `paper+floor-rescue`."""
    base, *turns = re.split(r"(?=[+-])", str(text).strip())
    if base not in ("paper", "authors"):
        raise ValueError(
            f"fidelity {text!r} must begin with 'paper' or 'authors': for instance paper+softmax_twice."
        )
    on = set(AUTHORS.on if base == "authors" else PAPER.on)
    for turn in turns:
        name = turn[1:].strip()
        check_name("fidelity switch", name, SWITCHES)
        (on.add if turn[0] == "+" else on.discard)(name)
    return Fidelity(frozenset(on))
