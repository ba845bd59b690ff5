"""A table as numbers alone, in which neighbours can be looked for: cells may be missing, or words."""

from typing import Any

import numpy as np

from coteach.classifier.inputs import columns_of, to_numpy

MOST_WORDS_OF_A_COLUMN = 100  # of a column, each of which becomes a number of its own


def rows_of(X: Any) -> Any:
    """X so that rows can be taken from it: a data frame as it is, a sparse matrix by rows, else an array."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    return X if hasattr(X, "iloc") else np.asarray(to_numpy(X))


def numbers_of(x: Any) -> np.ndarray | None:
    """Columns of numbers with their means where cells are missing, a column for each word; None of other things.

    >>> numbers_of(np.array([[1.0, "red"], [np.nan, "blue"], [3.0, "red"]], dtype=object)).tolist()
    [[1.0, 0.0, 1.0], [2.0, 1.0, 0.0], [3.0, 0.0, 1.0]]
    """
    if hasattr(x, "tocsr") or not x.shape[0]:
        return None
    if isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind in "fiub":
        return np.column_stack([filled(column) for column in x.T.astype(np.float64)])
    columns = [numbers_of_column(cells) for _, cells in columns_of(x)]
    return np.column_stack(columns) if columns else None


def numbers_of_column(cells_M: np.ndarray) -> np.ndarray:
    try:
        return filled(np.array([np.nan if cell is None else float(cell) for cell in cells_M]))
    except (TypeError, ValueError):
        words, word_M = np.unique(np.array([str(cell) for cell in cells_M]), return_inverse=True)
        return (word_M[:, None] == np.arange(min(len(words), MOST_WORDS_OF_A_COLUMN))).astype(np.float64)


def filled(column_M: np.ndarray) -> np.ndarray:
    known_M = np.isfinite(column_M)
    return np.where(known_M, column_M, column_M[known_M].mean() if known_M.any() else 0.0)
