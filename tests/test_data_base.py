"""Labels and features that users hand in: what is right comes through unchanged, what is wrong is named."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coteach.checks import check_labels, check_same_length
from coteach.data.base import Dataset

X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 1])


class NAType:
    """Stands for pandas' missing value, which cannot be compared."""

    def __ne__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None


@given(
    hnp.arrays(
        hnp.integer_dtypes() | hnp.unsigned_integer_dtypes(), st.integers(1, 20), elements=st.integers(0, 9)
    ),
    st.sampled_from([np.asarray, list, lambda y: torch.tensor(y.astype(np.int32))]),
)
def test_integer_labels_of_every_kind_come_through(y, kind):
    labels = check_labels(kind(y), n_classes=10)
    assert labels.dtype == np.int64
    assert labels.tolist() == y.tolist()


def test_checked_labels_are_a_copy():
    y = np.array([0, 1])
    check_labels(y)[0] = 7
    assert y[0] == 0


@pytest.mark.parametrize(
    "y, message",
    [
        ([0, 1, 2, 1.5], r"from 0 to 4; found 1\.5 at position 3: encode them first"),
        ([0, 1, -1], "from 0 to 4; found -1 at position 2: encode"),
        ([0, 5, 1], "from 0 to 4; found 5 at position 1: encode"),
        (["cat", "dog"], "found 'cat' at position 0: encode"),
        ([0.0, 1.0], "stored as float64: convert them"),
        ([True, False], "stored as bool: convert them"),
        (torch.tensor([0, 1], dtype=torch.bfloat16), "stored as float64: convert them"),
        ([0, None, 1.5], r"label 1 is missing \(None\): drop"),
        ([0, 1, float("nan")], r"label 2 is missing \(nan\): drop"),
        (np.array([0, NAType()], dtype=object), "label 1 is missing .*: drop"),
        ([], "no labels: hand in"),
        ([[0, 1], [1, 0]], r"shape \(2, 2\): flatten"),
        ([[0], [0, 1]], "flat array .*: encode"),
        (np.array([0, 2**64 - 1], dtype=np.uint64), "found 18446744073709551615 at position 1: encode"),
    ],
)
def test_wrong_labels_are_named_with_the_remedy(y, message):
    with pytest.raises(ValueError, match=message) as error:
        check_labels(y, n_classes=5)
    assert "\n" not in str(error.value)


def test_without_a_number_of_classes_only_negative_labels_are_out_of_range():
    assert check_labels([0, 10**6]).tolist() == [0, 10**6]
    with pytest.raises(ValueError, match="from 0 to C-1; found -3"):
        check_labels([0, -3])


def test_different_lengths_are_refused():
    check_same_length(X, Y)
    with pytest.raises(ValueError, match="4 test samples but 3 test labels: hand in exactly one"):
        check_same_length(X, Y[:3], "test ")


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, np.ndarray.tolist])
def test_own_arrays_become_float32_copies(kind):
    data = Dataset.from_arrays(kind(X), Y, kind(X[:2]), Y[:2], class_names=["a", "b", "c", "d"])
    assert (data.name, data.n_classes, data.class_names) == ("own", 4, ("a", "b", "c", "d"))
    assert data.x_train.dtype == data.x_test.dtype == torch.float32
    assert data.y_train.dtype == data.y_test.dtype == torch.int64
    assert data.x_train.tolist() == X.tolist()
    assert data.x_test.tolist() == X[:2].tolist()
    assert (data.y_train.tolist(), data.y_test.tolist()) == (Y.tolist(), Y[:2].tolist())


def test_images_stay_bytes_and_nothing_is_shared():
    images = np.arange(4 * 3 * 2 * 2, dtype=np.uint8).reshape(4, 3, 2, 2)
    features = torch.tensor(X, dtype=torch.float32)
    for x in (images, torch.from_numpy(images), features):
        data = Dataset.from_arrays(x, Y, x, Y)
        before = data.x_train.clone()
        assert data.x_train.dtype == torch.as_tensor(x).dtype
        x += 1
        assert torch.equal(data.x_train, before)


def test_classes_are_counted_in_both_parts():
    assert Dataset.from_arrays(X, Y, X, np.array([0, 0, 0, 5])).n_classes == 6


def test_arrays_that_may_not_be_written_are_read():
    x = X.copy()
    x.flags.writeable = False
    assert Dataset.from_arrays(x, Y, x, Y).x_train.tolist() == X.tolist()


def spoilt(value):
    x = X.copy()
    x[2, 1] = value
    return x


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"y": np.array([0, 1, 2, 3])}, "from 0 to 2; found 3 at position 3"),
        ({"y_test": np.array([0, 1, 2, -1])}, "found -1 at position 3"),
        ({"y": Y / 2}, "found 0.5 at position 1"),
        ({"y": Y[:3]}, "4 samples but 3 labels"),
        ({"y_test": Y[:3]}, "4 test samples but 3 test labels"),
        ({"y": np.zeros(4, dtype=int)}, "all training labels are 0: .* at least two classes"),
        ({"x": spoilt(np.nan)}, "sample 2 has a feature that is missing"),
        ({"x": spoilt(-np.inf)}, "sample 2 has a feature that is missing, infinite"),
        ({"x": spoilt(1e39)}, "sample 2 .* beyond float32"),
        ({"x_test": spoilt(np.nan)}, "test sample 2 has a feature"),
        ({"x": X[:0]}, "features are empty"),
        ({"x": X[:, :0]}, "features are empty"),
        ({"x": X[:, 0]}, r"shape \(4,\) but must have one row per sample: reshape"),
        ({"x_test": X[:, :2]}, r"shape \(3,\), test samples \(2,\): give both"),
        ({"x": X.astype(str)}, "not an array of numbers: encode"),
        ({"x": [[1, 2], [3]]}, "not an array of numbers: encode"),
        ({"x": X.astype(complex)}, "complex numbers"),
    ],
)
def test_wrong_arrays_are_named_with_the_remedy(changed, message):
    arrays = {"x": X, "y": Y, "x_test": X, "y_test": Y} | changed
    with pytest.raises(ValueError, match=message) as error:
        Dataset.from_arrays(**arrays, class_names=["a", "b", "c"])
    assert "\n" not in str(error.value)


def test_labels_far_beyond_the_number_of_samples_are_refused():
    x = np.zeros((4, 2))
    with pytest.raises(ValueError, match="highest label is 1000000 but there are only 4 samples"):
        Dataset.from_arrays(x, [0, 1, 2, 10**6], x, [0, 1, 2, 3])


def test_images_are_8_bit_in_both_sets_or_in_neither():
    x = np.zeros((4, 1, 2, 2), dtype=np.uint8)
    with pytest.raises(ValueError, match="both be 8-bit images or neither"):
        Dataset.from_arrays(x, [0, 1, 0, 1], x / 255, [0, 1, 0, 1])


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[:, ::-1],
        lambda x: x.astype(">f8"),
        lambda x: x.astype(np.longdouble),
        lambda x: np.asfortranarray(x),
        lambda x: (100 * x).astype(">i4"),
    ],
)
def test_any_layout_of_numbers_is_taken(change):
    x = change(np.random.default_rng(0).normal(size=(6, 3)))
    dataset = Dataset.from_arrays(x, [0, 1] * 3, x, [0, 1] * 3)
    np.testing.assert_allclose(dataset.x_train.numpy(), np.asarray(x, dtype=np.float32))


def test_grey_images_get_a_channel_and_channels_come_first():
    x, y = np.zeros((4, 8, 8), dtype=np.uint8), [0, 1, 0, 1]
    assert Dataset.from_arrays(x, y, x, y).x_train.shape == (4, 1, 8, 8)
    x = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="channels last"):
        Dataset.from_arrays(x, y, x, y)


@pytest.mark.parametrize(
    "x, words",
    [
        (scipy.sparse.eye(4).tocsr(), "sparse"),
        (torch.eye(4).to_sparse(), "sparse"),
        (np.ma.masked_less(np.eye(4), 0.5), "masked"),
    ],
)
def test_what_would_lose_numbers_is_refused(x, words):
    with pytest.raises(ValueError, match=words):
        Dataset.from_arrays(x, [0, 1, 0, 1], np.eye(4), [0, 1, 0, 1])


def test_names_of_known_data_sets_are_taken_and_class_names_may_be_any_iterable():
    x, y = np.eye(4), [0, 1, 0, 1]
    with pytest.raises(ValueError, match="known data set"):
        Dataset.from_arrays(x, y, x, y, name="digits")
    assert Dataset.from_arrays(x, y, x, y, class_names=(c for c in "ab")).class_names == ("a", "b")
