"""Time an epoch against two plain loops, and against what the device could do.

    make bench                                             # MNIST; on a GPU also CIFAR-10
    python benchmarks/bench.py --dataset mnist --runs 1 15 # one run, and fifteen together
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
from cases import Case, first_seeds, make_case
from roofline import Work, epoch_work, measured_rates, roofline_seconds
from timing import OtherProcesses, OurEpochs, PlainEpochs, Show, forget_peak_memory, time_ours, time_plain

import coteach
from coteach import names
from coteach.data import DATASETS
from coteach.engine.setup import chosen_device, hardware
from coteach.runs.experiment import Experiment, Precisions, Stacks

# The open-sets cost what cifar10 does on their network, and the plain loops do not train as they are trained.
TIMED_DATASETS = tuple(name for name in DATASETS if not name.startswith("openset-"))
PLAIN_METHOD = "coteaching_plus"  # what the plain loops train
PLAIN_LOOPS = ("per_item", "tensor_dataset")
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
        help="data sets (default: mnist; on a GPU also cifar10)",
    )
    flag(
        "--method",
        metavar="NAME",
        type=one_of("method", names.METHOD_MEANINGS),
        default=PLAIN_METHOD,
        help=f"another than {PLAIN_METHOD}, which the plain loops train, has only the roofline beside it",
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
    against_plain = options.method == PLAIN_METHOD
    if not against_plain:
        say(f"the plain loops train {PLAIN_METHOD}: {options.method} is compared with the roofline alone")
    for name in options.dataset or default_datasets(device):
        plain: dict[str, PlainEpochs] = {}
        for runs in options.runs:
            others = OtherProcesses()
            case = new_case(name, runs, device, options, say)
            ours = time_ours(case, options.epochs, named(name, show))
            if against_plain and not plain:
                plain = {kind: time_plain(case, kind, named(name, show)) for kind in PLAIN_LOOPS}
                for kind, timed in plain.items():
                    say_what_is_odd(name, kind, timed, say)
            show("matrix product and copy", 0, 1)
            yield line(case, ours, **plain) | share_of(others, name, say)
            del case, ours  # or the next case's peak of memory would count them


def scaled(options: argparse.Namespace, show: Show, say: Say) -> Iterator[Line]:
    """Our epoch against M, B and R, one varied at a time: a line each, with what is varied and its value."""
    device = chosen_device(options.device)
    for name in options.dataset or default_datasets(device):
        usual = new_case(name, 1, device, options, say)
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
) -> Line:
    """What was measured of one case, its roofline, and where it was measured. Seconds are of all runs together."""
    rates = measured_rates(case.device, ours.engine.precision)
    seconds, roofline = ours.median, roofline_seconds(work_of(case), rates)
    return {
        "dataset": case.dataset.name,
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
        "plain_seconds_per_epoch": per_item and per_item.median,
        "ratio": per_item and ratio(per_item.median, seconds, case.runs),
        "plain_epochs_measured": per_item and len(per_item.seconds) * per_item.share,
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


def work_of(case: Case) -> Work:
    x, _, x_test, _ = case.tensors
    return epoch_work(
        case.build,
        x[: case.plan.batch_size].to(case.device),
        steps=case.steps,
        test_samples=len(x_test),
        networks=case.method.networks,
        runs=case.runs,
    )


def new_case(name: str, runs: int, device: str, options: argparse.Namespace, say: Say) -> Case:
    gc.collect()  # what an earlier case held is not this one's
    forget_peak_memory(device)
    experiment = Experiment(
        name,
        options.method,
        seeds=first_seeds(runs),
        data_dir=options.data_dir,
        precision=options.precision,
        stack=options.stack,
    )
    case = make_case(experiment, device)
    if not case.published:
        say(f"{name} is not in the data folder: random images of the same shape stand in for it")
    return case


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
TensorDataset; both train one pair of plain networks; ratio: the loop's seconds times runs, over ours.
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
        *("roofline (share)", "peak memory"),
    )
    rows = [
        (
            line["dataset"],
            line["network"],
            line["device"],
            str(line["runs"]),
            f"{figures(line['seconds_per_epoch'])} ({spread(line)})",
            with_ratio(line["plain_seconds_per_epoch"], line["ratio"]),
            with_ratio(line["loader_seconds_per_epoch"], line["loader_ratio"]),
            f"{figures(line['floor_seconds_per_epoch'])} ({100 * line['floor_share']:.0f} %)",
            megabytes(line["peak_memory_bytes"]),
        )
        for line in lines
    ]
    return aligned("one epoch of ours and of two plain loops", head, rows)


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
    if line["plain_seconds_per_epoch"] is not None:
        timed.append(f"{counts(lines, 'plain_epochs_measured')} per item")
        timed.append(f"{counts(lines, 'loader_epochs_measured')} of tensors")
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
