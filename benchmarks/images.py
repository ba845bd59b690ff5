"""What the modern recipe gains on few images, and what it costs: RobustClassifier as it is, on part of a data set.

    python benchmarks/images.py --dataset cifar10 --samples 5000 --recipe modern paper --out images.json

Labels are flipped here. The noise rate is estimated, and its cost counts. `accuracy` is on the test set's right
labels, `average_precision` of finding the wrong labels by `label_quality_`.
"""

import argparse
import resource
import time
from collections.abc import Iterator

import torch
from common import kept, measured_on, training_flags

from coteach import RobustClassifier, data
from coteach.labels.ledger import average_precision
from coteach.noise import corrupt


def main() -> None:
    parser = training_flags(__doc__, ["cifar10"])
    parser.set_defaults(epochs=None)
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--recipe", nargs="+", default=["modern", "paper"])
    parser.add_argument("--noise", default="symmetric")
    parser.add_argument("--rate", type=float, default=0.2)
    options = parser.parse_args()
    kept(rows(options), options.out)


def rows(options: argparse.Namespace) -> Iterator[dict]:
    for name in options.dataset:
        dataset = data.load(name, options.data_dir)
        x, x_test = dataset.tensors("a part of it")
        x, truth = x[: options.samples].numpy(), dataset.y_train[: options.samples].numpy()
        for recipe in options.recipe:
            for seed in options.seeds:
                noise = corrupt(truth, options.noise, options.rate, dataset.n_classes, seed=seed)
                model = RobustClassifier(
                    recipe=recipe, epochs=options.epochs, device=options.device, random_state=seed
                )
                began, cpu = time.perf_counter(), time.process_time()
                model.fit(x, noise.labels)
                yield {
                    "dataset": name,
                    "samples": len(x),
                    "noise": f"{options.noise} {options.rate:g}",
                    "recipe": recipe,
                    "network": model.network_,
                    "options": model.network_options_,
                    "seed": seed,
                    "accuracy": model.score(x_test.numpy(), dataset.y_test.numpy()),
                    "average_precision": average_precision(model.label_quality_, ~noise.clean),
                    "estimated_rate": model.noise_rate_,
                    "rate": noise.rate,
                    "seconds": round(time.perf_counter() - began, 1),
                    "cpu_seconds": round(time.process_time() - cpu, 1),
                    "threads": torch.get_num_threads(),
                    "peak_memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                    **measured_on(options.device),
                }


if __name__ == "__main__":
    main()
