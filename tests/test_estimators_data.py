"""What RobustClassifier takes for samples and labels."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from coteach import RobustClassifier
from coteach.classifier import inputs
from coteach.classifier.inputs import scale_of
from coteach.networks.fast import FastCNN
from coteach.networks.models import SmallCNN
from estimator_cases import quick, three_clouds


@pytest.fixture
def clouds():
    return three_clouds()


def test_tables_as_numpy_torch_and_lists_are_the_same(clouds):
    x, y = clouds
    expected = quick().fit(x, y).predict_proba(x)
    for form in (torch.from_numpy, np.ndarray.tolist):
        model = quick().fit(form(x), form(y))
        assert (model.predict_proba(form(x)) == expected).all()


@pytest.mark.parametrize("kind", ["int64", "object", "str", "category"])
def test_frames_and_series_of_pandas(kind, clouds):
    x, y = clouds
    expected = quick().fit(x, y).predict_proba(x)
    names = pd.Series(y if kind == "int64" else np.array(["ash", "birch", "cedar"])[y]).astype(kind)
    frame = pd.DataFrame(x, columns=list("abcde"), index=np.arange(120) + 7)
    model = quick().fit(frame, names)
    assert list(model.feature_names_in_) == list("abcde")
    assert (model.predict_proba(frame) == expected).all()
    assert (model.predict(frame) == model.classes_[expected.argmax(1)]).all()
    assert set(model.classes_) == set(names)
    assert (model.given_labels_ == names.to_numpy()).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])
    worded = frame.assign(b="word")
    for call in (lambda: quick().fit(worded, names), lambda: model.predict(worded)):
        with pytest.raises(ValueError, match="column 'b' of X is text .*OneHotEncoder.*coteach audit --table"):
            call()


def test_features_of_any_unit_are_learnt_from_alike(clouds):
    x, y = clouds
    a, b = (quick().fit(z, y).predict_proba(z) for z in (x, 1e9 + x * [1e6, 1e3, 1e5, 1e6, 1e4]))
    np.testing.assert_allclose(a, b, atol=1e-3)
    raw = quick(standardize=False).fit(x, y)
    assert (raw.inputs(x).numpy() == x.astype(np.float32)).all()


@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_images_in_three_layouts_are_the_same_images(kind):
    images, y = load_digits(return_X_y=True)
    images, y = (images[:300].reshape(-1, 8, 8) * 15).astype(kind), y[:300]
    layouts = [images, images[..., None], images[:, None]]
    models = [quick(epochs=5).fit(x, y) for x in layouts]
    answers = [model.predict_proba(x) for model, x in zip(models, layouts, strict=True)]
    assert models[0].sample_shape_ == (1, 8, 8)
    assert models[0].score(images, y) > 0.9
    assert all((p == answers[0]).all() for p in answers)
    with pytest.raises(ValueError, match="shape"):
        models[0].predict(images[:, :, :5])


@pytest.mark.slow
@pytest.mark.parametrize("recipe, network", [("paper", SmallCNN), ("auto", FastCNN)])
def test_colour_images_get_a_cnn_that_sees_their_channels(recipe, network):
    x = np.random.default_rng(0).random((24, 32, 32, 3))
    y = np.arange(24) % 2
    x[y == 1, ..., 2] += 1  # bluer
    model = quick(epochs=10, recipe=recipe).fit(x, y)
    assert isinstance(model.networks_[0], network)
    assert model.score(x, y) == 1
    first = x.transpose(0, 3, 1, 2)
    assert (quick(epochs=10, recipe=recipe).fit(first, y).predict_proba(first) == model.predict_proba(x)).all()


def test_a_mistake_in_the_data_is_told(clouds):
    x, y = clouds
    model = quick().fit(x, y)
    for sparse_x in (sparse.csr_matrix(x), sparse.coo_array(x), torch.from_numpy(x).to_sparse()):
        for call in (lambda z: quick().fit(z, y), model.predict):
            with pytest.raises(ValueError, match="X is sparse: make it dense"):
                call(sparse_x)
    holes = np.where(np.arange(5) == 2, np.nan, x)
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(holes, y)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(holes)
    with pytest.raises(ValueError, match="one class"):
        quick().fit(x, np.zeros(120))
    with pytest.raises(ValueError, match="Unknown label type"):
        quick().fit(x, x[:, 0])
    with pytest.raises(ValueError, match="requires y to be passed"):
        quick().fit(x)
    with pytest.raises(ValueError, match="5 axes"):
        quick().fit(x.reshape(-1, 5, 1, 1, 1), y)
    with pytest.raises(ValueError, match="beyond float32"):
        quick(standardize=False).fit(x * 1e300, y)
    with pytest.raises(ValueError, match="beyond float64"):
        quick().fit(x * 1e300, y)
    with pytest.raises(ValueError, match=r"1 feature\(s\)"):
        quick("cotraining").fit(x[:, :1], y)
    with pytest.raises(NotFittedError):
        quick().predict(x)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
@pytest.mark.parametrize("form", [np.asarray, list, pd.Series, lambda y: pd.Series(y, dtype="category")])
def test_missing_labels_are_told(missing, form, clouds):
    y = np.array(["ash", "birch", "cedar"], dtype=object)[clouds[1]]
    y[7] = missing
    for stream in (False, True):
        with pytest.raises(ValueError, match="labels are missing: leave those samples out"):
            quick(stream=stream).fit(clouds[0], form(y))


def test_images_of_different_sizes_are_told():
    images = [np.zeros((8, 8)) for _ in range(9)]
    objects = np.empty(10, dtype=object)
    objects[:] = [*images, np.zeros((8, 9))]
    tensors = list(map(torch.from_numpy, objects))
    lists = [image.tolist() for image in objects]
    y, model = np.arange(10) % 2, quick().fit(np.zeros((10, 8, 8)), np.arange(10) % 2)
    for different in (objects, list(objects), tensors, lists):
        for call in (lambda x: quick().fit(x, y), model.predict):
            with pytest.raises(ValueError, match=r"the images differ in size \(8×8 and 8×9\): make them the same"):
                call(different)
    with pytest.raises(ValueError, match=r"the rows of X differ in size \(1 and 2\)"):
        quick().fit([[1, 2], [3]], [0, 1])
    objects[9] = images[0]
    with pytest.raises(ValueError, match=r"make one array of them with np.stack\(X\)"):
        quick().fit(objects, y)
    quick().fit(np.stack(list(objects)), y)


def test_what_is_told_of_text_is_about_the_column_that_is():
    numbers_as_text = pd.DataFrame({"a": ["1", "2.5"], "b": [0.0, np.nan]})
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(numbers_as_text, [0, 1])
    with pytest.raises(ValueError, match="column 1 of X is text"):
        quick().fit([[1, "one"], [2, "two"]], [0, 1])


# ---- map-style data sets --------------------------------------------------------------------------------------


class Listed:
    """A data set of nobody's family: a length, an index, and a count of how often each sample was read."""

    def __init__(self, x, y=None):
        self.x, self.y, self.read = x, y, np.zeros(len(x), int)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.read[i] += 1
        return self.x[i] if self.y is None else (self.x[i], self.y[i])


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_data_sets_are_the_same_as_their_arrays(stream, clouds):
    x, y = clouds[0].astype(np.float32), clouds[1]
    words = np.array(["ash", "birch", "cedar"])[y]
    arrays = quick().fit(x, words)
    expected = arrays.predict_proba(x)
    pairs = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    model = quick(stream=stream).fit(Listed(x, words))
    assert list(model.classes_) == ["ash", "birch", "cedar"]
    assert (model.given_labels_ == words).all()
    assert model.n_features_in_ == 5
    for found in (
        model.predict_proba(Listed(x)),
        model.predict_proba(pairs),  # labels that come with it are no concern of predict
        quick(stream=stream).fit(Listed(x), words).predict_proba(x),
        quick(stream=stream).fit(pairs).predict_proba(x),
        quick(stream=stream).fit(Subset(pairs, range(120)), y=words).predict_proba(x),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(model.label_quality_, arrays.label_quality_, atol=1e-5)
    np.testing.assert_allclose(model.inputs(Listed(x)), arrays.inputs(x), atol=1e-6)


def test_a_data_set_is_read_once(clouds):
    data = Listed(*clouds)
    quick().fit(data)
    assert data.read[0] == 2  # looked at first, for its shape
    assert (data.read[1:] == 1).all()


def test_images_that_stay_where_they_are():
    images, y = load_digits(return_X_y=True)
    images, y = (images[:200].reshape(-1, 1, 8, 8) * 15).astype(np.uint8), y[:200]
    expected = quick(epochs=5, noise_rate=0).fit(images, y).predict_proba(images)
    for data in (images, Listed(images)):
        found = quick(epochs=5, noise_rate=0, stream=True).fit(data, y).predict_proba(data)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_an_unknown_rate_and_early_stopping_on_samples_that_stay_where_they_are(clouds):
    x, y = clouds
    options = {"noise_rate": "auto", "early_stopping": True, "epochs": 2, "validation_fraction": 0.2}
    a, b = (quick(stream=stream, **options).fit(x, y) for stream in (True, False))
    assert a.noise_rate_ == pytest.approx(b.noise_rate_, abs=1e-3)
    assert a.history_[-1]["validation_accuracy"] == b.history_[-1]["validation_accuracy"]
    np.testing.assert_allclose(a.label_quality_, b.label_quality_, atol=1e-4)


def test_the_scale_of_pieces_is_that_of_the_whole(monkeypatch):
    x = np.random.default_rng(0).normal(5, 3, size=(50, 3, 4, 4)).astype(np.float32)
    monkeypatch.setattr(inputs, "READ_AT_ONCE", 7)
    whole, pieces = scale_of(x), scale_of(inputs.Items(Listed(x)))
    np.testing.assert_allclose(whole[0], x.mean((0, 2, 3), dtype=np.float64)[:, None, None])
    np.testing.assert_allclose(whole[1], x.std((0, 2, 3), dtype=np.float64)[:, None, None])
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(a, b)


class Endless(IterableDataset):
    def __iter__(self):
        yield np.zeros(5), 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_mistake_in_a_data_set_is_told(stream, clouds, monkeypatch):
    x, y = clouds

    def fit(*data):
        return quick(stream=stream).fit(*data)

    for data, message in (
        ((Listed(x),), "sample 0 .*label"),
        ((Listed(x), y[:50]), "inconsistent numbers of samples|120 samples but 50 labels"),
        ((Listed([*x[:9], x[9][:3]]), y[:10]), "sample 9 is torch.float32 of shape .3,."),
        ((Listed(np.where(np.arange(120)[:, None] == 7, np.nan, x)), y), "sample 7 has a feature"),
        ((Endless(),), "length"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(*data)
    with pytest.raises(ValueError, match="shape|3 features"):
        fit(Listed(x), y).predict(Listed(x[:, :3]))
    monkeypatch.setattr(inputs, "memory", lambda: 1000)
    if not stream:
        with pytest.raises(ValueError, match="set stream=True"):
            fit(Listed(x, y))


def test_reading_shows_a_bar_when_asked_for(clouds, capsys):
    RobustClassifier(noise_rate=0.2, epochs=2, verbose=1).fit(Listed(*clouds))
    out = capsys.readouterr().out
    assert "reading" in out
    assert "120/120" in out
    assert "2/2" in out


def test_what_is_a_data_set():
    assert inputs.is_map_style(Listed([1]))
    assert inputs.is_map_style(Dataset())
    for array in ([[1]], ((1,),), np.zeros(3), torch.zeros(3), pd.DataFrame({"a": [1]}), "words", {"a": 1}, 3):
        assert not inputs.is_map_style(array)
