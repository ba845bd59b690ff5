"""The review page of an audit: one HTML file with the suspects in it, that works offline and asks nobody.

What users wrote (labels, ids, texts) goes in as JSON alone; the page shows it as text. N networks, S suspects.
"""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from coteach.audit.images import thumbnails
from coteach.audit.judge import Findings
from coteach.audit.request import Audit
from coteach.audit.samples import Samples, readable
from coteach.pages import render

MOST = 20_000  # suspects on the page
BLOCK = 200  # pictures that the page reads together
MOST_CHARACTERS = 40_000_000  # of all texts and cells together
LONGEST_TEXT, LONGEST_CELL = 4_000, 300
SHORTEST = 40  # characters of a cell that there is always room for
MOST_COLUMNS = 60
MOST_NUMBERS = 6  # of a vector


def review_page(findings: Findings, audit: Audit, folder: Path, mark: str) -> str:
    """The whole page; `mark` is the audit's fingerprint, which its decisions carry."""
    facts = page_facts(findings, audit, folder, mark)
    pictures = thumbnails(findings.samples, findings.suspects.index[:MOST])
    facts["pictures"] = BLOCK if pictures is not None else 0
    blocks = [(pictures or [])[begin : begin + BLOCK] for begin in range(0, len(pictures or []), BLOCK)]
    return render(
        "audit",
        "review",
        ("review_state.js", "review.js"),
        title="Suspect labels",
        audit=json_in_html(facts),
        picture_blocks=map(json_in_html, blocks),
    )


def json_in_html(facts: Any) -> Markup:
    """JSON that cannot end the element it stands in."""
    return htmlsafe_json_dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def page_facts(findings: Findings, audit: Audit, folder: Path, mark: str) -> dict[str, Any]:
    """Everything that is shown, column by column; labels by the number of their class."""
    samples, suspects = findings.samples, findings.suspects
    classes = findings.classifier.classes_
    index = suspects.index[:MOST]
    return {
        "fingerprint": mark,
        "source": readable(audit.source.name or str(audit.source)),
        "about": about(findings),
        "folder": readable(shlex.quote(str(folder))),
        "notes": [readable(note) for note in (*findings.notes, *skipped(samples))],
        "classes": [readable(str(c)) for c in classes],
        "id": [samples.ids[i] for i in index],
        "given": np.searchsorted(classes, suspects.given[:MOST]).tolist(),
        "suggested": np.searchsorted(classes, suspects.suggested[:MOST]).tolist(),
        "quality": rounded(np.nan_to_num(suspects.quality[:MOST])),
        "p_given": [rounded(p_S[:MOST]) for p_S in findings.given_NS],
        "p_suggested": [rounded(p_S[:MOST]) for p_S in findings.suggested_NS],
        **texts(findings, index),
        **cells(findings, audit, index),
    }


def about(findings: Findings) -> str:
    n, listed = len(findings.suspects), min(len(findings.suspects), MOST)
    words = f"{n:,} suspects among {len(findings.samples):,} {findings.samples.what}"
    return words if n == listed else f"The worst {listed:,} of {words}; the others are in suspects.csv"


def skipped(samples: Samples) -> list[str]:
    """A note if not all was read."""
    n, what = len(samples.skipped), "files" if samples.what == "images" else samples.what
    one = f"1 of the {what} was skipped: summary.json names it and says why"
    return [] if not n else [one if n == 1 else f"{n:,} {what} were skipped: summary.json names them and says why"]


def rounded(values: np.ndarray) -> list[float | None]:
    """With four digits; None for what is no number, as networks that diverged give it."""
    return [round(value, 4) if np.isfinite(value) else None for value in map(float, values)]


def texts(findings: Findings, index: np.ndarray) -> dict[str, list[str]]:
    if (all_texts := findings.samples.texts) is None:
        return {}
    longest = share(len(index), 1, LONGEST_TEXT)
    return {"text": [shortened(all_texts[i], longest) for i in index]}


def cells(findings: Findings, audit: Audit, index: np.ndarray) -> dict[str, list]:
    """Columns, and the row of each suspect, without what is shown elsewhere: its label, name and text."""
    if (rows := findings.samples.rows) is None:
        return {}
    columns = [name for name in rows.columns if name not in (audit.label, audit.text, audit.id)][:MOST_COLUMNS]
    if not columns:
        return {}
    longest = share(len(index), len(columns), LONGEST_CELL)
    return {
        "columns": [readable(name) for name in columns],
        "cells": [
            [shortened(written(row[name]), longest) for name in columns] for row in (rows[i] for i in index)
        ],
    }


def share(n: int, columns: int, longest: int) -> int:
    """Characters that each of so many may take."""
    return max(SHORTEST, min(longest, MOST_CHARACTERS // max(1, n * columns)))


def shortened(text: str, longest: int) -> str:
    text = readable(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def written(cell: Any) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, (np.ndarray, list)):
        return str(cell)
    some = ", ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in list(cell)[:MOST_NUMBERS])
    return f"[{some}]" if len(cell) <= MOST_NUMBERS else f"[{some}, … {len(cell):,} in all]"
