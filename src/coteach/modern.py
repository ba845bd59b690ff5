"""The recipe of today for images: network, schedule and augmentation, for images of any size and number."""

import math
from typing import Any

MODERN_NETWORK = "fast_cnn"
SMALLEST_SIDE = 16  # pixels
MODERN_EPOCHS = 40
LARGEST_BATCH, HIGHEST_LR = 1024, 1.5  # the learning rate grows with the batch
STEPS_WANTED = 48  # of an epoch, at least, where samples are few
LEAST_IN_A_BATCH = 32
SHIFTED_SHARE, CUT_SHARE = 1 / 16, 1 / 4  # of the image's side


def modern_plan(
    epochs: int, batch_size: int = LARGEST_BATCH, side: int = 32, mirror: bool = True
) -> dict[str, Any]:
    """Fields of a plan for images whose shorter side has so many pixels.

    >>> fields = modern_plan(epochs=40)
    >>> fields["lr"], fields["ramp"], fields["cutout"]
    (1.5, 30, 8)
    """
    return {
        "batch_size": batch_size,
        "optimizer": "sgd",
        "lr": HIGHEST_LR * batch_size / LARGEST_BATCH,
        "momentum": 0.85,
        "nesterov": True,
        "weight_decay": 0.009,
        "decoupled_decay": True,
        "one_cycle": 0.23,
        "lookahead": 5,
        "mirror": mirror,
        "shift": round(SHIFTED_SHARE * side),
        "cutout": round(CUT_SHARE * side),
        # slowly: at a high rate a class can still pass for its neighbour, and would be dropped as a whole
        "ramp": max(1, 3 * epochs // 4),
        "warmup": max(1, epochs // 2) if epochs > 1 else 0,
    }


def mixture_warmup(epochs: int) -> int:
    """Epochs before a mixture of losses tells right labels: a quarter, in which the learning rate has risen.

    >>> mixture_warmup(40), mixture_warmup(2), mixture_warmup(1)
    (10, 1, 0)
    """
    return max(1, epochs // 4) if epochs > 1 else 0


def modern_batch(samples: int) -> int:
    """A power of two that gives an epoch of so many samples about 48 steps, or more.

    >>> modern_batch(50_000), modern_batch(5_000), modern_batch(300)
    (1024, 128, 32)
    """
    return min(LARGEST_BATCH, max(LEAST_IN_A_BATCH, 2 ** round(math.log2(max(1, samples / STEPS_WANTED)))))


def mirrors(channels: int) -> bool:
    """Photographs may be mirrored; what has one channel may well be a digit or a letter, which may not."""
    return channels == 3


def modern_width(device: str) -> float:
    """A quarter of the channels on a CPU, where all of them would take hours."""
    return 1.0 if device.startswith("cuda") else 0.25
