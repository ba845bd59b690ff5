"""A data frame with categories or missing values as numbers. M rows, K numbers of a row."""

from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_VALUES = 50  # of a category, the commonest, that get a number of their own


@dataclass(frozen=True)
class FrameColumns:
    """How each column becomes numbers, in the order of the frame; as JSON has it.

    Attributes
    ----------
    fills : list of (float or None)
        Of a column of numbers the median, which stands for missing ones; None of a category.
    marks : list of bool
        Whether another number says that the value is missing.
    values : list of list
        Of a category those that get a number of their own; empty for numbers.
    """

    fills: list[float | None]
    marks: list[bool]
    values: list[list[Any]]

    @classmethod
    def needed_for(cls, X: Any) -> "FrameColumns | None":
        """Learnt from a data frame of pandas; None where all is a number already, or something else."""
        if not (hasattr(X, "iloc") and hasattr(X, "columns")):
            return None
        columns = [X.iloc[:, k] for k in range(X.shape[1])]
        known = all(is_category(column) or holds_numbers(column) for column in columns)
        if not known or not any(is_category(column) or column.isna().any() for column in columns):
            return None
        fills, values = [], []
        for column in columns:
            if is_category(column):
                commonest = column.value_counts().index[:MOST_VALUES].tolist()
                fills.append(None)
                values.append([value for value in column.cat.categories.tolist() if value in commonest])
            else:
                present = column.dropna().to_numpy(np.float64)
                fills.append(float(np.median(present)) if len(present) else 0.0)
                values.append([])
        return cls(fills, [bool(column.isna().any()) for column in columns], values)

    def numbers(self, X: Any) -> np.ndarray:
        """float64 (M, K). A value that was not there to be learnt from has no number."""
        if not (hasattr(X, "iloc") and X.shape[1] == len(self.fills)):
            raise ValueError(f"fit had a data frame of {len(self.fills)} columns: give one like it.")
        parts: list[np.ndarray] = []
        for k, (fill, marked, values) in enumerate(zip(self.fills, self.marks, self.values, strict=True)):
            column = X.iloc[:, k]
            missing_M = column.isna().to_numpy(bool)
            if fill is None:
                cells = column.astype(object).to_numpy()
                parts += [np.array([cell == value for cell in cells], dtype=np.float64) for value in values]
            else:
                parts.append(column.astype("Float64").fillna(fill).to_numpy(np.float64))
            if marked:
                parts.append(missing_M.astype(np.float64))
        return np.stack(parts, 1)


def is_category(column: Any) -> bool:
    return str(column.dtype) == "category"


def holds_numbers(column: Any) -> bool:
    return getattr(column.dtype, "kind", "") in "iufb"
