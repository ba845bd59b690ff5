"""Rows of whole numbers out of a file of torch.save, without running any of it.

Such a file is a zip archive with a pickle in it, and a pickle is a program. Here that program is read operation by
operation, and only those are known that a dictionary of NumPy's int64 arrays needs. What it names is compared with
a list of names, and never looked up. Whatever else is in there is refused.
"""

import io
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from coteach.data.published import damaged, errors_naming
from coteach.files import open_zip_member, read_bounded

MOST_BYTES = 2**22  # CIFAR-10N's file has 2.4 million
MOST_OPERATIONS = 2**18  # CIFAR-100N's has 100 thousand
NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
INT64 = (3, "<", None, None, None, -1, -1, 0)  # what a pickle says of a little-endian number after its size
NOT_LABELS = "holds something else than a dictionary of arrays of 64-bit integers"


class _Name:
    """Stands for what a pickle names."""

    def __init__(self, name: str):
        self.name = name


class _Made:
    """Stands for an array or a type, which a pickle makes first and fills later; None is its value until then."""

    def __init__(self, kind: str):
        self.kind, self.value = kind, None


def read_pickled_arrays(path: Path) -> dict[str, np.ndarray]:
    """The int64 arrays by their names; lists, and whatever else was in the dictionary, are left out."""
    with errors_naming(path, NOT_LABELS):
        with zipfile.ZipFile(io.BytesIO(read_bounded(path, MOST_BYTES))) as archive:
            (name,) = (name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl")
            with open_zip_member(archive, name, MOST_BYTES) as stream:
                program = stream.read(MOST_BYTES)
        found = _Machine(program).run()
    if not isinstance(found, dict):
        raise damaged(path, NOT_LABELS)
    return {k: v.value for k, v in found.items() if isinstance(v, _Made) and isinstance(v.value, np.ndarray)}


class _Machine:
    """The stack of a pickle, with the few operations that are allowed; any other is a ValueError."""

    def __init__(self, program: bytes):
        self.program = program
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[Any, Any] = {}
        self.left_to_encode = len(program)  # a text is written down once, but may be named again and again

    def run(self) -> Any:
        for number, (operation, argument, _) in enumerate(pickletools.genops(self.program)):
            if number > MOST_OPERATIONS:
                raise ValueError("too many operations")
            self.step(operation.name, argument)
        (result,) = self.stack
        return result

    def step(self, name: str, argument: Any) -> None:
        if name in ("PROTO", "STOP"):
            return
        if name in ("BINUNICODE", "BININT", "BININT1", "BININT2"):
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name == "GLOBAL":
            self.stack.append(_Name(NAMES[argument]))
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            self.stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name == "TUPLE":
            self.stack.append(tuple(self.since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(tuple(self.last(int(name[-1]))))
        elif name == "BINPUT":
            self.memo[argument] = self.stack[-1]
        elif name == "BINGET":
            self.stack.append(self.memo[argument])
        elif name == "REDUCE":
            self.stack.append(self.called(*self.last(2)))
        elif name == "BUILD":
            (state,) = self.last(1)
            _fill_in(self.stack[-1], state)
        elif name == "APPENDS":
            items = self.since_mark()
            _expect(isinstance(self.stack[-1], list))
            self.stack[-1].extend(items)
        elif name == "SETITEMS":
            items = self.since_mark()
            _expect(isinstance(self.stack[-1], dict) and all(type(key) is str for key in items[::2]))
            self.stack[-1].update(zip(items[::2], items[1::2], strict=True))
        else:
            raise ValueError(f"{name} is not allowed")

    def last(self, n: int) -> list[Any]:
        """The last n, off the stack."""
        _expect(len(self.stack) >= n)
        start = len(self.stack) - n
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def since_mark(self) -> list[Any]:
        n = len(self.stack) - self.marks.pop()
        _expect(n >= 0)
        return self.last(n)

    def called(self, named: Any, arguments: Any) -> Any:
        """What a call would make, for the three that are known."""
        _expect(isinstance(named, _Name) and isinstance(arguments, tuple))
        if named.name == "encode":
            text, encoding = arguments
            _expect(type(text) is str and encoding == "latin1")
            self.left_to_encode -= len(text)
            _expect(self.left_to_encode >= 0)
            return text.encode("latin1")
        if named.name == "dtype":
            _expect(arguments == ("i8", False, True))
            return _Made("dtype")
        _expect(named.name == "array")
        whose, shape, letter = arguments
        _expect(isinstance(whose, _Name) and whose.name == "ndarray" and (shape, letter) == ((0,), b"b"))
        return _Made("array")


def _fill_in(made: Any, state: Any) -> None:
    """What a pickle says of a type, or of an array: version, shape, type, not in Fortran's order, its bytes."""
    _expect(isinstance(made, _Made) and made.value is None)
    if made.kind == "dtype":
        _expect(state == INT64)
        made.value = INT64
        return
    _expect(isinstance(state, tuple))
    version, shape, dtype, fortran, data = state
    _expect((version, fortran) == (1, False) and isinstance(shape, tuple) and isinstance(data, bytes))
    _expect(isinstance(dtype, _Made) and dtype.value is INT64)
    _expect(shape == (len(data) // 8,) and len(data) % 8 == 0)
    made.value = np.frombuffer(data, dtype="<i8")


def _expect(is_so: bool) -> None:
    if not is_so:
        raise ValueError(NOT_LABELS)
