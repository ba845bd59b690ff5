"""Independent pieces of work in processes of their own, with messages back to the parent while they run.

Every process has a pipe of its own, in which the news that an item is done comes after its last message.
"""

import multiprocessing
import os
import reprlib
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from coteach.turns import variables_restored

Send = Callable[[Any], None]
Work = Callable[[Any, Send], None]


def in_processes(
    work: Work,
    items: Iterable[Any],
    on_message: Send,
    workers: int | None = None,
    begin: Callable[[int], None] | None = None,
) -> Generator[Any]:
    """Run `work(item, send)` for every item and yield the items as they finish.

    Whatever a worker sends arrives in `on_message` here, before its item is yielded. The first exception is raised
    here and ends all processes. They are spawned, not forked: torch's threads do not survive a fork. An item is
    asked for when a process is free to take it. Each process calls `begin` first, with its number from 0 on.
    """
    waiting = iter(items)
    processes: dict[Connection, BaseProcess] = {}
    at_work: dict[Connection, Any] = {}

    def hand_out(pipe: Connection, item: Any) -> None:
        at_work[pipe] = item
        pipe.send(item)

    try:
        for number, item in zip(range(workers or os.cpu_count() or 1), waiting, strict=False):
            pipe, process = _start(work, None if begin is None else partial(begin, number))
            processes[pipe] = process
            hand_out(pipe, item)
        while at_work:
            for pipe in set(at_work).intersection(wait(at_work)):
                kind, content = _receive(pipe, processes[pipe], at_work[pipe])
                if kind == "message":
                    on_message(content)
                elif kind == "failed":
                    raise content
                else:
                    done = at_work.pop(pipe)
                    yield done  # first, for what is handed out next may depend on it
                    for item in waiting:
                        hand_out(pipe, item)
                        break
    finally:
        for process in processes.values():
            process.terminate()
        for pipe, process in processes.items():
            process.join()
            pipe.close()


def _start(work: Work, begin: Callable[[], None] | None) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, begin, theirs), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return ours, process


def _receive(pipe: Connection, process: BaseProcess, item: Any) -> tuple[str, Any]:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        raise RuntimeError(
            f"the process at work on {reprlib.repr(item)} died with exit code {process.exitcode}."
        ) from None


def _serve(work: Work, begin: Callable[[], None] | None, pipe: Connection) -> None:
    """In the process: item after item, until the parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent

    def send(message: Any) -> None:
        try:
            pipe.send(("message", message))
        except OSError:  # the parent is gone
            sys.exit()  # no exception that the work would take for one of its own

    if begin:
        begin()
    while True:
        try:
            item = pipe.recv()
        except EOFError:  # the parent is gone
            return
        try:
            work(item, send)
            pipe.send(("done", None))
        except BrokenPipeError:
            return
        except Exception as error:
            error.add_note(f"In its process:\n{traceback.format_exc()}")
            pipe.send(("failed", _portable(error)))


def _portable(error: Exception) -> Exception:
    """The exception, or its words where it cannot travel between processes."""
    try:
        return ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        words = RuntimeError(f"{type(error).__name__}: {error}")
        words.__notes__ = error.__notes__
        return words


# ---- on Ray ---------------------------------------------------------------------------------------------------

RETRIES = 10  # of one piece of work, on workers that are lost
LOOK = 0.5  # seconds between two looks into the mailbox
LONGEST_FOLDER = 40  # characters; a socket of Ray's is 60 deeper, and the system allows 107


class Mailbox:
    """Messages on their way from the tasks: an actor, beside the process that reads them."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def put(self, message: Any) -> None:
        self.messages.append(message)

    def take(self) -> list[Any]:
        taken, self.messages = self.messages, []
        return taken


def on_ray(work: Work, items: Iterable[Any], on_message: Send, resources: dict[str, float]) -> Generator[Any]:
    """Run `work(item, send)` for every item and yield the items as they finish; Ray must be connected.

    Whatever a task sends arrives in `on_message` here, before its item is yielded. The first exception is raised
    here and ends all tasks. `resources` of each task are Ray's num_cpus and num_gpus.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    mailbox: Any = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()
    task = ray.remote(_do).options(max_retries=RETRIES, **resources)
    at_work = {task.remote(work, item, mailbox): item for item in items}
    try:
        while at_work:
            ready, _ = ray.wait(list(at_work), timeout=LOOK)
            for message in ray.get(mailbox.take.remote()):
                on_message(message)
            for reference in ready:
                item = at_work.pop(reference)
                ray.get(reference)
                yield item
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise ValueError(
            f"Ray gave up ({type(error).__name__}): see to its workers, then the same command goes on."
        ) from error
    finally:
        for reference in at_work:
            ray.cancel(reference, force=True)
        ray.kill(mailbox)


def _do(work: Work, item: Any, mailbox: Any) -> None:
    """In the task. What was sent has arrived when this returns."""
    import ray

    sent: list[Any] = []
    work(item, lambda message: sent.append(mailbox.put.remote(message)))
    ray.get(sent)


@contextmanager
def connected(address: str | None) -> Iterator[dict[str, float]]:
    """Ray's cluster of an address, or one of this machine alone that is gone afterwards; gives its resources."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with ExitStack() as until_done:
        until_done.enter_context(variables_restored("RAY_USAGE_STATS_ENABLED"))
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise ValueError("Ray is not installed: pip install ray.") from error

        if not ray.is_initialized():
            handler = signal.getsignal(signal.SIGTERM)
            if address:
                options |= {"address": address}
            else:
                folder = until_done.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
                options |= {"address": "local", "include_dashboard": False}
                options |= {"_temp_dir": folder} if len(folder) <= LONGEST_FOLDER else {}
            until_done.callback(ray.shutdown)
            try:
                ray.init(**options)
            except (ConnectionError, ValueError, RuntimeError) as error:
                where = f"connect to Ray at {address}" if address else "start Ray"
                raise ValueError(f"cannot {where} ({first_line(error)}): see `ray status`.") from error
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own there
        yield dict(ray.cluster_resources())


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
