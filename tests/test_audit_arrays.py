"""Arrays in an npz file: what is taken, skipped and refused."""

import io
import os
import re
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy_format

from coteach.audit import arrays, encoding
from coteach.audit.arrays import read_arrays, read_embeddings
from coteach.audit.encoding import features, read_encoding, write_encoding


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return write


X = np.arange(24.0).reshape(12, 2)
Y = np.arange(12) % 2


def test_rows_are_named_by_their_number(save):
    samples = read_arrays(save(x=X, y=Y))
    assert samples.ids == [str(i) for i in range(12)]
    assert (samples.x == X).all()
    assert (samples.y == Y).all()


@pytest.mark.parametrize(
    "ids, names",
    [(np.arange(12) + 100, "100"), (np.array(["=a"] * 12), "=a"), (np.array([b"\xff"] * 12), "\\xff")],
)
def test_ids_are_taken_as_text(ids, names, save):
    assert read_arrays(save(x=X, y=Y, ids=ids)).ids[0] == names


@pytest.mark.parametrize("shape", [(12, 3), (12, 4, 4), (12, 3, 8, 8), (12, 8, 8, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64", "int64", "bool"])
def test_samples_of_any_shape_and_number(shape, dtype, save):
    samples = read_arrays(save(x=np.ones(shape, dtype), y=Y))
    assert samples.x.shape == shape
    assert samples.x.dtype != bool


@pytest.mark.parametrize("y", [Y.astype(float), Y.astype(bool), Y.astype(str), Y.astype("S1")])
def test_labels_of_every_type_keep_their_value(y, save):
    samples = read_arrays(save(x=X, y=y))
    assert len(samples.counts) == 2
    assert samples.y.dtype.kind == ("U" if y.dtype.kind == "S" else y.dtype.kind)


@given(st.sets(st.integers(0, 2999)), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_samples_that_are_not_finite_are_skipped_by_their_number(tmp_path_factory, bad, value):
    x = np.zeros((3000, 2))
    x[list(bad), 1] = value
    path = tmp_path_factory.getbasetemp() / "bad.npz"
    np.savez(path, x=x, y=np.arange(3000) % 2)
    samples = read_arrays(path)
    assert [skipped.where for skipped in samples.skipped] == [f"sample {i}" for i in sorted(bad)]
    assert samples.ids == [str(i) for i in range(3000) if i not in bad]
    assert np.isfinite(samples.x).all()


def test_labels_that_are_missing_are_skipped_under_their_id(save):
    y = np.where(np.arange(12) == 3, np.nan, Y)
    samples = read_arrays(save(x=X, y=y, ids=np.array([f"n{i}" for i in range(12)])))
    assert [(s.where, s.why) for s in samples.skipped] == [("sample 3, id n3", "no label")]
    samples = read_arrays(save(x=X, y=np.where(np.arange(12) == 4, "", Y.astype(str))))
    assert [(s.where, s.why) for s in samples.skipped] == [("sample 4", "no label")]


@pytest.mark.parametrize(
    "arrays, said",
    [
        ({"y": Y}, "no array 'x'"),
        ({"x": X}, "no array 'y'"),
        ({"x": X, "y": Y[:5]}, "one for each sample"),
        ({"x": X, "y": np.eye(12)}, "one for each sample"),
        ({"x": X, "y": Y, "ids": Y[:5]}, "one for each sample"),
        ({"x": X[:, 0], "y": Y}, "has shape (12,)"),
        ({"x": X[:, :0], "y": Y}, "has shape (12, 0)"),
        ({"x": np.zeros((12, 1, 1, 1, 1)), "y": Y}, "has shape"),
        ({"x": X.astype(str), "y": Y}, "real numbers"),
        ({"x": X.astype(complex), "y": Y}, "real numbers"),
        ({"x": X, "y": Y.astype(complex)}, "integers or text"),
        ({"x": X, "y": Y / 2}, "has the number 0.5 for a class: give whole numbers or text"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, said, save):
    with pytest.raises(ValueError, match=re.escape(said)):
        read_arrays(save(**arrays))


def test_nothing_is_unpickled(save):
    path = save(x=X, y=Y.astype(object))
    with pytest.raises(ValueError, match="cannot be read"):
        read_arrays(path)


def test_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    for content in (b"", b"hello", b"PK\x03\x04broken"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape("np.savez(")):
            read_arrays(path)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=re.escape("np.savez(")):
        read_arrays(tmp_path / "x.npy")


def test_a_damaged_file_is_refused(save):
    path = save(x=np.random.default_rng(0).random((500, 20)), y=np.zeros(500))
    whole = path.read_bytes()
    path.write_bytes(whole[:3000] + b"\x00" * 50 + whole[3050:])
    with pytest.raises(ValueError, match="cannot be read"):
        read_arrays(path)


def test_every_byte_that_breaks_leaves_samples_or_a_reason(save):
    path = save(x=X, y=Y)
    whole = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of headers from Python 2
        for i in range(len(whole)):
            path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x15]) + whole[i + 1 :])
            try:
                assert read_arrays(path).what == "samples"
            except ValueError as reason:
                assert str(reason)


def test_new_arrays_are_read_from_the_same_place(save, tmp_path):
    write_encoding(tmp_path, read_arrays(save(x=X, y=Y)).encoding)
    assert (features(tmp_path, tmp_path / "data.npz") == X).all()
    with pytest.raises(ValueError, match="holds no encoding"):
        features(tmp_path / "nowhere", tmp_path / "data.npz")


# ---- hostile files ---------------------------------------------------------------------------------------------


def bomb(path, times: int, how: int = zipfile.ZIP_DEFLATED) -> None:
    """A small file of zeros that says it is an array of `times` megabytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (times, 2**20)})
    with zipfile.ZipFile(path, "w", how) as archive, archive.open("x.npy", "w", force_zip64=True) as member:
        member.write(header.getvalue())
        for _ in range(times):
            member.write(bytes(2**20))


def test_a_file_that_expands_without_measure_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "ALWAYS_FINE", 2**22)
    bomb(tmp_path / "bomb.npz", 8)
    with pytest.raises(
        ValueError, match=r"bomb.npz cannot be read .* would expand to 8,388,7\d\d, more than 100 times"
    ):
        read_arrays(tmp_path / "bomb.npz")
    with pytest.raises(ValueError, match="would expand"):
        features_of_arrays(tmp_path)
    bomb(tmp_path / "bomb.npz", 3)
    assert features_of_arrays(tmp_path).shape == (3, 2**20)
    bomb(tmp_path / "bomb.npz", 3, zipfile.ZIP_LZMA)
    with pytest.raises(ValueError, match="compressed as NumPy never does"):
        features_of_arrays(tmp_path)


def features_of_arrays(folder) -> np.ndarray:
    write_encoding(folder, {"kind": "arrays"})
    return features(folder, folder / "bomb.npz")


def test_large_arrays_that_are_not_packed_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "ALWAYS_FINE", 10)
    np.savez(tmp_path / "data.npz", x=np.zeros((12, 1000)), y=Y)
    assert len(read_arrays(tmp_path / "data.npz")) == 12


def test_a_pipe_or_folder_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", tmp_path):
        with pytest.raises(ValueError, match="is not a file"):
            read_arrays(path)


BROKEN = {
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "deep objects": b'{"kind":' * 100_000,
    "a list": b"[]",
    "nothing": b"null",
    "unknown": b'{"kind": "sounds"}',
    "no kind": b"{}",
    "no size": b'{"kind": "images"}',
    "huge": b'{"kind": "images", "size": 1000000, "channels": 3}',
    "no columns": b'{"kind": "table"}',
    "odd column": b'{"kind": "table", "columns": [{"kind": "numbers", "what": 1}]}',
    "odd kind": b'{"kind": "table", "columns": [{"kind": ["numbers"]}]}',
    "words elsewhere": b'{"kind": "table", "columns": [], "text": {"name": "a", "words": []}}',
    "many digits": b'{"kind": "images", "size": ' + b"9" * 10_000 + b', "channels": 3}',
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_encoding_is_one_sentence_with_its_file(what, tmp_path):
    (tmp_path / "encoding.json").write_bytes(BROKEN[what])
    with pytest.raises(ValueError, match=r"encoding\.json is damaged .*: audit the data again\.") as error:
        read_encoding(tmp_path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_an_encoding_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no encoding\.json"):
        read_encoding(tmp_path)
    os.mkfifo(tmp_path / "encoding.json")
    with pytest.raises(ValueError, match=r"holds no encoding\.json"):
        read_encoding(tmp_path)
    (tmp_path / "folder" / "encoding.json").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"holds no encoding\.json"):
        read_encoding(tmp_path / "folder")


def test_an_encoding_too_large_to_be_ours_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "LARGEST_FILE", 100)
    (tmp_path / "encoding.json").write_bytes(b" " * 101 + b'{"kind": "arrays"}')
    with pytest.raises(ValueError, match="more than 100 bytes"):
        read_encoding(tmp_path)


@pytest.mark.parametrize(
    "write, said",
    [
        (lambda path: path.write_bytes(packed(np.eye(2))), "cannot be read"),
        (lambda path: np.save(path, np.array([{}]), allow_pickle=True), "cannot be read"),
        (lambda path: claimed(path, (10**30, 2)), "cannot be read"),
        (lambda path: claimed(path, (10**13, 2)), "cannot be read"),
        (lambda path: np.save(path, np.full((4, 2), 1e300)), "beyond float32"),
        (lambda path: np.save(path, np.full((4, 2), np.nan)), "not finite"),
    ],
)
def test_embeddings_that_cannot_be_used_are_one_sentence(write, said, tmp_path):
    path = tmp_path / "e.npy"
    write(path)
    with pytest.raises(ValueError, match=said) as told:  # and no warning, which is an error here
        read_embeddings(path)
    assert "\n" not in str(told.value)


def packed(x):
    stream = io.BytesIO()
    np.savez(stream, x=x)
    return stream.getvalue()


def claimed(path, shape):
    """A file of a few bytes whose header says that it is large."""
    with path.open("wb") as file:
        npy_format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(bytes(64))
