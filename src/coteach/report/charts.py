"""The curves of a group as drawings of its page, made of shapes that the page's style and script can address.

They are drawn here and not by matplotlib: a line must be picked, hidden and asked for its values.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coteach.figures import Style, line_styles, short_label, spread_out, thinned
from coteach.names import MEASURE_MEANINGS, MEASURES
from coteach.report.curves import curve, has
from coteach.report.groups import Group

PANEL_WIDTH, PANEL_HEIGHT = 400, 220
LEFT_OF_IT, RIGHT_OF_IT, ABOVE, BELOW = 40, 8, 10, 40  # room; names at the ends of lines stand outside
PANEL_BOX = f"{-LEFT_OF_IT} {-ABOVE} {LEFT_OF_IT + PANEL_WIDTH + RIGHT_OF_IT} {ABOVE + PANEL_HEIGHT + BELOW}"
SWATCH = 26  # width of the piece of a line in a legend, which is as high as a letter
LINE_OF_NAMES = 13  # from one name at an end to the next
LONGEST_NAME, SHORT_NAME = 26, 16  # letters at an end, and those that need less room; a legend has all letters
TICKS_WANTED = 5
ROUND_STEPS = (1, 2, 2.5, 5, 10)
FLATTEST = 0.02  # of the whole scale: nearer by, the chance in a line that is flat looks like a mountain range
BLACK = "#000000"  # becomes the ink

DASH_LENGTHS = {"-": "", "--": "6 3", ":": "1.5 2.5", "-.": "8 3 1.5 3"}
MARKER_PATHS = {  # by matplotlib's names, around their middle
    "o": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "s": "M-2.8-2.8h5.6v5.6h-5.6z",
    "^": "M0-3.4L3.3 2.8h-6.6z",
    "v": "M0 3.4L3.3-2.8h-6.6z",
    "<": "M-3.4 0L2.8-3.3v6.6z",
    ">": "M3.4 0L-2.8-3.3v6.6z",
    "D": "M0-3.8L3.8 0L0 3.8L-3.8 0z",
    "d": "M0-4.2L2.5 0L0 4.2L-2.5 0z",
    "X": "M-3.4-1.8l1.6-1.6L0-1.6l1.8-1.8l1.6 1.6L1.6 0l1.8 1.8l-1.6 1.6L0 1.6l-1.8 1.8l-1.6-1.6L-1.6 0z",
    "P": "M-1.2-3.4h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2v-2.4h2.2z",
    "h": "M0-3.5L3-1.75v3.5L0 3.5L-3 1.75v-3.5z",
    "*": "M0-4.2l1.2 2.8h3l-2.4 1.9l1 3L0 1.7l-2.8 1.8l1-3l-2.4-1.9h3z",
}


@dataclass(frozen=True)
class Tick:
    """A place on an axis, in the drawing, and its number."""

    place: float
    words: str


@dataclass(frozen=True)
class Look:
    """How a line is drawn, in a chart and in the legend."""

    colour: str  # nothing for the ink of the page
    dash: str
    marker: str

    @classmethod
    def of(cls, style: Style) -> "Look":
        dash = DASH_LENGTHS[style.dash] if isinstance(style.dash, str) else " ".join(map(str, style.dash[1]))
        return cls("" if style.colour == BLACK else style.colour.lower(), dash, MARKER_PATHS[style.marker])


@dataclass(frozen=True)
class Line:
    """A run in a chart. `values` and `spreads` are of the epochs from `first` on, empty where there is none."""

    number: int  # of the run in its group
    name: str
    look: Look
    path: str
    band: str
    marks: list[tuple[float, float]]
    end: str  # a thin line from the last point to the name
    name_at: float | None  # height of the name, if there is room for names
    first: int
    values: str
    spreads: str


@dataclass(frozen=True)
class Chart:
    """One measure of all runs of a group, by epoch."""

    words: str  # on its axis
    meaning: str
    title: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    bounds: str  # first and last epoch, lowest and highest value of the panel; its width and height
    lines: list[Line]

    @property
    def room(self) -> str:
        """Class of the page's style: how much room the names take, if there are any."""
        if any(line.name_at is None for line in self.lines):
            return "unnamed"
        return "short" if all(len(line.name) <= SHORT_NAME for line in self.lines) else "long"


@dataclass(frozen=True)
class Key:
    """A line of the legend."""

    number: int
    name: str
    look: Look


def legend_of(group: Group) -> list[Key]:
    styles = line_styles(group.runs)
    return [Key(number, label, Look.of(styles[label])) for number, label in enumerate(group.runs)]


@dataclass(frozen=True)
class Curve:
    """Seeds × epochs of a run, and what is drawn of them."""

    number: int
    label: str
    epochs: np.ndarray
    mean: np.ndarray
    spread: np.ndarray  # NaN of a single seed

    def band(self, top: float) -> tuple[np.ndarray, np.ndarray]:
        """One standard deviation, from 0 to `top`."""
        spread = np.nan_to_num(self.spread)
        return np.clip(self.mean - spread, 0, top), np.clip(self.mean + spread, 0, top)


@dataclass(frozen=True)
class Scale:
    """From epochs and values to places in the drawing."""

    first: int
    last: int
    low: float
    high: float

    def x(self, epochs: np.ndarray | float) -> np.ndarray:
        return PANEL_WIDTH * (np.asarray(epochs, float) - self.first) / max(1, self.last - self.first)

    def y(self, values: np.ndarray | float) -> np.ndarray:
        return PANEL_HEIGHT * (self.high - np.asarray(values, float)) / (self.high - self.low)


def chart_of(group: Group, measure: str) -> Chart:
    words, top = MEASURES[measure]
    styles = line_styles(group.runs)
    curves = list(curves_of(group, measure))
    scale = scale_for(curves, top)
    ends = names_at(curves, scale)
    return Chart(
        words,
        MEASURE_MEANINGS[measure],
        f"{words} by epoch, {group.title}: {', '.join(curve.label for curve in curves)}",
        [Tick(float(scale.x(e)), f"{e:g}") for e in ticks(scale.first, scale.last, whole=True)],
        [Tick(float(scale.y(v)), f"{v:g}") for v in ticks(scale.low, scale.high)],
        f"{scale.first} {scale.last} {scale.low:.6g} {scale.high:.6g} {PANEL_WIDTH} {PANEL_HEIGHT}",
        [
            line_of(curve, scale, styles[curve.label], top, name_at)
            for curve, name_at in zip(curves, ends, strict=True)
        ],
    )


def curves_of(group: Group, measure: str) -> Iterator[Curve]:
    """One for each run that has the measure; an epoch without a row or a value is NaN."""
    for number, (label, run) in enumerate(group.runs.items()):
        epochs, values = curve(run, measure)
        if not has(run, measure) or not np.isfinite(values.mean(0)).any():
            continue
        there = np.array(epochs) - epochs[0]
        mean, spread = np.full((2, there[-1] + 1), np.nan)
        mean[there] = values.mean(0)
        if len(values) > 1:
            spread[there] = values.std(0, ddof=1)
        yield Curve(number, label, np.arange(epochs[0], epochs[-1] + 1), mean, spread)


def scale_for(curves: list[Curve], top: float) -> Scale:
    """All lines and bands, and some room above and below."""
    bands = [np.concatenate(curve.band(top)) for curve in curves]
    values = np.concatenate([band[np.isfinite(band)] for band in bands] or [np.zeros(0)])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, top)
    room = max(0.05 * (high - low), (FLATTEST * top - (high - low)) / 2)
    first = min((int(curve.epochs[0]) for curve in curves), default=1)
    return Scale(first, max((int(curve.epochs[-1]) for curve in curves), default=1), low - room, high + room)


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers from low to high, about as many as `TICKS_WANTED`.

    >>> ticks(53.2, 98.4), ticks(1, 50, whole=True), ticks(1, 1, whole=True)
    ([60.0, 70.0, 80.0, 90.0], [10.0, 20.0, 30.0, 40.0, 50.0], [1.0])
    """
    wanted = max((high - low) / TICKS_WANTED, 1e-9)
    power = 10.0 ** math.floor(math.log10(wanted))
    step = min(factor * power for factor in ROUND_STEPS if factor * power >= 0.9 * wanted)
    step = float(max(1, round(step))) if whole else step
    return [round(k * step, 9) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def names_at(curves: list[Curve], scale: Scale) -> list[float | None]:
    """Heights of the names at the ends of lines, apart from each other; none where they are too many."""
    if LINE_OF_NAMES * (len(curves) - 1) > PANEL_HEIGHT:
        return [None] * len(curves)
    ends = np.array([float(scale.y(end_of(curve)[1])) for curve in curves])
    order = np.argsort(ends, kind="stable")
    places = np.empty(len(curves))
    places[order] = spread_out(ends[order], LINE_OF_NAMES, 0, PANEL_HEIGHT)
    return [float(place) for place in places]


def end_of(curve: Curve) -> tuple[int, float]:
    """The last epoch that has a value, and the value."""
    last = np.flatnonzero(np.isfinite(curve.mean))[-1]
    return int(curve.epochs[last]), float(curve.mean[last])


def line_of(curve: Curve, scale: Scale, style: Style, top: float, name_at: float | None) -> Line:
    x, y = scale.x(curve.epochs), scale.y(curve.mean)
    begin, step = style.marked(len(x))
    marked = [k for k in range(begin, len(x), step) if np.isfinite(y[k])]
    last, value = end_of(curve)
    return Line(
        curve.number,
        short_label(curve.label, LONGEST_NAME),
        Look.of(style),
        path(x, y),
        band_path(curve, scale, top),
        [(float(x[k]), float(y[k])) for k in marked],
        "" if name_at is None else f"M{scale.x(last):.1f} {scale.y(value):.1f}L{PANEL_WIDTH + 10} {name_at:.1f}",
        name_at,
        int(curve.epochs[0]),
        numbers(curve.mean, top),
        "" if np.isnan(curve.spread).all() else numbers(curve.spread, top),
    )


def path(x: np.ndarray, y: np.ndarray) -> str:
    """Through all points, with gaps where there is none; a point alone is a dot."""
    parts = []
    for run in unbroken(y):
        points = [f"{x[k]:.1f} {y[k]:.1f}" for k in run]
        parts.append(f"M{'L'.join(points)}" + ("h0" if len(run) == 1 else ""))
    return "".join(parts)


def unbroken(y: np.ndarray) -> list[np.ndarray]:
    there = np.flatnonzero(np.isfinite(y))
    return [run for run in np.split(there, np.flatnonzero(np.diff(there) > 1) + 1) if len(run)]


def band_path(curve: Curve, scale: Scale, top: float) -> str:
    """Around the line, at fewer points: it is only to be seen, not read. Nothing of a single seed."""
    if np.isnan(curve.spread).all():
        return ""
    low, high = curve.band(top)
    parts = []
    for run in unbroken(curve.mean):
        some = run[thinned(len(run))]
        there = [f"{scale.x(curve.epochs[k]):.1f} {scale.y(high[k]):.1f}" for k in some]
        back = [f"{scale.x(curve.epochs[k]):.1f} {scale.y(low[k]):.1f}" for k in some[::-1]]
        parts.append(f"M{'L'.join(there + back)}z")
    return "".join(parts)


def numbers(values: np.ndarray, top: float) -> str:
    """To two digits of a per cent, three of a share; a comma between them, nothing for what is not there."""
    digits = 2 if top > 1 else 3
    return ",".join("" if np.isnan(value) else f"{value:.{digits}f}" for value in values)
