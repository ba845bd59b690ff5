"""What was measured beside what is known: results/summary.json, and a table of ours against the published."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import stdev
from typing import Any

from coteach.paper.measured import in_folder, write_json
from coteach.paper.presets import as_list, cells, preset_names

# What a cell may have beyond its method, data and noise: a number is of the plain cell unless it says otherwise.
UNUSUAL = (
    "loss", "warmup_loss", "tau", "keep_type", "warmup", "held_out", "estimate_epochs", "joint_weight",
    "steps_per_epoch", "decay_start", "width",
)  # fmt: skip
SINCE_THEN = ("last", "average_precision")  # null in files that were written before these were known
COMPARISON_HEADER = ("experiment", "method", "noise", "ours", "n", "known", "difference", "within", "source")


@dataclass(frozen=True)
class Target:
    """One known number: which cells it is compared with, what was measured, by whom and how."""

    where: dict[str, Any]
    mean: float
    max: float | None
    std: float | None
    source: str
    text: str
    protocol: str
    sure: str
    borrowed: bool = False
    bar: float | None = None  # how near the fidelity `bar_fidelity` has to come
    bar_fidelity: str | None = None
    not_measured: str | None = None  # why no cell corresponds
    beside: str = "mean"  # which of our numbers stands beside it
    other_learner: bool = False  # another network or recipe, so that being near says nothing

    def fits(self, cell: dict[str, Any]) -> bool:
        """Whether a cell, as in summary.json, is what this number was measured of, as far as that is known.

        A cell that was measured before a key came to be has what was usual.
        """
        if self.not_measured or any(cell.get(key) is not None for key in UNUSUAL if key not in self.where):
            return False
        return all(cell.get(key) == value for key, value in self.where.items())


@cache
def targets() -> tuple[Target, ...]:
    table = tomllib.loads(files("coteach.paper").joinpath("targets.toml").read_text("utf-8"))
    return tuple(t for row in table["row"] for t in targets_of(row, table["source"][row["source"]]))


def targets_of(row: dict[str, Any], source: dict[str, Any]) -> Iterator[Target]:
    """A number for each method and noise of a row."""
    place = {k: row[k] for k in ("experiment", "dataset", "fidelity", "network", *UNUSUAL) if k in row}
    for noise in as_list(row.get("noise", "")):
        kind, _, rate = noise.partition(" ")
        of_noise = {"noise": kind, "rate": float(rate)} if noise else {}
        for method, mean in row["mean"].items():
            yield Target(
                place | of_noise | {"method": method},
                mean,
                row.get("max", {}).get(method),
                row.get("std", {}).get(method),
                row["source"],
                source["text"],
                source["protocol"],
                source["sure"],
                row.get("borrowed", False),
                row.get("bar", {}).get(method),
                row.get("bar_fidelity"),
                row.get("not_measured"),
                source.get("beside", "mean"),
                source.get("other_learner", False),
            )


@dataclass(frozen=True)
class Comparison:
    """A measured cell beside one known number, or none."""

    cell: dict[str, Any]
    label: str
    column: str
    target: Target | None

    @property
    def beside(self) -> str:
        """Which of our numbers is shown; where nothing is known, the one that its neighbours show."""
        if self.target is not None:
            return self.target.beside
        return "last" if self.cell["noise"] == "human" else "mean"

    @property
    def ours(self) -> float | None:
        """That number; None in older files that do not have it."""
        return self.cell[self.beside]

    @property
    def spread(self) -> float | None:
        """Over seeds, of that number."""
        if self.beside == "mean":
            return self.cell["std"]
        known = [value for value in self.cell[f"{self.beside}_per_seed"] if value is not None]
        return stdev(known) if len(known) > 1 else None

    @property
    def difference(self) -> float | None:
        return None if self.target is None or self.ours is None else self.ours - self.target.mean

    @property
    def allowed(self) -> float | None:
        """The bar if there is one for this reading, else the larger spread over seeds, if any is known."""
        t = self.target
        if t is None or t.other_learner:
            return None
        if t.bar is not None and t.bar_fidelity == self.cell["fidelity"]:
            return t.bar
        return max((std for std in (self.spread, t.std) if std is not None), default=None)

    @property
    def within(self) -> bool | None:
        if self.difference is None or self.allowed is None:
            return None
        return abs(self.difference) <= self.allowed

    def texts(self) -> tuple[str, ...]:
        """As under `COMPARISON_HEADER`."""
        c, t = self.cell, self.target
        ours = "–" if self.ours is None else f"{self.ours:.2f}" + spread_words(self.spread)
        known, source, verdict = "–", "", ""
        if t is not None:
            known = f"{t.mean:.2f}" + spread_words(t.std)
            source = t.source + (", borrowed by the paper" if t.borrowed else "")
        if self.within is not None:
            verdict = f"{'yes' if self.within else 'no'} (± {self.allowed:.2f})"
        difference = "" if self.difference is None else f"{self.difference:+.2f}"
        n = str(len(c["seeds"]))
        return c["experiment"], self.label, self.column, ours, n, known, difference, verdict, source


def spread_words(std: float | None) -> str:
    return "" if std is None else f" ± {std:.2f}"


def measured_cells(folder: Path) -> list[dict[str, Any]]:
    """The measured cells in the order of the presets; what no preset has (any more) comes last."""
    place = {file: i for i, file in enumerate(hashes())}
    return sorted(in_folder(folder), key=lambda record: place.get(record["file"], len(place)))


def hashes() -> dict[str, str]:
    """The files that presets ask for, with the hash that makes them up to date."""
    wanted = (cell for preset in preset_names() for cell in cells(preset, then=True))
    return {f"{cell.preset}/{cell.name}.json": cell.hash for cell in wanted}


def summary(folder: Path) -> list[dict[str, Any]]:
    """An object for each measured cell, with the options of its data: two cells may differ in nothing else."""
    return [
        record["summary"]
        | {key: record["summary"].get(key) for key in SINCE_THEN}
        | {"data": record.get("config", {}).get("data", {}), "file": record["file"]}
        for record in measured_cells(folder)
    ]


def write_results_summary(folder: Path) -> Path:
    path = folder / "summary.json"
    write_json(path, summary(folder))
    return path


def comparison(folder: Path, experiment: str | None = None) -> list[Comparison]:
    """Every measured cell with each number that is known for it; one line without where none is.

    Only cells as the presets have them are compared: nobody published what comes out after two epochs.
    """
    return compared([r for r in measured_cells(folder) if experiment in (None, r["summary"]["experiment"])])


def compared(records: list[dict[str, Any]]) -> list[Comparison]:
    """As `comparison`, of these records alone."""
    found: list[Comparison] = []
    wanted = hashes()
    for record in records:
        as_published = wanted.get(record["file"]) == record["hash"]
        known = [t for t in targets() if as_published and t.fits(record["summary"])] or [None]
        found += [Comparison(record["summary"], record["row"], record["column"], target) for target in known]
    return found


def markdown(lines: list[Comparison]) -> str:
    """A table ready for the docs."""
    rows = [COMPARISON_HEADER, tuple("---" for _ in COMPARISON_HEADER), *(line.texts() for line in lines)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def sources(lines: list[Comparison]) -> list[str]:
    """Who measured the known numbers, and how."""
    used = {line.target.source: line.target for line in lines if line.target is not None}
    told = {"mean": "", "last": " Ours beside it: the ensemble after the last epoch."}
    return [f"{name}: {t.text}; {t.protocol}; {t.sure}.{told[t.beside]}" for name, t in used.items()]
