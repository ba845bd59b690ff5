"""Which labels are likely right, from the losses of all samples: a mixture of two Gaussians, fitted by EM.

Right labels have small losses and wrong ones large ones, so the losses have two modes; no noise rate is needed to
tell them apart (Arazo et al., 2019; with Gaussians Li, Socher and Hoi, 2020). Everything stays on the device, and
nothing waits for it. Leading axes (N networks, R runs) are fitted apart; M samples, K = 2 components.
"""

import math

import torch
from torch import Tensor

# As DivideMix's authors run scikit-learn's GaussianMixture.
EM_STEPS, EM_TOLERANCE, LEAST_VARIANCE = 10, 1e-2, 5e-4
CLUSTER_STEPS = 20  # of two means on a line, which settle within a few


def clean_probability(loss_NRM: Tensor) -> Tensor:
    """clean_NRM: the posterior of the component with the smaller mean.

    The losses are first scaled to lie from 0 to 1. What is not finite is believed wrong, and left out of the fit.

    >>> clean_probability(torch.tensor([0.1, 0.12, 0.14, 2.0, 2.1, torch.nan])).round(decimals=2)
    tensor([1., 1., 1., 0., 0., 0.])
    """
    known_NRM = loss_NRM.isfinite()
    x_NRM = from_zero_to_one(loss_NRM.double(), known_NRM)
    log_p_KNRM = two_gaussians(x_NRM, known_NRM)
    clean_NRM = log_p_KNRM.softmax(0)[0]
    return torch.where(known_NRM, clean_NRM, 0).to(loss_NRM.dtype)


def from_zero_to_one(loss_NRM: Tensor, known_NRM: Tensor) -> Tensor:
    """From 0 for the smallest loss to 1 for the largest; 0 for unknown ones."""
    low = torch.where(known_NRM, loss_NRM, torch.inf).amin(-1, keepdim=True)
    high = torch.where(known_NRM, loss_NRM, -torch.inf).amax(-1, keepdim=True)
    spread = torch.where(high > low, high - low, 1)
    return torch.where(known_NRM, (loss_NRM - low) / spread, 0)


def two_gaussians(x_NRM: Tensor, known_NRM: Tensor) -> Tensor:
    """log(weight · density) of both components, the one with the smaller mean first (KNRM)."""
    weight = known_NRM.to(x_NRM.dtype)
    components = maximised(x_NRM, weight, two_clusters(x_NRM, known_NRM).to(x_NRM.dtype))
    bound_NR1 = torch.full_like(x_NRM[..., :1], -torch.inf)
    settled_NR1 = torch.zeros_like(bound_NR1, dtype=torch.bool)
    for _ in range(EM_STEPS):
        log_p_KNRM = log_joint(x_NRM, *components)
        mean_NR1 = (torch.logsumexp(log_p_KNRM, 0) * weight).sum(-1, keepdim=True) / total(weight)
        better = maximised(x_NRM, weight, log_p_KNRM.softmax(0))
        # a fit that has settled stays as it is, though others go on
        components = tuple(torch.where(settled_NR1, old, new) for old, new in zip(components, better, strict=True))
        settled_NR1 = settled_NR1 | ((mean_NR1 - bound_NR1).abs() < EM_TOLERANCE)
        bound_NR1 = mean_NR1
    share, mean, variance = components
    swapped = (mean[0] > mean[1])[None]
    ordered = (torch.where(swapped, of.flip(0), of) for of in (share, mean, variance))
    return log_joint(x_NRM, *ordered)


def two_clusters(x_NRM: Tensor, known_NRM: Tensor) -> Tensor:
    """of_KNRM: whether a number is nearer to the lower or to the higher of two means (Lloyd's algorithm)."""
    low, high = torch.zeros_like(x_NRM[..., :1]), torch.ones_like(x_NRM[..., :1])
    for _ in range(CLUSTER_STEPS):
        lower = x_NRM <= (low + high) / 2
        low, high = (mean_of(x_NRM, known_NRM & side, old) for side, old in ((lower, low), (~lower, high)))
    lower = x_NRM <= (low + high) / 2
    return torch.stack([lower, ~lower])


def mean_of(x_NRM: Tensor, mask_NRM: Tensor, otherwise: Tensor) -> Tensor:
    n = mask_NRM.sum(-1, keepdim=True)
    return torch.where(n > 0, torch.where(mask_NRM, x_NRM, 0).sum(-1, keepdim=True) / n.clamp(min=1), otherwise)


def maximised(x_NRM: Tensor, weight_NRM: Tensor, of_KNRM: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Share, mean and variance of each component, given how much of each number is its (KNR1)."""
    of_KNRM = of_KNRM * weight_NRM
    n_KNR1 = of_KNRM.sum(-1, keepdim=True) + 10 * torch.finfo(x_NRM.dtype).eps
    mean_KNR1 = (of_KNRM * x_NRM).sum(-1, keepdim=True) / n_KNR1
    variance_KNR1 = (of_KNRM * (x_NRM - mean_KNR1).square()).sum(-1, keepdim=True) / n_KNR1 + LEAST_VARIANCE
    return n_KNR1 / total(weight_NRM), mean_KNR1, variance_KNR1


def total(weight_NRM: Tensor) -> Tensor:
    return weight_NRM.sum(-1, keepdim=True).clamp(min=1)


def log_joint(x_NRM: Tensor, share: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return share.log() - 0.5 * ((x_NRM - mean).square() / variance + variance.log() + math.log(2 * math.pi))
