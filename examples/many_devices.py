"""One training shared by several processes, each on its own GPU, or on cores of one machine.

For people whose mini-batches are too slow for one device. A quarter of a minute on two cores:

    . .venv/bin/activate  # made by `make demo`
    torchrun --nproc-per-node 2 examples/many_devices.py

Prints the test accuracy, and how many processes trained. Samples are picked from the whole mini-batch, so the
result is the same for any number of processes; without torchrun there is one. torchrun itself first prints a
warning that it sets OMP_NUM_THREADS to 1, which is what we want here: one core for each process.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import coteach


def main(epochs: int = 30, samples: int = 1797) -> float:
    """Test accuracy of Co-teaching on digits, of whose labels 40 % are wrong."""
    x, truth = map(np.asarray, load_digits(return_X_y=True))
    x, truth, half = x[:samples] / 16, truth[:samples], samples // 2
    given = coteach.noise.corrupt(truth[:half], "symmetric", 0.4, n_classes=10).labels
    dataset = coteach.Dataset.from_arrays(x[:half], given, x[half:], truth[half:])
    with tempfile.TemporaryDirectory() as folder:
        experiment = coteach.Experiment(
            method="coteaching", tau=0.4, epochs=epochs, batch_size=64, lr=0.005, out=Path(folder) / "run"
        )
        result = coteach.run(experiment, dataset, say=lambda line: None)  # every process calls it, one writes
    if os.environ.get("RANK", "0") == "0":
        print(f"{result.summary['ensemble']:.1f} % by {os.environ.get('WORLD_SIZE', '1')} processes")
    return result.summary["ensemble"]


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=30)
    options.add_argument("--samples", type=int, default=1797)
    main(**vars(options.parse_args()))
