"""torch's global state belongs to the program: a training changes it, and puts it back.

torch has one generator, one number of threads and one precision for a whole process, and dropout draws from that
generator alone. So trainings in several threads take turns: each is what it would be without the others.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from coteach.turns import variables_restored

_turn = threading.RLock()
SET_BY_TORCH = ("TORCHINDUCTOR_CACHE_DIR", "CUBLAS_WORKSPACE_CONFIG")  # by a compilation; for determinism


def _begin_anew() -> None:
    """In a process that was forked while another thread was training: that thread is not in it."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lets one thread at a time into the block. Environment variables are afterwards as they were."""
    with _turn, variables_restored(*SET_BY_TORCH):
        yield


@contextmanager
def generators_restored(device: str = "cpu") -> Iterator[None]:
    """torch's generators are afterwards as they were, and no other training draws from them."""
    with one_at_a_time():
        if device != "cpu":
            torch.cuda.init()
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices=devices):
            yield
