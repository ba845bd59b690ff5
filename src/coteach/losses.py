"""Losses that return one number per sample: logits_NRBC and target_NRB in, loss_NRB out.

Any of them goes with any rule. Shapes: N networks, R runs, B samples, C classes; leading axes may be absent.
The examples have two samples: the network believes the label of the first, and not that of the second.

>>> logits, target = torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]]), torch.tensor([0, 1])
"""

from collections.abc import Callable

import torch
from torch import Tensor

from coteach.guesses import soft_cross_entropy

Loss = Callable[[Tensor, Tensor], Tensor]


def log_likelihood(logits: Tensor, target: Tensor) -> Tensor:
    """log p of the target class.

    >>> log_likelihood(logits, target).exp()
    tensor([0.7870, 0.1065])
    """
    return logits.log_softmax(-1).gather(-1, target[..., None]).squeeze(-1)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-log p: without bound, so that one wrong label can outweigh many right ones.

    >>> cross_entropy(logits, target)
    tensor([0.2395, 2.2395])
    """
    return -log_likelihood(logits, target)


def softmax_twice(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the softmax outputs, as the authors' code computes it: 1 - p up to a constant (row 1).

    >>> softmax_twice(logits, target)
    tensor([0.6995, 1.3800])
    """
    return cross_entropy(logits.softmax(-1), target)


def mean_absolute_error(logits: Tensor, target: Tensor) -> Tensor:
    """The sum over the classes of abs(onehot - p), 2 - 2p (Ghosh et al., 2017).

    >>> mean_absolute_error(logits, target)
    tensor([0.4260, 1.7870])
    """
    return 2 - 2 * log_likelihood(logits, target).exp()


def generalised_cross_entropy(logits: Tensor, target: Tensor, q: float = 0.7) -> Tensor:
    """(1 - p^q) / q: cross-entropy at q → 0, absolute error at q = 1 (Zhang and Sabuncu, 2018).

    >>> generalised_cross_entropy(logits, target)
    tensor([0.2205, 1.1307])
    """
    return (1 - (q * log_likelihood(logits, target)).exp()) / q


def symmetric_cross_entropy(
    logits: Tensor, target: Tensor, alpha: float = 0.1, beta: float = 1.0, log_zero: float = -4.0
) -> Tensor:
    """α·cross-entropy + β·reverse cross-entropy, with log 0 taken as -4 (Wang et al., 2019, for CIFAR-10).

    >>> symmetric_cross_entropy(logits, target)
    tensor([0.8760, 3.7979])
    """
    log_p = log_likelihood(logits, target)
    return -alpha * log_p - beta * log_zero * (1 - log_p.exp())


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "softmax_twice": softmax_twice,
    "mae": mean_absolute_error,
    "gce": generalised_cross_entropy,
    "sce": symmetric_cross_entropy,
}
"""The losses that a user can name; `coteach.register_loss` adds to them.

>>> LOSSES["gce"] is generalised_cross_entropy
True
"""


def forward_corrected(loss: Loss, transition_RCC: Tensor) -> Loss:
    """The loss of softmax(logits)·T: with cross-entropy F-correction's -log((p·T)[y]) (Patrini et al., 2017).

    Row i of T says how labels of class i were given; shape (R, C, C), or (C, C) for one run.

    >>> loss = forward_corrected(cross_entropy, torch.tensor([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> bool(loss(logits, target)[1] < cross_entropy(logits, target)[1])  # a 1 may have been a 0
    True
    """

    def corrected(logits_NRBC: Tensor, target_NRB: Tensor) -> Tensor:
        noisy_p = logits_NRBC.softmax(-1) @ transition_RCC
        # Logits whose softmax is p·T, so that every loss can be corrected; log 0 would have a nan gradient.
        return loss(noisy_p.clamp(min=torch.finfo(noisy_p.dtype).tiny).log(), target_NRB)

    return corrected


def smoothed(loss: Loss, share: float) -> Loss:
    """The loss of a label of which a `share` is spread over all classes alike (Szegedy et al., 2016).

    >>> smoothed(cross_entropy, 0.3)(logits, target)  # 0.8 of the label's own loss, 0.1 of each other class'
    tensor([0.6395, 2.0395])
    """

    def spread(logits_NRBC: Tensor, target_NRB: Tensor) -> Tensor:
        if loss is cross_entropy:  # at a fraction of the memory, which grows with the square of the classes
            return (1 - share) * loss(logits_NRBC, target_NRB) - share * logits_NRBC.log_softmax(-1).mean(-1)
        return (1 - share) * loss(logits_NRBC, target_NRB) + share * of_every_class(loss, logits_NRBC).mean(-1)

    return spread


def of_every_class(loss: Loss, logits_NRBC: Tensor) -> Tensor:
    """loss_NRBC: what it would be if the label were this class.

    >>> of_every_class(cross_entropy, logits)[:, :2]
    tensor([[0.2395, 2.2395],
            [0.2395, 2.2395]])
    """
    *leading, samples, classes = logits_NRBC.shape
    # every class of every sample as a sample of its own: so it goes with every loss, a corrected one included
    every_NRX = torch.arange(classes, device=logits_NRBC.device).repeat(samples)
    of_every = loss(logits_NRBC.repeat_interleave(classes, -2), every_NRX.expand(*leading, -1))
    return of_every.unflatten(-1, (-1, classes))


def of_soft_labels(loss: Loss, logits_NRBC: Tensor, target_NRBC: Tensor) -> Tensor:
    """The loss of each class, weighed by how much the label is of that class.

    >>> of_soft_labels(cross_entropy, logits, torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    tensor([0.2395, 1.2395])
    """
    if loss is cross_entropy:
        return soft_cross_entropy(logits_NRBC, target_NRBC)
    return (target_NRBC * of_every_class(loss, logits_NRBC)).sum(-1)


def less_confident(loss: Loss, weight: float) -> Loss:
    """The loss plus a weight times Σ p·log p, which keeps networks unsure for longer (Pereyra et al., 2017).

    >>> less_confident(cross_entropy, 1.0)(logits, target) - cross_entropy(logits, target)
    tensor([-0.6656, -0.6656])
    """

    def penalised(logits_NRBC: Tensor, target_NRB: Tensor) -> Tensor:
        log_p = logits_NRBC.log_softmax(-1)
        return loss(logits_NRBC, target_NRB) + weight * (log_p.exp() * log_p).sum(-1)

    return penalised


def joint(loss: Loss, weight: float) -> Loss:
    """JoCoR's (1-c)(ℓ₁+ℓ₂) + c·(KL(1‖2) + KL(2‖1)) over two networks, half of the divergence on each.

    >>> both = torch.stack([logits, logits])  # N = 2: networks that agree have no divergence
    >>> torch.allclose(joint(cross_entropy, 0.9)(both, target.expand(2, 2)), 0.1 * cross_entropy(logits, target))
    True
    """

    def joined(logits_NRBC: Tensor, target_NRB: Tensor) -> Tensor:
        log_p = logits_NRBC.log_softmax(-1)
        log_q = log_p.flip(0)
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
        return (1 - weight) * loss(logits_NRBC, target_NRB) + weight * divergence / 2

    return joined


def transition_from_posteriors(p_MC: Tensor, *, drop_outliers: bool = True) -> Tensor:
    """How labels flip, read off a trained network: F-correction's first stage (Patrini et al., 2017).

    Row i is the posterior at the sample that the network is most sure is of class i.

    Parameters
    ----------
    p_MC : Tensor
        Probabilities of every training sample.
    drop_outliers : bool
        Take the surest sample below the 97th percentile of class i's posteriors, as the method's authors do
        everywhere but on CIFAR-100.

    Returns
    -------
    matrix : Tensor of shape (C, C)

    Examples
    --------
    >>> transition_from_posteriors(torch.tensor([[0.9, 0.1], [0.3, 0.7]]), drop_outliers=False)
    tensor([[0.9000, 0.1000],
            [0.3000, 0.7000]])
    """
    rows = []
    for p_M in p_MC.unbind(1):
        if drop_outliers:
            p_M = torch.where(p_M >= p_M.quantile(0.97, interpolation="higher"), 0, p_M)
        rows.append(p_MC[p_M.argmax()])
    return torch.stack(rows)
