"""Experiments from Python: the run folder and its contract, and what decides the bytes."""

import json
import math
import tomllib
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score

import coteach
from coteach import names
from coteach.data import Dataset
from coteach.engine import Engine, setup
from coteach.engine.setup import Setup
from coteach.losses import LOSSES
from coteach.methods import METHODS
from coteach.networks.models import pool_words
from coteach.noise import KINDS, Noise
from coteach.runs.experiment import Experiment
from coteach.runs.folder import read_rows
from coteach.runs.prepare import as_stored
from coteach.runs.run import run, run_together
from run_cases import experiment, silent

ROW = {
    "seed", "epoch", "test_accuracy", "ensemble_accuracy", "train_loss", "label_precision", "label_recall",
    "disagreement", "total_variation", "keep_rate", "kept", "events",
}  # fmt: skip


def test_the_names_of_the_command_line_are_those_of_the_registries():
    assert set(names.METHOD_MEANINGS) == set(METHODS)
    assert set(names.LOSS_MEANINGS) == set(LOSSES)
    assert set(names.NOISES) == set(KINDS) - {"clean"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fidelity", ["paper", "authors"])
def test_a_run_folder_keeps_the_contract(tmp_path, dataset, method, fidelity):
    e = experiment(tmp_path, method=method, fidelity=fidelity, rate=0.3, batch_size=16)
    result = run(e, dataset, say=silent)

    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert rows == result.rows
    assert [(row["seed"], row["epoch"]) for row in rows] == [(s, e) for e in (1, 2, 3) for s in (1, 2)]
    for row in rows:
        assert set(row) == ROW
        assert len(row["test_accuracy"]) == METHODS[method].networks
        shares = [*row["test_accuracy"], row["ensemble_accuracy"], row["keep_rate"]]
        shares += [row[k] for k in ("label_precision", "label_recall", "disagreement", "total_variation")]
        assert all(0 <= share <= 1 for share in shares if share is not None)
        assert row["total_variation"] is None or METHODS[method].networks == 2
        assert 0 <= row["kept"] <= 16

    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["experiment"]["method"] == method
    assert config["plan"]["network"] == "mlp"
    held = 12 if method.startswith("f_correction") else 0
    assert config["data"]["samples_left_out_of_each_epoch"] == held + (120 - held) % 16
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    per_seed = [
        100 * np.mean([np.mean(row["test_accuracy"]) for row in rows if row["seed"] == seed]) for seed in (1, 2)
    ]
    assert summary["mean"] == pytest.approx(np.mean(per_seed))
    assert summary["std"] == pytest.approx(np.std(per_seed, ddof=1))
    draw = Noise.load(tmp_path / "run" / "noise.safetensors")
    assert draw.sha256 == summary["noise_sha256"]
    finals = [100 * row["ensemble_accuracy"] for row in rows if row["epoch"] == 3]
    assert summary["last_per_seed"] == finals
    assert summary["last"] == pytest.approx(np.mean(finals))
    found = summary["average_precision_per_seed"]
    if METHODS[method].in_rounds:
        assert (found, summary["average_precision"]) == ([None, None], None)
    else:
        opinions = [load_file(tmp_path / f"run/opinions/seed-{seed}.safetensors")["quality"] for seed in (1, 2)]
        assert found == pytest.approx([average_precision_score(~draw.clean, 1 - q.double()) for q in opinions])
        assert summary["average_precision"] == pytest.approx(np.mean(found))
    assert (tmp_path / "run" / "estimate.jsonl").exists() == (method == "f_correction")
    assert (tmp_path / "run" / "opinions").exists() == (not METHODS[method].in_rounds)


@pytest.mark.parametrize(
    "changes",
    [{"noise": None}, {"noise": "pair", "rate": 0.0}, {"ledger": False}],
    ids=["own", "clean", "no ledger"],
)
def test_how_well_wrong_labels_are_found_is_not_said_where_nobody_knows(tmp_path, dataset, changes):
    summary = run(experiment(tmp_path, epochs=1, **changes), dataset, say=silent).summary
    assert (summary["average_precision"], summary["average_precision_per_seed"]) == (None, [None, None])
    assert summary["last"] > 0


def test_images_of_no_class_are_no_wrong_labels(tmp_path, dataset):
    outside = replace(dataset, outside=torch.arange(120) < 40)
    result = run(experiment(tmp_path, noise="none", epochs=1), outside, say=silent)
    assert (result.summary["noise"], result.summary["average_precision"]) == ("openset", None)
    assert (result.folder / "opinions" / "seed-1.safetensors").exists()


@pytest.mark.parametrize("method", ["coteaching", "f_correction", "cotraining"])
def test_what_the_networks_thought_of_the_labels_is_kept(tmp_path, dataset, method):
    result = run(experiment(tmp_path, method=method, rate=0.3, batch_size=16), dataset, say=silent)
    draw = Noise.load(result.folder / "noise.safetensors")
    rows = read_rows(result.folder / "losses.jsonl")
    # its networks learn labels of their own, once they teach each other: no losses of the given ones
    epochs = (1,) if method == "cotraining" else (1, 2, 3)
    assert [(row["seed"], row["epoch"]) for row in rows] == [(s, e) for e in epochs for s in (1, 2)]
    for row in rows:
        learnt = 108 if method == "f_correction" else 120
        dealt = METHODS[method].networks * (learnt - learnt % 16)
        assert sum(row["right"]) + sum(row["wrong"]) == dealt
        assert sum(row["wrong"]) == pytest.approx(dealt * draw.rate, rel=0.2)
    for seed in (1, 2):
        opinions = load_file(result.folder / "opinions" / f"seed-{seed}.safetensors")
        quality, suggested = opinions["quality"].numpy(), opinions["suggested"].numpy()
        assert quality.shape == suggested.shape == (120,)
        assert ((quality >= 0) & (quality <= 1)).all()
        seen = quality != 0.5  # one epoch alone leaves some out of its batches
        assert seen.mean() > 0.9
        assert (suggested != draw.labels)[seen].all()
        if method == "coteaching":
            assert quality[draw.clean].mean() > quality[~draw.clean].mean() + 0.1


def test_without_a_ledger_the_rest_is_the_same(tmp_path, dataset):
    e = experiment(tmp_path, rate=0.3)
    kept, plain = (
        run(e, dataset, say=silent),
        run(replace(e, out=tmp_path / "b", ledger=False), dataset, say=silent),
    )
    assert {p.name for p in kept.folder.iterdir()} - {p.name for p in plain.folder.iterdir()} == {
        "losses.jsonl", "opinions",
    }  # fmt: skip
    for name in ("metrics.jsonl", "networks/seed-2.safetensors"):
        assert (kept.folder / name).read_bytes() == (plain.folder / name).read_bytes()


def test_the_last_ten_epochs_are_summed_up_as_in_the_papers_tables(tmp_path, dataset):
    result = run(experiment(tmp_path, epochs=14, method="standard", batch_size=16), dataset, say=silent)
    rows = [[r["test_accuracy"][0] for r in result.rows if r["seed"] == seed][-10:] for seed in (1, 2)]
    assert result.summary["mean"] == pytest.approx(100 * np.mean(rows))
    assert result.summary["max"] == pytest.approx(100 * np.mean([max(row) for row in rows]))


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_goes_with_every_method(tmp_path, dataset, loss):
    for method in METHODS:
        e = experiment(tmp_path, method=method, loss=loss, epochs=2, seeds=(1,), out=tmp_path / method)
        result = run(e, dataset, say=silent)
        assert all(math.isfinite(row["train_loss"]) for row in result.rows if row["train_loss"] is not None)
        assert "non_finite_loss" not in result.summary["events"]


def test_losses_are_not_all_the_same(tmp_path, dataset):
    results = [
        run(experiment(tmp_path, method="coteaching", loss=loss, out=tmp_path / loss), dataset, say=silent)
        for loss in LOSSES
    ]
    assert len({result.rows[0]["train_loss"] for result in results}) == len(LOSSES)


def test_the_same_command_writes_the_same_bytes(tmp_path, dataset):
    for folder in ("a", "b"):
        torch.rand(3)  # the global generator's state must not matter
        run(experiment(tmp_path, out=tmp_path / folder), dataset, say=silent)
    first, second = ((tmp_path / f / "metrics.jsonl").read_bytes() for f in ("a", "b"))
    assert first == second
    run(experiment(tmp_path, out=tmp_path / "c", seeds=(1, 3)), dataset, say=silent)
    assert (tmp_path / "c" / "metrics.jsonl").read_bytes() != first


def test_a_run_leaves_the_global_state_as_it_was(tmp_path, dataset):
    torch.manual_seed(5)
    before = (
        torch.random.get_rng_state().clone(),
        np.random.get_state(legacy=False)["state"]["key"].copy(),
        torch.get_num_threads(),
    )
    run(experiment(tmp_path), dataset, say=silent)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state(legacy=False)["state"]["key"] == before[1]).all()
    assert torch.get_num_threads() == before[2]


def test_experiments_run_together_as_they_run_alone(tmp_path, dataset):
    """In float32 round-off may turn a sample in a thousand; the labels and the first epoch must agree."""
    several = [
        experiment(tmp_path, noise=noise, rate=rate, method="coteaching", out=tmp_path / noise)
        for noise, rate in (("pair", 0.45), ("symmetric", 0.5), ("none", None))
    ]
    together = run_together(several, dataset, say=silent)
    for e, result in zip(several, together, strict=True):
        alone = run(replace(e, out=tmp_path / f"{e.noise}-alone"), dataset, say=silent)
        assert alone.summary["noise_sha256"] == result.summary["noise_sha256"]
        assert alone.rows[0]["train_loss"] == pytest.approx(result.rows[0]["train_loss"], rel=1e-4)
        assert alone.rows[0]["keep_rate"] == result.rows[0]["keep_rate"]


def test_only_noise_and_seeds_may_differ_between_experiments_that_run_together(tmp_path, dataset):
    several = [experiment(tmp_path), experiment(tmp_path, method="standard", lr=0.1, out=tmp_path / "b")]
    with pytest.raises(ValueError, match="same lr, method"):
        run_together(several, dataset, say=silent)


def test_tau_is_what_the_method_is_told_and_rate_what_is_done(tmp_path, dataset):
    e = experiment(tmp_path, rate=0.4, tau=0.1, ramp=1)
    result = run(e, dataset, say=silent)
    assert result.rows[-1]["keep_rate"] == pytest.approx(0.9)
    assert result.summary["realised_rate"] == pytest.approx(0.4, abs=0.15)


def test_own_data_keep_their_labels_and_are_asked_for_tau(tmp_path, dataset):
    lines: list[str] = []
    e = replace(experiment(tmp_path), noise=None, method="coteaching")
    result = run(e, dataset, say=lines.append)
    assert (result.summary["noise"], result.summary["rate"], result.summary["realised_rate"]) == ("none", 0, None)
    assert any("give tau" in line for line in lines)
    lines.clear()
    result = run(replace(e, tau=0.3, out=tmp_path / "b"), dataset, say=lines.append)
    assert not any("give tau" in line for line in lines)
    assert result.rows[-1]["keep_rate"] == pytest.approx(0.7)


def test_open_set_noise_is_measured_on_images_and_can_be_read_back(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    y, outside = torch.arange(40) % 2, torch.arange(40) % 5 < 2
    mixed = Dataset("openset-svhn", torch.from_numpy(x), y, torch.from_numpy(x), y, ("a", "b"), outside=outside)
    e = replace(experiment(tmp_path, epochs=2, network="mlp", seeds=(1,)), noise=None)
    result = run(e, mixed, say=silent)
    assert (result.summary["noise"], result.summary["rate"], result.summary["realised_rate"]) == (
        "openset",
        0.4,
        0.4,
    )
    noise = Noise.load(tmp_path / "run" / "noise.safetensors")
    assert (noise.clean == ~outside.numpy()).all()
    assert (noise.labels == y.numpy()).all()
    with pytest.raises(ValueError, match="comes with its own noise"):
        run(replace(e, noise="pair", out=tmp_path / "b"), mixed, say=silent)


def test_nobody_knows_which_of_ones_own_labels_are_right(tmp_path, dataset):
    own = run(Experiment(method="coteaching", tau=0.2, epochs=2, out=tmp_path / "own"), dataset, say=silent)
    assert own.summary["label_precision"] is None
    assert own.summary["realised_rate"] is None
    assert all(row["label_precision"] is row["label_recall"] is None for row in own.rows)
    made = run(Experiment(noise="pair", rate=0.2, epochs=2, out=tmp_path / "made"), dataset, say=silent)
    assert made.summary["realised_rate"] == pytest.approx(0.2, abs=0.1)
    assert made.rows[0]["label_precision"] is not None


@pytest.mark.usefixtures("nothing_stays_registered")
def test_a_network_of_ones_own(tmp_path, dataset):
    def narrow(shape, n_classes):
        return torch.nn.Sequential(torch.nn.Linear(shape[0], 2), torch.nn.ReLU(), torch.nn.Linear(2, n_classes))

    with pytest.raises(ValueError, match="register_network"):
        run(Experiment(network=narrow, epochs=1), dataset)
    coteach.register_network("narrow", narrow)
    with pytest.raises(ValueError, match="'narrow' already"):
        coteach.register_network("narrow", narrow)
    result = run(experiment(tmp_path, network="narrow"), dataset, say=silent)
    assert result.network()[0].weight.shape == (2, 5)
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["plan"]["network"] == "narrow"


def test_views_of_ones_own(tmp_path, dataset):
    def columns(x_RB: torch.Tensor, networks: int) -> torch.Tensor:
        assert networks == 2
        return torch.stack([x_RB * torch.tensor([1.0, 0, 0, 0, 0]), x_RB * torch.tensor([0, 1.0, 1, 1, 1])])

    halves = run(experiment(tmp_path, method="cotraining"), dataset, say=silent)
    own = run(experiment(tmp_path, method="cotraining", out=tmp_path / "b"), dataset, view=columns, say=silent)
    assert own.rows[0]["train_loss"] != halves.rows[0]["train_loss"]
    assert own.rows[0]["label_precision"] is not None  # the given labels
    assert own.rows[-1]["label_precision"] is None  # the peer's


def test_paths_may_be_strings_and_seeds_a_list(tmp_path, dataset):
    result = run(Experiment(out=str(tmp_path / "run"), seeds=[1, 2], epochs=1, device="cpu"), dataset, say=silent)
    assert result.folder == tmp_path / "run"
    assert result.summary["seeds"] == [1, 2]


def test_the_noise_seed_is_apart_from_the_networks_seed(tmp_path, dataset):
    def noise(out: str, **changes) -> str:
        return run(experiment(tmp_path, out=tmp_path / out, **changes), dataset, say=silent).summary[
            "noise_sha256"
        ]

    assert noise("a") == noise("b", seeds=(7,)) != noise("c", noise_seed=1)
    assert noise("d", noise="pair") != noise("e", noise="pair", noise_stream="1.17")


def test_the_first_training_of_f_correction_can_be_cut_short(tmp_path, dataset):
    run(experiment(tmp_path, method="f_correction", estimate_epochs=2), dataset, say=silent)
    assert [row["epoch"] for row in read_rows(tmp_path / "run" / "estimate.jsonl")] == [1, 1, 2, 2]
    assert len(read_rows(tmp_path / "run" / "metrics.jsonl")) == 6


def test_a_matrix_of_ones_own(tmp_path, dataset):
    (tmp_path / "q.txt").write_text("0.6 0.4 0\n0 1 0\n0 0.2 0.8\n")
    run(experiment(tmp_path, noise="matrix", matrix=tmp_path / "q.txt"), dataset, say=silent)
    noise = Noise.load(tmp_path / "run" / "noise.safetensors")
    assert noise.nominal_rate == pytest.approx(0.2)
    assert noise.matrix[0].tolist() == [0.6, 0.4, 0]


def test_events_are_counted_and_told(tmp_path):
    """Two networks on one constant sample agree on everything, or one of them would have to be wrong always."""
    x = np.zeros((40, 2))
    dataset = Dataset.from_arrays(x, np.arange(40) % 2, x, np.arange(40) % 2)
    lines: list[str] = []
    result = run(experiment(tmp_path, batch_size=8, seeds=(1, 2, 3, 4)), dataset, say=lines.append)
    assert result.summary["events"]["one_class"] > 0
    assert result.summary["events"]["no_disagreement"] > 0
    assert any("one class" in line for line in lines)
    assert any("nothing to pick" in line for line in lines)
    total = sum(row["events"].get("no_disagreement", 0) for row in result.rows)
    assert total == result.summary["events"]["no_disagreement"]


def test_an_overflow_is_an_event_not_a_crash(tmp_path, dataset):
    x = np.full((120, 5), 3e38)  # finite, but not its sum over features
    huge = Dataset.from_arrays(x, dataset.y_train, x, dataset.y_test)
    result = run(experiment(tmp_path, method="standard"), huge, say=silent)
    assert result.summary["events"]["non_finite_loss"] > 0


@pytest.mark.parametrize("network, pooling", [("news", "words"), ("news_flat", "flat")])
def test_documents_are_pooled_as_their_network_would(tmp_path, network, pooling):
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (300, 40), dtype=np.int32))
    vectors = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    posts = Dataset(
        "posts", tokens, torch.arange(300) % 2, tokens, torch.arange(300) % 2, ("a", "b"), vectors=vectors
    )
    stored = as_stored(tokens, experiment(tmp_path, network=network), posts, "cpu")
    assert torch.equal(stored, pool_words(tokens, vectors, pooling))
    result = run(experiment(tmp_path, network=network, epochs=1, batch_size=50), posts, say=silent)
    torch.testing.assert_close(result.network()(stored), result.network()(tokens))


def test_the_public_names_are_there():
    for name in coteach.__all__:
        assert getattr(coteach, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'teach'"):
        coteach.teach  # noqa: B018


def test_the_gpu_that_is_asked_for_is_the_current_one(monkeypatch):
    """Or graphs would be recorded on the first, where nothing happens, whatever --device says."""
    assert setup.current("cuda:1").idx == 1
    assert isinstance(setup.current("cpu"), nullcontext)
    entered = []
    monkeypatch.setattr(setup, "current", lambda device: nullcontext(entered.append(device)))
    with Setup("cuda:1", Engine(), 1).active():
        assert entered == ["cuda:1"]


@pytest.mark.parametrize("users", ["default", "warn", "error"])
def test_deterministic_algorithms_are_then_as_the_user_has_them(users):
    torch.set_deterministic_debug_mode(users)
    try:
        with Setup("cpu", Engine(), 1, deterministic=True).active():
            assert torch.get_deterministic_debug_mode() == 2
        with Setup("cpu", Engine(), 1).active():
            assert torch.get_deterministic_debug_mode() == {"default": 0, "warn": 1, "error": 2}[users]
        assert torch.get_deterministic_debug_mode() == {"default": 0, "warn": 1, "error": 2}[users]
    finally:
        torch.set_deterministic_debug_mode("default")


def test_numbers_of_numpy_are_written_as_pythons(tmp_path, dataset):
    numbers = {"seeds": tuple(np.arange(2)), "epochs": np.int64(2), "batch_size": np.int64(16)}
    numbers |= {"tau": np.float32(0.25), "noise_seed": np.int64(3), "lr": np.float32(0.5)}
    result = run(experiment(tmp_path, **numbers), dataset, say=silent)
    assert "batch_size = 16\n" in (result.folder / "config.toml").read_text()
    assert json.loads((result.folder / "summary.json").read_text())["seeds"] == [0, 1]


def test_what_is_not_finite_is_null(tmp_path, dataset):
    """Weights of 1e30 overflow: there is no total variation to speak of, and NaN is not JSON."""
    result = run(experiment(tmp_path, method="coteaching", lr=1e30), dataset, say=silent)
    assert result.rows[-1]["total_variation"] is None
    for line in (result.folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_open_sets_of_another_mixture_do_not_run_together(tmp_path):
    """They are other images; the first's would have been taken for all."""
    several = [Experiment(dataset="openset-cifar100", rate=rate, out=tmp_path / f"{rate}") for rate in (0.2, 0.4)]
    with pytest.raises(ValueError, match="one by one"):
        run_together(several)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_run_learns_where_gradients_are_off(mode, tmp_path, dataset):
    with mode():
        off = run(experiment(tmp_path, out=tmp_path / "off"), dataset, say=silent)
    on = run(experiment(tmp_path, out=tmp_path / "on"), dataset, say=silent)
    assert [row["train_loss"] for row in off.rows] == [row["train_loss"] for row in on.rows]
