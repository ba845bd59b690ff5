"""Open-sets: which images are swapped, by what, and that all else stays as it was."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.io import savemat

from coteach.data import cifar, load, openset
from coteach.paper.presets import asked_for
from coteach.paper.reproduce import measure_cells
from data_files import cifar_bytes, publish, write_folder, write_zip

RANDOM = np.random.default_rng(0)
TEN = {f"data_batch_{i}.bin": 20 for i in range(1, 6)} | {"test_batch.bin": 10}
HUNDRED = {"train.bin": 200, "test.bin": 100}


def images(n, red):
    """Random images whose first byte tells the source, and the second which image it is."""
    pixels = RANDOM.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    pixels[:, 0, 0, 0] = red
    pixels[:, 0, 0, 1] = np.arange(n) % 256
    return pixels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """CIFAR-10 with 10 training images a class (first byte 10), CIFAR-100 with two (first byte 100)."""
    monkeypatch.setattr(cifar, "CIFAR10", replace(cifar.CIFAR10, rows=TEN))
    monkeypatch.setattr(cifar, "CIFAR100", replace(cifar.CIFAR100, rows=HUNDRED))
    files = {
        f"cifar-10-batches-bin/{name}": cifar_bytes(np.arange(n) % 10, images(n, 10)) for name, n in TEN.items()
    }
    for name, n in HUNDRED.items():
        fine = np.arange(n) % 100
        files[f"cifar-100-binary/{name}"] = cifar_bytes(np.column_stack([fine // 5, fine]), images(n, 100))
    return write_folder(tmp_path, files)


def check_paper_style(data, clean, pool):
    """Four of ten images in each class are of the pool, none twice; labels and all others are unchanged."""
    assert torch.bincount(data.y_train[data.outside], minlength=10).tolist() == [4] * 10
    assert data.outside.dtype == torch.bool
    assert torch.equal(data.y_train, clean.y_train)
    assert torch.equal(data.x_train[~data.outside], clean.x_train[~data.outside])
    assert torch.equal(data.x_test, clean.x_test)
    swapped = {image.numpy().tobytes() for image in data.x_train[data.outside]}
    assert len(swapped) == 40
    assert swapped <= {image.tobytes() for image in pool}
    assert (data.n_classes, data.superclass) == (10, None)


def test_cifar100_as_the_paper_says(folder):
    clean, hundred = load("cifar10", folder), load("cifar100", folder)
    data = load("openset-cifar100", folder)
    truck = hundred.class_names.index("pickup_truck")
    check_paper_style(data, clean, hundred.x_train[hundred.y_train != truck].numpy())
    assert data.name == "openset-cifar100"
    assert torch.equal(data.x_train, load("openset-cifar100", folder, seed=0).x_train)
    assert not torch.equal(data.outside, load("openset-cifar100", folder, seed=1).outside)
    assert load("openset-cifar100", folder, rate=0.2).outside.sum() == 20
    assert (
        not (openset.cifar100_images(folder)[:, None] == hundred.x_train[hundred.y_train == truck].numpy())
        .all((2, 3, 4))
        .any()
    )


def test_cifar100_as_the_inventors_do(folder):
    clean, hundred = load("cifar10", folder), load("cifar100", folder)
    data = load("openset-cifar100", folder, style="authors")
    np.random.seed(0)
    chosen = np.random.choice(200, 40, replace=False)
    assert torch.equal(data.x_train, torch.cat([clean.x_train[:60], hundred.x_train[chosen]]))
    labels = np.concatenate([clean.y_train[:60], np.repeat(np.arange(10), 4)])
    assert np.array_equal(data.y_train, labels)
    assert data.outside.tolist() == [False] * 60 + [True] * 40
    assert torch.equal(data.x_test, clean.x_test)


def test_wrong_styles_and_rates_are_refused(folder):
    with pytest.raises(ValueError, match="no style 'papers': choose 'paper' or 'authors'"):
        load("openset-cifar100", folder, style="papers")
    for rate in (0, 1, -0.1):
        with pytest.raises(ValueError, match="outside images is not possible: choose one above 0 and below 1"):
            load("openset-cifar100", folder, style="authors", rate=rate)


def test_svhn(folder, monkeypatch):
    pool = images(60, 50)
    path = folder / "train_32x32.mat"
    savemat(path, {"X": pool.transpose(2, 3, 1, 0), "y": np.ones((60, 1), np.uint8)}, do_compression=True)
    publish(monkeypatch, "svhn", path)
    check_paper_style(load("openset-svhn", folder), load("cifar10", folder), pool)


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


@pytest.fixture
def batches(monkeypatch):
    """Two batches of ImageNet-32 with 100 usable images and 60 birds, whose first byte is 255."""
    monkeypatch.setattr(openset, "N_BATCHES", 2)
    labels = RANDOM.permutation([1] * 50 + [1000] * 50 + [400] * 60)
    pool = images(160, 32)
    pool[labels == 400, 0, 0, 0] = 255
    rows = pool.reshape(160, -1)
    files = {
        "train_data_batch_1.npz": npz(data=rows[:70], labels=labels[:70], mean=rows[0] / 2),
        "train_data_batch_2.npz": npz(data=rows[70:], labels=labels[70:], mean=rows[0] / 2),
    }
    return pool[labels != 400], files


@pytest.mark.parametrize("where", ["imagenet32", "zip"])
def test_imagenet32(folder, monkeypatch, batches, where):
    pool, files = batches
    if where == "zip":
        publish(monkeypatch, "imagenet32", write_zip(folder / "Imagenet32_train_npz.zip", files))
    else:
        write_folder(folder / where, files)
    check_paper_style(load("openset-imagenet32", folder), load("cifar10", folder), pool)
    drawn = [openset.imagenet32_images(folder, 30, seed) for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert len({image.tobytes() for image in drawn[0]} & {image.tobytes() for image in pool}) == 30


def header_that_promises_much():
    buffer = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 3072)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda data: data[:-30], "lacks an intact train_data_batch_2.npz"),
        (lambda data: None, "lacks an intact train_data_batch_2.npz"),
        (lambda data: npz(labels=np.ones(90)), "lacks an intact train_data_batch_2.npz"),
        (
            lambda data: npz(data=np.zeros((2, 3072), np.uint8), labels=np.array([None, "x"])),
            "lacks an intact",
        ),
        (
            lambda data: npz(data=np.zeros((2, 768), np.uint8), labels=np.ones(90)),
            r"uint8 images of shape \(2, 768\)",
        ),
        (lambda data: npz(data=np.zeros((90, 3072)), labels=np.ones(90)), "holds float64 images"),
        (
            lambda data: npz(data=np.zeros((2, 3072), np.uint8), labels=[400, 400]),
            "usable images instead of 100",
        ),
    ],
)
def test_a_wrong_imagenet32_is_named(folder, batches, spoil, message):
    files = batches[1]
    files["train_data_batch_2.npz"] = spoil(files["train_data_batch_2.npz"])
    write_folder(folder, {name: data for name, data in files.items() if data is not None})
    with pytest.raises(ValueError, match=f"{message}.*: delete it"):
        load("openset-imagenet32", folder)


def test_a_header_that_promises_too_much_reserves_nothing(folder, batches):
    files = batches[1]
    write_folder(folder, files)
    promise = {"labels.npy": npy(np.ones(90, int)), "data.npy": header_that_promises_much()}
    write_zip(folder / "train_data_batch_2.npz", promise)
    with pytest.raises(ValueError, match="lacks an intact train_data_batch_2.npz"):
        load("openset-imagenet32", folder)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_classes_left_out_of_imagenet32_are_counted():
    overlap = openset.OVERLAP_IMAGENET32
    assert (len(overlap), len(set(overlap.tolist())), overlap.min(), overlap.max()) == (225, 225, 2, 503)
    assert len(openset.DOGS.split()) == 118


# ---- the paper's Table 5 on these stand-ins -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openset", "openset-svhn", "openset-imagenet32"])
def test_table_5_can_be_measured(name, folder, monkeypatch, batches, tmp_path):
    """From the files as published to a cell of every method, two of Iterative's rounds among them."""
    path = folder / "train_32x32.mat"
    savemat(path, {"X": images(60, 50).transpose(2, 3, 1, 0), "y": np.ones((60, 1), np.uint8)})
    publish(monkeypatch, "svhn", path)
    write_folder(folder / "imagenet32", batches[1])
    wanted = asked_for(name, epochs=6, device="cpu")
    assert {cell.experiment.network_name for cell in wanted} == {"cnn7_printed", "cnn7_dense"}
    quick = [replace(cell, experiment=replace(cell.experiment, network="small_cnn")) for cell in wanted]
    files = measure_cells(quick, tmp_path / "results", folder, say=lambda line: None)
    records = [json.loads(path.read_text()) for path in files]
    methods = {record["summary"]["method"] for record in records}
    assert methods == {"standard", "mentornet", "coteaching", "coteaching_plus", "iterative"}
    for record in records:
        assert record["data"]["realised_rate"] == 0.4
        assert len(record["runs"][0]["curves"]["test_accuracy"]) == 6
