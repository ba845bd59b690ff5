"""Settings compared on held-out labels that are as noisy as the others: no test label is looked at.

    python benchmarks/held_out.py --problem cifar10n-worst cifar10n-rand1 cifar10/symmetric/0.5 --device cuda \
        --compile yes --settings @benchmarks/candidates.txt --seeds 1 2 3 --out held_out.jsonl --minutes 9

A problem is a data set, or data set/noise/rate. A setting is flags of `coteach run`, with commas between them;
@FILE has one a line, the most telling first. A tenth of the training samples is held out, always the same.
Accuracy is of the ensemble after the last epoch, on their given labels. `smallest_share` is what was kept of the
class of which least was kept, in units of the mean: near 0 a whole class was taken for wrong, which needs no truth
to be seen.

Every run is a line of the file as soon as it is over, and is not run again: give the same command until nothing is
left. With --minutes no run begins that would not end in time. The first seed of all settings comes first.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

import numpy as np
import torch
from common import flags, measured_on

import coteach
from coteach import data
from coteach.data import Dataset
from coteach.engine.training import Epoch
from coteach.runs import prepare
from coteach.runs.experiment import Experiment

HELD_OUT, PERMUTATION = 0.1, 7
Run = tuple[str, str, int]  # problem, setting, seed


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--problem", nargs="+", default=["digits/symmetric/0.2"])
    parser.add_argument("--settings", nargs="+", default=["method=coteaching"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--samples", type=int, help="learn from so many only, to see that nothing is broken")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that would last longer")
    options = parser.parse_args()
    settings = list(listed(options.settings))
    for setting in settings:
        Experiment(**parsed(setting)).check()  # before anything has been waited for
    wanted = [(p, s, seed) for seed in options.seeds for s in settings for p in options.problem]
    done = rows_of(options.out)
    left = [run for run in wanted if run not in done]
    if options.out and options.out.exists() and not options.out.read_text("utf-8").endswith("\n"):
        with options.out.open("a") as file:
            file.write("\n")  # a line that was cut off stays by itself
    for run in in_time(left, done, options.minutes):
        row = measured(run, options)
        done[run] = row
        print(json.dumps(row), flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(done, settings, options.problem))
    print(f"{sum(run not in done for run in wanted)} of {len(wanted)} runs are left.")


def listed(settings: list[str]) -> Iterator[str]:
    """Settings as given; of a file those of its lines, without comments."""
    for word in settings:
        if not word.startswith("@"):
            yield word
            continue
        for line in Path(word[1:]).read_text("utf-8").splitlines():
            if setting := line.partition("#")[0].strip():
                yield setting


def rows_of(out: Path | None) -> dict[Run, dict]:
    """The lines of a file that are whole; one that was cut off is run again."""
    found = {}
    for line in out.read_text("utf-8").splitlines() if out and out.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["problem"], row["setting"], row["seed"]] = row
    return found


def in_time(left: list[Run], done: dict[Run, dict], minutes: float) -> Iterator[Run]:
    """Runs that end in time as far as is known: as the slowest of the same setting, or else of all, took."""
    began = time.monotonic()
    for run in left:
        alike = [row["seconds"] for (_, setting, _), row in done.items() if setting == run[1]]
        expected = max(alike or [row["seconds"] for row in done.values()] or [0])
        if time.monotonic() - began + expected < 60 * minutes:
            yield run


@cache
def with_part_held_out(problem: str, data_dir: Path | None, samples: int | None = None) -> Dataset:
    """The data set without a tenth of its training samples, which with their noisy labels are the test set."""
    name, *noise = problem.split("/")
    experiment = Experiment(name)
    if noise:
        experiment = replace(experiment, noise=noise[0], rate=float(noise[1]))
    dataset = data.load(name, data_dir)
    given = torch.from_numpy(prepare.draw_noise(experiment, dataset).labels)
    x, _ = dataset.tensors("holding samples out")
    order = torch.from_numpy(np.random.RandomState(PERMUTATION).permutation(len(x)))
    n_held = round(HELD_OUT * len(x))
    held, learnt = order[:n_held].sort().values, order[n_held:][:samples].sort().values
    return replace(
        dataset,
        x_train=x[learnt],
        y_train=dataset.y_train[learnt],
        given=given[learnt],
        x_test=x[held],
        y_test=given[held],
    )


def measured(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    problem, setting, seed = run
    dataset = with_part_held_out(problem, options.data_dir, options.samples)
    shares: list[np.ndarray] = []

    def after(epoch: Epoch) -> None:
        if epoch.training.ledger is not None:
            y_RM, n_classes = epoch.training.problem.y_RM, epoch.training.problem.n_classes
            shares[:] = list(epoch.training.ledger.kept_share(y_RM, n_classes))

    with TemporaryDirectory() as folder:
        experiment = Experiment(
            dataset=dataset.name,
            noise="none",
            seeds=(seed,),
            device=options.device,
            compile=options.compile,
            out=Path(folder) / "run",
            **parsed(setting),
        )
        began = time.perf_counter()
        result = coteach.run(experiment, dataset, say=lambda line: None, on_epoch=after)
    return {
        "problem": problem,
        "setting": setting,
        "seed": seed,
        "held_out_accuracy": result.summary["last_per_seed"][0],
        "smallest_share": [round(float(np.nanmin(s) / np.nanmean(s)), 3) for s in shares],
        "samples": len(dataset.x_train),
        "held_out": len(dataset.y_test),
        "seconds": round(time.perf_counter() - began, 1),
        **measured_on(options.device),
    }


def parsed(setting: str) -> dict[str, Any]:
    """Fields of an experiment from `name=value,name=value`."""
    hints = get_type_hints(Experiment)
    found: dict[str, Any] = {"method": "coteaching"}
    for word in filter(None, setting.split(",")):
        name, _, value = word.partition("=")
        if name not in {f.name for f in fields(Experiment)}:
            raise SystemExit(f"there is no flag {name}: give those of `coteach run`, such as ramp=20.")
        kinds = getattr(hints[name], "__args__", (hints[name],))
        found[name] = int(value) if int in kinds else float(value) if float in kinds else value
        if bool in kinds:
            found[name] = value == "yes"
    return found


def table(done: dict[Run, dict], settings: list[str], problems: list[str]) -> str:
    """Mean, spread and number of seeds of each setting, the best first; those without all problems last."""
    lines = []
    for setting in settings:
        of_problem = [
            [row["held_out_accuracy"] for (p, s, _), row in done.items() if (p, s) == (problem, setting)]
            for problem in problems
        ]
        if any(of_problem):
            means = [fmean(found) if found else None for found in of_problem]
            known = [mean for mean in means if mean is not None]
            overall = fmean(known) if len(known) == len(means) else 0.0
            words = [cell(found) for found in of_problem]
            lines.append((overall, f"| {overall:.2f} | {' | '.join(words)} | {setting} |"))
    head = f"| mean | {' | '.join(problems)} | setting |\n|{'---|' * (len(problems) + 2)}"
    return "\n".join([head, *(line for _, line in sorted(lines, reverse=True))])


def cell(found: list[float]) -> str:
    if not found:
        return ""
    spread = f" ± {stdev(found):.2f}" if len(found) > 1 else ""
    return f"{fmean(found):.2f}{spread} ({len(found)})"


if __name__ == "__main__":
    main()
