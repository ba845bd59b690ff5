"""The operator of `pooling` beside torch's own modules, in whole numbers, in which TF32 makes no error.

As a script: the Triton kernels on a CPU, with TRITON_INTERPRET=1.
"""

import itertools
from collections.abc import Sequence
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from coteach.engine import pooling

# groups, samples, channels in, height, width, channels out, side of the kernel
SHAPES = [
    (2, 3, 3, 12, 10, 6, 5),  # fewer channels out than a program has columns
    (3, 5, 6, 14, 14, 16, 5),  # as the second layer of the small CNN
    (1, 2, 1, 6, 8, 20, 3),  # a second block of columns
    (2, 1, 5, 4, 4, 3, 1),  # a patch that no other has a part of
    (1, 70, 2, 6, 6, 4, 5),  # a second tile of samples, with one pooled output each
]


def whole(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape).float()


def case(groups: int, samples: int, channels: int, height: int, width: int, out: int, side: int) -> list[Tensor]:
    """x_GBCHW, w_GOCkk, b_GO, with enough ties and shut ReLUs among the outputs."""
    torch.manual_seed(0)
    x = whole(0, 4, groups, samples, channels, height, width)
    return [x, whole(-1, 2, groups, out, channels, side, side), whole(-3, 4, groups, out)]


def by_torch(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    groups = zip(x, w, b, strict=True)
    return torch.stack([F.max_pool2d(F.conv2d(x_B, w_O, b_O).relu(), 2) for x_B, w_O, b_O in groups])


def by_operator(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.func.vmap(pooling.pooled_convolution)(w, b, x)


def assert_the_operator_is_torch(device: str, shapes: Sequence[tuple[int, ...]] = SHAPES) -> None:
    for shape, with_input in itertools.product(shapes, (True, False)):
        mine = [t.to(device).requires_grad_(with_input or i > 0) for i, t in enumerate(case(*shape))]
        theirs = [t.double().requires_grad_(with_input or i > 0) for i, t in enumerate(case(*shape))]
        y, expected = by_operator(*mine), by_torch(*theirs)
        assert 0.1 < (expected == 0).double().mean() < 0.9, shape
        dy = whole(-3, 4, *expected.shape)
        torch.testing.assert_close(y.cpu().double(), expected, rtol=0, atol=0)
        gradients = torch.autograd.grad(y, [t for t in mine if t.requires_grad], dy.to(device))
        for d, e in zip(
            gradients,
            torch.autograd.grad(expected, [t for t in theirs if t.requires_grad], dy.double()),
            strict=True,
        ):
            torch.testing.assert_close(d.cpu().double(), e, rtol=0, atol=0)


def assert_many_tiles_are_torch(device: str) -> None:
    """Programs that sum over two tiles each, the last over one, as in a training that fills a GPU."""
    from coteach.engine import pooling_kernels

    with patch.object(pooling_kernels, "PROGRAMS", 5):
        assert_the_operator_is_torch(device, [(2, 25, 2, 10, 8, 4, 3)])  # five tiles for each of two groups


def assert_nan_goes_through(device: str) -> None:
    x, w, b = (t.to(device) for t in case(*SHAPES[1]))
    for spoilt in ((0, 1, 2, 7, 7), (2, 0, 0, 0, 0)):
        x[spoilt] = float("nan")
    assert torch.equal(by_operator(x, w, b).isnan().cpu(), by_torch(x.cpu(), w.cpu(), b.cpu()).isnan())


# ---- the operator in plain torch, for a CPU --------------------------------------------------------------------


def patches(x_GBCHW: Tensor, side: int) -> Tensor:
    return x_GBCHW.unfold(3, side, 2).unfold(4, side, 2).permute(0, 1, 3, 4, 2, 5, 6).flatten(4)


def forward(x_GBCHW: Tensor, w_GFKO: Tensor, b_GO: Tensor) -> tuple[Tensor, Tensor]:
    x_GBPQK = patches(x_GBCHW, pooling.patch_side(x_GBCHW, w_GFKO))
    best, place = torch.einsum("gbpqk,gfko->gfbopq", x_GBPQK, w_GFKO).max(1)
    y = best + b_GO[:, None, :, None, None]
    shut = y <= 0
    y_GBOPQ = torch.where(shut, 0, y).contiguous()
    return y_GBOPQ, torch.where(shut, pooling.POOL_PLACES, place).to(torch.uint8).contiguous()


def backward(dy: Tensor, x: Tensor, w: Tensor, place: Tensor, with_input: bool) -> tuple[Tensor, Tensor]:
    side = pooling.patch_side(x, w)
    dy_GFBOPQ = torch.stack([torch.where(place == f, dy, 0) for f in range(pooling.POOL_PLACES)], 1)
    dw = torch.einsum("gbpqk,gfbopq->gfko", patches(x, side), dy_GFBOPQ).contiguous()
    if not with_input:
        return dw, x.new_empty(0)
    d_GBKL = torch.einsum("gfbopq,gfko->gbkpq", dy_GFBOPQ, w).flatten(3)
    dx = F.fold(d_GBKL.flatten(0, 1), (x.shape[3], x.shape[4]), side, stride=2)
    return dw, dx.unflatten(0, x.shape[:2]).contiguous()


if __name__ == "__main__":
    pooling.convolved.register_kernel("cpu")(pooling.convolved._init_fn)
    pooling.convolved_backward.register_kernel("cpu")(pooling.convolved_backward._init_fn)
    assert_the_operator_is_torch("cpu")
    assert_many_tiles_are_torch("cpu")
    assert_nan_goes_through("cpu")
