"""The report in a real browser: chooser, slider, links, phone, print, no script, and what it must never do."""

import io
import re

import pytest
from PIL import Image

from coteach.report.page import report_page
from coteach.report.read import read_run
from page_cases import HOSTILE, Page, harmless
from report_runs import changed_experiment, write_run

PHONE = {"viewport": {"width": 360, "height": 740}}


class Report(Page):
    """What a user sees and does."""

    def seen(self, what: str) -> list[str]:
        """The texts of what can be seen."""
        return [found.inner_text() for found in self.tab.locator(what).all() if found.is_visible()]

    @property
    def runs(self) -> list[str]:
        return self.seen("article > h3")

    @property
    def epochs(self) -> list[str]:
        return [text.partition(":")[0] for text in self.seen(".frame figcaption")]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Three runs on two noises, a hostile one among them."""
    home = tmp_path_factory.mktemp("report")
    hostile = HOSTILE[0]
    folders = [
        write_run(home / "a", epochs=30),
        write_run(home / "b", method="standard", noise="symmetric", n_classes=30),
        write_run(home / "<script>alert(1)<∕script>", reached=3, events={hostile: 1}),
    ]
    changed_experiment(folders[2], dataset=hostile, method=hostile)
    path = home / "report.html"
    path.write_text(report_page([read_run(folder) for folder in folders]), encoding="utf-8")
    return path


@pytest.fixture
def report(browser, written):
    """A function that opens the page; in the end nothing may have gone wrong or been asked for."""
    contexts, pages = [], []

    def opened(fragment="", **options):
        contexts.append(browser.new_context(**options))
        contexts[-1].set_default_timeout(10_000)
        pages.append(Report(contexts[-1], written, fragment))
        return pages[-1]

    with harmless(pages, contexts):
        yield opened


NAMES = [
    "digits, pair 40 %: Co-teaching, epochs 30",
    "digits, symmetric 40 %: Standard, epochs 6",
    f"{HOSTILE[0]}, pair 40 %: {HOSTILE[0]}",
]


@pytest.mark.slow
def test_one_run_is_shown_at_a_time_and_chosen_by_mouse_keys_or_link(report):
    page = report()
    assert page.runs == NAMES[:1]
    page.tab.select_option("#chooser", label=NAMES[1])
    assert page.runs == NAMES[1:2]
    page.tab.focus("#chooser")
    page.tab.keyboard.press("ArrowDown")
    assert page.runs == NAMES[2:]
    page.tab.keyboard.press("End")
    assert page.runs == NAMES
    page.tab.click("table.results a >> text=Standard")
    assert page.runs == NAMES[1:2]
    assert page.tab.input_value("#chooser") == "run-2"
    assert report("#run-2").runs == NAMES[1:2]


@pytest.mark.slow
def test_a_slider_moves_through_the_epochs_by_keys_and_mouse(report):
    page = report()
    slider = page.tab.locator("#run-1 input[type=range]")
    assert page.epochs == ["epoch 6"]
    slider.focus()
    page.tab.keyboard.press("ArrowLeft")
    assert page.epochs == ["epoch 5"]
    assert page.tab.inner_text("#run-1 output") == slider.get_attribute("aria-valuetext") == "epoch 5"
    page.tab.keyboard.press("Home")
    assert page.epochs == ["epoch 1"]
    box = slider.bounding_box()
    page.tab.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    assert page.epochs == ["epoch 6"]
    assert "in 100.0 % of pairs" in page.seen(".frame figcaption")[0]


def test_hostile_names_are_shown_as_text(report):
    page = report("#run-3")
    assert page.tab.locator("script").count() == 1
    assert page.runs == NAMES[2:]
    assert f"{HOSTILE[0]}, pair 40 %" in page.tab.title()
    assert HOSTILE[0] in page.seen("#events td")
    assert page.seen("#run-3 > p code")[0].endswith("<script>alert(1)<∕script>")
    assert HOSTILE[0] in page.tab.locator("svg.drawn text").all_text_contents()


def test_without_a_script_all_runs_are_there_with_some_epochs(report):
    page = report(java_script_enabled=False)
    assert page.runs == NAMES
    assert page.epochs == [f"epoch {k}" for k in (1, 2, 3, 4, 5, 6)] * 2 + ["epoch 1", "epoch 2", "epoch 3"]
    assert not page.tab.locator("#chooser").is_visible()
    assert not page.tab.locator("input").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_print_shows_all_on_white(scheme, report):
    page = report(color_scheme=scheme)
    page.tab.emulate_media(media="print", color_scheme=scheme)
    assert page.runs == NAMES
    assert len(page.epochs) == 6 + 6 + 3
    assert not page.tab.locator("#chooser").is_visible()
    assert not page.tab.locator("nav").is_visible()
    colours = "(() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] })()"
    assert page.tab.evaluate(colours) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert len(page.tab.pdf()) > 10_000


@pytest.mark.parametrize("options", [PHONE, PHONE | {"java_script_enabled": False}])
def test_a_phone_scrolls_tables_and_curves_inside_themselves(options, report):
    page = report(**options)
    width = page.tab.evaluate("document.documentElement.scrollWidth") if options is PHONE else None
    assert width in (360, None)
    for box in (
        found.bounding_box() for found in page.tab.locator(".scroll, h1, h2, h3, p, select, .frames").all()
    ):
        assert box is None or box["x"] + box["width"] <= 360
    wide = page.tab.locator(".scroll >> table.results").first.bounding_box()
    assert wide["width"] > 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("what", [".scroll:has(table.results)", ".scroll:has(svg.drawn)"])
def test_a_shadow_lies_where_there_is_more_to_scroll_to(what, scheme, report):
    page = report(**PHONE, color_scheme=scheme)
    box = page.tab.locator(what).first
    paper = page.tab.locator("#results").evaluate("e => getComputedStyle(e).backgroundColor")
    ground = tuple(int(number) for number in re.findall(r"\d+", paper))
    seen = {}
    for place, left in {"begin": 0, "end": 10_000}.items():
        box.evaluate("(e, left) => { e.scrollLeft = left }", left)
        image = Image.open(io.BytesIO(box.screenshot())).convert("RGB")
        bottom = image.height - 4
        seen[place] = [image.getpixel((x, bottom)) != ground for x in (2, image.width - 3)]
    assert seen == {"begin": [False, True], "end": [True, False]}


def test_the_words_of_drawings_can_be_read_on_a_phone(report):
    page = report(**PHONE)
    sizes = page.tab.locator("svg.drawn text, .run:not(.away) .now text").evaluate_all(
        """all => all.map(e => {
             const to = e.getScreenCTM();
             return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(to.a, to.b);
           })"""
    )
    assert len(sizes) > 20
    assert min(sizes) >= 9


def test_curves_are_in_the_ink_of_the_scheme(report):
    for scheme, ink in (("light", "rgb(27, 31, 36)"), ("dark", "rgb(232, 235, 238)")):
        page = report(color_scheme=scheme)
        style = "element => getComputedStyle(element).fill"
        assert page.tab.locator("svg.drawn text").first.evaluate(style) == ink
        shown = page.tab.locator('svg.drawn [stroke="#0072b2"]').first.evaluate("e => getComputedStyle(e).stroke")
        assert shown == ("rgb(0, 114, 178)" if scheme == "light" else "rgb(61, 159, 220)")


def test_headings_and_regions_have_names(report):
    page = report()
    for role in ("img", "region"):
        for found in page.tab.get_by_role(role).all():
            assert found.get_attribute("aria-label") or found.get_attribute("alt")
    levels = [int(found.evaluate("e => e.tagName[1]")) for found in page.tab.locator("h1, h2, h3, h4, h5").all()]
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
