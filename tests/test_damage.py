"""Files that were damaged, exchanged or lost: noticed before anything of them is used; nothing is changed.

And files of the same contents, which are the same bytes.
"""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, load_file, save, save_file

from coteach import Ledger, RobustClassifier, Selection, SelectiveTrainingClassifier
from coteach.noise import Noise, corrupt
from coteach.report.read import read_run
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.run import run, run_together
from coteach.selective.files import load_selective, save_selective
from coteach.tensor_files import refuse_damaged, with_checksum
from estimator_cases import quick, three_clouds
from resume_cases import assert_same_folder, experiment, stopped
from run_cases import silent

FACTS = {"coteach": "{}", "kind": "pair", "sha256": "0" * 64, "odd": 'ß "\\ ' + "0" * 64}


@pytest.fixture(autouse=True)
def every_epoch_is_kept(monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    """One of two groups is finished, the other is in its second epoch."""
    patched = pytest.MonkeyPatch()
    patched.setattr(checkpoint, "COST", 1e9)
    folder = tmp_path_factory.mktemp("stopped") / "run"
    stopped([experiment("coteaching", out=folder)], 5)
    patched.undo()
    return folder


@pytest.fixture
def unfinished(stopped_run, tmp_path):
    return shutil.copytree(stopped_run, tmp_path / "run")


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(folder, match):
    before = contents(folder)
    with pytest.raises(ValueError, match=match) as told:
        run(Experiment(resume=folder), say=silent)
    assert "\n" not in str(told.value)
    assert contents(folder) == before


# ---- checksums ------------------------------------------------------------------------------------------------


def test_a_checksum_is_asked_for_though_the_entry_above_it_has_another_name(tmp_path):
    whole = with_checksum(save({"a": torch.arange(9)}, FACTS))
    path = tmp_path / "file"
    path.write_bytes(whole[:10] + b" " + whole[10:])
    with pytest.raises(ValueError, match="is damaged"):
        refuse_damaged(path)


@given(st.data())
def test_any_change_of_any_byte_is_noticed(tmp_path_factory, data):
    whole = with_checksum(save({"a": torch.arange(9), "b": torch.zeros(2, 3)}, FACTS))
    path = tmp_path_factory.mktemp("one") / "file"
    path.write_bytes(whole)
    refuse_damaged(path)
    at, length = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 9))
    changed = whole[:at] + data.draw(st.binary(max_size=9)) + whole[at + length :]
    path.write_bytes(changed)
    if changed != whole:
        with pytest.raises(ValueError, match="is damaged"):
            refuse_damaged(path)


def test_a_checksum_leaves_the_contents_as_they_were():
    tensors = {"a": torch.arange(9), "b": torch.zeros(2, 3, dtype=torch.bfloat16), "c": torch.ones(())}
    again = load(with_checksum(save(tensors, FACTS)))
    assert again.keys() == tensors.keys()
    assert all(again[name].dtype == t.dtype and torch.equal(again[name], t) for name, t in tensors.items())


def test_files_of_before_have_no_checksum_and_are_read(tmp_path):
    drawn, path = corrupt([0, 1] * 50, "pair", 0.1), tmp_path / "noise.safetensors"
    drawn.save(path)
    without_checksum(path)
    assert Noise.load(path).sha256 == drawn.sha256
    x, y = three_clouds(30)
    model = quick(epochs=1).fit(x, y)
    model.save(tmp_path / "model.safetensors")
    without_checksum(tmp_path / "model.safetensors")
    assert (RobustClassifier.load(tmp_path / "model.safetensors").predict(x) == model.predict(x)).all()


def without_checksum(path):
    """As before 0.2."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    del header["file_sha256"]
    save_file(load_file(path), path, header or None)


@pytest.mark.parametrize("name", ["model", "noise"])
def test_a_damaged_model_and_damaged_noise_are_refused(name, tmp_path):
    path = tmp_path / "file"
    if name == "model":
        quick(epochs=1).fit(*three_clouds(30)).save(path)
    else:
        corrupt([0, 1] * 50, "pair", 0.1).save(path)
    whole = path.read_bytes()
    for at in np.linspace(0, len(whole) - 1, 12).astype(int):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"was not written by|not a sound noise file"):
            RobustClassifier.load(path) if name == "model" else Noise.load(path)


# ---- going on -------------------------------------------------------------------------------------------------


def test_a_checkpoint_with_zeros_in_its_weights_is_refused(unfinished):
    """Found by a hostile test: the run went on, with other numbers."""
    path = unfinished / checkpoint.CHECKPOINT_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[:-4096] + bytes(4096))
    refused(unfinished, "damaged")
    path.write_bytes(whole)
    run(Experiment(resume=unfinished), say=silent)


@pytest.mark.parametrize("where", ["metrics.jsonl", "losses.jsonl"])
def test_rows_of_before_the_checkpoint_that_were_changed_are_refused(unfinished, where):
    text = (unfinished / where).read_text()
    (unfinished / where).write_text(text.replace(" 1", " 2", 1))
    refused(unfinished, "has other rows than at its checkpoint")


def test_a_changed_config_is_refused_before_the_first_epoch(tmp_path):
    folder = tmp_path / "run"
    stopped([experiment("coteaching", out=folder)], 1)
    config = folder / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("epochs = 3", "epochs = 2"))
    refused(folder, "experiment.epochs")


def test_noise_of_another_run_is_refused(unfinished, tmp_path):
    other = run(experiment("coteaching", seeds=(1,), epochs=2, rate=0.3, out=tmp_path / "other"), say=silent)
    shutil.copy(other.folder / "noise.safetensors", unfinished)
    refused(unfinished, "is of another run")
    (unfinished / "noise.safetensors").write_bytes(b"")
    refused(unfinished, "is damaged: remove it")
    (unfinished / "noise.safetensors").unlink()
    run(Experiment(resume=unfinished), say=silent)
    shutil.copy(other.folder / "noise.safetensors", unfinished)
    with pytest.raises(ValueError, match="noise.safetensors is damaged, or was changed since the run"):
        read_run(unfinished)
    summary = json.loads((unfinished / "summary.json").read_text())
    (unfinished / "summary.json").write_text(json.dumps(summary | {"sha256": None}))  # as before 0.2
    with pytest.raises(ValueError, match="is of another run"):
        read_run(unfinished)


@pytest.mark.parametrize("name", ["networks", "opinions"])
def test_files_of_a_finished_group_must_be_there_and_sound(unfinished, name):
    path = unfinished / name / "seed-1.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(unfinished, "lost or damaged")
    path.unlink()
    refused(unfinished, "lost or damaged")


@pytest.mark.parametrize("name", ["networks", "opinions"])
def test_damaged_files_of_a_finished_run_are_refused(name, tmp_path):
    result = run(experiment("coteaching", seeds=(1,), epochs=2, out=tmp_path / "run"), say=silent)
    path = result.folder / name / "seed-1.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + bytes(8) + whole[-1:])
    with pytest.raises(ValueError, match="is damaged"):
        result.network() if name == "networks" else read_run(result.folder)


@pytest.mark.parametrize("name", ["metrics.jsonl", "losses.jsonl", "config.toml", "summary.json"])
def test_texts_of_a_finished_run_that_were_changed_are_refused(name, tmp_path):
    folder = run(experiment("coteaching", seeds=(1,), epochs=2, out=tmp_path / "run"), say=silent).folder
    read_run(folder)
    path = folder / name
    path.write_text(path.read_text().replace("1", "2", 1) if name != "config.toml" else path.read_text() + "\n")
    with pytest.raises(ValueError, match="is damaged"):
        read_run(folder)


def test_code_that_changed_since_the_checkpoint_is_told(unfinished, monkeypatch):
    lines = []
    monkeypatch.setattr(checkpoint, "code_digest", lambda: "other")
    run(Experiment(resume=unfinished), say=lines.append)
    assert any("the code of coteach has changed" in line for line in lines)


def test_a_clock_that_goes_backwards_changes_nothing(unfinished, stopped_run, tmp_path, monkeypatch):
    """Files of the past and of the future: nothing asks for the time of day."""
    for n, path in enumerate(sorted(unfinished.rglob("*"))):
        os.utime(path, (10**9 * (n % 2) * 4, 10**9 * (n % 2) * 4))
    monkeypatch.setattr("time.time", lambda: -1e9)
    result = run(Experiment(resume=unfinished), say=silent)
    whole = run(experiment("coteaching", out=tmp_path / "whole"), say=silent)
    assert_same_folder(result.folder, whole.folder)


# ---- the same contents, the same bytes --------------------------------------------------------------------------


def test_two_identical_runs_write_the_same_bytes(tmp_path):
    """But for the seconds that they took."""
    both = [experiment("coteaching", epochs=2, group=2, out=tmp_path / name / "run") for name in "ab"]
    a, b = (contents(run_together([e], say=silent)[0].folder) for e in both)
    assert a.keys() == b.keys() >= {"noise.safetensors", "networks/seed-1.safetensors", "summary.json"}
    summaries = [json.loads(one.pop("summary.json")) | {"seconds": 0} for one in (a, b)]
    assert a == b
    assert summaries[0] == summaries[1]


def test_noise_and_models_are_the_same_bytes_every_time(tmp_path):
    x, y = three_clouds(30)
    for n in range(8):  # the order of a header's entries was a matter of chance
        corrupt([0, 1] * 50, "pair", 0.1).save(tmp_path / f"noise-{n}")
        quick(epochs=1).fit(x, y).save(tmp_path / f"model-{n}")
    for name in ("noise", "model"):
        assert len({path.read_bytes() for path in tmp_path.glob(f"{name}-*")}) == 1


def test_a_damaged_linear_model_or_ledger_is_refused(tmp_path):
    x, y = three_clouds(30)
    save_selective(SelectiveTrainingClassifier(noise_rate=0.1, folds=2, rounds=0).fit(x, y), tmp_path / "linear")
    Ledger(5, ["cat", "dog"]).save(tmp_path / "ledger")
    for name, load_again in (("linear", load_selective), ("ledger", Ledger.load)):
        load_again(tmp_path / name)
        content = (tmp_path / name).read_bytes()
        for at in range(0, len(content), 5):
            (tmp_path / name).write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
            with pytest.raises(ValueError, match="holds no linear model|was not written by Ledger.save"):
                load_again(tmp_path / name)


def test_a_selection_and_a_ledger_take_all_of_a_state_or_none():
    before = Selection("coteaching", steps=10, ledger=Ledger(3))
    state = before.get_extra_state() | {"step": torch.tensor(7)}
    for broken in (
        {name: value for name, value in state.items() if name != "ledger.noted_M"},
        {name: value for name, value in state.items() if name != "given_M"},
        state | {"ledger.labels_M": torch.zeros(4)},
        state | {"ledger.noted_M": torch.zeros(4)},
        state | {"noise_rate_": torch.zeros(2)},
    ):
        after = Selection("coteaching", steps=10, ledger=Ledger(3))
        after.ledger.next_epoch()
        with pytest.raises((KeyError, ValueError, RuntimeError)):
            after.set_extra_state(broken)
        assert (after.step, after.ledger.epoch) == (0, 2)
    after.set_extra_state(state)
    assert (after.step, after.ledger.epoch) == (7, 1)
