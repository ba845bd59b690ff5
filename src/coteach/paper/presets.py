"""From presets.toml to cells: one experiment each, with its seeds and its place in a table. No torch."""

import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, Literal

from coteach import names
from coteach.runs.experiment import Experiment

# Keys of a preset that are no fields of an experiment.
NOT_SETTINGS = {"title", "show", "data", "first", "then", "cells"}
NUMERIC_SETTINGS = (
    "keep_type", "warmup", "held_out", "estimate_epochs", "joint_weight", "steps_per_epoch", "decay_start",
    "epochs", "tau",
)  # fmt: skip
# What is learnt besides labels, and how samples are shown: in names, rows and addresses where it is said.
BESIDES = (
    "mixture", "strong_view", "guess_weight", "guess_ramp", "temperature", "memory_weight", "memory_decay",
    "class_balance", "confidence_penalty", "mixup", "cutout",
)  # fmt: skip
USUAL_WIDTH = 1  # told in the presets though it is usual, for a CPU would take less


@dataclass(frozen=True)
class Cell:
    """One number of a table: an experiment that says nothing of seeds, and how many seeds it gets."""

    preset: str
    experiment: Experiment
    seeds: tuple[int, ...]
    title: str
    row: str
    column: str
    show: str = "test_accuracy"
    data: dict[str, Any] = field(default_factory=dict)  # options of the data set's reader

    @property
    def name(self) -> str:
        """The name of its file, from what sets it apart."""
        e = self.experiment
        parts = [e.dataset] if len(datasets(self.preset)) > 1 else []
        parts += [e.method, e.loss_words.replace(" ", "-"), e.fidelity, e.network]
        numbers = {"width": unusual_width(e)} | given(e, *NUMERIC_SETTINGS)
        parts += [f"{key}-{value:g}" for key, value in numbers.items() if value is not None]
        parts += [f"{key.replace('_', '-')}-{plainly(value)}" for key, value in given(e, *BESIDES).items()]
        parts += [e.noise, *(f"{rate:g}" for rate in given(e, "rate").values())]
        return "-".join(part for part in parts if part)

    @property
    def address(self) -> dict[str, Any]:
        """What a known number can be looked up by; None is what the data set or the method usually has."""
        e = self.experiment
        return {
            "experiment": self.preset,
            "dataset": e.dataset,
            "network": e.network_name,
            "method": e.method,
            "loss": e.loss,
            "warmup_loss": e.warmup_loss,
            "fidelity": str(e.parsed_fidelity),
            "noise": e.noise_name,
            "rate": e.noise_share,
            "noise_seed": e.noise_seed,
            "tau": e.tau,
            "keep_type": e.keep_type,
            "warmup": e.warmup,
            "held_out": e.held_out,
            "estimate_epochs": e.estimate_epochs,
            "joint_weight": e.joint_weight,
            "steps_per_epoch": e.steps_per_epoch,
            "decay_start": e.decay_start,
            "width": unusual_width(e),
            "epochs": e.plan().epochs,
        } | given(e, *BESIDES)

    @property
    def config(self) -> dict[str, Any]:
        """All that decides the result, save seeds, versions, hardware, and the NumPy that draws the labels.

        (Labels have a sha256 of their own in each file, and runs on others are not added to it.)

        What is off (None, False, 0, nothing) is left out: an option that is added to the library later, and is off
        in this cell, leaves its hash as it is.
        """
        e = self.experiment
        config = self.address | {
            "data": e.usual.data | self.data,
            "tau": e.noise_share if e.tau is None else e.tau,
            "precision": e.precision,
            "width": e.width,
        }
        plan = asdict(e.plan()) | {"fidelity": str(e.parsed_fidelity)}
        del config["experiment"]  # the same may be measured for several presets
        return {key: value for key, value in (config | plan).items() if value}

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()


@cache
def preset_tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("coteach.paper").joinpath("presets.toml").read_text("utf-8"))


def preset_names() -> list[str]:
    return list(preset_tables())


def datasets(preset: str) -> set[str]:
    """The data sets of a preset; a file's name tells them apart where there are several."""
    table = preset_tables().get(preset, {})
    named = (as_list(grid.get("dataset", table.get("dataset"))) for grid in table.get("cells", []))
    return {name for some in named for name in some}


def cells(preset: str, *, then: bool = False) -> list[Cell]:
    """The cells of a preset, the most telling first, with the seeds to begin with or, `then`, all of them."""
    names.check_name("figure or table", preset, preset_tables())
    table = preset_tables()[preset]
    found = [cell for grid in table["cells"] for cell in expanded(preset, table | grid, then)]
    for cell in found:
        cell.experiment.check()
    return found


def asked_for(
    preset: str,
    seeds: tuple[int, ...] | None = None,
    epochs: int | None = None,
    device: str = "auto",
    *,
    compile_steps: Literal["auto", "yes", "no"] = "auto",
    then: bool = False,
    only: str | None = None,
) -> list[Cell]:
    """The cells of a preset, or those with `only` in their names; a user's seeds and epochs instead of its own.

    Cells that so few epochs cannot hold are left out.
    """
    wanted = []
    for cell in cells_named(preset, then, only):
        if epochs is None or epochs >= least_epochs(cell.experiment):
            mine = replace(with_epochs(cell.experiment, epochs), device=device, compile=compile_steps)
            row = cell.row if epochs is None else row_label(replace(mine, epochs=None))
            mine_seeds = cell.seeds if seeds is None else tuple(seeds)
            wanted.append(replace(cell, experiment=mine, seeds=mine_seeds, row=row))
    return wanted


def cells_named(preset: str, then: bool, only: str | None) -> list[Cell]:
    """The cells that have `only` in their names, if that is given."""
    found = [cell for cell in cells(preset, then=then) if only is None or only in cell.name]
    if only is not None and not found:
        such = ", ".join(cell.name for cell in cells(preset, then=then)[:3])
        later = any(only in cell.name for cell in cells(preset, then=True))
        way = "give --all, too, for there are later ones that do" if later else f"names are such as {such}"
        raise ValueError(f"no cell of {preset} has {only!r} in its name: {way}.")
    return found


def refuse_too_few(preset: str, epochs: int | None, *, then: bool = False, only: str | None = None) -> None:
    """Raise a ValueError that names a cell whose warm-up would take all of a user's epochs."""
    if epochs is None:
        return
    for cell in cells_named(preset, then, only):
        least = least_epochs(cell.experiment)
        if epochs < least:
            raise ValueError(
                f"--epochs {epochs} is too few for the warm-up of {preset}'s cell {cell.name}: "
                f"give --epochs {least} or more, or other --cells."
            )


def least_epochs(experiment: Experiment) -> int:
    """One more than a warm-up that sets its cell apart; others shrink with the epochs."""
    if experiment.warmup:
        return experiment.warmup + 1
    return 2 if experiment.warmup_loss else 0


def with_epochs(experiment: Experiment, epochs: int | None) -> Experiment:
    """With other epochs, if any are given, and an estimate from no more than these."""
    if epochs is None:
        return experiment
    estimate = experiment.estimate_epochs
    return replace(experiment, epochs=epochs, estimate_epochs=estimate and min(estimate, epochs))


def expanded(preset: str, grid: dict[str, Any], then: bool) -> Iterator[Cell]:
    """Lists multiplied; the noise changes fastest, since cells that differ in noise alone are trained together."""
    first = grid.get("first", 1)
    n_seeds = max(grid.get("then", grid.get("first") or 1), first) if then else first
    axes = {key: as_list(value) for key, value in grid.items() if key not in NOT_SETTINGS}
    axes = {key: axes[key] for key in sorted(axes, key=lambda key: key in ("noise", "tau_off"))}
    for values in product(*axes.values()) if n_seeds else ():
        experiment = experiment_from(dict(zip(axes, values, strict=True)))
        yield Cell(
            preset,
            experiment,
            tuple(range(1, n_seeds + 1)),
            grid["title"],
            row_label(experiment),
            column_label(experiment, several=len(datasets(preset)) > 1),
            grid.get("show", "test_accuracy"),
            grid.get("data", {}),
        )


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def experiment_from(values: dict[str, Any]) -> Experiment:
    if unknown := values.keys() - {f.name for f in fields(Experiment)} - {"tau_off"}:
        raise ValueError(f"presets.toml has keys that no experiment has: {', '.join(sorted(unknown))}.")
    values = {key: value for key, value in values.items() if value != ""}
    offset = values.pop("tau_off", None)
    if "noise" in values:
        kind, rate = values["noise"].split()
        values |= {"noise": kind, "rate": float(rate)}
    experiment = Experiment(**values)
    if offset is not None:
        experiment = replace(experiment, tau=round(values["rate"] + offset, 4))
    return experiment


def given(e: Experiment, *keys: str) -> dict[str, Any]:
    return {key: value for key in keys if (value := getattr(e, key)) is not None}


def plainly(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def unusual_width(e: Experiment) -> float | None:
    return None if e.width == USUAL_WIDTH else e.width


def row_label(e: Experiment) -> str:
    """The method, and whatever of it is not usual."""
    fidelity = e.fidelity if e.fidelity != "authors" or names.METHOD_FACTS[e.method].authors_differ else None
    if e.is_modern and fidelity == "paper":  # nothing but the rule is the paper's there
        fidelity = None
    details = [fidelity, e.loss_words]
    details += [f"{key} {value}" for key, value in given(e, "network", "keep_type", "warmup").items()]
    if e.joint_weight is not None:
        details.append(f"c = {e.joint_weight:g}")
    if e.steps_per_epoch is not None:
        details.append(f"{e.steps_per_epoch} steps")
    if e.decay_start is not None:
        details.append(f"decay from epoch {e.decay_start}")
    if e.held_out is not None and e.estimate_epochs is None:  # where the estimate ends early, no epoch is chosen
        details.append(f"{e.held_out:.0%} held out" if e.held_out else "last epoch")
    if e.estimate_epochs is not None:
        details.append(f"Q̂ after {e.estimate_epochs} epochs")
    details += [f"{key.replace('_', ' ')} {plainly(value)}" for key, value in given(e, *BESIDES).items()]
    if e.tau is not None and e.rate is not None:
        details.append(f"τ {e.tau - e.rate:+.2g}")
    if (width := unusual_width(e)) is not None:
        details.append(f"width {width:g}")
    if e.epochs is not None:
        details.append(f"{e.epochs} epochs")
    return ", ".join([names.METHOD_LABELS[e.method], *(detail for detail in details if detail)])


def column_label(e: Experiment, several: bool = False) -> str:
    parts = [e.dataset] if several or e.noise is None else []
    if e.noise is not None and e.rate is not None:
        parts.append(f"{e.noise} {100 * e.rate:g} %")
    return ", ".join(parts)
