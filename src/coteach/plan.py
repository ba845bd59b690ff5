"""The plan of a training: how long, how fast, how much is kept in each epoch. No torch, no data."""

from dataclasses import dataclass
from typing import Any

from coteach import schedules
from coteach.fidelity import PAPER, Fidelity


@dataclass(frozen=True)
class Plan:
    """Hyper-parameters under the paper's names; its defaults are MNIST's.

    Parameters
    ----------
    epochs, batch_size : int
    steps_per_epoch : int, optional
        Mini-batches of an epoch at most; by default as many as the samples fill.
    warmup : int
        Epochs before disagreement counts.
    parallel_warmup : bool
        Warm up without exchange (open-sets).
    ramp : int
        E_k, over which λ falls to 1 - τ.
    keep_type : {1, 2}
        λ stays there, or goes on falling until …
    horizon : int
        … E_max.
    optimizer : str or class
        "adam", "sgd", the name of another in `torch.optim`, or a class like those.
    optimizer_options : tuple of (str, value)
        Of any optimiser but "adam" and "sgd".
    lr, momentum, weight_decay : float
        Learning rate at the start; momentum of "sgd".
    decay_start : int
        The learning rate falls linearly from this epoch on …
    milestones : tuple of int
        … or, if given, is divided by ten after each.
    loss : str, optional
        A name in `coteach.LOSSES`; by default the method's own.
    warmup_loss : str, optional
        Of the warm-up, whether or not the method does anything else in it; by default `loss`.
    joint_weight : float
        JoCoR's c.
    keep_per_class : bool
        Keep λ(e) of each given class, not of all samples together.
    estimate_epochs : int, optional
        Of F-correction's first training; by default as many as the second has.
    fidelity : Fidelity
        Which of the authors' readings differ from the paper's.

    Examples
    --------
    >>> plan = Plan(epochs=20, ramp=5, decay_start=10)
    >>> [round(plan.keep_rate(epoch, noise_rate=0.2), 2) for epoch in (1, 5, 20)]
    [0.96, 0.8, 0.8]
    >>> plan.learning_rate(15)
    0.0005
    """

    epochs: int = 200
    batch_size: int = 128
    steps_per_epoch: int | None = None
    warmup: int = 0
    parallel_warmup: bool = False
    ramp: int = 10
    keep_type: int = 1
    horizon: int = 200
    optimizer: str | type = "adam"
    optimizer_options: tuple[tuple[str, Any], ...] = ()
    lr: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay_start: int = 80
    milestones: tuple[int, ...] = ()
    loss: str | None = None
    warmup_loss: str | None = None
    joint_weight: float = 0.9
    keep_per_class: bool = False
    estimate_epochs: int | None = None
    fidelity: Fidelity = PAPER

    @property
    def capturable(self) -> bool:
        """Whether a step on a GPU needs no answer from it: our own Adam and SGD ask nothing, others may."""
        return self.optimizer in ("adam", "sgd")

    def steps(self, samples: int) -> int:
        """Mini-batches of an epoch over so many samples; a rest that fills none is left out of it.

        >>> Plan(batch_size=128).steps(60_000), Plan(batch_size=128, steps_per_epoch=401).steps(60_000)
        (468, 401)
        """
        return min(max(1, samples // self.batch_size), self.steps_per_epoch or samples)

    @property
    def all_epochs(self) -> range:
        """From 1 on."""
        return range(1, self.epochs + 1)

    @property
    def warmup_epochs(self) -> range:
        """Those of the warm-up, if there is one."""
        return range(1, min(self.warmup, self.epochs) + 1)

    @property
    def later_epochs(self) -> range:
        """Those after the warm-up."""
        return range(self.warmup + 1, self.epochs + 1)

    def keep_rate(self, epoch: int, noise_rate: float) -> float:
        """λ(e), see `coteach.schedules.keep_rate`."""
        return schedules.keep_rate(
            epoch,
            noise_rate,
            self.ramp,
            self.horizon if self.keep_type == 2 else None,
            ramp_from_zero=self.fidelity.ramp_from_zero,
            linear_type2=self.fidelity.linear_type2,
        )

    def learning_rate(self, epoch: int) -> float:
        """Of this epoch."""
        if self.milestones:
            return schedules.step_decay(epoch, self.lr, self.milestones)
        return schedules.linear_decay(
            epoch, self.lr, self.decay_start, self.epochs, lr_above_zero=self.fidelity.lr_above_zero
        )

    def beta1(self, epoch: int) -> float:
        """Adam's first momentum in this epoch."""
        return schedules.beta1(epoch, self.decay_start, beta1_drop=self.fidelity.beta1_drop)
