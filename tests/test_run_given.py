"""Runs on labels that came with the data: those of people, those of a file, those handed in."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from coteach.cli import main
from coteach.data import Dataset, cifar, load
from coteach.noise import Noise
from coteach.report.groups import groups_of
from coteach.report.labels import heat_maps
from coteach.report.page import report_page
from coteach.report.read import read_run
from coteach.runs import prepare
from coteach.runs.experiment import Experiment
from coteach.runs.folder import default_folder
from coteach.runs.run import run, run_together
from coteach.terminal import console
from run_cases import experiment, silent
from test_data_cifarn import COLUMNS


def with_labels(tmp_path, **changes):
    return experiment(tmp_path, **({"noise": None, "epochs": 2, "seeds": (1,), "batch_size": 16} | changes))


@pytest.fixture
def given(dataset):
    """Labels of which the first thirty are wrong."""
    labels = dataset.y_train.numpy().copy()
    labels[:30] = (labels[:30] + 1) % 3
    return labels


@pytest.fixture
def file(tmp_path, given):
    np.save(tmp_path / "people.npy", given)
    return tmp_path / "people.npy"


def check_run(folder, given, truth, kind):
    """What a run says of its labels, wherever they came from."""
    draw = Noise.load(folder / "noise.safetensors")
    assert (draw.kind, draw.rate, draw.nominal_rate) == (kind, 0.25, 0.25)
    assert np.array_equal(draw.labels, given)
    assert np.array_equal(draw.clean, given == truth)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["noise"], summary["rate"], summary["realised_rate"]) == (kind, 0.25, 0.25)
    assert summary["noise_sha256"] == draw.sha256
    assert summary["label_precision"] is not None


def test_labels_of_a_file_are_learnt_from_and_others_are_the_truth(tmp_path, dataset, given, file, monkeypatch):
    seen = []
    real = prepare.make_problem
    monkeypatch.setattr(prepare, "make_problem", lambda *a: seen.append(real(*a)) or seen[-1])
    lines = []
    result = run(with_labels(tmp_path, labels=file), dataset, say=lines.append)
    problem, reference = seen[0]
    assert np.array_equal(problem.y_RM[0], given)
    assert problem.noise_rates == [0.25]
    assert np.array_equal(reference.clean_RM[0], given == dataset.y_train.numpy())
    assert problem.matrix_RCC[0].diagonal().tolist() == [0.75] * 3
    check_run(result.folder, given, dataset.y_train.numpy(), "given")
    assert not [line for line in lines if "chance" in line or "tau" in line]


def test_labels_that_are_handed_in_are_taken_in_the_same_way(tmp_path, dataset, given, file):
    x, y = dataset.x_train, dataset.y_train
    own = Dataset.from_arrays(x, y, dataset.x_test, dataset.y_test, given=given)
    assert (own.given.dtype, own.y_train.tolist()) == (torch.int64, y.tolist())
    mine = run(with_labels(tmp_path, out=tmp_path / "a"), own, say=silent)
    check_run(mine.folder, given, y.numpy(), "given")
    theirs = run(with_labels(tmp_path, out=tmp_path / "b", labels=file), dataset, say=silent)
    assert mine.rows == theirs.rows
    samples = [(x[i].numpy(), int(y[i])) for i in range(120)]
    streamed = Dataset.from_samples(samples, samples, given=given)
    assert streamed.given.tolist() == given.tolist()


def test_own_labels_without_a_truth_stay_as_they_were(tmp_path, dataset):
    lines = []
    result = run(with_labels(tmp_path), dataset, say=lines.append)
    assert (result.summary["noise"], result.summary["realised_rate"]) == ("none", None)
    assert result.summary["label_precision"] is None
    assert any("every label is taken for right" in line for line in lines)


def test_a_rate_that_is_told_goes_before_the_true_one(tmp_path, dataset, file):
    problem = prepare.prepare([with_labels(tmp_path, labels=file, dataset="own", tau=0.4)], dataset, None).problem
    assert problem.noise_rates == [0.4]


@pytest.mark.parametrize("method", ["f_correction_known", "f_correction", "jocor"])
def test_every_kind_of_method_takes_them(tmp_path, dataset, file, method):
    result = run(with_labels(tmp_path, labels=file, method=method), dataset, say=silent)
    assert result.summary["mean"] > 20


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"noise": "pair"}, "people.npy are learnt from as they are: leave --noise out"),
        ({"noise": "symmetric", "rate": 0.2}, "leave --noise out"),
        ({"rate": 0.2}, "leave --rate out"),
        ({"dataset": "openset-cifar100"}, "its own wrong labels: leave --labels out"),
        ({"dataset": "cifar10n-worst"}, "its own wrong labels: leave --labels out"),
        ({"labels": 7}, "not the name of a file"),
        ({"labels": np.arange(3)}, "not the name of a file: hand arrays in with"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(tmp_path, file, changes, words):
    with pytest.raises(ValueError, match=words) as refusal:
        replace(with_labels(tmp_path, labels=file), **changes).check()
    assert "\n" not in str(refusal.value)


def test_what_only_the_data_set_tells_is_refused(tmp_path, dataset, given, file):
    both = replace(dataset, given=torch.from_numpy(given))
    with pytest.raises(ValueError, match="own comes with its own wrong labels: leave --labels out"):
        run(with_labels(tmp_path, labels=file), both, say=silent)
    with pytest.raises(ValueError, match="own comes with given labels: leave --noise out"):
        run(with_labels(tmp_path, noise="pair"), both, say=silent)
    few = Dataset.from_arrays(np.eye(20), np.arange(20) % 3, np.eye(20), np.arange(20) % 3)
    with pytest.raises(ValueError, match="people.npy has 120 labels for 20 training samples"):
        run(with_labels(tmp_path, labels=file), few, say=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "wrong, words",
    [
        (np.arange(119) % 3, "120 samples but 119 labels"),
        (np.full(120, 0.5), "labels must be integers"),
        (np.full(120, -1), "found -1"),
    ],
)
def test_given_labels_that_are_none_are_refused(dataset, wrong, words):
    x, y = dataset.x_train, dataset.y_train
    with pytest.raises(ValueError, match=words):
        Dataset.from_arrays(x, y, x, y, given=wrong)
    with pytest.raises(ValueError, match="from 0 to 2; found 3"):
        Dataset.from_arrays(x, y, x, y, class_names=("a", "b", "c"), given=y + 1)
    assert Dataset.from_arrays(x, y, x, y, given=y + 1).n_classes == 4


def test_labels_in_another_order_are_told(tmp_path, dataset):
    np.savetxt(tmp_path / "l.txt", np.sort(dataset.y_train.numpy()), fmt="%d")
    lines = []
    run(with_labels(tmp_path, labels=tmp_path / "l.txt"), dataset, say=lines.append)
    assert any("l.txt agree with the truth no more than by chance" in line for line in lines)


def test_a_run_that_was_stopped_goes_on_with_its_labels_and_no_others(tmp_path, dataset, given, file):
    def stop(epoch):
        raise KeyboardInterrupt

    e = with_labels(tmp_path, labels=file)
    for out in ("a", "b"):
        with pytest.raises(KeyboardInterrupt):
            run(replace(e, out=tmp_path / out), dataset, say=silent, on_epoch=stop)
    config = tomllib.loads((tmp_path / "a" / "config.toml").read_text())
    assert config["experiment"]["labels"] == str(file)
    resumed = run(Experiment(resume=tmp_path / "a"), dataset, say=silent)
    assert resumed.rows == run(e, dataset, say=silent).rows
    np.save(file, (given + 1) % 3)
    with pytest.raises(ValueError, match="was begun with data.noise_sha256"):
        run(Experiment(resume=tmp_path / "b"), dataset, say=silent)


def test_experiments_on_labels_of_several_files_run_together(tmp_path, dataset, given, file):
    np.savetxt(tmp_path / "truth.txt", dataset.y_train.numpy(), fmt="%d")
    alone = [
        with_labels(tmp_path, labels=file, out=tmp_path / "a"),
        with_labels(tmp_path, labels=tmp_path / "truth.txt", out=tmp_path / "b"),
        with_labels(tmp_path, noise="pair", rate=0.3, out=tmp_path / "c"),
    ]
    together = run_together(alone, dataset, say=silent)
    assert [result.summary["rate"] for result in together] == [0.25, 0.0, 0.3]
    assert [result.summary["noise"] for result in together] == ["given", "given", "pair"]
    one = run(replace(alone[0], out=tmp_path / "d"), dataset, say=silent)
    assert one.rows[-1]["label_precision"] == pytest.approx(together[0].rows[-1]["label_precision"], abs=0.1)


def test_a_report_shows_them(tmp_path, dataset, file):
    folder = run(with_labels(tmp_path, labels=file), dataset, say=silent).folder
    done = read_run(folder)
    assert done.truth_known
    (group,) = groups_of([done])
    assert group.noise == "given 25 %"
    assert group.common["labels"] == f"labels of {file}"
    assert [m.caption for m in heat_maps(done)][-1].startswith("True flips that came out")
    assert "people.npy" in report_page([done])


# ---- people's labels ------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_cifar10n(monkeypatch):
    """Twenty-four noisy images with the labels of people, of which a quarter is wrong."""
    y = np.arange(24) % 10
    images = np.random.default_rng(0).integers(0, 255, (24, 3, 32, 32), dtype=np.uint8)
    given = y.copy()
    given[:6] = (given[:6] + 1) % 10
    x, y, given = map(torch.from_numpy, (images, y, given))
    return Dataset("cifar10n-worst", x, y, x[:10], y[:10], cifar.TEN, given=given)


def test_labels_of_people_are_learnt_from(tmp_path, tiny_cifar10n):
    e = with_labels(tmp_path, dataset="cifar10n-worst", recipe="paper", epochs=1, batch_size=8)
    result = run(e, tiny_cifar10n, say=silent)
    check_run(result.folder, tiny_cifar10n.given.numpy(), tiny_cifar10n.y_train.numpy(), "human")
    assert (result.summary["dataset"], result.summary["network"]) == ("cifar10n-worst", "small_cnn")
    (group,) = groups_of([read_run(result.folder)])
    assert group.title == "cifar10n-worst, human 25 %"


@pytest.mark.parametrize("name", [*COLUMNS, "cifar100n"])
def test_their_recipe_is_that_of_the_images(name):
    usual = Experiment(dataset=name.partition("n")[0])
    assert Experiment(dataset=name, recipe="paper").plan() == usual.plan()
    assert Experiment(dataset=name, recipe="paper").network_name == usual.network_name
    assert Experiment(dataset=name).plan() == replace(usual, recipe="modern").plan()  # unless asked otherwise
    assert Experiment(dataset=name).network_name == "fast_cnn"
    assert Experiment(dataset=name).noise_kind == "none"
    assert Experiment(dataset=name).noise_share is None
    assert Experiment(dataset=name).noise_name == "human"
    Experiment(dataset=name, noise="none").check()
    with pytest.raises(ValueError, match=f"the labels of {name} are learnt from as they are: leave --noise out"):
        Experiment(dataset=name, noise="symmetric").check()
    with pytest.raises(ValueError, match="leave --rate out"):
        Experiment(dataset=name, rate=0.4).check()


def test_folders_are_named_after_the_labels(tmp_path):
    named = {
        "cifar10n-worst-coteaching-modern": Experiment(dataset="cifar10n-worst", method="coteaching"),
        "digits-coteaching-people-paper": Experiment(method="coteaching", labels="some/people.npy"),
        "digits-coteaching-symmetric-0.2-paper": Experiment(method="coteaching"),
    }
    assert [default_folder(e).name for e in named.values()] == list(named)


# ---- the command line -----------------------------------------------------------------------------------------


def digits_with_mistakes():
    labels = load("digits").y_train.numpy().copy()
    labels[::4] = (labels[::4] + 1) % 10
    return labels


def test_the_command_takes_a_file_and_says_what_it_found(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},{label}" for i, label in enumerate(digits_with_mistakes())]
    Path("people.csv").write_text("\n".join(["id,label", *lines]))
    main("run --labels people.csv --method coteaching --epochs 1 --warmup 0 --device cpu".split())
    said = capsys.readouterr().out
    assert "wrong labels found, average precision" in said
    assert "ensemble, last epoch" in said
    summary = json.loads(Path("runs/digits-coteaching-people-paper/summary.json").read_text())
    assert (summary["noise"], summary["dataset"]) == ("given", "digits")
    assert summary["rate"] == pytest.approx(0.25, abs=0.001)


@pytest.mark.parametrize("words", ["people.csv", "people.csv --noise pair", "nowhere.npy"])
def test_the_command_refuses_in_a_sentence(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("label\n1\n2\n")
    with pytest.raises(SystemExit) as stop:
        main(["run", "--labels", *words.split()])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_the_list_of_data_sets_says_the_licence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(console, "width", 300)  # a console asks for COLUMNS once, when it is made
    main(["data", "--data-dir", str(tmp_path)])
    said = capsys.readouterr().out
    assert "cifar10n-worst" in said
    assert said.count("(CC BY-NC 4.0)") == 6
