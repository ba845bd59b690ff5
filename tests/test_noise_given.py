"""Labels as somebody gave them: what is wrong with them, counted."""

import numpy as np
import pytest

from coteach.noise import Noise, of_labels
from coteach.noise.given import no_better_than_chance


def test_what_is_wrong_is_counted():
    noise = of_labels([0, 1, 1, 2, 0, 0], [0, 0, 1, 2, 2, 0], n_classes=4)
    assert noise.clean.tolist() == [True, False, True, True, False, True]
    assert (noise.rate, noise.nominal_rate) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert noise.matrix == pytest.approx(
        np.array([[2 / 3, 1 / 3, 0, 0], [0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1]])
    )
    assert noise.kind == "given"


@pytest.mark.parametrize("kind", ["given", "human"])
def test_it_is_saved_and_read_as_any_noise(tmp_path, kind):
    noise = of_labels([0, 1, 1], [0, 0, 1], kind=kind)
    noise.save(tmp_path / "n")
    again = Noise.load(tmp_path / "n")
    assert (again.kind, again.sha256, again.nominal_rate) == (kind, noise.sha256, noise.nominal_rate)


def test_what_is_no_label_is_refused():
    with pytest.raises(ValueError, match="3 given samples but 2 given labels"):
        of_labels([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="found 2 at position 1"):
        of_labels([0, 2], [0, 1], n_classes=2)
    with pytest.raises(ValueError, match="no kind of given labels 'pair'"):
        of_labels([0, 1], [0, 1], kind="pair")


def test_labels_in_another_order_agree_no_more_than_by_chance():
    random = np.random.default_rng(0)
    y = random.integers(0, 10, 2000)
    assert no_better_than_chance(of_labels(random.permutation(y), y), y)
    wrong = random.random(2000) < 0.8  # of these a tenth is right by chance
    assert not no_better_than_chance(of_labels(np.where(wrong, random.integers(0, 10, 2000), y), y), y)
    rare = (np.arange(2000) < 100).astype(int)
    assert no_better_than_chance(of_labels(rare[::-1], rare), rare)  # although nine in ten agree
