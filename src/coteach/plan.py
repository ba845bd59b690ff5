"""The plan of a training: how long, how fast, how much is kept in each epoch. No torch, no data."""

import math
from dataclasses import dataclass
from typing import Any

from coteach import schedules
from coteach.fidelity import PAPER, Fidelity
from coteach.names import DROPPING_NOTHING, WITHOUT_SMALL_LOSSES

# What needs the picks of a mini-batch, or a forward pass more; rounds have neither.
NOT_IN_ROUNDS = (
    "mixture", "mixup", "strong_view", "weak_selection", "guess_weight", "memory_weight", "class_balance"
)  # fmt: skip

# What a method's own paper sets, where neither the user nor the modern recipe does; a data set's recipe gives way.
OF_METHOD: dict[str, dict[str, Any]] = {
    "dividemix": {"warmup": 10, "mixup": 4.0, "guess_weight": 25.0, "guess_ramp": 16, "class_balance": 1.0},
}

# A warm-up with a loss of its own ends before networks begin to learn wrong labels …
WARMUP_EPOCHS = 10
# … but where samples are few, not before they have learnt anything.
WARMUP_STEPS = 320


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
        1: λ stays at 1 - τ. 2: it falls further, until `horizon`.
    horizon : int
        E_max.
    optimizer : str or class
        "adam", "sgd", the name of another in `torch.optim`, or a class like those.
    optimizer_options : tuple of (str, value)
        Options of an optimiser other than "adam" and "sgd".
    lr, momentum, weight_decay : float
        Learning rate at the start; momentum of "sgd".
    nesterov : bool
        Nesterov's form of that momentum.
    decoupled_decay : bool
        The weights shrink by the learning rate times `weight_decay`, apart from their gradient.
    one_cycle : float
        Share of all steps over which the learning rate rises to `lr`, before it falls to zero. With 0 the rate
        follows `milestones` or `decay_start`.
    decay_start : int
        Epoch from which the learning rate falls linearly.
    milestones : tuple of int
        Epochs after each of which the learning rate is divided by ten instead.
    loss : str, optional
        A name in `coteach.LOSSES`; by default the method's own.
    warmup_loss : str, optional
        The loss of the warm-up, for any method; by default `loss`.
    label_smoothing : float
        Share of a label that is spread over all classes, in what is learnt; losses are compared without it.
    mixup : float
        α: kept samples are learnt in mixtures of two, with shares drawn from Beta(α, α); 0 for none.
    mirror : bool
        Images are mirrored half of the time.
    shift : int
        Pixels by which images are shifted at most, each way.
    cutout : int
        Side of the square that is blanked in each image; 0 for none.
    weak_selection : bool
        Compare losses on images that are not cut, and learn cut ones: one more forward pass.
    strong_view : int
        How many random changes of colour and shape make a strong view of an image; 0 for none. Losses are compared
        on the weak view, and the strong one is learnt: one more forward pass.
    mixture : bool
        After the warm-up, two Gaussians over the losses of all samples tell which labels are right, not λ(e).
    guess_weight : float
        λ_u: weight of the classes that the networks guess for samples whose labels are not learnt; 0 for none.
    guess_ramp : int
        Epochs after the warm-up over which that weight rises from 0; 0 for at once.
    temperature : float, optional
        T: guesses are sharpened by p^(1/T); by default 0.5.
    memory_weight : float
        ELR's λ: how much a network is held to what it thought of a sample before; 0 for none.
    memory_decay : float, optional
        ELR's β, by which that memory fades each epoch; by default 0.7.
    class_balance : float
        Weight of the penalty on predicting some classes more often than others; 0 for none.
    confidence_penalty : float
        Weight of the negative entropy in the loss of DivideMix's warm-up; its authors take 1 for asymmetric noise.
    lookahead : int
        Steps after which weights return to their own moving average, each time; 0 for never.
    joint_weight : float
        JoCoR's c.
    keep_per_class : bool
        Keep λ(e) of each given class, not of all samples together.
    estimate_epochs : int, optional
        Epochs of F-correction's first training; by default as many as the second has.
    held_out : float
        Share of the samples that is not learnt from. Their given labels choose the epoch whose weights are kept:
        the one with the lowest loss over all networks. 0 keeps the weights of the last epoch.
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
    nesterov: bool = False
    decoupled_decay: bool = False
    one_cycle: float = 0.0
    decay_start: int = 80
    milestones: tuple[int, ...] = ()
    loss: str | None = None
    warmup_loss: str | None = None
    label_smoothing: float = 0.0
    mixup: float = 0.0
    mirror: bool = False
    shift: int = 0
    cutout: int = 0
    weak_selection: bool = False
    strong_view: int = 0
    mixture: bool = False
    guess_weight: float = 0.0
    guess_ramp: int = 0
    temperature: float | None = None
    memory_weight: float = 0.0
    memory_decay: float | None = None
    class_balance: float = 0.0
    confidence_penalty: float = 0.0
    lookahead: int = 0
    joint_weight: float = 0.9
    keep_per_class: bool = False
    estimate_epochs: int | None = None
    held_out: float = 0.0
    fidelity: Fidelity = PAPER

    @property
    def capturable(self) -> bool:
        """Whether a step on a GPU needs no answer from it: our own Adam and SGD ask nothing, others may."""
        return self.optimizer in ("adam", "sgd")

    @property
    def sharpening(self) -> float:
        """T of guesses."""
        return 0.5 if self.temperature is None else self.temperature

    @property
    def remembering(self) -> float:
        """β of ELR's memory."""
        return 0.7 if self.memory_decay is None else self.memory_decay

    def steps(self, samples: int) -> int:
        """Mini-batches of an epoch over so many samples; a rest that fills none is left out of it.

        >>> Plan(batch_size=128).steps(60_000), Plan(batch_size=128, steps_per_epoch=401).steps(60_000)
        (468, 401)
        """
        return min(max(1, samples // self.batch_size), self.steps_per_epoch or samples)

    def n_held_out(self, samples: int) -> int:
        """How many samples are not learnt from: a share of them, and at least one if there is to be any.

        >>> Plan(held_out=0.1).n_held_out(60_000), Plan(held_out=0.1).n_held_out(4), Plan().n_held_out(4)
        (6000, 1, 0)
        """
        return max(1, round(self.held_out * samples)) if self.held_out else 0

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

    def learning_rate(self, epoch: int, share: float = 0.0) -> float:
        """The learning rate after that share of this epoch."""
        if self.one_cycle:
            return schedules.one_cycle((epoch - 1 + share) / self.epochs, self.lr, self.one_cycle)
        if self.milestones:
            return schedules.step_decay(epoch, self.lr, self.milestones)
        return schedules.linear_decay(
            epoch, self.lr, self.decay_start, self.epochs, lr_above_zero=self.fidelity.lr_above_zero
        )

    def beta1(self, epoch: int) -> float:
        """Adam's first momentum in this epoch."""
        return schedules.beta1(epoch, self.decay_start, beta1_drop=self.fidelity.beta1_drop)


def two_loss_warmup(epochs: int, steps: int) -> int:
    """Epochs before the loss changes, of which each has so many steps; at most three quarters of all.

    >>> two_loss_warmup(20, 468), two_loss_warmup(50, 20), two_loss_warmup(4, 20), two_loss_warmup(1, 20)
    (10, 16, 3, 1)
    """
    return max(1, min(3 * epochs // 4, max(WARMUP_EPOCHS, math.ceil(WARMUP_STEPS / steps))))


def no_small_losses(method: str) -> ValueError:
    return ValueError(f"{method} picks no small losses that a mixture could tell: leave mixture out.")


def check_pairs(plan: Plan, *, decoupled: bool) -> None:
    """Refuse what would do nothing without something else; `decoupled` if it is asked for, not just a recipe's."""
    if decoupled and not plan.weight_decay:
        raise ValueError(
            "there is no weight decay to decouple: leave decoupled_decay out, or give a weight decay."
        )
    if plan.weak_selection and not (plan.cutout or plan.strong_view):
        raise ValueError(
            "weak selection is for images that are cut to be learnt: leave weak_selection out, or give cutout."
        )


def check_guesses(method: str, plan: Plan) -> None:
    """Refuse what would do nothing, or the contrary of something else, in what is learnt besides labels."""
    if method == "iterative":
        for name in NOT_IN_ROUNDS:
            if getattr(plan, name):
                raise ValueError(f"iterative selects nothing in a mini-batch: leave {name} out.")
    if plan.mixture and method in WITHOUT_SMALL_LOSSES:
        raise no_small_losses(method)
    if plan.guess_weight and method in DROPPING_NOTHING:
        raise ValueError(f"{method} drops no samples whose classes could be guessed: leave guess_weight out.")
    if not plan.guess_weight and plan.guess_ramp and method != "dividemix":
        raise ValueError("there are no guesses to ramp up: leave guess_ramp out, or give guess_weight.")
    if not plan.guess_weight and plan.temperature is not None and method != "dividemix":
        raise ValueError("there are no guesses to sharpen: leave temperature out, or give guess_weight.")
    if plan.memory_decay is not None and not plan.memory_weight:
        raise ValueError("there is no memory to decay: leave memory_decay out, or give memory_weight.")
    if plan.confidence_penalty and method != "dividemix":
        raise ValueError("the confidence penalty belongs to dividemix's warm-up: leave confidence_penalty out.")
    if plan.memory_weight and method == "dividemix":
        raise ValueError("dividemix changes the labels that a memory would guard: leave memory_weight out.")
    if plan.mixture and plan.keep_per_class:
        raise ValueError("mixture and keep_per_class both say what is kept: give one of them.")
    if method == "dividemix" and plan.keep_per_class:
        raise ValueError("dividemix learns all samples and keeps no share of them: leave keep_per_class out.")
    if (plan.mixture or method == "dividemix") and not plan.warmup and plan.epochs > 1:
        raise ValueError("a mixture of losses needs networks that have warmed up: give a warmup of at least 1.")
