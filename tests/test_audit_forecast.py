"""The forecast of an audit: it grows with the work, and takes little of it itself."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from coteach import RobustClassifier
from coteach.audit import forecast as module
from coteach.audit.forecast import evenly_from_classes, forecast, seconds_from_epochs
from coteach.audit.learners import selective_classifier
from coteach.audit.samples import LabelledSamples
from coteach.cli import main

M = 600
Y = np.arange(M) % 3
SEEN: list[int] = []


class Counting(nn.Module):
    """Knows how many samples it has seen."""

    def __init__(self, n_features: int, n_classes: int):
        super().__init__()
        self.linear = nn.Linear(n_features, n_classes)

    def forward(self, x):
        SEEN.append(len(x))
        return self.linear(x.flatten(1))


@pytest.fixture
def samples():
    x = np.random.default_rng(0).normal(size=(M, 4))
    return LabelledSamples(x, Y, [str(i) for i in range(M)], "arrays", Path("data.npz"))


def everything_takes(seconds: float, monkeypatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(ticks) * seconds)


@pytest.fixture
def slow_clock(monkeypatch):
    everything_takes(2.0, monkeypatch)


def test_an_epoch_is_tried_on_few_samples_of_every_class():
    y = np.array([0] * 500 + [1] * 3 + [2] * 500)
    index = evenly_from_classes(y, 10)
    assert set(y[index]) == {0, 1, 2}
    assert len(index) <= 13
    assert list(evenly_from_classes(y, 5000)) == list(range(1003))


def test_slow_networks_are_judged_by_two_batches_of_two(samples, slow_clock):
    SEEN.clear()
    seconds = forecast(RobustClassifier(module=Counting, epochs=20, noise_rate=0.1, device="cpu"), samples)
    assert SEEN == [2, 2, 2]  # the first asks what the network answers at all
    assert seconds == pytest.approx(2 / 2 * M * 2 * 20)  # of a sample; samples, networks, epochs
    auto = forecast(RobustClassifier(module=Counting, epochs=20, device="cpu"), samples)
    assert auto == pytest.approx((1 + (4 + 1 / 3) / 2) * seconds)  # five single networks; and what they predict
    one = forecast(RobustClassifier("standard", module=Counting, epochs=20, noise_rate=0, device="cpu"), samples)
    assert one == pytest.approx(seconds / 2)


def test_very_slow_networks_are_judged_by_one(samples, monkeypatch):
    SEEN.clear()
    everything_takes(6.0, monkeypatch)
    seconds = forecast(RobustClassifier(module=Counting, epochs=20, noise_rate=0.1, device="cpu"), samples)
    assert SEEN == [2, 2]
    assert seconds == pytest.approx(6 / 2 * M * 2 * 20)


def test_quick_networks_are_judged_by_an_epoch(samples, monkeypatch):
    tried = []
    monkeypatch.setattr(module, "step_seconds", lambda *_: 1e-6)
    monkeypatch.setattr(module, "seconds_from_epochs", lambda *said: tried.append(said) or 7.0)
    assert forecast(RobustClassifier(device="cpu"), samples) == 7.0
    ((one_epoch, _, batch, epochs),) = tried
    assert (one_epoch.epochs, one_epoch.noise_rate, batch) == (1, 0.1, M // 16)
    # the pair's; and of five single networks on four fifths each, which predict the fifth
    assert epochs == pytest.approx(20 + 5 * (0.8 + 0.2 / 3) * 20 / 2)


def test_images_that_are_mirrored_are_predicted_twice(monkeypatch):
    x = np.zeros((M, 3, 16, 16), dtype=np.uint8)
    samples = LabelledSamples(x, Y, [str(i) for i in range(M)], "arrays", Path("data.npz"))
    monkeypatch.setattr(module, "step_seconds", lambda *_: 1.0)
    seconds = [forecast(RobustClassifier(epochs=6, mirror=m, device="cpu"), samples) for m in (False, True)]
    # the pair's; of five folds; and of one network that learns and predicts all samples
    in_all = [6 + ((4 + predicted) * 6 + 6 + predicted) / 2 for predicted in (1 / 3, 2 / 3)]
    assert seconds == pytest.approx([2 * M * epochs for epochs in in_all])


def test_a_step_is_timed_by_batches_that_grow(samples, monkeypatch):
    SEEN.clear()
    monkeypatch.setattr(
        module.time, "perf_counter", lambda: float(bool(SEEN) and SEEN[-1] > 30)
    )  # the last takes no time, too
    module.step_seconds(Counting(4, 3), samples, 37)
    assert SEEN == [2, 2, 8, 32, 37]


def test_the_trial_of_an_epoch_grows_with_the_epochs(samples, slow_clock):
    batch = M // 16
    short, long = (
        seconds_from_epochs(RobustClassifier(epochs=1, noise_rate=0.1, device="cpu"), samples, batch, epochs)
        for epochs in (20, 200)
    )
    assert long == pytest.approx(10 * short)
    assert short == pytest.approx(2 * 20 * M / len(evenly_from_classes(Y, 2 * batch)))


@pytest.mark.parametrize(
    "of_a_sample, fitted", [(0.001, [500]), (0.006, [500, M]), (0.02, [500])], ids=["short", "longer", "too long"]
)
def test_trees_are_judged_by_a_fit_on_more_and_more_samples(of_a_sample, fitted, samples, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        module, "seconds_to_fit", lambda _, part: sizes.append(len(part)) or of_a_sample * len(part)
    )
    seconds = forecast(selective_classifier("trees", noise_rate="auto", random_state=0), samples)
    assert seconds == pytest.approx((4 * 6 + 1) * of_a_sample * M)
    assert sizes == fitted


@pytest.mark.parametrize(
    "seconds, told, about",
    [(3601.0, True, ": about 60 min in all"), (3590.0, False, ": about 60 min in all"), (5.0, False, "\n")],
)
def test_images_that_take_a_cpu_long_are_told(seconds, told, about, tmp_path, monkeypatch, capsys):
    from PIL import Image

    for i in range(12):
        path = tmp_path / "pictures" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 100 * (i % 2)).save(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "forecast", lambda *_: seconds)
    main("audit --images pictures --size 8 --epochs 1 --noise-rate 0.1 --device cpu".split())
    said = capsys.readouterr().out
    assert said.index("timing an epoch") < said.index("training coteaching on the CPU")
    assert ("a smaller --size" in said) == told
    assert f"on the CPU{about}" in said  # left out under half a minute
