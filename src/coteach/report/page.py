"""The report of runs: one HTML file that works offline and in print, and asks nobody."""

import re
from dataclasses import dataclass

import coteach
from coteach.names import EVENTS
from coteach.pages import render
from coteach.paper.compare import COMPARISON_HEADER, sources
from coteach.report.charts import PANEL_BOX, PANEL_HEIGHT, PANEL_WIDTH, SWATCH, Chart, Key, chart_of, legend_of
from coteach.report.curves import measured
from coteach.report.groups import Group, groups_of
from coteach.report.labels import HeatMap, flips_in_words, heat_maps
from coteach.report.losses import VIEW_BOX, Histogram, frame_caption, frames_of, histogram
from coteach.report.ranking import ResultRow, card, differences, result_rows, told_the_truth
from coteach.report.read import Run
from coteach.report.tables import command, event_rows, known_lines, settings, took

GENERATOR = "coteach report"  # by which an earlier page is known to be ours
NUMBER = re.compile(r"[-+−]?[\d,.]+( ± [\d.]+)?( %)?|–|")


def report_page(runs: list[Run]) -> str:
    groups = groups_of(runs)
    named = [(f"{group.title}: {label}", run) for group in groups for label, run in group.runs.items()]
    ids = {run: f"run-{i}" for i, (_, run) in enumerate(named, 1)}
    title = " · ".join(dict.fromkeys(group.title for group in groups))
    known, events = known_lines(runs), event_rows(groups)
    return render(
        "report",
        "report",
        ("report.js", "charts.js", "tables.js"),
        generator=GENERATOR,
        title=title if len(title) < 120 else f"{title[:117]}…",
        about=about(runs),
        cards=[(f"group-{g}", found) for g, group in enumerate(groups, 1) if (found := card(group))],
        differences=list(differences(groups)),
        groups=[group_view(group, f"group-{g}", ids) for g, group in enumerate(groups, 1)],
        known_header=COMPARISON_HEADER[1:],
        known=[line.texts()[1:] for line in known],
        sources=sources(known),
        events=events,
        meanings={name: EVENTS[name] for name in EVENTS if any(event.name == name for event in events)},
        articles=[article(name, run, ids[run]) for name, run in named],
        commands=[(name, command(run)) for name, run in named],
        panel=Panel(),
        histogram_box=VIEW_BOX,
        is_number=lambda value: NUMBER.fullmatch(str(value)) is not None,
    )


def about(runs: list[Run]) -> str:
    n, unfinished = len(runs), sum(run.summary is None for run in runs)
    seeds = sum(len(run.experiment.seeds) for run in runs)
    trained = dict.fromkeys(
        f"{run.config['hardware'].get('name', 'unknown hardware')}, "
        f"torch {run.config.get('versions', {}).get('torch', '?')}"
        for run in runs
    )
    words = f"{n} experiment{'s' * (n > 1)}{f', {unfinished} of them unfinished' * bool(unfinished)}"
    words += f"; {seeds} run{'s' * (seeds > 1)}, one for each seed"
    return f"{words}. Trained on {'; '.join(trained)}. Written by coteach {coteach.__version__}."


@dataclass(frozen=True)
class Panel:
    """Sizes of a chart, for the template."""

    view_box: str = PANEL_BOX
    width: int = PANEL_WIDTH
    height: int = PANEL_HEIGHT
    swatch: int = SWATCH


@dataclass(frozen=True)
class GroupView:
    """A group as it is shown: a table, charts, and one legend for all of them."""

    id: str
    group: Group
    rows: list[ResultRow]
    legend: list[Key]
    charts: list[Chart]
    gains: bool  # whether there is a Standard to be better than
    oracles: list[str]


def group_view(group: Group, id_: str, ids: dict[Run, str]) -> GroupView:
    rows = result_rows(group, ids)
    charts = [chart for measure in measured(group) if (chart := chart_of(group, measure)).lines]
    oracles = [label for label, run in group.runs.items() if told_the_truth(run)]
    return GroupView(id_, group, rows, legend_of(group), charts, any(row.gain != "–" for row in rows), oracles)


@dataclass(frozen=True)
class FrameView:
    """The losses of an epoch as they are shown."""

    epoch: int
    key: bool
    caption: str
    histogram: Histogram


@dataclass(frozen=True)
class Article:
    """A run as it is shown by itself."""

    id: str
    name: str
    folder: str
    took: str  # nothing of an unfinished run
    truth_known: bool
    frames: list[FrameView]
    flips: str
    matrices: list[HeatMap]
    settings: dict[str, dict[str, str]]


def article(name: str, run: Run, id_: str) -> Article:
    known = run.truth_known
    frames = [
        FrameView(frame.epoch, frame.key, frame_caption(frame, known), histogram(frame, known))
        for frame in frames_of(run)
    ]
    return Article(
        id_,
        name,
        run.folder.as_posix(),
        took(run),
        known,
        frames,
        flips_in_words(run),
        heat_maps(run),
        settings(run),
    )
