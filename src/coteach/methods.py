"""Every method as a sequence of phases: who learns from what, with which loss, in which epochs.

`METHODS` drives the tests: a method added here is tested by being here. (Its line for `--help` is in names.py.)
`register_method` adds your own, `register_loss` a loss.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from torch import Tensor

from coteach import losses, names, rules
from coteach.losses import LOSSES, Loss
from coteach.plan import Plan
from coteach.rules import Rule

# ---- how the picked samples are weighed: picked_NRB → weight_NRB ----------------------------------------------


def mean(picked_NRB: Tensor) -> Tensor:
    return picked_NRB / picked_NRB.sum(-1, keepdim=True).clamp(min=1)


def mean_divided_again(picked_NRB: Tensor) -> Tensor:
    """As the authors' code: the mean, divided once more by the number kept (row 2)."""
    return picked_NRB / picked_NRB.sum(-1, keepdim=True).clamp(min=1) ** 2


def mean_of_a_tenth(picked_NRB: Tensor) -> Tensor:
    """As Decoupling's own authors: few samples weigh no more than if they were a tenth of the batch."""
    return picked_NRB / picked_NRB.sum(-1, keepdim=True).clamp(min=max(0.1 * picked_NRB.shape[-1], 1))


# ---- phases ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """A range of epochs with one rule and one loss, the same in each of them.

    Parameters
    ----------
    epochs : range
        Counted from 1; the phases of a method follow each other.
    rule : Rule
        Which samples update which network.
    loss : callable
        (logits_NRBC, target_NRB) → loss_NRB.
    weigh : callable
        picked_NRB → weight_NRB; by default the mean over the samples picked.
    own_labels : bool
        A network passes its own predictions on as labels (Co-training).
    rescue : bool
        What the authors' code does with a batch without disagreement (row 3).
    corrected_by : {"estimated", "known"}, optional
        Train new networks, with the loss corrected by this Q.
    divided : bool
        All samples are learnt, with labels that the networks refine or guess (DivideMix).

    Examples
    --------
    >>> Phase(range(1, 11), rules.coteaching, losses.cross_entropy).rule.cross
    True
    """

    epochs: range
    rule: Rule
    loss: Loss
    weigh: Callable[[Tensor], Tensor] = mean
    own_labels: bool = False
    rescue: bool = False
    corrected_by: str | None = None
    divided: bool = False

    def within(self, epochs: range) -> "Phase":
        """The part of it that lies in these epochs, which may be none."""
        return replace(
            self, epochs=range(max(self.epochs.start, epochs.start), min(self.epochs.stop, epochs.stop))
        )


@dataclass(frozen=True)
class Method:
    """A method's name, its number of networks, and its phases under a plan.

    Parameters
    ----------
    name : str
    networks : int
        N.
    phases : callable
        Plan → list of Phase.
    views : bool
        Each network sees its own half of every sample.
    in_rounds : bool
        The method has no rule; iterative.py trains it in rounds.

    Examples
    --------
    >>> plan = Plan(epochs=30, warmup=10)
    >>> [(phase.epochs, phase.rule is rules.coteaching) for phase in METHODS["coteaching_plus"].phases(plan)]
    [(range(1, 11), True), (range(11, 31), False)]
    """

    name: str
    networks: int
    phases: Callable[[Plan], list[Phase]]
    views: bool = False
    in_rounds: bool = False

    def planned(self, plan: Plan) -> list[Phase]:
        """The phases to train; if the warm-up has a loss of its own, they are cut where it ends.

        Raises
        ------
        ValueError
            If the method begins anew in between: it has no warm-up.

        Examples
        --------
        >>> plan = Plan(epochs=30, warmup=10, loss="gce", warmup_loss="cross_entropy")
        >>> [(phase.epochs, phase.loss.__name__) for phase in METHODS["coteaching"].planned(plan)]
        [(range(1, 11), 'cross_entropy'), (range(11, 31), 'generalised_cross_entropy')]
        """
        phases = self.phases(plan)
        if plan.warmup_loss is None:
            return phases
        if any(phase.corrected_by for phase in phases):
            raise ValueError(f"{self.name} begins anew in between, and has no warm-up: leave warmup_loss out.")
        first = self.phases(replace(plan, loss=plan.warmup_loss))
        halves = [
            half
            for early, late in zip(first, phases, strict=True)
            for half in (early.within(plan.warmup_epochs), late.within(plan.later_epochs))
        ]
        return [half for half in halves if half.epochs]

    def n_epochs(self, plan: Plan) -> int:
        """Epochs of all phases, a preliminary training included.

        >>> METHODS["f_correction"].n_epochs(Plan(epochs=30))  # to estimate, then to correct
        60
        """
        return sum(len(phase.epochs) for phase in self.phases(plan))


def chosen_loss(plan: Plan) -> Loss:
    return LOSSES[plan.loss or "cross_entropy"]


def standard_phases(plan: Plan) -> list[Phase]:
    return [Phase(plan.all_epochs, rules.standard, chosen_loss(plan))]


def mentornet_phases(plan: Plan) -> list[Phase]:
    return [Phase(plan.all_epochs, rules.mentornet, chosen_loss(plan))]


def coteaching_phases(plan: Plan) -> list[Phase]:
    return [Phase(plan.all_epochs, rules.coteaching, chosen_loss(plan))]


def jocor_phases(plan: Plan) -> list[Phase]:
    return [Phase(plan.all_epochs, rules.jocor, losses.joint(chosen_loss(plan), plan.joint_weight))]


def decoupling_phases(plan: Plan) -> list[Phase]:
    """Both networks on everything for as long as Co-teaching+ warms up, as its authors start it, then apart."""
    loss = chosen_loss(plan)
    return [
        Phase(plan.warmup_epochs, rules.standard, loss),
        Phase(plan.later_epochs, rules.decoupling, loss, mean_of_a_tenth),
    ]


def coteaching_plus_phases(plan: Plan) -> list[Phase]:
    """Algorithm 1; its warm-up is Co-teaching, or on the open-sets two networks each on its own small losses."""
    f = plan.fidelity
    warm = Phase(
        plan.warmup_epochs,
        rules.mentornet if plan.parallel_warmup else rules.coteaching,
        chosen_loss(plan),
        mean_divided_again if f.divided_twice else mean,
    )
    later_loss = losses.softmax_twice if f.softmax_twice and plan.loss is None else chosen_loss(plan)
    return [
        warm,
        replace(warm, epochs=plan.later_epochs, rule=rules.coteaching_plus, loss=later_loss, rescue=f.rescue),
    ]


def coteaching_plus_own_phases(plan: Plan) -> list[Phase]:
    """Co-teaching+ without the second of its three key factors: no exchange, neither in the warm-up nor later."""
    warm, later = coteaching_plus_phases(plan)
    return [replace(warm, rule=rules.mentornet), replace(later, rule=rules.coteaching_plus_own)]


def dividemix_phases(plan: Plan) -> list[Phase]:
    """Both networks on everything; then each learns all samples, with labels as its peer believes them or not."""
    loss = chosen_loss(plan)
    warm = losses.less_confident(loss, plan.confidence_penalty) if plan.confidence_penalty else loss
    return [
        Phase(plan.warmup_epochs, rules.standard, warm),
        Phase(plan.later_epochs, rules.dividemix, loss, divided=True),
    ]


def cotraining_phases(plan: Plan) -> list[Phase]:
    """Each network on its own view: first the given labels while λ falls, then what the peer is surest about."""
    loss = chosen_loss(plan)
    start = min(max(plan.warmup, min(plan.ramp, plan.epochs // 2)), plan.epochs)
    return [
        Phase(range(1, start + 1), rules.standard, loss),
        Phase(range(start + 1, plan.epochs + 1), rules.cotraining, loss, own_labels=True),
    ]


def f_correction_phases(plan: Plan) -> list[Phase]:
    """Estimate, then correct: a standard training to read Q̂ off, then a fresh one with the corrected loss."""
    estimate = range(1, (plan.estimate_epochs or plan.epochs) + 1)
    return [replace(standard_phases(plan)[0], epochs=estimate), *f_correction_known_phases(plan, "estimated")]


def f_correction_known_phases(plan: Plan, matrix: str = "known") -> list[Phase]:
    return [replace(phase, corrected_by=matrix) for phase in standard_phases(plan)]


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("standard", 1, standard_phases),
        Method("decoupling", 2, decoupling_phases),
        Method("f_correction", 1, f_correction_phases),
        Method("f_correction_known", 1, f_correction_known_phases),
        Method("mentornet", 1, mentornet_phases),
        Method("coteaching", 2, coteaching_phases),
        Method("coteaching_plus", 2, coteaching_plus_phases),
        Method("coteaching_plus_own", 2, coteaching_plus_own_phases),
        Method("cotraining", 2, cotraining_phases, views=True),
        Method("jocor", 2, jocor_phases),
        Method("dividemix", 2, dividemix_phases),
        Method("iterative", 1, standard_phases, in_rounds=True),
    )
}
"""The methods that a user can name; `register_method` adds to them.

>>> METHODS["coteaching"].networks
2
"""


# ---- methods and losses of your own ---------------------------------------------------------------------------


def register_method(method: Method, meaning: str = "of your own") -> Method:
    """Add your own method: Experiment, RobustClassifier and `coteach.METHODS` then know it, in this process.

    Parameters
    ----------
    method : Method
        Its phases are a function of the plan, so that they follow the user's epochs, warm-up and loss.
    meaning : str
        A line for help texts.

    Returns
    -------
    method : Method

    Examples
    --------
    >>> def phases(plan):
    ...     return [Phase(plan.all_epochs, rules.decoupling, chosen_loss(plan))]
    >>> register_method(Method("decoupling_cold", 2, phases), "Decoupling without a warm-up").name
    'decoupling_cold'
    """
    _refuse_taken("method", method.name, METHODS)
    METHODS[method.name] = method
    names.METHOD_MEANINGS[method.name] = meaning
    return method


def register_loss(name: str, loss: Loss, meaning: str = "of your own") -> Loss:
    """Add your own loss: every method then takes it as `loss=name`, in this process.

    Parameters
    ----------
    name : str
    loss : callable
        (logits_NRBC, target_NRB) → loss_NRB: one number a sample, from which the rules pick as well.
    meaning : str
        A line for help texts.

    Returns
    -------
    loss : callable

    Examples
    --------
    >>> def half(logits_NRBC, target_NRB):
    ...     return losses.cross_entropy(logits_NRBC, target_NRB) / 2
    >>> register_loss("half", half) is half, "half" in LOSSES
    (True, True)
    """
    _refuse_taken("loss", name, LOSSES)
    LOSSES[name] = loss
    names.LOSS_MEANINGS[name] = meaning
    return loss


def _refuse_taken(what: str, name: str, known: Iterable[str]) -> None:
    if name in known:
        raise ValueError(f"there is a {what} {name!r} already: give yours another name.")
