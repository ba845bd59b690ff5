"""Runs that belong into one panel, and what each is called there: its method, and whatever sets it apart."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coteach.paper.presets import LABELS
from coteach.report.run_files import Run
from coteach.runs.experiment import OWN, Experiment

# Settings that a name may have to tell, in this order, with words for values that do not speak for themselves.
TOLD = {
    "loss": "",
    "fidelity": "",
    "network": "",
    "tau": "τ ",
    "keep_type": "λ type ",
    "keep_per_class": "λ per class ",
    "warmup": "warm-up ",
    "ramp": "ramp ",
    "estimate_epochs": "Q̂ after epochs ",
    "epochs": "epochs ",
    "batch_size": "batches of ",
    "optimizer": "",
    "lr": "learning rate ",
    "noise_seed": "noise seed ",
    "matrix": "matrix ",
    "precision": "",
    "deterministic": "deterministic ",
}
USUAL = Experiment()


@dataclass(frozen=True, eq=False)
class Group:
    """Runs on one data set with one noise, by their names; and what they all have in common that is not usual."""

    title: str
    runs: dict[str, Run]
    common: str

    @property
    def file_name(self) -> str:
        words = "".join(c if c.isalnum() or c in ".%" else " " for c in self.title.replace(" %", "%")).split()
        return "-".join(words).replace("%", "")[:80] or "runs"


def groups_of(runs: list[Run]) -> list[Group]:
    by_key: dict[tuple, list[Run]] = {}
    for run in runs:
        by_key.setdefault(key_of(run), []).append(run)
    titles = distinct(
        [title_of(some[0]) for some in by_key.values()], [sha256_of(some[0]) for some in by_key.values()]
    )
    return [group_of(title, some) for title, some in zip(titles, by_key.values(), strict=True)]


def key_of(run: Run) -> tuple:
    return run.experiment.dataset, sha256_of(run), noise_words(run)


def sha256_of(run: Run) -> str:
    return str(run.config.get("data", {}).get("sha256", ""))[:8]


def title_of(run: Run) -> str:
    dataset = run.experiment.dataset
    return f"{'own data' if dataset == OWN else dataset}, {noise_words(run)}"


def noise_words(run: Run) -> str:
    kind, rate = run.experiment.noise, run.experiment.rate
    if run.summary is not None:
        kind, rate = run.summary["noise"], run.summary["rate"]
    if run.noise is not None:
        kind, rate = run.noise.kind, run.noise.nominal_rate
    if kind in (None, "none", "clean"):
        return "labels as they are"
    return f"{kind} {100 * rate:.4g} %" if isinstance(rate, float) else kind


def group_of(title: str, runs: list[Run]) -> Group:
    told = [told_of(run.experiment) for run in runs]
    common = {name: text for name, text in told[0].items() if all(other.get(name) == text for other in told)}
    names = [
        ", ".join([method_label(run), *(text for name, text in own.items() if name not in common)])
        for run, own in zip(runs, told, strict=True)
    ]
    names = distinct(names, [run.folder.name for run in runs])
    names = distinct(names, [str(i) for i in range(1, len(names) + 1)])
    in_order = sorted(zip(names, runs, strict=True), key=lambda pair: place_of(pair[1]))
    return Group(title, dict(in_order), ", ".join(common.values()))


def method_label(run: Run) -> str:
    return LABELS.get(run.experiment.method, run.experiment.method)


def place_of(run: Run) -> int:
    methods = list(LABELS)
    return methods.index(run.experiment.method) if run.experiment.method in LABELS else len(methods)


def told_of(experiment: Experiment) -> dict[str, str]:
    """The settings that are not usual, each in words."""
    found = {}
    for name, words in TOLD.items():
        value: Any = getattr(experiment, name)
        if value != getattr(USUAL, name):
            found[name] = f"{words}{value}".removesuffix(" True")
    return found


def distinct(texts: list[str], otherwise: Iterable[str]) -> list[str]:
    """Those that are there more than once, each with its word from `otherwise` after it."""
    return [
        f"{text}, {word}" if texts.count(text) > 1 and word else text
        for text, word in zip(texts, otherwise, strict=True)
    ]
