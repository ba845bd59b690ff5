"""The driver of random damage is sound itself: it finds nothing here, and finds what is broken on purpose."""

import os
import subprocess
import sys

import pytest

from resume_cases import HERE


def damage(*words, script: str | None = None) -> subprocess.CompletedProcess:
    start = [str(HERE / "random_damage.py")] if script is None else ["-c", script]
    environment = os.environ | {"PYTHONPATH": f"{HERE.parent / 'src'}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *start, *map(str, words)], env=environment, capture_output=True, text=True
    )


@pytest.mark.soak
def test_an_audit_that_is_killed_at_twenty_moments():
    """Nothing half-written is taken for whole, and it can be begun anew."""
    done = damage("--minutes", 60, "--kind", "killed_audit", "--most", 20)
    assert "20 trials, 0 findings" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_damage_that_is_not_noticed_is_a_finding():
    """With checksums switched off, as in 0.1.0, a damaged model answers wrongly, and the driver says so."""
    script = (
        "import sys, random_damage, coteach.tensor_files as files\n"
        "files.refuse_damaged = lambda path: None\n"
        "random_damage.DAMAGES = {'bits': random_damage.DAMAGES['bits']}\n"
        "sys.exit(random_damage.soak(10, 1, kind='damaged_model', most=8) > 0)\n"
    )
    done = damage(script=script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FINDING, trial 1" in done.stdout
