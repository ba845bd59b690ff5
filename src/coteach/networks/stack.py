"""N networks × R runs as one object: all parameters in one flat tensor theta_NRP.

The forward pass is one batched call (vmap) or a loop over the networks; parameters, gradient and optimiser state
have the same layout either way, so nothing else in the library knows which. P parameters a network.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from coteach import draws

# Modules that a batched matrix product or an element-wise kernel serves at full speed. A stacked convolution
# becomes a grouped one, which is slower than a loop on a CPU; an LSTM cannot be stacked at all.
BATCHES_WELL = (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Softsign, nn.Flatten, nn.Identity)


class Stack:
    """Independent copies of one network, each with its own initialisation.

    Parameters
    ----------
    build : callable
        Makes one network with torch's default initialisation.
    seeds : list of int
        One a run (R); network n of a run is a function of (seed, n, generation).
    networks : int
        N, the networks of each run.
    batched : bool, optional
        One vmapped call instead of a loop; chosen by the kind of its modules unless given.
    generation : int
        Another number gives other initial weights from the same seeds (F-correction's second training).
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        seeds: list[int],
        networks: int,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        batched: bool | None = None,
        generation: int = 0,
    ):
        modules = [
            [_initialised(build, seed, n, generation).to(device=device, dtype=dtype) for seed in seeds]
            for n in range(networks)
        ]
        self.module = modules[0][0]
        self.batched = batches_well(self.module) if batched is None else batched
        self.shapes = {name: p.shape for name, p in self.module.named_parameters() if p.requires_grad}
        shared = getattr(self.module, "shared_buffers", ())
        self.shared = {name: b for name, b in self.module.named_buffers() if name in shared}
        self.theta_NRP = torch.stack([torch.stack([_flat(m) for m in row]) for row in modules]).requires_grad_()
        self.buffers = {
            name: torch.stack([torch.stack([_fixed(m)[name] for m in row]) for row in modules])
            for name in _fixed(self.module)
            if name not in shared
        }
        self.statistics = [
            name for name, b in self.module.named_buffers() if name in self.buffers and b.is_floating_point()
        ]
        self.statistics_before: dict[str, Tensor] = {}

    def __call__(self, x_NRB: Tensor) -> Tensor:
        """logits_NRBC of x_NRB…, each network on its own batch."""
        if self.module.training:
            self.statistics_before = {name: self.buffers[name].clone() for name in self.statistics}
        if self.batched:
            params = self._split(self.theta_NRP)
            over_runs = vmap(self._one, randomness="different")
            return vmap(over_runs, randomness="different")(params, self.buffers, x_NRB)
        theta = [row.unbind() for row in self.theta_NRP.unbind()]  # unbind's gradient is one stack, not N·R sums
        rows = [
            torch.stack(
                [
                    self._one(self._split(theta_P), {k: b[n, r] for k, b in self.buffers.items()}, x_NRB[n, r])
                    for r, theta_P in enumerate(row)
                ]
            )
            for n, row in enumerate(theta)
        ]
        return torch.stack(rows)

    def gradient(self, loss: Tensor) -> Tensor:
        (gradient_NRP,) = torch.autograd.grad(loss, self.theta_NRP)
        return gradient_NRP

    def settle_statistics(self, sound_NR: Tensor) -> None:
        """Take the last batch out of the batch-norm statistics of the networks that were not sound."""
        for name, before in self.statistics_before.items():
            sound = sound_NR.view(*sound_NR.shape, *[1] * (before.dim() - 2))
            self.buffers[name].copy_(torch.where(sound, self.buffers[name], before))

    def network(self, n: int, r: int) -> nn.Module:
        """A plain copy of one network, in evaluation mode."""
        module = copy.deepcopy(self.module)
        state = self._split(self.theta_NRP.detach()[n, r]) | {k: b[n, r] for k, b in self.buffers.items()}
        module.load_state_dict(state, strict=False)  # shared buffers are there already
        return module.eval()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Batch norm on its running statistics, dropout off, no gradients."""
        self.module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.module.train()

    def _one(self, params: dict[str, Tensor], buffers: dict[str, Tensor], x_B: Tensor) -> Tensor:
        return functional_call(self.module, params | buffers | self.shared, (x_B,))

    def _split(self, theta: Tensor) -> dict[str, Tensor]:
        """The flat last axis as named parameters; leading axes stay."""
        pieces = theta.split([shape.numel() for shape in self.shapes.values()], dim=-1)
        return {
            name: piece.view(*theta.shape[:-1], *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }


def batches_well(module: nn.Module) -> bool:
    leaves = [m for m in module.modules() if not list(m.children())]
    return all(isinstance(leaf, BATCHES_WELL) for leaf in leaves)


def _initialised(build: Callable[[], nn.Module], seed: int, n: int, generation: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draws.key(seed, f"network {n}", generation) & (2**63 - 1))
        return build().train()


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters() if p.requires_grad])


def _fixed(module: nn.Module) -> dict[str, Tensor]:
    """What the optimiser leaves alone: buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return dict(module.named_buffers()) | frozen
