"""Optimisers of a whole stack in which a single network can sit a step out, as if the step had not been.

`TorchAdam` and `TorchSGD` hand each network's tensors to torch's own, whose kernels are the fastest on a CPU; they
must ask which networks are live, as must `TorchOptimiser`, which is for any other. `MaskedOptimiser` computes the
same for all networks at once without asking, so that a step can be captured in a CUDA graph.
N networks, R runs, P parameters; NR1 is one number a network.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

from coteach.engine.clock import Clock
from coteach.engine.stack import Stack, Tensors, fill
from coteach.engine.steps import Compiler, uncompiled
from coteach.plan import Plan

BETA2, EPSILON = 0.999, 1e-8  # torch's defaults, which the paper keeps
CLEARED_EVERY = 100  # steps, in which 0.9 a step makes 2.7e-5
NOTHING = 1e5  # times the smallest number of full precision


class Optimiser(Protocol):
    def step(self, gradients: Sequence[Tensor], live_NR: Tensor, clock: Clock) -> None:
        """Move the networks that are `live`."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What it remembers of the steps so far."""
        ...

    def load(self, saved: Tensors) -> None:
        """Remember what `state` returned, before the first step."""
        ...


def new_optimiser(stack: Stack, plan: Plan, compiler: Compiler = uncompiled) -> Optimiser:
    """The fastest for the device."""
    if not plan.capturable:
        return TorchOptimiser(stack, plan)
    if stack.theta_NRP.device.type != "cpu":
        return MaskedOptimiser(stack, plan, compiler)
    return TorchAdam(stack, plan) if plan.optimizer == "adam" else TorchSGD(stack, plan)


class TorchAdam:
    """torch's fused Adam, called as a function: the object around it costs as much again as the step."""

    def __init__(self, stack: Stack, plan: Plan):
        self.stack, self.plan = stack, plan
        self.weights = [[p.detach() for p in row] for row in stack.by_network(stack.leaves)]
        self.means = [[torch.zeros_like(p) for p in row] for row in self.weights]
        self.squares = [[torch.zeros_like(p) for p in row] for row in self.weights]
        self.steps = [[torch.zeros((), dtype=torch.float32) for _ in row] for row in self.weights]
        self.taken = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], live_NR: Tensor, clock: Clock) -> None:
        self.taken += 1
        if self.taken % CLEARED_EVERY == 0:
            self._clear()
        live = [i for i, is_live in enumerate(live_NR.flatten().tolist()) if is_live]
        rows = (self.weights, self.stack.by_network(gradients), self.means, self.squares, self.steps)
        weights, gradients, means, squares, steps = ([t for i in live for t in row[i]] for row in rows)
        if live:
            adam(
                weights,
                [laid_out_as(p, gradient) for p, gradient in zip(weights, gradients, strict=True)],
                means,
                squares,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=clock.beta1.item(),
                beta2=BETA2,
                lr=clock.lr.item(),
                weight_decay=self.plan.weight_decay,
                eps=EPSILON,
                maximize=False,
                decoupled_weight_decay=self.plan.decoupled_decay,
            )

    def state(self) -> dict[str, Tensor]:
        return self._moments() | {"taken": torch.tensor(self.taken)}

    def load(self, saved: Tensors) -> None:
        self.taken = int(saved["taken"])
        fill(self._moments(), {name: t for name, t in saved.items() if name != "taken"})

    def _moments(self) -> dict[str, Tensor]:
        kinds = {"mean": self.means, "square": self.squares, "steps": self.steps}
        return {
            f"{kind}.{i}.{j}": t
            for kind, rows in kinds.items()
            for i, row in enumerate(rows)
            for j, t in enumerate(row)
        }

    def _clear(self) -> None:
        """Take what has decayed to nearly nothing for nothing.

        The mean of a gradient that has ended halves every seven steps, down to numbers so small that a CPU needs
        twenty times as long for them, and there it stays. No weight changes by less than these.
        """
        for row in (*self.means, *self.squares):
            for t in row:
                t.masked_fill_(t.abs() < NOTHING * torch.finfo(t.dtype).tiny, 0)


def laid_out_as(p: Tensor, gradient: Tensor) -> Tensor:
    """A gradient in its parameter's order: fused Adam goes through the memory of both, whatever their strides."""
    return gradient if gradient.stride() == p.stride() else torch.empty_like(p).copy_(gradient)


class TorchSGD:
    """torch's SGD; a tensor without a gradient is left alone, its momentum too."""

    def __init__(self, stack: Stack, plan: Plan):
        self.stack = stack
        self.rows = stack.by_network(stack.leaves)
        tensors = [p.requires_grad_() for row in self.rows for p in row]
        self.shrinks = plan.weight_decay if plan.decoupled_decay else 0.0
        # not fused: that SGD cannot take rows of which some have stepped before and others have not
        self.torch = torch.optim.SGD(
            tensors,
            plan.lr,
            plan.momentum,
            weight_decay=plan.weight_decay - self.shrinks,
            nesterov=plan.nesterov and plan.momentum > 0,  # torch wants some; of none it makes no difference
        )

    def step(self, gradients: Sequence[Tensor], live_NR: Tensor, clock: Clock) -> None:
        networks = zip(self.rows, self.stack.by_network(gradients), live_NR.flatten().tolist(), strict=True)
        for row, row_gradients, live in networks:
            for p, gradient in zip(row, row_gradients, strict=True):
                p.grad = gradient if live else None
        lr = clock.lr.item()
        for group in self.torch.param_groups:
            group["lr"] = lr
        if self.shrinks and (moving := [p.detach() for p in self._tensors() if p.grad is not None]):
            torch._foreach_mul_(moving, 1 - lr * self.shrinks)
        self.torch.step()

    def state(self) -> dict[str, Tensor]:
        """The momentum of each tensor that has moved yet."""
        momenta = {i: self.torch.state[p].get("momentum_buffer") for i, p in enumerate(self._tensors())}
        return {str(i): momentum for i, momentum in momenta.items() if momentum is not None}

    def load(self, saved: Tensors) -> None:
        for i, p in enumerate(self._tensors()):
            if str(i) in saved:
                self.torch.state[p]["momentum_buffer"] = saved[str(i)].to(p, copy=True)

    def _tensors(self) -> list[Tensor]:
        return self.torch.param_groups[0]["params"]


class TorchOptimiser:
    """Any of torch's optimisers, or one like them: one for each network, on parameters in their own shapes."""

    def __init__(self, stack: Stack, plan: Plan):
        kind = getattr(torch.optim, plan.optimizer) if isinstance(plan.optimizer, str) else plan.optimizer
        self.stack = stack
        self.rows = self._shaped(stack.theta_NRP)
        self.torchs = [kind(row, lr=plan.lr, **dict(plan.optimizer_options)) for row in self.rows]

    def step(self, gradients: Sequence[Tensor], live_NR: Tensor, clock: Clock) -> None:
        one_piece = self.stack.in_one_piece
        of_rows = self._shaped(gradients[0]) if one_piece else self.stack.by_network(gradients)
        lr = clock.lr.item()
        for torchs, row, of_row, live in zip(
            self.torchs, self.rows, of_rows, live_NR.flatten().tolist(), strict=True
        ):
            if live:
                for p, gradient in zip(row, of_row, strict=True):
                    p.grad = gradient
                for group in torchs.param_groups:
                    group["lr"] = lr
                torchs.step()

    def state(self) -> dict[str, Tensor]:
        raise NotImplementedError("only RobustClassifier takes such optimisers, and it writes no checkpoints")

    def load(self, saved: Tensors) -> None:
        raise NotImplementedError("only RobustClassifier takes such optimisers, and it writes no checkpoints")

    def _shaped(self, of_NRP: Tensor) -> list[list[Tensor]]:
        """What is laid out as theta_NRP, as views in the shapes of the parameters, a list for each network."""
        return [list(self.stack.split(row_P).values()) for row_P in of_NRP.detach().flatten(0, 1)]


class MaskedOptimiser:
    """The same on theta_NRP as one tensor; all that changes is a tensor, so nothing waits for the device."""

    def __init__(self, stack: Stack, plan: Plan, compiler: Compiler = uncompiled):
        self.plan = plan
        self.theta_NRP = stack.theta_NRP
        self.mean_NRP = torch.zeros_like(self.theta_NRP)  # Adam's first moment, SGD's momentum
        self.square_NRP = torch.zeros_like(self.theta_NRP) if plan.optimizer == "adam" else None
        self.steps_NR1 = torch.zeros(*stack.shape, 1, dtype=torch.float64, device=self.theta_NRP.device)
        # apart, or the powers below would be computed once for every parameter
        self.pace, self.move = (
            compiler(self._pace),
            compiler(self._adam if plan.optimizer == "adam" else self._sgd),
        )

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], live_NR: Tensor, clock: Clock) -> None:
        self.move(gradients, live_NR[..., None], *self.pace(live_NR[..., None], clock))

    def state(self) -> dict[str, Tensor]:
        moments = {"mean": self.mean_NRP, "square": self.square_NRP, "steps": self.steps_NR1}
        return {name: t for name, t in moments.items() if t is not None}

    def load(self, saved: Tensors) -> None:
        fill(self.state(), saved)

    def _pace(self, live_NR1: Tensor, clock: Clock) -> tuple[Tensor, ...]:
        """Adam's rates of moving its two means and the weights, its scale, and the learning rate as it is.

        The rates are 0 for those who sit out.
        """
        live_NR1 = live_NR1.double()
        self.steps_NR1 += live_NR1
        taken_NR1 = self.steps_NR1.clamp(min=1)  # the row of a network that never moved must stay finite
        bias_NR1 = 1 - clock.beta1**taken_NR1 if self.square_NRP is not None else 1
        rates = (
            live_NR1 * (1 - clock.beta1),
            live_NR1 * (1 - BETA2),
            live_NR1 * clock.lr / bias_NR1,
            (1 - BETA2**taken_NR1).sqrt(),
            live_NR1 * clock.lr,
        )
        return tuple(rate.to(self.theta_NRP.dtype) for rate in rates)

    def _gradient(self, gradients: Sequence[Tensor], live_NR1: Tensor) -> Tensor:
        # where, not a product: what sits out may well be nan
        gradient_NRP = torch.where(live_NR1, gradients[0], 0)
        if self.plan.weight_decay and not self.plan.decoupled_decay:
            return gradient_NRP + self.plan.weight_decay * self.theta_NRP
        return gradient_NRP

    def _shrink(self, lr_NR1: Tensor) -> None:
        if self.plan.weight_decay and self.plan.decoupled_decay:
            self.theta_NRP *= 1 - self.plan.weight_decay * lr_NR1

    def _adam(self, gradients: Sequence[Tensor], live_NR1: Tensor, *rates_NR1: Tensor) -> None:
        assert self.square_NRP is not None
        to_mean, to_square, lr, scale, shrinks = rates_NR1
        gradient_NRP = self._gradient(gradients, live_NR1)
        self._shrink(shrinks)
        self.mean_NRP.lerp_(gradient_NRP, to_mean)
        self.square_NRP.lerp_(gradient_NRP.square(), to_square)
        self.theta_NRP -= lr * self.mean_NRP / (self.square_NRP.sqrt() / scale + EPSILON)

    def _sgd(self, gradients: Sequence[Tensor], live_NR1: Tensor, *rates_NR1: Tensor) -> None:
        lr_NR1, gradient_NRP = rates_NR1[2], self._gradient(gradients, live_NR1)
        moved_NRP = self.plan.momentum * self.mean_NRP + gradient_NRP
        self.mean_NRP.copy_(torch.where(live_NR1, moved_NRP, self.mean_NRP))
        self._shrink(lr_NR1)
        if self.plan.nesterov:
            moved_NRP = self.plan.momentum * moved_NRP + gradient_NRP
            self.theta_NRP -= lr_NR1 * torch.where(live_NR1, moved_NRP, 0)
        else:
            self.theta_NRP -= lr_NR1 * self.mean_NRP


class Lookahead:
    """Every so many steps, and at the end of an epoch, weights return to a moving average of themselves.

    So what is evaluated and saved are averages. The average is short at first and longer towards the end, when
    there is less and less to forget (Zhang et al., 2019, with the growing memory of Jordan, 2024).
    """

    MEMORY = 0.95  # of a step at the end of the training

    def __init__(self, stack: Stack, every: int):
        self.theta_NRP, self.every = stack.theta_NRP, every
        self.slow_NRP = stack.theta_NRP.detach().clone()

    @torch.no_grad()
    def step(self, clock: Clock) -> None:
        """After one of the optimiser's. A network that has sat out since the last return is its own average."""
        number = clock.step_1[0] + 1
        due = (number % self.every == 0) | (number == clock.steps)
        if self.theta_NRP.device.type == "cpu" and not due:  # elsewhere nobody may wait for the answer
            return
        memory = (self.MEMORY**self.every * clock.done**3).to(self.theta_NRP.dtype)
        mean_NRP = torch.lerp(self.theta_NRP, self.slow_NRP, memory)
        self.slow_NRP.copy_(torch.where(due, mean_NRP, self.slow_NRP))
        self.theta_NRP.copy_(torch.where(due, mean_NRP, self.theta_NRP))

    def state(self) -> dict[str, Tensor]:
        return {"slow": self.slow_NRP}

    def load(self, saved: Tensors) -> None:
        fill(self.state(), saved)
