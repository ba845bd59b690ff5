"""What a run refuses, in one sentence and with nothing written, and what it takes where nothing is said."""

import re
from pathlib import Path

import numpy as np
import pytest

from coteach.data import Dataset
from coteach.runs.experiment import Experiment, shrunk
from coteach.runs.run import run, run_together
from run_cases import experiment, silent

# ---- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"method": "coteaching_pluss"}, "did you mean 'coteaching_plus'"),
        ({"noise": "pairs"}, "did you mean 'pair'"),
        ({"loss": "softmax"}, "choose one of"),
        ({"network": "mpl"}, "did you mean 'mlp'"),
        ({"fidelity": "author"}, "must begin with 'paper' or 'authors'"),
        ({"fidelity": "paper+flor"}, "did you mean 'floor'"),
        ({"rate": -0.1}, "rate is -0.1"),
        ({"rate": 1.0}, "rate is 1.0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"tau": 1.5}, r"tau \(the noise rate\) is 1.5"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 121}, "there are 120 samples"),
        ({"ramp": 4}, "only 3 epochs"),
        ({"warmup": 3}, "leaves none of the 3 epochs"),
        ({"warmup": -1}, "warmup is -1"),
        ({"method": "f_correction", "estimate_epochs": 4}, "of only 3 epochs"),
        ({"lr": 0.0}, "learning rate above 0"),
        ({"method": "jocor", "joint_weight": 1.5}, "a share from 0 to 1"),
        ({"steps_per_epoch": 0}, "at least 1"),
        ({"decay_start": 0}, "decay_start is 0"),
        ({"warmup_loss": "softmax"}, "choose one of"),
        ({"warmup_loss": "gce", "warmup": 0}, "give warmup, too"),
        ({"warmup_loss": "gce", "epochs": 1, "ramp": 1}, "and more epochs than that"),
        ({"warmup_loss": "gce", "loss": "gce"}, "as loss is"),
        ({"warmup_loss": "gce", "dataset": "mnist"}, "give warmup, too"),
        ({"warmup_loss": "gce", "method": "f_correction_known"}, "f_correction_known has no warm-up"),
        ({"warmup_loss": "gce", "method": "iterative"}, "iterative has no warm-up"),
        ({"seeds": ()}, "one or more whole numbers"),
        ({"seeds": (1.5,)}, "one or more whole numbers"),
        ({"seeds": "12"}, "one or more whole numbers"),
        ({"seeds": 3}, "one or more whole numbers"),
        ({"epochs": 2.5}, "epochs is 2.5"),
        ({"epochs": "2"}, "epochs is '2'"),
        ({"rate": "0.2"}, "rate is 0.2"),
        ({"optimizer": "adamw"}, "no optimizer 'adamw'"),
        ({"keep_type": 3}, "keep_type is 3"),
        ({"fidelity": None}, "must begin with"),
        ({"device": 0}, "no device 0"),
        ({"device": "meta"}, "no device 'meta'"),
        ({"noise_seed": -1}, "noise_seed is -1"),
        ({"noise": "none", "rate": 0.4}, "no rate to set"),
        ({"seeds": (1, 1)}, "repeat"),
        ({"device": "cuda:99"}, "device"),
        ({"device": "gpu"}, "device"),
        ({"noise": "matrix"}, "go together"),
        ({"matrix": Path("q.txt")}, "go together"),
        ({"noise": "matrix", "matrix": Path("nowhere.txt")}, "nowhere.txt cannot be read"),
        ({"noise": "asymmetric"}, "superclasses"),
        ({"network": "cnn7"}, "cnn7 cannot take"),
    ],
)
def test_a_mistake_is_refused_in_one_sentence_and_nothing_is_written(tmp_path, dataset, changes, words):
    with pytest.raises(ValueError, match=words) as refusal:
        run(experiment(tmp_path, **changes), dataset, say=silent)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_data_set_is_refused_and_an_own_one_must_be_handed_in(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        run(experiment(tmp_path, dataset="minst"), say=silent)
    with pytest.raises(ValueError, match="hand it in"):
        run(experiment(tmp_path, dataset="own"), say=silent)


def test_own_data_are_named_and_get_a_network_for_their_shape(tmp_path, dataset):
    result = run(experiment(tmp_path), dataset, say=silent)
    assert (result.summary["dataset"], result.summary["network"]) == ("own", "mlp")
    images = np.zeros((20, 3, 32, 32), dtype=np.uint8)
    pictures = Dataset.from_arrays(images, np.arange(20) % 2, images, np.arange(20) % 2, name="pictures")
    lines: list[str] = []
    result = run(experiment(tmp_path, epochs=1, out=tmp_path / "b"), pictures, say=lines.append)
    assert (result.summary["dataset"], result.summary["network"]) == ("pictures", "small_cnn")
    assert "batch_size shrinks from 128 to 20, to fit the data" in lines


def test_experiments_that_run_together_need_folders_of_their_own(tmp_path, dataset):
    with pytest.raises(ValueError, match="same out"):
        run_together([experiment(tmp_path), experiment(tmp_path, seeds=(3,))], dataset, say=silent)
    with pytest.raises(ValueError, match="no experiment"):
        run_together([], dataset, say=silent)
    assert not (tmp_path / "run").exists()


def test_what_is_no_experiment_or_no_data_set_is_refused(tmp_path, dataset):
    with pytest.raises(ValueError, match="run takes an Experiment"):
        run("coteaching", dataset)
    with pytest.raises(ValueError, match="is no Dataset"):
        run(experiment(tmp_path), (dataset.x_train, dataset.y_train))


def test_one_feature_cannot_be_halved(tmp_path):
    x, y = np.arange(8.0)[:, None], np.arange(8) % 2
    with pytest.raises(ValueError, match="views of your own"):
        run(experiment(tmp_path, method="cotraining"), Dataset.from_arrays(x, y, x, y), say=silent)
    assert not (tmp_path / "run").exists()


def test_batches_of_one_cannot_be_normalised(tmp_path):
    images = np.zeros((4, 3, 32, 32), dtype=np.uint8)
    pictures = Dataset.from_arrays(images, np.arange(4) % 2, images, np.arange(4) % 2)
    with pytest.raises(ValueError, match="normalises over the batch"):
        run(experiment(tmp_path, network="cnn7", batch_size=1), pictures, say=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["", "a b\nc d", "1 2 3\n4 5", "0.5,0.5\n0.5,x"])
def test_a_matrix_file_that_is_none_is_refused(tmp_path, dataset, text):
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(ValueError, match=r"matrix|square"):
        run(experiment(tmp_path, noise="matrix", matrix=tmp_path / "q.txt"), dataset, say=silent)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path, dataset):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty"):
        run(experiment(tmp_path), dataset, say=silent)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path, dataset):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write to"):
        run(experiment(tmp_path, out=tmp_path / "file" / "run"), dataset, say=silent)
    with pytest.raises(ValueError, match="is a file"):
        run(experiment(tmp_path, out=tmp_path / "file"), dataset, say=silent)


# ---- defaults -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dataset, warmup, short, epochs, network",
    [
        ("mnist", 0, 0, 200, "mlp"),
        ("news", 0, 0, 200, "news"),
        ("cifar10", 20, 19, 200, "small_cnn"),
        ("cifar100", 5, 4, 200, "cnn7_printed"),
        ("tiny-imagenet", 100, 99, 200, "preact_resnet18"),
        ("openset-cifar100", 55, 54, 100, "cnn7_printed"),
    ],
)
def test_defaults_are_the_papers_and_the_authors(dataset, warmup, short, epochs, network):
    paper, authors = Experiment(dataset=dataset).plan(), Experiment(dataset=dataset, fidelity="authors").plan()
    assert (paper.warmup, paper.epochs, paper.ramp) == (warmup, epochs, 10)
    assert (authors.warmup, authors.epochs) == (short, epochs - 1)
    assert paper.parallel_warmup == dataset.startswith("openset")
    assert Experiment(dataset=dataset).network_name == network
    if dataset == "openset-cifar100":
        assert (paper.optimizer, paper.lr, paper.momentum, paper.weight_decay) == ("sgd", 0.01, 0.9, 1e-4)
        assert paper.keep_type == 2
        assert [paper.learning_rate(e) for e in (40, 41, 81)] == pytest.approx([0.01, 0.001, 0.0001])
        assert paper.keep_rate(100, 0.4) == pytest.approx(1 - (1 + 90 / 190) * 0.4)
    else:
        assert (paper.optimizer, paper.lr, paper.batch_size, paper.keep_type) == ("adam", 0.001, 128, 1)


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 20, 21, 80, 81, 199])
@pytest.mark.parametrize("dataset", ["cifar10", "tiny-imagenet", "openset-cifar100", "digits"])
def test_defaults_shrink_to_fit_and_say_so(dataset, epochs):
    e = Experiment(dataset=dataset, epochs=epochs)
    plan, notes = e.plan_and_notes()
    assert plan.warmup < epochs
    assert plan.ramp <= epochs
    assert plan.learning_rate(1) > 0
    usual = Experiment(dataset=dataset).plan()
    changed = [
        name
        for name in ("warmup", "ramp", "decay_start", "milestones")
        if getattr(plan, name) != getattr(usual, name)
    ]
    assert sorted(changed) == sorted(name for note in notes for name in re.findall(r"(\w+) from ", note))
    assert len(notes) == bool(changed)


def test_what_the_user_sets_is_never_shrunk():
    plan, notes = Experiment(dataset="cifar10", epochs=5, ramp=5, warmup=4).plan_and_notes()
    assert (plan.ramp, plan.warmup) == (5, 4)
    assert notes == ["to fit 5 epochs, these defaults shrink: decay_start from 80 to 2"]
    assert shrunk(plan, 1.0)[0].epochs == 5


def test_a_decay_that_the_user_begins_after_the_last_epoch_never_begins():
    plan, notes = Experiment(dataset="cifar10", fidelity="authors", epochs=5, decay_start=100).plan_and_notes()
    assert [plan.learning_rate(epoch) for epoch in (1, 5)] == [plan.lr, plan.lr]
    assert plan.beta1(5) == 0.9
    assert "decay_start" not in "".join(notes)


def test_a_decay_of_the_user_s_is_a_line_where_the_data_set_has_steps():
    usual, asked = (Experiment(dataset="openset-cifar100", decay_start=start).plan() for start in (None, 50))
    assert usual.learning_rate(50) == usual.lr / 10
    assert asked.learning_rate(50) == asked.lr > asked.learning_rate(51) > asked.learning_rate(100) == 0
