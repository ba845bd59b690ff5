"""The figure of a preset, drawn from the files of its cells: curves, or blocks where lines would be too many."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coteach.figures import (
    COLOURED,
    GREY,
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
    tell,
)
from coteach.names import DATASET_LABELS, MEASURES, METHOD_LABELS
from coteach.paper.beside import comparable, draw_beside
from coteach.paper.blocks import blocks, draw_block, keep_is_set
from coteach.paper.words import apart_again, noise_of, of_all, over_coteaching, plain_words

CellRecords = list[dict[str, Any]]

AS_BLOCKS = {"ablation"}  # presets with more methods than lines that a reader can distinguish
MOST_ROWS = 2  # of panels, to have label precision below each; the tables have it
OF_JOCOR = (*COLOURED, "jocor")
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
    if records[0]["preset"] not in AS_BLOCKS:
        draw_curves(records, in_all(stem))
        return in_all(stem)
    paths = []
    for (block, dataset), rows in blocks(records).items():
        draw_block(block, dataset, rows, in_all(f"{stem}-{block}-{dataset}"))
        paths += in_all(f"{stem}-{block}-{dataset}")
    for dataset, some in in_time(records).items():
        draw_times(dataset, some, in_all(f"{stem}-epochs-{dataset}"))
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
            p
            for p in record["row"].split(", ")
            if not p.startswith("network ") and p not in parts and p not in shared
        ]
        panels.setdefault((plain_words(", ".join(parts)), noise_of(s)), {})[", ".join(label)] = record
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
    if all(len(several) > 1 for several in readings.values()):
        return [*keys, "fidelity"]  # which has its own network
    return keys + (["network"] if any(len(several) > 1 for several in networks.values()) else [])


# ---- curves ---------------------------------------------------------------------------------------------------


def draw_curves(records: CellRecords, paths: list[Path]) -> None:
    rows, columns, panels = by_panel(records)
    show = records[0]["show"]
    both = show == "test_accuracy" and len(rows) <= MOST_ROWS
    measures = [show, "label_precision"] if both else [show]

    def lines(row: str, column: str, measure: str) -> Lines:
        return {label: points(record, measure) for label, record in panels.get((row, column), {}).items()}

    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    coloured = OF_JOCOR if any(r["summary"]["method"] == "jocor" for r in records) else COLOURED
    grid = Grid(rows, columns, measures, labels, lines, plain_words)
    title, spread = records[0]["title"], over_seeds(len(record["runs"]) for record in records)
    message = curves_message(records, [list(panel.values()) for panel in panels.values()])
    draw_grid(grid, paths, f"{title}. {spread}." if message else f"{spread}.", message or title, coloured)


def curves_message(records: CellRecords, settings: list[CellRecords]) -> str:
    if records[0]["show"] == "total_variation":
        apart = [r for r in records if r["summary"]["method"] == "coteaching"]
        return apart_again(seed_curves(record, "total_variation") for record in apart)
    return "" if records[0]["preset"] == "jocor" else over_coteaching(settings)


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


def draw_times(dataset: str, records: CellRecords, paths: list[Path]) -> None:
    columns = list(dict.fromkeys(noise_of(record["summary"]) for record in records))
    labels = sorted({loss_begins(r["summary"]) for r in records}, key=lambda label: (-len(label), label))
    styles = {label: replace(style, **PLAIN_TIMES.get(label, {})) for label, style in line_styles(labels).items()}
    figure, axes = new_figure(1, len(columns), 2.6, sharey=False)
    for ax, column in zip(axes[0], columns, strict=True):
        name_panel(ax, column)
        ax.set_xlabel("epoch")
        for record in records:
            if noise_of(record["summary"]) == column:
                label = loss_begins(record["summary"])
                draw_line(ax, label, styles[label], *points(record, "test_accuracy"))
    axes[0, 0].set_ylabel("test accuracy (%)")
    spread = over_seeds(len(record["runs"]) for record in records)
    caption = (
        f"Co-teaching with either loss, or one after the other; Co-teaching+ with the authors' code. {spread}."
    )
    tell(figure, f"{DATASET_LABELS[dataset]}: {times_message(records)}", caption)
    add_legend(figure, axes, columns=2)
    save(figure, paths)


def times_message(records: CellRecords) -> str:
    """In how many settings the recommended order of losses ends highest."""
    by_column: dict[str, dict[str, float]] = {}
    for record in records:
        by_column.setdefault(record["column"], {})[loss_begins(record["summary"])] = record["summary"]["mean"]
    ours = next(label for labels in by_column.values() for label in labels if label.endswith(FIRST_AND_THEN))
    best = sum(ends.get(ours) == max(ends.values()) for ends in by_column.values())
    return f"cross-entropy first, then softmax twice ends highest in {of_all(best, len(by_column))}"


FIRST_AND_THEN = ", cross-entropy, then softmax twice"
PLAIN_TIMES: dict[str, Any] = {
    f"Co-teaching{loss}": {"colour": GREY, "width": 1.0} for loss in (", cross-entropy", ", softmax twice")
}


def loss_begins(s: dict[str, Any]) -> str:
    """The method, and from when on it has the authors' loss: their own has it after the warm-up."""
    if s["method"] == "coteaching_plus":
        return METHOD_LABELS[s["method"]]
    when = {None: ", cross-entropy", "softmax_twice": ", softmax twice"}[s["loss"]]
    return METHOD_LABELS[s["method"]] + (FIRST_AND_THEN if s.get("warmup_loss") else when)
