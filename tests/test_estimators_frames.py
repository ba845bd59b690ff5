"""RobustClassifier on data frames of pandas with categories and missing values."""

import numpy as np
import pytest

from coteach import RobustClassifier, SelectiveTrainingClassifier

pandas = pytest.importorskip("pandas")


def table(n: int = 120):
    """Either column tells the class most of the time; together they tell it."""
    rng = np.random.default_rng(0)
    truth = np.arange(n) % 2
    number = truth + rng.normal(scale=0.3, size=n)
    number[::7] = np.nan
    colour = pandas.Categorical(np.where(rng.random(n) < 0.9, truth, 1 - truth)).rename_categories(["red", "blue"])
    frame = pandas.DataFrame({"number": number, "colour": colour, "whole": pandas.array([1, None, 3] * (n // 3))})
    frame.loc[5, "colour"] = None
    return frame, truth


@pytest.fixture(scope="module")
def fitted():
    frame, truth = table()
    return RobustClassifier(noise_rate=0.1, epochs=15, random_state=0).fit(frame, truth)


def test_categories_and_missing_values_are_learnt_from(fitted):
    frame, truth = table()
    assert fitted.score(frame, truth) > 0.9
    assert fitted.n_features_in_ == 3
    assert fitted.feature_names_in_.tolist() == ["number", "colour", "whole"]
    x = fitted.inputs(frame).numpy()
    assert x.shape == (120, 7)  # number, missing; red, blue, missing; whole, missing
    assert np.isfinite(x).all()


@pytest.mark.parametrize("kind", [RobustClassifier, SelectiveTrainingClassifier])
def test_a_table_of_pyarrow_is_told_how_to_become_a_data_frame(kind):
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"make a data frame of it first, with .to_pandas\(\)"):
        kind(noise_rate=0).fit(arrow.table({"a": [1, 2, 3, 4]}), [0, 1, 0, 1])


def test_what_a_cell_becomes(fitted):
    frame, _ = table()
    x = fitted.frame_.numbers(frame.iloc[[5, 7, 1]])
    median = float(np.nanmedian(frame["number"]))
    assert x[0].tolist() == [frame["number"][5], 0, 0, 0, 1, 3, 0]
    assert x[1, :2].tolist() == [median, 1]
    assert x[2, 5:].tolist() == [2, 1]  # the median of 1 and 3


def test_a_category_that_is_new_has_no_number(fitted):
    frame, _ = table()
    new = frame.assign(colour=pandas.Categorical(["green"] * len(frame)))
    assert (fitted.frame_.numbers(new)[:, 2:4] == 0).all()
    assert fitted.predict(new).shape == (120,)


def test_a_file_remembers_how_the_frame_became_numbers(fitted, tmp_path):
    frame, _ = table()
    fitted.save(tmp_path / "model.safetensors")
    loaded = RobustClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))


def test_other_columns_are_refused_in_a_sentence(fitted):
    frame, truth = table()
    with pytest.raises(ValueError, match="data frame of 3 columns"):
        fitted.predict(frame.to_numpy(dtype=object, na_value=0))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"number": "n"}))
    with pytest.raises(ValueError, match="column 'word' of X is text"):
        RobustClassifier(noise_rate=0.1, epochs=1).fit(frame.assign(word="a word"), truth)
    with pytest.raises(ValueError, match="dates"):
        RobustClassifier(noise_rate=0.1, epochs=1).fit(frame.assign(day=pandas.Timestamp("2020-01-01")), truth)
