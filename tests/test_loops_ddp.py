"""A pair in DistributedDataParallel: the same weights, and the same ledger, as in one process."""

import socket

import numpy as np
import pytest
import torch
from torch import nn

import coteach
from loops_work import SAMPLES, train, work


@pytest.mark.slow
def test_two_processes_train_a_pair_as_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (2, port, str(tmp_path)), nprocs=2)
    pair = coteach.Pair(lambda: nn.Linear(5, 3))
    ledger = train(pair, slice(None))
    weight = torch.stack([network.weight for network in pair.networks]).detach().numpy()
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npz")
        np.testing.assert_allclose(found["weight"], weight, atol=1e-6)
        np.testing.assert_allclose(found["quality"], ledger.quality(), atol=1e-6)
        assert (found["suggestion"] == ledger.suggestion()).all()
        assert (found["labels"] == ledger.labels_M.numpy()).all()
        assert (found["seen"] == 3).all()
        assert found["seen"].shape == (2, SAMPLES)
