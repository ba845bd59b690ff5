"""Duplicates, samples of no class and classes too small to judge, beside the wrong labels."""

from pathlib import Path

import numpy as np

from coteach.audit import oddities
from coteach.audit.oddities import find_oddities
from coteach.audit.samples import LabelledSamples


def embedded(x: np.ndarray, y: list, **more) -> LabelledSamples:
    facts = {"kind": "arrays", "source": Path("d.npz"), "settings": {"encoder": "some"}} | more
    return LabelledSamples(x=x, y=np.array(y), ids=[f"n{i}" for i in range(len(y))], **facts)


def clouds(n: int = 120, classes: int = 3) -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(0)
    x = 4 * np.eye(classes, 20)[np.arange(n) % classes] + rng.normal(size=(n, 20))
    return x.astype(np.float32), ["abc"[i % classes] for i in range(n)]


def test_duplicates_are_found_with_the_label_that_conflicts():
    x, y = clouds()
    x[50], x[70], x[80] = x[2], x[4] + 0.01, x[6] + 0.01  # 50 is c as 2 is; 70 is b as 4 is; 80 is c, 6 is a
    samples = embedded(x, y)
    odd = find_oddities(samples)
    assert odd.same_as == {50: 2}
    assert odd.like == {70: 4, 80: 6}
    assert odd.remarks(50, samples) == ["the same as n2"]
    assert odd.remarks(80, samples) == ["nearly the same as n6, whose label is a"]
    assert odd.counts(samples) == {
        "same": 1,
        "nearly_the_same": 2,
        "of_them_with_another_label": 1,
        "of_no_class": len(odd.of_no_class),
        "classes_too_small": [],
    }


def test_a_sample_like_no_other_is_of_no_class():
    x, y = clouds()
    x[10] = 0
    x[10, 15] = 9  # a direction of its own
    odd = find_oddities(embedded(x, y))
    assert 10 in odd.of_no_class
    assert len(odd.of_no_class) <= 6


def test_scale_and_order_play_no_part():
    x, y = clouds()
    x[70] = x[4] * 3  # only the direction counts
    one, other = find_oddities(embedded(x, y)), find_oddities(embedded(5 * x[::-1].copy(), y[::-1]))
    assert one.like == {70: 4}
    assert other.like == {119 - 4: 119 - 70}
    assert {119 - i for i in other.of_no_class} == one.of_no_class


def test_small_classes_are_remarked():
    x, y = clouds()
    y[7] = y[9] = "rare"
    samples = embedded(x, y)
    assert find_oddities(samples).remarks(7, samples)[-1] == "its class is too small to judge"


def test_pixels_and_columns_have_exact_duplicates_alone(monkeypatch):
    x, y = clouds()
    x[50], x[70] = x[2], x[4] + 0.01
    pixels = embedded(x.reshape(-1, 1, 4, 5), y, settings={})
    table = embedded(x, y, settings={}, kind="table")
    monkeypatch.setattr(oddities, "MOST_SEARCHED", 100)
    for samples in (pixels, table, embedded(x, y)):  # the last has too many samples
        odd = find_oddities(samples)
        assert (odd.same_as, odd.like) == ({50: 2}, {})
        assert odd.counts(samples)["nearly_the_same"] is None


def test_blocks_give_what_one_block_gives(monkeypatch):
    x, _ = clouds()
    whole = oddities.nearest_of(x)
    monkeypatch.setattr(oddities, "BLOCK", 7)
    for one, other in zip(whole, oddities.nearest_of(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
