"""20 Newsgroups and word vectors: words, ids and vectors against a plain reading of the same text."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coteach.data import load, news
from coteach.data.news import read_vectors, tokenise
from data_files import publish, write_folder, write_tar_gz, write_zip

POSTS = {
    "train": {
        "sci.space/20": "Orbit orbit moon",
        "alt.atheism/3": "From: someone\n\nDon't know",
        "sci.med/100": "know unheard moon",
        "comp.graphics/1": "unheard of",
    },
    "test": {"talk.politics.misc/7": "moon know", "soc.religion.christian/5": "of Orbit"},
}
VECTORS = {"orbit": [1.0, 2.0], "of": [-1.5, 0.25], "moon": [3.0, 4.0], "know": [5.0, 6.0], "n't": [7.0, 8.0]}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(news, "N_POSTS", {"train": 4, "test": 2})
    monkeypatch.setattr(news, "LENGTH", 3)


def posts():
    return {
        f"20news-bydate-{part}/{name}": text.encode("latin-1")
        for part, texts in POSTS.items()
        for name, text in texts.items()
    }


def glove(vectors):
    return "".join(f"{word} {' '.join(map(str, numbers))}\n" for word, numbers in vectors.items()).encode()


def words_of(data, row):
    """The words of a row of ids, found by their vectors."""
    by_vector = {tuple(vector): word for word, vector in VECTORS.items()}
    return [by_vector[tuple(data.vectors[i].tolist())] for i in row if i != 0]


@pytest.mark.parametrize("where", ["20news-bydate", ".", "archive"])
def test_posts_become_ids_of_vectors(tmp_path, monkeypatch, where):
    if where == "archive":
        path = write_tar_gz(tmp_path / "20news-bydate.tar.gz", dict(reversed(posts().items())))
        publish(monkeypatch, "news", path)
    else:
        write_folder(tmp_path / where, posts())
    write_folder(tmp_path, {"vectors/small.txt": glove(VECTORS)})
    data = load("news", tmp_path)
    assert data.class_names == ("alt", "comp", "misc", "rec", "sci", "soc", "talk")
    assert (data.x_train.dtype, tuple(data.x_train.shape), tuple(data.x_test.shape)) == (
        torch.int32,
        (4, 3),
        (2, 3),
    )
    assert data.vectors is not None
    assert (data.vectors.dtype, tuple(data.vectors.shape)) == (torch.float32, (6, 2))
    assert data.vectors[0].tolist() == [0, 0]
    assert data.y_train.tolist() == [0, 1, 4, 4]  # in the order of group, then of file name
    assert data.y_test.tolist() == [5, 6]
    assert [words_of(data, row) for row in data.x_train.tolist()] == [
        ["n't", "know"],
        ["of"],
        ["know", "moon"],
        ["orbit", "orbit", "moon"],
    ]
    assert [words_of(data, row) for row in data.x_test.tolist()] == [["of", "orbit"], ["moon", "know"]]
    assert data.x_train[0].tolist()[2] == data.x_train[1].tolist()[1] == 0
    assert data.note == "70.6% of 17 words have a vector in small.txt"


def test_only_the_first_words_that_have_a_vector_count(tmp_path):
    long = posts() | {"20news-bydate-train/sci.space/20": b"unheard moon unheard moon of know know"}
    write_folder(tmp_path, long | {"vectors/small.txt": glove(VECTORS)})
    assert words_of(load("news", tmp_path), load("news", tmp_path).x_train[3].tolist()) == [
        "moon",
        "moon",
        "of",
    ]


def test_the_seventy_thirty_split_mixes_all_posts(tmp_path):
    write_folder(tmp_path, posts() | {"vectors/small.txt": glove(VECTORS)})
    by_date, mixed = load("news", tmp_path), load("news", tmp_path, split="70/30")
    assert (len(mixed.x_train), len(mixed.x_test)) == (4, 2)
    rows = [torch.cat([d.x_train, d.x_test]).tolist() for d in (by_date, mixed)]
    labels = [torch.cat([d.y_train, d.y_test]).tolist() for d in (by_date, mixed)]
    assert labels[0] != labels[1]
    assert sorted(zip(*rows[:1], labels[0], strict=True)) == sorted(zip(*rows[1:], labels[1], strict=True))
    train = np.random.RandomState(0).permutation(4)
    order = np.concatenate([train, 4 + np.random.RandomState(0).permutation(2)])
    order = order[np.random.RandomState(42).permutation(6)]
    assert labels[1] == [labels[0][i] for i in order]


def test_another_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no split '60/40' of news: choose 'bydate' or '70/30'"):
        load("news", tmp_path, split="60/40")


def test_the_given_vectors_are_taken(tmp_path):
    write_folder(tmp_path, posts() | {"glove.6B.300d.txt": b"moon 1 2 3\n", "other.txt": b"moon 1\nof 2\n"})
    assert load("news", tmp_path).vectors.shape == (2, 3)
    assert load("news", tmp_path, vectors=tmp_path / "other.txt").vectors.tolist() == [[0], [1], [2]]
    with pytest.raises(ValueError, match="no file of word vectors .*missing.txt: give the path"):
        load("news", tmp_path, vectors=tmp_path / "missing.txt")


def test_the_published_zip_of_vectors_is_read_without_unpacking(tmp_path, monkeypatch):
    write_folder(tmp_path, posts())
    members = {"glove.6B.50d.txt": b"moon 9\n", "glove.6B.300d.txt": glove(VECTORS)}
    publish(monkeypatch, "glove", write_zip(tmp_path / "glove.6B.zip", members))
    assert load("news", tmp_path).vectors.shape == (6, 2)
    assert not (tmp_path / "glove.6B.300d.txt").exists()


@pytest.mark.parametrize(
    "missing, part",
    [
        ("20news-bydate-train/sci.med/100", "3 train posts instead of 4"),
        ("20news-bydate-test/talk.politics.misc/7", "1 test posts instead of 2"),
    ],
)
def test_missing_posts_are_noticed(tmp_path, missing, part):
    some = {name: text for name, text in posts().items() if name != missing}
    write_folder(tmp_path, some | {"vectors/small.txt": glove(VECTORS)})
    (tmp_path / "20news-bydate-train/sci.med").mkdir(exist_ok=True)
    (tmp_path / "20news-bydate-train/sci.med/.DS_Store").touch()
    with pytest.raises(ValueError, match=part):
        load("news", tmp_path)


@pytest.mark.parametrize("kept", [1, 30, 0.6])
def test_a_truncated_archive_is_noticed(tmp_path, kept):
    path = write_tar_gz(tmp_path / "20news-bydate.tar.gz", posts())
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with pytest.raises(ValueError, match="20news-bydate.tar.gz is not the published file .*: delete it"):
        load("news", tmp_path)


def test_words_as_glove_knows_them():
    text = "Don't say it's 1993: I can't, they'd've re-read U.S. e-mail (x86) 'quoted' dog's"
    expected = "do n't say it 's 1993 i ca n't they 'd 've re read u s e mail x 86 quoted dog 's"
    assert tokenise(text) == expected.split()


@given(st.text(alphabet="abdelmnrstvABN'019 \n-é.", max_size=40))
def test_words_are_pieces_of_the_text_and_stay_words(text):
    words = tokenise(text)
    rest = text.lower()
    for word in words:
        assert word in rest
        rest = rest[rest.index(word) + len(word) :]
    assert tokenise(" ".join(words)) == words
    letters = [c for c in text.lower() if c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    assert [c for word in words for c in word if c != "'"] == letters


@given(
    st.lists(st.text(alphabet="abc'é.", min_size=1, max_size=4), min_size=1, max_size=8, unique=True),
    st.integers(1, 5),
    st.booleans(),
    st.data(),
)
def test_vectors_are_read_back(words, dimension, with_header, data):
    numbers = hnp.arrays(np.float32, (len(words), dimension), elements=st.floats(-1e6, 1e6, width=32))
    matrix = data.draw(numbers)
    wanted = data.draw(st.permutations([*words, "absent"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.txt"
        header = f"{len(words)} {dimension}\n".encode() if with_header else b""
        path.write_bytes(header + glove(dict(zip(words, matrix.tolist(), strict=True))))
        row_of_word, read = read_vectors(path, {word: i for i, word in enumerate(wanted)})
    assert row_of_word[wanted.index("absent")] == 0
    assert not read[0].any()
    for word, vector in zip(words, matrix, strict=True):
        assert np.array_equal(read[row_of_word[wanted.index(word)]], vector)


def test_a_word_may_contain_spaces_and_come_twice(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"moon 1 2\n. . . 3 4\nmoon 5 6\n")
    row_of_word, matrix = read_vectors(tmp_path / "v.txt", {". . .": 0, "moon": 1})
    assert matrix[row_of_word].tolist() == [[3, 4], [1, 2]]


@pytest.mark.parametrize(
    "text, message",
    [
        (b"moon 1 2\nof 3", r"another length \(2\)"),
        (b"moon 1 2\n\n", r"another length \(2\)"),
        (b"moon\n", r"another length \(1\)"),
        (b"moon 1 x\n", "other than numbers on line 1"),
        (b"of 1 2\nmoon nan 2\n", "line 2 that is missing or infinite"),
        (b"sun 1 2\n", "none of the words: give"),
        (b"", "none of the words: give"),
    ],
)
def test_wrong_vectors_are_named(tmp_path, text, message):
    (tmp_path / "v.txt").write_bytes(text)
    with pytest.raises(ValueError, match=f"v.txt .*{message}"):
        read_vectors(tmp_path / "v.txt", {"moon": 0})


@pytest.mark.parametrize("data", [b"no zip", None])
def test_a_zip_that_is_none_or_lacks_the_vectors_is_named(tmp_path, data):
    path = tmp_path / "glove.6B.zip"
    if data is None:
        write_zip(path, {"other.txt": b"moon 1\n"})
    else:
        path.write_bytes(data)
    with pytest.raises(ValueError, match="glove.6B.zip is truncated or damaged"):
        read_vectors(path, {"moon": 0})
