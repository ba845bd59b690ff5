"""HTML pages from templates: files that work offline, in which what users wrote is shown as text.

A package keeps templates, styles and scripts of its page in a folder `pages`; `base.html` and `base.css` are here.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(package: str, page: str, scripts: tuple[str, ...], **content: Any) -> str:
    """The page `page`.html of a package, such as "report", with its style and scripts inside."""
    style = style_of(package, page)
    script = "".join(page_file(package, name) for name in scripts)
    return templates(package).get_template(f"{page}.html").render(
        style=Markup(style),
        style_hash=csp_hash(style),
        script=Markup(script),
        script_hash=csp_hash(script),
        **content,
    )  # fmt: skip


def templates(package: str) -> Environment:
    return Environment(
        loader=ChoiceLoader([PackageLoader(f"coteach.{package}", "pages"), PackageLoader("coteach", "pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=encodable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def encodable(value: Any) -> Any:
    """What is no UTF-8, as in some names of files, becomes \\udce9."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if type(value) is str else value


def style_of(package: str, page: str) -> str:
    base = (files("coteach") / "pages" / "base.css").read_text(encoding="utf-8")
    return base + page_file(package, f"{page}.css")


def page_file(package: str, name: str) -> str:
    return (files(f"coteach.{package}") / "pages" / name).read_text(encoding="utf-8")


def csp_hash(content: str) -> str:
    """By which the page's policy knows its own script and style, and lets no other run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
