"""The Triton kernels of `pooling`: the same letters for the same axes, all tensors contiguous, products in TF32.

Row m is one pooled output of one sample, in all channels; k is one number of a patch. A program has a tile of
TILE_ROWS rows by OUT channels, or of TILE_NUMBERS numbers of a patch by OUT channels.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from coteach.engine import pooling
from coteach.engine.pooling import patch_side

N_PLACES = tl.constexpr(pooling.POOL_PLACES)
OUT = tl.constexpr(16)  # tensor cores take no fewer columns
TILE_ROWS = 64
TILE_NUMBERS = 64
PROGRAMS = 4096  # to aim at: enough for a large GPU; fewer would have to sum over more tiles each


def pool_forward(x: Tensor, w: Tensor, b: Tensor, y: Tensor, place: Tensor) -> None:
    shape = _shape(x, w)
    n_rows = y[0, :, 0].numel()
    grid = triton.cdiv(n_rows, TILE_ROWS), len(x), triton.cdiv(w.shape[-1], OUT.value)
    _forward[grid](x, w, b, y, place, n_rows, **shape, ROWS=TILE_ROWS, STEP=16 if shape["K"] < 128 else 32)


def gradient_of_weights(dy: Tensor, place: Tensor, x: Tensor, w: Tensor) -> Tensor:
    n_groups, n_places, n_patch, n_out = w.shape
    n_rows = dy[0, :, 0].numel()
    n_tiles = triton.cdiv(n_rows, TILE_ROWS)
    n_blocks = triton.cdiv(n_patch, TILE_NUMBERS) * triton.cdiv(n_out, OUT.value)
    tiles = max(1, n_tiles * n_blocks * n_groups // PROGRAMS)
    parts = triton.cdiv(n_tiles, tiles)
    dw = x.new_empty(n_groups, parts, n_places, n_patch, n_out)
    grid = n_blocks, parts, n_groups
    _gradient_of_weights[grid](
        x, dy, place, dw, n_rows, **_shape(x, w), TILES=tiles, ROWS=TILE_ROWS, NUMBERS=TILE_NUMBERS
    )
    return dw.sum(1)  # in the same order every time, as atomic additions would not


def gradient_of_input(dy: Tensor, place: Tensor, x: Tensor, w: Tensor) -> Tensor:
    dx = torch.empty_like(x)
    n_groups, n_samples, n_channels, height, width = x.shape
    n_rows = n_samples * (height // 2) * (width // 2)
    columns = max(16, triton.next_power_of_2(4 * n_channels))
    grid = triton.cdiv(n_rows, TILE_ROWS), n_groups
    _gradient_of_input[grid](dy, place, w, dx, n_rows, **_shape(x, w), ROWS=TILE_ROWS, COLUMNS=columns)
    return dx


def _shape(x: Tensor, w: Tensor) -> dict[str, int]:
    _, _, channels, height, width = x.shape
    return {"C": channels, "H": height, "W": width, "K": w.shape[2], "O": w.shape[3], "SIDE": patch_side(x, w)}


@triton.jit
def _forward(
    x, w, b, y, place, n_rows,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, O: tl.constexpr, SIDE: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Pooled outputs by output channels."""
    g = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    o = tl.program_id(2) * OUT + tl.arange(0, OUT)
    corner = x + _corner(g, m, n_rows, C, H, W, SIDE)
    weights = w + g * N_PLACES * K * O + o[None, :]
    z0 = tl.zeros((ROWS, OUT), tl.float32)
    z1 = tl.zeros((ROWS, OUT), tl.float32)
    z2 = tl.zeros((ROWS, OUT), tl.float32)
    z3 = tl.zeros((ROWS, OUT), tl.float32)
    for first in tl.static_range(0, K, STEP):
        k = first + tl.arange(0, STEP)
        real = (m < n_rows)[:, None] & (k < K)[None, :]
        patch = tl.load(corner[:, None] + _in_patch(k, H, W, SIDE)[None, :], mask=real, other=0.0)
        at = weights + k[:, None] * O
        real = (k < K)[:, None] & (o < O)[None, :]
        z0 = tl.dot(patch, tl.load(at, mask=real, other=0.0), z0, input_precision="tf32")
        z1 = tl.dot(patch, tl.load(at + K * O, mask=real, other=0.0), z1, input_precision="tf32")
        z2 = tl.dot(patch, tl.load(at + 2 * K * O, mask=real, other=0.0), z2, input_precision="tf32")
        z3 = tl.dot(patch, tl.load(at + 3 * K * O, mask=real, other=0.0), z3, input_precision="tf32")
    which = tl.where(z1 > z0, 1, 0)
    best = tl.maximum(z0, z1, propagate_nan=tl.PropagateNan.ALL)
    which = tl.where(z2 > best, 2, which)
    best = tl.maximum(best, z2, propagate_nan=tl.PropagateNan.ALL)
    which = tl.where(z3 > best, 3, which)
    best = tl.maximum(best, z3, propagate_nan=tl.PropagateNan.ALL)
    best += tl.load(b + g * O + o, mask=o < O, other=0.0)[None, :]
    shut = best <= 0  # which a NaN is not: it goes through, as it does through torch's ReLU
    at = _output(g, m, o, n_rows, H, W, O, SIDE)
    real = (m < n_rows)[:, None] & (o < O)[None, :]
    tl.store(y + at, tl.where(shut, 0.0, best), mask=real)
    tl.store(place + at, tl.where(shut, N_PLACES, which).to(tl.uint8), mask=real)


@triton.jit
def _gradient_of_weights(
    x, dy, place, dw, n_rows,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, O: tl.constexpr, SIDE: tl.constexpr,
    TILES: tl.constexpr, ROWS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Numbers of a patch by output channels, summed over TILES tiles of pooled outputs."""
    blocks: tl.constexpr = (K + NUMBERS - 1) // NUMBERS
    g = tl.program_id(2).to(tl.int64)
    k = tl.program_id(0) % blocks * NUMBERS + tl.arange(0, NUMBERS)
    o = tl.program_id(0) // blocks * OUT + tl.arange(0, OUT)
    d0 = tl.zeros((NUMBERS, OUT), tl.float32)
    d1 = tl.zeros((NUMBERS, OUT), tl.float32)
    d2 = tl.zeros((NUMBERS, OUT), tl.float32)
    d3 = tl.zeros((NUMBERS, OUT), tl.float32)
    for tile in range(TILES):
        m = (tl.program_id(1) * TILES + tile) * ROWS + tl.arange(0, ROWS)
        corner = x + _corner(g, m, n_rows, C, H, W, SIDE)
        real = (k < K)[:, None] & (m < n_rows)[None, :]
        patch = tl.load(corner[None, :] + _in_patch(k, H, W, SIDE)[:, None], mask=real, other=0.0)
        at = _output(g, m, o, n_rows, H, W, O, SIDE)
        real = (m < n_rows)[:, None] & (o < O)[None, :]
        d = tl.load(dy + at, mask=real, other=0.0)
        which = tl.load(place + at, mask=real, other=N_PLACES)
        d0 = tl.dot(patch, tl.where(which == 0, d, 0.0), d0, input_precision="tf32")
        d1 = tl.dot(patch, tl.where(which == 1, d, 0.0), d1, input_precision="tf32")
        d2 = tl.dot(patch, tl.where(which == 2, d, 0.0), d2, input_precision="tf32")
        d3 = tl.dot(patch, tl.where(which == 3, d, 0.0), d3, input_precision="tf32")
    part = g * tl.num_programs(1) + tl.program_id(1)
    at = dw + part * N_PLACES * K * O + k[:, None] * O + o[None, :]
    real = (k < K)[:, None] & (o < O)[None, :]
    tl.store(at, d0, mask=real)
    tl.store(at + K * O, d1, mask=real)
    tl.store(at + 2 * K * O, d2, mask=real)
    tl.store(at + 3 * K * O, d3, mask=real)


@triton.jit
def _gradient_of_input(
    dy, place, w, dx, n_rows,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, O: tl.constexpr, SIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """2×2 squares of the input (here m) by their channels and pixels, from all outputs whose patch has them."""
    P: tl.constexpr = (H - SIDE) // 2 + 1
    Q: tl.constexpr = (W - SIDE) // 2 + 1
    squares: tl.constexpr = (H // 2) * (W // 2)
    g = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sample, row, column = (m // squares).to(tl.int64), m % squares // (W // 2), m % (W // 2)
    pixel = tl.arange(0, COLUMNS)
    channel, below, right = pixel // 4, pixel % 4 // 2, pixel % 2
    outputs = g * (n_rows // squares) * O * P * Q + sample * (O * P * Q)
    d_square = tl.zeros((ROWS, COLUMNS), tl.float32)
    for up in tl.static_range(SIDE // 2):
        for left in tl.static_range(SIDE // 2):
            p, q = row - up, column - left
            there = (m < n_rows) & (p >= 0) & (p < P) & (q >= 0) & (q < Q)
            k = channel * (SIDE * SIDE) + (2 * up + below) * SIDE + 2 * left + right
            for first in tl.static_range(0, O, OUT):
                o = first + tl.arange(0, OUT)
                at = (outputs + p * Q + q)[:, None] + o[None, :] * (P * Q)
                real = there[:, None] & (o < O)[None, :]
                d = tl.load(dy + at, mask=real, other=0.0)
                which = tl.load(place + at, mask=real, other=N_PLACES)
                for f in tl.static_range(N_PLACES):
                    at = w + ((g * N_PLACES + f) * K + k[None, :]) * O + o[:, None]
                    weights = tl.load(at, mask=(channel < C)[None, :] & (o < O)[:, None], other=0.0)
                    d_square = tl.dot(tl.where(which == f, d, 0.0), weights, d_square, input_precision="tf32")
    line = (sample[:, None] * C + channel[None, :]) * H + 2 * row[:, None] + below[None, :]
    at = g * n_rows * (4 * C) + line * W + 2 * column[:, None] + right[None, :]
    tl.store(dx + at, d_square, mask=(m < n_rows)[:, None] & (channel < C)[None, :])


@triton.jit
def _corner(g, m, n_rows, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, SIDE: tl.constexpr):
    """Where the patch of pooled output `m` begins in x."""
    Q: tl.constexpr = (W - SIDE) // 2 + 1
    PQ: tl.constexpr = ((H - SIDE) // 2 + 1) * Q
    return (g * (n_rows // PQ) + m // PQ) * (C * H * W) + m % PQ // Q * (2 * W) + m % Q * 2


@triton.jit
def _in_patch(k, H: tl.constexpr, W: tl.constexpr, SIDE: tl.constexpr):
    """Where number `k` of a patch lies, from the patch's beginning."""
    return k // (SIDE * SIDE) * (H * W) + k % (SIDE * SIDE) // SIDE * W + k % SIDE


@triton.jit
def _output(g, m, o, n_rows, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr, SIDE: tl.constexpr):
    """Where pooled output `m` of channel `o` lies in y, which has its channels between samples and positions."""
    PQ: tl.constexpr = ((H - SIDE) // 2 + 1) * ((W - SIDE) // 2 + 1)
    return g * n_rows * O + ((m // PQ).to(tl.int64)[:, None] * O + o[None, :]) * PQ + (m % PQ)[:, None]
