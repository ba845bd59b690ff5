"""What an audit leaves behind: suspects.csv, cleaned.csv, the model and how to load it, the review page,
summary.json.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

import coteach
from coteach.audit.decisions import audit_fingerprint
from coteach.audit.encoding import write_encoding
from coteach.audit.judge import Findings
from coteach.audit.review import review_page
from coteach.audit.samples import LabelledSamples
from coteach.engine.setup import chosen_device, hardware
from coteach.files import as_csv, write_atomically
from coteach.runs.folder import write_summary

MODEL = "model.safetensors"
PACKAGES = ("torch", "numpy", "scikit-learn", "safetensors", "pillow", "pyarrow")
MOST_PAIRS = 20


def write_findings(
    findings: Findings, folder: Path, seconds: dict[str, float], module: str | None = None
) -> dict[str, Any]:
    """All files; summary.json, which is returned, is the last.

    Parameters
    ----------
    seconds : dict
        How long each part of the work took.
    module : str, optional
        The network as the user named it.
    """
    summary = audit_summary(findings, seconds, module)
    suspects, cleaned = list(suspect_rows(findings)), list(cleaned_rows(findings))
    fingerprint = audit_fingerprint(suspects[1:], cleaned[1:])
    try:
        write_atomically(folder / "suspects.csv", as_csv(suspects))
        write_atomically(folder / "cleaned.csv", as_csv(cleaned))
        findings.classifier.save(folder / MODEL)
        write_encoding(folder, findings.samples.encoding)
        write_atomically(folder / "model.md", how_to_load(findings.samples, folder, module))
        write_atomically(folder / "review.html", review_page(findings, folder, fingerprint))
        write_summary(folder, summary)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"cannot write all files to {folder} ({error}): make room, and run it again.") from error
    return summary


def suspect_rows(findings: Findings) -> Iterable[list[Any]]:
    """The worst first, with each network's probability of both labels."""
    suspects, networks = findings.suspects, range(1, len(findings.given_NS) + 1)
    yield [
        "id",
        "given",
        "suggested",
        "quality",
        *(f"p_{what}_{n}" for what in ("given", "suggested") for n in networks),
    ]
    for s, i in enumerate(suspects.index):
        numbers = (suspects.quality[s], *findings.given_NS[:, s], *findings.suggested_NS[:, s])
        yield [findings.samples.ids[i], suspects.given[s], suspects.suggested[s], *(f"{x:.6f}" for x in numbers)]


def cleaned_rows(findings: Findings) -> Iterable[list[Any]]:
    """The samples that are left when all suspects are taken out, in the order in which they were read.

    A suspect does not get the suggested label: that is worth a look, but wrong more often than the trusted labels.
    """
    yield ["id", "label"]
    for i in np.flatnonzero(findings.trusted):
        yield [findings.samples.ids[i], findings.samples.y[i]]


def how_to_load(samples: LabelledSamples, folder: Path, module: str | None) -> str:
    """Lines that run as they stand, with the audited data as the example."""
    own = module is not None and ":" in module
    example = str(samples.source) if samples.paths is None else [str(path) for path in samples.paths[:2]]
    lines = [
        "from coteach import RobustClassifier",
        "from coteach.audit.encoding import features",
        *([f"from {module.replace(':', ' import ')} as module"] if module and own else []),
        "",
        f"classifier = RobustClassifier.load({str(folder / MODEL)!r}{', module=module' if own else ''})",
        f"x = features({str(folder)!r}, {example!r})  # as the audit read its own",
        "labels = classifier.predict(x)",
        "probabilities = classifier.predict_proba(x)  # columns in the order of classifier.classes_",
    ]
    return (
        "# The model\n\nTrained on all samples, the suspects weighed down as the method does it. "
        "It predicts new data of the same kind:\n\n```python\n" + "\n".join(lines) + "\n```\n"
    )


def audit_summary(findings: Findings, seconds: dict[str, float], module: str | None) -> dict[str, Any]:
    samples, classifier, suspects = findings.samples, findings.classifier, findings.suspects
    estimate = getattr(classifier, "noise_estimate_", None) if classifier.noise_rate == "auto" else None
    return {
        "source": str(samples.source),
        "kind": samples.kind,
        "samples": len(samples),
        "shape": list(samples.x.shape[1:]),
        "suspects": len(suspects),
        "left": int(findings.trusted.sum()),
        "noise_rate": classifier.noise_rate_,
        "noise_rate_estimated": estimate is not None,
        "noise_interval": None if estimate is None else list(map(float, estimate.interval)),
        "classes": class_rows(findings, None if estimate is None else estimate.per_class),
        "pairs": pair_rows(findings),
        "skipped": [{"where": s.where, "why": s.why} for s in samples.skipped],
        "notes": list(findings.notes),
        "settings": settings_used(findings, module),
        "versions": versions(),
        "hardware": hardware(chosen_device(classifier.device)),
        "threads": torch.get_num_threads(),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }


def class_rows(findings: Findings, rates: np.ndarray | None) -> list[dict[str, Any]]:
    """Of each given class: its samples, how many are suspects, and the estimated share of wrong labels."""
    given = findings.samples.y
    return [
        {
            "class": str(c),
            "samples": int((given == c).sum()),
            "suspects": int((findings.suspects.given == c).sum()),
            "noise_rate": None if rates is None else float(rates[k]),
        }
        for k, c in enumerate(findings.classifier.classes_)
    ]


def pair_rows(findings: Findings) -> list[dict[str, Any]]:
    """The commonest pairs of given and suggested label among the suspects."""
    suspects = findings.suspects
    counts = Counter(zip(map(str, suspects.given), map(str, suspects.suggested), strict=True))
    common = sorted(counts, key=lambda pair: (-counts[pair], pair))[:MOST_PAIRS]
    return [
        {"given": given, "suggested": suggested, "suspects": counts[given, suggested]}
        for given, suggested in common
    ]


def settings_used(findings: Findings, module: str | None) -> dict[str, Any]:
    """What the classifier was told, and what the samples were made with."""
    params = findings.classifier.get_params(deep=False) | {"module": module}
    return {
        "classifier": {name: json.loads(json.dumps(value, default=str)) for name, value in params.items()},
        "share": findings.share,
        **findings.samples.settings,
    }


def versions() -> dict[str, str]:
    found = {"coteach": coteach.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
