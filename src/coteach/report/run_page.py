"""The report of runs: one HTML file that works offline and in print, and asks nobody."""

from collections.abc import Iterator

import coteach
from coteach.names import MEASURES
from coteach.pages import page_file
from coteach.paper.compare import Line
from coteach.report import run_tables as tables
from coteach.report.page import Markup, element, filled, joined, scrolled, skeleton, text
from coteach.report.preset_page import sources
from coteach.report.run_figures import measured, panel_svg
from coteach.report.run_files import Run
from coteach.report.run_groups import Group, groups_of
from coteach.report.run_labels import flips, losses

GENERATOR = "coteach report"  # by which an earlier page is known to be ours


def report_page(runs: list[Run]) -> str:
    groups = groups_of(runs)
    ids = {run: f"run-{i}" for i, run in enumerate((run for g in groups for run in g.runs.values()), 1)}
    title = " · ".join(dict.fromkeys(group.title for group in groups))
    sections = {
        "results": ("Results", joined(curves(groups, ids))),
        "known": ("Beside the known numbers", known(tables.known_lines(runs))),
        "events": ("Events", tables.events_table(groups)),
        "runs": ("One by one", joined(run_articles(groups, ids))),
        "commands": ("To repeat it", commands(groups)),
    }
    parts = skeleton("report", "report.js") | {
        "generator": GENERATOR,
        "title": text(title if len(title) < 120 else f"{title[:117]}…"),
        "about": text(about(runs)),
        "contents": joined(
            element("li", element("a", name, href=f"#{id_}")) for id_, (name, _) in sections.items()
        ),
        "sections": joined(
            element("section", element("h2", name), body, id=id_) for id_, (name, body) in sections.items()
        ),
    }
    return filled(page_file("report", "report.html"), parts)


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


def curves(groups: list[Group], ids: dict[Run, str]) -> Iterator[Markup]:
    for g, group in enumerate(groups, 1):
        yield element("h3", group.title)
        if group.common:
            yield element("p", f"All runs on {group.data}: {', '.join(group.common.values())}.", class_="muted")
        yield tables.results(group, ids)
        drawn = [
            element(
                "figure",
                scrolled(Markup(panel_svg(group, measure, f"g{g}-{measure}")), MEASURES[measure][0]),
                element("figcaption", MEASURES[measure][0]),
            )
            for measure in measured(group)
        ]
        yield element("div", *drawn, class_="curves")
        yield element("p", "Lines: mean over seeds. Bands: ± 1 standard deviation.", class_="muted")


def known(lines: list[Line]) -> Markup:
    if not lines:
        return element("p", "No number is published for these settings, or none that we know.")
    within = "Within: nearer than the bar, or else than the larger spread over seeds, where one is known."
    by_whom = element("ul", *(element("li", source) for source in sources(lines)))
    return joined((tables.known_table(lines), element("p", within, class_="muted"), by_whom))


def run_articles(groups: list[Group], ids: dict[Run, str]) -> Iterator[Markup]:
    named = [(f"{group.title}: {label}", run) for group in groups for label, run in group.runs.items()]
    options = [element("option", name, value=ids[run]) for name, run in named]
    every = Markup('<option value="all">all of them</option>')
    chooser = element("select", *options, every, id="chooser")
    yield element("p", element("label", "Show ", chooser), id="choose", hidden="hidden")
    for name, run in named:
        state = element("b", "Unfinished: as far as it got.") if run.summary is None else f"{tables.took(run)}."
        parts = {
            "Losses of right and wrong labels" if run.truth_known else "Losses": losses(run, ids[run]),
            "Labels: given, suggested, true": flips(run),
            "Settings": tables.settings(run),
        }
        body = joined(joined((element("h4", heading), content)) for heading, content in parts.items())
        folder = element("p", element("code", run.folder.as_posix()), " · ", state, class_="muted")
        yield element("article", element("h3", name), folder, body, id=ids[run], class_="run")


def commands(groups: list[Group]) -> Markup:
    items = [
        joined((element("dt", f"{group.title}: {label}"), element("dd", element("code", tables.command(run)))))
        for group in groups
        for label, run in group.runs.items()
    ]
    return element("dl", *items, class_="commands")
