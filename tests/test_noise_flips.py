"""Label flips, instance-dependent ones among them, against plain per-sample loops."""

import hashlib
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coteach.noise import check_matrix, corrupt
from noise_cases import INSTALLED, LABELS, RATES, SEEDS, plain_pair, plain_symmetric, refused, superclasses

# Of LABELS with seed 0, by plain_loop under NumPy 2.4 and 2.5. The same draws on the real labels, in file order,
# give the authors' own noise where that is known (symmetric 0.2), sha256 and number of flips:
#   CIFAR-10   symmetric 0.2  a690162d9e3a14723bda18d4067259ef3b0acdb5b08d7f897eb64e2c456b8371 (10,038)
#   CIFAR-10   symmetric 0.5  2daa96c18b2822aa9434ce50c7e8776674c49144bce80ccdae95366159f9f253 (24,838)
#   CIFAR-10   pair 0.45      48b874cf1291e30c6929fde4a7b599dcc9d34cdc267423347c60aee38b1f2e57 (22,400)
#   CIFAR-100  symmetric 0.2  c61e9ee74a27a764b7ca3e3ce6450a5c62465a53e60e58568beda4d1da7e9b6f (10,054)
#   CIFAR-100  symmetric 0.5  c04c20fd6bdb67e6e1d2a2159a2857e5e5b4df715b127d6770d51a7dc446be45 (25,031)
#   CIFAR-100  pair 0.45      62662e02b235deab293b2a6446c15c1bbd0f98ceb252d90c2b8d5ce50323a122 (22,449)
# and with stream 1.16, which is that of results/:
#   CIFAR-10   pair 0.45      3ed13548… (22,557)    CIFAR-100  pair 0.45  4f550eca… (22,581)
GOLDEN = {
    ("symmetric", 0.2, "1.17"): "6a1e8a487f58bf225891bee4c99fe31e37b1ade8981bc2425c03132d23148c77",
    ("symmetric", 0.2, "1.16"): "6a1e8a487f58bf225891bee4c99fe31e37b1ade8981bc2425c03132d23148c77",
    ("symmetric", 0.5, "1.17"): "64975643470d38d9ca3de37375880ac0eb7353438a9fc288647b5c94edc76707",
    ("pair", 0.45, "1.17"): "29a008967d69bb8be4895de63ff6aebceb0e42442e566a70c8d4a3308a1cd571",
    ("pair", 0.45, "1.16"): "62a7ca85610d8c6c5a36cd4355a478c7e56bc7ac44b3d053a5572ad7a9c47b27",
}

PLAIN = {"symmetric": plain_symmetric, "pair": plain_pair}


def plain_loop(y, matrix, seed):
    generator = np.random.RandomState(seed)
    labels = []
    for label in y:
        hot = generator.multinomial(1, matrix[label], 1)[0]
        labels.append(list(hot).index(1))
    return labels


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


@pytest.mark.parametrize("kind, rate, stream", GOLDEN)
def test_labels_are_the_draws_of_the_authors_code(kind, rate, stream):
    drawn = corrupt(LABELS, kind, rate, stream=stream)
    assert drawn.sha256 == GOLDEN[kind, rate, stream]
    if stream == INSTALLED:
        plain = np.array(plain_loop(LABELS, np.array(PLAIN[kind](10, rate)), 0), dtype="<i8")
        assert drawn.labels.tolist() == plain.tolist()
        assert drawn.sha256 == hashlib.sha256(plain.tobytes()).hexdigest()


def test_without_a_word_labels_are_those_of_numpy_1_16_whatever_is_installed():
    assert corrupt(LABELS, "pair", 0.45).sha256 == GOLDEN["pair", 0.45, "1.16"]
    with pytest.raises(ValueError, match="there is no stream '2.5'"):
        corrupt(LABELS, "pair", 0.45, stream="2.5")


@given(matrices(), SEEDS, st.data())
def test_any_matrix_is_drawn_sample_by_sample(matrix, seed, data):
    y = data.draw(hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(0, len(matrix) - 1)))
    drawn = quietly(y, "matrix", None, seed=seed, matrix=matrix, stream=INSTALLED)
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
    assert abs(drawn.rate - rate) < 4 * np.sqrt(rate * (1 - rate) / len(y))  # DivideMix would have 0.45 for 0.5


@given(superclasses(), SEEDS)
def test_asymmetric_flips_stay_in_their_superclass(superclass, seed):
    y = np.tile(np.arange(len(superclass)), 20)
    drawn = corrupt(y, "asymmetric", 0.4, seed=seed, superclass=superclass)
    assert (superclass[drawn.labels] == superclass[y]).all()
    assert not drawn.clean.all()


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
        "so the labels carry no usable information: lower the rate."
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
        "all labels are 1, one class only: hand in two classes or more, or pass n_classes.",
    )
    refused(
        lambda: corrupt(LABELS, "none", 0.2),
        "noise 'none' flips no label but the rate is 0.2: set it to 0, or choose a kind.",
    )
    refused(
        lambda: corrupt(LABELS, "matrix", None),
        "kind 'matrix' needs a matrix: pass matrix=Q, of shape (C, C).",
    )
    refused(
        lambda: corrupt(LABELS, "pair", 0.2, matrix=np.eye(10)),
        "a matrix was given but the noise is 'pair': use kind 'matrix', or leave the matrix out.",
    )
    refused(
        lambda: corrupt(LABELS, "asymmetric", 0.2),
        "asymmetric noise needs the superclass of each class: pass superclass=, of shape (C,).",
    )
    message = "the noise is given for 10 classes but n_classes is 11: make them agree."
    refused(lambda: corrupt(LABELS, "matrix", None, 11, matrix=np.eye(10)), message)
    refused(lambda: corrupt(LABELS, "asymmetric", 0.2, 11, superclass=[0] * 10), message)


# ---- noise that depends on the features ------------------------------------------------------------------------


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
    drawn = corrupt(y, "instance", rate, n_classes, seed, features=features, stream=INSTALLED)
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


def test_features_that_cannot_be_used():
    def draw(features):
        return lambda: corrupt(LABELS, "instance", 0.2, features=features)

    refused(draw(None), "instance noise needs the features: pass features=, one row per label.")
    refused(draw(np.eye(599)), "599 samples but 600 labels: hand in exactly one label per sample.")
    for features in (np.ones(600), np.full((600, 2), np.nan), np.full((600, 2), np.inf), [["a"]] * 600):
        message = "features must be finite numbers, one row per label: fill or drop what is missing."
        refused(draw(features), message)
