"""What Python has once for a whole process: changed by one thread at a time, then as it was. No torch."""

import csv
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_turn = threading.RLock()  # held for moments only, and never while another lock is waited for


@contextmanager
def own_warning_filters() -> Iterator[None]:
    """Whatever is done to the filters of warnings inside the block ends with it."""
    with _turn, warnings.catch_warnings():
        yield


@contextmanager
def cells_up_to(length: int) -> Iterator[None]:
    """The csv module takes cells of so many characters inside the block."""
    with _turn:
        before = csv.field_size_limit(length)
        try:
            yield
        finally:
            csv.field_size_limit(before)


@contextmanager
def variables_restored(*names: str) -> Iterator[None]:
    """These environment variables are afterwards as they were, whatever a package has set them to."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def modules_from_here() -> Iterator[None]:
    """Modules of the folder one is in are found inside the block, as `python -m` finds them."""
    if "" in sys.path:
        yield
        return
    sys.path.insert(0, "")
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove("")
