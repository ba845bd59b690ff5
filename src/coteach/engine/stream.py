"""Samples that stay on the host: read ahead in the background, copied to the device while it works on others.

A training on them takes the same steps on the same numbers as one whose samples lie on the device.
S batches, R runs, B samples of a batch, M samples.
"""

import multiprocessing
import os
import traceback
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from coteach.augment import Augment
from coteach.data.base import Samples
from coteach.engine.batches import Batches
from coteach.engine.distributed import ONE_PROCESS, Processes

# Readers take a batch in pieces: small enough that a large batch occupies all readers and that what lies ready
# takes little memory, large enough that handing a piece over costs little.
PIECE_SAMPLES, PIECE_BYTES = 256, 2**22
PIECES_AHEAD = 16
STEPS_AHEAD = 2  # that the host may be before the device, since batches which wait there take memory
MOST_READERS = 8
MOST_THREADS = 4  # more of them are in each other's way


class Stream:
    """Samples on their way to a device.

    Arrays are read by threads. What Python reads item by item is left to processes, since it would hold up the
    training; they stay until `close`.
    """

    def __init__(self, samples: Samples, device: str | torch.device):
        self.samples, self.device = samples, torch.device(device)
        self.shape, self.dtype = samples.shape, samples.dtype
        self.piece = max(1, min(PIECE_SAMPLES, PIECE_BYTES // (self.shape[1:].numel() * self.dtype.itemsize)))
        self.wanted: list[Any] = []
        self.loader: DataLoader | None = None
        self.processes: Any = None  # torch's iterator over the loader, which owns them

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, index_SB: Sequence[np.ndarray]) -> Generator[Tensor, None, None]:
        """x_B… on the device, for each row of sample numbers."""
        pieces = [piece for index_B in index_SB for piece in cut(index_B, self.piece)]
        alone = multiprocessing.current_process().daemon  # such a process may not start others
        read = self._read_by_processes if self.samples.per_item and not alone else self._read_by_threads
        lengths = [len(index_B) for index_B in index_SB]
        with closing(read(pieces)) as on_host:
            if self.device.type == "cuda":
                yield from self._copied_ahead(lengths, on_host)
            else:
                yield from (self._joined(n, on_host) for n in lengths)
            next(on_host, None)  # comes to its end, where processes are kept; closed before it, they are not

    def close(self) -> None:
        """End the processes; `batches` starts new ones."""
        if self.processes is not None:
            # torch ends them only when nothing refers to them any more, and a traceback may still do so
            self.processes._shutdown_workers()
        self.loader = self.processes = None

    def _joined(self, n: int, on_host: Iterator[Tensor]) -> Tensor:
        x_B = torch.empty(n, *self.shape[1:], dtype=self.dtype, device=self.device)
        for part in x_B.split(self.piece):
            part.copy_(next(on_host), non_blocking=True)
        return x_B

    def _copied_ahead(self, lengths: Iterable[int], on_host: Iterator[Tensor]) -> Iterator[Tensor]:
        """Each batch is copied on a stream of its own while the device is still at work on the one before."""
        copying = torch.cuda.Stream(self.device)
        coming: deque[tuple[Tensor, torch.Event]] = deque()
        at_work: deque[torch.Event] = deque()

        def arrived() -> Iterator[Tensor]:
            computing = torch.cuda.current_stream(self.device)
            x_B, event = coming.popleft()
            computing.wait_event(event)
            x_B.record_stream(computing)  # its memory is not used again before that stream is done with it
            yield x_B
            at_work.append(computing.record_event())

        for n in lengths:
            if len(at_work) > STEPS_AHEAD:
                at_work.popleft().synchronize()
            with torch.cuda.stream(copying):
                coming.append((self._joined(n, on_host), copying.record_event()))
            if len(coming) > 1:
                yield from arrived()
        while coming:
            yield from arrived()

    def _read_by_threads(self, pieces: list[np.ndarray]) -> Generator[Tensor, None, None]:
        # one thread of torch's each: more would get in the way of the training
        pool = ThreadPoolExecutor(min(readers(), MOST_THREADS), initializer=torch.set_num_threads, initargs=(1,))
        waiting: deque[Future[Tensor]] = deque()
        try:
            for piece in pieces:
                waiting.append(pool.submit(self._read, piece))
                if len(waiting) > PIECES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _read(self, piece: np.ndarray) -> Tensor:
        x_B = self.samples.fetch(piece)
        return x_B.pin_memory() if self.device.type == "cuda" else x_B

    def _read_by_processes(self, pieces: list[np.ndarray]) -> Generator[Tensor, None, None]:
        self.wanted[:] = pieces
        self.loader = self.loader or DataLoader(
            Reader(self.samples),
            batch_sampler=self.wanted,
            collate_fn=unchanged,
            num_workers=readers(),
            prefetch_factor=max(2, PIECES_AHEAD // readers()),
            persistent_workers=True,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # else torch's own is drawn from, which is not ours to change
        )
        processes = self.processes = iter(self.loader)
        try:
            for piece in processes:
                if isinstance(piece, ValueError):
                    raise piece
                yield piece
        except BaseException:  # also when the epoch is given up, which is a GeneratorExit
            if self.processes is processes:  # nobody has closed them yet
                self.close()
            raise


class Reader(Dataset):
    """Samples as torch's DataLoader takes them; a mistake in them comes back as it is, not in torch's words."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitems__(self, piece: np.ndarray) -> Tensor | ValueError:
        try:
            return self.samples.fetch(piece)
        except ValueError as error:
            error.add_note("".join(traceback.format_exception(error)))  # the cause does not travel with it
            return error


def unchanged(piece: Any) -> Any:
    return piece


def readers() -> int:
    """How many read at once: a core is left to the training."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_READERS, cores - 1))


def cut(index_B: np.ndarray, size: int) -> list[np.ndarray]:
    return [index_B[i : i + size] for i in range(0, len(index_B), size)]


def chunks(x_M: Tensor | Stream, n: int, size: int) -> Iterable[Tensor]:
    """The first `n` samples on the device, at most `size` at a time."""
    return x_M[:n].split(size) if isinstance(x_M, Tensor) else x_M.batches(cut(np.arange(n), size))


def batches_of(x_M: Tensor | Stream, *rest: Any) -> Batches:
    """Batches of what lies on the device, or is brought there; the other arguments are those of `Batches`."""
    return Batches(x_M, *rest) if isinstance(x_M, Tensor) else Streamed(x_M, *rest)


class Picked(Samples):
    """Some of the samples of others, under new numbers."""

    def __init__(self, samples: Samples, index: np.ndarray):
        self.samples, self.index = samples, index
        self.shape, self.dtype = torch.Size([len(index), *samples.shape[1:]]), samples.dtype
        self.per_item = samples.per_item

    def fetch(self, index_B: np.ndarray) -> Tensor:
        return self.samples.fetch(self.index[index_B])


def part(x_M: Tensor | Stream, index: Tensor) -> Tensor | Stream:
    """Some of the samples, wherever they lie."""
    if isinstance(x_M, Tensor):
        return x_M[index]
    return Stream(Picked(x_M.samples, index.cpu().numpy()), x_M.device)


@contextmanager
def closing_streams(*sets: Tensor | Stream) -> Iterator[None]:
    """However the block ends, no process that reads for it is left."""
    try:
        yield
    finally:
        for x_M in sets:
            if isinstance(x_M, Stream):
                x_M.close()


class Streamed(Batches):
    """The same batches of samples that come from a stream."""

    def __init__(
        self,
        x_M: Stream,
        y_RM: Tensor,
        seeds: list[int],
        batch_size: int,
        steps: int,
        dtype: torch.dtype,
        augment: Augment | None = None,
        processes: Processes = ONE_PROCESS,
        strong: Augment | None = None,
        mixup: float = 0.0,
        views: int = 1,
        learnt_M: Tensor | None = None,
    ):
        # all that is asked of the samples there is their number
        x = cast("Tensor", x_M)
        super().__init__(
            x, y_RM, seeds, batch_size, steps, dtype, augment, processes, strong, mixup, views, learnt_M
        )
        self.stream = x_M
        shape = (*self.order_SRB[0, :, self.mine].shape, *x_M.shape[1:])
        self.x_RB = torch.empty(shape, dtype=x_M.dtype, device=x_M.device)  # where a captured step looks for it

    def deal(self, epoch: int) -> Iterator[int]:
        self.shuffle(epoch)
        index_SB = list(self.order_SRB[..., self.mine].flatten(1).cpu().numpy())
        with closing(self.stream.batches(index_SB)) as batches:
            for step, x_B in enumerate(batches):
                self.x_RB.copy_(x_B.view_as(self.x_RB))
                yield step

    def stored(self, index_RB: Tensor) -> Tensor:
        return self.x_RB
