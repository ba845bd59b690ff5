"""What a long fit is at, in words, told to whoever listens: the bar of a command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Callable[[str], None]) -> Iterator[None]:
    """Inside, `tell` is called with each new stage.

    >>> with listening(print):
    ...     enter_stage("training")
    training
    """
    token = _LISTENER.set(tell)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def enter_stage(words: str) -> None:
    if tell := _LISTENER.get():
        tell(words)


def part_in_words(what: str, done: int, total: int, parts: int) -> str:
    """Which of several equal parts begins or goes on after so many steps.

    >>> [part_in_words("estimating", done, 10, parts=5) for done in (0, 3, 10)]
    ['estimating 1 of 5', 'estimating 2 of 5', 'estimating 5 of 5']
    """
    return f"{what} {min(parts, 1 + parts * done // total)} of {parts}" if parts > 1 else what
