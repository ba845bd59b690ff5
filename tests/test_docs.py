"""What the documentation quotes was measured."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUOTED = re.compile(r"\d+\.\d\d ± \d+\.\d\d")


@pytest.fixture(scope="module")
def measured() -> set[str]:
    pages = (ROOT / "results").glob("*/README.md")
    return {number for page in pages for number in QUOTED.findall(page.read_text("utf-8"))}


@pytest.mark.parametrize("page", ["docs/results.md", "README.md"])
def test_every_quoted_result_is_in_a_table_of_the_results(page, measured):
    quoted = QUOTED.findall((ROOT / page).read_text("utf-8"))
    assert set(quoted) <= measured, set(quoted) - measured


def test_results_are_quoted_at_all(measured):
    assert len(QUOTED.findall((ROOT / "docs/results.md").read_text("utf-8"))) > 50
    assert len(measured) > 50


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/*.md")) + ["README.md"]
)
def test_links_inside_the_project_lead_somewhere(page):
    text = (ROOT / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target
