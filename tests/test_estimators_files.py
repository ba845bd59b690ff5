"""What RobustClassifier writes, and reads again."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError
from torch import nn

from coteach import RobustClassifier
from estimator_cases import Dropping, quick, three_clouds


@pytest.fixture
def clouds():
    return three_clouds()


@pytest.mark.parametrize(
    "labels", [np.arange(3), np.array([True, False, True]), np.array(["a", "bc", "d"]), np.array([*"abc"], object)]
)
@pytest.mark.parametrize("name", ["coteaching", "cotraining"])
def test_what_is_saved_is_loaded(name, labels, clouds, tmp_path):
    x, y = clouds[0], labels[clouds[1]]
    model = quick(name, module__hidden=(8,), random_state=np.random.RandomState(0), epochs=np.int64(2))
    model.fit(x, y).save(tmp_path / "model.safetensors")
    state = torch.get_rng_state()
    other = RobustClassifier.load(tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), state)
    assert (other.predict_proba(x) == model.predict_proba(x)).all()
    assert (other.predict(x) == model.predict(x)).all()
    assert other.classes_.dtype == model.classes_.dtype
    assert other.history_ == model.history_
    assert other.method == name
    for key in ("label_quality_", "given_labels_", "suggested_labels_", "kept_share_"):
        np.testing.assert_array_equal(getattr(other, key), getattr(model, key))
        assert getattr(other, key).dtype == getattr(model, key).dtype
    for found, expected in zip(*(vars(m.suspects()).values() for m in (other, model)), strict=True):
        assert (found == expected).all()
    assert other.noise_estimate_ is None
    other.set_params(warm_start=True).fit(x, y)


def test_a_module_of_ones_own_is_handed_in_again(clouds, tmp_path):
    x, y = clouds
    path = tmp_path / "model.safetensors"
    model = quick(module=Dropping, module__width=7).fit(x, y)
    model.save(path)
    assert (RobustClassifier.load(path, Dropping).predict_proba(x) == model.predict_proba(x)).all()
    with pytest.raises(ValueError, match="needs a module"):
        RobustClassifier.load(path)
    with pytest.raises(ValueError, match="do not fit the module"):
        RobustClassifier.load(path, lambda width: nn.Linear(5, 3))
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="was not written by"):
        RobustClassifier.load(path)
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="was not written by"):
        RobustClassifier.load(path)
    with pytest.raises(NotFittedError):
        quick().save(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the noise rate is hardly known")  # after so few epochs
def test_what_was_found_out_on_the_way_is_loaded(clouds, tmp_path):
    x, y = clouds
    path = tmp_path / "model.safetensors"
    model = quick(noise_rate="auto", early_stopping=True, optimizer=torch.optim.AdamW, optimizer__betas=(0.8, 0.9))
    model.fit(x, y, validation_data=(x[:30], y[:30])).save(path)
    other = RobustClassifier.load(path)
    mine, theirs = vars(other.noise_estimate_), vars(model.noise_estimate_)
    assert mine.keys() == theirs.keys()
    for key in mine:
        np.testing.assert_array_equal(mine[key], theirs[key])
    assert len(other.noise_estimate_.tried) == 8
    assert other.best_epoch_ == model.best_epoch_
    assert other.optimizer == "AdamW"
    other.fit(x, y)


def test_a_place_where_there_is_no_file_is_told(clouds, tmp_path):
    model, path = quick().fit(*clouds), tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match=f"there is no file {path}: give"):
        RobustClassifier.load(path)
    with pytest.raises(ValueError, match="is a folder: give the model file in it"):
        RobustClassifier.load(tmp_path)
    model.save(path)
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder: give {path}"):
        RobustClassifier.load(str(tmp_path))
    with pytest.raises(ValueError, match=f"there is no folder {tmp_path / 'no/such'}: make it"):
        model.save(tmp_path / "no/such/model.safetensors")
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder: give a file in it, such as {path}"):
        model.save(tmp_path)


def test_a_header_that_says_something_else_is_refused(clouds, tmp_path):
    path = tmp_path / "model.safetensors"
    quick().fit(*clouds).save(path)
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["coteach"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    broken = [{k: v for k, v in facts.items() if k != missing} for missing in facts]
    broken += [[], 3, facts | {"params": 3}, facts | {"params": {"epoch": 3}}, facts | {"method_": "magic"}]
    broken += [facts | {"noise_estimate": {}}, facts | {"classes_dtype": "nothing"}, facts | {"classes": 3}]
    for some in broken:
        save_file(tensors, path, {"coteach": json.dumps(some)})
        with pytest.raises(ValueError, match="was not written by"):
            RobustClassifier.load(path)
    for missing in ("label_quality_", "mean_", "given_labels_"):
        save_file({k: v for k, v in tensors.items() if k != missing}, path, {"coteach": json.dumps(facts)})
        with pytest.raises(ValueError, match="was not written by"):
            RobustClassifier.load(path)
    save_file(tensors, path, {"coteach": "{"})
    with pytest.raises(ValueError, match="was not written by"):
        RobustClassifier.load(path)
