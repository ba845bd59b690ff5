"""What the processes of test_hf.py do: this module is imported by each of them."""

import gc
import os

import numpy as np
import torch

SAMPLES = 18


def work(rank: int, size: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    import test_hf as hf_test
    from coteach.hf import CoteachCallback

    callback = CoteachCallback("coteaching", noise_rate=0.2)
    data = hf_test.hf.with_index(hf_test.texts(n=SAMPLES))
    hf_test.trainer_of(callback, folder, train_dataset=data).train()
    assert callback.ledger is not None
    np.save(f"{folder}/{rank}.npy", callback.ledger.seen_NM.numpy())
    gc.collect()  # a group that is still referred to has threads, and may abort the process at its end
    torch.distributed.destroy_process_group()
