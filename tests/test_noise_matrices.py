"""Transition matrices against their definitions, entry by entry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach.noise import check_matrix, pair, superclass_asymmetric, symmetric
from noise_cases import RATES, plain_pair, plain_symmetric, refused, superclasses


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


def test_check_matrix_mends_float32_round_off_and_leaves_its_argument_alone():
    matrix = np.full((3, 3), 1 / 3, dtype=np.float32)
    matrix[0] = [0.1, 0.2, 0.70000005]
    before = matrix.copy()
    mended = check_matrix(matrix)
    np.testing.assert_allclose(mended.sum(1), 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(mended, matrix, atol=1e-6)
    np.testing.assert_array_equal(matrix, before)
    assert check_matrix(np.eye(2, dtype=int)).dtype == np.float64


def test_a_superclass_of_one():
    refused(
        lambda: superclass_asymmetric([0, 1, 0], 0.2),
        "class 1 is alone in superclass 1, so it has nothing to be mistaken for: "
        "merge superclasses, or give a matrix of your own.",
    )


@pytest.mark.parametrize(
    "matrix, message",
    [
        ([["a", "b"], ["c", "d"]], "must be C rows of C numbers: give probabilities only."),
        ([[1, 0], [1]], "must be C rows of C numbers: give probabilities only."),
        (np.ones((2, 3)) / 3, "must be C×C for C ≥ 2 classes, not of shape (2, 3): give a row a class."),
        (np.ones((1, 1)), "must be C×C for C ≥ 2 classes, not of shape (1, 1): give a row a class."),
        (np.ones(4) / 4, "must be C×C for C ≥ 2 classes, not of shape (4,): give a row a class."),
        ([[1.5, -0.5], [0, 1]], "has a negative, infinite or missing entry: give probabilities from 0 to 1."),
        ([[np.nan, 1], [0, 1]], "has a negative, infinite or missing entry: give probabilities from 0 to 1."),
        ([[np.inf, 1], [0, 1]], "has a negative, infinite or missing entry: give probabilities from 0 to 1."),
    ],
)
def test_matrices_that_are_none(matrix, message):
    refused(lambda: check_matrix(matrix), f"the matrix {message}")


def test_a_row_that_does_not_sum_to_one():
    message = "row 1 of the matrix sums to 0.9: divide each row by its sum."
    refused(lambda: check_matrix([[1, 0], [0.5, 0.4]]), message)
