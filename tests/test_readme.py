"""The README's Python, run as it stands."""

import re
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, classifier, second = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(first, names)
    assert names["result"].summary["mean"] > 80
    digits = load_digits()
    random = np.random.default_rng(0)
    wrong = random.random(1200) < 0.2
    labels = np.where(wrong, random.integers(0, 10, 1200), digits.target[:1200])
    names |= {"x": digits.data[:1200], "y": labels, "x_test": digits.data[1200:], "y_test": digits.target[1200:]}
    exec(classifier, names)
    assert abs(names["classifier"].noise_rate_ - 0.18) < 0.04  # a tenth of the random labels are right
    assert wrong[names["worst"].index].mean() > 0.8
    exec(second, names)
    assert names["network"](names["data"].x_test).shape == (597, 10)
