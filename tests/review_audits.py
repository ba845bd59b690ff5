"""Audits that were never trained, to look at and decide about: what the review page and its decisions need."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

from coteach.audit.decisions import audit_fingerprint
from coteach.audit.judge import Findings, likeliest_others
from coteach.audit.review import review_page
from coteach.audit.samples import LabelledSamples, TableRows
from coteach.audit.write import cleaned_rows, suspect_rows
from coteach.files import as_csv
from coteach.labels.ledger import Suspects


def made_up(classes: list[str], n: int, suspects: int, networks: int = 2, **samples: Any) -> Findings:
    """Every third sample is a suspect until there are enough; the suggestion is the next class."""
    classes_C = np.array(sorted(classes))
    c = len(classes_C)
    y = classes_C[np.arange(n) % c]
    index = np.argsort(np.arange(n) % 3, kind="stable")[:suspects]
    facts: dict[str, Any] = {"ids": [f"id {i}" for i in range(n)], "kind": "arrays"} | samples
    facts = {"source": Path("given.csv"), "x": np.zeros((n, 2)), "y": y, "encoding": {"kind": "arrays"}} | facts
    suggested = classes_C[(index + 1 + index // c % max(1, c - 1)) % c]
    p = np.random.default_rng(0).uniform(size=(2, networks, suspects))
    quality = np.ones(n)
    quality[index] = np.linspace(0, 1, suspects)
    fitted = SimpleNamespace(classes_=classes_C, label_quality_=quality, noise_rate="auto", noise_rate_=0.1)
    fitted.noise_estimate_ = SimpleNamespace(interval=(0.05, 0.2))
    listed = Suspects(index, y[index], suggested, quality[index])
    reasons = [f"both networks say {name}" for name in suggested]
    p_NSC = np.random.default_rng(1).dirichlet(np.ones(c), size=(networks, suspects))
    likely = likeliest_others(p_NSC, classes_C, listed)
    notes = ("a note",)
    return Findings(
        LabelledSamples(**facts), fitted, listed, p[0] / 2, p[1] / 2, notes, 1.0, 0.1, reasons, *likely
    )


def with_rows(classes: list[str], n: int, suspects: int, text: str, cell: str) -> Findings:
    columns = {"label": ["?"] * n, "body": [text] * n, "age": list(range(n)), cell[:40]: [cell] * n}
    rows = TableRows(columns, list(range(n)))
    return made_up(
        classes,
        n,
        suspects,
        kind="table",
        texts=[f"{text} {i}" for i in range(n)],
        rows=rows,
        settings={"label": "label", "text": "body"},
    )


def with_pictures(folder: Path, classes: list[str], n: int, suspects: int, side: int = 40) -> Findings:
    """Each picture is of one colour: the number of its sample."""
    paths = [folder / f"{i}.png" for i in range(n)]
    folder.mkdir(parents=True, exist_ok=True)
    for i, path in enumerate(paths):
        Image.new("RGB", (side, side // 2), (i % 256, i // 256 % 256, 128)).save(path)
    return made_up(classes, n, suspects, kind="images", paths=paths, ids=[path.name for path in paths])


def write_audit(findings: Findings, folder: Path) -> Path:
    """suspects.csv, cleaned.csv and the review page, whose path is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    suspects, cleaned = list(suspect_rows(findings)), list(cleaned_rows(findings))
    (folder / "suspects.csv").write_text(as_csv(suspects), encoding="utf-8", newline="")
    (folder / "cleaned.csv").write_text(as_csv(cleaned), encoding="utf-8", newline="")
    page = folder / "review.html"
    fingerprint = audit_fingerprint(suspects[1:], cleaned[1:])
    page.write_text(review_page(findings, folder, fingerprint), encoding="utf-8", newline="")
    return page
