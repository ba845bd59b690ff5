"""What the tests of both pages share: hostile names, a tab that remembers, and colours against their ground."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coteach.pages import style_of

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "{{script}}",
    "a\"b'c",
    "two\nlines\r\n",
    "\u202eright to left",
    "\\u003c",
    "$& $1 ${x}",
    "é 漢字 🙂",
]


class Page:
    """A page that is open in a browser, and remembers what it did wrong and asked for."""

    def __init__(self, context, path: Path, fragment: str = "") -> None:
        self.tab = context.new_page()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.tab.on("console", lambda message: self.wrong.append(message.text))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.url = path.resolve().as_uri()
        self.tab.goto(self.url + fragment)

    def assert_harmless(self) -> None:
        assert self.wrong == []
        assert {url.partition("#")[0] for url in self.asked if not url.startswith("data:")} == {self.url}


@contextmanager
def harmless(pages: list, contexts: list) -> Iterator[None]:
    """In the end nothing may have gone wrong or been asked for."""
    yield
    for page in pages:
        page.assert_harmless()
    for context in contexts:
        context.close()


def schemes(room: str, page: str) -> dict[str, dict[str, str]]:
    """The colours of a page by name, light and dark."""
    found: dict[str, dict[str, str]] = {"light": {}, "dark": {}}
    for part in re.split(r"^(?=@media)|^(?=:root)", style_of(room, page), flags=re.MULTILINE):
        scheme = "dark" if "prefers-color-scheme: dark" in part else "light"
        found[scheme] |= dict(re.findall(r"--([\w-]+): (#\w{6});", part))
    assert found["light"].keys() == found["dark"].keys()
    return found


def luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
