"""The file of a measured cell: what decides its result and the hash of that, a summary, and every single run.

It is written in one step, so that whatever lies in the folder is whole; runs of more seeds are merged into it.
Reading takes no torch: what was measured elsewhere is listed and drawn at once.
"""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from coteach.files import regular_file, unfinished_stem, write_atomically
from coteach.paper.presets import Cell, asked_for
from coteach.paper.running import RUNNING, exclusive
from coteach.runs.folder import plain, read_config, read_rows

if TYPE_CHECKING:
    from coteach.data import Dataset

CURVES = ("test_accuracy", "label_precision", "disagreement", "total_variation")
CURVE_DIGITS = 5  # of a curve's points
MOST_RESULT_BYTES = 2**26  # of a file; five runs of 200 epochs take 40 kB


def path_of(cell: Cell, out: Path) -> Path:
    return out / cell.preset / f"{cell.name}.json"


def in_folder(out: Path) -> list[dict[str, Any]]:
    """All cells of a folder of results, each with the name of its file; other JSON may lie there, too."""
    found = [(path, load_json(path)) for path in sorted(out.glob("*/*.json"))]
    return [record | {"file": path.relative_to(out).as_posix()} for path, record in found if is_cell(record)]


def preset_records(name: str, epochs: int | None, out: Path) -> list[dict[str, Any]]:
    """The records of a preset that are there, whatever the number of seeds, as it has them."""
    found = ((path_of(cell, out), cell.hash) for cell in asked_for(name, None, epochs, then=True))
    return [
        r | {"file": path.relative_to(out).as_posix()} for path, wanted in found if (r := read_cell(path, wanted))
    ]


def read_cell(path: Path, expected_hash: str) -> dict[str, Any] | None:
    """A cell's record, unless there is none or it was measured in another way."""
    record: Any = load_json(path) if path.exists() else None
    return record if is_cell(record) and record["hash"] == expected_hash else None


def load_json(path: Path) -> Any:
    try:
        if regular_file(path).stat().st_size > MOST_RESULT_BYTES:
            raise OSError(f"it has more than {MOST_RESULT_BYTES:,} bytes")
        return json.loads(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: remove it, and what was in it is measured again.") from error


def is_cell(record: Any) -> bool:
    """Whether it is one of ours, and not other JSON that lies in the folder."""
    if not (isinstance(record, dict) and record.keys() >= {"hash", "data", "summary", "runs"}):
        return False
    summary, runs = record["summary"], record["runs"]
    return isinstance(summary, dict) and isinstance(summary.get("seeds"), list) and isinstance(runs, list)


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json_lines(content) + "\n")


def json_lines(value: Any, indent: str = "") -> str:
    """JSON in which a list of numbers, such as a curve, stays on its line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{inner}{json.dumps(key)}: {json_lines(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join(inner + json_lines(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value)


def add_runs(cell: Cell, out: Path, new: dict[str, Any]) -> dict[str, Any]:
    """Merge more runs into a cell's file; one process at a time, since two may have run different seeds of it."""
    path = path_of(cell, out)
    with exclusive(out / RUNNING):
        for unfinished in path.parent.glob(f"{unfinished_stem(path)}*.tmp"):  # of a process that was killed
            unfinished.unlink()
        record = merged(cell, new, read_cell(path, cell.hash))
        write_json(path, record)
    return record


def measurement(folder: Path, dataset: "Dataset", runs_in_stack: int, commit: str | None) -> dict[str, Any]:
    """What the run of a folder adds to a cell."""
    s, rows = json.loads((folder / "summary.json").read_text("utf-8")), read_rows(folder / "metrics.jsonl")
    seconds = s["seconds"] / runs_in_stack  # so that the cells' seconds sum to those of the whole
    there = {"seconds": round(seconds, 2), "hardware": s["hardware"], "commit": commit}
    there["versions"] = read_config(folder)["versions"]
    return {
        "data": {
            "samples": len(dataset.x_train),
            "test_samples": len(dataset.x_test),
            "classes": dataset.n_classes,
            "note": dataset.note,
            "noise_sha256": s["noise_sha256"],
            "realised_rate": s["realised_rate"],
        },
        "runs": [
            numbers_of_seed(seed, rows) | {"average_precision": found} | there
            for seed, found in zip(s["seeds"], s["average_precision_per_seed"], strict=True)
        ],
    }


def numbers_of_seed(seed: int, rows: list[dict]) -> dict[str, Any]:
    """The numbers of one run, in per cent over its last ten epochs, and its curves as shares."""
    from coteach.runs.folder import last_ten

    mine = [row for row in rows if row["seed"] == seed]
    last = mine[-10:]
    mean, highest = last_ten(mine)
    points = [row | {"test_accuracy": fmean(row["test_accuracy"])} for row in mine]
    return {
        "seed": seed,
        "mean": 100 * mean,
        "max": 100 * highest,
        "mean_per_network": [100 * fmean(a) for a in zip(*(row["test_accuracy"] for row in last), strict=True)],
        "ensemble": 100 * fmean(row["ensemble_accuracy"] for row in last),
        "last": 100 * last[-1]["ensemble_accuracy"],
        "label_precision": percent([row["label_precision"] for row in last]),
        "events": dict(sum((Counter(row["events"]) for row in mine), Counter())),
        "curves": {name: [rounded_point(point[name]) for point in points] for name in CURVES},
    }


def percent(shares: list[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return 100 * fmean(known) if known else None


def rounded_point(value: float | None) -> float | None:
    return None if value is None else round(value, CURVE_DIGITS)


def merged(cell: Cell, new: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """The record of a cell with the runs of both; a seed that is in both is taken from the older."""
    if before is not None and before["data"] != new["data"]:
        raise ValueError(
            f"{cell.preset}/{cell.name} was measured on other data ({before['data']['note'] or before['data']}): "
            "give another folder for these results."
        )
    by_seed = {run["seed"]: run for record in (new, before) if record is not None for run in record["runs"]}
    runs = [by_seed[seed] for seed in sorted(by_seed)]
    elsewhere = ("seeds", "device", "out", "ledger")
    fields = plain({k: v for k, v in asdict(cell.experiment).items() if k not in elsewhere})
    return {
        "preset": cell.preset,
        "title": cell.title,
        "row": cell.row,
        "column": cell.column,
        "show": cell.show,
        "hash": cell.hash,
        "config": cell.config,
        "experiment": fields,
        "data": new["data"],
        "summary": summarise_cell(cell, runs),
        "runs": runs,
    }


def taken_over(cell: Cell, out: Path, known: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A cell's record, with runs that it lacks from other presets' `known` files of the very same."""
    path = path_of(cell, out)
    record = read_cell(path, cell.hash)
    for other in known:
        have = set() if record is None else set(record["summary"]["seeds"])
        alike = other["hash"] == cell.hash and other["file"] != path.relative_to(out).as_posix()
        if alike and not set(cell.seeds) <= have:
            record = add_runs(cell, out, other)
    return record


def summarise_cell(cell: Cell, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The object of results/summary.json: accuracies in per cent, over networks, the last ten epochs and seeds."""
    means = [run["mean"] for run in runs]
    return cell.address | {
        "seeds": [run["seed"] for run in runs],
        "mean": fmean(means),
        "std": stdev(means) if len(means) > 1 else None,
        "max": fmean(run["max"] for run in runs),
        "mean_per_seed": means,
        "mean_per_network": [fmean(a) for a in zip(*(run["mean_per_network"] for run in runs), strict=True)],
        "ensemble": fmean(run["ensemble"] for run in runs),
        "last": mean_of_known(runs, "last"),
        "last_per_seed": [run.get("last") for run in runs],
        "label_precision": mean_of_known(runs, "label_precision"),
        "average_precision": mean_of_known(runs, "average_precision"),
        "average_precision_per_seed": [run.get("average_precision") for run in runs],
        "seconds": round(sum(run["seconds"] for run in runs), 2),
        "hardware": each_once(run["hardware"] for run in runs),
        "torch": each_once(run["versions"]["torch"] for run in runs),
        "commit": each_once(run["commit"] for run in runs),
    }


def mean_of_known(runs: list[dict[str, Any]], name: str) -> float | None:
    """Over the runs that have it; older files do not have everything."""
    known = [run[name] for run in runs if run.get(name) is not None]
    return fmean(known) if known else None


def each_once(values: Any) -> str | None:
    """Each once, in one text: runs of a cell may come from several machines."""
    known = dict.fromkeys(value for value in values if value is not None)
    return "; ".join(known) or None
