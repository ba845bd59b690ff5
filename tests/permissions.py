"""What the tests of permissions share: to be an ordinary user for a while, since root may do everything."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
needs_users = pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no users as on Unix")


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root becomes nobody inside the block; everybody else is an ordinary user already."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder in which everybody may read and write; pytest's own are for their owner alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o777)
        shutil.rmtree(folder)
