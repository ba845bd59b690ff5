"""Ctrl-C between two steps: in the middle of one it can come up where torch is not prepared for it.

There it became an error about torch's internals, or was dropped in the callback of a weak reference.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from coteach.engine.steps import Step, uncompiled


@contextmanager
def between_steps() -> Iterator[Callable[[Step], Step]]:
    """Give what makes a step one after which signals are heeded that came during it, or after the step before.

    A second one is heeded at once, for whoever cannot wait.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are not for others
        yield uncompiled
        return
    found = {int(s): signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    usual = {signum: handler for signum, handler in found.items() if callable(handler)}
    waiting: list[int] = []

    def postpone(signum: int, frame: FrameType | None) -> None:
        if waiting:
            usual[signum](signum, frame)
        else:
            waiting.append(signum)

    def heed() -> None:
        if waiting:
            signum = waiting.pop()
            usual[signum](signum, None)

    def heeding(step: Step) -> Step:
        def step_and_heed() -> None:
            step()
            heed()

        return step_and_heed

    for signum in usual:
        signal.signal(signum, postpone)
    try:
        yield heeding
    finally:
        for signum, handler in usual.items():
            signal.signal(signum, handler)
    heed()
