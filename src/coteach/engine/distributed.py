"""One training by several processes, each on its own part of every mini-batch (torch.distributed, torchrun).

What is picked is picked from the whole mini-batch, by every process alike: the logits are gathered, the gradients
added up. The rest of the library knows nothing of it: it sees a stack of networks, as in one process.
N networks, R runs, B samples of a mini-batch, b of them one's own, C classes.
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
    """Another process of the training has ended; its own message says what went wrong."""


class Processes:
    """One process: all of every mini-batch is its own."""

    rank, size = 0, 1

    @property
    def is_leader(self) -> bool:
        """Whether it is the one that writes, prints and asks; the others only compute."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Which of `n` samples are one's own; the parts differ by one at most."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def gather(self, logits_NRbC: Tensor, n: int) -> Tensor:
        """logits_NRBC of all `n` samples; gradients flow into one's own part only."""
        return logits_NRbC

    def summed(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Over all processes."""
        return gradients

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Over all processes, in place."""

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """What the leading process makes; it must go into JSON. All wait here for each other."""
        return make()

    def broadcast_bytes(self, content: bytes) -> bytes:
        """The leading process's bytes."""
        return content

    def minimum(self, n: int) -> int:
        return n

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The leading process goes through the block before the others: what it downloads, they find."""
        if not self.is_leader:
            self.broadcast(lambda: None)
        yield
        if self.is_leader:
            self.broadcast(lambda: None)


ONE_PROCESS = Processes()


class Distributed(Processes):
    """One of the processes of torch's default group; its messages go by way of the device that it trains on."""

    def __init__(self, device: str | torch.device = "cpu"):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(device)

    def gather(self, logits_NRbC: Tensor, n: int) -> Tensor:
        mine = self.part(n)
        all_NRBC = logits_NRbC.new_zeros(*logits_NRbC.shape[:2], n, logits_NRbC.shape[-1])
        all_NRBC[:, :, mine] = logits_NRbC.detach()
        _sum(all_NRBC)  # all zeros except one: exact, and parts need not be of the same length
        return torch.cat([all_NRBC[:, :, : mine.start], logits_NRbC, all_NRBC[:, :, mine.stop :]], 2)

    def summed(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        flat = torch.cat([g.flatten() for g in gradients])
        _sum(flat)
        pieces = flat.split([g.numel() for g in gradients])
        return [piece.view(g.shape) for piece, g in zip(pieces, gradients, strict=True)]

    def average(self, tensors: Sequence[Tensor]) -> None:
        for t in tensors:
            _sum(t)
            t /= self.size

    def broadcast(self, make: Callable[[], Any]) -> Any:
        return json.loads(self.broadcast_bytes(json.dumps(make()).encode() if self.is_leader else b""))

    def broadcast_bytes(self, content: bytes) -> bytes:
        length = torch.tensor([len(content)], device=self.device)
        with _naming_lost_processes():
            dist.broadcast(length, 0)
            sent = torch.empty(int(length), dtype=torch.uint8, device=self.device)
            if self.is_leader:
                sent.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            dist.broadcast(sent, 0)
        return sent.cpu().numpy().tobytes()

    def minimum(self, n: int) -> int:
        lowest = torch.tensor([n], device=self.device)
        with _naming_lost_processes():
            dist.all_reduce(lowest, dist.ReduceOp.MIN)
        return int(lowest)


class SharedStack(Stack):
    """A stack whose mini-batches several processes share; `batch_size` samples in all."""

    def __init__(self, processes: Processes, batch_size: int, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.processes, self.batch_size = processes, batch_size

    def __call__(self, x_NRb: Tensor) -> Tensor:
        """logits_NRBC of the whole mini-batch; of the samples at hand while evaluating."""
        logits_NRbC = super().__call__(x_NRb)
        if not self.modules[0].training:
            return logits_NRbC
        return self.processes.gather(logits_NRbC, self.batch_size)

    def gradients(self, loss_NRB: Tensor, weight_NRB: Tensor) -> Sequence[Tensor]:
        return self.processes.summed(super().gradients(loss_NRB, weight_NRB))

    def end_epoch(self) -> None:
        """Average the batch-norm statistics, for which each process has seen its own samples only."""
        if self.statistics:
            self.processes.average([self.kept_statistics, *self.statistics])


def world_size() -> int:
    """How many there are, or were started together with this one and have yet to meet."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    started_together = "RANK" in os.environ and "MASTER_ADDR" in os.environ  # as torchrun says it
    return int(os.environ.get("WORLD_SIZE", "1")) if started_together else 1


def join(device: str) -> Processes:
    """The processes that train together on devices of this kind, as soon as all of them are here.

    A group that the caller has initialised is taken as it is; else it is made, and stays until the process ends.
    """
    if world_size() == 1:
        return ONE_PROCESS
    if not dist.is_initialized():
        with _stoppable():
            dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE)
        atexit.register(dist.destroy_process_group)
    processes = Distributed(device)
    processes.broadcast(lambda: None)
    return processes


@contextmanager
def _stoppable() -> Iterator[None]:
    """While torch waits for the other processes, it does not come back to Python, where signals are handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sum(t: Tensor) -> None:
    with _naming_lost_processes():
        dist.all_reduce(t)


@contextmanager
def _naming_lost_processes() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ProcessLost(
            f"another process of this training has ended, or has not answered for {PATIENCE.seconds // 60} "
            "minutes: its own message says why."
        ) from error
