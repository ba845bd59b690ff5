"""Running experiments: data, noise, networks and method come together here, and the run folder is filled.

Experiments that differ only in noise, τ and seeds can run together, as one stack of networks.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coteach import data
from coteach.data import Dataset
from coteach.engine.batches import View
from coteach.methods import METHODS
from coteach.networks.stack import Stack
from coteach.runs import folder as files
from coteach.runs import setup
from coteach.runs.choices import choose_engine, choose_threads
from coteach.runs.experiment import OWN, Experiment, differing_fields
from coteach.runs.groups import fitting_group, in_groups
from coteach.runs.record import Record, config, summarise
from coteach.train import Epoch, fit

MAY_DIFFER = {"noise", "rate", "matrix", "noise_seed", "tau", "seeds", "out"}

log = logging.getLogger("coteach")


@dataclass(frozen=True)
class Result:
    """What a run leaves: its folder, a row for each seed and epoch, the summary, and the trained networks."""

    folder: Path
    rows: list[dict]
    summary: dict[str, Any]
    stacks: dict[int, tuple[Stack, int]]  # for each seed, where its networks are

    def network(self, n: int = 0, seed: int | None = None) -> nn.Module:
        """A plain torch module: the n-th network of a seed, by default of the first, in evaluation mode."""
        if seed is not None and seed not in self.stacks:
            raise ValueError(f"there is no run with seed {seed}: give one of {', '.join(map(str, self.stacks))}.")
        stack, r = self.stacks[next(iter(self.stacks)) if seed is None else seed]
        return stack.network(n, r)


def run(
    experiment: Experiment,
    dataset: Dataset | None = None,
    *,
    view: View | None = None,
    say: Callable[[str], None] = log.warning,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Result:
    """Do what `coteach run` does.

    Parameters
    ----------
    experiment : Experiment
    dataset : Dataset, optional
        Instead of the one the experiment names: `coteach.Dataset.from_arrays(x, y, x_test, y_test)`, or
        `coteach.Dataset.from_samples(train, test)` of what is not an array or does not fit into memory.
    view : callable, optional
        (x_RB…, N) → x_NRB…: what each of the N networks sees of a sample, for Co-training on views of your own.
    say : callable
        Takes each line that the user should read; logged as a warning unless given.
    on_epoch : callable
        Called after every epoch, for a progress bar.
    """
    return run_together([experiment], dataset, view=view, say=say, on_epoch=on_epoch)[0]


def run_together(
    experiments: list[Experiment],
    dataset: Dataset | None = None,
    *,
    view: View | None = None,
    say: Callable[[str], None] = log.warning,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Result]:
    """Run experiments that share data set, network and method as one stack; each fills its own folder."""
    experiments = compatible(experiments, dataset)
    first = experiments[0]
    plan, notes = first.plan_and_notes()
    device = setup.chosen_device(first.device)
    if dataset is None:
        if first.dataset == OWN:
            raise ValueError("the data set is your own: hand it in with run(experiment, dataset).")
        dataset = data.load(first.dataset, first.data_dir, **setup.dataset_options(first))
    plan = setup.fit_to_samples(plan, first, len(dataset.x_train), notes)
    draws = [setup.draw_noise(experiment, dataset) for experiment in experiments]
    problem = setup.make_problem(experiments, dataset, draws, device)
    build = setup.network_builder(first, dataset, device)
    method = METHODS[first.method]
    with torch.random.fork_rng(devices=[]):
        network = build()  # fails here, before a folder is made, if it does not fit the data
    setup.refuse_batches_of_one(network, plan)
    if method.views and view is None:
        setup.refuse_views_of_nothing(dataset, method.networks)
    in_all = method.networks * len(problem.seeds)
    engine = choose_engine(first, plan, network, in_all, len(dataset.x_train), device)
    threads = choose_threads(network, in_all, plan)
    if first.dataset == OWN and first.tau is None and first.noise_kind == "none":
        notes.append("no labels are flipped and tau is not given, so every label is taken for right: give tau")
    if setup.stays_on_host(dataset, problem):
        notes.append("the samples would fill more than half of the free memory of the device: they are streamed")
    for line in [dataset.note, *notes]:
        if line:
            say(line)

    folders = [files.claim(experiment) for experiment in experiments]
    record = Record(experiments, folders, say)

    def train(group: range) -> tuple[range, Stack]:
        def after(epoch: Epoch) -> None:
            record.write(epoch, group)
            on_epoch(epoch)

        part = problem.part(group)
        return group, fit(part, method, plan, build, engine=engine, view=view, on_epoch=after).stack

    with setup.torch_set(threads, first.deterministic), engine.precision.set():
        size = first.group or fitting_group(problem, method, plan, build, engine, view)
        for experiment, folder, draw in zip(experiments, folders, draws, strict=True):
            draw.save(folder / "noise.safetensors")
            files.write_config(folder, config(experiment, plan, device, problem, engine, size))
        started = time.perf_counter()
        groups = list(in_groups(len(problem.seeds), size, train, lambda g: record.begin_again(g, problem.seeds)))
        seconds = time.perf_counter() - started
    stacks = [(stack, r) for group, stack in groups for r in range(len(group))]
    results = []
    for experiment, folder, rows, draw in zip(experiments, folders, record.rows, draws, strict=True):
        summary = {"dataset": dataset.name} | summarise(experiment, plan, rows, draw, device, seconds)
        files.write_summary(folder, summary)
        mine, stacks = stacks[: len(experiment.seeds)], stacks[len(experiment.seeds) :]
        results.append(Result(folder, rows, summary, dict(zip(experiment.seeds, mine, strict=True))))
    return results


def compatible(experiments: list[Experiment], dataset: Dataset | None) -> list[Experiment]:
    """The experiments, named after data that are handed in, if nothing is wrong with them so far."""
    if not experiments:
        raise ValueError("there is no experiment to run: give at least one.")
    for experiment in experiments:
        if not isinstance(experiment, Experiment):
            raise ValueError(f"run takes an Experiment, not {experiment!r}: coteach.run(coteach.Experiment(...)).")
    if dataset is not None:
        if not isinstance(dataset, Dataset):
            raise ValueError(
                "the data set is no Dataset: make one with Dataset.from_arrays(x, y, x_test, y_test)."
            )
        experiments = [setup.named_after(dataset, experiment) for experiment in experiments]
    for experiment in experiments:
        experiment.check()
        files.refuse_if_taken(experiment.out)
        if differing := differing_fields(experiments[0], experiment) - MAY_DIFFER:
            raise ValueError(f"experiments that run together must have the same {', '.join(sorted(differing))}.")
    if dataset is None and len({repr(setup.dataset_options(experiment)) for experiment in experiments}) > 1:
        raise ValueError("open-sets of another rate or noise_seed are other images: run them one by one.")
    outs = [experiment.out for experiment in experiments if experiment.out is not None]
    if len(set(outs)) < len(outs):
        raise ValueError("two experiments have the same out: give each a folder of its own.")
    return experiments
