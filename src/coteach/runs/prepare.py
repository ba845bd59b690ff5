"""From experiments to what is trained, before a folder is touched: whatever can fail early fails here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from coteach import data
from coteach.data import Dataset
from coteach.engine import Engine
from coteach.engine.batches import View
from coteach.engine.distributed import Team, joined
from coteach.methods import METHODS, Method
from coteach.noise import Noise
from coteach.plan import Plan
from coteach.runs import folder as files
from coteach.runs import setup
from coteach.runs.choices import choose_engine, choose_threads
from coteach.runs.experiment import OWN, Experiment
from coteach.runs.record import config, fingerprint
from coteach.runs.resume import stored_engine
from coteach.train import Problem


@dataclass(frozen=True)
class Prepared:
    """Experiments that run as one stack, and all that their runs need."""

    experiments: list[Experiment]
    dataset: Dataset
    draws: list[Noise]  # the labels of each experiment
    problem: Problem
    method: Method
    plan: Plan
    build: Callable[[], nn.Module]
    engine: Engine
    view: View | None
    device: str
    threads: int
    group: int | None  # runs at a time; None: as many as fit into memory
    notes: list[str]
    team: Team  # the processes that train them
    processes: int | None  # their number, where the result depends on it

    def configs(self, group: int) -> list[dict[str, Any]]:
        """What decides the result of each experiment, as its config.toml has it."""
        sha256 = fingerprint(self.dataset)
        return [
            config(
                e, self.plan, self.device, self.problem, self.engine, group, sha256, draw.sha256, self.processes
            )
            for e, draw in zip(self.experiments, self.draws, strict=True)
        ]


def prepare(experiments: list[Experiment], dataset: Dataset | None, view: View | None) -> Prepared:
    first = experiments[0]
    plan, notes = first.plan_and_notes()
    before = stored_engine(files.read_config(first.resume), first.resume) if first.resume else None
    device = setup.own_device(before.device if before else first.device)
    team = joined(device)
    if dataset is None:
        if first.dataset == OWN:
            raise ValueError("the data set is your own: hand it in with run(experiment, dataset).")
        with team.one_first():
            dataset = data.load(first.dataset, first.data_dir, **setup.dataset_options(first))
    plan = setup.fit_to_samples(plan, first, len(dataset.x_train), notes)
    draws = [setup.draw_noise(experiment, dataset) for experiment in experiments]
    problem = setup.make_problem(experiments, dataset, draws, device)
    build = setup.network_builder(first, dataset, device)
    method = METHODS[first.method]
    with torch.random.fork_rng(devices=[]):
        network = build()  # fails here if it does not fit the data
    setup.refuse_batches_of_one(network, plan)
    if team.size > 1:
        setup.refuse_small_parts(network, plan, team.size)
        if method.in_rounds:
            raise ValueError(f"{method.name} trains in one process: start it without torchrun.")
    if method.views and view is None:
        setup.refuse_views_of_nothing(dataset, method.networks)
    if first.dataset == OWN and first.tau is None and first.noise_kind == "none":
        notes.append("no labels are flipped and tau is not given, so every label is taken for right: give tau")
    if setup.stays_on_host(dataset, problem):
        notes.append("the samples would fill more than half of the free memory of the device: they are streamed")
    if before:
        engine, threads, group = before.engine, before.threads, before.group
    else:
        in_all = method.networks * len(problem.seeds)
        engine = choose_engine(first, plan, network, in_all, len(dataset.x_train), device)
        threads, group = choose_threads(network, in_all, plan), first.group
    by_parts = team.size > 1 and setup.normalises_over_the_batch(network)
    return Prepared(
        experiments, dataset, draws, problem, method, plan, build, engine, view, device, threads, group,
        [line for line in (dataset.note, *notes) if line], team, team.size if by_parts else None,
    )  # fmt: skip
