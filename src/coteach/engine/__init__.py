"""How a step runs: batches, optimisers, precision."""
