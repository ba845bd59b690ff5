"""Pieces of an HTML page. What users wrote goes through `text`; only `Markup` is taken as it is."""

import html
import re
from collections.abc import Iterable, Sequence

from coteach.pages import csp_hash, page_file, style_of

NUMBER = re.compile(r"[-+−]?[\d,.]+( ± [\d.]+)?( %)?|–|")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def skeleton(name: str, *scripts: str) -> dict[str, str]:
    """The parts that every page has: its style after the one that all share, its script, and their hashes."""
    style, script = style_of("report", name), "".join(page_file("report", script) for script in scripts)
    return {"style": style, "style_hash": csp_hash(style), "script": script, "script_hash": csp_hash(script)}


def filled(template: str, parts: dict[str, str]) -> str:
    """Each {{name}} once: what comes in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def text(value: object) -> Markup:
    """Shown as it is written, whatever it is; what is no UTF-8, as in some names of files, becomes \\udce9."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(str(value).encode("utf-8", "backslashreplace").decode("utf-8")))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """`class_` stands for class, and _ for -."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(value)}"'
        for name, value in attributes.items()
        if value != ""
    )
    return Markup(f"<{tag}{named}>{joined(content)}</{tag}>")


def joined(parts: Iterable[object], between: str = "") -> Markup:
    return Markup(between.join(map(text, parts)))


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], class_: str = "") -> Markup:
    """A row's first cell names it. It scrolls inside itself, by keys, too."""
    head = joined(element("th", name, scope="col", class_=numeric(i)) for i, name in enumerate(header))
    body = joined(
        element("tr", element("th", row[0], scope="row"), *(cell(value) for value in row[1:])) for row in rows
    )
    whole = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", head)),
        element("tbody", body),
        class_=class_,
    )
    return scrolled(whole, caption)


def numeric(column: int) -> str:
    return "" if column == 0 else "column"


def cell(value: object) -> Markup:
    return element("td", value, class_="number" if NUMBER.fullmatch(str(value)) else "")


def scrolled(content: Markup, name: str) -> Markup:
    return element("div", content, class_="scroll", tabindex=0, role="region", aria_label=name)
