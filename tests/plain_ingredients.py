"""The ingredients of a modern training written out for a reader: one image, one network, one step at a time.

Only the random numbers come from the library's own draws; what is made of them is written from the definitions.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from coteach import draws
from coteach.plan import Plan
from plain_methods import Losses

# ---- what is shown --------------------------------------------------------------------------------------------


def shown(x: Tensor, plan: Plan, seed: int, epoch: int, step: int, view: int = 1) -> Tensor:
    """Images as the networks look at them."""
    cut_at_once = plan.cutout and not plan.weak_selection and not plan.strong_view
    numbers = (3 if plan.shift or plan.mirror else 0) + (2 if cut_at_once else 0)
    if not numbers:
        return x
    images = []
    for image, u in zip(x, uniform(seed, named("augment", view), epoch, step, len(x), numbers), strict=True):
        if plan.shift or plan.mirror:
            image = moved(image, u[:3], plan.shift, plan.mirror)
        if cut_at_once:
            image = cut(image, u[-2:], plan.cutout)
        images.append(image)
    return torch.stack(images)


def strengthened(x: Tensor, plan: Plan, seed: int, epoch: int, step: int, view: int = 1) -> Tensor:
    """What they learn from, where that is more."""
    cut_later = plan.cutout and (plan.weak_selection or plan.strong_view)
    numbers = 2 * plan.strong_view + (2 if cut_later else 0)
    if not numbers:
        return x
    images = []
    for image, u in zip(x, uniform(seed, named("strong view", view), epoch, step, len(x), numbers), strict=True):
        if plan.strong_view:
            image = changed(image, u[: 2 * plan.strong_view])
        if cut_later:
            image = cut(image, u[-2:], plan.cutout)
        images.append(image)
    return torch.stack(images)


def named(purpose: str, view: int) -> str:
    return purpose if view == 1 else f"{purpose} {view}"


def uniform(seed: int, purpose: str, epoch: int, step: int, n: int, each: int) -> list[list[float]]:
    return draws.uniform(draws.keys([seed], purpose, epoch, step), n * each)[0].view(n, each).tolist()


def moved(image: Tensor, u: list[float], shift: int, mirror: bool) -> Tensor:
    """A window of the reflected image, as large as it, at most `shift` from its middle; mirrored by lot."""
    channels, height, width = image.shape
    wide = np.pad(image.numpy(), ((0, 0), (shift, shift), (shift, shift)), mode="reflect")
    top, left = (math.floor(number * (2 * shift + 1)) for number in u[:2])
    window = wide[:, top : top + height, left : left + width]
    return torch.from_numpy((window[:, :, ::-1] if mirror and u[2] < 0.5 else window).copy())


def cut(image: Tensor, u: list[float], size: int) -> Tensor:
    """Each pixel of a square around a random pixel, as far as it lies in the image, gets the mean colour."""
    channels, height, width = image.shape
    top, left = math.floor(u[0] * height) - size // 2, math.floor(u[1] * width) - size // 2
    blanked = image.clone()
    for channel in range(channels):
        numbers = image[channel].flatten().tolist()
        mean = sum(numbers) / len(numbers)
        for row in range(max(top, 0), min(top + size, height)):
            for column in range(max(left, 0), min(left + size, width)):
                blanked[channel, row, column] = mean if image.is_floating_point() else round(mean)
    return blanked


def changed(image: Tensor, u: list[float]) -> Tensor:
    """One change after the other on colours scaled to lie from 0 to 1, then all changes of shape at once."""
    low, high = image.min().item(), image.max().item()
    x = (image - low) / (high - low)
    place = np.eye(3)
    for which, much in zip(u[::2], u[1::2], strict=True):
        x, place = changed_once(x, place, CHANGES[math.floor(which * len(CHANGES))], much)
    return low + (high - low) * sampled(x, place)  # `place` counts pixels from the middle


CHANGES = (
    "none turn shear_x shear_y move_x move_y brightness contrast colour sharpness solarise posterise stretch"
).split()


def changed_once(x: Tensor, place: np.ndarray, change: str, much: float) -> tuple[Tensor, np.ndarray]:
    signed, factor, grey = 2 * much - 1, 0.1 + 1.8 * much, x.mean(0)
    turn, (_, height, width) = math.radians(30) * signed, x.shape
    shapes = {
        "turn": [[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0]],
        "shear_x": [[1, 0.3 * signed, 0], [0, 1, 0]],
        "shear_y": [[1, 0, 0], [0.3 * signed, 1, 0]],
        "move_x": [[1, 0, 0.3 * width * signed], [0, 1, 0]],
        "move_y": [[1, 0, 0], [0, 1, 0.3 * height * signed]],
    }
    if change in shapes:
        return x, place @ np.array([*shapes[change], [0, 0, 1]])
    plain = {"brightness": 0 * x, "contrast": 0 * x + grey.mean(), "colour": 0 * x + grey}
    if change == "sharpness":
        plain[change] = blurred(x)
    if change in plain:
        return ((1 - factor) * plain[change] + factor * x).clamp(0, 1), place
    if change == "solarise":
        return torch.tensor([1 - v if v >= much else v for v in x.flatten()], dtype=x.dtype).view_as(x), place
    if change == "posterise":
        levels = (16, 32, 64, 128)[math.floor(4 * much)]
        return (x * levels + 1e-6).floor() / levels, place
    if change == "stretch":
        return torch.stack([(c - c.min()) / (c.max() - c.min()) for c in x]), place
    return x, place


def blurred(x: Tensor) -> Tensor:
    wide = np.pad(x.numpy(), ((0, 0), (1, 1), (1, 1)), mode="edge")
    soft = np.zeros_like(x.numpy())
    for channel, row, column in np.ndindex(soft.shape):
        around = wide[channel, row : row + 3, column : column + 3]
        soft[channel, row, column] = (around.sum() + 4 * around[1, 1]) / 13
    return torch.from_numpy(soft)


def sampled(x: Tensor, place: np.ndarray) -> Tensor:
    """Each pixel from where the matrix says, between its four neighbours there; edges are mirrors."""
    if np.array_equal(place, np.eye(3)):
        return x
    channels, height, width = x.shape
    moved = torch.zeros_like(x)
    for row in range(height):
        for column in range(width):
            across, down, _ = place @ [column - (width - 1) / 2, row - (height - 1) / 2, 1]
            i, j = inside(down + (height - 1) / 2, height), inside(across + (width - 1) / 2, width)
            top, left = math.floor(i), math.floor(j)
            for r, share_r in ((top, 1 - (i - top)), (top + 1, i - top)):
                for c, share_c in ((left, 1 - (j - left)), (left + 1, j - left)):
                    if share_r * share_c:
                        moved[:, row, column] += share_r * share_c * x[:, r, c]
    return moved


def inside(place: float, length: int) -> float:
    while not -0.5 <= place <= length - 0.5:
        place = -1 - place if place < -0.5 else 2 * length - 1 - place
    return min(max(place, 0), length - 1)


# ---- what is learnt -------------------------------------------------------------------------------------------


def mixtures(plan: Plan, seed: int, epoch: int, steps: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """For each step and sample: its own share, and which of the kept samples is mixed in."""
    random = np.random.default_rng(draws.key(seed, "mixup", epoch) % 2**64)
    return random.beta(plan.mixup, plan.mixup, (steps, size)), random.random((steps, size))


def partners(picked: list[int], which: np.ndarray) -> list[int]:
    return [(picked or [0])[math.floor(number * max(len(picked), 1))] for number in which]


def mixed(x: Tensor, others: list[int], shares: np.ndarray) -> Tensor:
    return torch.stack(
        [s * x[i] + (1 - s) * x[other] for i, (other, s) in enumerate(zip(others, shares, strict=True))]
    )


def smoothed(losses: Losses, share: float) -> Losses:
    """The label's loss, of which a share is the mean of all classes' losses."""

    def of_networks(logits: list[Tensor], targets: list[Tensor]) -> list[Tensor]:
        classes = logits[0].shape[1]
        total = [(1 - share) * loss for loss in losses(logits, targets)]
        for label in range(classes):
            of_label = losses(logits, [torch.full_like(target, label) for target in targets])
            total = [before + share / classes * loss for before, loss in zip(total, of_label, strict=True)]
        return total

    return of_networks


# ---- how weights move -----------------------------------------------------------------------------------------


def one_cycle(plan: Plan, step_of_all: int, steps_of_all: int) -> float:
    """From a fifth of the learning rate up to it, then down to nothing."""
    return plan.lr * float(np.interp(step_of_all / steps_of_all, [0, plan.one_cycle, 1], [0.2, 1, 0]))


def shrink(network: nn.Module, by: float) -> None:
    with torch.no_grad():
        for weight in network.parameters():
            weight *= 1 - by


class Average:
    """A network's own moving average, to which it returns now and then."""

    def __init__(self, network: nn.Module):
        self.weights = [weight.detach().clone() for weight in network.parameters()]

    def after_step(self, network: nn.Module, plan: Plan, step: int, steps: int, epoch: int) -> None:
        """`step` is counted from 1 within its epoch."""
        if step % plan.lookahead and step != steps:
            return
        done = ((epoch - 1) * steps + step) / (plan.epochs * steps)
        memory = 0.95**plan.lookahead * done**3
        with torch.no_grad():
            for mean, weight in zip(self.weights, network.parameters(), strict=True):
                mean.copy_(memory * mean + (1 - memory) * weight)
                weight.copy_(mean)
