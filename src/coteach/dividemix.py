"""DivideMix's step after the warm-up (Li, Socher and Hoi, ICLR 2020), as masks on one mini-batch.

The peer's mixture splits the samples (rules.dividemix). The labels of one part are refined, those of the other
guessed; both parts are learnt in mixtures of two. The paper draws as many samples of one part as of the other;
here each part counts by its mean, and a partner is of either with equal chance: the expected loss is the same.
N networks, R runs, B samples of a mini-batch, V views of each, C classes.
"""

import torch
from torch import Tensor

from coteach.engine.records import Choice
from coteach.engine.training import Training
from coteach.guesses import class_imbalance, guessed, refined, squared_error
from coteach.learning import mean_weight, mixed, of_partners, partners
from coteach.losses import Loss, of_soft_labels

VIEWS = 2  # M of the paper


def divided_lesson(
    training: Training, loss: Loss, x_RB: Tensor, looked_at_NRBC: Tensor, chosen: Choice, clean_NRB: Tensor
) -> tuple[Tensor, Tensor]:
    """loss_NRX with a gradient, and weight_NRX: of every view of every sample, and of the classes' balance."""
    stack, clock, plan = training.stack, training.clock, training.plan
    x_VRB, logits_VNRBC = all_views(training, x_RB, looked_at_NRBC)
    class_C = torch.arange(logits_VNRBC.shape[-1], device=clean_NRB.device)
    label_NRBC = (chosen.target_NRB[..., None] == class_C).to(clean_NRB.dtype)
    label_NRBC = (1 - plan.label_smoothing) * label_NRBC + plan.label_smoothing / len(class_C)
    peers_NRB = clean_NRB.flip(0)
    target_NRBC = torch.where(
        chosen.learnt_NRB[..., None],
        refined(label_NRBC, logits_VNRBC, peers_NRB, plan.sharpening),
        guessed(logits_VNRBC, plan.sharpening),
    )

    believed_NRX = chosen.learnt_NRB.repeat(1, 1, VIEWS)
    target_NRXC = target_NRBC.repeat(1, 1, VIEWS, 1)
    strong = [training.batches.strengthened(x, clock.step_1, view) for view, x in enumerate(x_VRB)]
    x_NRX = training.view(torch.cat(strong, 1), stack.shape[0])
    if plan.mixup:
        share_RX, u_RX = training.batches.mixtures(clock.step_1)
        share_RX = torch.maximum(share_RX, 1 - share_RX)  # nearer to the sample than to its partner
        partner_NRX = partners_of_either(believed_NRX, u_RX)
        x_NRX = mixed(x_NRX, partner_NRX, share_RX)
        share_RX1 = share_RX[..., None]
        target_NRXC = share_RX1 * target_NRXC + (1 - share_RX1) * of_partners(target_NRXC, partner_NRX)
    logits_NRXC = stack(x_NRX)

    of_believed_NRX = of_soft_labels(loss, logits_NRXC, target_NRXC)
    loss_NRX = torch.where(believed_NRX, of_believed_NRX, squared_error(logits_NRXC, target_NRXC))
    each, rest = (mean_weight(mask, loss_NRX) for mask in (believed_NRX, ~believed_NRX))
    balance_NR1 = class_imbalance(logits_NRXC, balanced(each, rest))[..., None]
    weight_NRX = each + clock.guessing.to(rest.dtype) * rest
    weights = torch.cat([weight_NRX, torch.full_like(balance_NR1, plan.class_balance)], -1)
    return torch.cat([loss_NRX, balance_NR1], -1), weights


def all_views(training: Training, x_RB: Tensor, looked_at_NRBC: Tensor) -> tuple[list[Tensor], Tensor]:
    """The views of a mini-batch, and what each network says of each (VNRBC); the first has been looked at."""
    views, logits = [x_RB], [looked_at_NRBC]
    for view in range(1, VIEWS):
        x_RB, _ = training.batches.take(training.clock.step_1, view)
        with training.stack.looking():
            logits.append(training.stack(training.view(x_RB, training.stack.shape[0])))
        views.append(x_RB)
    return views, torch.stack(logits)


def partners_of_either(believed_NRX: Tensor, u_RX: Tensor) -> Tensor:
    """A partner for each view: a believed one half of the time, else one of the rest; by a number in [0, 1)."""
    two_u = 2 * u_RX
    believed, rest = partners(believed_NRX, two_u.remainder(1)), partners(~believed_NRX, two_u.remainder(1))
    any_believed, any_rest = believed_NRX.any(-1, keepdim=True), (~believed_NRX).any(-1, keepdim=True)
    return torch.where(any_believed & ((two_u < 1) | ~any_rest), believed, rest)


def balanced(each_NRX: Tensor, rest_NRX: Tensor) -> Tensor:
    """Half of the weight to either part, or all of it to one if the other is empty."""
    both = each_NRX + rest_NRX
    return both / both.sum(-1, keepdim=True)
