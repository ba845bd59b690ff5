"""What the tests of noise share: labels, images, strategies, and how a refusal reads."""

import numpy as np
import pytest
from hypothesis import strategies as st

# whose draws the installed NumPy makes
INSTALLED = "1.17" if np.lib.NumpyVersion(np.__version__) < "2.5.0" else "1.16"
RATES = st.floats(0, 0.999)
SEEDS = st.integers(0, 2**32 - 1)
LABELS = np.arange(600) * 7 % 10  # all ten classes, not in order
IMAGES = np.arange(40 * 3, dtype=np.uint8).reshape(40, 3)
IMAGE_LABELS = np.arange(40) % 4


@st.composite
def superclasses(draw):
    """The superclass of each class, every superclass with two classes or more, in any order."""
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=5))
    return np.array(draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)])))


def plain_symmetric(n_classes, rate):
    return [[1 - rate if i == j else rate / (n_classes - 1) for j in range(n_classes)] for i in range(n_classes)]


def plain_pair(n_classes, rate):
    matrix = np.zeros((n_classes, n_classes))
    for i in range(n_classes):
        matrix[i, i] = 1 - rate
        matrix[i, (i + 1) % n_classes] = rate
    return matrix


def refused(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
