"""Ten million labels of a hundred classes through noise, ledger and suspects: seconds and memory.

python benchmarks/load.py --out benchmarks/results/load.json
"""

import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from common import flags, measured_on, write

from coteach import noise
from coteach.engine.batches import Batches
from coteach.engine.records import Choice, Ledgers, Records
from coteach.labels.ledger import suspects

T = TypeVar("T")


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--classes", type=int, default=100)
    options = parser.parse_args()
    M, C = options.samples, options.classes
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = work()
        seconds[name] = round(time.perf_counter() - started, 2)
        print(f"{name}: {seconds[name]} s, peak {peak() / 2**30:.2f} GiB", flush=True)
        return result

    y = np.random.default_rng(0).integers(0, C, M)
    drawn = timed("noise", lambda: noise.corrupt(y, "symmetric", 0.2, n_classes=C))
    ledger = timed("ledger, one epoch", lambda: one_epoch(torch.from_numpy(drawn.labels), C))
    quality = timed("quality", lambda: ledger.quality()[0])
    suggested = ledger.suggestion()[0]
    found = timed("suspects", lambda: suspects(drawn.labels, quality, suggested, 0.2))
    assert len(found) == round(0.2 * M)
    row = {
        "samples": M,
        "classes": C,
        "seconds": seconds,
        "peak_memory_bytes": peak(),
        **measured_on(),
    }
    write(row, options.out)


def one_epoch(y_M: torch.Tensor, classes: int, batch: int = 4096) -> Ledgers:
    """What a training of two networks would note, from logits that are the same for every batch."""
    x_M = torch.zeros(len(y_M), 1, dtype=torch.uint8)
    batches = Batches(x_M, y_M[None], [1], batch, len(x_M) // batch, torch.float32)
    ledger = Ledgers(batches, 2, torch.float32)
    records = Records((batches.per_epoch, 2, 1, batches.size), torch.float32, torch.device("cpu"))
    logits = torch.randn(2, 1, batches.size, classes)
    for step in batches.deal(1):
        step_1 = torch.tensor([step])
        _, y_RB = batches.take(step_1)
        loss = torch.zeros(2, 1, batches.size)
        picked = torch.ones(2, 1, batches.size, dtype=torch.bool)
        ledger.note(step_1, logits, y_RB)
        chosen = Choice(loss, logits.argmax(-1), picked, loss, picked, y_RB.expand(2, -1, -1))
        records.write(step_1, chosen, torch.ones(2, 1, dtype=torch.bool))
    ledger.close(batches, records)
    return ledger


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
