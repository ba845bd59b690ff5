"""Runs that belong into one panel, and what each is called there: its method, and whatever sets it apart."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from coteach.names import METHOD_LABELS
from coteach.report.read import Run
from coteach.runs.experiment import OWN, Experiment

# Settings that a name may have to tell, in this order, with words for values that do not speak for themselves.
SHOWN_SETTINGS = {
    "loss": "",
    "warmup_loss": "warm-up with ",
    "fidelity": "",
    "recipe": "",
    "network": "",
    "width": "width ",
    "tau": "τ ",
    "keep_type": "λ type ",
    "keep_per_class": "λ per class ",
    "warmup": "warm-up ",
    "ramp": "ramp ",
    "held_out": "held out ",
    "estimate_epochs": "Q̂ after epochs ",
    "joint_weight": "c = ",
    "epochs": "epochs ",
    "batch_size": "batches of ",
    "steps_per_epoch": "steps per epoch ",
    "optimizer": "",
    "lr": "learning rate ",
    "decay_start": "decay from epoch ",
    "one_cycle": "one cycle, rising for ",
    "momentum": "momentum ",
    "nesterov": "Nesterov ",
    "weight_decay": "weight decay ",
    "decoupled_decay": "decoupled decay ",
    "lookahead": "lookahead ",
    "mirror": "mirror ",
    "shift": "shift ",
    "cutout": "cutout ",
    "weak_selection": "weak selection ",
    "mixup": "mixup ",
    "label_smoothing": "label smoothing ",
    "strong_view": "strong view ",
    "mixture": "mixture ",
    "guess_weight": "guesses ",
    "guess_ramp": "guesses ramped over ",
    "temperature": "T = ",
    "memory_weight": "memory ",
    "memory_decay": "memory decay ",
    "class_balance": "class balance ",
    "confidence_penalty": "confidence penalty ",
    "noise_seed": "noise seed ",
    "noise_stream": "noise of NumPy ",
    "matrix": "matrix ",
    "labels": "labels of ",
    "precision": "",
    "deterministic": "deterministic ",
}
DEFAULTS = Experiment()


@dataclass(frozen=True, eq=False)
class Group:
    """Runs on one data set with one noise, by their names; a name means the same with every noise.

    `common` are the settings that all runs on the data set share and that are not usual, in words.
    """

    data: str
    noise: str
    runs: dict[str, Run]
    common: dict[str, str]

    @property
    def title(self) -> str:
        return f"{self.data}, {self.noise}"


def groups_of(runs: list[Run]) -> list[Group]:
    by_data: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        by_data.setdefault((run.experiment.dataset, sha256_of(run)), []).append(run)
    names = ["own data" if dataset == OWN else dataset for dataset, _ in by_data]
    names = distinct(names, [sha256 for _, sha256 in by_data], " ")
    return [group for name, some in zip(names, by_data.values(), strict=True) for group in groups_on(name, some)]


def groups_on(data: str, runs: list[Run]) -> Iterator[Group]:
    """A group for each noise on one data set."""
    first, *others = (unusual_settings(run.experiment) for run in runs)
    common = {name: text for name, text in first.items() if all(other.get(name) == text for other in others)}
    for noise in dict.fromkeys(map(noise_words, runs)):
        yield Group(data, noise, named_runs([run for run in runs if noise_words(run) == noise], common), common)


def sha256_of(run: Run) -> str:
    return str(run.config.get("data", {}).get("sha256", ""))[:8]


def noise_words(run: Run) -> str:
    kind, rate = run.experiment.noise, run.experiment.rate
    if run.summary is not None:
        kind, rate = run.summary["noise"], run.summary["rate"]
    if run.noise is not None:
        kind, rate = run.noise.kind, run.noise.nominal_rate
    if kind in (None, "none", "clean"):
        return "labels as they are"
    return f"{kind} {100 * rate:.4g} %" if isinstance(rate, float) else kind


def named_runs(runs: list[Run], common: dict[str, str]) -> dict[str, Run]:
    """By method and whatever is not common, in the order of the paper's tables; as usual before otherwise."""
    names = [
        ", ".join(
            [
                method_label(run),
                *(text for name, text in unusual_settings(run.experiment).items() if name not in common),
            ]
        )
        for run in runs
    ]
    names = distinct(names, [run.folder.name for run in runs])
    names = distinct(names, [str(i) for i in range(1, len(names) + 1)])
    return dict(sorted(zip(names, runs, strict=True), key=lambda pair: place_of(pair[1])))


def method_label(run: Run) -> str:
    return METHOD_LABELS.get(run.experiment.method, run.experiment.method)


def place_of(run: Run) -> tuple[int, int]:
    """The place of its method, and then how much is not usual."""
    methods, method = list(METHOD_LABELS), run.experiment.method
    order = methods.index(method) if method in METHOD_LABELS else len(methods)
    return order, len(unusual_settings(run.experiment))


def unusual_settings(experiment: Experiment) -> dict[str, str]:
    """The settings that are not usual, each in words."""
    found = {}
    for name, words in SHOWN_SETTINGS.items():
        value: Any = getattr(experiment, name)
        if value != getattr(DEFAULTS, name):
            found[name] = f"{words}{value}".removesuffix(" True")
    return found


def distinct(texts: list[str], otherwise: Iterable[str], between: str = ", ") -> list[str]:
    """Those that are there more than once, each with its word from `otherwise` after it."""
    return [
        f"{text}{between}{word}" if texts.count(text) > 1 and word else text
        for text, word in zip(texts, otherwise, strict=True)
    ]
