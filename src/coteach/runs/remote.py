"""Independent pieces of work as tasks of Ray, on one machine or many; the same interface as parallel.py.

A task whose worker or machine is lost is begun again by Ray, elsewhere.
"""

import os
import signal
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from coteach.runs.parallel import Send, Work

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
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ValueError("Ray is not installed: pip install ray.") from error

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with ExitStack() as until_done:
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
