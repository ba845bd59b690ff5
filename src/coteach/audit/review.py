"""The review page of an audit: one HTML file with the suspects in it, that works offline and asks nobody.

What users wrote (labels, ids, texts) goes in as JSON alone; the page shows it as text. N networks, S suspects.
"""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from coteach.audit.examples import trusted_examples
from coteach.audit.images import thumbnails
from coteach.audit.judge import Findings
from coteach.audit.samples import LabelledSamples, readable
from coteach.labels.checked import Drawn
from coteach.labels.ledger import Suspects
from coteach.pages import render

MOST_SUSPECTS = 20_000  # suspects on the page
PICTURES_PER_BLOCK = 200  # pictures that the page reads together
MOST_TEXT_CHARACTERS = 40_000_000  # of all texts and cells together
LONGEST_SHOWN_TEXT, LONGEST_SHOWN_CELL = 4_000, 300
SHORTEST_SHOWN = 40  # characters of a cell that there is always room for
MOST_SHOWN_COLUMNS = 60
MOST_SHOWN_NUMBERS = 6  # of a vector
EXAMPLE_SIDES, MOST_EXAMPLE_CHARACTERS = (128, 64), 6_000_000  # pictures of trusted samples
LONGEST_EXAMPLE_TEXT, LONGEST_EXAMPLE_CELL = 240, 60
SCRIPTS = tuple(f"review_{part}.js" for part in ("state", "files", "rate", "parts", "grid", "overview", "page"))


def review_page(
    findings: Findings,
    folder: Path,
    fingerprint: str,
    drawn: Drawn | None = None,
    trusted_M: np.ndarray | None = None,
) -> str:
    """The whole page; decisions that are made on it carry the audit's fingerprint.

    Suspects, or, if they were drawn, samples of all qualities to check; then it needs to know what is trusted.
    """
    facts = page_facts(findings, folder, fingerprint)
    if drawn is not None:
        facts |= facts_to_check(findings, drawn)
    pictures = thumbnails(findings.samples, findings.suspects.index[:MOST_SUSPECTS])
    facts["pictures"] = PICTURES_PER_BLOCK if pictures is not None else 0
    examples = shown_examples(findings, findings.trusted if trusted_M is None else trusted_M)
    return render(
        "audit",
        "review",
        SCRIPTS,
        title="Suspect labels" if drawn is None else "Labels to check",
        what="suspect" if drawn is None else "sample",
        audit=json_in_html(facts),
        examples=json_in_html(examples),
        picture_blocks=[json_in_html(block) for block in blocks_of(pictures or [])],
    )


def blocks_of(pictures: list[str | None]) -> list[list[str | None]]:
    return [pictures[i : i + PICTURES_PER_BLOCK] for i in range(0, len(pictures), PICTURES_PER_BLOCK)]


def json_in_html(facts: Any) -> Markup:
    """JSON that cannot end the element it stands in."""
    return htmlsafe_json_dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def page_facts(findings: Findings, folder: Path, fingerprint: str) -> dict[str, Any]:
    """Everything that is shown, column by column; labels by the number of their class."""
    samples, suspects = findings.samples, findings.suspects
    classes = findings.classifier.classes_
    index = suspects.index[:MOST_SUSPECTS]
    return {
        "fingerprint": fingerprint,
        "source": readable(samples.source.name or str(samples.source)),
        "about": about_text(findings),
        "folder": readable(shlex.quote(str(folder))),
        "notes": [readable(note) for note in (*findings.notes, *note_on_skipped(samples))],
        "classes": [readable(str(c)) for c in classes],
        "id": [samples.ids[i] for i in index],
        "given": np.searchsorted(classes, suspects.given[:MOST_SUSPECTS]).tolist(),
        "suggested": np.searchsorted(classes, suspects.suggested[:MOST_SUSPECTS]).tolist(),
        "quality": [float(f"{q:.3g}") for q in np.nan_to_num(suspects.quality[:MOST_SUSPECTS])],
        "p_given": [rounded_or_none(p_S[:MOST_SUSPECTS]) for p_S in findings.given_NS],
        "p_suggested": [rounded_or_none(p_S[:MOST_SUSPECTS]) for p_S in findings.suggested_NS],
        **likely_classes(findings),
        "samples": len(samples),
        "noise": noise_facts(findings),
        "flag": "apply",
        "judge": "Model and neighbours" if hasattr(findings.classifier, "held_out_proba_") else "The network",
        **({"reason": [readable(r) for r in findings.reasons[:MOST_SUSPECTS]]} if findings.reasons else {}),
        **shown_texts(samples, index),
        **shown_cells(samples, index),
    }


def facts_to_check(findings: Findings, drawn: Drawn) -> dict[str, Any]:
    """What is otherwise where samples were drawn: from which part of all each is, and its place by quality."""
    samples, n = findings.samples, len(findings.suspects)
    place_M = np.argsort(np.argsort(findings.classifier.label_quality_, kind="stable"), kind="stable")
    return {
        "flag": "calibrate",
        "about": f"{n:,} of {len(samples):,} {samples.what}, drawn at random: is the given label right?",
        "part": drawn.stratum[:MOST_SUSPECTS].tolist(),
        "part_samples": drawn.size_H.tolist(),
        "rank": (place_M[drawn.index[:MOST_SUSPECTS]] + 1).tolist(),
    }


def likely_classes(findings: Findings) -> dict[str, list]:
    """For each suspect the likeliest classes besides the given one."""
    if findings.likely_SK is None or findings.likely_p_SK is None:
        return {}
    return {
        "likely": findings.likely_SK[:MOST_SUSPECTS].tolist(),
        "p_likely": [rounded_or_none(p_K) for p_K in findings.likely_p_SK[:MOST_SUSPECTS]],
    }


def noise_facts(findings: Findings) -> dict[str, Any]:
    """The share of wrong labels as the audit estimates it, or as it was given."""
    estimate = findings.noise_estimate
    interval = None if estimate is None else rounded_or_none(np.array(estimate.interval))
    return {"rate": round(float(findings.classifier.noise_rate_), 4), "interval": interval}


def shown_examples(findings: Findings, trusted_M: np.ndarray) -> dict[str, Any]:
    """Trusted samples, shown shortly, and for each suspect which of them stand beside it."""
    samples, all_ = findings.samples, findings.suspects
    listed = Suspects(*(part[:MOST_SUSPECTS] for part in (all_.index, all_.given, all_.suggested, all_.quality)))
    found = trusted_examples(samples, listed, trusted_M, findings.classifier.label_quality_)
    pictures = thumbnails(samples, found.index, EXAMPLE_SIDES, MOST_EXAMPLE_CHARACTERS)
    return {
        "given": found.given,
        "suggested": found.suggested,
        "id": [samples.ids[i] for i in found.index],
        **({} if pictures is None else {"picture": pictures}),
        **shown_texts(samples, found.index, LONGEST_EXAMPLE_TEXT),
        **shown_cells(samples, found.index, LONGEST_EXAMPLE_CELL),
    }


def about_text(findings: Findings) -> str:
    n, listed = len(findings.suspects), min(len(findings.suspects), MOST_SUSPECTS)
    words = f"{n:,} suspects among {len(findings.samples):,} {findings.samples.what}"
    return words if n == listed else f"The worst {listed:,} of {words}; the others are in suspects.csv"


def note_on_skipped(samples: LabelledSamples) -> list[str]:
    """A note if not all was read."""
    n, what = len(samples.skipped), "files" if samples.kind == "images" else samples.what
    one = f"1 of the {what} was skipped: summary.json names it and says why"
    return [] if not n else [one if n == 1 else f"{n:,} {what} were skipped: summary.json names them and says why"]


def rounded_or_none(values: np.ndarray) -> list[float | None]:
    """With four digits; None for what is no number, as networks that diverged give it."""
    return [round(value, 4) if np.isfinite(value) else None for value in map(float, values)]


def shown_texts(
    samples: LabelledSamples, index: np.ndarray, most: int = LONGEST_SHOWN_TEXT
) -> dict[str, list[str]]:
    if (all_texts := samples.texts) is None:
        return {}
    longest = characters_each(len(index), 1, most)
    return {"text": [shortened_text(all_texts[i], longest) for i in index]}


def shown_cells(samples: LabelledSamples, index: np.ndarray, most: int = LONGEST_SHOWN_CELL) -> dict[str, list]:
    """Columns, and the row of each suspect, without what is shown elsewhere: its label, name and text."""
    if (rows := samples.rows) is None:
        return {}
    elsewhere = {samples.settings.get(part) for part in ("label", "text", "id")}
    columns = [name for name in rows.columns if name not in elsewhere][:MOST_SHOWN_COLUMNS]
    if not columns:
        return {}
    longest = characters_each(len(index), len(columns), most)
    return {
        "columns": [readable(name) for name in columns],
        "cells": [
            [shortened_text(cell_text(row[name]), longest) for name in columns] for row in (rows[i] for i in index)
        ],
    }


def characters_each(n: int, columns: int, longest: int) -> int:
    """Characters that each of so many may take."""
    return max(SHORTEST_SHOWN, min(longest, MOST_TEXT_CHARACTERS // max(1, n * columns)))


def shortened_text(text: str, longest: int) -> str:
    text = readable(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def cell_text(cell: Any) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, (np.ndarray, list)):
        return str(cell)
    some = ", ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in list(cell)[:MOST_SHOWN_NUMBERS])
    return f"[{some}]" if len(cell) <= MOST_SHOWN_NUMBERS else f"[{some}, … {len(cell):,} in all]"
