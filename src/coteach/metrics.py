"""What the numbers of a run mean: bins of its histograms, and the mean that tables have. No torch."""

PER_DECADE = 8  # bins of the histograms of losses
LOSS_EDGES = [10 ** (i / PER_DECADE) for i in range(-4 * PER_DECADE, 3 * PER_DECADE // 2 + 1)]  # 0.0001 to 31.6
LOSS_BINS = len(LOSS_EDGES) - 1  # the first has what is smaller too, the last what is larger


def last_ten(rows: list[dict]) -> tuple[float, float]:
    """Mean and maximum over the last ten epochs of the networks' mean test accuracy, as the paper's tables."""
    means = [sum(row["test_accuracy"]) / len(row["test_accuracy"]) for row in rows[-10:]]
    return sum(means) / len(means), max(means)
