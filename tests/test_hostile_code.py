"""No file can become code: what would let it is nowhere in the package. SECURITY.md tells of tests that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULES = {"pickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "yaml", "runpy", "code"}
CALLS = {
    *("eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load", "torch.hub.load", "torch.package"),
    *("joblib.load", "pandas.read_pickle", "os.system", "os.popen", "shutil.unpack_archive", "tempfile.mktemp"),
    *("pooch.Unzip", "pooch.Untar", "pooch.Decompress", "numpy.memmap"),
}
ONLY_WITHOUT_PICKLE = {"numpy.load", "numpy.lib.format.read_array", "numpy.lib.npyio.load"}


def dangers(source: str) -> Iterator[str]:
    """What in this source could run what a file says, or unpack one onto the disk."""
    tree = ast.parse(source)
    meant: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meant |= {alias.asname: alias.name for alias in node.names if alias.asname}
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            meant |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            if node.module.split(".")[0] in MODULES:
                yield node.module
    for node in ast.walk(tree):
        used = isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load)
        if used and (name := full_name(node, meant)) in CALLS:
            yield name
        if isinstance(node, ast.Call):
            name, keywords = full_name(node.func, meant), {k.arg: k.value for k in node.keywords}
            if name in ONLY_WITHOUT_PICKLE and "allow_pickle" not in keywords:
                yield name
            for keyword in ("allow_pickle", "shell"):
                if keyword in keywords and not is_false(keywords[keyword]):
                    yield keyword
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("extract", "extractall"):
                yield node.func.attr


def full_name(node: ast.AST, meant: dict[str, str]) -> str:
    """The dotted name of an expression, or nothing."""
    if isinstance(node, ast.Name):
        return meant.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (start := full_name(node.value, meant)):
        return f"{start}.{node.attr}"
    return ""


def is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_nothing_in_the_package_runs_or_unpacks_a_file(path):
    assert list(dangers(path.read_text("utf-8"))) == []


def test_the_whole_package_is_looked_at():
    assert {"published.py", "files.py", "checks.py"} <= {path.name for path in SOURCES}


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "import pickle as p", "from pickle import loads", "import yaml", "import marshal"),
        *("eval(x)", "exec(x)", "compile(x, '', 'exec')", "f = eval", "__import__(x)"),
        *("import torch; torch.load(x)", "import torch as t; t.load(x)", "from torch import load; load(x)"),
        *("import torch.jit; torch.jit.load(x)", "from torch import jit as j; j.load(x)", "f = torch.load"),
        *("import numpy as np; np.load(x)", "import numpy as np; np.load(x, allow_pickle=True)"),
        *("import numpy as np; np.load(x, allow_pickle=y)", "from numpy import load; load(x)"),
        *("import numpy as np; np.lib.format.read_array(x)", "import os; os.system(x)"),
        *("from os import popen; popen(x)", "import pandas as pd; pd.read_pickle(x)", "joblib.load(x)"),
        *("run(x, shell=True)", "run(x, shell=y)", "archive.extractall()", "a.extract(m)"),
        "import shutil as s; s.unpack_archive(x)",
    ],
)
def test_the_search_finds(source):
    assert list(dangers(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np; np.load(x, allow_pickle=False); np.lib.format.read_array(x, allow_pickle=False)",
        "network.eval(); pattern.exec(); re.compile('a'); torch.compile(f); json.loads(x); self.load(x)",
        "import subprocess; subprocess.run([x], shell=False); RobustClassifier.load(x); compile: str = 'auto'",
    ],
)
def test_the_search_does_not_find(source):
    assert list(dangers(source)) == []


def test_every_promise_names_tests_that_exist():
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) >= 10
    for row in rows:
        tests = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert tests, row
        for file, test in tests:
            tree = ast.parse((ROOT / "tests" / file).read_text("utf-8"))
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test
