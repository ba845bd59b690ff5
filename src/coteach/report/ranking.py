"""How the runs of a group stand to each other: the best, the gain over Standard, and what was set otherwise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from coteach.names import METHOD_FACTS
from coteach.report.groups import Group, method_label
from coteach.report.read import Run
from coteach.report.tables import RunResult, result_of, setting_text, two_digits

REFERENCE = "standard"
# In other words elsewhere on the page, or of no consequence.
NOT_COMPARED = {"dataset", "method", "noise", "rate", "labels", "matrix"}
NOT_COMPARED |= {"device", "stack", "compile", "group", "ledger"}


@dataclass(frozen=True)
class Ranking:
    """What each finished run of a group came to; the best, and the Standard that each is beside."""

    results: dict[str, RunResult]
    best: str | None  # none where there is nothing to choose
    references: dict[str, str]

    def gain(self, label: str) -> float | None:
        """Points over Standard; None for Standard itself, or where there is none."""
        reference = self.references.get(label)
        return None if reference is None else self.results[label].mean - self.results[reference].mean

    def gain_in_words(self, label: str) -> str:
        gain = self.gain(label)
        return "–" if gain is None else f"{gain:+.2f}".replace("-", "−")


def ranking(group: Group) -> Ranking:
    results = {label: result_of(run) for label, run in group.runs.items() if run.summary is not None}
    known = {label: result for label, result in results.items() if result is not None}
    fair = {label: known[label].mean for label in known if not told_the_truth(group.runs[label])}
    best = max(fair, key=fair.__getitem__) if len(fair) > 1 else None
    standards = {rest_of(label, group.runs[label]): label for label in known if is_reference(group.runs[label])}
    pairs = {label: reference_of(label, group.runs[label], standards) for label in known}
    return Ranking(known, best, {label: other for label, other in pairs.items() if other is not None})


def told_the_truth(run: Run) -> bool:
    """Whether a method knows what nobody knows of their own labels, so that it is out of the contest."""
    facts = METHOD_FACTS.get(run.experiment.method)
    return facts is not None and facts.told_the_truth


def is_reference(run: Run) -> bool:
    return run.experiment.method == REFERENCE


def rest_of(label: str, run: Run) -> str:
    """What a label says beside the method."""
    return label.removeprefix(method_label(run))


def reference_of(label: str, run: Run, standards: dict[str, str]) -> str | None:
    """The Standard with the same settings; or the usual one, or the only one."""
    if is_reference(run):
        return None
    only = next(iter(standards.values())) if len(standards) == 1 else None
    return standards.get(rest_of(label, run)) or standards.get("") or only


class ResultRow(NamedTuple):
    """A row of the table on the page; `state` says how far an unfinished run is."""

    number: int  # in its group
    id: str
    label: str
    best: bool
    mean: str
    state: str
    gain: str
    highest: str
    ensemble: str
    label_precision: str
    seeds: str
    epochs: str
    folder: str


def result_rows(group: Group, ids: dict[Run, str]) -> list[ResultRow]:
    ranked = ranking(group)
    return [
        result_row(number, label, run, ids[run], ranked) for number, (label, run) in enumerate(group.runs.items())
    ]


def result_row(number: int, label: str, run: Run, id_: str, ranked: Ranking) -> ResultRow:
    r, s, folder = result_of(run), run.summary, run.folder.as_posix()
    if r is None:
        none = "unfinished: no epoch yet", "–", "–", "–", "–", "–", "–"
        return ResultRow(number, id_, label, False, "", *none, folder)
    both = s is not None and len(run.rows[0]["test_accuracy"]) > 1
    return ResultRow(
        number,
        id_,
        label,
        label == ranked.best,
        r.mean_in_words,
        "" if s is not None else "unfinished",
        ranked.gain_in_words(label),
        two_digits(r.max),
        two_digits(s["ensemble"] if s is not None and both else None),
        two_digits(r.label_precision),
        str(r.n),
        str(r.epochs) if s is not None else f"{r.epochs} of {run.epochs or '?'}",
        folder,
    )


# ---- at a glance ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Card:
    """A group in the overview. `beside` has more numbers, by what they are."""

    group: Group
    what: str
    number: str
    label: str
    beside: dict[str, str]


def card(group: Group) -> Card | None:
    """The best, or the run there is; nothing before the first epoch of any."""
    ranked = ranking(group)
    label = ranked.best or next((label for label, run in group.runs.items() if result_of(run)), None)
    result = None if label is None else result_of(group.runs[label])
    if label is None or result is None:
        return None
    beside = {}
    reference = ranked.references.get(label)
    if reference is not None:
        beside["over Standard"] = f"{ranked.gain_in_words(label)} points"
        beside["Standard"] = f"{ranked.results[reference].mean:.1f} %"
    if result.label_precision is not None:
        beside["label precision"] = f"{result.label_precision:.1f} %"
    if result.std is not None:
        beside["spread over seeds"] = f"± {result.std:.1f}"
    beside["seeds"] = str(result.n)
    rivals = [label for label in ranked.results if not told_the_truth(group.runs[label])]
    what = f"best of {len(rivals)}" if ranked.best else "test accuracy"
    return Card(group, what, f"{result.mean:.1f} %", label, beside)


# ---- what differs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Differences:
    """The settings that are not the same in all runs on a data set: a row of values for each label."""

    data: str
    names: list[str]
    rows: list[list[str]]  # the label, and the values


def differences(groups: list[Group]) -> Iterator[Differences]:
    """For each data set on which more differs than methods and noises."""
    for data in dict.fromkeys(group.data for group in groups):
        settings: dict[str, list[dict[str, str]]] = {}
        for group in groups:
            for label, run in group.runs.items() if group.data == data else ():
                settings.setdefault(label, []).append(settings_that_count(run))
        every = [one for same in settings.values() for one in same]
        names = [name for name in dict.fromkeys(name for one in every for name in one) if differs(name, every)]
        if names:
            yield Differences(data, names, [[label, *values(names, same)] for label, same in settings.items()])


def settings_that_count(run: Run) -> dict[str, str]:
    """What was asked for and what followed, and where it ran."""
    tables = {**run.config["experiment"], **run.config.get("plan", {})}
    found = {name: setting_text(value) for name, value in tables.items() if name not in NOT_COMPARED}
    found |= {name: setting_text(value) for name, value in run.config.get("versions", {}).items()}
    return found | {"trained on": str(run.config["hardware"].get("name", ""))}


def differs(name: str, every: list[dict[str, str]]) -> bool:
    return len({one.get(name, "–") for one in every}) > 1


def values(names: list[str], same: list[dict[str, str]]) -> list[str]:
    """What the runs of a label have; they are several where there are several noises."""
    return [" / ".join(dict.fromkeys(one.get(name, "–") for one in same)) for name in names]
