"""Ctrl-C between two steps of a training, for a program that asks for it; the library itself leaves signals alone.

In the middle of a step an interrupt can come up where torch is not prepared for it: it becomes an error about
torch's internals, or is dropped in the callback of a weak reference. No torch here: the command line imports it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FrameType

Step = Callable[[], None]
Guard = Callable[[], AbstractContextManager[Callable[[Step], Step]]]


@contextmanager
def unguarded() -> Iterator[Callable[[Step], Step]]:
    """Steps as they are, and signals as the host program handles them."""
    yield lambda step: step


@contextmanager
def postponed_to_steps() -> Iterator[Callable[[Step], Step]]:
    """Give a wrapper of steps, after each of which the signals are handled that came since the one before.

    A second one is handled at once, for whoever cannot wait.
    """
    if threading.current_thread() is not threading.main_thread():  # no other thread gets signals
        yield lambda step: step
        return
    found = {int(s): signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    usual = {signum: handler for signum, handler in found.items() if callable(handler)}
    waiting: list[int] = []

    def postpone(signum: int, frame: FrameType | None) -> None:
        if waiting:
            usual[signum](signum, frame)
        else:
            waiting.append(signum)

    def handle_waiting() -> None:
        if waiting:
            signum = waiting.pop()
            usual[signum](signum, None)

    def guarded(step: Step) -> Step:
        def step_then_handle() -> None:
            step()
            handle_waiting()

        return step_then_handle

    for signum in usual:
        signal.signal(signum, postpone)
    try:
        yield guarded
    finally:
        for signum, handler in usual.items():
            signal.signal(signum, handler)
    handle_waiting()


_guard: ContextVar[Guard] = ContextVar("guard", default=unguarded)


def guarded_steps() -> AbstractContextManager[Callable[[Step], Step]]:
    """How a training runs its steps: unguarded, unless its program has asked for more."""
    return _guard.get()()


@contextmanager
def handled_between_steps() -> Iterator[None]:
    """Trainings inside the block postpone signals to the end of a step."""
    token = _guard.set(postponed_to_steps)
    try:
        yield
    finally:
        _guard.reset(token)
