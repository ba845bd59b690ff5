"""Independent pieces of work in processes of their own, with messages back to the parent while they run."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any

Send = Callable[[Any], None]

_queue: Any = None  # of a worker; set once when its process starts


def in_processes(
    work: Callable[[Any, Send], None], items: Iterable[Any], on_message: Send, workers: int | None = None
) -> Iterator[Any]:
    """Run `work(item, send)` for every item and yield the items as they finish.

    Whatever a worker sends arrives in `on_message` here. Processes are spawned, not forked: torch's threads do not
    survive a fork.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = workers or os.cpu_count() or 1
    with ProcessPoolExecutor(workers, context, initializer=_start, initargs=(queue,)) as pool:
        pending = {pool.submit(_do, work, item): item for item in items}
        try:
            while pending:
                done, _ = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                while not queue.empty():
                    on_message(queue.get())
                for future in done:
                    future.result()
                    yield pending.pop(future)
        finally:
            pool.shutdown(cancel_futures=True)


def _start(queue: Any) -> None:
    global _queue
    _queue = queue


def _do(work: Callable[[Any, Send], None], item: Any) -> None:
    work(item, _queue.put)
