"""How a step runs: batches and optimisers."""
