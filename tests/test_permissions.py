"""Folders in which an ordinary user may not write, and names that other systems do not allow."""

import itertools
import re
import shutil

import pytest

from coteach.files import write_atomically
from coteach.names import METHOD_FACTS, NOISES
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.folder import FILES, FOLDERS, claim_folder, default_folder
from coteach.runs.run import run
from permissions import needs_users, ordinary_user, public_folder
from resume_cases import experiment, stopped
from run_cases import silent


@needs_users
def test_a_folder_that_may_not_be_written_is_one_sentence():
    with public_folder() as folder:
        (folder / "closed").mkdir(mode=0o555)
        with ordinary_user():
            for wanted in (folder / "closed", folder / "closed" / "new"):
                with pytest.raises(ValueError, match=r"cannot write to .*Permission denied.*--out"):
                    claim_folder(wanted, folder)
            with pytest.raises(PermissionError):
                write_atomically(folder / "closed" / "file", "text")
        assert not list((folder / "closed").iterdir())


@needs_users
def test_a_run_that_may_not_be_written_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)
    stopped([experiment("coteaching", seeds=(1,), out=tmp_path / "run")], 2)
    with public_folder() as folder:
        shutil.copytree(tmp_path / "run", folder / "run")
        for path in (folder / "run").rglob("*"):
            path.chmod(0o444 if path.is_file() else 0o555)
        (folder / "run").chmod(0o555)
        before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
        with ordinary_user(), pytest.raises((ValueError, PermissionError)):
            run(Experiment(resume=folder / "run"), say=silent)
        assert {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()} == before


def test_names_of_files_are_allowed_on_windows_and_macos():
    """No characters that Windows forbids, and none that differ only in their case."""
    folders = {
        default_folder(
            Experiment(method=method, noise=noise, loss=loss, matrix="m" if noise == "matrix" else None)
        ).name
        for method, noise, loss in itertools.product(METHOD_FACTS, NOISES, (None, "gce"))
    }
    for name in {*folders, *FILES, *FOLDERS}:
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name), name
        assert not name.endswith("."), name
    assert len({name.lower() for name in folders}) == len(folders)
