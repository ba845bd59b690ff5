"""Links and folders in a file's place: refused before anything is changed, here or where a link points to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from coteach import Ledger, Pair
from coteach.audit.decisions import DECISION_COLUMNS, audit_fingerprint, read_cells
from coteach.cli import main
from coteach.cli.audit import claimed_folder
from coteach.files import as_csv, write_atomically
from coteach.paper.measured import path_of
from coteach.paper.reproduce import measure_cells
from coteach.runs import checkpoint
from coteach.runs.experiment import Experiment
from coteach.runs.run import run
from estimator_cases import quick, three_clouds
from grid_cases import cell
from report_runs import write_run
from resume_cases import HERE, assert_same_folder, experiment, stopped
from review_audits import made_up, write_audit
from run_cases import silent

KEPT = "kept as it is\n"


@pytest.fixture(autouse=True)
def every_epoch_is_kept(monkeypatch):
    monkeypatch.setattr(checkpoint, "COST", 1e9)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped") / "run"
    stopped([experiment("coteaching", seeds=(1,), out=folder)], 2)
    return folder


@pytest.fixture
def unfinished(stopped_run, tmp_path):
    return shutil.copytree(stopped_run, tmp_path / "run")


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside"
    path.write_text(KEPT * 100)
    return path


def everything(folder: Path) -> dict[str, bytes | str]:
    def content(path: Path) -> bytes | str:
        return os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"

    return {path.relative_to(folder).as_posix(): content(path) for path in sorted(folder.rglob("*"))}


def refused_line(words: list, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


RUN_FILES = [
    "metrics.jsonl",
    "losses.jsonl",
    "config.toml",
    "noise.safetensors",
    "checkpoint.safetensors",
    ".lock",
]


@pytest.mark.parametrize("name", [*RUN_FILES, "summary.json", "estimate.jsonl", "networks"])
@pytest.mark.parametrize("what", ["link", "dangling link", "folder"])
def test_a_run_does_not_go_on_through_a_link_or_a_folder(name, what, unfinished, outside, tmp_path, capsys):
    place = unfinished / name
    if what == "folder":
        if name == "networks":
            return
        place.unlink(missing_ok=True)
        place.mkdir()
    else:
        if place.is_file():
            outside.write_bytes(place.read_bytes() + b'{"more": 1}\n')
        target = tmp_path if name == "networks" else outside if what == "link" else tmp_path / "nowhere"
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    before = everything(tmp_path)
    assert str(place) in refused_line(["run", "--resume", unfinished], capsys)
    assert everything(tmp_path) == before


def test_a_file_that_has_another_name_elsewhere_keeps_its_rows(unfinished, outside, tmp_path):
    """A copy by hard links: what the run goes on to write is not written to both."""
    for name in ("metrics.jsonl", "losses.jsonl", "config.toml"):
        os.link(unfinished / name, tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in ("metrics.jsonl", "losses.jsonl", "config.toml")}
    result = run(Experiment(resume=unfinished), say=silent)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert_same_folder(
        result.folder, run(experiment("coteaching", seeds=(1,), out=tmp_path / "w"), say=silent).folder
    )


def test_nothing_is_written_through_a_link_of_the_unfinished_name(outside, tmp_path, monkeypatch):
    monkeypatch.setattr("coteach.files.os.getpid", lambda: 7)
    monkeypatch.setattr("coteach.files.threading.get_ident", lambda: 8)
    for name in (".file.7.tmp", ".file.7-8.tmp"):
        (tmp_path / name).symlink_to(outside)
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert outside.read_text() == KEPT * 100


def test_a_long_name_is_written(tmp_path):
    write_atomically(tmp_path / ("ß" * 120), "new")
    assert (tmp_path / ("ß" * 120)).read_text() == "new"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--out", "page.html"], ["--figures", "--out", "."]], ids=["page", "figures"])
def test_a_report_is_not_written_through_a_link(words, outside, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "run")
    main(["report", str(folder), *words])
    written = [path for path in tmp_path.iterdir() if path.is_file() and path != outside]
    assert written
    capsys.readouterr()
    for place in written:
        outside.write_bytes(place.read_bytes())
        content = place.read_bytes()
        place.unlink()
        place.symlink_to(outside)
        assert place.name in refused_line(["report", folder, *words], capsys)
        assert place.is_symlink()
        assert outside.read_bytes() == content
        place.unlink()
        place.write_bytes(content)


def test_a_run_that_has_lost_its_summary_is_not_taken_for_one_that_goes_on(tmp_path, capsys):
    run(experiment("standard", out=tmp_path / "run"), say=silent)
    (tmp_path / "run" / "summary.json").unlink()
    line = refused_line(["report", tmp_path / "run", "--out", tmp_path / "page.html"], capsys)
    assert "summary.json is missing, though the run has ended" in line


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "losses.jsonl", "noise.safetensors"])
def test_a_link_that_leads_nowhere_is_no_missing_file_to_a_report(name, tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "nowhere")
    line = refused_line(["report", folder, "--out", tmp_path / "page.html"], capsys)
    assert f"{name} is a link that leads nowhere" in line
    assert not (tmp_path / "page.html").exists()


def test_decisions_are_not_applied_through_a_link(outside, tmp_path, capsys):
    folder = tmp_path / "audit"
    write_audit(made_up(["a", "b"], 40, 4), folder)
    suspects = read_cells(folder / "suspects.csv", ("id", "given", "suggested"))
    mark = audit_fingerprint(suspects, read_cells(folder / "cleaned.csv", ("id", "label")))
    rows = [(name, given, "keep", given, mark) for name, given, _ in suspects]
    (tmp_path / "decisions.csv").write_text(as_csv([DECISION_COLUMNS, *rows]))
    (folder / "corrected.csv").symlink_to(outside)
    before = everything(tmp_path)
    assert "corrected.csv is a link" in refused_line(
        ["audit", "--apply", tmp_path / "decisions.csv", "--out", folder], capsys
    )
    assert everything(tmp_path) == before


def test_a_classifier_is_not_saved_through_a_link(outside, tmp_path):
    (tmp_path / "model").symlink_to(outside)
    with pytest.raises(ValueError, match="is a link"):
        quick(epochs=1).fit(*three_clouds(30)).save(tmp_path / "model")
    assert outside.read_text() == KEPT * 100


def test_an_export_and_a_ledger_are_refused_before_the_work(outside, tmp_path, monkeypatch):
    model, pair, ledger = quick(epochs=1).fit(*three_clouds(30)), Pair(lambda: torch.nn.Linear(4, 2)), Ledger(2)
    monkeypatch.setattr("coteach.loops.onnx_file.find_spec", lambda name: name)
    monkeypatch.setattr("torch.onnx.export", None)
    (tmp_path / "link").symlink_to(outside)
    for place, said in (("link", "is a link"), (".", "is a folder"), ("no/such", "there is no folder")):
        for write in (model.export_onnx, lambda path: pair.export_onnx(path, torch.zeros(3, 4)), ledger.save):
            with pytest.raises(ValueError, match=said):
                write(tmp_path / place)
    assert outside.read_text() == KEPT * 100


def test_a_lock_is_not_taken_through_a_link(outside, tmp_path):
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / ".lock").symlink_to(outside)
    with pytest.raises(ValueError, match=r"\.lock is a link"), claimed_folder(tmp_path / "audit"):
        pass
    assert outside.read_text() == KEPT * 100


@pytest.mark.parametrize("place", ["cell", ".running"])
def test_nothing_is_measured_through_a_link(place, outside, tmp_path):
    wanted, out = [cell(epochs=2)], tmp_path / "results"
    path = path_of(wanted[0], out) if place == "cell" else out / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside if place == "cell" else tmp_path)
    before = everything(tmp_path)
    with pytest.raises(ValueError, match="is a link"):
        measure_cells(wanted, out)
    assert everything(tmp_path) == before


def test_two_audits_do_not_write_to_one_folder(tmp_path):
    holder = (
        "import sys; from pathlib import Path; from coteach.cli.audit import claimed_folder\n"
        "with claimed_folder(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "audit")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE.parent / "src")},
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    try:
        with pytest.raises(ValueError, match="another process is writing"), claimed_folder(tmp_path / "audit"):
            pass
    finally:
        other.communicate("")
    with claimed_folder(tmp_path / "audit"):
        pass
