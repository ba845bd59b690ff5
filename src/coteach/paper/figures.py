"""The figure of a preset, drawn from the files of its cells: curves, or dots where lines would be too many."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coteach.fidelity import parse
from coteach.figures import (
    COLOURS,
    Grid,
    Lines,
    add_legend,
    draw_grid,
    draw_line,
    line_styles,
    name_panel,
    new_figure,
    over_seeds,
    save,
)
from coteach.names import LOSS_MEANINGS, MEASURES, METHOD_FACTS, METHOD_LABELS
from coteach.paper.beside import comparable, draw_beside

CellRecords = list[dict[str, Any]]

AS_DOTS = {"ablation"}  # presets with more methods than lines that a reader can distinguish
BESIDE_KNOWN = {"human"}  # presets whose ends, not curves, are set beside the published


def preset_figures(
    records: CellRecords, folder: Path, stem: str, formats: tuple[str, ...] = ("svg",)
) -> list[Path]:
    """Write `stem`.svg, or several whose names begin so, in each of the formats."""

    def in_all(name: str) -> list[Path]:
        return [folder / f"{name}.{suffix}" for suffix in formats]

    records = without_outdone(records)
    if records[0]["preset"] in BESIDE_KNOWN:
        if found := comparable(records):
            draw_beside(found, in_all(stem))
        return in_all(stem) if found else []
    if records[0]["preset"] not in AS_DOTS:
        draw_curves(records, in_all(stem))
        return in_all(stem)
    paths = []
    for (block, dataset), rows in blocks(records).items():
        title = BLOCK_TITLES[block].format(READINGS[reading_on(dataset)])
        draw_dots(rows, in_all(f"{stem}-{block}-{dataset}"), title)
        paths += in_all(f"{stem}-{block}-{dataset}")
    for dataset, some in in_time(records).items():
        draw_times(some, in_all(f"{stem}-epochs-{dataset}"))
        paths += in_all(f"{stem}-epochs-{dataset}")
    return paths


def without_outdone(records: CellRecords) -> CellRecords:
    """Without F-correction's weights of the last epoch where those that its authors take are there, too."""

    def apart(summary: dict[str, Any]) -> tuple:
        keys = ("dataset", "method", "network", "fidelity", "noise", "rate", "estimate_epochs", "steps_per_epoch")
        return tuple(summary.get(key) for key in keys)

    chosen = {apart(record["summary"]) for record in records if record["summary"].get("held_out") is None}
    return [
        record for record in records
        if record["summary"].get("held_out") != 0 or apart(record["summary"]) not in chosen
    ]  # fmt: skip


def by_panel(records: CellRecords) -> tuple[list[str], list[str], dict[tuple[str, str], dict[str, dict]]]:
    """Names of the rows and columns of panels, and each panel's records by label."""
    splits = split_by(records)
    shared = set.intersection(*(set(record["row"].split(", ")[1:]) for record in records))
    if all(record["summary"]["fidelity"].startswith("paper") for record in records):  # or with a switch turned
        shared.add("paper")
    panels: dict[tuple[str, str], dict[str, dict]] = {}
    for record in records:
        s = record["summary"]
        parts = [s[key] for key in splits]
        label = [
            p for p in record["row"].split(", ") if p.removeprefix("network ") not in parts and p not in shared
        ]
        panels.setdefault((", ".join(parts), noise_of(s)), {})[", ".join(label)] = record
    rows, columns = (list(dict.fromkeys(key[i] for key in panels)) for i in (0, 1))
    return rows, columns, panels


def split_by(records: CellRecords) -> list[str]:
    """What goes into panels of its own: several data sets, networks of one method, readings of all methods."""
    found = [record["summary"] for record in records]
    networks: dict[tuple, set] = {}
    readings: dict[tuple, set] = {}
    for s in found:
        networks.setdefault((s["dataset"], s["method"]), set()).add(s["network"])
        readings.setdefault((s["dataset"], s["method"]), set()).add(s["fidelity"])
    keys = ["dataset"] if len({s["dataset"] for s in found}) > 1 else []
    keys += ["network"] if any(len(several) > 1 for several in networks.values()) else []
    return keys + (["fidelity"] if all(len(several) > 1 for several in readings.values()) else [])


def noise_of(s: dict[str, Any]) -> str:
    return f"{s['noise']} {100 * s['rate']:g} %" if s["rate"] is not None else s["noise"]


# ---- curves ---------------------------------------------------------------------------------------------------


def draw_curves(records: CellRecords, paths: list[Path]) -> None:
    rows, columns, panels = by_panel(records)
    show = records[0]["show"]
    measures = [show, "label_precision"] if show == "test_accuracy" else [show]

    def lines(row: str, column: str, measure: str) -> Lines:
        return {label: points(record, measure) for label, record in panels.get((row, column), {}).items()}

    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    over = over_seeds(len(record["runs"]) for record in records)
    draw_grid(Grid(rows, columns, measures, labels, lines), paths, f"{records[0]['title']}. {over}.")


def points(record: dict[str, Any], measure: str) -> tuple[list[int], np.ndarray]:
    """The epochs, and seeds × epochs as an axis has them."""
    values = MEASURES[measure][1] * seed_curves(record, measure)
    return list(range(1, values.shape[1] + 1)), values


def seed_curves(record: dict[str, Any], measure: str) -> np.ndarray:
    """Seeds × epochs, of the epochs that all seeds have; what a method does not have is NaN."""
    runs = [run["curves"][measure] for run in record["runs"]]
    n_epochs = min(map(len, runs))
    return np.array([run[:n_epochs] for run in runs], dtype=float)


def in_time(records: CellRecords) -> dict[str, CellRecords]:
    """By data set, what shows when a loss should begin: Co-teaching with the authors' loss from the start, after a
    warm-up, and not at all, beside their Co-teaching+."""
    found: dict[str, CellRecords] = {}
    for record in records:
        s = record["summary"]
        theirs = s["method"] == "coteaching_plus" and s["loss"] is None
        as_usual = s["fidelity"] == "authors" and not keep_is_set(s)
        if as_usual and (theirs or (s["method"] == "coteaching" and s["loss"] in (None, "softmax_twice"))):
            found.setdefault(s["dataset"], []).append(record)
    return {name: some for name, some in found.items() if any(r["summary"].get("warmup_loss") for r in some)}


def draw_times(records: CellRecords, paths: list[Path]) -> None:
    """Small panels under one legend, so that it can be read where a page makes it narrow."""
    columns = list(dict.fromkeys(record["column"] for record in records))
    styles = line_styles(
        sorted({loss_begins(r["summary"]) for r in records}, key=lambda label: (-len(label), label))
    )
    figure, axes = new_figure(1, len(columns), 2.5, sharey=False)
    for ax, column in zip(axes[0], columns, strict=True):
        name_panel(ax, column)
        ax.set_xlabel("epoch")
        for record in records:
            if record["column"] == column:
                label = loss_begins(record["summary"])
                draw_line(ax, label, styles[label], *points(record, "test_accuracy"))
    axes[0, 0].set_ylabel("test accuracy (%)")
    add_legend(figure, axes)
    when = "Softmax twice from the start, not at all, or then: after a warm-up with cross-entropy"
    spread = over_seeds(len(record["runs"]) for record in records)
    save(figure, paths, f"{when}.\nCo-teaching+ as its authors run it. {spread}.")


def keep_is_set(s: dict[str, Any]) -> bool:
    """Whether how much to keep was said, not left to the paper."""
    return s["keep_type"] is not None or s["tau"] is not None


def loss_begins(s: dict[str, Any]) -> str:
    """The method, and from when on it has the authors' loss: their own has it after the warm-up."""
    when = {None: "", "softmax_twice": ", softmax twice"}[s["loss"]]
    return METHOD_LABELS[s["method"]] + (", then softmax twice" if s.get("warmup_loss") else when)


# ---- dots -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dot:
    """A line of a dot plot, under a heading or none: a cell, with its words there."""

    heading: str
    label: str
    record: dict[str, Any]
    reference: bool = False  # what others are to be compared with


READINGS = {"authors": "in the authors' code", "paper": "the paper writes it"}

BLOCK_TITLES = {
    "losses": "Every rule with every loss; all else as {}",
    "switches": "Co-teaching+: the paper with details of the authors' code, that code without one (dashed: both)",
    "keep": "Co-teaching+ as the authors run it (dashed), with λ that stays (type 1) or goes on falling (type 2), "
    "and τ too low, right, too high",
}


def blocks(records: CellRecords) -> dict[tuple[str, str], list[Dot]]:
    """What is compared with each other, on one data set; Co-teaching+ as its authors run it is in every block."""
    found: dict[str, list[Dot]] = {"losses": [], "switches": [], "keep": []}
    for record in records:
        s = record["summary"]
        keep_set = keep_is_set(s)
        as_authors = s["fidelity"] == "authors"
        as_others = s["fidelity"] == reading_on(s["dataset"])
        plus = s["method"] == "coteaching_plus" and s["loss"] is None
        if as_others and not keep_set:
            found["losses"].append(Dot(loss_of(record), METHOD_LABELS[s["method"]], record))
        if plus and not keep_set:
            found["switches"].append(Dot("", s["fidelity"], record, s["fidelity"] in ("paper", "authors")))
        if keep_set or (plus and as_authors):
            off = 0.0 if s["tau"] is None else s["tau"] - s["rate"]
            label = f"τ {off:+.1f}" if round(off, 4) else "τ"
            found["keep"].append(Dot(f"λ type {s['keep_type'] or 1}", label, record, not keep_set))
    methods = [METHOD_LABELS[name] for name in COLOURS]
    found["losses"].sort(key=lambda dot: (loss_order(dot.heading), methods.index(dot.label)))
    found["switches"].sort(key=lambda dot: (dot.label == "authors", dot.label.startswith("authors")))
    found["keep"].sort(key=lambda dot: (dot.heading, dot.label != "τ -0.1", dot.label != "τ"))
    apart = {
        (block, dataset): [dot for dot in dots if dot.record["summary"]["dataset"] == dataset]
        for block, dots in found.items()
        for dataset in dict.fromkeys(dot.record["summary"]["dataset"] for dot in dots)
    }
    return {key: dots for key, dots in apart.items() if any(not dot.reference for dot in dots)}


def reading_on(dataset: str) -> str:
    """In which reading the rules were compared with each other."""
    return "paper" if dataset == "news" else "authors"


def loss_of(record: dict[str, Any]) -> str:
    """The loss, and that of the warm-up where it is another, as in the authors' own Co-teaching+."""
    s = record["summary"]
    loss, before = s["loss"] or "cross_entropy", s.get("warmup_loss")
    if s["loss"] is None and METHOD_FACTS[s["method"]].authors_differ and parse(s["fidelity"]).softmax_twice:
        loss, before = "softmax_twice", before or ("cross_entropy" if record["config"].get("warmup") else None)
    return f"{loss} after {before}" if before else loss


def loss_order(heading: str) -> tuple[int, str]:
    """A place for a loss, and right behind it for the same after another."""
    loss, _, before = heading.partition(" after ")
    return list(LOSS_MEANINGS).index(loss), before


def dot_lines(dots: list[Dot]) -> Iterator[tuple[str, str | None]]:
    """The lines of a panel, (heading, label), downwards; a heading has a line of its own, without label."""
    before = ""
    for heading, label in dict.fromkeys((dot.heading, dot.label) for dot in dots):
        if heading != before:
            yield heading, None
            before = heading
        yield heading, label


def draw_dots(dots: list[Dot], paths: list[Path], title: str) -> None:
    """A panel for each noise; each seed faint, their mean with a standard deviation on top."""
    columns = list(dict.fromkeys(dot.record["column"] for dot in dots))
    lines = list(dot_lines(dots))
    place = {line: -y for y, line in enumerate(lines)}
    figure, axes = new_figure(1, len(columns), 0.165 * len(lines) + 1.1)
    for ax, column in zip(axes[0], columns, strict=True):
        name_panel(ax, column)
        ax.set_xlabel("test accuracy (%)")
        ax.margins(x=0.05)
        ax.tick_params(axis="y", length=0)
        for dot in dots:
            if dot.record["column"] == column:
                draw_dot(ax, place[dot.heading, dot.label], dot.record["summary"])
                if dot.reference:
                    ax.axvline(dot.record["summary"]["mean"], color="#777777", linestyle="--", linewidth=0.8)
    first = axes[0, 0]
    first.set_yticks(list(place.values()), [label or heading for heading, label in lines], fontsize=8)
    first.set_ylim(-len(lines) + 0.3, 0.7)
    for text, (_, label) in zip(first.get_yticklabels(), lines, strict=True):
        text.set_fontweight("bold" if label is None else "normal")
    counts = (len(dot.record["runs"]) for dot in dots)
    save(figure, paths, f"{title}.\n{over_seeds(counts, '± 1 standard deviation; faint: each seed')}.")


def draw_dot(ax: Any, y: float, s: dict[str, Any]) -> None:
    colour = COLOURS[s["method"]]
    seeds = s["mean_per_seed"]
    ax.plot(seeds, [y] * len(seeds), "o", color=colour, alpha=0.25, markersize=4, markeredgewidth=0)
    ax.errorbar(s["mean"], y, xerr=s["std"] or 0, fmt="o", color=colour, markersize=4.5, capsize=2, linewidth=1.2)
