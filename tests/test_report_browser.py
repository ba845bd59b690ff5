"""The report in a real browser: chooser, slider, links, phone, print, no script, and what it must never do."""

import io
import re
from statistics import mean, stdev

import pytest
from PIL import Image

from coteach.report.page import report_page
from coteach.report.read import read_run
from page_cases import HOSTILE, Page, harmless
from report_runs import accuracy, changed_experiment, write_run

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
def test_a_shadow_lies_where_there_is_more_to_scroll_to(scheme, report):
    page = report(**PHONE, color_scheme=scheme)
    box = page.tab.locator(".scroll:has(table.results)").first
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
    sizes = page.tab.locator("svg.drawn > text, .run:not(.away) .now text").evaluate_all(
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
        stroke = page.tab.locator('.line[color="#0072b2"] > .stroke').first
        shown = stroke.evaluate("e => getComputedStyle(e).stroke")
        assert shown == ("rgb(0, 114, 178)" if scheme == "light" else "rgb(61, 159, 220)")


# ---- charts and tables that answer ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three methods on one noise, one of them with one seed."""
    home = tmp_path_factory.mktemp("compared")
    folders = [
        write_run(home / "a", method="standard", seeds=(1, 2)),
        write_run(home / "b", method="coteaching", seeds=(5, 9)),
        write_run(home / "c", method="jocor", seeds=(3,)),
    ]
    path = home / "report.html"
    path.write_text(report_page([read_run(folder) for folder in folders]), encoding="utf-8")
    return path


@pytest.fixture
def answering(browser, compared):
    """A function that opens the page of `compared`."""
    contexts, pages = [], []

    def opened(**options):
        contexts.append(browser.new_context(**options))
        contexts[-1].set_default_timeout(10_000)
        pages.append(Charts(contexts[-1], compared))
        return pages[-1]

    with harmless(pages, contexts):
        yield opened


class Charts(Report):
    def point(self, epoch: float, value: float, click: bool = False) -> None:
        """The mouse to a place in the first chart, which has six epochs."""
        drawn = self.tab.locator("svg.drawn").first
        drawn.scroll_into_view_if_needed()
        x, y = drawn.evaluate(
            """(svg, [epoch, value]) => {
                const [first, last, low, high, width, height] = svg.dataset.bounds.split(" ").map(Number);
                const [x, y] = [width * (epoch - first) / (last - first), height * (high - value) / (high - low)];
                const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
                return [at.x, at.y];
            }""",
            [epoch, value],
        )
        self.tab.mouse.move(x, y)
        if click:
            self.tab.mouse.click(x, y)

    @property
    def readout(self) -> list[str]:
        return [" ".join(text.split()) for text in self.seen(".readout p, .readout tr")]

    @property
    def bold(self) -> list[str]:
        """The numbers of the lines that are brought out; all where none is."""
        return self.tab.locator(".picking svg.drawn >> nth=0 >> .line.picked").evaluate_all(
            "all => all.map(e => e.dataset.line)"
        )

    @property
    def order(self) -> list[str]:
        return [text.removesuffix(" best") for text in self.seen("table.results tbody th")]


def accuracies(seeds: tuple[int, ...], epoch: int) -> str:
    values = [100 * accuracy(seed, epoch) for seed in seeds]
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def test_a_chart_tells_the_values_of_the_epoch_that_is_pointed_at(answering):
    page = answering()
    assert page.readout == []
    page.point(3.7, 75)
    values = {
        "Co-teaching": accuracies((5, 9), 4),
        "JoCoR": accuracies((3,), 4),
        "Standard": accuracies((1, 2), 4),
    }
    assert page.readout == ["epoch 4", *(f"{name} {value}" for name, value in values.items())]
    page.tab.mouse.move(2, 2)
    assert page.readout == []


@pytest.mark.slow
def test_a_chart_tells_its_values_to_the_keyboard(answering):
    page = answering()
    page.tab.locator(".chart").first.focus()
    for key, epoch in (("ArrowLeft", 6), ("ArrowLeft", 5), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.tab.keyboard.press(key)
        assert page.readout[0] == f"epoch {epoch}"
    page.tab.keyboard.press("Tab")
    assert page.readout == []


def test_a_click_brings_a_line_out_and_another_lets_go(answering):
    page = answering()
    page.point(4, 100 * accuracy(7, 4), click=True)  # the mean of seeds 5 and 9
    page.tab.mouse.move(2, 2)
    assert page.bold == ["1"]
    assert page.tab.locator(".legend button[aria-pressed=true]").all_inner_texts() == ["Co-teaching"]
    page.point(4, 100 * accuracy(7, 4))
    assert page.readout == ["epoch 4", f"Co-teaching {accuracies((5, 9), 4)}"], "it alone"
    page.point(4, 100 * accuracy(7, 4), click=True)
    page.tab.mouse.move(2, 2)
    assert page.bold == []


@pytest.mark.slow
def test_the_legend_brings_out_and_hides_lines_in_all_charts(answering):
    page = answering()
    page.tab.get_by_role("button", name="JoCoR", exact=True).click()
    page.tab.mouse.move(2, 2)
    assert page.bold == ["2"]
    page.tab.keyboard.press("Escape")
    assert page.bold == []
    page.tab.get_by_role("checkbox", name="Show Co-teaching").uncheck()
    assert not any(line.is_visible() for line in page.tab.locator(".line[data-line='1']").all())
    assert page.tab.locator(".line[data-line='2']").first.is_visible()
    page.point(4, 75)
    assert [line.split()[0] for line in page.readout] == ["epoch", "JoCoR", "Standard"]
    page.tab.hover("table.results tr[data-line='0'] td >> nth=0")
    assert page.bold == ["0"], "a row of the table brings its line out, too"


def test_tables_are_sorted_by_their_headings(answering):
    page = answering()
    assert page.order == ["Standard", "Co-teaching", "JoCoR"]
    assert page.seen(".best th") == ["Co-teaching best"]
    gains = [row.locator("td").nth(1).inner_text() for row in page.tab.locator("table.results tbody tr").all()]
    assert gains == ["–", "+5.50", "+1.50"]
    for heading, order in {
        "over Standard": ["Co-teaching", "JoCoR", "Standard"],
        "experiment": ["Co-teaching", "JoCoR", "Standard"],
        "test accuracy (%)": ["Co-teaching", "JoCoR", "Standard"],
    }.items():
        page.tab.get_by_role("button", name=heading).first.click()
        assert page.order == order
    page.tab.get_by_role("button", name="test accuracy (%)").first.click()
    assert page.order == ["Standard", "JoCoR", "Co-teaching"]
    sorted_by = page.tab.locator("th[aria-sort]")
    assert [(th.inner_text(), th.get_attribute("aria-sort")) for th in sorted_by.all()] == [
        ("test accuracy (%)", "ascending")
    ]
    page.tab.get_by_role("button", name="over Standard").first.click()
    page.tab.get_by_role("button", name="over Standard").first.click()
    assert page.order == ["JoCoR", "Co-teaching", "Standard"], "what has no number stays below"


@pytest.mark.slow
@pytest.mark.parametrize("width, names, below", [(1440, True, False), (1024, True, False), (390, False, True)])
def test_names_stand_at_lines_where_there_is_room_and_else_in_one_legend_below(width, names, below, answering):
    page = answering(viewport={"width": width, "height": 900})
    assert all(name.is_visible() == names for name in page.tab.locator(".line .name").all())
    legend, chart = page.tab.locator(".legend"), page.tab.locator(".chart").first
    assert legend.count() == 1
    assert (legend.bounding_box()["y"] > chart.bounding_box()["y"]) == below
    for name in page.tab.locator(".line .name text").all() if names else ():
        figure = name.locator("xpath=ancestor::figure").bounding_box()
        box = name.bounding_box()
        assert box["x"] + box["width"] <= figure["x"] + figure["width"]


def test_without_a_script_there_are_pictures_tables_and_names(answering):
    page = answering(java_script_enabled=False)
    assert page.tab.locator(".line > .stroke").first.is_visible()
    assert page.seen(".legend li") == ["Standard", "Co-teaching", "JoCoR"]
    assert page.order == ["Standard", "Co-teaching", "JoCoR"]
    assert page.seen(".hint, .readout, .legend button, .legend input, th button") == []
    (card,) = page.seen(".cards li")
    assert [line for line in card.split("\n") if line][:4] == [
        "digits, pair 40 %",
        "best of 3",
        "74.5 %",
        "Co-teaching",
    ]


def test_headings_and_regions_have_names(report):
    page = report()
    for role in ("img", "region"):
        for found in page.tab.get_by_role(role).all():
            assert found.get_attribute("aria-label") or found.get_attribute("alt")
    page.tab.select_option("#chooser", "all")
    regions = [found.get_attribute("aria-label") for found in page.tab.get_by_role("region").all()]
    assert len(set(regions)) == len(regions)
    levels = [int(found.evaluate("e => e.tagName[1]")) for found in page.tab.locator("h1, h2, h3, h4, h5").all()]
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))
