"""The data sets by name: every one can be described, looked for and read; digits need no file."""

import hashlib
import importlib
import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from coteach import data
from coteach.data.published import SOURCES, data_home
from data_files import write_folder

NAMES = """digits mnist fashion-mnist cifar10 cifar100 news tiny-imagenet
    cifar10n-aggre cifar10n-rand1 cifar10n-rand2 cifar10n-rand3 cifar10n-worst cifar100n
    openset-cifar100 openset-svhn openset-imagenet32"""


def test_names():
    assert list(data.DATASETS) == NAMES.split()


@pytest.mark.parametrize("name", data.DATASETS)
def test_every_data_set_has_a_reader_and_known_sources(name):
    description = data.DATASETS[name]
    module, function = description.reader.split(".")
    reader = getattr(importlib.import_module(f"coteach.data.{module}"), function)
    required = [p for p in inspect.signature(reader).parameters.values() if p.default is p.empty]
    assert not required
    assert set(description.sources) <= set(SOURCES)
    assert all((description.name, description.what, description.download, description.needs))


def test_importing_the_registry_does_not_import_torch():
    check = "import sys, coteach.data; coteach.data.status('nowhere'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize(
    "wrong, right", [("cifar-10", "cifar10"), ("MNIST", "mnist"), ("tinyimagenet", "tiny-imagenet")]
)
def test_an_unknown_name_suggests_the_nearest(wrong, right):
    with pytest.raises(ValueError) as refusal:
        data.load(wrong)
    everything = ", ".join(data.DATASETS)
    message = f"there is no data set {wrong!r} (did you mean {right!r}?): choose one of {everything}."
    assert str(refusal.value) == message


def test_a_name_like_no_other_lists_them_all():
    with pytest.raises(ValueError, match="choose one of digits, mnist, .*openset-imagenet32"):
        data.load("xyzzy")


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"news has no option 'spilt': its options are vectors, split\.$"):
        data.load("news", spilt="70/30")
    with pytest.raises(ValueError, match=r"digits has no option 'seed': its options are none\.$"):
        data.load("digits", seed=1)


def test_the_lazy_class_is_the_class():
    from coteach.data.base import Dataset

    assert data.Dataset is Dataset
    with pytest.raises(AttributeError, match="no attribute 'Datset'"):
        _ = data.Datset


def test_status_of_an_empty_folder(tmp_path):
    records = {record.name: record for record in data.status(tmp_path)}
    assert list(records) == NAMES.split()
    assert records.pop("digits").found == "scikit-learn"
    assert all(record.found is None and record.note.startswith("missing: ") for record in records.values())
    assert "image-net.org" in records["openset-imagenet32"].note
    assert list(tmp_path.iterdir()) == []


def test_pillow_is_asked_for_only_where_it_is_missing(tmp_path, monkeypatch):
    def note() -> str:
        return next(one.note for one in data.status(tmp_path) if one.name == "tiny-imagenet")

    assert note().endswith("download in all: 248 MB")
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert note().endswith("; needs Pillow: pip install pillow")


def test_status_says_where_and_what_is_missing(tmp_path):
    batches = {"cifar-10-batches-bin/data_batch_1.bin": b"", "20news-bydate/20news-bydate-train/x/1": b""}
    write_folder(tmp_path, batches | {"vectors/spacy.txt": b""})
    records = {record.name: record for record in data.status(tmp_path)}
    assert records["cifar10"].found == str(tmp_path / "cifar-10-batches-bin/data_batch_1.bin")
    assert "vectors/spacy.txt" in str(records["news"].found)
    assert records["openset-svhn"].found is None
    assert records["openset-svhn"].note.startswith("missing: svhn;")


def test_the_data_folder_is_the_argument_else_the_environment_else_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COTEACH_DATA", str(tmp_path / "environment"))
    assert data_home(tmp_path / "argument") == tmp_path / "argument"
    assert data_home() == tmp_path / "environment"
    monkeypatch.setenv("COTEACH_DATA", "")
    assert "coteach" in str(data_home())
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is a file: name the folder"):
        data_home(tmp_path / "file")


def test_digits_are_split_once_and_for_all():
    digits = data.load("digits")
    x, y = load_digits(return_X_y=True)
    assert (digits.x_train.shape, digits.x_test.shape) == ((1297, 64), (500, 64))
    assert digits.x_train.dtype == torch.float32
    assert (digits.x_train.min(), digits.x_train.max()) == (0, 1)
    together = torch.cat([digits.x_train, digits.x_test]).numpy() * 16
    labelled = np.column_stack([together, torch.cat([digits.y_train, digits.y_test])])
    assert sorted(map(tuple, labelled)) == sorted(map(tuple, np.column_stack([x, y])))
    share = torch.bincount(digits.y_test) / torch.bincount(torch.from_numpy(y))
    assert share.sub(500 / 1797).abs().max() < 1 / 170
    digest = hashlib.sha256(digits.x_train.numpy().astype("<f4").tobytes()).hexdigest()
    assert digest.startswith("93c6c9cab40f")
