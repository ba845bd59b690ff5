"""Values that change with the epoch e = 1, 2, … or with the step: the share kept, the learning rate, Adam's β1.

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
    """λ(e), the share of samples to learn from: all at first, fewer as the networks could learn wrong labels.

    Parameters
    ----------
    epoch : int
        e, counted from 1.
    noise_rate : float
        τ, the share of wrong labels.
    ramp : int
        E_k: over these epochs λ falls to 1 - τ, and stays there (type 1).
    horizon : int, optional
        E_max: until there λ goes on falling, to 1 - 2τ (type 2).
    ramp_from_zero, linear_type2 : bool
        The authors' readings (rows 5 and 17).

    Examples
    --------
    >>> [round(keep_rate(e, 0.4, ramp=4), 2) for e in (1, 2, 4, 9)]
    [0.9, 0.8, 0.6, 0.6]
    """
    if not 0 <= noise_rate < 1:
        raise ValueError(f"the noise rate is {noise_rate}: give the share of wrong labels, such as 0.2 for 20 %.")
    if horizon is not None and horizon > ramp and epoch > ramp:
        steps = max(horizon - ramp - linear_type2, 1)
        return max(1 - min(1 + (epoch - ramp) / steps, 2) * noise_rate, 0.0)
    steps = ramp - ramp_from_zero
    forget = noise_rate if epoch >= steps else epoch * (noise_rate / steps)
    return 1 - forget


def linear_decay(epoch: int, rate: float, start: int, epochs: int, *, lr_above_zero: bool = False) -> float:
    """Falls from `rate` at epoch `start` to zero at the last of `epochs`, or one epoch later (row 8).

    >>> [linear_decay(e, 0.1, start=2, epochs=6) for e in (1, 2, 4, 6)]
    [0.1, 0.1, 0.05, 0.0]
    """
    end = epochs + lr_above_zero
    return rate if epoch <= start else rate * (end - epoch) / (end - start)


def usual_decay_start(epochs: int) -> int:
    """The epoch after two fifths of them, where no paper says when the rate begins to fall.

    >>> usual_decay_start(40), usual_decay_start(1)
    (16, 1)
    """
    return max(1, 2 * epochs // 5)


def step_decay(epoch: int, rate: float, milestones: tuple[int, ...]) -> float:
    """The `rate`, divided by ten after each milestone.

    >>> [step_decay(e, 1.0, milestones=(2, 4)) for e in (2, 3, 5)]
    [1.0, 0.1, 0.01]
    """
    return rate / 10 ** sum(epoch > m for m in milestones)


def one_cycle(done: float, rate: float, rise: float) -> float:
    """Up from a fifth of the `rate` over the share `rise` of a training, then down to zero in a straight line.

    `done` is the share of all steps that have been taken (Smith and Topin, 2019).

    >>> [round(one_cycle(done, 1.0, rise=0.25), 2) for done in (0, 0.125, 0.25, 0.625, 1)]
    [0.2, 0.6, 1.0, 0.5, 0.0]
    """
    if done < rise:
        return rate * (0.2 + 0.8 * done / rise)
    return rate * (1 - done) / (1 - rise)


def beta1(epoch: int, drop: int, *, beta1_drop: bool = False) -> float:
    """Adam's first momentum: 0.9, in the authors' code 0.1 from epoch `drop` on (row 7).

    >>> beta1(80, drop=80), beta1(80, drop=80, beta1_drop=True)
    (0.9, 0.1)
    """
    return 0.1 if beta1_drop and epoch >= drop else 0.9
