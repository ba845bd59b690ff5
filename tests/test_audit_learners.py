"""What learns in an audit: networks, linear models, trees; the model that is left, and the reasons in words."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from coteach.audit.choice import candidates_for, choose_learner
from coteach.audit.encoding import features
from coteach.audit.judge import note_on_wide_interval
from coteach.audit.learners import check_learner, selective_classifier
from coteach.audit.samples import LabelledSamples
from coteach.classifier import RobustClassifier
from coteach.cli import main
from coteach.selective import SelectiveTrainingClassifier
from coteach.selective.files import load_selective, save_selective
from coteach.selective.saved import SavedLinearModel, SavedTrees
from coteach.tensor_files import read_tensors, tensors_as_bytes
from estimator_cases import four_clouds, three_clouds

AUDIT = "audit --table t.csv --label tree --noise-rate 0.05 --out o".split()


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Three clouds as a table, with three wrong labels."""
    monkeypatch.chdir(tmp_path)
    x, y = three_clouds(90)
    names = np.array(["ash", "birch", "cedar"])
    given = y.copy()
    given[:3] = (given[:3] + 1) % 3
    with Path("t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["tree", *"abcde"])
        writer.writerows([names[c], *row] for c, row in zip(given, x.round(4).tolist(), strict=True))
    return x, names[y]


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("learner", ["linear", pytest.param("trees", marks=pytest.mark.slow)])
def test_an_audit_with_another_learner_finds_the_wrong_labels_and_says_why(learner, table):
    main([*AUDIT, "--learner", learner])
    suspects = rows_of("o/suspects.csv")
    assert {row["id"] for row in suspects[:3]} == {"0", "1", "2"}
    first = next(row for row in suspects if row["id"] == "0")
    assert (first["given"], first["suggested"]) == ("birch", "ash")
    assert "the model says 'ash' without this label" in first["reason"]
    assert "trusted neighbours 20 are 'ash'" in first["reason"]
    summary = json.loads(Path("o/summary.json").read_text("utf-8"))
    assert summary["settings"]["classifier"]["rule"] == "mentornet"
    x = features("o", "t.csv")
    assert (load_selective("o/model.safetensors").predict(x) == table[1]).mean() > 0.9


def test_the_linear_model_of_an_audit_predicts_again(table):
    _, truth = table
    main([*AUDIT, "--learner", "linear"])
    model = load_selective("o/model.safetensors")
    x = features("o", "t.csv")
    assert (model.predict(x) == truth).mean() > 0.97
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1)


@pytest.mark.parametrize("curved", [False, True])
def test_what_is_saved_is_what_was_fitted(curved, tmp_path):
    x, y = four_clouds() if curved else three_clouds()
    x = x * [1, 2, 300, 4, 5] + 5
    classifier = selective_classifier("linear", noise_rate=0.1, random_state=0).fit(x, y)
    assert (classifier.neighbour_model_ is not None) == curved  # which know more where classes are no half spaces
    save_selective(classifier, tmp_path / "model.safetensors")
    saved = load_selective(tmp_path / "model.safetensors")
    np.testing.assert_allclose(saved.predict_proba(x), classifier.predict_proba(x), atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_saved_trees_are_those_that_were_fitted(n_classes, tmp_path):
    x, y = three_clouds(150)
    names = np.array(["ash", "birch", "cedar"])[y % n_classes]
    classifier = SelectiveTrainingClassifier(
        HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5, random_state=0),
        noise_rate=0.1,
        rounds=1,
        folds=2,
        random_state=0,
    ).fit(x, names)
    save_selective(classifier, tmp_path / "model.safetensors")
    saved = load_selective(tmp_path / "model.safetensors")
    new = np.random.default_rng(1).normal(size=(500, 5)) * 3
    np.testing.assert_allclose(saved.predict_proba(new), classifier.predict_proba(new), atol=1e-12)
    assert saved.predict(new).tolist() == classifier.predict(new).tolist()
    assert saved.predict_proba(new[:0]).shape == (0, n_classes)
    with pytest.raises(ValueError, match="give 5 features a sample"):
        saved.predict(new[:, :3])


def test_many_samples_do_not_keep_trees_from_a_class_of_two():
    x, y = np.random.default_rng(0).normal(size=(20_010, 1)), np.arange(20_010) % 2
    y[:2] = 2
    classifier = selective_classifier("trees", noise_rate=0, random_state=0).set_params(rounds=0, folds=2)
    classifier.estimator.set_params(max_iter=1)
    assert classifier.fit(x, y).predict_proba(x[:1]).shape == (1, 3)


@pytest.mark.parametrize(
    "array, change",
    [
        ("left_L", lambda left: np.zeros_like(left)),  # a way without end
        ("right_L", lambda right: right + 10**6),
        ("root_T", lambda root: root - 1),
        ("feature_L", lambda feature: feature + 5),
        ("feature_L", lambda feature: feature.astype(np.float64)),
        ("value_L", lambda value: value[:-1]),
        ("value_L", lambda value: value * np.nan),
        ("threshold_L", lambda threshold: threshold * np.nan),
        ("threshold_L", lambda threshold: threshold + 1j),
        ("baseline_S", lambda baseline: baseline[:-1]),
        ("baseline_S", lambda baseline: baseline + np.inf),
    ],
)
def test_trees_that_would_fail_or_never_end_are_refused(array, change):
    x, y = three_clouds(60)
    trees = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5)
    saved = SavedTrees.of(SelectiveTrainingClassifier(trees, noise_rate=0, rounds=0, folds=2).fit(x, y))
    facts, arrays = saved.as_arrays()
    assert SavedTrees.from_arrays(facts, arrays).predict(x[:3]).shape == (3,)
    with pytest.raises(ValueError):
        SavedTrees.from_arrays(facts, arrays | {array: change(arrays[array])})


@pytest.mark.parametrize(
    "array, change",
    [
        ("weight", lambda weight: weight[0]),
        ("weight", lambda weight: weight * np.nan),
        ("bias", lambda bias: bias[:1]),
        ("mean", lambda mean: mean[:-1]),
        ("scale", lambda scale: -scale),
        ("centre_F", lambda centre: centre[:-1]),
        ("directions_RF", lambda directions: directions.T),
        ("directions_RF", lambda directions: directions.astype(np.float64)),
        ("labels_R", lambda labels: labels + 2),
        ("labels_R", lambda labels: labels[:0]),
        ("weights_R", np.zeros_like),
    ],
)
def test_arrays_that_are_no_linear_model_are_refused(array, change):
    saved = SavedLinearModel.of(selective_classifier("linear", noise_rate=0.1, random_state=0).fit(*four_clouds()))
    facts, arrays = saved.as_arrays()
    assert SavedLinearModel.from_arrays(facts, arrays).neighbours is not None
    with pytest.raises(ValueError):
        SavedLinearModel.from_arrays(facts, arrays | {array: change(arrays[array])})


@pytest.mark.parametrize(
    "name, value",
    [
        ("classes", 3),
        ("classes", [0]),
        ("classes", [1, 1]),
        ("classes", [0, 1, 2]),
        ("classes", [None, 1]),
        ("voters", 0),
        ("voters", "20"),
        ("features", float("inf")),
    ],
)
def test_a_file_whose_facts_are_wrong_is_refused(name, value, tmp_path):
    learner = "trees" if name == "features" else "linear"
    classifier = selective_classifier(learner, noise_rate=0.1, random_state=0).set_params(rounds=0, folds=2)
    path = tmp_path / "model.safetensors"
    save_selective(classifier.fit(*four_clouds()), path)
    facts, tensors = read_tensors(path, "")
    assert name in facts
    path.write_bytes(tensors_as_bytes(facts | {name: value}, tensors))
    with pytest.raises(ValueError, match="holds no linear model or trees that are whole"):
        load_selective(path)


def test_a_file_of_something_else_is_no_linear_model(tmp_path):
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros(2)}, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="holds no linear model or trees"):
        load_selective(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="cannot be read"):
        load_selective(tmp_path / "none.safetensors")


@pytest.mark.parametrize("low, said", [(0.0, "wrong labels: --check 50"), (0.1, "at least 10 %: --check 50")])
def test_features_that_say_little_are_noted(low, said):
    estimate = SimpleNamespace(interval=(low, 0.9))
    (note,) = note_on_wide_interval(SimpleNamespace(noise_rate="auto", noise_estimate_=estimate))
    assert said in note


def test_networks_have_reasons_too(table):
    main([*AUDIT, "--epochs", "2"])
    reasons = [row["reason"] for row in rows_of("o/suspects.csv")]
    assert all("trusted neighbours" in reason for reason in reasons)
    assert any(
        "networks say" in reason or "networks says" in reason or "comes next" in reason for reason in reasons
    )


def samples_with(shape: tuple[int, ...], **settings: str) -> LabelledSamples:
    x = np.zeros(shape)
    return LabelledSamples(x, np.zeros(len(x)), ["a"] * len(x), "arrays", Path("x"), settings=settings)


def test_each_kind_of_samples_has_its_candidates():
    encoded, pixels = samples_with((4, 3), encoder="wordllama"), samples_with((4, 3, 8, 8))
    assert candidates_for(encoded, []) == ["linear"]
    assert candidates_for(samples_with((4, 3)), []) == ["linear", "network"]
    assert candidates_for(encoded, ["epochs"]) == ["network"]
    assert candidates_for(pixels, []) == ["network"]
    table = replace(samples_with((4, 3)), kind="table")
    assert candidates_for(table, []) == ["linear", "network", "trees"]
    assert candidates_for(replace(table, texts=["a"] * 4), []) == ["linear", "network"]
    check_learner("trees", table)
    with pytest.raises(ValueError, match="give --encoder"):
        check_learner("linear", pixels)


def in_four_corners(n: int) -> LabelledSamples:
    """Opposite corners are of one class, so that no plane parts them; other columns blur who is near."""
    x = np.random.default_rng(0).uniform(-1, 1, size=(n, 12))
    y = np.where((x[:, 0] > 0) == (x[:, 1] > 0), "same", "other")
    y[::10] = y[1::10]  # some are wrong
    return LabelledSamples(x, y, list(map(str, range(n))), "table", Path("x"))


def test_auto_takes_the_cheapest_that_predicts_held_out_labels_as_well_as_any():
    network = RobustClassifier(random_state=0, epochs=3, device="cpu")
    x, y = three_clouds(200)
    easy = LabelledSamples(x, y, list(map(str, range(200))), "table", Path("x"))
    choice = choose_learner(["linear", "network"], network, easy)
    assert (choice.learner, choice.held_out) == ("linear", 50)
    assert choice.accuracies["linear"] > 0.9
    bent = choose_learner(["linear", "trees"], network, in_four_corners(400))
    assert bent.learner == "trees"
    assert bent.accuracies["trees"] > bent.accuracies["linear"] + 0.2
    assert bent.why.startswith("--learner trees is the cheapest that predicts held-out labels well: linear ")


def test_what_is_held_out_is_not_learnt(monkeypatch):
    samples, seen = in_four_corners(100), {}

    class Recording:
        noise_rate_ = 0.1

        def fit(self, x, y):
            seen["learnt"] = x

        def predict(self, x):
            seen["asked"] = x
            return np.full(len(x), "same")

    monkeypatch.setattr("coteach.audit.choice.to_compare", lambda *_: Recording())
    choose_learner(["linear"], RobustClassifier(random_state=0), samples)
    assert (len(seen["learnt"]), len(seen["asked"])) == (75, 25)
    assert len(np.unique(np.vstack([seen["learnt"], seen["asked"]]), axis=0)) == 100


def test_flags_of_networks_go_with_networks(table, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "--table", "t.csv", "--label", "tree", "--learner", "linear", "--epochs", "3"])
    assert stopped.value.code == 2
    assert "--epochs is about networks" in capsys.readouterr().err
