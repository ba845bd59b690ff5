"""20 Newsgroups by date as the paper's NEWS: 7 classes, a post's first 1,000 words with a vector.

A word is a run of letters or of digits of the lower-cased text, but don't becomes do + n't and it's becomes
it + 's, because that is how GloVe's vocabulary was made. The whole post is read, header lines included.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import torch

from coteach.data.base import Dataset
from coteach.data.bounded import damaged, naming, read_whole, tar_members
from coteach.data.fetch import find_or_fetch
from coteach.data.glove import read_vectors

CLASSES = ("alt", "comp", "misc", "rec", "sci", "soc", "talk")
N_POSTS = {"train": 11_314, "test": 7_532}
LENGTH = 1_000
MOST_BYTES = 2**26  # of all posts: they have 36 million, and in the archive 50 or more
TOKEN = re.compile(r"[a-z]+(?=n't)|n't|'(?:s|m|d|re|ve|ll)\b|[a-z]+|[0-9]+")

Posts = list[tuple[int, np.ndarray]]  # class, and the words as numbers in the order of first sight


def load(
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
    members = _archive_members(path) if path.name.endswith(".tar.gz") else _folder_members(path.parent)
    left = MOST_BYTES
    with naming(path):
        for part, group, name, text in members:
            left -= len(text)
            if left < 0:
                raise damaged(path, f"comes with more than {MOST_BYTES:,} bytes of posts")
            ids = map(words.__getitem__, tokenise(text.decode("latin-1")))
            found[part, group, name] = np.fromiter(ids, dtype=np.int32)
    return _sorted_part(path, found, "train"), _sorted_part(path, found, "test"), words


def _sorted_part(path: Path, found: dict[tuple[str, str, str], np.ndarray], part: str) -> Posts:
    keys = sorted(key for key in found if key[0] == part)
    if len(keys) != N_POSTS[part]:
        raise damaged(path, f"comes with {len(keys):,} {part} posts instead of {N_POSTS[part]:,}")
    return [(CLASSES.index(key[1].split(".")[0]), found[key]) for key in keys]


def _archive_members(path: Path) -> Iterator[tuple[str, str, str, bytes]]:
    for member, size, stream in tar_members(path, 2 * MOST_BYTES):
        *_, folder, group, name = ("", "", "", *Path(member).parts)
        part = folder.removeprefix("20news-bydate-")
        if _is_post(part, group, name):
            yield part, group, name, stream.read(size)


def _folder_members(root: Path) -> Iterator[tuple[str, str, str, bytes]]:
    for part in N_POSTS:
        for path in sorted(root.glob(f"20news-bydate-{part}/*/*")):
            if _is_post(part, path.parent.name, path.name):
                yield part, path.parent.name, path.name, read_whole(path, MOST_BYTES)


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
