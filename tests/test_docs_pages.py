"""The site in a real browser: nothing is too wide, text stands out, code is copied, words are found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Phones, each side of where the theme changes the layout (46, 48, 63, 67, 82 and 97 em), a large screen.
WIDTHS = (320, 360, 737, 769, 1009, 1073, 1199, 1313, 1439, 1553, 1920)
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FAINT = """() => {  // texts below the contrast that WCAG AA asks for
  const numbers = (colour) => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    return found.length < 4 ? [...found, 1] : found;
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const own = numbers(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement));
  };
  const faint = [];
  const texts = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) {
    const element = text.parentElement, style = getComputedStyle(element), below = ground(element);
    if (!text.textContent.trim() || !element.checkVisibility({ opacityProperty: true })) continue;
    const [more, less] = [light(over(numbers(style.color), below)), light(below)].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if ((more + 0.05) / (less + 0.05) < (large ? 3 : 4.5)) faint.push(text.textContent.trim());
  }
  return faint;
}"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = ["-q", "-c", "docs", "-d", str(folder / "doctrees"), "-b", "html", ".", str(folder / "html")]
    subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=ROOT, check=True)
    return folder / "html"


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


def pages(site: Path) -> list[Path]:
    return [path for part in ("docs", "results", "benchmarks") for path in sorted((site / part).rglob("*.html"))]


def test_no_page_is_wider_than_the_window(site, page):
    too_wide = []
    assert len(pages(site)) > 40
    for path in pages(site):
        page.goto(path.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate(OVERFLOW) > 0:
                too_wide.append((path.relative_to(site).as_posix(), width))
    assert too_wide == []
    page.evaluate("document.querySelector('article').style.width = '3000px'")
    page.evaluate("document.querySelector('.content').style.flex = 'none'")
    assert page.evaluate(OVERFLOW) > 0  # it would be noticed


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(site, page, scheme):
    page.emulate_media(color_scheme=scheme)
    for name in (
        "index",
        "start",
        "api/robust_classifier",
        "choosing",
        "command-line",
        "results",
        "methods/jocor",
    ):
        page.goto((site / "docs" / f"{name}.html").as_uri())
        assert page.evaluate(FAINT) == [], name
    page.add_style_tag(content="article p { color: #808080 !important }")
    assert len(page.evaluate(FAINT)) > 2  # it would be noticed


def test_a_block_of_code_is_copied(site, browser):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto((site / "docs" / "start.html").as_uri())
    button = page.locator("div.highlight", has_text="make demo").locator("button")
    button.click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("make demo")
    assert button.inner_text() == "Copied"
    context.close()


def test_the_replication_report_is_six_pages_on_paper(site, page):
    page.goto((site / "docs" / "replication.html").as_uri())
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 6


@pytest.mark.parametrize("words", ["mislabeled", "label errors", "data cleaning"])
def test_the_search_knows_the_words_of_others(site, page, words):
    page.goto(f"{(site / 'search.html').as_uri()}?q={words}")
    found = page.locator("#search-results").get_by_role("link", name="Your own labels", exact=True)
    found.wait_for()  # results come one by one
