"""What an audit leaves behind: suspects.csv, cleaned.csv, quality.csv, the model and how to load it, pages to
decide on, summary.json.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

import coteach
from coteach.audit.check import QUALITY, check_fingerprint, check_rows
from coteach.audit.decisions import CHECK, CHECK_PAGE, audit_fingerprint
from coteach.audit.encoding import write_encoding
from coteach.audit.judge import Findings, likeliest_others, of_both_labels, probabilities_of
from coteach.audit.learners import learner_name
from coteach.audit.oddities import Oddities, find_oddities
from coteach.audit.review import review_page, shown_cells, shown_texts
from coteach.audit.samples import LabelledSamples
from coteach.encoders.named import is_code
from coteach.engine.setup import chosen_device, hardware
from coteach.files import as_csv, write_atomically
from coteach.labels.checked import draw_to_check
from coteach.labels.ledger import Suspects
from coteach.runs.folder import write_summary
from coteach.selective import SelectiveTrainingClassifier
from coteach.selective.files import save_selective

MODEL = "model.safetensors"
PACKAGES = ("torch", "numpy", "scikit-learn", "safetensors", "pillow", "pyarrow")
MOST_PAIRS = 20


def write_findings(
    findings: Findings, folder: Path, seconds: dict[str, float], module: str | None = None, check: int = 0
) -> dict[str, Any]:
    """All files; summary.json, which is returned, is the last.

    Parameters
    ----------
    seconds : dict
        How long each part of the work took.
    module : str, optional
        The network as the user named it.
    check : int
        Samples of all qualities to put on a page of their own.
    """
    odd = find_oddities(findings.samples)
    summary = audit_summary(findings, seconds, module) | {"odd": odd.counts(findings.samples)}
    suspects, cleaned = list(suspect_rows(findings)), list(cleaned_rows(findings))
    quality = list(quality_rows(findings, odd))
    fingerprint = audit_fingerprint(suspects[1:], cleaned[1:])
    try:
        write_atomically(folder / "suspects.csv", as_csv(suspects))
        write_atomically(folder / "cleaned.csv", as_csv(cleaned))
        write_atomically(folder / QUALITY, as_csv(quality))
        if check:
            write_check(findings, folder, check, quality)
        write_model(findings, folder, module)
        write_atomically(folder / "review.html", review_page(findings, folder, fingerprint))
        write_summary(folder, summary)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"cannot write all files to {folder} ({error}): make room, and run it again.") from error
    return summary


def write_model(findings: Findings, folder: Path, module: str | None) -> None:
    """With how to load it."""
    classifier = findings.classifier
    in_rounds = isinstance(classifier, SelectiveTrainingClassifier)
    if in_rounds:
        save_selective(classifier, folder / MODEL)
    else:
        classifier.save(folder / MODEL)
    write_encoding(folder, findings.samples.encoding)
    write_atomically(folder / "model.md", how_to_load(findings.samples, folder, module, in_rounds))


def suspect_rows(findings: Findings) -> Iterable[list[Any]]:
    """The worst first, with each network's probability of both labels."""
    suspects, networks = findings.suspects, range(1, len(findings.given_NS) + 1)
    yield [
        "id",
        "given",
        "suggested",
        "quality",
        *(f"p_{what}_{n}" for what in ("given", "suggested") for n in networks),
        "reason",
        *shown_columns(findings.samples),
    ]
    for s, i in enumerate(suspects.index):
        numbers = (suspects.quality[s], *findings.given_NS[:, s], *findings.suggested_NS[:, s])
        yield [
            findings.samples.ids[i],
            suspects.given[s],
            suspects.suggested[s],
            *(f"{x:.6f}" for x in numbers),
            findings.reasons[s] if findings.reasons else "",
            *shown_columns(findings.samples, i).values(),
        ]


def shown_columns(samples: LabelledSamples, i: int | None = None) -> dict[str, str]:
    """The text and the row of a sample, as the review page shows them, by the names of columns."""
    index = np.array([] if i is None else [i], dtype=np.int64)
    texts, cells = shown_texts(samples, index), shown_cells(samples, index)
    found = {"text": "".join(texts["text"])} if texts else {}
    names = [f"row_{name}" for name in cells.get("columns", [])]
    return found | dict(zip(names, cells["cells"][0] if cells.get("cells") else names, strict=True))


def write_check(findings: Findings, folder: Path, n: int, quality: list[list[Any]]) -> None:
    """A page with samples of all qualities, and what is to be known of them later."""
    classifier = findings.classifier
    everyone = classifier.suspects(1.0)
    drawn = draw_to_check(classifier.label_quality_, n, classifier.noise_rate_, classifier.random_state or 0)
    place = np.argsort(everyone.index)[drawn.index]
    listed = Suspects(drawn.index, everyone.given[place], everyone.suggested[place], everyone.quality[place])
    rows = list(check_rows(drawn, findings.samples.ids, listed.given, listed.suggested))
    p_NSC = probabilities_of(classifier, findings.samples, listed)
    p_given, p_suggested = of_both_labels(p_NSC, classifier.classes_, listed)
    likely, likely_p = likeliest_others(p_NSC, classifier.classes_, listed)
    opinions = {"given_NS": p_given, "suggested_NS": p_suggested, "likely_SK": likely, "likely_p_SK": likely_p}
    shown = replace(findings, suspects=listed, reasons=[], **opinions)
    fingerprint = check_fingerprint(rows[1:], quality[1:])
    write_atomically(folder / CHECK, as_csv(rows))
    page = review_page(shown, folder, fingerprint, drawn, findings.trusted)
    write_atomically(folder / CHECK_PAGE, page)


def quality_rows(findings: Findings, odd: Oddities) -> Iterable[list[Any]]:
    """Every sample in the order in which it was read, and whatever is odd about it."""
    samples, everyone = findings.samples, findings.classifier.suspects(1.0)
    place_M = np.argsort(everyone.index)
    yield ["id", "given", "suggested", "quality", "suspect", "remark"]
    for i, trusted in enumerate(findings.trusted):
        k = place_M[i]
        remark = "; ".join(odd.remarks(i, samples))
        quality = f"{everyone.quality[k]:.6f}"
        yield [samples.ids[i], samples.y[i], everyone.suggested[k], quality, int(not trusted), remark]


def cleaned_rows(findings: Findings) -> Iterable[list[Any]]:
    """The samples that are left when all suspects are taken out, in the order in which they were read.

    A suspect does not get the suggested label: that is worth a look, but wrong more often than the trusted labels.
    """
    yield ["id", "label"]
    for i in np.flatnonzero(findings.trusted):
        yield [findings.samples.ids[i], findings.samples.y[i]]


def how_to_load(samples: LabelledSamples, folder: Path, module: str | None, in_rounds: bool = False) -> str:
    """Lines that run as they stand, with the audited data as the example."""
    own = module is not None and ":" in module
    encoder = samples.settings.get("encoder", "none")
    code = ":" in encoder and is_code(encoder)
    own_encoder = ", encoder=encoder" if code else ""
    embeddings = samples.settings.get("embeddings")
    images = None if embeddings or samples.paths is None else [str(path) for path in samples.paths[:2]]
    example = images or embeddings or str(samples.source)
    own_module = ", module=module" if own else ""
    where = str(folder / MODEL)
    lines = [
        f"from coteach{'.selective.files import load_selective' if in_rounds else ' import RobustClassifier'}",
        "from coteach.audit.encoding import features",
        *([f"from {module.replace(':', ' import ')} as module"] if module and own else []),
        *([f"from {encoder.replace(':', ' import ')} as encoder"] if code else []),
        "",
        f"classifier = {'load_selective' if in_rounds else 'RobustClassifier.load'}({where!r}{own_module})",
        f"x = features({str(folder)!r}, {example!r}{own_encoder})  # as the audit read its own",
        "labels = classifier.predict(x)",
        "probabilities = classifier.predict_proba(x)  # columns in the order of classifier.classes_",
    ]
    return (
        "# The model\n\nTrained on all samples, the suspects weighed down as the method does it. "
        "It predicts new data of the same kind:\n\n```python\n" + "\n".join(lines) + "\n```\n"
    )


def audit_summary(findings: Findings, seconds: dict[str, float], module: str | None) -> dict[str, Any]:
    samples, classifier, suspects = findings.samples, findings.classifier, findings.suspects
    estimate = findings.noise_estimate
    return {
        "source": str(samples.source),
        "kind": samples.kind,
        "learner": learner_name(classifier),
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
        "hardware": hardware(chosen_device(getattr(classifier, "device", "cpu"))),
        "threads": torch.get_num_threads(),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
    }


def class_rows(findings: Findings, rates: np.ndarray | None) -> list[dict[str, Any]]:
    """For each given class: its samples, how many are suspects, and the estimated share of wrong labels."""
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
    """The settings of the classifier, and those that made the samples."""
    params = findings.classifier.get_params(deep=False) | {"module": module}
    return {
        "classifier": {name: json.loads(json.dumps(value, default=str)) for name, value in params.items()},
        "network": {"name": getattr(findings.classifier, "network_", None)}
        | getattr(findings.classifier, "network_options_", {}),
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
