"""Time an epoch against plain loops, and against what the device could do.

    make bench                                             # MNIST; on a GPU also CIFAR-10, by both recipes
    python benchmarks/bench.py --dataset mnist --runs 1 15 # one run, and fifteen together
    python benchmarks/bench.py --dataset cifar10 images-64 --recipe modern
    python benchmarks/bench.py --json                      # for programs

The result, a table or a JSON list with a line of the table each, goes to stdout, everything else to stderr.
Nothing is downloaded; a stand-in of the same shape takes the place of what is not in the data folder.
"""

import argparse
import gc
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from cases import MADE_UP, Case, first_seeds, make_case
from roofline import Work, epoch_work, measured_rates, roofline_seconds
from timing import OtherProcesses, OurEpochs, PlainEpochs, Show, forget_peak_memory, time_ours, time_plain

import coteach
from coteach import names
from coteach.data import DATASETS
from coteach.engine.precision import Precision
from coteach.engine.setup import chosen_device, hardware
from coteach.runs.experiment import Experiment, Precisions, Recipes, Stacks

# The open-sets cost what cifar10 does on their network, and the plain loops do not train as they are trained.
TIMED_DATASETS = (
    *(name for name, about in DATASETS.items() if not (name.startswith("openset-") or about.given)),
    *MADE_UP,
)
# What the plain loops train, and which there are; the first is the one that `ratio` is about.
PLAIN_METHODS = {"paper": "coteaching_plus", "modern": "coteaching"}
PLAIN_LOOPS = {"paper": ("per_item", "tensor_dataset"), "modern": ("on_device",)}
SHARES_OF_SAMPLES = (0.25, 0.5, 1)
BATCH_SIZES = (32, 64, 128, 256, 512)
RUNS = {"cpu": (1, 2, 4, 8), "cuda": (1, 2, 4, 8, 16, 32)}

Line = dict[str, Any]
Say = Callable[[str], None]


def main(arguments: list[str] | None = None) -> None:
    parser = flags()
    options = parser.parse_args(arguments)
    try:
        lines = list((scaled if options.scaling else compared)(options, show_progress, say))
    except ValueError as mistake:
        parser.error(str(mistake))
    print(json.dumps(lines, indent=1) if options.json else as_text(lines, options.scaling))


# ---- flags, progress ------------------------------------------------------------------------------------------


def flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flag = parser.add_argument
    flag(
        "--dataset",
        nargs="*",
        metavar="NAME",
        type=one_of("data set to time", TIMED_DATASETS),
        default=[],
        help="data sets, or images-32, -64, -96: 10,000 random ones (default: mnist; on a GPU also cifar10)",
    )
    flag(
        "--recipe",
        choices=get_args(Recipes),
        help="as in the paper, or of today (default: paper; of cifar10 on a GPU both, if no data set is given)",
    )
    flag(
        "--method",
        metavar="NAME",
        type=one_of("method", names.METHOD_MEANINGS),
        help="another than the plain loops train has only the roofline beside it "
        f"(default: theirs, {PLAIN_METHODS['paper']}; {PLAIN_METHODS['modern']} if modern)",
    )
    flag(
        "--runs",
        nargs="+",
        metavar="N",
        type=at_least_one,
        default=[1],
        help="runs that are trained together, a line of the table for each number (default: 1)",
    )
    flag(
        "--epochs",
        metavar="N",
        type=at_least_one,
        default=5,
        help="epochs to time, after those that warm up (default: 5)",
    )
    flag(
        "--scaling",
        action="store_true",
        help="instead of the plain loops: the cost against samples, batch size and runs",
    )
    as_run = "(default: as `coteach run` chooses)"
    flag("--precision", choices=get_args(Precisions), default="auto", help=f"of our networks {as_run}")
    flag(
        "--stack",
        choices=get_args(Stacks),
        default="auto",
        help=f"all networks in one batched call, or one after the other {as_run}",
    )
    flag("--compile", choices=("auto", "yes", "no"), default="auto", help=f"the kernels of our steps {as_run}")
    flag("--json", action="store_true", help="print a JSON list, and nothing else to stdout")
    flag("--device", metavar="NAME", default="auto", help="auto (a GPU if there is one), cpu, cuda or cuda:1")
    flag(
        "--data-dir",
        metavar="PATH",
        type=Path,
        help="folder with the published data files (default: $COTEACH_DATA, else the user's cache)",
    )
    return parser


def one_of(what: str, known: Any) -> Callable[[str], str]:
    def checked(name: str) -> str:
        try:
            names.check_name(what, name, known)
        except ValueError as mistake:
            raise argparse.ArgumentTypeError(str(mistake)) from None
        return name

    return checked


def at_least_one(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is no whole number of at least 1")
    return int(word)


def show_progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}: {done} of {total}", end="\r", file=sys.stderr, flush=True)


def say(note: str) -> None:
    print(f"note: {note}", file=sys.stderr)


# ---- what is measured -----------------------------------------------------------------------------------------


def compared(options: argparse.Namespace, show: Show, say: Say) -> Iterator[Line]:
    """A line for each data set and number of runs; the plain loops are timed once a data set."""
    device = chosen_device(options.device)
    for name, recipe in cases_asked_for(options, device):
        theirs = PLAIN_METHODS[recipe]
        against_plain = options.method in (None, theirs)
        if not against_plain:
            say(f"the plain loops train {theirs}: {options.method} is compared with the roofline alone")
        plain: dict[str, PlainEpochs] = {}
        for runs in options.runs:
            others = OtherProcesses()
            case = new_case(name, recipe, runs, device, options, say)
            ours = time_ours(case, options.epochs, named(name, show))
            if against_plain and not plain:
                plain = {kind: time_plain(case, kind, named(name, show)) for kind in PLAIN_LOOPS[recipe]}
                for kind, timed in plain.items():
                    say_what_is_odd(name, kind, timed, say)
            show("matrix product and copy", 0, 1)
            yield line(case, ours, **plain) | share_of(others, name, say)
            del case, ours  # or the next case's peak of memory would count them


def scaled(options: argparse.Namespace, show: Show, say: Say) -> Iterator[Line]:
    """Our epoch against M, B and R, one varied at a time: a line each, with what is varied and its value."""
    device = chosen_device(options.device)
    for name, recipe in cases_asked_for(options, device):
        usual = new_case(name, recipe, 1, device, options, say)
        known: dict[tuple[int, int, int], Line] = {}
        for varied, value, case in variations(usual):
            key = (case.samples, case.plan.batch_size, case.runs)
            if key not in known:
                forget_peak_memory(device)
                others = OtherProcesses()
                ours = time_ours(case, options.epochs, named(f"{name}, {varied} {value}", show), limit=10)
                known[key] = line(case, ours) | share_of(others, f"{name}, {varied} {value}", say)
            yield known[key] | {"varied": varied, "value": value}


def variations(case: Case) -> Iterator[tuple[str, int, Case]]:
    for share in SHARES_OF_SAMPLES:
        samples = int(share * case.samples)
        yield "samples", samples, replace(case, samples=samples)
    for size in BATCH_SIZES:
        if size <= case.samples:
            yield "batch_size", size, replace(case, experiment=replace(case.experiment, batch_size=size))
    for runs in RUNS[case.device.split(":")[0]]:
        yield "runs", runs, replace(case, experiment=replace(case.experiment, seeds=first_seeds(runs)))


def line(
    case: Case,
    ours: OurEpochs,
    per_item: PlainEpochs | None = None,
    tensor_dataset: PlainEpochs | None = None,
    on_device: PlainEpochs | None = None,
) -> Line:
    """What was measured of one case, its roofline, and where it was measured. Seconds are of all runs together."""
    precision = ours.engine.precision
    rates = measured_rates(case.device, precision)
    seconds, roofline = ours.median, roofline_seconds(work_of(case, precision), rates)
    plain = per_item or on_device
    return {
        "dataset": case.dataset.name,
        "recipe": "modern" if case.experiment.is_modern else "paper",
        "network": case.experiment.network_name,
        "method": case.method.name,
        "device": case.device,
        "runs": case.runs,
        "samples": case.samples,
        "batch_size": case.plan.batch_size,
        "seconds_per_epoch": seconds,
        "seconds_min": min(ours.seconds),
        "seconds_max": max(ours.seconds),
        "epochs_measured": len(ours.seconds),
        "seconds_per_run_and_epoch": seconds / case.runs,
        "seconds_per_sample": seconds / case.runs / case.samples,
        "plain_loop": plain and ("per_item" if plain is per_item else "on_device"),
        "plain_seconds_per_epoch": plain and plain.median,
        "ratio": plain and ratio(plain.median, seconds, case.runs),
        "plain_epochs_measured": plain and len(plain.seconds) * plain.share,
        "plain_evaluation_share": plain and plain.evaluation_share,
        "loader_seconds_per_epoch": tensor_dataset and tensor_dataset.median,
        "loader_ratio": tensor_dataset and ratio(tensor_dataset.median, seconds, case.runs),
        "loader_epochs_measured": tensor_dataset and len(tensor_dataset.seconds) * tensor_dataset.share,
        "floor_seconds_per_epoch": roofline,
        "floor_share": roofline / seconds,
        "evaluation_share": ours.evaluation_share,
        "peak_memory_bytes": ours.peak_memory,
        "data": "published" if case.published else "stand-in",
        **ours.engine.table(),
        "ready_seconds": ours.ready_seconds,
        "threads": ours.threads,
        "plain_threads": torch.get_num_threads(),
        "matrix_product_flop_per_second": rates.flop_per_second,
        "copy_bytes_per_second": rates.bytes_per_second,
        "hardware": hardware(case.device),
        "torch": torch.__version__,
        "coteach": coteach.__version__,
        "python": platform.python_version(),
    }


def ratio(plain_seconds: float, our_seconds: float, runs: int) -> float:
    """How many times longer the plain loop takes for the R trainings that we do together."""
    return plain_seconds * runs / our_seconds


def work_of(case: Case, precision: Precision) -> Work:
    x, _, x_test, _ = case.tensors
    return epoch_work(
        case.build,
        x[: case.plan.batch_size].to(case.device),
        steps=case.steps,
        test_samples=len(x_test),
        networks=case.method.networks,
        runs=case.runs,
        optimizer=str(case.plan.optimizer),
        precision=precision,
    )


def new_case(name: str, recipe: Recipes, runs: int, device: str, options: argparse.Namespace, say: Say) -> Case:
    gc.collect()  # what an earlier case held is not this one's
    forget_peak_memory(device)
    experiment = Experiment(
        name,
        options.method or PLAIN_METHODS[recipe],
        recipe=recipe,
        seeds=first_seeds(runs),
        data_dir=options.data_dir,
        precision=options.precision,
        stack=options.stack,
        compile=options.compile,
    )
    case = make_case(experiment, device)
    if not case.published and name not in MADE_UP:
        say(f"{name} is not in the data folder: random images of the same shape stand in for it")
    return case


def cases_asked_for(options: argparse.Namespace, device: str) -> list[tuple[str, Recipes]]:
    """The data sets and recipes that are asked for, or the usual ones."""
    if options.dataset or options.recipe:
        usual = ["cifar10"] if options.recipe == "modern" else default_datasets(device)
        return [(name, options.recipe or "paper") for name in options.dataset or usual]
    paper: list[tuple[str, Recipes]] = [(name, "paper") for name in default_datasets(device)]
    return paper if device == "cpu" or options.method or options.scaling else [*paper, ("cifar10", "modern")]


def default_datasets(device: str) -> tuple[str, ...]:
    return ("mnist",) if device == "cpu" else ("mnist", "cifar10")


def named(name: str, show: Show) -> Show:
    return lambda what, done, total: show(f"{name}: {what}", done, total)


def share_of(others: OtherProcesses, what: str, say: Say) -> Line:
    """Threads that wait for each other suffer most from strangers on their cores, so that ratios change too."""
    share = others.share()
    if share is not None and share > 0.1:
        say(f"{what}: other processes took {100 * share:.0f} % of the processors, so do not trust these times")
    return {"share_of_other_processes": share}


def say_what_is_odd(name: str, kind: str, plain: PlainEpochs, say: Say) -> None:
    if plain.share < 1:
        say(f"{name}: of an epoch of the {kind} loop, {100 * plain.share:.0f} % were timed and the rest added")
    if plain.updated < 0.9:
        say(
            f"{name}: the {kind} loop skipped {100 - 100 * plain.updated:.0f} % of its updates, "
            "because its networks agreed on all of a batch"
        )


# ---- tables ---------------------------------------------------------------------------------------------------

SECONDS = "Seconds of training and evaluation, all runs together: the median epoch, and min-max."
COMPARED = """\
per item: a DataLoader that makes a PIL image of each sample, in worker processes; tensors: a DataLoader of a
TensorDataset; both train one pair of plain networks by Co-teaching+; on device: the modern recipe by Co-teaching,
images and sorting on the device, nothing compiled; ratio: the loop's seconds times runs, over ours.
roofline: the arithmetic at the rate of a large matrix product, plus the bytes at the rate of a large copy;
share: roofline over ours."""
VARIED = {"samples": "M, samples", "batch_size": "B, batch size", "runs": "R, runs"}


def as_text(lines: list[Line], scaling: bool) -> str:
    tables = list(scaling_tables(lines)) if scaling else [comparison_table(lines)]
    about = SECONDS if scaling else f"{SECONDS}\n{COMPARED}"
    return "\n\n".join([*tables, about, where_it_ran(lines)])


def comparison_table(lines: list[Line]) -> str:
    head = (
        *("data set", "network", "device", "runs", "ours (min-max)", "per item (ratio)", "tensors (ratio)"),
        *("on device (ratio)", "roofline (share)", "peak memory"),
    )
    rows = [
        (
            line["dataset"] + (", modern" if line["recipe"] == "modern" else ""),
            line["network"],
            line["device"],
            str(line["runs"]),
            f"{figures(line['seconds_per_epoch'])} ({spread(line)})",
            against_plain(line, "per_item"),
            with_ratio(line["loader_seconds_per_epoch"], line["loader_ratio"]),
            against_plain(line, "on_device"),
            f"{figures(line['floor_seconds_per_epoch'])} ({100 * line['floor_share']:.0f} %)",
            megabytes(line["peak_memory_bytes"]),
        )
        for line in lines
    ]
    return aligned("one epoch of ours and of plain loops", head, rows)


def scaling_tables(lines: list[Line]) -> Iterator[str]:
    for dataset in dict.fromkeys(line["dataset"] for line in lines):
        for varied, name in VARIED.items():
            rows = [
                (
                    f"{line['value']:,}",
                    figures(line["seconds_per_epoch"]),
                    spread(line),
                    figures(line["seconds_per_run_and_epoch"]),
                    figures(1e6 * line["seconds_per_sample"]),
                    megabytes(line["peak_memory_bytes"]),
                )
                for line in lines
                if (line["dataset"], line["varied"]) == (dataset, varied)
            ]
            head = (name, "s/epoch", "min-max", "s/run and epoch", "µs/sample", "peak memory")
            yield aligned(f"{dataset}, our epoch against {name}", head, rows)


def aligned(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    body = ["  ".join(map(str.rjust, row, widths)) for row in (head, *rows)]
    return "\n".join([title, body[0], "-" * len(body[0]), *body[1:]])


def against_plain(line: Line, loop: str) -> str:
    return with_ratio(line["plain_seconds_per_epoch"] if line["plain_loop"] == loop else None, line["ratio"])


def with_ratio(seconds: float | None, ratio: float | None) -> str:
    return "–" if seconds is None else f"{figures(seconds)} ({ratio:.1f} ×)"


def spread(line: Line) -> str:
    return f"{figures(line['seconds_min'], 2)}-{figures(line['seconds_max'], 2)}"


def figures(number: float, n: int = 3) -> str:
    """As many figures, without the exponent that a large number would get."""
    return f"{number:,.0f}" if number >= 10**n else f"{number:.{n}g}"


def megabytes(n_bytes: int | None) -> str:
    return "–" if n_bytes is None else f"{n_bytes / 1e6:,.0f} MB"


def where_it_ran(lines: list[Line]) -> str:
    line = lines[0]
    timed = [f"{counts(lines, 'epochs_measured')} of ours"]
    for loop, key, words in (
        ("per_item", "plain_epochs_measured", "per item"),
        ("per_item", "loader_epochs_measured", "of tensors"),
        ("on_device", "plain_epochs_measured", "on the device"),
    ):
        if those := [line for line in lines if line["plain_loop"] == loop]:
            timed.append(f"{counts(those, key)} {words}")
    return (
        f"{line['hardware']}; coteach {line['coteach']}, torch {line['torch']}, Python {line['python']}; "
        f"threads: {counts(lines, 'threads')} for ours, {line['plain_threads']} for the plain loops; "
        f"epochs timed: {'; '.join(timed)}; "
        f"matrix product {line['matrix_product_flop_per_second'] / 1e9:,.0f} GFLOP/s, "
        f"copy {line['copy_bytes_per_second'] / 1e9:,.0f} GB/s."
    )


def counts(lines: list[Line], key: str) -> str:
    return ", ".join(dict.fromkeys(figures(line[key]) for line in lines))


if __name__ == "__main__":
    main()
