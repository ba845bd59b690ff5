"""The lines of the table as dictionaries, which `coteach bench --json` prints as they are."""

import gc
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

import coteach
from coteach.bench.case import Case, make_case
from coteach.bench.floor import Work, epoch_work, floor_seconds, measured_rates
from coteach.bench.others import Others
from coteach.bench.ours import Ours, Show, forget_peak_memory, time_ours
from coteach.bench.plain import Plain, time_plain
from coteach.bench.request import Bench
from coteach.runs import setup
from coteach.runs.record import hardware

PLAIN_METHOD = "coteaching_plus"  # what the plain loops train
PLAIN_LOOPS = ("per_item", "tensor_dataset")
SHARES_OF_SAMPLES = (0.25, 0.5, 1)
BATCH_SIZES = (32, 64, 128, 256, 512)
RUNS = {"cpu": (1, 2, 4, 8), "cuda": (1, 2, 4, 8, 16, 32)}

Line = dict[str, Any]
Say = Callable[[str], None]


def compared(request: Bench, show: Show, say: Say) -> Iterator[Line]:
    """A line for each data set and number of runs; the plain loops are timed once a data set."""
    device = setup.chosen_device(request.device)
    against_plain = request.method == PLAIN_METHOD
    if not against_plain:
        say(f"the plain loops train {PLAIN_METHOD}: {request.method} is compared with the floor alone")
    for name in request.dataset or default_datasets(device):
        plain: dict[str, Plain] = {}
        for runs in request.runs:
            others = Others()
            case = new_case(name, runs, device, request, say)
            ours = time_ours(case, request.epochs, named(name, show))
            if against_plain and not plain:
                plain = {kind: time_plain(case, kind, named(name, show)) for kind in PLAIN_LOOPS}
                for kind, timed in plain.items():
                    say_what_is_odd(name, kind, timed, say)
            show("matrix product and copy", 0, 1)
            yield line(case, ours, **plain) | share_of(others, name, say)
            del case, ours  # or the next case's peak of memory would count them


def scaled(request: Bench, show: Show, say: Say) -> Iterator[Line]:
    """Our epoch against M, B and R, one varied at a time: a line each, with what is varied and its value."""
    device = setup.chosen_device(request.device)
    for name in request.dataset or default_datasets(device):
        whole = new_case(name, 1, device, request, say)
        known: dict[tuple[int, int, int], Line] = {}
        for varied, value, case in variations(whole):
            key = (case.samples, case.plan.batch_size, case.runs)
            if key not in known:
                forget_peak_memory(device)
                others = Others()
                ours = time_ours(case, request.epochs, named(f"{name}, {varied} {value}", show), spend=10)
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
        seeds = tuple(range(1, runs + 1))
        yield "runs", runs, replace(case, experiment=replace(case.experiment, seeds=seeds))


def line(case: Case, ours: Ours, per_item: Plain | None = None, tensor_dataset: Plain | None = None) -> Line:
    """What was measured of one case, its floor, and where it was measured. Seconds are of all runs together."""
    rates = measured_rates(case.device, ours.engine.precision)
    seconds, floor = ours.median, floor_seconds(work_of(case), rates)
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
        "floor_seconds_per_epoch": floor,
        "floor_share": floor / seconds,
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


def new_case(name: str, runs: int, device: str, request: Bench, say: Say) -> Case:
    gc.collect()  # what an earlier case held is not this one's
    forget_peak_memory(device)
    case = make_case(request, name, runs, device)
    if not case.published:
        say(f"{name} is not in the data folder: random images of the same shape stand in for it")
    return case


def default_datasets(device: str) -> tuple[str, ...]:
    return ("mnist",) if device == "cpu" else ("mnist", "cifar10")


def named(name: str, show: Show) -> Show:
    return lambda what, done, total: show(f"{name}: {what}", done, total)


def share_of(others: Others, what: str, say: Say) -> Line:
    """Threads that wait for each other suffer most from strangers on their cores, so that ratios change too."""
    share = others.share()
    if share is not None and share > 0.1:
        say(f"{what}: other processes took {100 * share:.0f} % of the processors, so do not trust these times")
    return {"share_of_other_processes": share}


def say_what_is_odd(name: str, kind: str, plain: Plain, say: Say) -> None:
    if plain.share < 1:
        say(f"{name}: of an epoch of the {kind} loop, {100 * plain.share:.0f} % were timed and the rest added")
    if plain.updated < 0.9:
        say(
            f"{name}: the {kind} loop skipped {100 - 100 * plain.updated:.0f} % of its updates, "
            "because its networks agreed on all of a batch"
        )
