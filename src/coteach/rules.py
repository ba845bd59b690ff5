"""Which samples update which network: Table 1 of the paper as code.

A rule looks at a `Batch` and answers with a mask picked_NRB: True where network n learns from the sample.
Shapes: N networks, R runs, B samples of a mini-batch, C classes. Runs never look at each other.

The examples look at two networks' opinions of four samples; they disagree on the second and on the last:

>>> logits_NRBC = torch.eye(2)[torch.tensor([[[0, 0, 1, 1]], [[0, 1, 1, 0]]])]
>>> loss_NRB = torch.tensor([[[0.1, 0.2, 0.9, 0.4]], [[0.2, 0.8, 0.3, 0.1]]])
>>> b = Batch(logits_NRBC, loss_NRB, keep_R1=torch.tensor([[0.5]]))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from coteach.losses import Loss, cross_entropy
from coteach.names import check_name


@dataclass(frozen=True)
class Batch:
    """What a rule may look at: the networks' opinions of one mini-batch, without gradients.

    >>> b.prediction_NRB.tolist()
    [[[0, 0, 1, 1]], [[0, 1, 1, 0]]]
    """

    logits_NRBC: Tensor
    loss_NRB: Tensor
    keep_R1: Tensor  #: λ(e) of Algorithm 1, float64, one a run
    round_up: bool = True  #: the paper keeps at least λ of the samples; the authors round down (fidelity row 4)
    label_RB: Tensor | None = None  #: as given; only a rule that keeps a share of each class looks at it
    clean_NRB: Tensor | None = None  #: how likely the label is right by the losses of all samples (mixture.py)
    prediction_NRB: Tensor = field(init=False)

    def __post_init__(self) -> None:  # once for all who ask, and not lazily, which torch.compile cannot follow
        object.__setattr__(self, "prediction_NRB", self.logits_NRBC.argmax(-1))

    @property
    def classes_C1(self) -> Tensor:
        """0 to C-1, to compare labels with."""
        return torch.arange(self.logits_NRBC.shape[-1], device=self.logits_NRBC.device)[:, None]


# ---- step 4: among which samples? -----------------------------------------------------------------------------


def everything(b: Batch) -> Tensor:
    """All samples."""
    return torch.ones_like(b.loss_NRB, dtype=torch.bool)


def disagreement(b: Batch) -> Tensor:
    """The samples on which the networks predict different classes (the paper's equation 1).

    >>> disagreement(b).int().tolist()
    [[[0, 1, 0, 1]], [[0, 1, 0, 1]]]
    """
    differ_RB = (b.prediction_NRB != b.prediction_NRB[0]).any(0)
    return differ_RB.expand_as(b.loss_NRB)


# ---- steps 5 and 6: which of them does a network pick? --------------------------------------------------------

LIKELY = 0.5
"""How likely a label must be right for `likely_clean` to pick it."""


def all_of(b: Batch, among_NRB: Tensor) -> Tensor:
    """Every one of them."""
    return among_NRB


def small_loss(b: Batch, among_NRB: Tensor) -> Tensor:
    """The share λ(e) with the smallest losses: their labels are likely right.

    >>> small_loss(b, everything(b)).int().tolist()
    [[[1, 1, 0, 0]], [[1, 0, 0, 1]]]
    """
    return lowest(b.loss_NRB, among_NRB, how_many(b, among_NRB))


def small_joint_loss(b: Batch, among_NRB: Tensor) -> Tensor:
    """The same by the networks' losses together, so that all pick alike (JoCoR).

    >>> small_joint_loss(b, everything(b)).int().tolist()
    [[[1, 0, 0, 1]], [[1, 0, 0, 1]]]
    """
    return lowest(b.loss_NRB.sum(0, keepdim=True).expand_as(among_NRB), among_NRB, how_many(b, among_NRB))


def small_loss_of_each_class(b: Batch, among_NRB: Tensor) -> Tensor:
    """The share λ(e) of each given class.

    >>> small_loss_of_each_class(replace(b, label_RB=torch.tensor([[0, 0, 1, 1]])), everything(b)).int().tolist()
    [[[1, 0, 0, 1]], [[1, 0, 0, 1]]]
    """
    return lowest_of_each_class(b, b.loss_NRB, among_NRB)


def small_joint_loss_of_each_class(b: Batch, among_NRB: Tensor) -> Tensor:
    """Both: by the networks' losses together, and the share λ(e) of each given class."""
    return lowest_of_each_class(b, b.loss_NRB.sum(0, keepdim=True).expand_as(among_NRB), among_NRB)


def most_confident(b: Batch, among_NRB: Tensor) -> Tensor:
    """The surest share of each predicted class: picked over all classes at once, the rare ones would vanish.

    >>> most_confident(b, everything(b)).int().tolist()  # equally sure: the first of each class
    [[[1, 0, 1, 0]], [[1, 1, 0, 0]]]
    """
    unsure_NRCB = -b.logits_NRBC.log_softmax(-1).amax(-1)[:, :, None].expand_as(b.logits_NRBC.mT)
    of_class_NRCB = among_NRB[:, :, None] & (b.prediction_NRB[:, :, None] == b.classes_C1)
    return lowest(unsure_NRCB, of_class_NRCB, how_many(b, of_class_NRCB)).any(2)


def likely_clean(b: Batch, among_NRB: Tensor) -> Tensor:
    """Those whose label is more likely right than wrong, however many they are (Li, Socher and Hoi, 2020).

    >>> likely_clean(replace(b, clean_NRB=torch.tensor([[[0.9, 0.5, 0.2, 0.8]]])), everything(b)).int().tolist()
    [[[1, 1, 0, 1]], [[1, 1, 0, 1]]]
    """
    assert b.clean_NRB is not None, "this pick needs the mixture of all losses"
    return among_NRB & (b.clean_NRB >= LIKELY)


def likely_clean_to_all(b: Batch, among_NRB: Tensor) -> Tensor:
    """The same by the networks' mean, so that all pick alike.

    >>> clean_NRB = torch.tensor([[[0.9, 0.5, 0.2, 0.8]], [[0.9, 0.1, 0.9, 0.1]]])
    >>> likely_clean_to_all(replace(b, clean_NRB=clean_NRB), everything(b)).int().tolist()
    [[[1, 0, 1, 0]], [[1, 0, 1, 0]]]
    """
    assert b.clean_NRB is not None, "this pick needs the mixture of all losses"
    return among_NRB & (b.clean_NRB.mean(0) >= LIKELY)


def how_many(b: Batch, among_NRB: Tensor) -> Tensor:
    """λ(e) of the samples chosen among; all of them where that is none (the paper's appendix).

    >>> how_many(b, everything(b)).tolist(), how_many(b, disagreement(b)).tolist()
    ([[[2]], [[2]]], [[[1]], [[1]]])
    """
    n_among = among_NRB.sum(-1, keepdim=True)
    keep = b.keep_R1 if n_among.dim() == 3 else b.keep_R1[:, None]  # counted by class, too, in Co-training
    n_keep = rounded(keep * n_among, b.round_up)
    return torch.where(n_keep == 0, n_among, n_keep)


def rounded(share: Tensor, up: bool) -> Tensor:
    # 0.55 * 20 is 11.000000000000002: rounding up must forgive that, or it keeps one too many.
    return ((share - 1e-9).ceil() if up else share.floor()).long()


def lowest(score_NRB: Tensor, among_NRB: Tensor, n_NR1: Tensor) -> Tensor:
    """The `n` lowest scores among the samples; ties go to the earlier sample, NaN comes last.

    >>> lowest(b.loss_NRB, disagreement(b), torch.tensor([1])).int().tolist()
    [[[0, 1, 0, 0]], [[0, 0, 0, 1]]]
    """
    order = sorted_order(score_NRB)
    candidate = among_NRB.gather(-1, order)
    chosen = candidate & (candidate.cumsum(-1) <= n_NR1)
    return torch.empty_like(chosen).scatter(-1, order, chosen)


def lowest_of_each_class(b: Batch, score_NRB: Tensor, among_NRB: Tensor) -> Tensor:
    """The lowest λ(e) of each given class."""
    assert b.label_RB is not None, "a share of each class needs the given labels"
    of_class_NRCB = among_NRB[:, :, None] & (b.label_RB[:, None] == b.classes_C1)
    score_NRCB = score_NRB[:, :, None].expand_as(of_class_NRCB)
    return lowest(score_NRCB, of_class_NRCB, how_many(b, of_class_NRCB)).any(2)


def sorted_order(score_NRB: Tensor) -> Tensor:
    return opaque_order(score_NRB) if torch.compiler.is_compiling() else score_NRB.argsort(dim=-1, stable=True)


@torch.library.custom_op("coteach::order", mutates_args=())
def opaque_order(score_NRB: Tensor) -> Tensor:
    """The same to torch.compile as a closed box: a sort of its own making takes half a minute to compile."""
    return score_NRB.argsort(dim=-1, stable=True)


@opaque_order.register_fake
def _(score_NRB: Tensor) -> Tensor:
    return torch.empty_like(score_NRB, dtype=torch.int64)


# ---- steps 7 and 8: who learns from the picks? ----------------------------------------------------------------

Pick = Callable[[Batch, Tensor], Tensor]


@dataclass(frozen=True)
class Rule:
    """A column of the paper's Table 1: among which samples, how picked, and whether the peer learns from them.

    Parameters
    ----------
    among : callable
        Batch → among_NRB, a mask: `everything` or `disagreement`.
    pick : callable
        (Batch, among_NRB) → picked_NRB: `all_of`, `small_loss`, ….
    cross : bool
        Whether a network learns from what its peer picked.

    Examples
    --------
    >>> Rule(everything, small_loss, cross=True)(b).int().tolist()  # Co-teaching: what `small_loss` picks, crossed
    [[[1, 0, 0, 1]], [[1, 1, 0, 0]]]
    >>> Rule(disagreement, all_of, cross=False)(b).int().tolist()  # Decoupling
    [[[0, 1, 0, 1]], [[0, 1, 0, 1]]]
    """

    among: Callable[[Batch], Tensor]
    pick: Pick
    cross: bool

    def __call__(self, b: Batch) -> Tensor:
        return self.picked(b, self.among(b))

    def picked(self, b: Batch, among_NRB: Tensor) -> Tensor:
        """True where a network learns from the sample: its own pick, or its peer's."""
        picked_NRB = self.pick(b, among_NRB)
        return picked_NRB.flip(0) if self.cross else picked_NRB  # flipped, each network gets its peer's

    @property
    def keeps_a_share(self) -> bool:
        """Whether λ(e) says how many are picked."""
        return self.pick is not all_of and self.pick not in BY_MIXTURE.values()

    def by_mixture(self) -> "Rule":
        """The same with likely right labels instead of a share λ(e) of small losses.

        >>> coteaching.by_mixture() == dividemix
        True
        """
        return replace(self, pick=BY_MIXTURE.get(self.pick, self.pick))

    def of_each_class(self) -> "Rule":
        """The same with small losses of each class: rare classes have larger ones, and would be left out.

        >>> jocor.of_each_class().pick is small_joint_loss_of_each_class
        True
        """
        return replace(self, pick=OF_EACH_CLASS.get(self.pick, self.pick))


OF_EACH_CLASS: dict[Pick, Pick] = {
    small_loss: small_loss_of_each_class,
    small_joint_loss: small_joint_loss_of_each_class,
}
BY_MIXTURE: dict[Pick, Pick] = {small_loss: likely_clean, small_joint_loss: likely_clean_to_all}


# Table 1:                  divergence    small loss        cross update; Co-training diverges by its two views
standard = Rule(            everything,   all_of,           cross=False)  # fmt: skip
decoupling = Rule(          disagreement, all_of,           cross=False)  # fmt: skip
mentornet = Rule(           everything,   small_loss,       cross=False)  # fmt: skip
coteaching = Rule(          everything,   small_loss,       cross=True)  # fmt: skip
coteaching_plus = Rule(     disagreement, small_loss,       cross=True)  # fmt: skip
coteaching_plus_own = Rule( disagreement, small_loss,       cross=False)  # fmt: skip
cotraining = Rule(          everything,   most_confident,   cross=True)  # fmt: skip
jocor = Rule(               everything,   small_joint_loss, cross=False)  # fmt: skip
dividemix = Rule(           everything,   likely_clean,     cross=True)  # fmt: skip


# ---- in a loop of your own ------------------------------------------------------------------------------------


def weights(
    rule: Rule | str,
    logits_NBC: Tensor | Sequence[Tensor],
    labels_B: Tensor,
    keep: float,
    loss: Loss = cross_entropy,
    keep_per_class: bool = False,
) -> Tensor:
    """How much each sample of a mini-batch counts for each network: 1/n for the n that it learns from, else 0.

    The loss of network n is then `(weight_NB[n] * loss_B).sum()`: the mean over its samples, or 0 where a rule
    finds none for it, as when two networks agree on everything.

    Parameters
    ----------
    rule : Rule or str
        One of this module, or its name: "coteaching", "coteaching_plus", "mentornet", "jocor", ….
    logits_NBC : tensor of shape (N, B, C), or N of shape (B, C)
        What each network says; gradients are neither needed nor touched.
    labels_B : int tensor of shape (B,)
        As given, some of them wrong.
    keep : float
        λ, the share to learn from: 1 - the noise rate, and more in the first epochs (`schedules.keep_rate`).
    loss : callable
        (logits_NRBC, target_NRB) → loss_NRB, by which samples are ranked: `losses.joint(…)` for JoCoR.
    keep_per_class : bool
        Keep that share of each given class.

    Returns
    -------
    weight_NB : tensor of shape (N, B), of the logits' dtype and device

    Examples
    --------
    >>> logits_NBC = torch.tensor([[[4.0, 0.0], [2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]]])
    >>> weights("coteaching", logits_NBC, torch.tensor([0, 0, 0]), keep=1 / 3)  # the last label is doubted
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    if isinstance(rule, str):
        known = {name: value for name, value in globals().items() if isinstance(value, Rule)}
        check_name("rule", rule, known)
        rule = known[rule]
    if rule.pick in BY_MIXTURE.values():
        raise ValueError("this rule looks at the losses of all samples: take another, such as coteaching.")
    logits_NBC = logits_NBC if isinstance(logits_NBC, Tensor) else torch.stack(list(logits_NBC))
    check_batch(logits_NBC, labels_B)
    if len(logits_NBC) != 2 and (rule.cross or rule.among is disagreement):
        raise ValueError(f"this rule compares two networks, not {len(logits_NBC)}: give the logits of both.")
    if not 0 <= keep <= 1:
        raise ValueError(f"keep is {keep}: give the share to learn from, 0 to 1, such as 0.8 for 20 % noise.")
    logits_NRBC = logits_NBC.detach()[:, None]
    loss_NRB = loss(logits_NRBC, labels_B.expand(logits_NRBC.shape[:-1]))
    keep_R1 = torch.full((1, 1), keep, dtype=torch.float64, device=logits_NRBC.device)
    rule = rule.of_each_class() if keep_per_class else rule
    picked_NB = rule(Batch(logits_NRBC, loss_NRB, keep_R1, label_RB=labels_B[None]))[:, 0]
    return picked_NB.to(logits_NRBC.dtype) / picked_NB.sum(-1, keepdim=True).clamp(min=1)


def check_batch(logits_NBC: Tensor, labels_B: Tensor) -> None:
    """Raise a ValueError for logits and labels that do not belong together.

    >>> check_batch(torch.zeros(2, 3, 10), torch.tensor([0, 1, 9]))
    """
    if logits_NBC.dim() != 3 or labels_B.shape != logits_NBC.shape[1:2]:
        raise ValueError(
            f"logits of shape {tuple(logits_NBC.shape)} with labels of shape {tuple(labels_B.shape)}: "
            "give (N, B, C) for N networks, and (B,)."
        )
    if not len(labels_B):
        raise ValueError("the batch is empty: leave it out.")
    outside_B = (labels_B < 0) | (labels_B >= logits_NBC.shape[-1])
    if labels_B.is_floating_point() or outside_B.any():
        found = f", not {labels_B[outside_B][0].item()}" if outside_B.any() else ""
        raise ValueError(
            f"labels must be whole numbers from 0 to {logits_NBC.shape[-1] - 1}{found}: encode them first."
        )
