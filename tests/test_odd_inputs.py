"""Inputs that once ended in a traceback, or were taken for something else without a word."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from coteach import SelectiveTrainingClassifier
from coteach.noise import corrupt
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from estimator_cases import quick, three_clouds
from resume_cases import experiment, stopped
from run_cases import silent

X, Y = three_clouds(30)
TABLE = pd.DataFrame(X, columns=list("abcde"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_tensors_of_types_that_numpy_lacks(dtype):
    x = torch.tensor(X).to(dtype)
    model = quick(epochs=1).fit(x, Y)
    assert (model.predict(x) == quick(epochs=1).fit(x.float(), Y).predict(x.float())).all()


@pytest.mark.parametrize("dtype", ["int64[pyarrow]", "Int64", "uint8[pyarrow]"])
def test_whole_numbers_stay_whole(dtype):
    labels = pd.Series(Y).astype(dtype)
    model = quick(epochs=1).fit(X, labels, validation_data=(X, labels))
    assert model.classes_.dtype.kind in "iu"
    assert model.predict(X).dtype.kind in "iu"
    with pytest.raises(ValueError, match="labels are missing"):
        quick(epochs=1).fit(X, labels.mask(labels == 1))


@pytest.mark.parametrize(
    "dates",
    [
        pd.Series(pd.date_range("2020", periods=30)),
        pd.Series(pd.to_timedelta(np.arange(30), unit="D")),
        pd.Series(pd.period_range("2020", periods=30)),
        pd.Series(pd.date_range("2020", periods=30)).astype("timestamp[ns][pyarrow]"),
    ],
    ids=["dates", "times", "periods", "pyarrow"],
)
def test_dates_are_told_by_their_column(dates):
    for table in (TABLE.assign(when=dates), pd.DataFrame({"when": dates})):
        with pytest.raises(ValueError, match="column 'when' of X is of dates or times: make numbers of it"):
            quick(epochs=1).fit(table, Y)
        with pytest.raises(ValueError, match="column 'when' of X is of dates or times: make numbers of it"):
            SelectiveTrainingClassifier().fit(table, Y)


@pytest.mark.parametrize("kind", [quick, SelectiveTrainingClassifier])
def test_two_columns_of_one_name_are_told(kind):
    with pytest.raises(ValueError, match="unique column names"):
        kind().fit(TABLE.set_axis(list("aabcd"), axis=1), Y)


@pytest.mark.parametrize("kind", [quick, SelectiveTrainingClassifier])
def test_labels_of_several_kinds_are_one_sentence(kind):
    with pytest.raises(ValueError, match="labels are words and numbers side by side"):
        kind().fit(X, np.array(["a", *Y[1:]], dtype=object))


def test_a_seed_that_no_generator_takes_is_one_sentence():
    for seed in (2**63, -(2**63)):
        with pytest.raises(ValueError, match=r"give numbers below 2\*\*63"):
            Experiment(seeds=(seed,)).check()


def test_masks_are_not_dropped():
    masked, labels = np.ma.masked_array(X, mask=X > 5), np.ma.masked_array(Y, mask=Y == 1)
    model = quick(epochs=1).fit(np.ma.masked_array(X), np.ma.masked_array(Y))
    for call in (
        lambda: quick(epochs=1).fit(masked, Y),
        lambda: quick(epochs=1, stream=True).fit(masked, Y),
        lambda: quick(epochs=1).fit(X, labels),
        lambda: quick(epochs=1).fit(X, Y, validation_data=(X, labels)),
        lambda: model.predict(masked),
        lambda: corrupt(labels, "pair", 0.1),
    ):
        with pytest.raises(ValueError, match="masked: "):
            call()


def test_polars():
    table, labels = pl.DataFrame(X, schema=list("abcde")), pl.Series(Y)
    model = quick(epochs=1).fit(table, labels)
    assert (model.predict(table) == quick(epochs=1).fit(X, Y).predict(X)).all()
    assert model.feature_names_in_.tolist() == list("abcde")
    words = pl.Series(np.array(["x", "y", "z"])[Y])
    assert quick(epochs=1).fit(table, words).classes_.tolist() == ["x", "y", "z"]
    for odd, match in (
        (table.lazy(), "lazy"),
        (table.with_columns(when=pl.Series([datetime.date(2020, 1, 1)] * 30)), "column 'when' of X is of dates"),
        (table.with_columns(w=pl.Series(["u"] * 30)), "column 'w' of X is text"),
    ):
        with pytest.raises(ValueError, match=match):
            quick(epochs=1).fit(odd, labels)
    with pytest.raises(ValueError, match="labels are missing"):
        quick(epochs=1).fit(table, pl.Series([None, *Y[1:].tolist()]))


@pytest.mark.parametrize("name", ["epochs", "batch_size", "warmup", "ramp", "lr"])
def test_numbers_beyond_all_measure_are_refused(name):
    value = 1e308 if name == "lr" else int("9" * 20)
    with pytest.raises(ValueError, match=f"{name} is "):
        quick(**{name: value}).fit(X, Y)
    with pytest.raises(ValueError, match=f"{name} is "):
        Experiment(**{name: value}).check()


@pytest.mark.parametrize("threads", [100_000, -1, 0])
def test_a_number_of_threads_that_no_machine_has_is_damage(threads, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)
    folder = tmp_path / "run"
    stopped([experiment("coteaching", seeds=(1,), out=folder)], 1)
    config = folder / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("threads = 1", f"threads = {threads}"))
    assert config.read_text() != text
    with pytest.raises(ValueError, match="config.toml is damaged"):
        run(Experiment(resume=folder), say=silent)


def test_a_disk_that_is_full_from_the_start_gives_advice_that_works(tmp_path, monkeypatch):
    """Before there is a config.toml, there is nothing to go on with."""
    e = experiment("coteaching", seeds=(1,), out=tmp_path / "run")
    real = checkpoint.write_atomically

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coteach.runs.folder.write_atomically", full)
    with pytest.raises(
        ValueError, match=r"No space left on device\): mend that, then the same command begins anew"
    ):
        run(e, say=silent)
    monkeypatch.setattr("coteach.runs.folder.write_atomically", real)
    assert run(e, say=silent).summary["seeds"] == [1]
