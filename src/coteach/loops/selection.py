"""A method's rule as a loss, for your own training loop.

N networks, B samples of a mini-batch, W of a window, M samples, C classes; R, the runs, is one here.
"""

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from coteach.checks import is_whole
from coteach.labels.estimate import SMALLEST, estimate_noise
from coteach.loops.ledger import Ledger, as_integers, in_full_precision
from coteach.loops.pair import logits_of
from coteach.methods import METHODS, Method, Phase
from coteach.names import LOSS_MEANINGS, check_name
from coteach.plan import Plan
from coteach.rules import Batch, check_batch

LOOKED_AT = 4096  # samples whose labels are compared with the networks' latest opinions, to learn the noise rate
GROWTH = 1.25  # of what was seen, before the noise rate is estimated again
FEWEST_LOOKED_AT = 256  # samples to estimate it from
MOST_NOISE_LEARNT = 0.95
COUNTS, LATEST = ("step", "epoch", "seen", "seen_at_estimate"), ("latest_NWC", "labels_W", "p_MC", "given_M")


class Selection(nn.Module):
    """A loss that counts only the samples that a method learns from.

    In training mode each call is a step. In evaluation mode, or without gradients, it returns the loss of all
    samples, and its state stays as it is. One backward pass serves both networks: the result is the sum of their
    losses, and each loss depends only on that network's weights.

    Parameters
    ----------
    method : str
        A name in `coteach.METHODS`: "coteaching", "coteaching_plus", "jocor", "decoupling" for two networks;
        "mentornet" or "standard" for one or two.
    noise_rate : float or "auto"
        The share of wrong labels. "auto" estimates it during the ramp, and at most in the first half of the
        training, from what the networks think of labels before they learn them. It is 0 for the first 256 samples.
    steps : int, optional
        How often it will be called in all; with accumulated gradients every part counts. Give this, or …
    epochs : int, optional
        … the number of epochs, and call `next_epoch` after each.
    ramp : int, optional
        Steps, or epochs, until the full share is left out. By default all of them, because networks that know
        nothing yet can leave out a whole class.
    warmup : int, optional
        Steps, or epochs, before disagreement counts, in methods that use it; by default a fifth of all.
    loss : str, optional
        A name in `coteach.LOSSES`; by default the method's own.
    keep_per_class : bool
        Leave out the same share of each given class.
    window : int
        The least size of a batch from which the method picks directly. The losses of a smaller batch are compared
        together with the latest ones before it, up to `window` in all.
    ledger : Ledger, optional
        Records what the networks think of each label; every call then needs an index.

    Attributes
    ----------
    picked : bool tensor of shape (N, B)
        Which samples each network learnt from in the last step.
    keep : float
        The share that is learnt from now.
    noise_rate_ : float
        As given, or as estimated so far.

    Examples
    --------
    >>> selection = coteach.Selection("coteaching", noise_rate=0.5, steps=100, ramp=1)
    >>> logits = torch.tensor([[[4.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.0, 1.0]]], requires_grad=True)
    >>> selection(logits, torch.tensor([0, 0])).backward()  # the second label is doubted
    >>> selection.picked.tolist()
    [[True, False], [True, False]]
    """

    def __init__(
        self,
        method: str = "coteaching",
        noise_rate: float | str = "auto",
        *,
        steps: int | None = None,
        epochs: int | None = None,
        ramp: int | None = None,
        warmup: int | None = None,
        loss: str | None = None,
        keep_per_class: bool = False,
        window: int = 64,
        ledger: Ledger | None = None,
    ):
        super().__init__()
        offered = [name for name, known in METHODS.items() if goes_with_any_loop(known)]
        if method in METHODS and method not in offered:
            raise ValueError(f"{method} is more than a rule and a loss: choose one of {', '.join(offered)}.")
        check_name("method", method, offered)
        if loss is not None:
            check_name("loss", loss, LOSS_MEANINGS)
        if noise_rate != "auto" and not (isinstance(noise_rate, Real) and 0 <= float(noise_rate) < 1):
            raise ValueError(f"noise_rate is {noise_rate!r}: give 'auto', or a share in [0, 1) such as 0.2.")
        if not (ledger is None or isinstance(ledger, Ledger)):
            raise ValueError(f"ledger is {ledger!r}: give a coteach.Ledger(len(dataset)), or none.")
        if (steps is None) == (epochs is None):
            raise ValueError("give steps, how often it will be called in all, or epochs: one of them.")
        self.by_epochs, length = epochs is not None, epochs if steps is None else steps
        for name, value, least in (
            ("epochs" if self.by_epochs else "steps", length, 1),
            ("ramp", ramp, 1),
            ("warmup", warmup, 0),
            ("window", window, 0),
        ):
            if (value is not None or name == "window") and not (is_whole(value) and int(value or 0) >= least):
                raise ValueError(f"{name} is {value!r}: give a whole number of at least {least}.")
        assert length is not None
        self.method, self.window, self.ledger = METHODS[method], int(window), ledger
        self.plan = Plan(
            epochs=int(length),
            ramp=int(length if ramp is None else ramp),
            warmup=max(1, length // 5) if warmup is None else int(warmup),
            loss=loss,
            keep_per_class=bool(keep_per_class),
        )
        self.phases = self.method.planned(self.plan)
        if keep_per_class:
            self.phases = [replace(phase, rule=phase.rule.of_each_class()) for phase in self.phases]
        self.learns_rate = isinstance(noise_rate, str)
        self.noise_rate_ = 0.0 if isinstance(noise_rate, str) else float(noise_rate)
        self.step, self.epoch = 0, 1
        self.latest_NWC, self.labels_W = torch.empty(0), torch.empty(0, dtype=torch.int64)
        self.p_MC, self.given_M = torch.empty(0), torch.empty(0, dtype=torch.int64)
        self.seen = self.seen_at_estimate = 0
        self.picked = torch.empty(0, dtype=torch.bool)

    # ---- where a training stands --------------------------------------------------------------------------------

    @property
    def unit(self) -> int:
        """The epoch, or the step, counted from 1; the last one goes on where a training is longer than said."""
        return min(max(1, self.epoch if self.by_epochs else self.step), self.plan.epochs)

    @property
    def keep(self) -> float:
        """The share of the samples that is learnt from now."""
        return self.plan.keep_rate(self.unit, self.noise_rate_)

    @property
    def phase(self) -> Phase:
        """What the method does at present."""
        return next(phase for phase in self.phases if self.unit in phase.epochs)

    def next_epoch(self) -> None:
        """Begin another epoch: the ledger may then note every sample again.

        >>> selection = coteach.Selection("coteaching", noise_rate=0.4, epochs=4, ramp=2)
        >>> first = selection.keep
        >>> selection.next_epoch()
        >>> first, selection.keep
        (0.8, 0.6)
        """
        self.epoch += 1
        if self.ledger is not None:
            self.ledger.next_epoch()

    # ---- the loss -----------------------------------------------------------------------------------------------

    def forward(self, logits: Any, labels: Any, index: Any = None) -> Tensor:
        """The sum of the networks' losses, each on the samples that it learns from.

        Parameters
        ----------
        logits : tensor of shape (2, B, C), or (B, C) or (1, B, C) for a method of one network
            As `Pair` returns them, or an object with the attribute `logits`.
        labels : int tensor of shape (B,)
            As given, some of them wrong.
        index : int array of shape (B,), optional
            The samples' numbers in the training set, for the ledger.

        Returns
        -------
        loss : tensor with one number

        Examples
        --------
        >>> selection = coteach.Selection("mentornet", noise_rate=0.2, steps=100)
        >>> selection(torch.zeros(10, 3, requires_grad=True), torch.zeros(10, dtype=torch.int64))
        tensor(1.0986, grad_fn=<SumBackward0>)
        """
        two = isinstance(logits, (list, tuple)) and not hasattr(logits, "logits")
        logits_NBC = torch.stack(list(logits)) if two else logits_of(logits)
        logits_NBC = in_full_precision(logits_NBC[None] if logits_NBC.dim() == 2 else logits_NBC)
        labels = as_integers(labels, logits_NBC.device)
        check_batch(logits_NBC, labels)
        if not (self.training and torch.is_grad_enabled()):
            return loss_of_all(self.phase, logits_NBC, labels).mean(-1).sum()
        self.step += 1
        phase = self.phase
        self._check_networks(len(logits_NBC))
        if self.ledger is not None and index is None:
            raise ValueError("the ledger needs to know the samples: hand their numbers over as index.")
        self._learn_rate(logits_NBC.detach(), labels)
        loss, self.picked = self._loss_and_picks(phase, logits_NBC, labels)
        if self.ledger is not None:
            self.ledger.note(index, logits_NBC, labels, self.picked)
        return loss

    def _check_networks(self, networks: int) -> None:
        if self.method.networks == 2 and networks != 2:
            raise ValueError(
                f"logits of {networks} network(s), but {self.method.name} compares two: give (2, B, C), as "
                "coteach.Pair returns them."
            )

    def _loss_and_picks(self, phase: Phase, logits_NBC: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
        """Picked from the batch and from the latest samples before it, if the batch is small."""
        size = len(labels_B)
        logits_NWC, labels_W = self._with_latest(logits_NBC, labels_B)
        loss_NW = loss_of_all(phase, logits_NWC, labels_W)
        keep_11 = torch.full((1, 1), self.keep, dtype=torch.float64, device=logits_NBC.device)
        seen = Batch(logits_NWC.detach()[:, None], loss_NW.detach()[:, None], keep_11, label_RB=labels_W[None])
        weight_NW = phase.weigh(phase.rule(seen)[:, 0].to(loss_NW.dtype))
        # By the mean over the window a sample weighs as much in a batch with few picks as in one with many.
        weight_NB = weight_NW[:, -size:] * (len(labels_W) / size)
        picked_NB = weight_NB > 0
        # where, not a product: 0 · nan is nan, and a sample that nobody picked must not spoil the loss
        return torch.where(picked_NB, weight_NB * loss_NW[:, -size:], 0).sum(), picked_NB

    def _with_latest(self, logits_NBC: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
        """The batch, behind as many of the latest samples as fill the window; the window moves on."""
        room = max(0, self.window - len(labels_B))
        before = min(room, len(self.labels_W))
        if before:
            logits_NWC = torch.cat([self.latest_NWC[:, -before:].to(logits_NBC), logits_NBC], 1)
            labels_W = torch.cat([self.labels_W[-before:].to(labels_B), labels_B])
        else:
            logits_NWC, labels_W = logits_NBC, labels_B
        latest = slice(max(0, len(labels_W) - self.window), None)
        self.latest_NWC, self.labels_W = logits_NWC.detach()[:, latest], labels_W[latest]
        return logits_NWC, labels_W

    def _learn_rate(self, logits_NBC: Tensor, labels_B: Tensor) -> None:
        """From the latest opinions of samples before they are learnt: wrong labels are not known by heart yet."""
        last = min(self.plan.ramp, max(1, self.plan.epochs // 2))
        if not self.learns_rate or (self.seen_at_estimate and self.unit > last):
            return
        if self.unit == last + 1:
            warnings.warn(
                f"noise_rate='auto' has seen fewer than {FEWEST_LOOKED_AT} samples by now, and leaves nothing out "
                "until it has: give a number.",
                stacklevel=4,
            )
        p_BC = logits_NBC.softmax(-1).mean(0)
        if not p_BC.isfinite().all():
            return
        self.seen += len(labels_B)
        self.p_MC = torch.cat([self.p_MC.to(p_BC), p_BC] if self.p_MC.numel() else [p_BC])[-LOOKED_AT:]
        self.given_M = torch.cat([self.given_M.to(labels_B), labels_B])[-LOOKED_AT:]
        if len(self.given_M) >= FEWEST_LOOKED_AT and self.seen >= GROWTH * self.seen_at_estimate:
            self.seen_at_estimate = self.seen
            # not the opinions of networks that knew nothing yet
            latest = slice(-max(FEWEST_LOOKED_AT, self.seen // 2), None)
            p_MC = self.p_MC[latest].double().clamp(min=SMALLEST).cpu().numpy()
            found = estimate_noise(p_MC / p_MC.sum(1, keepdims=True), self.given_M[latest].cpu().numpy())
            self.noise_rate_ = min(found.rate, MOST_NOISE_LEARNT)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Tensor]:
        """What a state dict holds of it, the ledger included."""
        state = {name: torch.tensor(getattr(self, name)) for name in COUNTS}
        state["noise_rate_"] = torch.tensor(self.noise_rate_, dtype=torch.float64)
        state |= {name: getattr(self, name) for name in LATEST}
        if self.ledger is not None:
            state |= {f"ledger.{name}": value for name, value in self.ledger.state().items()}
        return state

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Go on from there."""
        counts = {name: int(state[name]) for name in COUNTS}
        latest = {name: state[name].clone() for name in LATEST}
        noise_rate = float(state["noise_rate_"])
        if self.ledger is not None:
            self.ledger.restore(
                {k.removeprefix("ledger."): v for k, v in state.items() if k.startswith("ledger.")}
            )
        self.__dict__.update(counts | latest, noise_rate_=noise_rate)  # at once, after all that may fail


def goes_with_any_loop(method: Method) -> bool:
    """Whether it is a rule and a loss, and neither begins anew nor hands on labels or views of its own."""
    if method.views or method.in_rounds:
        return False
    phases = method.phases(Plan(epochs=4, warmup=1))
    return not any(phase.own_labels or phase.corrected_by or phase.divided for phase in phases)


def loss_of_all(phase: Phase, logits_NBC: Tensor, labels_B: Tensor) -> Tensor:
    """loss_NB of every sample."""
    return phase.loss(logits_NBC[:, None], labels_B.expand(len(logits_NBC), 1, -1))[:, 0]
