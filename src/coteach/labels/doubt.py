"""Which labels are doubted most: in one place, so that a classifier and a report agree. No torch."""

import numpy as np


def most_doubted(quality_M: np.ndarray, share: float) -> np.ndarray:
    """Indices of the `share` of samples of lowest quality, the worst first; ties go to the earlier sample."""
    return np.argsort(quality_M, kind="stable")[: round(share * len(quality_M))]
