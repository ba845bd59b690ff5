"""N networks × R runs as one object: all parameters in one flat tensor theta_NRP.

The forward pass is one batched call (vmap) or a loop over plain modules whose parameters are views of theta; the
state has the same layout either way, so nothing else in the library knows which. P parameters a network.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from coteach import draws
from coteach.engine.pooling import pool_convolutions
from coteach.engine.precision import Precision, pad_convolutions, unpad_convolutions
from coteach.engine.steps import Compiler, side_by_side, uncompiled
from coteach.isolation import generators_restored

# Modules that a batched matrix product or an element-wise kernel serves at full speed. A stacked convolution
# becomes a grouped one, which is slower than a loop on a CPU; an LSTM cannot be stacked at all.
BATCHES_WELL = (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Softsign, nn.Flatten, nn.Identity)

# Numbers to a multiple of which each parameter begins on a GPU: its kernels are faster on aligned addresses.
ALIGNMENT = 32


Tensors = Mapping[str, Tensor]


@torch.no_grad()
def fill(live: Tensors, saved: Tensors) -> None:
    """Copy what was saved into the tensors that are in use, where captured steps and views look for it."""
    if live.keys() != saved.keys():
        raise ValueError(f"the state has {', '.join(sorted(live.keys() ^ saved.keys()))} too many or too few.")
    for name, tensor in live.items():
        if tensor.shape != saved[name].shape or tensor.dtype != saved[name].dtype:
            raise ValueError(
                f"the state's {name} has shape {tuple(saved[name].shape)}, not {tuple(tensor.shape)}."
            )
        tensor.copy_(saved[name])


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
    precision : Precision
        Of the forward pass; parameters stay in `dtype`.
    generation : int
        Another number gives other initial weights from the same seeds (F-correction's second training).
    pooled : bool
        In a batched call, convolution, ReLU and max-pool as one operator where it can do them (GPU, TF32).
    compiler : callable
        Compiles the forward pass of a training step, or leaves it as it is.
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
        precision: Precision = Precision.FLOAT32,
        generation: int = 0,
        pooled: bool = False,
        compiler: Compiler = uncompiled,
    ):
        modules = [
            _initialised(build, seed, n, generation).to(device=device, dtype=dtype)
            for n in range(networks)
            for seed in seeds
        ]
        first = modules[0]
        self.shape = (networks, len(seeds))
        self.batched = batches_well(first) if batched is None else batched
        self.shapes = {name: p.shape for name, p in first.named_parameters() if p.requires_grad}
        on_gpu = torch.device(device).type != "cpu"
        self.in_one_piece = self.batched or on_gpu  # a gradient: there a copy costs less than a call for each leaf
        alignment = ALIGNMENT if on_gpu else 1
        self.gap = torch.zeros(alignment, dtype=dtype, device=device)
        self.lengths = [-(-shape.numel() // alignment) * alignment for shape in self.shapes.values()]
        shared = getattr(first, "shared_buffers", ())
        self.shared = {name: b for name, b in first.named_buffers() if name in shared}
        in_half = on_gpu and precision is Precision.BF16
        self.channels_last = not self.batched and (in_half or getattr(first, "channels_last", False))
        self.theta_NRP = torch.stack([self._flat(trained_parameters(m)) for m in modules]).unflatten(0, self.shape)
        self.buffers = {
            name: torch.stack([_fixed(m)[name] for m in modules]).unflatten(0, self.shape).clone()
            for name in _fixed(first)
            if name not in shared
        }
        self.statistics = [
            self.buffers[name]
            for name, b in first.named_buffers()
            if name in self.buffers and b.is_floating_point()
        ]
        # the statistics of the last finite batch, in one line, and which of the N·R networks owns each number
        self.kept_statistics = torch.cat([*(b.flatten() for b in self.statistics), self.gap[:0]])
        rows = torch.arange(networks * len(seeds), device=device)
        self.owner = torch.cat([rows.repeat_interleave(b[0, 0].numel()) for b in self.statistics] or [rows[:0]])
        self.plain = first
        if self.batched:
            self.modules = [copy.deepcopy(first) if pooled else first]
            if pooled:
                pool_convolutions(self.modules[0])
            self.leaves = [self.theta_NRP.requires_grad_()]
        else:
            self.modules = modules
            if in_half:
                for module in modules:
                    pad_convolutions(module)
            self._look_through(modules)
            self.leaves = [p for m in modules for p in trained_parameters(m)]
        self.precision = precision
        # for training alone: an evaluation is a few large calls, not worth a compilation of their own
        self.compiled_calls = (
            [compiler(self._batched)] if self.batched else [compiler(module) for module in modules]
        )

    @property
    def device(self) -> torch.device:
        return self.theta_NRP.device

    @property
    def dtype(self) -> torch.dtype:
        return self.theta_NRP.dtype

    def __call__(self, x_NRB: Tensor) -> Tensor:
        """logits_NRBC of x_NRB…, each network on its own batch."""
        training = self.modules[0].training
        with self.precision.forward(x_NRB.device.type):
            if self.batched:
                forward = self.compiled_calls[0] if training else self._batched
                logits_NRBC = forward(self.precision.laid_out(x_NRB))
            else:
                samples = [self.precision.laid_out(x_B) for x_RB in x_NRB.unbind() for x_B in x_RB.unbind()]
                calls = self.compiled_calls if training else self.modules
                logits_NRBC = torch.stack(side_by_side(calls, samples)).unflatten(0, self.shape)
        return logits_NRBC.to(self.theta_NRP.dtype)

    def gradients(self, loss_NRB: Tensor, weight_NRB: Tensor) -> Sequence[Tensor]:
        """Gradients of Σ weight·loss: one tensor laid out as theta_NRP, or in a loop on a CPU one a leaf."""
        gradients = torch.autograd.grad(loss_NRB, self.leaves, weight_NRB, materialize_grads=True)
        if self.in_one_piece and not self.batched:
            return [self._flat(gradients).view_as(self.theta_NRP)]
        return gradients

    def by_network(self, of_leaves: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """Leaves or their gradients, as a list for each of the N·R networks."""
        if self.batched:
            return [[row_P] for row_P in of_leaves[0].detach().flatten(0, 1)]
        n = len(self.shapes)
        return [of_leaves[i : i + n] for i in range(0, len(of_leaves), n)]

    def sums(self, gradients: Sequence[Tensor]) -> Tensor:
        """The sum of each network's gradient (NR). It is finite if every number is, and fast to look at."""
        if self.in_one_piece:
            return gradients[0].sum(-1)
        return torch.stack([g.sum() for g in gradients]).view(*self.shape, -1).sum(-1)

    def keep_statistics(self, finite_NR: Tensor) -> None:
        """Take the last batch out of the batch-norm statistics of the networks that were not finite."""
        if self.statistics:
            now = torch.cat([b.flatten() for b in self.statistics])
            finite = finite_NR.flatten().index_select(0, self.owner)
            self.kept_statistics.copy_(torch.where(finite, now, self.kept_statistics))
            self._restore_statistics()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A forward pass without a gradient, of which batch norm remembers nothing, not even that it was."""
        counts = [b for b in self.buffers.values() if not b.is_floating_point()]
        before = [b.clone() for b in counts]
        with torch.no_grad():
            yield
        if self.statistics:
            self._restore_statistics()
        if counts:
            torch._foreach_copy_(counts, before)

    def _restore_statistics(self) -> None:
        pieces = self.kept_statistics.split([b.numel() for b in self.statistics])
        torch._foreach_copy_(self.statistics, [p.view_as(b) for p, b in zip(pieces, self.statistics, strict=True)])

    def end_epoch(self) -> None:
        """Called after every epoch; here there is nothing to do."""

    def network(self, n: int, r: int) -> nn.Module:
        """A plain copy of one network, in evaluation mode."""
        module = copy.deepcopy(self.plain)
        state = self.split(self.theta_NRP.detach()[n, r]) | {k: b[n, r] for k, b in self.buffers.items()}
        for name, value in _tensors(module).items():
            if name in state:  # shared buffers are there already
                value.data = state[name].clone(memory_format=torch.contiguous_format)
        unpad_convolutions(module)
        return module.eval()

    def state(self) -> dict[str, Tensor]:
        """All that learning changes, as the very tensors that are in use."""
        return {"theta": self.theta_NRP, "settled": self.kept_statistics} | {
            f"buffer.{name}": b for name, b in self.buffers.items()
        }

    def load(self, saved: Tensors) -> None:
        fill(self.state(), saved)

    def learnt(self) -> dict[str, Tensor]:
        """Weights and statistics, each with axes NR first; the very tensors that are in use."""
        return {"theta": self.theta_NRP.detach()} | self.buffers

    def put(self, learnt: Tensors) -> None:
        """Make these, of the same networks, the weights and statistics."""
        fill(self.learnt(), learnt)
        if self.statistics:
            self.kept_statistics.copy_(torch.cat([b.flatten() for b in self.statistics]))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Batch norm on its running statistics, dropout off, no gradients."""
        self._train(False)
        try:
            with torch.no_grad():
                yield
        finally:
            self._train(True)

    def _train(self, mode: bool) -> None:
        for module in self.modules:
            module.train(mode)

    def _look_through(self, modules: list[nn.Module]) -> None:
        """Make the modules' own tensors views of the stacked ones."""
        for i, module in enumerate(modules):
            n, r = divmod(i, self.shape[1])
            views = self.split(self.theta_NRP[n, r]) | {k: b[n, r] for k, b in self.buffers.items()} | self.shared
            for name, parameter in module.named_parameters():
                parameter.data = views[name]
            for name, _ in list(module.named_buffers()):
                owner, _, attribute = name.rpartition(".")
                setattr(module.get_submodule(owner), attribute, views[name])

    def _batched(self, x_NRB: Tensor) -> Tensor:
        """Samples that several networks share go in once: their first layers then become one large product."""
        params = self.split(self.theta_NRP)
        x, over_runs = _unless_shared(x_NRB, 1)
        x, over_networks = _unless_shared(x, 0)
        each_run = vmap(self._one, in_dims=(0, 0, over_runs), randomness="different")
        return vmap(each_run, in_dims=(0, 0, over_networks), randomness="different")(params, self.buffers, x)

    def _one(self, params: dict[str, Tensor], buffers: dict[str, Tensor], x_B: Tensor) -> Tensor:
        return functional_call(self.modules[0], params | buffers | self.shared, (x_B,))

    def split(self, theta: Tensor) -> dict[str, Tensor]:
        """The flat last axis as named parameters; leading axes stay."""
        return {
            name: self._shaped(piece[..., : shape.numel()], shape)
            for (name, shape), piece in zip(self.shapes.items(), theta.split(self.lengths, dim=-1), strict=True)
        }

    def _shaped(self, piece: Tensor, shape: torch.Size) -> Tensor:
        leading = piece.shape[:-1]
        if self.channels_last and len(shape) == 4:
            out, channels, height, width = shape
            return piece.view(*leading, out, height, width, channels).movedim(-1, -3)
        return piece.view((*leading, *shape))

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        """The parameters of one or more networks, or their gradients, one after the other as in theta_NRP."""
        pieces = []
        for i, tensor in enumerate(tensors):
            last = self.channels_last and tensor.dim() == 4
            pieces.append((tensor.detach().movedim(1, -1) if last else tensor.detach()).flatten())
            gap = self.lengths[i % len(self.lengths)] - tensor.numel()
            if gap:
                pieces.append(self.gap[:gap])
        return torch.cat(pieces)


def _unless_shared(x: Tensor, axis: int) -> tuple[Tensor, int | None]:
    """The samples and the axis for vmap; without it where the same samples are only repeated along it."""
    shared = x.shape[axis] > 1 and x.stride(axis) == 0
    return (x.select(axis, 0), None) if shared else (x, 0)


def batches_well(module: nn.Module) -> bool:
    leaves = [m for m in module.modules() if not list(m.children())]
    counts = any(isinstance(leaf, nn.BatchNorm1d) and leaf.momentum is None for leaf in leaves)  # on the host
    return all(isinstance(leaf, BATCHES_WELL) for leaf in leaves) and not counts


def _initialised(build: Callable[[], nn.Module], seed: int, n: int, generation: int) -> nn.Module:
    with generators_restored():
        torch.manual_seed(draws.key(seed, f"network {n}", generation) & (2**63 - 1))
        return build().train()


def trained_parameters(module: nn.Module) -> list[Tensor]:
    return [p for p in module.parameters() if p.requires_grad]


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _fixed(module: nn.Module) -> dict[str, Tensor]:
    """What the optimiser leaves alone: buffers and frozen parameters."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return dict(module.named_buffers()) | frozen
