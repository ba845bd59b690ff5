"""Instance-dependent noise against its docstring, sample by sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach.noise import corrupt
from noise_cases import INSTALLED, LABELS, SEEDS, refused


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
