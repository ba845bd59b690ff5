"""What the processes of test_loops_ddp.py do: this module is imported by each of them."""

import gc
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

import coteach

SAMPLES = 24


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, 5, generator=generator)
    return x, torch.randint(0, 3, (SAMPLES,), generator=generator)


def train(pair: nn.Module, mine: slice, epochs: int = 3) -> coteach.Ledger:
    """Batches of eight samples, of which this process has some."""
    x, y = data()
    ledger = coteach.Ledger(SAMPLES)
    selection = coteach.Selection("standard", 0.0, epochs=epochs, ledger=ledger)
    optimiser = torch.optim.SGD(pair.parameters(), 0.5)
    for _ in range(epochs):
        for index in torch.arange(SAMPLES).view(-1, 8)[:, mine]:
            optimiser.zero_grad()
            selection(pair(x[index]), y[index], index).backward()
            optimiser.step()
        selection.next_epoch()
    return ledger


def work(rank: int, size: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=size)
    pair = nn.parallel.DistributedDataParallel(coteach.Pair(lambda: nn.Linear(5, 3)))
    ledger = train(pair, slice(rank, None, size))
    ledger.gather()
    np.savez(
        f"{folder}/{rank}.npz",
        quality=ledger.quality(),
        suggestion=ledger.suggestion(),
        labels=ledger.labels_M.numpy(),
        seen=ledger.seen_NM.numpy(),
        weight=torch.stack([network.weight for network in pair.module.networks]).detach().numpy(),
    )
    del pair
    gc.collect()  # a group that is still referred to has threads, and may abort the process at its end
    dist.destroy_process_group()
