"""Files of labels that were given to a training set: what they may look like, and what is refused."""

import io

import numpy as np
import pytest

from coteach.data.given import read_given_labels

NAMES = ("cat", "dog", "maple tree")
WANTED = [0, 2, 1, 1]


def read(path, content, n=4, names=NAMES):
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_given_labels(path, n, names)


@pytest.mark.parametrize(
    "name, content",
    [
        *(("l.npy", np.array(WANTED, kind)) for kind in ("i8", "i4", ">i4", "u1", "u8")),
        ("l.npy", np.array(["cat", "maple tree", "dog", "dog"])),
        ("l.npy", np.array(["0", "2", "1", "1"])),
        ("l.txt", "0\n2\n1\n1"),
        ("l.txt", "0\r\n2\r\n1\r\n1\r\n\r\n"),
        ("l.txt", "cat\n maple tree \ndog\ndog\n"),
        ("l.TXT", "\ufeffcat\nmaple tree\ndog\ndog\n"),
        ("l.csv", "0\n2\n1\n1\n"),
        ("l.csv", "label\n0\n2\n1\n1\n"),
        ("l.csv", "Given\n0\n2\n1\n1\n"),
        ("l.csv", "id,label\n0,0\n1,2\n2,1\n3,1\n"),
        ("l.csv", "label;note\ncat;x\nmaple tree;\ndog;y\ndog;z\n"),
        ("l.csv", 'given\ttext\ncat\t"a, b"\nmaple tree\tb\ndog\tc\ndog\td\n'),
        ("l.csv", 'cat\n"maple tree"\ndog\ndog\n'),
        ("l.csv", "file,label\nb.png,0\na.png,2\nd.png,1\nc.png,1\n"),
    ],
)
def test_labels_are_read(tmp_path, name, content):
    found = read(tmp_path / name, content)
    assert found.tolist() == WANTED
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("l.npy", np.array([0, 2, 1]), "has 3 labels for 4 training samples"),
        ("l.npy", np.array([0, 2, 1, 1, 1]), "has 5 labels for 4"),
        ("l.npy", np.array([0, 2, 1, 3]), "has 3 at position 3, but classes go from 0 to 2"),
        ("l.npy", np.array([0, -1, 1, 2]), "has -1 at position 1"),
        ("l.npy", np.array([0, 2**64 - 1, 1, 2], "u8"), "has 18446744073709551615 at position 1"),
        ("l.npy", np.array([0.0, 2.0, 1.0, 1.0]), "of type float64"),
        ("l.npy", np.array([0.0, np.nan, 1.0, 1.0]), "of type float64"),
        ("l.npy", np.array([True, False, True, True]), "of type bool"),
        ("l.npy", np.array([b"cat"] * 4), "of type bytes24"),
        ("l.npy", np.array([0, 2, 1, None], object), "no .npy file of plain numbers"),
        ("l.npy", np.array([[0], [2], [1], [1]]), r"shape \(4, 1\)"),
        ("l.npy", np.eye(4, 3, dtype=int), r"shape \(4, 3\)"),
        ("l.npy", np.array(["cat", "horse", "dog", "dog"]), "has 'horse' at position 1"),
        ("l.npy", b"0\n2\n1\n1\n", "no .npy file"),
        ("l.npy", b"", "no .npy file"),
        ("l.txt", "0\n2\n1\n", "has 3 labels for 4"),
        ("l.txt", "", "has 0 labels for 4"),
        ("l.txt", "0\n\n1\n1\n", "has no label at position 1"),
        ("l.txt", "0\n2.0\n1\n1\n", "has '2.0' at position 1, which is no class"),
        ("l.txt", "0\n3\n1\n1\n", "has '3' at position 1, which is no class"),
        ("l.txt", "0\n-1\n1\n1\n", "has '-1' at position 1"),
        ("l.txt", "nan\n2\n1\n1\n", "has 'nan' at position 0"),
        ("l.txt", "cat\n2\n1\n1\n", "numbers and names of classes side by side"),
        ("l.txt", "label\n0\n2\n1\n1\n", "has 5 labels for 4"),
        ("l.txt", "cat\nCat\ndog\ndog\n", "has 'Cat' at position 1"),
        ("l.txt", "x" * 500 + "\n2\n1\n1\n", "at position 0"),
        ("l.txt", b"\xff\xfe0\n2", "no text in UTF-8"),
        ("l.csv", "", "has 0 labels"),
        ("l.csv", "y\n0\n2\n1\n1\n", "has 5 labels for 4"),
        ("l.csv", "label\n0\n\n1\n1\n", "has no label at position 1"),
        ("l.csv", "id,label\n0,0\n1,\n2,1\n3,1\n", "has no label at position 1"),
        ("l.csv", "id,class\n0,0\n1,2\n2,1\n3,1\n", "2 columns, and 0 of them"),
        ("l.csv", "0,0\n1,2\n2,1\n3,1\n", "2 columns, and 0 of them"),
        ("l.csv", "label,given\n0,0\n1,2\n2,1\n1,1\n", "2 columns, and 2 of them"),
        ("l.csv", "id,label\n0,0\n1,2,3\n2,1\n3,1\n", "has 3 cells in row 3"),
        ("l.csv", "id,label\n0,0\n\n2,1\n3,1\n", "has 0 cells in row 3"),
        ("l.csv", "id,label\n1,0\n0,2\n2,1\n3,1\n", "not in the order of its column id"),
        ("l.csv", "index,label\n3,0\n2,2\n1,1\n0,1\n", "not in the order of its column index"),
        ("l.csv", 'label\n"0\n2\n1\n1\n', "no comma-separated text"),
        ("l.json", "[0, 2, 1, 1]", "neither .npy nor .txt nor .csv"),
        ("labels", "0\n2\n1\n1\n", "neither .npy nor .txt nor .csv"),
        ("l.txt", "0\n" * 600_000, "far more bytes than 4 labels need"),
    ],
)
def test_anything_else_is_refused_in_one_sentence_with_the_rule(tmp_path, name, content, words):
    with pytest.raises(
        ValueError, match=f"{name} .*{words}.*: give one label for each training sample"
    ) as refusal:
        read(tmp_path / name, content)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600


def test_a_file_that_is_not_there_is_named(tmp_path):
    for path, why in ((tmp_path / "nowhere.npy", "it does not exist"), (tmp_path, "no regular file")):
        with pytest.raises(ValueError, match=f"cannot be read .{why}"):
            read_given_labels(path, 4, NAMES)


@pytest.mark.parametrize("shape", [(4_000_000_000,), (10**30,), (-1,), (5,)])
def test_an_array_that_promises_more_than_it_has_is_refused(tmp_path, shape):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<i8", "fortran_order": False, "shape": shape})
    with pytest.raises(ValueError, match="l.npy (has an array of shape|is no .npy file)"):
        read(tmp_path / "l.npy", buffer.getvalue() + bytes(32))
    with pytest.raises(ValueError, match="l.npy is no .npy file"):
        read(tmp_path / "l.npy", buffer.getvalue() + bytes(31))


def test_numbers_that_are_names_of_other_classes_are_not_guessed(tmp_path):
    path = tmp_path / "l.txt"
    with pytest.raises(ValueError, match="numbers and, for other classes, names"):
        read(path, "1\n2\n1\n1\n", names=("1", "2", "3"))
    assert read(path, "1\n2\n3\n1\n", names=("1", "2", "3")).tolist() == [0, 1, 2, 0]
    assert read(path, "0\n2\n1\n1\n", names=("1", "2", "3")).tolist() == [0, 2, 1, 1]
    assert read(path, "0\n1\n1\n1\n", names=("0", "1")).tolist() == [0, 1, 1, 1]


def test_a_name_of_two_classes_is_no_name(tmp_path):
    with pytest.raises(ValueError, match="has 'crane' at position 0"):
        read(tmp_path / "l.txt", "crane\ncat\ncat\ncat\n", names=("crane", "cat", "crane"))
