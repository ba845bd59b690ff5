"""The blocks of the ablation: rules with losses as heat maps, switches and shares to keep as dots."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coteach.fidelity import parse
from coteach.figures import COLOURS, INK, MUTED, TEXT, name_panel, new_figure, over_seeds, save, tell
from coteach.names import DATASET_LABELS, LOSS_MEANINGS, METHOD_FACTS, METHOD_LABELS
from coteach.paper.heat import HeatCell, colour_of, draw_heat
from coteach.paper.words import READINGS, best_pair, in_words, noise_of, reading_words, share_of_the_gap


@dataclass(frozen=True)
class Dot:
    """A line of a dot plot, under a heading or none: a cell, with its words there."""

    heading: str
    label: str
    record: dict[str, Any]
    reference: bool = False  # what others are to be compared with


ALONE = "nothing changed"
KEEP_TYPES = {1: "λ stays (type 1)", 2: "λ keeps falling (type 2)"}


def blocks(records: list[dict[str, Any]]) -> dict[tuple[str, str], list[Dot]]:
    """What is compared with each other, on one data set; Co-teaching+ with the authors' code is in every block."""
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
            base = "paper" if s["fidelity"].startswith("paper") else "authors"
            words = reading_words(s["fidelity"]).removeprefix(READINGS[base]).strip()
            found["switches"].append(Dot(READINGS[base], words or ALONE, record, not words))
        if keep_set or (plus and as_authors):
            off = 0.0 if s["tau"] is None else s["tau"] - s["rate"]
            label = f"τ {off:+.1f}".replace("-", "−") if round(off, 4) else "τ"
            found["keep"].append(Dot(KEEP_TYPES[s["keep_type"] or 1], label, record, not keep_set))
    methods = [METHOD_LABELS[name] for name in COLOURS]
    found["losses"].sort(key=lambda dot: (loss_order(dot.heading), methods.index(dot.label)))
    found["switches"].sort(key=lambda dot: (list(READINGS.values()).index(dot.heading), not dot.reference))
    found["keep"].sort(
        key=lambda dot: (list(KEEP_TYPES.values()).index(dot.heading), dot.label != "τ −0.1", dot.label != "τ")
    )
    apart = {
        (block, dataset): [dot for dot in dots if dot.record["summary"]["dataset"] == dataset]
        for block, dots in found.items()
        for dataset in dict.fromkeys(dot.record["summary"]["dataset"] for dot in dots)
    }
    return {key: dots for key, dots in apart.items() if any(not dot.reference for dot in dots)}


def keep_is_set(s: dict[str, Any]) -> bool:
    """Whether how much to keep was said, not left to the paper."""
    return s["keep_type"] is not None or s["tau"] is not None


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


def draw_block(block: str, dataset: str, dots: list[Dot], paths: list[Path]) -> None:
    """One comparison on one data set, under what it says."""
    counts = [len(dot.record["runs"]) for dot in dots]
    name = DATASET_LABELS[dataset]
    if block == "losses":
        reading = {"authors": "as in the authors' code", "paper": "as published"}[reading_on(dataset)]
        spread = over_seeds(counts, "in the tables with its spread", alone="in places")
        hatched = f" Hatched: seeds that spread by more than ± {SPREADS:g} points." if max(counts) > 1 else ""
        caption = (
            f"Test accuracy (%), all else {reading}; colour: points over the cell at the top left. Bold: best."
            f"{hatched} {spread}."
        )
        draw_losses(dots, paths, caption, f"{name}: {best_pair(accuracies(dots))}")
        return
    spread = over_seeds(counts, "± 1 standard deviation; hollow: each seed")
    if block == "switches":
        caption = (
            "Co-teaching+ as published with single details of the authors' code, and that code without some. "
            "Dashed: both unchanged."
        )
        message = f"{name}: {switches_message(dots)}"
    else:
        caption = "Co-teaching+ with the authors' code. Dashed: λ as usual, which stays where τ puts it (type 1)."
        message = f"{name}: how much to keep, with the noise rate τ too low, right, or too high"
    draw_dots(dots, paths, f"{caption} {spread}.", message)


# ---- rules with losses ----------------------------------------------------------------------------------------

SPREADS = 3.0  # standard deviation over seeds, in points, that is worth a word


def draw_losses(dots: list[Dot], paths: list[Path], caption: str, message: str) -> None:
    """A panel for each noise: a row for each rule, a column for each loss."""
    columns = list(dict.fromkeys(dot.record["column"] for dot in dots))
    rules, losses = (list(dict.fromkeys(getattr(dot, key) for dot in dots)) for key in ("label", "heading"))
    methods = [METHOD_LABELS[name] for name in METHOD_FACTS]
    rules.sort(key=methods.index)
    figure, axes = new_figure(1, len(columns), 0.2 * len(rules) + 2.3)
    for ax, column in zip(axes[0], columns, strict=True):
        mine = [dot for dot in dots if dot.record["column"] == column]
        (base,) = (
            dot.record["summary"]["mean"] for dot in mine if (dot.heading, dot.label) == (losses[0], rules[0])
        )
        cells = {(rules.index(dot.label), losses.index(dot.heading)): loss_cell(dot, base, mine) for dot in mine}
        draw_heat(ax, cells, rules, [in_words(loss).replace(", then", ",\nthen") for loss in losses])
        ax.tick_params(axis="x", labelrotation=90)
        ax.set_title(noise_of(mine[0].record["summary"]), y=0, pad=-12, fontsize=TEXT, color=INK)
    for ax in axes[0, 1:]:
        ax.tick_params(labelleft=False)
    tell(figure, message, caption)
    save(figure, paths)


def loss_cell(dot: Dot, base: float, beside: list[Dot]) -> HeatCell:
    s, best = dot.record["summary"], max(other.record["summary"]["mean"] for other in beside)
    return HeatCell(
        f"{s['mean']:.0f}", colour_of(s["mean"] - base), s["mean"] == best, hatched=(s["std"] or 0) > SPREADS
    )


def accuracies(dots: list[Dot]) -> dict[tuple[str, str], dict[str, float]]:
    """Every rule with every loss, by setting."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for dot in dots:
        pair = dot.label, in_words(dot.heading)
        found.setdefault(pair, {})[dot.record["column"]] = dot.record["summary"]["mean"]
    return found


# ---- dots -----------------------------------------------------------------------------------------------------


def draw_dots(dots: list[Dot], paths: list[Path], caption: str, message: str) -> None:
    """A panel for each noise; each seed hollow, their mean with a standard deviation on top."""
    columns = list(dict.fromkeys(dot.record["column"] for dot in dots))
    lines = list(dot_lines(dots))
    place = {line: -y for y, line in enumerate(lines)}
    figure, axes = new_figure(1, len(columns), 0.165 * len(lines) + 1.1)
    for ax, column in zip(axes[0], columns, strict=True):
        mine = [dot for dot in dots if dot.record["column"] == column]
        name_panel(ax, noise_of(mine[0].record["summary"]))
        ax.set_xlabel("test accuracy (%)")
        ax.margins(x=0.05)
        ax.tick_params(axis="y", length=0)
        for dot in mine:
            draw_dot(ax, place[dot.heading, dot.label], dot.record["summary"])
            if dot.reference:
                ax.axvline(dot.record["summary"]["mean"], color=MUTED, linestyle="--", linewidth=0.8)
    first = axes[0, 0]
    first.set_yticks(list(place.values()), [label or heading for heading, label in lines], fontsize=TEXT)
    first.set_ylim(-len(lines) + 0.3, 0.7)
    for text, (_, label) in zip(first.get_yticklabels(), lines, strict=True):
        text.set_fontweight("bold" if label is None else "normal")
    tell(figure, message, caption)
    save(figure, paths)


def draw_dot(ax: Any, y: float, s: dict[str, Any]) -> None:
    """A single seed is hollow, as each is beside a mean."""
    colour, seeds = COLOURS[s["method"]], s["mean_per_seed"]
    hollow = {"markerfacecolor": "none", "markeredgewidth": 0.6}
    ax.plot(seeds, [y] * len(seeds), "o", color=colour, markersize=3.2, zorder=2.2, **hollow)
    if len(seeds) > 1:
        ax.errorbar(s["mean"], y, xerr=s["std"], fmt="o", color=colour, markersize=3.6, capsize=1.6, linewidth=1)


def switches_message(dots: list[Dot]) -> str:
    """What the one switch does that is named; in the order of the columns."""
    by_fidelity: dict[str, dict[str, float]] = {}
    for dot in dots:
        s = dot.record["summary"]
        by_fidelity.setdefault(s["fidelity"], {})[dot.record["column"]] = s["mean"]
    begin, there, end = (by_fidelity.get(name, {}) for name in ("paper", "paper+softmax_twice", "authors"))
    both = [column for column in begin if column in there and column in end]
    if not both:
        return "details of the authors' code one by one"
    return share_of_the_gap(*([means[column] for column in both] for means in (begin, there, end)))
