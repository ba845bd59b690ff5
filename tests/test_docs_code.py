"""What the pages show as code: Python runs as it stands, commands are understood, quotations are in the source."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

from coteach import cli
from coteach.paper.measured import in_folder
from coteach.paper.presets import Cell
from coteach.runs.experiment import Experiment

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")) + ["README.md"]
QUOTING = [page for page in PAGES if page.startswith("docs/methods/")]  # all their Python is from the source
ELSEWHERE = {
    "README.md": "test_readme.py",
    "docs/own-data.md": "test_audit_docs.py",
    "docs/cleanlab.md": "test_cleanlab.py",
    "docs/own-loop.md": "test_own_loop_docs.py",
}
HERE = [page for page in PAGES if page not in {*QUOTING, *ELSEWHERE}]
# What nobody has at hand, or has the time for, in a test.
SMALLER = {'Experiment(dataset="cifar10", ': 'Experiment(dataset="digits", epochs=2, '}
NOT_MEASURED = {"dividemix"}
QUOTED_FILE = re.compile(r"\]\(\.\./\.\./(src/coteach/\w+\.py)\)")


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", read(page), re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The arguments of each `coteach …`, also of `torchrun … -m coteach …`."""
    lines = [shlex.split(line, comments=True) for block in blocks(page, "console") for line in block.splitlines()]
    return [
        words[words.index("coteach") + 1 :]
        for words in lines
        if "coteach" in words and words[0] not in ("git", "pip")
    ]


# ---- Python -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_stays_registered")
@pytest.mark.parametrize("page", [page for page in HERE if blocks(page, "python")])
def test_python_runs_as_it_stands(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "page"}
    for block in blocks(page, "python"):
        for shown, small in SMALLER.items():
            block = block.replace(shown, small)
        exec(compile(block, page, "exec"), names)
    said = capsys.readouterr().out
    for shown in blocks(page, "text"):
        assert_alike(shown, said)


def assert_alike(shown: str, said: str) -> None:
    """The same words; numbers to two per cent, since another processor rounds otherwise."""
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("0", shown) == number.sub("0", said)
    assert list(map(float, number.findall(shown))) == pytest.approx(
        list(map(float, number.findall(said))), rel=0.02, abs=2
    )


def test_words_and_numbers_that_differ_are_noticed():
    assert_alike("about 95%\n", "about 96%\n")
    for said in ("about 91%\n", "around 95%\n"):
        with pytest.raises(AssertionError):
            assert_alike("about 95%\n", said)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_pages_left_to_other_tests_are_tested_there(page):
    assert Path(page).name in (ROOT / "tests" / ELSEWHERE[page]).read_text("utf-8")


def test_what_is_made_smaller_is_on_a_page():
    assert all(any(shown in read(page) for page in PAGES) for shown in SMALLER)


# ---- commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_are_understood(page):
    for words in commands(page):
        request = cli.parsed(words)
        if isinstance(request, Experiment):  # of an audit the files are looked for, too
            request.check()


def test_there_are_commands():
    assert sum(len(commands(page)) for page in PAGES) > 30


# ---- commands of methods' pages reproduce their tables ----------------------------------------------------------


@cache
def measured_seeds() -> dict[str, set[int]]:
    """The seeds of every configuration in results/, by its hash."""
    found: dict[str, set[int]] = {}
    for record in in_folder(ROOT / "results"):
        found.setdefault(record["hash"], set()).update(record["summary"]["seeds"])
    return found


@pytest.mark.parametrize("page", [*QUOTING, "README.md"])
def test_a_command_above_a_table_was_measured_as_it_stands(page):
    """Other labels, another precision, another reading of a method: each would be another row than the table's."""
    known = measured_seeds()
    for experiment in map(cli.parsed, commands(page)):
        if isinstance(experiment, Experiment) and experiment.method not in NOT_MEASURED:
            cell = Cell("any", experiment, tuple(experiment.seeds), "", "", "")
            assert set(experiment.seeds) <= known[cell.hash], experiment
            assert (experiment.noise_seed, experiment.noise_stream) == (0, "1.16")


# ---- quotations -------------------------------------------------------------------------------------------------


def quotations(page: str) -> list[tuple[str, str]]:
    """Each quoted block, with the file that the text named last before it."""
    text, found, file, end = read(page), [], "", 0
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        file = (QUOTED_FILE.findall(text[end : block.start()]) or [file])[-1]
        found.append((file, block[1]))
        end = block.end()
    return found


@cache
def code_and_docstrings(text: str) -> tuple[list[str], list[str]]:
    """The statements line by line, however they are laid out, and apart from them the docstrings' first lines."""
    tree = ast.parse(dedent(text))
    told = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (docstring := ast.get_docstring(node)):
            told.append(docstring.splitlines()[0])
            node.body = node.body[1:]
    return [line.strip() for line in ast.unparse(tree).splitlines()], told


def is_part(lines: list[str], of: list[str]) -> bool:
    return any(of[i : i + len(lines)] == lines for i in range(len(of)))


@pytest.mark.parametrize("page", QUOTING)
def test_code_that_is_shown_is_in_the_source(page):
    assert quotations(page), "a method's page shows its rule"
    for file, block in quotations(page):
        shown, shown_docstrings = code_and_docstrings(block)
        source, docstrings = code_and_docstrings(read(file))
        assert is_part(shown, of=source), (file, block)
        assert set(shown_docstrings) <= set(docstrings), (file, block)


def test_a_quotation_that_differs_is_noticed():
    source = code_and_docstrings('def f(x):\n    """Twice."""\n    y = 2 * x\n    return y\n')[0]
    assert is_part(code_and_docstrings("    y = (2*x)\n    return y\n")[0], of=source)
    assert not is_part(code_and_docstrings("    y = 3 * x\n    return y\n")[0], of=source)
