"""Every public name has a docstring whose example runs and whose parameters are those there are.

An example takes `coteach`, `np` and `torch` for imported, and goes on from the examples of its module's docstring.
"""

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import coteach

SOURCE = Path(coteach.__file__).parent
ALSO_PUBLIC = ("labels.estimate", "labels.cleanlab", "runs.callbacks", "runs.tensorboard")
NO_EXAMPLE = {
    "losses.Loss": "a type",
    "rules.Pick": "a type",
    "rules.OF_EACH_CLASS": "a table for the lines around it",
    "rules.BY_MIXTURE": "a table for the lines around it",
    "rules.LIKELY": "a number for the lines around it",
    "rules.rounded": "a step of how_many",
    "rules.lowest_of_each_class": "a step of small_loss_of_each_class",
    "rules.sorted_order": "a step of lowest",
    "networks.FORMS": "a table for the lines around it",
    "noise.FORMAT": "what a noise file begins with",
    "noise.TENSORS": "what a noise file holds",
    "runs.callbacks.TrackedRun": "the trainer's side of a Tracker",
}
NO_PARAMETERS = {
    "Experiment": "its fields carry their own texts",
    "rules.Batch": "its fields carry their shapes in their names, and comments",
    "losses": "the module's docstring gives the shapes",
    "rules": "tensors carry their shapes in their names",
    "schedules": "they are named in the sentence",
    "runs.callbacks.TrackedRun": "the trainer's side of a Tracker",
}
FEW = 2  # parameters that a sentence can tell


# ---- what is public -------------------------------------------------------------------------------------------


def public_names() -> dict[str, Any]:
    """`coteach.__all__`, the names of the modules in it and of those whose names are used by import."""
    found = {name: getattr(coteach, name) for name in coteach.__all__}
    modules = {name: value for name, value in found.items() if inspect.ismodule(value)}
    modules |= {name: importlib.import_module(f"coteach.{name}") for name in ALSO_PUBLIC}
    for path, module in modules.items():
        found |= {f"{path}.{name}": getattr(module, name) for name in names_of(module)}
    return found


def names_of(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    made_here = (
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    )
    return [name for name in {*made_here, *assigned(module)} if not name.startswith("_")]


def assigned(module: ModuleType) -> dict[str, str]:
    """The constants of a module, each with the text below it."""
    body = ast.parse(inspect.getsource(module)).body
    found = {}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            text = after.value if isinstance(after, ast.Expr) else None
            if isinstance(target, ast.Name):
                found[target.id] = str(text.value) if isinstance(text, ast.Constant) else ""
    return found


def public_members() -> dict[str, Any]:
    """Methods and properties, of this project, of the public classes."""
    found = {}
    for name, kind in PUBLIC.items():
        if inspect.isclass(kind):
            for member, value in inspect.getmembers(kind):
                function = value.fget if isinstance(value, property) else inspect.unwrap(value)
                ours = str(getattr(function, "__module__", "")).startswith("coteach")
                ours = ours and member not in getattr(kind, "__dataclass_fields__", ())
                if ours and not member.startswith("_") and inspect.isroutine(function):
                    found[f"{name}.{member}"] = function
    return found


PUBLIC = public_names()
MEMBERS = public_members()


def excepted(name: str, exceptions: dict[str, str]) -> bool:
    """By itself, or with its module or class."""
    parts = name.split(".")
    return any(".".join(parts[: i + 1]) in exceptions for i in range(len(parts)))


def text_of(name: str) -> str:
    """A docstring; of a constant, the text below it where it is made."""
    value = PUBLIC.get(name) or MEMBERS[name]
    if callable(value) or inspect.ismodule(value):
        return inspect.getdoc(value) or ""
    last = name.rpartition(".")[2]
    return next((texts[last] for texts in map(assigned, MODULES) if texts.get(last)), "")


# ---- examples -------------------------------------------------------------------------------------------------


def documented_modules() -> list[ModuleType]:
    """All that have an example anywhere."""
    paths = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
    dotted = (".".join(["coteach", *path.relative_to(SOURCE).with_suffix("").parts]) for path in paths)
    return [importlib.import_module(name.removesuffix(".__init__")) for name in dotted]


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """Those of its docstrings and of its constants' texts, each after what the module's own docstring sets up."""
    known = {"coteach": coteach, "np": np, "torch": torch} | vars(module)
    parser = doctest.DocTestParser()
    for example in parser.get_examples(module.__doc__ or ""):
        exec(example.source, known)
    found = doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__, globs=known)
    for name, text in assigned(module).items():
        found.append(parser.get_doctest(text, known.copy(), f"{module.__name__}.{name}", module.__file__, 0))
    return [test for test in found if test.examples and test.name != module.__name__]


MODULES = documented_modules()
EXAMPLES = {test.name: test for module in MODULES for test in examples_of(module)}


def shown_beside(name: str) -> bool:
    """Whether another example of its module has the name."""
    last = name.rpartition(".")[2]
    where = getattr(PUBLIC[name], "__module__", None)
    beside = (test for test in EXAMPLES.values() if where and test.name.startswith(f"{where}."))
    return any(re.search(rf"\b{last}\b", example.source) for test in beside for example in test.examples)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_documented_and_shown(name):
    if excepted(name, NO_EXAMPLE):
        return
    text = text_of(name)
    assert text, f"{name} has no docstring"
    if not inspect.ismodule(PUBLIC[name]):
        assert ">>> " in text or shown_beside(name), f"{name} is in no example"


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_every_method_is_documented_and_those_of_the_classifier_shown(name):
    if not excepted(name, NO_EXAMPLE):
        assert text_of(name), f"{name} has no docstring"
        assert ">>> " in text_of(name) or not name.startswith("RobustClassifier."), f"{name} has no example"


def test_exceptions_are_of_names_that_there_are():
    assert (NO_EXAMPLE | NO_PARAMETERS).keys() <= PUBLIC.keys()


@pytest.fixture
def nothing_left(tmp_path, monkeypatch, nothing_stays_registered):
    """Examples write no files where they are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTEACH_DATA", str(tmp_path))
    yield
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_prints_what_it_says(name, nothing_left):
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=said.append)
    assert not said, "".join(said)


# ---- parameters -----------------------------------------------------------------------------------------------


def documented_parameters(text: str) -> list[str] | None:
    """The names in the section of parameters; of a class it may be called attributes."""
    sections = re.split(r"^([A-Z]\w+)\n-+\n", text, flags=re.MULTILINE)  # text, title, text, title, …
    bodies = dict(zip(sections[1::2], sections[2::2], strict=True))
    body = bodies.get("Parameters", bodies.get("Attributes"))
    if body is None:
        return None
    heads = [line.split(" : ")[0] for line in body.splitlines() if line and not line.startswith(" ")]
    return [name.strip(" *") for head in heads for name in head.split(",")]


def parameters_of(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    return [name for name in inspect.signature(value).parameters if name not in ("self", "cls", "args", "kwargs")]


@pytest.mark.parametrize("name", sorted(PUBLIC | MEMBERS))
def test_the_parameters_in_a_docstring_are_those_there_are(name):
    value = PUBLIC.get(name) or MEMBERS[name]
    if not (inspect.isclass(value) or inspect.isroutine(value)) or isinstance(value, property):
        return
    documented, real = documented_parameters(text_of(name)), parameters_of(value)
    if documented is not None:
        assert sorted(documented) == sorted(real)  # what goes in pairs may be told in pairs
    elif not excepted(name, NO_PARAMETERS):
        assert len(real) <= (0 if inspect.isclass(value) else FEW), f"{name} leaves {', '.join(real)} untold"


def test_the_reader_of_sections_reads_them():
    text = "One.\n\nParameters\n----------\na, b : int\n    Two.\n**c\n\nReturns\n-------\nd : int\n"
    assert documented_parameters(text) == ["a", "b", "c"]
    assert documented_parameters("One.\n\nd : int") is None
