"""Word vectors in GloVe's text format: a word and its numbers per line, any dimension."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from coteach.data.bounded import damaged, naming, open_member, opened, opened_zip

MEMBER = "glove.6B.300d.txt"
MOST_BYTES = 2**31  # of that member: it has 1.04 billion
LONGEST_LINE = 2**20


def read_vectors(path: Path, words: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Read the vectors of some words, one line at a time.

    Parameters
    ----------
    path : Path
        A text file, or the published zip, whose 300-dimensional member is read.
    words : dict
        From word to its number, 0 to W-1.

    Returns
    -------
    row_of_word : int32 array of shape (W,)
        The word's row in `matrix`; 0 for a word without a vector.
    matrix : float32 array of shape (V, D)
        Row 0 is zeros.
    """
    row_of_word = np.zeros(len(words), dtype=np.int32)
    rows: list[np.ndarray] = []
    dimension = 0
    with _opened(path) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), start=1):
            if len(line) == LONGEST_LINE:
                raise damaged(path, f"has a line of {LONGEST_LINE:,} bytes or more ({number})")
            fields = line.rstrip().split(b" ") if dimension == 0 else line.rstrip().rsplit(b" ", dimension)
            if number == 1 and len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
                continue  # the counts that word2vec writes first
            dimension = dimension or len(fields) - 1
            if dimension == 0 or len(fields) != dimension + 1:
                raise damaged(path, f"has a line of another length ({number}), as a truncated file has")
            word = words.get(fields[0].decode("utf-8", errors="replace"))
            if word is not None and row_of_word[word] == 0:
                rows.append(_numbers(fields[1:], path, number))
                row_of_word[word] = len(rows)
    if not rows:
        raise ValueError(
            f"{path} has none of the words: give a file of English word vectors in GloVe's text format."
        )
    return row_of_word, np.concatenate([np.zeros((1, dimension), dtype=np.float32), np.stack(rows)])


def _numbers(fields: list[bytes], path: Path, line: int) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # told below
            vector = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError as error:
        raise damaged(path, f"has something other than numbers on line {line}") from error
    if not np.isfinite(vector).all():
        raise damaged(path, f"has a number on line {line} that is missing or infinite")
    return vector


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if not path.is_file():
        raise ValueError(f"there is no file of word vectors {path}: give the path of one in GloVe's text format.")
    with naming(path):
        if path.suffix == ".zip":
            with opened_zip(path) as archive, open_member(archive, MEMBER, MOST_BYTES) as stream:
                yield io.BufferedReader(stream, LONGEST_LINE)
        else:
            with opened(path) as stream:
                yield stream
