"""How the paper trains on each data set: network, warm-up, optimiser, λ, and what its authors do otherwise."""

from dataclasses import dataclass, field
from typing import Any

from coteach.fidelity import Fidelity
from coteach.plan import OF_METHOD


@dataclass(frozen=True)
class Recipe:
    """Defaults of one data set; whatever the user sets goes before them."""

    network: str
    epochs: int = 200
    plan: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # options of the data set's reader
    augment: str | None = None
    own_noise: float | None = None  # the data set comes with this much noise


OPENSET_PLAN = {
    "warmup": 55,
    "parallel_warmup": True,
    "keep_type": 2,
    "optimizer": "sgd",
    "lr": 0.01,
    "weight_decay": 1e-4,
    "milestones": (40, 80),
}


# Iterative as its own authors run it: Adam for 95 epochs in rounds (see iterative.py), on the paper's mixture.
ITERATIVE_PLAN = {"batch_size": 100, "decay_start": 80}


# What a method's own paper sets otherwise than `plan.OF_METHOD` on one of its data sets.
OF_METHOD_ON: dict[tuple[str, str], dict[str, Any]] = {("dividemix", "cifar100"): {"warmup": 30}}


def settings_of(method: str, dataset: str) -> dict[str, Any]:
    """What a method's own paper sets, here for this data set.

    >>> settings_of("dividemix", "cifar10")["warmup"], settings_of("dividemix", "cifar100n")["warmup"]
    (10, 30)
    """
    return OF_METHOD.get(method, {}) | OF_METHOD_ON.get((method, images_of(dataset)), {})


def images_of(dataset: str) -> str:
    """The data set of the paper that has the same images, where people gave the labels.

    >>> images_of("cifar10n-worst"), images_of("mnist")
    ('cifar10', 'mnist')
    """
    return dataset.partition("n")[0] if dataset.startswith(("cifar10n-", "cifar100n")) else dataset


def recipe(dataset: str, fidelity: Fidelity, method: str = "coteaching_plus") -> Recipe:
    """The paper's set-up and appendix.

    The digits are not in the paper. They are few: small batches and a fast rate let the standard network memorise
    wrong labels within 50 epochs, as it does on the paper's data within 200, and five epochs of warm-up keep
    disagreement from starting with nothing to disagree about.
    """
    f = fidelity
    cnn7 = "cnn7" if f.narrow_cnn7 else "cnn7_printed"
    dataset = images_of(dataset)
    if dataset == "digits":
        plan = {"batch_size": 64, "lr": 0.005, "warmup": 5, "decay_start": 20}
        return Recipe("mlp", epochs=50, plan=plan)
    if dataset == "cifar10":
        return Recipe("small_cnn", plan={"warmup": 20})
    if dataset == "cifar100":
        return Recipe(cnn7, plan={"warmup": 5, "joint_weight": 0.85})
    if dataset == "news":
        split = "70/30" if f.news_70_30 else "bydate"
        return Recipe("news_flat" if f.flat_pooling else "news", data={"split": split})
    if dataset == "tiny-imagenet":
        data = {"as_listed": True} if f.listed_classes else {}
        if f.tiny_crops:
            return Recipe("preact_resnet18_authors", plan={"warmup": 100}, data=data, augment="tiny_crops")
        return Recipe("preact_resnet18", plan={"warmup": 100}, data=data)
    if dataset.startswith("openset-"):
        mixture = f.openset_mixture and dataset == "openset-cifar100"  # the other two were never published
        style = {"style": "authors"} if mixture else {}
        if method == "iterative":
            return Recipe("cnn7_dense", epochs=95, plan=ITERATIVE_PLAN, data=style, own_noise=0.4)
        return Recipe(cnn7, epochs=100, plan=OPENSET_PLAN, data=style, own_noise=0.4)
    return Recipe("mlp")  # MNIST's, and a user's own data unless their shape asks for another network
