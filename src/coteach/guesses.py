"""What can be learnt from samples whose labels are not believed: formulas on probabilities and logits.

N networks, R runs, B samples of a mini-batch, C classes; leading axes may be absent. The examples are of a network
that is sure of one sample, and not of the other:

>>> logits, p = torch.tensor([[3.0, 0.0], [0.2, 0.0]]), torch.tensor([[0.9, 0.1], [0.6, 0.4]])
"""

import math

import torch
from torch import Tensor

SUREST = 1e-4  # nobody is surer of a remembered opinion than this, in which a logarithm is taken


def sharpened(p_NRBC: Tensor, temperature: float) -> Tensor:
    """p^(1/T), scaled to sum to one: surer for T below 1 (Berthelot et al., 2019).

    >>> sharpened(p, 0.5)
    tensor([[0.9878, 0.0122],
            [0.6923, 0.3077]])
    """
    return (p_NRBC.clamp(min=torch.finfo(p_NRBC.dtype).tiny).log() / temperature).softmax(-1)


def guessed(logits_VNRBC: Tensor, temperature: float) -> Tensor:
    """What all networks think of all views of a sample, on average and sharpened: DivideMix's co-guessing (NRBC).

    >>> guessed(torch.stack([logits, -logits])[None], 0.5)[0]  # two networks of opposite opinions
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    mean_RBC = logits_VNRBC.softmax(-1).mean((0, 1))
    return sharpened(mean_RBC, temperature).expand(logits_VNRBC.shape[1:])


def refined(label_NRBC: Tensor, logits_VNRBC: Tensor, clean_NRB: Tensor, temperature: float) -> Tensor:
    """w·label + (1 - w)·prediction, sharpened: DivideMix's co-refinement, w being the peer's clean_NRB.

    The prediction is the network's own, the mean over its views.

    >>> refined(torch.eye(2)[[1, 1]], logits[None], torch.tensor([1.0, 0.0]), 0.5)
    tensor([[0.0000, 1.0000],
            [0.5987, 0.4013]])
    """
    w = clean_NRB[..., None]
    return sharpened(w * label_NRBC + (1 - w) * logits_VNRBC.softmax(-1).mean(0), temperature)


def soft_cross_entropy(logits_NRBC: Tensor, target_NRBC: Tensor) -> Tensor:
    """-Σ target · log p.

    >>> soft_cross_entropy(logits, p)
    tensor([0.3486, 0.6781])
    """
    return -(target_NRBC * logits_NRBC.log_softmax(-1)).sum(-1)


def squared_error(logits_NRBC: Tensor, target_NRBC: Tensor) -> Tensor:
    """The mean over classes of (target - p)²: bounded, and so kind to guesses that are wrong.

    >>> squared_error(logits, p)
    tensor([0.0028, 0.0025])
    """
    return (logits_NRBC.softmax(-1) - target_NRBC).square().mean(-1)


def class_imbalance(logits_NRBC: Tensor, weight_NRB: Tensor | None = None) -> Tensor:
    """Σ π·log(π / p̄) over the classes, π = 1/C and p̄ the mean prediction of a batch (Tanaka et al., 2018).

    It is 0 if all classes are predicted equally often, and grows when one is forgotten. Weights sum to one.

    >>> class_imbalance(torch.tensor([[3.0, 0.0], [0.0, 2.0]])), class_imbalance(torch.tensor([[3.0, 0.0]]))
    (tensor(0.0026), tensor(0.8554))
    """
    log_p_NRBC = logits_NRBC.log_softmax(-1)
    if weight_NRB is None:
        weight_NRB = torch.ones_like(log_p_NRBC[..., 0]) / log_p_NRBC.shape[-2]
    mean_NRC = (weight_NRB[..., None] * log_p_NRBC.exp()).sum(-2)
    least = torch.finfo(mean_NRC.dtype).tiny
    return -(mean_NRC.clamp(min=least).log() + math.log(mean_NRC.shape[-1])).mean(-1)


def memory_term(logits_NRBC: Tensor, memory_NRBC: Tensor) -> Tensor:
    """log(1 - ⟨memory, p⟩): lower, the nearer a network stays to what it thought before (Liu et al., 2020).

    >>> memory_term(logits, p)
    tensor([-1.9809, -0.7133])
    """
    return (1 - (memory_NRBC * logits_NRBC.softmax(-1)).sum(-1)).clamp(min=SUREST).log()
