"""The README's Python, run as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_the_readmes_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(lines.splitlines()) == 8
    names: dict = {}
    exec(lines, names)
    rate, accuracy = map(float, capsys.readouterr().out.split())
    assert "about 0.27, and 0.90" in lines
    assert abs(rate - 0.27) < 0.02
    assert abs(accuracy - 0.90) < 0.02
    wrong = names["given"] != names["y"]
    assert wrong[names["worst"].index].mean() > 0.9
