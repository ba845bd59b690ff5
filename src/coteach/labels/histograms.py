"""The bins of the histograms of losses that a run keeps: eight to a decade. No torch: the report reads them."""

PER_DECADE = 8
EDGES = [10 ** (i / PER_DECADE) for i in range(-4 * PER_DECADE, 3 * PER_DECADE // 2 + 1)]  # 0.0001 to 31.6
BINS = len(EDGES) - 1  # the first has what is smaller too, the last what is larger
