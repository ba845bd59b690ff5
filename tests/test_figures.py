"""Figures: the numbers behind the lines, and files in which every label can be read."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coteach import figures
from coteach.cli.demo import VARIANTS
from coteach.figures import Grid, accuracy, by_epoch, curves, draw_grid, line_styles, precision, spread_out
from coteach.names import METHOD_LABELS, METHOD_MEANINGS
from coteach.paper.heat import channels
from page_cases import contrast


def rows_of(seeds, n_epochs, value=lambda seed, epoch: 0.5, without_precision=()):
    return [
        {
            "seed": seed,
            "epoch": epoch,
            "test_accuracy": [value(seed, epoch), value(seed, epoch) / 2],
            "label_precision": None if epoch in without_precision else value(seed, epoch) / 4,
        }
        for seed in seeds
        for epoch in range(1, n_epochs + 1)
    ]


@pytest.fixture
def figure(monkeypatch):
    """The figure that `curves` makes, kept open for a look at it."""
    close = plt.close
    monkeypatch.setattr(plt, "close", lambda figure: None)
    yield plt.gcf
    close("all")


def texts(path) -> set[str]:
    return {element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")}


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_by_epoch_is_a_table_of_seeds_and_epochs(seeds, n_epochs, random):
    rows = rows_of(seeds, n_epochs, lambda seed, epoch: seed + epoch / 100)
    random.shuffle(rows)
    epochs, values = by_epoch(rows, lambda row: row["test_accuracy"][0])
    assert epochs == list(range(1, n_epochs + 1))
    np.testing.assert_array_equal(values, [[seed + epoch / 100 for epoch in epochs] for seed in sorted(seeds)])


def test_the_measures_are_percentages():
    assert accuracy({"test_accuracy": [0.5, 0.75]}) == 62.5
    assert accuracy({"test_accuracy": [0.25]}) == 25
    assert precision({"label_precision": 0.75}) == 75
    assert np.isnan(precision({"label_precision": None}))


def test_lines_are_means_and_bands_standard_deviations_over_the_seeds(figure, tmp_path):
    def value(seed, epoch):
        return {3: 0.5, 5: 0.7, 8: 0.6}[seed] + epoch / 100

    curves({"pair": {"a": rows_of([3, 5, 8], 4, value)}}, [tmp_path / "figure.png"])
    for ax, part in zip(figure().axes, (0.75, 0.25), strict=True):
        by_seed = [[100 * part * value(seed, epoch) for epoch in (1, 2, 3, 4)] for seed in (3, 5, 8)]
        (line,), (band,) = ax.lines, ax.collections
        mean, spread = np.mean(by_seed, 0), np.std(by_seed, 0, ddof=1)
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
        np.testing.assert_allclose(line.get_ydata(), mean)
        corners = band.get_paths()[0].vertices
        for epoch in (1, 2, 3, 4):
            ends = corners[corners[:, 0] == epoch, 1]
            low_high = mean[epoch - 1] - spread[epoch - 1], mean[epoch - 1] + spread[epoch - 1]
            np.testing.assert_allclose((ends.min(), ends.max()), low_high)


def test_no_band_leaves_the_percentages(figure, tmp_path):
    def value(seed, epoch):
        return (1.3, 0.0)[seed]  # 97.5 % and 0 % of accuracy: one standard deviation is 69

    curves({"pair": {"a": rows_of([0, 1], 3, value)}}, [tmp_path / "figure.png"])
    corners = figure().axes[0].collections[0].get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (0, 100)


@pytest.mark.parametrize("labels", [VARIANTS, ["a", "b", "a, one", "b, one", "a, two"]])
def test_every_line_can_be_told_from_the_others(labels, figure, tmp_path):
    curves({"pair": {label: rows_of([1], 3) for label in labels}}, [tmp_path / "figure.png"])
    for ax in figure().axes:
        assert sorted(line.get_label() for line in ax.lines) == sorted(labels)
        assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == len(labels)
        assert len({(line.get_marker(), line.get_linestyle()) for line in ax.lines}) == len(labels), "also in grey"
        colours = {line.get_label(): line.get_color() for line in ax.lines}
        for label, colour in colours.items():
            assert colour == colours[label.split(",")[0]], "a variant has the colour of its method"


@given(
    st.lists(st.sampled_from(sorted(METHOD_MEANINGS)), min_size=1, unique=True),
    st.sampled_from(["", ", a variant"]),
)
def test_a_method_has_one_colour_whatever_is_beside_it_and_however_it_is_written(methods, variant):
    alone = {name: line_styles([name])[name] for name in METHOD_MEANINGS}
    assert len({style.colour for style in alone.values()}) == len(METHOD_MEANINGS)
    assert len({style.marker for style in alone.values()}) == len(METHOD_MEANINGS), "also in grey"
    for text in (methods, [METHOD_LABELS[name] for name in methods]):
        styles = line_styles([name + variant for name in text])
        assert list(styles.values()) == [alone[name] for name in methods]
        assert {style.dash for style in styles.values()} == {"-"}


def test_every_word_can_be_read_in_every_format(tmp_path):
    labels = ["standard", "coteaching_plus, authors", "jocor"]
    panels = {noise: {label: rows_of([1, 2], 5) for label in labels} for noise in ("pair 45 %", "symmetric 50 %")}
    png, svg = tmp_path / "figure.png", tmp_path / "figure.svg"
    with plt.rc_context({"svg.fonttype": "none"}):
        curves(panels, [png, svg], "digits, mean of 2 seeds")
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    words = {*labels, *panels, "test accuracy (%)", "label precision (%)", "epoch", "digits, mean of 2 seeds"}
    assert words <= texts(svg)
    assert plt.get_fignums() == [], "figures pile up"


def test_a_shorter_svg_says_and_shows_the_same(tmp_path, monkeypatch):
    panels = {"1.23456": {"3.14159 of M 1.00001": rows_of([1, 2], 50, lambda *_: 0.5 + np.random.rand() / 1000)}}
    files = {"short": tmp_path / "short.svg", "long": tmp_path / "long.svg"}
    for name, path in files.items():
        np.random.seed(0)
        if name == "long":
            monkeypatch.setattr(figures, "compact", lambda svg: svg)
        curves(panels, [path])
    assert texts(files["short"]) == texts(files["long"]) > {"1.23456", "3.14159 of M 1.00001"}
    short, long = (drawn(path) for path in files.values())
    assert [len(numbers) for numbers in short] == [len(numbers) for numbers in long]
    for one, other in zip(short, long, strict=True):
        np.testing.assert_allclose(one, other, atol=0.051)
    assert files["short"].stat().st_size < 0.75 * files["long"].stat().st_size


def drawn(path) -> list[list[float]]:
    """The numbers of every path and of where it is used."""
    found = []
    for element in ElementTree.parse(path).iter():
        words = " ".join(element.get(key, "") for key in ("d", "x", "y"))
        found.append([float(number) for number in re.findall(r"-?\d+\.?\d*", words)])
    return [numbers for numbers in found if numbers]


def test_every_panel_shows_its_own_rows(figure, tmp_path):
    panels = {
        "low": {"a": rows_of([1], 2, lambda *_: 0.2), "b": rows_of([1], 2, lambda *_: 0.4)},
        "high": {"b": rows_of([1], 2, lambda *_: 0.8), "a": rows_of([1], 2, lambda *_: 0.6)},
    }
    curves(panels, [tmp_path / "figure.png"])
    top = {
        ax.get_title(): {line.get_label(): line.get_ydata()[0] for line in ax.lines} for ax in figure().axes[:2]
    }
    for panel, values in {"low": (0.2, 0.4), "high": (0.6, 0.8)}.items():
        assert top[panel] == pytest.approx({"a": 75 * values[0], "b": 75 * values[1]})


@pytest.mark.parametrize("seeds", [[1], [1, 2]])
@pytest.mark.parametrize("without", [[1, 2, 3], range(1, 201)])
def test_gaps_and_different_lengths(seeds, without, figure, tmp_path):
    panels = {
        noise: {"paper": rows_of(seeds, 200, without_precision=without), "authors": rows_of(seeds, 199)}
        for noise in ("pair", "symmetric")
    }
    svg = tmp_path / "figure.svg"
    with plt.rc_context({"svg.fonttype": "none"}):
        curves(panels, [svg])
    assert {"paper", "authors", *panels} <= texts(svg)
    for ax in figure().axes:
        assert [len(line.get_xdata()) for line in ax.lines] == [200, 199]
    for ax in figure().axes[2:]:
        gaps = np.isnan(ax.lines[0].get_ydata())
        assert (np.flatnonzero(gaps) + 1).tolist() == list(without)
        assert not np.isnan(ax.lines[1].get_ydata()).any()


# ---- names at the ends -----------------------------------------------------------------------------------------


@given(st.lists(st.floats(-50, 150), max_size=12), st.floats(0.1, 12))
def test_places_are_apart_inside_in_order_and_where_they_were_if_they_can(wanted, apart):
    ascending = np.sort(np.array(wanted, float))
    places = spread_out(ascending, apart, 0, 140)
    assert (np.diff(places) >= apart - 1e-9).all()
    assert ((places >= -1e-9) & (places <= 140 + 1e-9)).all()
    if (np.diff(ascending) >= apart).all() and ((ascending >= 0) & (ascending <= 140)).all():
        np.testing.assert_allclose(places, ascending, atol=1e-9)


def test_two_at_one_place_go_half_the_way_each():
    np.testing.assert_allclose(spread_out(np.array([10.0, 10.0, 50.0]), 8, 0, 100), [6, 14, 50])


def boxes_of(figure) -> list[list]:
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    return [[text.get_window_extent(renderer) for text in ax.texts] for ax in figure.axes]


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 12])
def test_every_line_has_its_name_at_its_end_and_no_name_covers_another_or_a_panel(n, figure, tmp_path):
    labels = list(VARIANTS)[:n]
    curves({"pair": {label: rows_of([1, 2], 30) for label in labels}}, [tmp_path / "figure.svg"], "in small")
    drawn = figure()
    for ax, boxes in zip(drawn.axes, boxes_of(drawn), strict=True):
        assert sorted(text.get_text() for text in ax.texts) == sorted(labels)
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:i])
            assert not any(box.overlaps(other.get_window_extent()) for other in drawn.axes)
            assert box.x1 <= drawn.bbox.x1
    assert drawn.legends == []


def test_panels_beside_each_other_share_one_legend_between_message_and_panels(figure, tmp_path):
    names = ["standard", "coteaching", "coteaching_plus", "jocor", "mentornet"]
    lines = {name: ([1, 2], np.ones((2, 2))) for name in names}
    grid = Grid([""], ["pair", "symmetric"], ["test_accuracy"], names, lambda *where: lines)
    draw_grid(grid, [tmp_path / "figure.svg"], "How it was measured.", "What it says " * 12)
    drawn = figure()
    drawn.canvas.draw()
    (legend,) = drawn.legends
    (message,) = drawn.texts[:1]
    assert [text.get_text() for text in legend.get_texts()] == names
    assert all(not ax.texts for ax in drawn.axes)
    assert message.get_text().count("\n") == 1
    boxes = [message.get_window_extent(), legend.get_window_extent(), drawn.axes[0].title.get_window_extent()]
    for above, below in itertools.pairwise(boxes):
        assert above.y0 >= below.y1
    assert drawn.bbox.y1 >= boxes[0].y1
    assert max(box.x1 for box in boxes) <= drawn.bbox.x1


def test_a_legend_of_long_names_has_fewer_columns(figure, tmp_path):
    names = [f"coteaching, with more and more that it has to say {i}" for i in range(7)]
    lines = {name: ([1, 2], np.ones((2, 2))) for name in names}
    grid = Grid([""], ["pair", "symmetric"], ["test_accuracy"], names, lambda *where: lines)
    draw_grid(grid, [tmp_path / "figure.svg"], "How it was measured.", "What it says")
    drawn = figure()
    drawn.canvas.draw()
    (legend,) = drawn.legends
    assert len(legend.get_texts()) == 7
    assert legend.get_window_extent().x1 <= drawn.bbox.x1
    assert legend.get_window_extent().y0 >= drawn.axes[0].title.get_window_extent().y1


def test_a_figure_is_as_wide_as_a_page_and_its_type_as_large_as_in_print(figure, tmp_path):
    curves(
        {"pair": {"jocor": rows_of([1], 3)}, "symmetric": {"jocor": rows_of([1], 3)}}, [tmp_path / "figure.svg"]
    )
    drawn = figure()
    assert drawn.get_size_inches()[0] == 7
    sizes = {text.get_fontsize() for text in drawn.findobj(plt.Text) if text.get_text()}
    assert sizes <= {figures.TEXT}
    assert 'width="504' in (tmp_path / "figure.svg").read_text()


@pytest.mark.parametrize("colour", [*figures.COLOURS.values(), figures.GREY, figures.MUTED, figures.INK])
def test_a_colour_has_three_to_one_against_the_page_by_day_and_by_night(colour):
    assert contrast(colour, "#ffffff") >= 3
    dark = figures.ON_DARK
    assert contrast(dark.get(colour.lower(), colour), dark["#ffffff"]) >= 3


def test_the_three_methods_that_figures_are_about_differ_for_all_eyes_and_in_grey():
    """Viénot, Brettel and Mollon's dichromats; in grey the markers tell them apart, too."""
    dichromats = {
        "all cones": np.eye(3),
        "protanope": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deuteranope": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    }
    seen = [figures.COLOURS[name] for name in figures.COLOURED]
    linear = np.array([[(c / 255) ** 2.2 for c in channels(colour)] for colour in seen])
    for who, matrix in dichromats.items():
        codes = np.clip(linear @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
        apart = [np.abs(a - b).max() for a, b in itertools.combinations(codes, 2)]
        assert min(apart) > 0.25, who
    assert len({figures.MARKERS[name] for name in figures.COLOURED}) == len(seen)


def test_where_a_figure_says_something_the_other_lines_are_grey():
    styles = line_styles(METHOD_MEANINGS, figures.COLOURED)
    in_colour = {label for label, style in styles.items() if style.colour != figures.GREY}
    assert in_colour == set(figures.COLOURED)
    assert len({style.marker for style in styles.values()}) == len(styles), "grey ones have markers"
    few = ["standard", "jocor", "mentornet"]
    assert figures.GREY not in {style.colour for style in line_styles(few, figures.COLOURED).values()}
    assert figures.GREY not in {style.colour for style in line_styles(METHOD_MEANINGS).values()}


def test_one_seed_is_a_thin_line_without_a_band(figure, tmp_path):
    curves({"pair": {"one": rows_of([1], 3), "two": rows_of([1, 2], 3)}}, [tmp_path / "figure.svg"])
    for ax in figure().axes:
        width = {line.get_label(): line.get_linewidth() for line in ax.lines}
        assert width["one"] < width["two"]
        assert len(ax.collections) == 1, "a band for the two"


def test_a_dark_screen_has_light_ink_on_a_dark_ground(figure, tmp_path):
    curves({"pair": {"standard": rows_of([1, 2], 3)}}, [tmp_path / "figure.svg"])
    style, body = (tmp_path / "figure.svg").read_text().split("</style>", 1)
    assert "@media (prefers-color-scheme:dark)" in style
    for colour in ("#ffffff", figures.GRID, figures.INK):
        assert f":{colour}" in body, "as the rules look for it"
        assert f":{colour}" in style


def test_a_line_that_ends_early_is_named_and_one_without_a_point_is_not(figure, tmp_path):
    some = {
        "early": rows_of([1], 9, without_precision=range(5, 10)),
        "never": rows_of([1], 9, without_precision=range(10)),
    }
    curves({"pair": some}, [tmp_path / "figure.svg"])
    accuracy_panel, precision_panel = figure().axes
    assert {text.get_text() for text in accuracy_panel.texts} == {"early", "never"}
    assert {text.get_text() for text in precision_panel.texts} == {"early"}


def test_names_that_are_too_many_for_the_ends_go_into_a_legend(figure, tmp_path):
    labels = [f"method {k}" for k in range(40)]
    curves({"pair": {label: rows_of([1], 3) for label in labels}}, [tmp_path / "figure.svg"])
    assert all(not ax.texts for ax in figure().axes)
    (legend,) = figure().legends
    assert [text.get_text() for text in legend.get_texts()] == labels


def test_a_figure_that_cannot_be_written_is_closed(tmp_path):
    (tmp_path / "taken.svg").mkdir()
    before = plt.get_fignums()
    figure, _ = figures.new_figure(1, 1, 2)
    with pytest.raises(ValueError, match="is a folder"):
        figures.save(figure, [tmp_path / "taken.svg"])
    assert plt.get_fignums() == before
