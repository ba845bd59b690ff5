"""Every random draw as a function of (seed, purpose, epoch, step): no generator, so no history to lose.

A key is hashed from the words that name the draw, and the numbers from the key and a counter (SplitMix64), in
integer arithmetic that gives the same bits on every device. R runs, M numbers each.
"""

import hashlib

import torch
from torch import Tensor

GOLDEN_GAMMA = 0x9E3779B97F4A7C15 - 2**64  # SplitMix64's odd constants, as signed 64-bit integers
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64


def key(seed: int, purpose: str, epoch: int = 0, step: int = 0) -> int:
    """The signed 64-bit key of one draw."""
    words = f"{seed}/{purpose}/{epoch}/{step}".encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little", signed=True)


def keys(
    seeds: list[int], purpose: str, epoch: int = 0, step: int = 0, device: str | torch.device = "cpu"
) -> Tensor:
    """One key a run, as a tensor key_R1."""
    return torch.tensor([[key(seed, purpose, epoch, step)] for seed in seeds], device=device)


def bits(key_R1: Tensor, n: int) -> Tensor:
    """`n` distinct 64-bit integers a run: SplitMix64 is a bijection of its counter."""
    return opaque_splitmix64(key_R1, n) if torch.compiler.is_compiling() else splitmix64(key_R1, n)


def splitmix64(key_R1: Tensor, n: int) -> Tensor:
    z = key_R1 + GOLDEN_GAMMA * torch.arange(1, n + 1, device=key_R1.device)
    z = (z ^ _shift_right(z, 30)) * MIX_1
    z = (z ^ _shift_right(z, 27)) * MIX_2
    return z ^ _shift_right(z, 31)


@torch.library.custom_op("coteach::splitmix64", mutates_args=())
def opaque_splitmix64(key_R1: Tensor, n: int) -> Tensor:
    """The same to torch.compile as a closed box: its counter has 32 bits there, too few for the constants."""
    return splitmix64(key_R1, n)


@opaque_splitmix64.register_fake
def _(key_R1: Tensor, n: int) -> Tensor:
    return key_R1.new_empty(len(key_R1), n)


def permutation(key_R1: Tensor, n: int) -> Tensor:
    """A random order of 0…n-1 for each run, order_RM."""
    return bits(key_R1, n).argsort(-1)


def uniform(key_R1: Tensor, n: int) -> Tensor:
    """`n` numbers in [0, 1) a run, in float64."""
    return _shift_right(bits(key_R1, n), 11).double() * 2.0**-53


def _shift_right(z: Tensor, k: int) -> Tensor:
    """A logical shift; torch's own keeps the sign."""
    return (z >> k) & ((1 << (64 - k)) - 1)
