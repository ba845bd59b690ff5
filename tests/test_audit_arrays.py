"""Arrays in an npz file: what is taken, skipped and refused."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach.audit.arrays import read_arrays
from coteach.audit.encoding import features, write_encoding


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
    assert [(s.where, s.why) for s in samples.skipped] == [("sample 3 (id n3)", "no label")]
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
