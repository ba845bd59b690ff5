"""Convolution, ReLU and 2×2 max-pool of a stack of small networks as one operator, for a GPU.

cuDNN has no good kernel for a handful of channels, and none for a stack of them. A 2×2 pool of a k×k convolution
sees a patch of (k+1)×(k+1) pixels, in which the kernel can lie at F = 4 places: top left, top right, bottom left,
bottom right. Four copies of its weights, each padded with zeros to the K = C·(k+1)² numbers of a patch, give the
four products of which the pool takes the largest; the patch is read once.

G networks, or groups of them that share their input, B samples of C channels of H×W; O channels of P×Q come out.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

POOL_PLACES = 4
ROW = [nn.Conv2d, nn.ReLU, nn.MaxPool2d]  # what the operator does in one
# Beyond these the kernels, whose loops are unrolled, take minutes to compile, and were not timed against cuDNN.
MOST_IN_A_PATCH, MOST_OUT = 256, 32


class PooledSequential(nn.Sequential):
    """The same modules, but convolution, ReLU and max-pool in a row are one operator where it can do them.

    The inner modules are then not called.
    """

    def forward(self, input: Tensor) -> Tensor:
        x, rest = input, list(self)
        while rest:
            first = rest[0]
            if isinstance(first, nn.Conv2d) and first.bias is not None and can_pool(first, rest[1:3], x):
                x = pooled_convolution(first.weight, first.bias, x)
                rest = rest[3:]
            else:
                x = first(x)
                rest = rest[1:]
        return x


def pool_convolutions(module: nn.Module) -> None:
    for m in module.modules():
        if type(m) is nn.Sequential:
            m.__class__ = PooledSequential


def pools_every_convolution(module: nn.Module) -> bool:
    """Whether each is followed by a ReLU and a max-pool; whether the operator can do them hangs on the input."""
    rows = [list(m) for m in module.modules() if type(m) is nn.Sequential]
    pooled = sum([type(m) for m in row[i : i + 3]] == ROW for row in rows for i in range(len(row)))
    return pooled > 0 and pooled == sum(isinstance(m, nn.modules.conv._ConvNd) for m in module.modules())


def can_pool(conv: nn.Conv2d, after: Sequence[nn.Module], x_BCHW: Tensor) -> bool:
    """Whether the operator does what these modules do: no padding, a small odd kernel, images of even sides."""
    if [type(m) for m in (conv, *after)] != ROW:
        return False
    if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in (conv, *after)):
        return False
    pool = after[1]
    return (
        x_BCHW.dtype == torch.float32
        and x_BCHW.dim() == 4
        and x_BCHW.shape[1] == conv.in_channels
        and conv.in_channels * (conv.kernel_size[0] + 1) ** 2 <= MOST_IN_A_PATCH
        and conv.out_channels <= MOST_OUT
        and (conv.stride, conv.padding, conv.dilation, conv.groups) == ((1, 1), (0, 0), (1, 1), 1)
        and conv.kernel_size[0] == conv.kernel_size[1]
        and conv.kernel_size[0] % 2 == 1
        and (pool.kernel_size, pool.stride, pool.padding, pool.dilation) == (2, 2, 0, 1)
        and not (pool.ceil_mode or pool.return_indices)
        and all(n % 2 == 0 and n > conv.kernel_size[0] for n in x_BCHW.shape[-2:])
    )


def pooled_convolution(w_OCkk: Tensor, b_O: Tensor, x_BCHW: Tensor) -> Tensor:
    placed = [F.pad(w_OCkk, (j, 1 - j, i, 1 - i)) for i in (0, 1) for j in (0, 1)]
    w_FKO = torch.stack(placed).flatten(2).transpose(1, 2)
    y_GBOPQ, _ = convolved(x_BCHW[None], w_FKO[None], b_O[None])
    return y_GBOPQ[0]


def patch_side(x_GBCHW: Tensor, w_GFKO: Tensor) -> int:
    """The side of the patch that one pooled output sees: one more than the kernel's."""
    return round((w_GFKO.shape[2] / x_GBCHW.shape[2]) ** 0.5)


# ---- the operator and its gradient ----------------------------------------------------------------------------


@torch.library.custom_op("coteach::convolved", mutates_args=(), device_types="cuda")
def convolved(x_GBCHW: Tensor, w_GFKO: Tensor, b_GO: Tensor) -> tuple[Tensor, Tensor]:
    """y_GBOPQ, and the place that each of its numbers comes from: POOL_PLACES where the ReLU is shut."""
    from coteach.engine.pooling_kernels import pool_forward

    y_GBOPQ, place_GBOPQ = _empty_output(x_GBCHW, w_GFKO, b_GO)
    pool_forward(x_GBCHW.contiguous(), w_GFKO.contiguous(), b_GO.contiguous(), y_GBOPQ, place_GBOPQ)
    return y_GBOPQ, place_GBOPQ


@convolved.register_fake
def _empty_output(x_GBCHW: Tensor, w_GFKO: Tensor, b_GO: Tensor) -> tuple[Tensor, Tensor]:
    # also tells the compiler the shapes
    n_groups, n_samples, _, *size = x_GBCHW.shape
    pooled = [(n - patch_side(x_GBCHW, w_GFKO)) // 2 + 1 for n in size]
    y_GBOPQ = x_GBCHW.new_empty(n_groups, n_samples, b_GO.shape[1], *pooled)
    return y_GBOPQ, torch.empty_like(y_GBOPQ, dtype=torch.uint8)


@torch.library.custom_op("coteach::convolved_backward", mutates_args=(), device_types="cuda")
def convolved_backward(
    dy_GBOPQ: Tensor, x_GBCHW: Tensor, w_GFKO: Tensor, place_GBOPQ: Tensor, with_input: bool
) -> tuple[Tensor, Tensor]:
    """dw_GFKO, and dx_GBCHW if it is asked for (else an empty tensor)."""
    from coteach.engine.pooling_kernels import gradient_of_input, gradient_of_weights

    dy, x, w = dy_GBOPQ.contiguous(), x_GBCHW.contiguous(), w_GFKO.contiguous()
    dx = gradient_of_input(dy, place_GBOPQ, x, w) if with_input else x.new_empty(0)
    return gradient_of_weights(dy, place_GBOPQ, x, w), dx


@convolved_backward.register_fake
def _empty_gradients(
    dy_GBOPQ: Tensor, x_GBCHW: Tensor, w_GFKO: Tensor, place_GBOPQ: Tensor, with_input: bool
) -> tuple[Tensor, Tensor]:
    return w_GFKO.new_empty(w_GFKO.shape), x_GBCHW.new_empty(x_GBCHW.shape if with_input else 0)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    x_GBCHW, w_GFKO, _ = inputs
    ctx.save_for_backward(x_GBCHW, w_GFKO, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, dy_GBOPQ: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    x_GBCHW, w_GFKO, place_GBOPQ = ctx.saved_tensors
    with_input = ctx.needs_input_grad[0]
    dw_GFKO, dx_GBCHW = convolved_backward(dy_GBOPQ, x_GBCHW, w_GFKO, place_GBOPQ, with_input)
    db_GO = torch.where(place_GBOPQ < POOL_PLACES, dy_GBOPQ, 0).sum((1, 3, 4))
    return dx_GBCHW if with_input else None, dw_GFKO, db_GO


convolved.register_autograd(_gradients, setup_context=_keep)


@convolved.register_vmap
def _stacked(
    info: Any, in_dims: tuple[int | None, ...], x_GBCHW: Tensor, w_GFKO: Tensor, b_GO: Tensor
) -> tuple[tuple[Tensor, ...], tuple[int, int]]:
    """V networks more. Those that share their input are one with more channels out, which reads it once."""
    x_dim, w_dim, b_dim = in_dims
    w_VGFKO, b_VGO = (
        t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in ((w_GFKO, w_dim), (b_GO, b_dim))
    )
    if x_dim is None:
        w, b = w_VGFKO.movedim(0, -2).flatten(-2), b_VGO.movedim(0, -2).flatten(-2)
        outputs = convolved(x_GBCHW, w, b)
        return tuple(t.unflatten(2, (info.batch_size, -1)) for t in outputs), (2, 2)
    outputs = convolved(x_GBCHW.movedim(x_dim, 0).flatten(0, 1), w_VGFKO.flatten(0, 1), b_VGO.flatten(0, 1))
    return tuple(t.unflatten(0, (info.batch_size, -1)) for t in outputs), (0, 0)
