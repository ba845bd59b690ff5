"""Saved noise: it comes back whole, and a damaged file is noticed."""

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from coteach import noise
from coteach.noise import Noise, corrupt, pair, symmetric
from noise_cases import LABELS


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "noise.safetensors"
    corrupt(LABELS, "pair", 0.45, seed=4).save(path)
    return path


@pytest.mark.parametrize("kind", ["none", "symmetric", "pair", "asymmetric", "instance", "matrix"])
def test_a_saved_noise_comes_back_whole(kind, tmp_path):
    matrix = symmetric(10, 0.3) if kind == "matrix" else None
    rate = 0 if kind == "none" else 1 / 3
    drawn = corrupt(
        LABELS, kind, rate, seed=2**32 - 1, matrix=matrix, superclass=np.arange(10) % 3, features=np.eye(600)
    )
    drawn.save(str(tmp_path / "noise"))
    loaded = Noise.load(str(tmp_path / "noise"))
    for name in ("labels", "clean", "matrix"):
        before, after = getattr(drawn, name), getattr(loaded, name)
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
        assert after.flags.writeable  # torch.from_numpy warns about others
    for name in ("nominal_rate", "rate", "seed", "kind", "sha256"):
        assert getattr(drawn, name) == getattr(loaded, name)
    assert [path.name for path in tmp_path.iterdir()] == ["noise"]


def test_saving_replaces_the_file_whole(saved):
    drawn = corrupt(LABELS, "symmetric", 0.5)
    drawn.save(saved)
    assert Noise.load(saved).sha256 == drawn.sha256


@pytest.mark.parametrize(
    "where, why", [("missing/noise", r"cannot be written \(.*\)"), ("folder", "is a folder, .*: remove it, or")]
)
def test_a_place_that_cannot_be_written(where, why, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=rf"{where} {why}.* choose another place\.$"):
        corrupt(LABELS, "pair", 0.45).save(tmp_path / where)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def broken(path, reason):
    with pytest.raises(ValueError) as caught:
        Noise.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is not a sound noise file (")
    assert message.endswith("): draw and save it again.")
    assert reason in message
    return message


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "header"),
        (b"not a noise file at all", "header"),
        (struct.pack("<Q", 2**62) + b"{}", "header"),
        (struct.pack("<Q", 10**6) + b"{}", "header"),
        (struct.pack("<Q", 9) + b"[" * 9, "header"),
        (struct.pack("<Q", 2) + b"{}", "its format is None"),
        (save({"labels": np.zeros(3)}, {"format": "pt"}), "its format is pt, not coteach.noise/1"),
        (save({"labels": np.zeros(3)}, {"format": "coteach.noise/2"}), "its format is coteach.noise/2"),
    ],
)
def test_a_file_of_another_kind(content, reason, tmp_path):
    (tmp_path / "file").write_bytes(content)
    broken(tmp_path / "file", reason)


def test_a_missing_file_and_a_folder(tmp_path):
    broken(tmp_path / "nothing", "No such file")
    broken(tmp_path, "")


@given(st.data())
def test_a_truncated_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "noise"
    corrupt(LABELS, "pair", 0.45).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    broken(path, "")


@given(st.data())
def test_a_damaged_byte_anywhere_is_noticed_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bit") / "noise"
    drawn = corrupt(LABELS, "pair", 0.45)
    drawn.save(path)
    content = bytearray(path.read_bytes())
    header_ends = 8 + struct.unpack("<Q", content[:8])[0]
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    if position >= header_ends:
        broken(path, "")
        return
    # In the header a letter may change without a change of meaning.
    with contextlib.suppress(ValueError):
        assert Noise.load(path)._checksum() == drawn._checksum()


def rewritten(path, facts=None, without=(), **tensors):
    """The saved file with some of its parts exchanged."""
    drawn = Noise.load(path)
    old = {
        "format": noise.FORMAT,
        "kind": drawn.kind,
        "seed": str(drawn.seed),
        "nominal_rate": repr(drawn.nominal_rate),
        "sha256": drawn.sha256,
        "checksum": drawn._checksum(),
    }
    facts = {name: value for name, value in (old | (facts or {})).items() if name not in without}
    parts = {name: value for name, value in (load_file(path) | tensors).items() if name not in without}
    path.write_bytes(save(parts, facts))


def test_the_rewriting_helper_itself_writes_a_sound_file(saved):
    rewritten(saved)
    assert Noise.load(saved).seed == 4


@pytest.mark.parametrize(
    "name", ["labels", "clean", "matrix", "kind", "seed", "nominal_rate", "sha256", "checksum"]
)
def test_a_file_without_one_of_its_parts(name, saved):
    rewritten(saved, without=[name])
    broken(saved, f"does not contain tensor {name}" if name in noise.TENSORS else f"'{name}' is missing")


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"labels": np.roll(LABELS, 1)}, "its labels do not match their hash"),
        ({"clean": np.zeros(600, dtype=bool)}, "its contents do not match their checksum"),
        ({"matrix": symmetric(10, 0.2)}, "its contents do not match their checksum"),
        ({"facts": {"seed": "5"}}, "its contents do not match their checksum"),
        ({"facts": {"nominal_rate": "0.4"}}, "its contents do not match their checksum"),
        ({"facts": {"kind": "symmetric"}}, "its contents do not match their checksum"),
        ({"facts": {"kind": "pears"}}, "its noise is 'pears' at rate 0.45"),
        ({"facts": {"nominal_rate": "nan"}}, "its noise is 'pair' at rate nan"),
        ({"facts": {"nominal_rate": "much"}}, "could not convert string to float"),
        ({"facts": {"seed": "four"}}, "invalid literal"),
        ({"clean": np.zeros(599, dtype=bool)}, "it has 600 labels but a mask of 599"),
        ({"labels": LABELS.astype(np.int32)}, "its labels are of type I32 and shape [600]"),
        ({"labels": LABELS[:, None]}, "its labels are of type I64 and shape [600, 1]"),
        ({"clean": np.ones(600)}, "its clean are of type F64"),
        ({"matrix": np.ones(10)}, "its matrix are of type F64 and shape [10]"),
        ({"matrix": np.ones((10, 9))}, "the matrix must be C×C"),
        ({"matrix": pair(9, 0.45)}, "labels must be integers from 0 to 8; found 9"),
        ({"labels": LABELS[:0], "clean": LABELS[:0] > 0}, "there are no labels"),
    ],
)
def test_a_file_whose_parts_do_not_agree(change, reason, saved):
    rewritten(saved, **change)
    assert ".)" not in broken(saved, reason)
