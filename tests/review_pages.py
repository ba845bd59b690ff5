"""The review page in a browser, as a user sees it and what a user does: for tests of several files."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coteach.audit.review import review_page
from coteach.labels.checked import Drawn
from page_cases import Page
from review_audits import made_up, write_audit

N, SUSPECTS = 90, 30
CLASSES = ["cat", "cow", "dog", "emu"]


class Review(Page):
    """What a user sees and does."""

    def press(self, keys: str) -> None:
        for key in keys.split():
            self.tab.keyboard.press(key)

    def text(self, name: str) -> str:
        return self.tab.locator(f"#{name}").inner_text()

    @property
    def verdicts(self) -> list[str]:
        return self.tab.locator(".row .verdict").all_inner_texts()

    def choose(self, name: str, value: str) -> None:
        self.tab.select_option(f"#filter-{name}", value)

    def exported_to(self, path: Path) -> str:
        """The name that the browser was told."""
        with self.tab.expect_download() as download:
            self.tab.click("#export")
        download.value.save_as(path)
        return download.value.suggested_filename

    def exported(self, path: Path) -> list[dict[str, str]]:
        name = self.exported_to(path)
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert name == f"decisions-{len(rows)}.csv"
        return rows


def opener(contexts: list, pages: list, browser, folder: Path) -> Callable[..., Review]:
    """A function that opens the page of an audit."""

    def opened(findings=None, context=None, **options) -> Review:
        path = folder / "audit" / "review.html"
        if findings is not None or not path.exists():
            write_audit(findings or made_up(CLASSES, N, SUSPECTS), path.parent)
        if context is None:
            context = browser.new_context(**options)
            context.set_default_timeout(10_000)
            contexts.append(context)
        pages.append(Review(context, path))
        return pages[-1]

    return opened


def review_of_check(review, path: Path) -> Review:
    """Thirty samples of ninety in three parts, of which the first ten are of the worst."""
    drawn = Drawn(np.arange(30), np.arange(30) // 10, np.array([15, 15, 60]))
    findings = made_up(CLASSES, N, SUSPECTS)
    path.parent.mkdir(exist_ok=True)
    page = review_page(findings, path.parent, "a", drawn, np.ones(N, dtype=bool))
    path.write_text(page, encoding="utf-8")
    return review()
