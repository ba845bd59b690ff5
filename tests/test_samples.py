"""Samples of map-style data sets: stored as arrays are, whatever form they come in, and refused as arrays are."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from coteach.data import Dataset
from coteach.data.base import Items
from stream_cases import NUMBERS, UNREADABLE, Pairs, Spoilt, Together

BYTES = np.random.default_rng(0).integers(0, 256, (12, 3, 5, 4), dtype=np.uint8)


@pytest.mark.parametrize(
    "data, array",
    [
        (BYTES, BYTES),
        (torch.from_numpy(BYTES), BYTES),
        ([torch.from_numpy(x) for x in BYTES], BYTES),
        (Pairs([Image.fromarray(x.transpose(1, 2, 0)) for x in BYTES]), BYTES),
        (Pairs([Image.fromarray(x[0]) for x in BYTES]), BYTES[:, 0]),
        (list(BYTES[:, 0]), BYTES[:, 0]),
        (BYTES[:, 0], BYTES[:, 0]),
        (list(BYTES[:, 0, 0]), BYTES[:, 0, 0]),
        (NUMBERS, NUMBERS),
        (np.asfortranarray(NUMBERS)[::-1], NUMBERS[::-1]),
        (NUMBERS.astype(">f8"), NUMBERS),
        (Pairs(NUMBERS.tolist()), NUMBERS),
        (Pairs(NUMBERS[:, 0].tolist()), NUMBERS[:, :1]),
        ([torch.tensor(x) for x in NUMBERS[:, 0]], NUMBERS[:, :1]),
        (Pairs((100 * NUMBERS).astype(np.int16)), (100 * NUMBERS).astype(np.int16)),
        (Together(NUMBERS), NUMBERS),
        (Subset(Pairs(NUMBERS), range(11, -1, -1)), NUMBERS[::-1]),
        (Subset(Together(NUMBERS), range(12)), NUMBERS),
    ],
)
def test_samples_are_stored_as_arrays_are(data, array):
    expected = Dataset.from_arrays(array, np.arange(12) % 2, array, np.arange(12) % 2).x_train
    samples = Items(data)
    assert (samples.shape, samples.dtype, len(samples)) == (expected.shape, expected.dtype, 12)
    index = np.array([3, 0, 11, 3])
    assert torch.equal(samples.fetch(index), expected[index])


def test_a_memory_map_is_read_where_it_lies(tmp_path):
    np.save(tmp_path / "x.npy", NUMBERS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = Dataset.from_samples(mapped, mapped, y=np.arange(12) % 2, y_test=np.arange(12) % 2)
    assert data.x_train.data is mapped
    assert not data.x_train.per_item
    assert torch.equal(data.x_train.fetch(np.array([5, 2])), torch.tensor(NUMBERS[[5, 2]]).float())


def test_labels_come_with_the_samples_or_beside_them():
    y = [0, 1, 2] * 4
    read = Dataset.from_samples(Pairs(NUMBERS, y), Pairs(NUMBERS, np.array(y)))
    given_ = Dataset.from_samples(NUMBERS, Pairs(NUMBERS, torch.tensor(y)), y=y)
    for data in (read, given_):
        assert data.y_train.tolist() == data.y_test.tolist() == y
        assert (data.class_names, data.name) == (("0", "1", "2"), "own")
        assert data.x_train.shape == data.x_test.shape == (12, 3)
    assert Dataset.from_samples(NUMBERS, NUMBERS, y=y, y_test=y, class_names="abcd").n_classes == 4


Y = np.arange(12) % 2


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"train": iter(NUMBERS)}, "the data set must have a length and an index"),
        ({"test": []}, "the test data set is empty"),
        (
            {"train": Spoilt(NUMBERS, 0, UNREADABLE)},
            r"^sample 0 cannot be read \(OSError: no such file\): mend it",
        ),
        ({"test": Spoilt(NUMBERS, 5, UNREADABLE), "y_test": None}, "^test sample 5 cannot be read"),
        ({"train": NUMBERS, "y": None}, "sample 0 comes without a label: .* as y and y_test"),
        ({"train": Pairs(NUMBERS, [0.5] * 12), "y": None}, "found 0.5 at position 0"),
        ({"train": Pairs(NUMBERS, np.eye(12)), "y": None}, r"not one of shape \(12, 12\)"),
        ({"y": Y[:5]}, "12 samples but 5 labels"),
        ({"y_test": Y[:5]}, "12 test samples but 5 test labels"),
        ({"y": 0 * Y}, "all training labels are 0"),
        ({"test": NUMBERS[:, :2]}, r"shape \(3,\), test samples \(2,\)"),
        ({"train": BYTES, "test": BYTES / 255}, "both be 8-bit images or neither"),
        ({"train": NUMBERS[:, 0]}, r"shape \(1,\) but must have one row per sample"),
        ({"train": Pairs(["word"] * 12)}, "features of sample 0 are not an array of numbers"),
        ({"test": [{"image": 3}] * 12}, "features of test sample 0 are not an array of numbers"),
        ({"train": Pairs([Image.new("P", (4, 4))] * 12)}, "features of sample 0 are an image of mode P: convert"),
        (
            {"train": list(BYTES.transpose(0, 2, 3, 1))},
            r"features of sample 0 .* \(5, 4, 3\), their channels last",
        ),
        ({"name": "digits"}, "known data set"),
    ],
)
def test_wrong_samples_are_named_with_the_remedy(changed, message):
    arguments = {"train": NUMBERS, "test": NUMBERS, "y": Y, "y_test": Y} | changed
    with pytest.raises(ValueError, match=message) as refusal:
        Dataset.from_samples(arguments.pop("train"), arguments.pop("test"), **arguments)
    assert "\n" not in str(refusal.value)
