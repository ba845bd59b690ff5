"""Many logistic regressions on the same samples, fitted together.

Folds and copies differ only in how much each sample counts for them, so one product of matrices serves them all.
L learners, M samples, F features along principal axes and a constant, C classes, K numbers of a sample.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from coteach.labels.folds import FOLDS, deal_folds
from coteach.labels.quality import of_given_labels

STEPS_REMEMBERED = 10  # by L-BFGS
MOST_STEPS, MOST_HALVINGS = 100, 12
SUFFICIENT = 1e-4  # share of the promised decrease that a step has to bring
LOSS_ROUND_OFF = 1e-6  # of a loss in float32
PROMISED_ENOUGH = 1e-5  # decrease that is still promised when the search ends
ENOUGH_TO_PREDICT = 1e-4  # the same for the models in the end
ENOUGH_TO_JUDGE = 1e-3  # and for losses that are only compared with each other
NO_DIRECTION = 1e-6  # of the largest variance: what varies less is left out
PENALTIES = (1.0, 0.2, 0.04, 0.008, 0.0016)  # on the squares of weights; held-out labels choose
OF_CONSTANT = 1e-6  # penalty, so that a class without samples has a finite one


@dataclass(frozen=True)
class Axes:
    """Principal axes of samples: along them the curvature of a logistic regression is nearly known beforehand.

    Samples are divided by one number for all features, so that their proportions stay.
    """

    mean_K: Tensor
    scale: float
    axes_KF: Tensor
    variance_F: Tensor

    @classmethod
    def of(cls, x_MK: Tensor) -> "Axes":
        mean_K = x_MK.mean(0)
        centred_MK = x_MK - mean_K
        scale = float(centred_MK.square().mean().sqrt()) or 1.0
        variance_K, axes_KK = principal_axes(centred_MK.T @ centred_MK / (len(x_MK) * scale**2))
        known_K = variance_K > NO_DIRECTION * variance_K[-1]
        one = torch.ones(1, dtype=x_MK.dtype)
        return cls(mean_K, scale, axes_KK[:, known_K], torch.cat([variance_K[known_K], one]))

    def along(self, x_MK: Tensor) -> Tensor:
        """Samples with a constant as the last feature (MF)."""
        x_MF = (x_MK - self.mean_K) @ (self.axes_KF / self.scale)
        return torch.cat([x_MF, torch.ones(len(x_MF), 1, dtype=x_MF.dtype)], 1)


def principal_axes(covariance_KK: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors; in float64 where float32 fails, as with few samples and constant features."""
    try:
        return torch.linalg.eigh(covariance_KK)
    except torch.linalg.LinAlgError:
        variance_K, axes_KK = torch.linalg.eigh(covariance_KK.double())
        return variance_K.to(covariance_KK), axes_KK.to(covariance_KK)


@dataclass
class LinearModel:
    """One of the regressions, for samples as they come."""

    axes: Axes = field(repr=False)
    theta_FC: Tensor = field(repr=False)

    def predict_proba(self, x_MK: np.ndarray) -> np.ndarray:
        return (self.axes.along(features_as_tensor(x_MK)) @ self.theta_FC).double().softmax(-1).numpy()


def features_as_tensor(x_MK: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x_MK, dtype=np.float32))


class LinearLearners:
    """Logistic regressions that go on from where they were; at first held-out labels choose their penalty."""

    def __init__(self, x_MK: np.ndarray, y_M: np.ndarray, n_classes: int):
        x = features_as_tensor(x_MK)
        self.axes = Axes.of(x)
        self.x_MF, self.y_M, self.n_classes = self.axes.along(x), torch.from_numpy(y_M), n_classes
        self.penalty: float | None = None
        self.start_LFC: Tensor | None = None

    def probabilities(self, counts_NM: np.ndarray, fold_NM: np.ndarray) -> np.ndarray:
        """Probabilities (NMC) by each copy's regression that has not learnt the sample; all learn fold -1."""
        if self.penalty is None:
            p_NMC = self._with_best_penalty(counts_NM, held_out_folds(fold_NM, self.y_M.numpy()))
            if fold_NM.max() > 0:
                return p_NMC
        assert self.penalty is not None
        return self._fitted(counts_NM, fold_NM, self.penalty)

    def _with_best_penalty(self, counts_NM: np.ndarray, fold_NM: np.ndarray) -> np.ndarray:
        """From the strongest on, until held-out labels are predicted worse."""
        least, best = np.inf, (PENALTIES[0], self.start_LFC, np.zeros(0))
        for penalty in PENALTIES:
            p_NMC = self._fitted(counts_NM, fold_NM, penalty)
            loss = -np.log(of_given_labels(p_NMC, self.y_M.numpy())).mean()
            if loss >= least:
                break
            least, best = loss, (penalty, self.start_LFC, p_NMC)
        self.penalty, self.start_LFC, p_NMC = best
        return p_NMC

    def _fitted(self, counts_NM: np.ndarray, fold_NM: np.ndarray, penalty: float) -> np.ndarray:
        folds = np.arange(max(1, fold_NM.max() + 1))
        learnt_NKM = counts_NM[:, None] * (fold_NM[:, None] != folds[:, None])
        counts_LM = torch.from_numpy(learnt_NKM.reshape(-1, counts_NM.shape[1])).float()
        if self.start_LFC is None or len(self.start_LFC) != len(counts_LM):
            self.start_LFC = torch.zeros(len(counts_LM), self.x_MF.shape[1], self.n_classes)
        self.start_LFC = fit_stack(
            self.x_MF, self.y_M, counts_LM, self.axes.variance_F, penalty, self.start_LFC, ENOUGH_TO_JUDGE
        )
        chosen_NM = torch.from_numpy(np.maximum(fold_NM, 0) + len(folds) * np.arange(len(fold_NM))[:, None])
        logits_NMC = products(self.x_MF, self.start_LFC)[chosen_NM, torch.arange(len(self.y_M))]
        return logits_NMC.double().softmax(-1).numpy()

    def models(self, counts_NM: np.ndarray, labels_M: np.ndarray) -> list[LinearModel]:
        """One for each row of counts, of all samples that count in it."""
        assert self.start_LFC is not None, "ask for probabilities first: they choose the penalty"
        assert self.penalty is not None
        of_copy_NFC = self.start_LFC.view(len(counts_NM), -1, *self.start_LFC.shape[1:]).mean(1)
        theta_NFC = fit_stack(
            self.x_MF,
            torch.from_numpy(labels_M),
            torch.from_numpy(counts_NM).float(),
            self.axes.variance_F,
            self.penalty,
            of_copy_NFC,
            ENOUGH_TO_PREDICT,
        )
        return [LinearModel(self.axes, theta_FC) for theta_FC in theta_NFC]


def held_out_folds(fold_NM: np.ndarray, y_M: np.ndarray) -> np.ndarray:
    """The folds as dealt, or others where there are none: a penalty is chosen by samples that are held out."""
    if fold_NM.max() > 0:
        return fold_NM
    return np.stack([deal_folds(y_M, min(FOLDS, len(y_M)), seed=n) for n in range(len(fold_NM))])


# ---- L-BFGS for a stack: every learner has its own direction and step -----------------------------------------


def products(x_MF: Tensor, theta_LFC: Tensor) -> Tensor:
    """Logits of every learner (LMC), as one product."""
    n_learners, n_features, n_classes = theta_LFC.shape
    flat = theta_LFC.permute(1, 0, 2).reshape(n_features, n_learners * n_classes)
    return (x_MF @ flat).view(-1, n_learners, n_classes).permute(1, 0, 2)


def gradients(x_MF: Tensor, slope_LMC: Tensor) -> Tensor:
    """Derivatives by the weights (LFC) from those by the logits."""
    n_learners, n, n_classes = slope_LMC.shape
    flat = slope_LMC.permute(1, 0, 2).reshape(n, n_learners * n_classes)
    return (x_MF.T @ flat).view(-1, n_learners, n_classes).permute(1, 0, 2)


def losses_and_slopes(logits_LMC: Tensor, y_M: Tensor, weight_LM: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted sum of the cross-entropies of each learner (L), and its derivative by the logits (LMC)."""
    log_p_LMC = logits_LMC.log_softmax(-1)
    target_LM1 = y_M.expand(len(logits_LMC), -1)[..., None]
    loss_L = -(weight_LM * log_p_LMC.gather(-1, target_LM1)[..., 0]).sum(-1)
    slope_LMC = log_p_LMC.exp_()
    slope_LMC.scatter_add_(-1, target_LM1, torch.full_like(slope_LMC[..., :1], -1.0))
    return loss_L, slope_LMC.mul_(weight_LM[..., None])


def dots(a_LFC: Tensor, b_LFC: Tensor) -> Tensor:
    return (a_LFC * b_LFC).sum((1, 2), keepdim=True)


@dataclass
class CurvatureMemory:
    """The last steps of each learner and how their gradients changed: what L-BFGS knows of the curvature."""

    scale_F1: Tensor
    steps: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def add(self, step_LFC: Tensor, change_LFC: Tensor) -> None:
        curved_L11 = dots(step_LFC, change_LFC)
        inverse_L11 = torch.where(curved_L11 > 1e-12, 1 / curved_L11.clamp(min=1e-12), 0)
        self.steps = [*self.steps, (step_LFC, change_LFC, inverse_L11)][-STEPS_REMEMBERED:]

    def direction(self, gradient_LFC: Tensor) -> Tensor:
        """The two loops of Nocedal, begun at the curvature that is known beforehand."""
        d_LFC, weights = gradient_LFC, []
        for step_LFC, change_LFC, inverse_L11 in reversed(self.steps):
            weights.append(inverse_L11 * dots(step_LFC, d_LFC))
            d_LFC = d_LFC - weights[-1] * change_LFC
        d_LFC = self.scale_F1 * d_LFC
        if self.steps:
            _, change_LFC, inverse_L11 = self.steps[-1]
            size_L11 = inverse_L11 * dots(change_LFC, self.scale_F1 * change_LFC)
            d_LFC = torch.where(size_L11 > 0, 1 / size_L11.clamp(min=1e-12), 1) * d_LFC
        for (step_LFC, change_LFC, inverse_L11), weight in zip(self.steps, reversed(weights), strict=True):
            d_LFC = d_LFC + (weight - inverse_L11 * dots(change_LFC, d_LFC)) * step_LFC
        return -d_LFC


def fit_stack(
    x_MF: Tensor,
    y_M: Tensor,
    counts_LM: Tensor,
    variance_F: Tensor,
    penalty: float,
    theta_LFC: Tensor,
    enough: float = PROMISED_ENOUGH,
) -> Tensor:
    """Weights of each learner that minimise its mean loss plus half the penalty on their squares.

    A step costs two products of matrices; how far to go costs none, since logits are linear in the weights. The
    search ends where a step promises less than `enough` to every learner.
    """
    weight_LM = counts_LM / counts_LM.sum(-1, keepdim=True)
    penalty_F1 = torch.full_like(variance_F, penalty)[:, None]
    penalty_F1[-1] = OF_CONSTANT
    memory = CurvatureMemory(1 / (variance_F[:, None] / 2 + penalty_F1))

    def evaluated(logits_LMC: Tensor, theta_LFC: Tensor) -> tuple[Tensor, Tensor]:
        loss_L, slope_LMC = losses_and_slopes(logits_LMC, y_M, weight_LM)
        return loss_L[:, None, None] + dots(theta_LFC, penalty_F1 * theta_LFC) / 2, slope_LMC

    logits_LMC = products(x_MF, theta_LFC)
    loss_L11, slope_LMC = evaluated(logits_LMC, theta_LFC)
    gradient_LFC = gradients(x_MF, slope_LMC) + penalty_F1 * theta_LFC
    for _ in range(MOST_STEPS):
        direction_LFC = memory.direction(gradient_LFC)
        promised_L11 = dots(gradient_LFC, direction_LFC)
        if promised_L11.min() > -enough:
            break
        ahead_LMC, far_L11 = products(x_MF, direction_LFC), torch.ones_like(loss_L11)
        for _ in range(MOST_HALVINGS):
            there_LMC, new_LFC = logits_LMC + far_L11 * ahead_LMC, theta_LFC + far_L11 * direction_LFC
            new_loss_L11, slope_LMC = evaluated(there_LMC, new_LFC)
            worse_L11 = new_loss_L11 > loss_L11 + SUFFICIENT * far_L11 * promised_L11 + LOSS_ROUND_OFF * loss_L11
            if not worse_L11.any():
                break
            far_L11 = torch.where(worse_L11, far_L11 / 2, far_L11)
        logits_LMC, step_LFC, theta_LFC, loss_L11 = there_LMC, new_LFC - theta_LFC, new_LFC, new_loss_L11
        new_gradient_LFC = gradients(x_MF, slope_LMC) + penalty_F1 * theta_LFC
        memory.add(step_LFC, new_gradient_LFC - gradient_LFC)
        gradient_LFC = new_gradient_LFC
    return theta_LFC
