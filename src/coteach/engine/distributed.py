"""One training by several processes, each on its own part of every mini-batch (torch.distributed, torchrun).

What is picked is picked from the whole mini-batch, by every process alike: the logits are gathered, the gradients
added up. N networks, R runs, B samples of a mini-batch, b of them one's own, C classes.
"""

import atexit
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from coteach.engine.stack import Stack

# Only for a process that hangs: one that ends is noticed at once. The first may have to download a data set.
PATIENCE = timedelta(minutes=10)


class ProcessLost(ValueError):
    """Another process of the training has ended; what went wrong is told there."""


class Team:
    """A process alone: all of every mini-batch is its own."""

    rank, size = 0, 1

    @property
    def leads(self) -> bool:
        """Whether it is the one that writes, prints and asks; the others only compute."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Which of `n` samples are one's own; the parts differ by one at most."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def whole(self, logits_NRbC: Tensor, n: int) -> Tensor:
        """logits_NRBC of all `n` samples; gradients flow into one's own part only."""
        return logits_NRbC

    def summed(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Over all processes."""
        return gradients

    def agree(self, stack: Stack) -> None:
        """Average the batch-norm statistics, for which each process has seen its own samples only."""

    def told(self, make: Callable[[], Any]) -> Any:
        """What the leading process makes; it must go into JSON. All wait here for each other."""
        return make()

    def handed(self, content: bytes) -> bytes:
        """The leading process's bytes."""
        return content

    def least(self, n: int) -> int:
        return n

    @contextmanager
    def one_first(self) -> Iterator[None]:
        """The leading process goes through the block before the others: what it downloads, they find."""
        if not self.leads:
            self.told(lambda: None)
        yield
        if self.leads:
            self.told(lambda: None)


ALONE = Team()


class Several(Team):
    """One of the processes of torch's default group; its messages go by way of the device that it trains on."""

    def __init__(self, device: str | torch.device = "cpu"):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(device)

    def whole(self, logits_NRbC: Tensor, n: int) -> Tensor:
        mine = self.part(n)
        all_NRBC = logits_NRbC.new_zeros(*logits_NRbC.shape[:2], n, logits_NRbC.shape[-1])
        all_NRBC[:, :, mine] = logits_NRbC.detach()
        _sum(all_NRBC)  # of zeros but for one: exact, and parts need not be of the same length
        return torch.cat([all_NRBC[:, :, : mine.start], logits_NRbC, all_NRBC[:, :, mine.stop :]], 2)

    def summed(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        flat = torch.cat([g.flatten() for g in gradients])
        _sum(flat)
        pieces = flat.split([g.numel() for g in gradients])
        return [piece.view(g.shape) for piece, g in zip(pieces, gradients, strict=True)]

    def agree(self, stack: Stack) -> None:
        if stack.statistics:
            for statistic in (stack.kept_statistics, *stack.statistics):
                _sum(statistic)
                statistic /= self.size

    def told(self, make: Callable[[], Any]) -> Any:
        return json.loads(self.handed(json.dumps(make()).encode() if self.leads else b""))

    def handed(self, content: bytes) -> bytes:
        length = torch.tensor([len(content)], device=self.device)
        with _in_company():
            dist.broadcast(length, 0)
            sent = torch.empty(int(length), dtype=torch.uint8, device=self.device)
            if self.leads:
                sent.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            dist.broadcast(sent, 0)
        return sent.cpu().numpy().tobytes()

    def least(self, n: int) -> int:
        of_all = torch.tensor([n], device=self.device)
        with _in_company():
            dist.all_reduce(of_all, dist.ReduceOp.MIN)
        return int(of_all)


def processes() -> int:
    """How many there are, or were started together with this one and have yet to meet."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    started_together = "RANK" in os.environ and "MASTER_ADDR" in os.environ  # as torchrun says it
    return int(os.environ.get("WORLD_SIZE", "1")) if started_together else 1


def joined(device: str) -> Team:
    """The processes that train together on devices of this kind, as soon as all of them are here.

    A group that the caller has initialised is taken as it is; else it is made, and stays until the process ends.
    """
    if processes() == 1:
        return ALONE
    if not dist.is_initialized():
        with _stoppable():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    team = Several(device)
    team.told(lambda: None)
    return team


@contextmanager
def _stoppable() -> Iterator[None]:
    """While torch waits for the other processes, it does not come back to Python to be told of a signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sum(t: Tensor) -> None:
    with _in_company():
        dist.all_reduce(t)


@contextmanager
def _in_company() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ProcessLost(
            f"another process of this training has ended, or has not answered for {PATIENCE.seconds // 60} "
            "minutes: its own message says why."
        ) from error
