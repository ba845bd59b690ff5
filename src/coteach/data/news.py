"""20 Newsgroups by date as the paper's NEWS: 7 classes, a post's first 1,000 words with a vector; and the vectors.

A word is a run of letters or of digits of the lower-cased text, but don't becomes do + n't and it's becomes
it + 's, because that is how GloVe's vocabulary was made. The whole post is read, header lines included.
"""

import io
import os
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.published import archive_members, damaged, errors_naming, find_or_fetch
from coteach.files import open_zip_member, read_bounded

CLASSES = ("alt", "comp", "misc", "rec", "sci", "soc", "talk")
N_POSTS = {"train": 11_314, "test": 7_532}
LENGTH = 1_000
MOST_OF_POSTS = 2**26  # bytes: all posts together have 36 million
TOKEN = re.compile(r"[a-z]+(?=n't)|n't|'(?:s|m|d|re|ve|ll)\b|[a-z]+|[0-9]+")
VECTORS_MEMBER = "glove.6B.300d.txt"
MOST_OF_VECTORS = 2**31  # bytes of that member: it has 1.04 billion
LONGEST_LINE = 2**20

Posts = list[tuple[int, np.ndarray]]  # class, and the words as numbers in the order of first sight


def load_news(
    data_dir: str | os.PathLike | None = None,
    vectors: str | os.PathLike | None = None,
    split: str = "bydate",
) -> Dataset:
    """Posts as int32 token ids of shape (M, 1000), padded with 0, and the word vectors.

    Parameters
    ----------
    vectors : path, optional
        Word vectors in GloVe's text format, of any dimension; else glove.6B.300d.txt, else glove*.txt or
        vectors/*.txt in the data folder, else GloVe 6B is downloaded (862 MB).
    split : {"bydate", "70/30"}
        The published 11,314 / 7,532 posts, or the first 70 % and last 30 % of all of them, mixed as
        scikit-learn's `fetch_20newsgroups(subset="all")` mixes them. (The authors split one array so; how
        theirs was ordered is not known.)
    """
    if split not in ("bydate", "70/30"):
        raise ValueError(f"there is no split {split!r} of news: choose 'bydate' or '70/30'.")
    (path,) = find_or_fetch("news", data_dir)
    vectors_path = find_or_fetch("glove", data_dir)[0] if vectors is None else Path(vectors).expanduser()
    train, test, words = _read_posts(path)
    row_of_word, matrix = read_vectors(vectors_path, words)
    if split == "70/30":
        posts = _mixed_as_scikit_learn(train, test)
        n_train = len(posts) * 7 // 10
        train, test = posts[:n_train], posts[n_train:]
    n_tokens = sum(len(post) for _, post in train + test)
    n_with_vector = sum(np.count_nonzero(row_of_word[post]) for _, post in train + test)
    return Dataset(
        "news",
        _token_ids(train, row_of_word),
        _labels(train),
        _token_ids(test, row_of_word),
        _labels(test),
        CLASSES,
        vectors=torch.from_numpy(matrix),
        note=f"{n_with_vector / n_tokens:.1%} of {n_tokens:,} words have a vector in {vectors_path.name}",
    )


def tokenise(text: str) -> list[str]:
    """The words of a text; see the top of this file."""
    return TOKEN.findall(text.lower())


def _read_posts(path: Path) -> tuple[Posts, Posts, dict[str, int]]:
    """Posts of both parts in the order of group and file name, and the number of each word."""
    words: dict[str, int] = defaultdict(count().__next__)
    found: dict[tuple[str, str, str], np.ndarray] = {}
    members = _archive_posts(path) if path.name.endswith(".tar.gz") else _folder_posts(path.parent)
    with errors_naming(path):
        for part, group, name, text in members:
            ids = map(words.__getitem__, tokenise(text.decode("latin-1")))
            found[part, group, name] = np.fromiter(ids, dtype=np.int32)
    return _sorted_part(path, found, "train"), _sorted_part(path, found, "test"), words


def _sorted_part(path: Path, found: dict[tuple[str, str, str], np.ndarray], part: str) -> Posts:
    keys = sorted(key for key in found if key[0] == part)
    if len(keys) != N_POSTS[part]:
        raise damaged(path, f"comes with {len(keys):,} {part} posts instead of {N_POSTS[part]:,}")
    return [(CLASSES.index(key[1].split(".")[0]), found[key]) for key in keys]


def _archive_posts(path: Path) -> Iterator[tuple[str, str, str, bytes]]:
    for member, size, stream in archive_members(path):
        *_, folder, group, name = ("", "", "", *Path(member).parts)
        part = folder.removeprefix("20news-bydate-")
        if _is_post(part, group, name):
            yield part, group, name, stream.read(size)


def _folder_posts(root: Path) -> Iterator[tuple[str, str, str, bytes]]:
    left = MOST_OF_POSTS
    for part in N_POSTS:
        for path in sorted(root.glob(f"20news-bydate-{part}/*/*")):
            if _is_post(part, path.parent.name, path.name):
                with errors_naming(path, "cannot be read, or has more bytes than all posts together"):
                    text = read_bounded(path, left)
                left -= len(text)
                yield part, path.parent.name, path.name, text


def _is_post(part: str, group: str, name: str) -> bool:
    return part in N_POSTS and group.split(".")[0] in CLASSES and name.isdigit()


def _mixed_as_scikit_learn(train: Posts, test: Posts) -> Posts:
    """Each part is shuffled when it is read (seed 0), and their sequence once more (seed 42)."""

    def shuffled(posts: Posts, seed: int) -> Posts:
        order = np.arange(len(posts))
        np.random.RandomState(seed).shuffle(order)
        return [posts[i] for i in order]

    return shuffled(shuffled(train, 0) + shuffled(test, 0), 42)


def _token_ids(posts: Posts, row_of_word: np.ndarray) -> torch.Tensor:
    ids = np.zeros((len(posts), LENGTH), dtype=np.int32)
    for row, (_, post) in zip(ids, posts, strict=True):
        known = row_of_word[post]
        known = known[known > 0][:LENGTH]
        row[: len(known)] = known
    return torch.from_numpy(ids)


def _labels(posts: Posts) -> torch.Tensor:
    return torch.tensor([label for label, _ in posts], dtype=torch.int64)


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
    with _open_vectors(path) as stream:
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
                rows.append(_vector(fields[1:], path, number))
                row_of_word[word] = len(rows)
    if not rows:
        raise ValueError(
            f"{path} has none of the words: give a file of English word vectors in GloVe's text format."
        )
    return row_of_word, np.concatenate([np.zeros((1, dimension), dtype=np.float32), np.stack(rows)])


def _vector(fields: list[bytes], path: Path, line: int) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # told below
            vector = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError as error:
        raise damaged(path, f"has something other than numbers on line {line}") from error
    if not np.isfinite(vector).all():
        raise damaged(path, f"has a number on line {line} that is missing or infinite")
    return vector


@contextmanager
def _open_vectors(path: Path) -> Iterator[IO[bytes]]:
    if not path.is_file():
        raise ValueError(f"there is no file of word vectors {path}: give the path of one in GloVe's text format.")
    with errors_naming(path):
        if path.suffix == ".zip":
            with (
                zipfile.ZipFile(path) as archive,
                open_zip_member(archive, VECTORS_MEMBER, MOST_OF_VECTORS) as stream,
            ):
                yield io.BufferedReader(stream, LONGEST_LINE)
        else:
            with path.open("rb") as stream:
                yield stream
