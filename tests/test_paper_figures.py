"""The figures of a preset: curves, heat maps, dots with every seed; and that their messages are true."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from coteach.names import METHOD_LABELS
from coteach.paper import blocks, figures, measured, words
from coteach.paper.compare import measured_cells
from coteach.paper.measured import preset_records
from coteach.paper.presets import cells
from measured_cases import cell_named, pretend, pretend_all


@pytest.fixture
def axes_of(monkeypatch, tmp_path):
    """Draws a preset, and gives the axes that are in use."""
    close = plt.close
    monkeypatch.setattr(plt, "close", lambda figure: None)

    def draw(records):
        close("all")
        figures.preset_figures(records, tmp_path, "figure")
        return [ax for number in plt.get_fignums() for ax in plt.figure(number).axes if ax.axison]

    yield draw
    close("all")


def texts(path) -> set[str]:
    return {element.text or "" for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist", "openset", "ablation"])
def test_a_figure_is_small_and_the_same_bytes_each_time(name, tmp_path):
    pretend_all(name, tmp_path)
    records = preset_records(name, None, tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        figures.preset_figures(records, tmp_path / folder, name)
    written = sorted(path.name for path in (tmp_path / "one").iterdir())
    if name == "ablation":
        several = {"epochs": ("cifar10", "cifar100", "mnist"), "keep": ("cifar10", "mnist")}
        several |= {"losses": ("cifar10", "cifar100", "mnist", "news"), "switches": several["keep"]}
        assert written == [f"ablation-{block}-{data}.svg" for block, some in several.items() for data in some]
    else:
        assert written == [f"{name}.svg"]
    for figure in written:
        content = (tmp_path / "one" / figure).read_bytes()
        assert content == (tmp_path / "two" / figure).read_bytes()
        assert len(content) < 300_000
        assert len(texts(tmp_path / "one" / figure)) > 5
    assert plt.get_fignums() == []


@pytest.mark.slow
def test_full_curves_of_200_epochs_stay_small(tmp_path):
    rng = np.random.default_rng(0)
    for cell in cells("news", then=True):
        noisy = {name: (0.5 + rng.normal(size=200) / 50).round(5).tolist() for name in measured.CURVES}
        pretend(cell, tmp_path, 50.0, 51.0, curves=noisy)
    (path,) = figures.preset_figures(preset_records("news", None, tmp_path), tmp_path, "news")
    assert path.stat().st_size < 400_000


def test_curves_are_those_of_the_cells(axes_of, tmp_path):
    cell = cell_named("mnist", "coteaching-authors-pair-0.45")
    pretend(cell, tmp_path, 50.0, 51.0)
    accuracy, precision = axes_of(preset_records("mnist", None, tmp_path))
    for ax, name in ((accuracy, "test accuracy (%)"), (precision, "label precision (%)")):
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [50, np.nan, 70])
        assert ax.get_ylabel() == name
    assert accuracy.get_title() == "pair 45 %"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, titles, n_lines",
    [
        ("mnist", ["pair 45 %", "symmetric 50 %", "symmetric 20 %"], None),
        (
            "divergence",
            [
                f"{n} hidden layer{s}, {c}"
                for n, s in (("one", ""), ("two", "s"))
                for c in ("pair 45 %", "symmetric 50 %")
            ],
            4,
        ),
        ("openset", ["open set 40 %"], None),
        ("news", ["authors' code, pair 45 %", "as published, pair 45 %"], 6),
        ("jocor", ["MNIST, one hidden layer, pair 45 %", "CIFAR-10, 7-layer CNN, symmetric 20 %"], None),
    ],
)
def test_panels(name, titles, n_lines, axes_of, tmp_path):
    pretend_all(name, tmp_path)
    records = preset_records(name, None, tmp_path)
    axes = axes_of(records)
    by_title = {ax.get_title(): ax for ax in axes if ax.get_title()}
    assert set(titles) <= by_title.keys()
    assert sum(len(ax.lines) for ax in by_title.values()) == len(figures.without_outdone(records))
    if n_lines is not None:
        assert {len(ax.lines) for ax in by_title.values()} == {n_lines}
    per_panel = 1 if name in ("divergence", "jocor") else 2
    assert len(axes) == per_panel * len(by_title)


@pytest.mark.slow
def test_a_line_has_the_same_look_in_every_panel(axes_of, tmp_path):
    pretend_all("cifar10", tmp_path)
    looks = {}
    for ax in axes_of(preset_records("cifar10", None, tmp_path)):
        for line in ax.lines:
            looks.setdefault(line.get_label(), set()).add(
                (line.get_color(), line.get_linestyle(), line.get_marker())
            )
    assert all(len(look) == 1 for look in looks.values())
    assert len(set.union(*looks.values())) == len(looks)


@pytest.mark.slow
def test_when_a_loss_begins_is_shown_by_four_lines(axes_of, tmp_path):
    pretend_all("ablation", tmp_path)
    records = [r for r in preset_records("ablation", None, tmp_path) if r["summary"]["dataset"] == "cifar10"]
    lines = [line for ax in axes_of(records) if ax.get_xlabel() == "epoch" for line in ax.lines]
    losses = ("cross-entropy, then softmax twice", "softmax twice", "cross-entropy")
    names = (*(f"Co-teaching, {loss}" for loss in losses), "Co-teaching+")
    assert sorted(line.get_label() for line in lines) == sorted(3 * names)
    drawn = figures.in_time(records)["cifar10"]
    assert len(drawn) == len(lines)
    assert {figures.loss_begins(record["summary"]) for record in drawn} == set(names)
    told = [record["summary"][key] for record in drawn for key in ("tau", "keep_type")]
    assert not any(told)


@pytest.mark.slow
def test_every_cell_is_shown_dots_with_mean_and_every_seed_heat_maps_with_the_mean(tmp_path, axes_of):
    pretend_all("ablation", tmp_path)
    records = preset_records("ablation", None, tmp_path)
    by_block = blocks.blocks(records)
    assert {dot.record["file"] for dots in by_block.values() for dot in dots} == {r["file"] for r in records}
    lines, numbers = set(), Counter()
    for ax in axes_of(records):
        lines |= {tuple(np.atleast_1d(line.get_xdata()).tolist()) for line in ax.lines}
        numbers.update(text.get_text() for text in ax.texts)
    for (block, _), dots in by_block.items():
        for s in (dot.record["summary"] for dot in dots):
            if block == "losses":
                numbers[f"{s['mean']:.0f}"] -= 1
            else:
                assert tuple(s["mean_per_seed"]) in lines
                assert len(s["seeds"]) == 1 or (s["mean"],) in lines
    assert set(numbers.values()) == {0}


@pytest.mark.slow
def test_no_two_cells_share_a_line_of_dots(tmp_path):
    pretend_all("ablation", tmp_path)
    for name, dots in blocks.blocks(preset_records("ablation", None, tmp_path)).items():
        places = [(d.heading, d.label, d.record["column"]) for d in dots]
        assert len(set(places)) == len(places), name


def test_losses_are_the_ones_that_are_trained_with():
    def loss(method, fidelity, name=None, warmup=19, **more):
        summary = {"method": method, "loss": name, "fidelity": fidelity, **more}
        return blocks.loss_of({"summary": summary, "config": {"warmup": warmup} if warmup else {}})

    assert loss("coteaching_plus", "authors", warmup=0) == "softmax_twice"
    assert loss("coteaching_plus", "authors") == "softmax_twice after cross_entropy"
    assert loss("coteaching_plus", "authors", warmup_loss="gce") == "softmax_twice after gce"
    assert loss("coteaching_plus", "paper") == "cross_entropy"
    assert loss("coteaching", "authors") == "cross_entropy"
    assert loss("coteaching_plus", "authors", "gce") == "gce"
    assert loss("coteaching", "authors", "softmax_twice", warmup_loss=None) == "softmax_twice"
    assert loss("coteaching", "authors", "gce", warmup_loss="cross_entropy") == "gce after cross_entropy"


def test_a_loss_after_another_stands_behind_it_alone():
    headings = ["gce", "softmax_twice after cross_entropy", "cross_entropy", "softmax_twice"]
    in_place = ["cross_entropy", "softmax_twice", "softmax_twice after cross_entropy", "gce"]
    assert sorted(headings, key=blocks.loss_order) == in_place


@pytest.mark.parametrize(
    "name, told, untold",
    [
        ("openset", {"Co-teaching", "Co-teaching+", "Co-teaching+, paper+softmax_twice"}, "Co-teaching+, paper"),
        ("tiny-imagenet", {"Co-teaching", "Co-teaching+, authors"}, "Co-teaching+"),
    ],
)
def test_a_reading_that_all_lines_share_is_not_told_of_each(name, told, untold, tmp_path):
    pretend_all(name, tmp_path)
    _, _, panels = figures.by_panel(preset_records(name, None, tmp_path))
    labels = {label for panel in panels.values() for label in panel}
    assert told <= labels
    assert untold not in labels


# ---- words ----------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
KEPT_FIGURES = [
    path for part in ("results", "docs/images", "benchmarks/results") for path in (ROOT / part).rglob("*.svg")
]


def test_no_flag_is_left_in_what_figures_say():
    for path in [*RESULTS.glob("*/*.svg"), *RESULTS.glob("*.svg")]:
        for text in texts(path):
            assert "_" not in text, (path.name, text)
            assert not re.search(r"cifar|mnist|cnn7|Q̂|\bmae\b|\bgce\b", text), (path.name, text)


def test_type_in_figures_has_at_least_eight_points():
    """At the width of a page: an SVG's units are points there, or pixels."""
    for path in KEPT_FIGURES:
        text = path.read_text("utf-8")
        unit = 1 if 'width="504pt"' in text else 0.75
        sizes = re.findall(r"font(?:-size)?(?::|=\")[^;\"]*?([\d.]+)(?=px|\")", text)
        assert sizes, path.name
        assert min(map(float, sizes)) * unit >= 8, path.name


def test_no_figure_has_more_names_than_can_be_looked_up():
    for path in RESULTS.glob("*/*.svg"):
        names = [text for text in texts(path) if text.startswith(tuple(METHOD_LABELS.values()))]
        assert len(names) <= 12, path.name


def panel(**means):
    return [
        {
            "summary": {
                "method": name.partition("__")[0],
                "fidelity": name.partition("__")[2] or "authors",
                "mean": mean,
            }
        }
        for name, mean in means.items()
    ]


def test_what_coteaching_plus_is_worth_is_told_in_either_reading():
    settings = [
        panel(coteaching=50.0, coteaching_plus__paper=44.0, coteaching_plus__authors=51.5, standard=99.0),
        panel(coteaching=60.0, coteaching_plus__paper=61.0, coteaching_plus__authors=58.5),
        panel(standard=30.0, coteaching_plus__paper=80.0),
    ]
    said = words.over_coteaching(settings)
    assert said.endswith("−6.0 to +1.0 points as published, −1.5 to +1.5 points with the authors' code")
    assert words.over_coteaching(settings[2:]) == ""


def test_the_best_pair_is_told_only_where_it_is_the_best():
    def cells(a, b):
        return {
            ("A", "x"): dict(enumerate(a)),
            ("A", "y"): dict(enumerate(b)),
            ("B", "x"): {0: 5.0, 1: 5.0, 2: 5.0},
        }

    assert words.best_pair(cells((9, 9, 9), (1, 1, 1))) == "A with x is the best of these in all 3 settings"
    assert words.best_pair(cells((9, 9, 1), (1, 1, 1))) == "A with x is the best of these in 2 of 3 settings"
    assert words.best_pair(cells((9, 1, 1), (1, 9, 1))).startswith(
        "A is the best of these in 2 of 3 settings, not always"
    )


def test_networks_that_stay_together_are_not_said_to_part():
    parting, staying = np.r_[0.2, 0.1, np.full(10, 0.3)][None], np.full((1, 12), 0.1)
    assert words.apart_again([parting]).endswith("they end 3.0 times as far apart as at their closest")
    assert words.apart_again([parting, staying]) == ""


@pytest.mark.slow  # reads every cell
def test_the_messages_of_the_figures_that_are_kept_are_those_of_the_numbers_that_are_kept():
    """Of cells that others drew: whoever measures anew draws anew."""
    records = measured_cells(RESULTS)
    for name in ("mnist", "cifar10", "cifar100", "news", "openset"):
        mine = figures.without_outdone([r for r in records if r["preset"] == name])
        *_, panels = figures.by_panel(mine)
        message = figures.curves_message(mine, [list(panel.values()) for panel in panels.values()])
        assert message in " ".join(in_order(RESULTS / name / f"{name}.svg"))


def in_order(path) -> list[str]:
    found = ElementTree.parse(path).iter()
    return [" ".join("".join(element.itertext()).split()) for element in found if element.tag.endswith("}text")]
