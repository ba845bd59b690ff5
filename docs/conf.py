"""How Sphinx builds the site: `make docs`.

The repository's root is the source folder, so that a link from one Markdown file to another is the same here and
wherever else the files are read, and Sphinx checks it. Nothing is asked of the network.
"""

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from docutils import nodes
from pygments.lexers import BashLexer
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

import coteach

project = "coteach"
author = "The coteach authors"
copyright = author
version = release = coteach.__version__

root_doc = "docs/index"
include_patterns = ["docs/**", "results/*/README.md", "benchmarks/README.md", "CHANGELOG.md"]
include_patterns += ["CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]
exclude_patterns = ["docs/README.md", ".*", "build", "data", "runs"]  # docs/README.md is part of docs/index.rst

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
suppress_warnings = ["toc.not_included"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
add_module_names = False
default_role = "literal"  # docstrings have code between single backticks

html_theme = "furo"
html_title = "coteach"
html_extra_path = ["site"]  # index.html, which leads to docs/index.html
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "a11y-high-contrast-light"  # comes with furo
pygments_dark_style = "a11y-dark"
linkcheck_timeout = 20


class CommandHelp(SphinxDirective):
    """What `coteach COMMAND --help-all` prints, a section for each command that there is."""

    def run(self) -> list[nodes.Node]:
        from coteach import cli

        return [self.section(command) for command in cli.COMMANDS]

    def section(self, command: str) -> nodes.Node:
        title = f"coteach {command}"
        words = [sys.executable, "-m", "coteach", command, "--help-all"]
        environment = os.environ | {"COLUMNS": "92", "NO_COLOR": "1"}
        text = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
        block = nodes.literal_block("", text.rstrip(), language="text")
        return nodes.section("", nodes.title("", title), block, ids=[nodes.make_id(title)])


class Example(SphinxDirective):
    """A script of examples/: its docstring, which is Markdown, and its code."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        path = Path(__file__).parents[1] / "examples" / self.arguments[0]
        self.env.note_dependency(str(path))
        script = path.read_text("utf-8")
        told = ast.get_docstring(ast.parse(script)) or ""
        code = script.removeprefix('"""').partition('"""')[2].strip()
        return [*self.parse_text_to_nodes(told), nodes.literal_block("", code, language="python")]


def link_example_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """The list of examples leads to their pages; where the files alone are read, to the scripts."""
    if name == "examples/README":
        source[0] = re.sub(r"\((\w+)\.py\)", r"(../docs/examples/\1.md)", source[0])


def shorten_signature(app: Sphinx, what: str, name: str, obj: object, *_: object) -> tuple[str, None] | None:
    """An experiment's types hold the texts of its flags, which the page of the command line shows."""
    if name != "coteach.Experiment":
        return None
    return f"({', '.join(f'{field.name}={field.default!r}' for field in fields(coteach.Experiment))})", None


class UnbrokenNumbers(SphinxPostTransform):
    """No line ends between a number and its spread, or its per cent."""

    default_priority = 900

    def run(self, **_: object) -> None:
        for text in list(self.document.findall(nodes.Text)):
            if not isinstance(text.parent, nodes.literal | nodes.literal_block):
                unbroken = re.sub(
                    r"(?<=\d) (± ?|%)", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text
                )
                text.parent.replace(text, nodes.Text(unbroken))


class NumbersToTheRight(SphinxPostTransform):
    """A column that holds nothing but numbers is set to the right, its head too."""

    default_priority = 901
    numbers = re.compile(r"[\d\s.,:/×±+%()–−-]*(?: s| points)?[¹²³]?")

    def run(self, **_: object) -> None:
        for table in self.document.findall(nodes.table):
            columns = zip(*([*row.findall(nodes.entry)] for row in table.findall(nodes.row)), strict=False)
            for head, *cells in columns:
                texts = [cell.astext() for cell in cells]
                if any(map(str.strip, texts)) and all(map(self.numbers.fullmatch, texts)):
                    for cell in (head, *cells):
                        cell["classes"] = ["text-right"]


def setup(app: Sphinx) -> None:
    app.add_post_transform(UnbrokenNumbers)
    app.add_post_transform(NumbersToTheRight)
    app.connect("autodoc-process-signature", shorten_signature)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("example", Example)
    app.connect("source-read", link_example_pages)
    app.add_lexer("console", BashLexer)  # ours have no prompt, and would all be taken for output
