"""Noise: matrices, label flips against a plain per-sample loop, saved files, and open-set images."""

import contextlib
import hashlib
import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save

from coteach import noise
from coteach.noise import Noise, check_matrix, corrupt, pair, replace_images, superclass_asymmetric, symmetric

RATES = st.floats(0, 0.999)
SEEDS = st.integers(0, 2**32 - 1)
LABELS = np.arange(600) * 7 % 10  # all ten classes, not in order
IMAGES = np.arange(40 * 3, dtype=np.uint8).reshape(40, 3)
IMAGE_LABELS = np.arange(40) % 4

# Of LABELS with seed 0, by plain_loop. The same draws on the real labels, in file order, give the authors'
# own noise, sha256 and number of flips:
#   CIFAR-10   symmetric 0.2  a690162d9e3a14723bda18d4067259ef3b0acdb5b08d7f897eb64e2c456b8371 (10,038)
#   CIFAR-10   symmetric 0.5  2daa96c18b2822aa9434ce50c7e8776674c49144bce80ccdae95366159f9f253 (24,838)
#   CIFAR-10   pair 0.45      48b874cf1291e30c6929fde4a7b599dcc9d34cdc267423347c60aee38b1f2e57 (22,400)
#   CIFAR-100  symmetric 0.2  c61e9ee74a27a764b7ca3e3ce6450a5c62465a53e60e58568beda4d1da7e9b6f (10,054)
#   CIFAR-100  symmetric 0.5  c04c20fd6bdb67e6e1d2a2159a2857e5e5b4df715b127d6770d51a7dc446be45 (25,031)
#   CIFAR-100  pair 0.45      62662e02b235deab293b2a6446c15c1bbd0f98ceb252d90c2b8d5ce50323a122 (22,449)
GOLDEN = {
    ("symmetric", 0.2): "6a1e8a487f58bf225891bee4c99fe31e37b1ade8981bc2425c03132d23148c77",
    ("symmetric", 0.5): "64975643470d38d9ca3de37375880ac0eb7353438a9fc288647b5c94edc76707",
    ("pair", 0.45): "29a008967d69bb8be4895de63ff6aebceb0e42442e566a70c8d4a3308a1cd571",
}


def plain_loop(y, matrix, seed):
    generator = np.random.RandomState(seed)
    labels = []
    for label in y:
        hot = generator.multinomial(1, matrix[label], 1)[0]
        labels.append(list(hot).index(1))
    return labels


def plain_symmetric(n_classes, rate):
    return [
        [1 - rate if i == j else rate / (n_classes - 1) for j in range(n_classes)] for i in range(n_classes)
    ]


def plain_pair(n_classes, rate):
    matrix = np.zeros((n_classes, n_classes))
    for i in range(n_classes):
        matrix[i, i] = 1 - rate
        matrix[i, (i + 1) % n_classes] = rate
    return matrix


PLAIN = {"symmetric": plain_symmetric, "pair": plain_pair}


@st.composite
def superclasses(draw):
    """The superclass of each class, every superclass with two classes or more, in any order."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=5))
    return np.array(draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)])))


@st.composite
def matrices(draw):
    n_classes = draw(st.integers(2, 6))
    weights = draw(hnp.arrays(np.float64, (n_classes, n_classes), elements=st.floats(0, 1)))
    assume((weights.sum(1) > 0.1).all())
    return weights / weights.sum(1, keepdims=True)


def quietly(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return corrupt(*args, **kwargs)


# Matrices


@given(st.integers(2, 30), RATES)
def test_symmetric_and_pair_are_what_the_paper_defines(n_classes, rate):
    np.testing.assert_array_equal(symmetric(n_classes, rate), plain_symmetric(n_classes, rate))
    np.testing.assert_array_equal(pair(n_classes, rate), plain_pair(n_classes, rate))


@given(st.integers(2, 30), RATES, superclasses())
def test_rows_sum_to_one_and_the_diagonal_keeps_the_rest(n_classes, rate, superclass):
    for matrix in (
        symmetric(n_classes, rate),
        pair(n_classes, rate),
        superclass_asymmetric(superclass, rate),
    ):
        assert matrix.dtype == np.float64
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(matrix.diagonal(), 1 - rate)
        np.testing.assert_array_equal(check_matrix(matrix), matrix)


@given(superclasses(), st.floats(0.01, 0.99))
def test_asymmetric_noise_stays_in_its_superclass_and_reaches_all_of_it(superclass, rate):
    matrix = superclass_asymmetric(superclass, rate)
    leaves = superclass[:, None] != superclass[None, :]
    assert (matrix[leaves] == 0).all()
    for label in range(len(superclass)):
        target = np.flatnonzero((matrix[label] == rate) & (np.arange(len(matrix)) != label))
        later = [j for j in range(label + 1, len(superclass)) if superclass[j] == superclass[label]]
        first = min(j for j in range(len(superclass)) if superclass[j] == superclass[label])
        assert target.tolist() == [later[0] if later else first]


@given(superclasses(), SEEDS)
def test_asymmetric_flips_stay_in_their_superclass(superclass, seed):
    y = np.tile(np.arange(len(superclass)), 20)
    drawn = corrupt(y, "asymmetric", 0.4, seed=seed, superclass=superclass)
    assert (superclass[drawn.labels] == superclass[y]).all()
    assert not drawn.clean.all()


def test_check_matrix_mends_float32_round_off_and_leaves_its_argument_alone():
    matrix = np.full((3, 3), 1 / 3, dtype=np.float32)
    matrix[0] = [0.1, 0.2, 0.70000005]
    before = matrix.copy()
    mended = check_matrix(matrix)
    np.testing.assert_allclose(mended.sum(1), 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mended, matrix, atol=1e-6)
    np.testing.assert_array_equal(matrix, before)
    assert check_matrix(np.eye(2, dtype=int)).dtype == np.float64


# Flips


@pytest.mark.parametrize("kind, rate", [("symmetric", 0.2), ("symmetric", 0.5), ("pair", 0.45)])
def test_labels_are_the_draws_of_the_authors(kind, rate):
    drawn = corrupt(LABELS, kind, rate)
    plain = np.array(plain_loop(LABELS, np.array(PLAIN[kind](10, rate)), 0), dtype="<i8")
    assert drawn.labels.tolist() == plain.tolist()
    assert drawn.sha256 == hashlib.sha256(plain.tobytes()).hexdigest() == GOLDEN[kind, rate]


@given(matrices(), SEEDS, st.data())
def test_any_matrix_is_drawn_sample_by_sample(matrix, seed, data):
    y = data.draw(hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, len(matrix) - 1)))
    drawn = quietly(y, "matrix", None, seed=seed, matrix=matrix)
    assert drawn.labels.tolist() == plain_loop(y, check_matrix(matrix), seed)
    assert drawn.nominal_rate == pytest.approx(np.mean([1 - matrix[i, i] for i in y]))


@pytest.mark.parametrize("kind", ["symmetric", "pair", "asymmetric", "instance"])
@given(rate=RATES, seed=SEEDS)
def test_what_a_noise_says_about_itself(kind, rate, seed):
    features = np.random.RandomState(1).normal(size=(len(LABELS), 4))
    drawn = quietly(LABELS, kind, rate, 10, seed, superclass=np.arange(10) % 3, features=features)
    assert drawn.labels.dtype == np.int64
    assert drawn.clean.dtype == bool
    np.testing.assert_array_equal(drawn.clean, drawn.labels == LABELS)
    assert drawn.rate == np.mean(drawn.labels != LABELS)
    assert (drawn.nominal_rate, drawn.seed, drawn.kind) == (rate, seed, kind)
    np.testing.assert_allclose(drawn.matrix.sum(1), 1, rtol=0, atol=1e-12)
    assert (drawn.matrix[LABELS, drawn.labels] > 0).all()
    if kind != "instance":
        # Bernstein's bound at 10⁻¹⁰: the seed is free, and rare flips are not normally distributed.
        spread = np.sqrt(50 * len(LABELS) * rate * (1 - rate)) + 17
        assert abs(drawn.rate - rate) * len(LABELS) <= spread


@pytest.mark.parametrize("kind, rate", [("symmetric", 0.5), ("pair", 0.45), ("asymmetric", 0.3)])
def test_the_rate_is_the_share_of_labels_that_change(kind, rate):
    y = np.arange(20_000) % 10
    drawn = corrupt(y, kind, rate, superclass=np.arange(10) % 3)
    assert abs(drawn.rate - rate) < 4 * np.sqrt(
        rate * (1 - rate) / len(y)
    )  # DivideMix would have 0.45 for 0.5


@pytest.mark.parametrize("kind", ["none", "clean"])
def test_no_noise(kind):
    for drawn in (corrupt(LABELS, kind, 0), corrupt(LABELS, kind, None)):
        np.testing.assert_array_equal(drawn.labels, LABELS)
        np.testing.assert_array_equal(drawn.matrix, np.eye(10))
        assert (drawn.rate, drawn.nominal_rate, drawn.kind) == (0, 0, "none")
        assert drawn.sha256 == hashlib.sha256(LABELS.astype("<i8").tobytes()).hexdigest()


@pytest.mark.parametrize("kind", ["symmetric", "pair", "instance"])
def test_rate_zero_flips_nothing(kind):
    assert corrupt(LABELS, kind, 0, features=np.eye(600)).clean.all()


def everything_from_seed(seed):
    features = np.random.RandomState(9).normal(size=(600, 4))
    flips = [corrupt(LABELS, kind, 0.4, seed=seed, features=features) for kind in ("symmetric", "instance")]
    return [drawn.labels for drawn in flips] + list(
        replace_images(IMAGES, IMAGES[::-1], IMAGE_LABELS, 0.4, seed)
    )


@given(SEEDS, SEEDS)
def test_the_seed_decides_and_the_global_generator_is_left_alone(seed, global_seed):
    before = np.random.get_state()
    try:
        first = everything_from_seed(seed)
        np.random.seed(global_seed)
        held = np.random.get_state()
        second = everything_from_seed(seed)
        np.testing.assert_equal(np.random.get_state(), held)
    finally:
        np.random.set_state(before)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_seed_is_another_noise():
    for a, b in zip(everything_from_seed(0), everything_from_seed(1), strict=True):
        assert (a != b).any()


def test_n_classes_is_found_or_given():
    assert corrupt([0, 1, 2], "pair", 0.3).matrix.shape == (3, 3)
    assert corrupt([0, 1, 2], "pair", 0.3, n_classes=5).matrix.shape == (5, 5)
    assert corrupt([0, 0, 0], "pair", 0.3, n_classes=2).matrix.shape == (2, 2)
    assert corrupt([0, 0, 0], "matrix", None, matrix=np.eye(4)).matrix.shape == (4, 4)
    assert corrupt([0, 0, 0], "asymmetric", 0.3, superclass=[0, 1, 0, 1]).matrix.shape == (4, 4)


def test_the_argument_is_not_changed():
    y = LABELS.copy()
    drawn = corrupt(y, "none", 0)
    drawn.labels[:] = 0
    np.testing.assert_array_equal(y, LABELS)


# Instance-dependent noise


def plain_instance(y, n_classes, rate, features, seed):
    """Sample by sample, as the docstring has it; its random numbers in the order of the library."""
    generator = np.random.RandomState(seed)
    x = (features - features.mean()) / features.std()
    flip = generator.normal(rate, 0.1, len(y))
    while any(q < 0 or q > 1 for q in flip):
        redraw = [i for i, q in enumerate(flip) if q < 0 or q > 1]
        flip[redraw] = generator.normal(rate, 0.1, len(redraw))
    projections = generator.standard_normal((n_classes, x.shape[1], n_classes))
    labels = []
    for i, label in enumerate(y):
        score = x[i] @ projections[label]
        others = [j for j in range(n_classes) if j != label]
        weight = {j: np.exp(score[j] - max(score[others])) for j in others}
        total = sum(weight.values())
        row = [1 - flip[i] if j == label else flip[i] * weight[j] / total for j in range(n_classes)]
        labels.append(int(generator.multinomial(1, row).argmax()))
    return labels


@given(st.integers(2, 5), st.floats(0.01, 0.49), SEEDS, st.integers(0, 99))
def test_instance_noise_is_what_its_docstring_says(n_classes, rate, seed, feature_seed):
    generator = np.random.RandomState(feature_seed)
    y, features = generator.randint(0, n_classes, 30), generator.normal(3, 2, (30, 6))
    drawn = corrupt(y, "instance", rate, n_classes, seed, features=features)
    assert drawn.labels.tolist() == plain_instance(y, n_classes, rate, features, seed)


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7])
def test_instance_noise_keeps_its_rate_where_the_normal_distribution_is_whole(rate):
    y = np.arange(20_000) % 10
    features = np.random.RandomState(0).normal(size=(len(y), 8))
    drawn = corrupt(y, "instance", rate, features=features)
    # Up to 0.001 is the truncation at 0 and 1.
    assert abs(drawn.rate - rate) < 5 * np.sqrt(rate * (1 - rate) / len(y)) + 0.001


def test_instance_noise_depends_on_the_instance():
    y = np.zeros(2000, dtype=int)
    x = np.where(np.arange(2000)[:, None] % 2 == 0, 1.0, -1.0) * np.ones(20)
    drawn = corrupt(y, "instance", 0.4, 5, features=x)
    one, other = (np.bincount(drawn.labels[i::2], minlength=5)[1:] for i in (0, 1))
    assert one.argmax() != other.argmax()


def test_instance_matrix_is_the_share_that_came_out():
    y = np.array([0, 0, 0, 0, 2, 2])
    drawn = corrupt(y, "instance", 0.5, 4, seed=3, features=np.arange(12.0).reshape(6, 2))
    for label in (0, 2):
        came_out = drawn.labels[y == label]
        assert drawn.matrix[label].tolist() == [np.mean(came_out == j) for j in range(4)]
    np.testing.assert_array_equal(drawn.matrix[[1, 3]], np.eye(4)[[1, 3]])
    assert not drawn.clean.all()


def test_instance_features_of_any_shape_scale_and_type():
    pixels = np.random.RandomState(0).randint(0, 256, (600, 4, 3)).astype(np.uint8)
    expected = corrupt(LABELS, "instance", 0.4, features=pixels).labels
    for same in (pixels.reshape(600, 12), pixels / 255, pixels.astype(np.float32)):
        np.testing.assert_array_equal(corrupt(LABELS, "instance", 0.4, features=same).labels, expected)


def test_instance_features_without_any_contrast():
    assert not corrupt(LABELS, "instance", 0.4, features=np.ones((600, 2))).clean.all()


# Too much noise


@pytest.mark.parametrize(
    "kind, rate, n_classes, label",
    [
        ("symmetric", 0.9, 10, 0),
        ("symmetric", 2 / 3, 3, 0),  # 1 - 2/3 is a little more than (2/3)/2 in floating point
        ("symmetric", 0.95, 10, 0),
        ("pair", 0.5, 10, 0),
        ("asymmetric", 0.5, 10, 0),
        ("instance", 0.9, 10, 0),
    ],
)
def test_labels_without_information_are_warned_about(kind, rate, n_classes, label):
    message = (
        f"with {kind} noise at rate {rate:g} class {label} gets a wrong label at least as often as its own, "
        "so the labels carry no usable information: lower the rate"
    )
    y = LABELS % n_classes
    with pytest.warns(UserWarning, match="no usable information") as caught:
        corrupt(y, kind, rate, superclass=np.arange(n_classes) % 2, features=np.eye(600))
    assert [str(warning.message) for warning in caught] == [message]
    assert caught[0].filename == __file__


def test_the_class_without_information_is_named():
    matrix = np.eye(3)
    matrix[2] = [0.5, 0.1, 0.4]
    with pytest.warns(UserWarning, match="with matrix noise at rate 0.2 class 2 gets"):
        corrupt([0, 1, 2], "matrix", None, matrix=matrix)


@pytest.mark.parametrize(
    "kind, rate, n_classes", [("symmetric", 0.89, 10), ("symmetric", 0.49, 2), ("pair", 0.49, 10)]
)
def test_less_noise_is_not_warned_about(kind, rate, n_classes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corrupt(LABELS % n_classes, kind, rate)


# Saved files


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


@pytest.mark.parametrize("where", ["missing/noise", "folder"])
def test_a_place_that_cannot_be_written(where, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=rf"{where} cannot be written \(.*\): choose another place"):
        corrupt(LABELS, "pair", 0.45).save(tmp_path / where)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def broken(path, reason):
    with pytest.raises(ValueError) as caught:
        Noise.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is not a sound noise file (")
    assert message.endswith("): draw and save it again")
    assert reason in message


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
    broken(saved, reason)


# Open-set images


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.floats(0, 0.99), SEEDS)
def test_each_class_loses_the_same_share_of_images(y, rate, seed):
    images = np.arange(len(y), dtype=np.float32)[:, None, None] + np.zeros((2, 2), dtype=np.float32)
    outside = -1 - np.arange(70, dtype=np.float32)[:, None, None] + np.zeros((2, 2), dtype=np.float32)
    before = images.copy(), outside.copy(), list(y)
    new_images, replaced = replace_images(images, outside, y, rate, seed)
    for label in set(y):
        assert replaced[np.array(y) == label].sum() == round(rate * y.count(label))
    np.testing.assert_array_equal(new_images[~replaced], images[~replaced])
    np.testing.assert_array_equal(new_images < 0, replaced[:, None, None] & np.ones((2, 2), dtype=bool))
    assert len(np.unique(new_images[replaced])) == replaced.sum(), "an outside image was used twice"
    assert set(np.unique(new_images[replaced])) <= set(outside[:, 0, 0])
    assert (new_images.shape, new_images.dtype, replaced.dtype) == (images.shape, images.dtype, bool)
    np.testing.assert_equal((images, outside, y), before)


def test_a_share_of_nothing_still_returns_a_copy():
    new_images, replaced = replace_images(IMAGES, IMAGES, IMAGE_LABELS, rate=0)
    assert not replaced.any()
    assert not np.shares_memory(new_images, IMAGES)


def test_exactly_enough_outside_images_are_all_used():
    outside = IMAGES[:16] + np.uint8(120)
    new_images, replaced = replace_images(IMAGES, outside, IMAGE_LABELS)
    assert replaced.sum() == 16
    assert sorted(new_images[replaced].tolist()) == sorted(outside.tolist())


# Errors


def refused(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan"), float("inf"), None, "0.2"])
def test_a_rate_that_is_none(rate):
    message = f"the noise rate is {rate!r}: give a number from 0 to below 1"
    refused(lambda: symmetric(10, rate), message)
    refused(lambda: pair(10, rate), message)
    refused(lambda: superclass_asymmetric([0, 0], rate), message)
    refused(lambda: corrupt(LABELS, "symmetric", rate), message)
    refused(lambda: corrupt(LABELS, "instance", rate, features=np.eye(600)), message)
    refused(lambda: replace_images(IMAGES, IMAGES, IMAGE_LABELS, rate), message)
    if rate is not None:
        refused(lambda: corrupt(LABELS, "matrix", rate, matrix=np.eye(10)), message)


@pytest.mark.parametrize("n_classes", [1, 0, -3, 2.0, "2"])
def test_a_number_of_classes_that_is_none(n_classes):
    message = f"the number of classes is {n_classes!r}: noise needs an integer of 2 or more"
    refused(lambda: symmetric(n_classes, 0.1), message)
    refused(lambda: pair(n_classes, 0.1), message)
    for kind in ("none", "symmetric", "pair", "instance"):
        refused(lambda kind=kind: corrupt([0, 1], kind, 0, n_classes, features=np.eye(2)), message)


@pytest.mark.parametrize("seed", [-1, 2**32, 0.0, None, "0"])
def test_a_seed_that_is_none(seed):
    message = f"the noise seed is {seed!r}: give an integer from 0 to 2**32 - 1"
    refused(lambda: corrupt(LABELS, "pair", 0.2, seed=seed), message)
    refused(lambda: replace_images(IMAGES, IMAGES, IMAGE_LABELS, seed=seed), message)


@pytest.mark.parametrize(
    "wrong, nearest", [("simetric", "symmetric"), ("pairflip", "pair"), ("asym", "asymmetric")]
)
def test_an_unknown_kind_gets_the_nearest_name(wrong, nearest):
    known = "none, clean, symmetric, pair, asymmetric, instance, matrix"
    message = f"unknown noise {wrong!r}: did you mean {nearest!r}? There are {known}"
    refused(lambda: corrupt(LABELS, wrong, 0.2), message)


@pytest.mark.parametrize("y", [[0, 3], [0, -1], [], [0.5, 1], [[0, 1]], ["a", "b"], [True, False]])
def test_labels_are_checked(y):
    for call in (
        lambda: corrupt(y, "pair", 0.2, 3),
        lambda: corrupt(y, "matrix", None, matrix=np.eye(3)),
        lambda: corrupt(y, "asymmetric", 0.2, superclass=[0, 0, 0]),
    ):
        with pytest.raises(ValueError, match="label"):
            call()


def test_arguments_that_do_not_fit_the_kind():
    refused(
        lambda: corrupt([1, 1, 1], "pair", 0.2),
        "all labels are 1, one class only: hand in two classes or more, or pass n_classes",
    )
    refused(
        lambda: corrupt(LABELS, "none", 0.2),
        "noise 'none' flips no label but the rate is 0.2: set it to 0, or choose a kind",
    )
    refused(
        lambda: corrupt(LABELS, "matrix", None),
        "kind 'matrix' needs a matrix: pass matrix=Q, of shape (C, C)",
    )
    refused(
        lambda: corrupt(LABELS, "pair", 0.2, matrix=np.eye(10)),
        "a matrix was given but the noise is 'pair': use kind 'matrix', or leave the matrix out",
    )
    refused(
        lambda: corrupt(LABELS, "asymmetric", 0.2),
        "asymmetric noise needs the superclass of each class: pass superclass=, of shape (C,)",
    )
    message = "the noise is given for 10 classes but n_classes is 11: make them agree"
    refused(lambda: corrupt(LABELS, "matrix", None, 11, matrix=np.eye(10)), message)
    refused(lambda: corrupt(LABELS, "asymmetric", 0.2, 11, superclass=[0] * 10), message)


def test_a_superclass_of_one():
    refused(
        lambda: superclass_asymmetric([0, 1, 0], 0.2),
        "class 1 is alone in superclass 1, so it has nothing to be mistaken for: "
        "merge superclasses, or give a matrix of your own",
    )


def test_features_that_cannot_be_used():
    def draw(features):
        return lambda: corrupt(LABELS, "instance", 0.2, features=features)

    refused(draw(None), "instance noise needs the features: pass features=, one row per label")
    refused(draw(np.eye(599)), "599 samples but 600 labels: hand in exactly one label per sample")
    for features in (np.ones(600), np.full((600, 2), np.nan), np.full((600, 2), np.inf), [["a"]] * 600):
        message = "features must be finite numbers, one row per label: fill or drop what is missing"
        refused(draw(features), message)


@pytest.mark.parametrize(
    "matrix, message",
    [
        ([["a", "b"], ["c", "d"]], "must be C rows of C numbers: give probabilities only"),
        ([[1, 0], [1]], "must be C rows of C numbers: give probabilities only"),
        (np.ones((2, 3)) / 3, "must be C×C for C ≥ 2 classes, not of shape (2, 3): give a row a class"),
        (np.ones((1, 1)), "must be C×C for C ≥ 2 classes, not of shape (1, 1): give a row a class"),
        (np.ones(4) / 4, "must be C×C for C ≥ 2 classes, not of shape (4,): give a row a class"),
        ([[1.5, -0.5], [0, 1]], "has a negative, infinite or missing entry: give probabilities from 0 to 1"),
        ([[np.nan, 1], [0, 1]], "has a negative, infinite or missing entry: give probabilities from 0 to 1"),
        ([[np.inf, 1], [0, 1]], "has a negative, infinite or missing entry: give probabilities from 0 to 1"),
    ],
)
def test_matrices_that_are_none(matrix, message):
    refused(lambda: check_matrix(matrix), f"the matrix {message}")


def test_a_row_that_does_not_sum_to_one():
    message = "row 1 of the matrix sums to 0.9: divide each row by its sum"
    refused(lambda: check_matrix([[1, 0], [0.5, 0.4]]), message)


def test_images_that_cannot_be_replaced():
    def replace(outside, y=IMAGE_LABELS):
        return lambda: replace_images(IMAGES, outside, y)

    ours = "the images are uint8 of shape (3,), the outside images"
    refused(replace(IMAGES[:, :2]), f"{ours} uint8 of shape (2,): convert one to the other")
    refused(replace(IMAGES / 255), f"{ours} float64 of shape (3,): convert one to the other")
    refused(replace(np.uint8(3)), "images must be arrays with one image per row: stack them first")
    message = "16 outside images are needed but there are 15: give more of them, or lower the rate"
    refused(replace(IMAGES[:15]), message)
    message = "40 samples but 39 labels: hand in exactly one label per sample"
    refused(replace(IMAGES, IMAGE_LABELS[1:]), message)


def test_noise_needs_no_torch():
    environment = os.environ | {"PYTHONPATH": str(Path(noise.__file__).parents[1])}
    command = "import sys, coteach.noise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], env=environment, check=False).returncode == 0
