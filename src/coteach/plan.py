"""The plan of a training: how long, how fast, how much is kept in each epoch. No torch, no data."""

from dataclasses import dataclass
from typing import Any

from coteach import schedules
from coteach.fidelity import PAPER, Fidelity


@dataclass(frozen=True)
class Plan:
    """Hyper-parameters under the paper's names; its defaults are MNIST's."""

    epochs: int = 200
    batch_size: int = 128
    warmup: int = 0  # epochs before disagreement counts
    parallel_warmup: bool = False  # warm up without exchange (open-sets)
    ramp: int = 10  # E_k
    keep_type: int = 1  # λ(e) of type 1 or 2
    horizon: int = 200  # E_max of type 2
    optimizer: str | type = "adam"  # or "sgd", else the name of one in torch.optim, or a class like those
    optimizer_options: tuple[tuple[str, Any], ...] = ()  # of any but "adam" and "sgd"
    lr: float = 0.001
    momentum: float = 0.9  # of SGD
    weight_decay: float = 0.0
    decay_start: int = 80  # linear decay from here on …
    milestones: tuple[int, ...] = ()  # … or, if given, divided by ten after each
    loss: str | None = None  # None: the method's own
    joint_weight: float = 0.9  # JoCoR's c
    keep_per_class: bool = False  # keep λ(e) of each given class, not of all samples together
    estimate_epochs: int | None = None  # of F-correction's first training; None: as many as the second has
    fidelity: Fidelity = PAPER

    @property
    def capturable(self) -> bool:
        """Whether a step on a GPU needs no answer from it: our own Adam and SGD ask nothing, others may."""
        return self.optimizer in ("adam", "sgd")

    @property
    def all_epochs(self) -> range:
        return range(1, self.epochs + 1)

    @property
    def warmup_epochs(self) -> range:
        return range(1, min(self.warmup, self.epochs) + 1)

    @property
    def later_epochs(self) -> range:
        return range(self.warmup + 1, self.epochs + 1)

    def keep_rate(self, epoch: int, noise_rate: float) -> float:
        return schedules.keep_rate(
            epoch,
            noise_rate,
            self.ramp,
            self.horizon if self.keep_type == 2 else None,
            ramp_from_zero=self.fidelity.ramp_from_zero,
            linear_type2=self.fidelity.linear_type2,
        )

    def learning_rate(self, epoch: int) -> float:
        if self.milestones:
            return schedules.step_decay(epoch, self.lr, self.milestones)
        return schedules.linear_decay(
            epoch, self.lr, self.decay_start, self.epochs, lr_above_zero=self.fidelity.lr_above_zero
        )

    def beta1(self, epoch: int) -> float:
        return schedules.beta1(epoch, self.decay_start, beta1_drop=self.fidelity.beta1_drop)
