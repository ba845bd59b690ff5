"""What changes with the epoch e = 1, 2, …: how many samples are kept, the learning rate, Adam's β1.

The flags pick the reading of the authors' code where it differs from the paper (docs/fidelity.md).
"""


def keep_rate(
    epoch: int,
    noise_rate: float,
    ramp: int,
    horizon: int | None = None,
    *,
    ramp_from_zero: bool = False,
    linear_type2: bool = False,
) -> float:
    """λ(e): falls to 1 - τ over the first E_k = `ramp` epochs and stays (type 1), or, with E_max = `horizon`,
    goes on falling to 1 - 2τ there (type 2). The flags are the authors' readings (rows 5 and 17)."""
    if horizon is not None and horizon > ramp and epoch > ramp:
        steps = max(horizon - ramp - linear_type2, 1)
        return max(1 - min(1 + (epoch - ramp) / steps, 2) * noise_rate, 0.0)
    steps = ramp - ramp_from_zero
    forget = noise_rate if epoch >= steps else epoch * (noise_rate / steps)
    return 1 - forget


def linear_decay(epoch: int, rate: float, start: int, epochs: int, *, lr_above_zero: bool = False) -> float:
    """Falls from `rate` at epoch `start` to zero at the last epoch, or one epoch later (row 8)."""
    end = epochs + lr_above_zero
    return rate if epoch <= start else rate * (end - epoch) / (end - start)


def step_decay(epoch: int, rate: float, milestones: tuple[int, ...]) -> float:
    """Divided by ten after each milestone."""
    return rate / 10 ** sum(epoch > m for m in milestones)


def beta1(epoch: int, drop: int, *, beta1_drop: bool = False) -> float:
    """Adam's first momentum: 0.9, in the authors' code 0.1 from epoch `drop` on (row 7)."""
    return 0.1 if beta1_drop and epoch >= drop else 0.9
