"""Output that cannot be encoded, is closed or full: never a traceback, and never the end of finished work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resume_cases import HERE

TABLE = "x,label\n" + "".join(f"{i % 5},{'→é' if i % 2 else 'ß→'}\n" for i in range(40))


def coteach(*words, encoding="utf-8", stdout=subprocess.PIPE, cwd=None) -> subprocess.CompletedProcess:
    environment = os.environ | {
        "PYTHONPATH": str(HERE.parent / "src"),
        "PYTHONIOENCODING": encoding,
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "coteach", *map(str, words)],
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd,
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_finished_audit_says_so_in_any_encoding(encoding, tmp_path):
    (tmp_path / "table.csv").write_text(TABLE, encoding="utf-8")
    out = tmp_path / "audit-→"
    words = [
        "audit",
        "--table",
        tmp_path / "table.csv",
        "--label",
        "label",
        "--noise-rate",
        "0.1",
        "--epochs",
        "1",
    ]
    done = coteach(*words, "--out", out, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"written to" in done.stdout
    assert rb"\u2192" in done.stdout
    assert (out / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["reproduce"], ["run", "--epochs", "1", "--out", "r"]]
)
def test_a_full_output_is_one_sentence(words, tmp_path):
    with open("/dev/full", "wb") as full:
        done = coteach(*words, stdout=full, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "coteach: the output cannot be written (No space left on device): make room."
    ]


@pytest.mark.slow
def test_closed_output_is_no_traceback(tmp_path):
    command = (
        f"{sys.executable} -m coteach reproduce >&- 2>&-; echo $? > rc; {sys.executable} -m coteach x >&- 2> err"
    )
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(HERE.parent / "src")})
    assert (tmp_path / "rc").read_text() == "0\n"
    assert "Traceback" not in (tmp_path / "err").read_text()


def test_a_place_that_the_system_refuses_is_one_sentence(tmp_path, capsys):
    from coteach.cli import main

    for words in (
        ["run", "--epochs", "1", "--out", "a" * 300],
        ["report", "a" * 300],
        ["audit", "--npz", "a" * 300],
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2
        assert "File name too long" in capsys.readouterr().err
