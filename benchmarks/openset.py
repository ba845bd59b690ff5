"""Standard training on the open-set with CIFAR-100's images, in settings that its published number may come from.

    python benchmarks/openset.py --device cuda --out openset.json

One network learns from every label. Accuracy is on the test set: the mean of the last ten epochs, and the best.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
from common import flags, kept, measured_on, trained
from torch import nn

from coteach import data
from coteach.networks import register_network
from coteach.networks.models import CNN7
from coteach.runs import prepare
from coteach.runs.experiment import Experiment

OPEN = {"dataset": "openset-cifar100"}
MIXTURE = OPEN | {"fidelity": "paper+openset_mixture"}  # the set as its inventors build it
INVENTORS = {"network": "cnn7_dense", "optimizer": "adam", "lr": 0.001, "batch_size": 100}
BY_ADAM = {"milestones": (), "weight_decay": 0.0}
CLOSED = {"dataset": "cifar10", "noise": "symmetric", "rate": 0.4, "epochs": 100}
SGD = {"optimizer": "sgd", "lr": 0.01, "weight_decay": 1e-4, "milestones": (40, 80), "epochs": 100}

# What is asked of an experiment, and what is then changed in its plan.
SETTINGS: dict[str, tuple[dict, dict]] = {
    "inventors' network, Adam, batches of 100": (OPEN | INVENTORS, BY_ADAM),
    "the same without batch norm": (OPEN | INVENTORS | {"network": "unnormed"}, BY_ADAM),
    "as described, without batch norm": (OPEN | {"network": "unnormed"}, {}),
    "the same, the inventors' images": (MIXTURE | {"network": "unnormed"}, {}),
    "as described, the small CNN": (OPEN | {"network": "small_cnn"}, {}),
    "as described, 40 % of labels flipped instead of images": (CLOSED | {"network": "cnn7_printed"}, SGD),
}


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epochs", type=int, help="fewer, to try it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    register_network("unnormed", without_batch_norm)
    kept((measured(setting, options) for setting in options.only), options.out)


def measured(setting: str, options: argparse.Namespace) -> dict:
    asked, changed = SETTINGS[setting]
    few = {"epochs": options.epochs} if options.epochs else {}
    experiment = Experiment(
        method="standard", seeds=(options.seed,), data_dir=options.data_dir, **(asked | few), precision="tf32"
    )
    plan = replace(experiment.plan(), **(changed | few))
    dataset = data.load(experiment.dataset, options.data_dir, **prepare.dataset_options(experiment))
    started = time.perf_counter()
    _, _, epochs = trained([experiment], dataset, plan, options.device)
    accuracy = [100 * float(np.mean(rows[0]["test_accuracy"])) for rows in epochs]
    return {
        "setting": setting,
        "seed": options.seed,
        "last_ten": float(np.mean(accuracy[-10:])),
        "best": max(accuracy),
        "epochs": len(accuracy),
        "seconds": round(time.perf_counter() - started, 1),
        **measured_on(options.device),
    }


def without_batch_norm(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The inventors' network with a bias in every convolution in place of its batch norm."""
    network = CNN7(n_classes, form="dense", channels=shape[0])
    layers = [layer for layer in network.convolutions if not isinstance(layer, nn.BatchNorm2d)]
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.Conv2d):
            layers[i] = nn.Conv2d(layer.in_channels, layer.out_channels, 3, padding=1)
    network.convolutions = nn.Sequential(*layers)
    return network


if __name__ == "__main__":
    main()
