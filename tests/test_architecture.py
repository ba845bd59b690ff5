"""The rules of the house: imports go one way, as docs/architecture.md draws it, and a name has one definition."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "coteach"
PAGE = ROOT / "docs" / "architecture.md"
NO_MODULE = ("__init__", "__main__")  # the public names, and `python -m coteach`


def modules() -> Iterator[tuple[tuple[str, ...], ast.Module]]:
    """The dotted name below coteach, as a tuple, and the code of every module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").parts
        yield (name[:-1] or name if name[-1] == "__init__" else name), ast.parse(path.read_text("utf-8"))


def drawn_modules() -> list[str]:
    """As the picture of docs/architecture.md has them, from the command line down to the names."""
    picture = PAGE.read_text("utf-8").split("```text\n")[1].split("```")[0]
    return [module for line in picture.splitlines() for module in line[16:].split(" · ") if line.strip()]


def imported_modules(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "coteach":
            found |= {f"coteach.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name.split(".")[1] for name in found if name.startswith("coteach.")} - {"__version__"}


def test_the_picture_shows_every_module_once():
    there = {name[0] for name, _ in modules()} - set(NO_MODULE)
    assert sorted(drawn_modules()) == sorted(there)


def test_imports_go_down_the_picture():
    """To the right in a line, or to a line below; so no two modules import each other."""
    place = {module: i for i, module in enumerate(drawn_modules())}
    upwards = [
        f"{'.'.join(name)} imports {module}"
        for name, tree in modules()
        if name[0] not in NO_MODULE
        for module in imported_modules(tree) - {name[0]}
        if place[module] < place[name[0]]
    ]
    assert upwards == []


def test_runs_and_the_classifier_are_neighbours():
    for name, tree in modules():
        if name[0] in ("runs", "classifier"):
            assert not imported_modules(tree) & {"runs", "classifier"} - {name[0]}, name


def test_a_name_is_defined_once():
    where: dict[str, list[str]] = defaultdict(list)
    for name, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                where[node.name].append(".".join(name))
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        where[target.id].append(".".join(name))
    twice = {name: there for name, there in where.items() if len(there) > 1 and not name.startswith("_")}
    assert twice == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, absent",
    [
        ("import coteach; coteach.RobustClassifier", ("rich", "matplotlib", "coteach.runs")),
        ("import coteach; coteach.run", ("rich", "matplotlib", "coteach.classifier", "coteach.cli")),
        ("import coteach.cli", ("torch", "sklearn", "matplotlib")),
        ("import coteach.rules, coteach.train", ("rich", "coteach.runs", "coteach.classifier")),
    ],
)
def test_what_an_import_leaves_alone(code, absent):
    command = f"import sys; {code}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
