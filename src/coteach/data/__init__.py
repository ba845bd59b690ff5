"""Data sets by name: `load("cifar10")`, `DATASETS`, and the `status` of the data folder.

Quick to import: a reader, and torch with it, is imported when a data set is loaded.
"""

import importlib
import inspect
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from coteach.data.published import data_home, locate
from coteach.names import check_name

if TYPE_CHECKING:
    from coteach.data.base import Dataset

__all__ = ["DATASETS", "Dataset", "Description", "Status", "data_home", "load", "status"]


@dataclass(frozen=True)
class Description:
    """What there is to know about a data set before it is loaded.

    Parameters
    ----------
    name, what : str
        Its name, and what it is.
    download, needs : str
        How much is downloaded, and what else is needed.
    sources : tuple of str
        The published files it is made of.
    reader : str
        Module and function that read it.
    given : bool
        Whether the training set comes with labels that people gave.
    licence : str
        The licence that limits its use, if there is one.

    Examples
    --------
    >>> DATASETS["mnist"].what, DATASETS["mnist"].download
    ('60,000 / 10,000 handwritten digits, 1×28×28', '12 MB')
    """

    name: str
    what: str
    download: str
    needs: str
    sources: tuple[str, ...]
    reader: str
    given: bool = False
    licence: str = ""


@dataclass(frozen=True)
class Status:
    """Whether a data set is in the data folder.

    Parameters
    ----------
    name : str
    found : str or None
        Where it is.
    note : str
        What loading it takes.

    Examples
    --------
    >>> status()[0]
    Status(name='digits', found='scikit-learn', note='installed with it')
    """

    name: str
    found: str | None
    note: str


def _cifar_n(name: str, what: str, cifar: str, download: str) -> Description:
    reader = f"cifarn.load_{name.replace('-', '_')}"
    return Description(name, what, download, "nothing", (cifar, f"{cifar}n"), reader, True, "CC BY-NC 4.0")


PILLOW = "Pillow: pip install pillow"
DATASETS = {
    description.name: description
    for description in (
        Description(
            "digits",
            "1,297 / 500 handwritten digits, 64 features",
            "nothing",
            "nothing",
            (),
            "mnist.load_digits",
        ),
        Description(
            "mnist",
            "60,000 / 10,000 handwritten digits, 1×28×28",
            "12 MB",
            "nothing",
            ("mnist",),
            "mnist.load_mnist",
        ),
        Description(
            "fashion-mnist",
            "60,000 / 10,000 pieces of clothing in 10 classes, 1×28×28",
            "31 MB",
            "nothing",
            ("fashion-mnist",),
            "mnist.load_fashion_mnist",
        ),
        Description(
            "cifar10",
            "50,000 / 10,000 photographs in 10 classes, 3×32×32",
            "170 MB",
            "nothing",
            ("cifar10",),
            "cifar.load_cifar10",
        ),
        Description(
            "cifar100",
            "50,000 / 10,000 photographs in 100 classes of 20 superclasses, 3×32×32",
            "169 MB",
            "nothing",
            ("cifar100",),
            "cifar.load_cifar100",
        ),
        Description(
            "news",
            "11,314 / 7,532 newsgroup posts in 7 classes, 1,000 words with vectors",
            "14 MB, and 862 MB of GloVe vectors unless other ones are there",
            "nothing",
            ("news", "glove"),
            "news.load_news",
        ),
        Description(
            "tiny-imagenet",
            "100,000 / 10,000 photographs in 200 classes, 3×64×64",
            "248 MB",
            PILLOW,
            ("tiny-imagenet",),
            "tiny_imagenet.load_tiny_imagenet",
        ),
        _cifar_n("cifar10n-aggre", "cifar10 with what most of three people say", "cifar10", "172 MB"),
        _cifar_n("cifar10n-rand1", "cifar10 with the labels of one person each", "cifar10", "172 MB"),
        _cifar_n("cifar10n-rand2", "cifar10 with the labels of another", "cifar10", "172 MB"),
        _cifar_n("cifar10n-rand3", "cifar10 with the labels of a third", "cifar10", "172 MB"),
        _cifar_n("cifar10n-worst", "cifar10 with a wrong one of three people's labels", "cifar10", "172 MB"),
        _cifar_n("cifar100n", "cifar100 with the labels of one person each", "cifar100", "170 MB"),
        Description(
            "openset-cifar100",
            "cifar10 with 40 % of the training images from CIFAR-100",
            "339 MB",
            "nothing",
            ("cifar10", "cifar100"),
            "openset.load_openset_cifar100",
        ),
        Description(
            "openset-svhn",
            "cifar10 with 40 % of the training images from SVHN",
            "352 MB",
            "nothing",
            ("cifar10", "svhn"),
            "openset.load_openset_svhn",
        ),
        Description(
            "openset-imagenet32",
            "cifar10 with 40 % of the training images from ImageNet-32",
            "170 MB",
            "Imagenet32_train_npz.zip (3.6 GB), for which image-net.org wants an account",
            ("cifar10", "imagenet32"),
            "openset.load_openset_imagenet32",
        ),
    )
}
"""What each data set is, by its name.

>>> list(DATASETS)[:3]
['digits', 'mnist', 'fashion-mnist']
"""


def load(name: str, data_dir: str | os.PathLike | None = None, **options: Any) -> "Dataset":
    """Load a data set by name, downloading it first if it is not in the data folder.

    Parameters
    ----------
    name : str
        A key of `DATASETS`.
    data_dir : path, optional
        The data folder; else the environment variable COTEACH_DATA, else the user's cache.
    **options
        Options of the data set's reader, for instance `split="70/30"` for news.

    Returns
    -------
    dataset : Dataset

    Examples
    --------
    >>> digits = load("digits")
    >>> digits.x_train.shape, digits.n_classes
    (torch.Size([1297, 64]), 10)
    """
    check_name("data set", name, DATASETS)
    module, function = DATASETS[name].reader.split(".")
    reader = getattr(importlib.import_module(f"coteach.data.{module}"), function)
    known = inspect.signature(reader).parameters
    for option in options:
        if option not in known:
            others = ", ".join(other for other in known if other != "data_dir") or "none"
            raise ValueError(f"{name} has no option {option!r}: its options are {others}.")
    if "data_dir" in known:
        options["data_dir"] = data_dir
    return reader(**options)


def status(data_dir: str | os.PathLike | None = None) -> list[Status]:
    """Say for each data set whether it is in the data folder; files are looked for, not read.

    Parameters
    ----------
    data_dir : path, optional
        The data folder, see `load`.

    Returns
    -------
    list of Status

    Examples
    --------
    >>> [one.name for one in status() if one.found == "scikit-learn"]
    ['digits']
    """
    return [_status(description, data_dir) for description in DATASETS.values()]


def _status(description: Description, data_dir: str | os.PathLike | None) -> Status:
    if not description.sources:
        return Status(description.name, "scikit-learn", "installed with it")
    places: list[str] = []
    missing = []
    for source in description.sources:
        paths = locate(source, data_dir)
        if None in paths:
            missing.append(source)
        else:
            places.append(str(paths[0]))
    if missing:
        note = f"missing: {', '.join(missing)}; download in all: {description.download}"
        needs = "nothing" if description.needs == PILLOW and find_spec("PIL") else description.needs
        return Status(description.name, None, note if needs == "nothing" else f"{note}; needs {needs}")
    return Status(description.name, ", ".join(places), "found; checked when it is loaded")


def __getattr__(name: str) -> Any:
    if name == "Dataset":
        from coteach.data.base import Dataset

        return Dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
