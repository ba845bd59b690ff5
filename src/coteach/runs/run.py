"""Running experiments: data, noise, networks and method come together here, and the run folder is filled.

Experiments that differ only in noise, τ and seeds can run together, as one stack of networks.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from coteach.data import Dataset
from coteach.engine.batches import View
from coteach.engine.distributed import ProcessLost
from coteach.networks.models import take_weights
from coteach.runs import folder as files
from coteach.runs import setup
from coteach.runs.callbacks import Followed, Tracker
from coteach.runs.checkpoint import told_how_to_go_on
from coteach.runs.experiment import Experiment, differing_fields
from coteach.runs.folder import locked
from coteach.runs.groups import fitting_group, in_groups, out_of_memory
from coteach.runs.prepare import Prepared, prepare
from coteach.runs.progress import Progress, Standing, refuse_different
from coteach.runs.record import networks_file, summarise
from coteach.runs.resume import stored_experiment
from coteach.train import Epoch, Training, fit

MAY_DIFFER = {"noise", "rate", "matrix", "noise_seed", "noise_stream", "tau", "seeds", "out", "resume"}

log = logging.getLogger("coteach")


@dataclass(frozen=True)
class Result:
    """What a run leaves: its folder, a row for each seed and epoch, the summary, and the trained networks.

    Parameters
    ----------
    folder : Path
        The run folder.
    rows : list of dict
        One for each seed and epoch, as metrics.jsonl has them.
    summary : dict
        What summary.json says.
    networks : int
        N, the networks of each seed.
    build : callable
        Makes one network.
    device : str

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = coteach.run(coteach.Experiment(epochs=1, out=f"{folder}/run"), say=lambda line: None)
    ...     result.network(n=1)(torch.zeros(3, 64)).shape
    torch.Size([3, 10])
    """

    folder: Path
    rows: list[dict]
    summary: dict[str, Any]
    networks: int
    build: Callable[[], nn.Module]
    device: str

    def network(self, n: int = 0, seed: int | None = None) -> nn.Module:
        """A plain torch module: the n-th network of a seed, by default of the first, in evaluation mode."""
        seeds = self.summary["seeds"]
        if seed is not None and seed not in seeds:
            raise ValueError(f"there is no run with seed {seed}: give one of {', '.join(map(str, seeds))}.")
        if n not in range(self.networks):
            raise ValueError(f"there is no network {n}: give one of {', '.join(map(str, range(self.networks)))}.")
        path = networks_file(self.folder, seeds[0] if seed is None else seed)
        with torch.random.fork_rng(devices=[]):
            networks = [self.build() for _ in range(self.networks)]
        take_weights(networks, load_file(path), path)
        return networks[n].to(self.device).eval()


def run(
    experiment: Experiment,
    dataset: Dataset | None = None,
    *,
    view: View | None = None,
    trackers: Sequence[Tracker] = (),
    say: Callable[[str], None] = log.warning,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Result:
    """Do what `coteach run` does; in a script that torchrun has started, together with the other processes.

    Parameters
    ----------
    experiment : Experiment
    dataset : Dataset, optional
        Instead of the one the experiment names: `coteach.Dataset.from_arrays(x, y, x_test, y_test)`, or
        `coteach.Dataset.from_samples(train, test)` of what is not an array or does not fit into memory.
    view : callable, optional
        (x_RB…, N) → x_NRB…: what each of the N networks sees of a sample, for Co-training on views of your own.
    trackers : sequence of Tracker
        Told of every epoch, such as `TensorBoard()`; one that fails is left out, and the run goes on.
    say : callable
        Takes each line that the user should read; logged as a warning unless given.
    on_epoch : callable
        Called after every epoch, for a progress bar; of several processes in the first only.

    Returns
    -------
    result : Result

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     experiment = coteach.Experiment(method="coteaching", epochs=2, out=f"{folder}/run")
    ...     result = coteach.run(experiment, say=lambda line: None)
    >>> len(result.rows), result.rows[0]["epoch"], result.summary["method"]
    (2, 1, 'coteaching')
    """
    if isinstance(experiment, Experiment) and experiment.resume is not None:
        experiment = stored_experiment(experiment)
    return run_stack([experiment], dataset, view, trackers, say, on_epoch, alone=True)[0]


def run_together(
    experiments: list[Experiment],
    dataset: Dataset | None = None,
    *,
    view: View | None = None,
    trackers: Sequence[Tracker] = (),
    say: Callable[[str], None] = log.warning,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> list[Result]:
    """Run experiments that share data set, network and method as one stack; each fills its own folder.

    Those that have `resume` and `out` set to the folders of an earlier call, which was stopped, go on.

    Parameters
    ----------
    experiments : list of Experiment
        They may differ in noise, rate, τ, seeds and folder.
    dataset, view, trackers, say, on_epoch
        As `run` has them; trackers follow one experiment only.

    Returns
    -------
    list of Result
        In the order of the experiments.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     both = [coteach.Experiment(rate=r, epochs=2, out=f"{folder}/{r}") for r in (0.2, 0.5)]
    ...     [result.summary["rate"] for result in coteach.run_together(both, say=lambda line: None)]
    [0.2, 0.5]
    """
    return run_stack(experiments, dataset, view, trackers, say, on_epoch, alone=False)


def run_stack(
    experiments: list[Experiment],
    dataset: Dataset | None,
    view: View | None,
    trackers: Sequence[Tracker],
    say: Callable[[str], None],
    on_epoch: Callable[[Epoch], None],
    *,
    alone: bool,
) -> list[Result]:
    """As `run_together`; an experiment that runs `alone` may be gone on with by `coteach run --resume`."""
    experiments = compatible(experiments, dataset)
    if trackers and len(experiments) > 1:
        raise ValueError("trackers follow one experiment: run it alone.")
    prepared = prepare(experiments, dataset, view)
    team = prepared.team
    if not team.leads:  # it writes nothing and says nothing: it is told what the first one does
        say, on_epoch = lambda line: None, lambda epoch: None
    for line in prepared.notes:
        say(line)
    folders = [
        Path(folder) for folder in team.told(lambda: [str(e.resume or files.claim(e)) for e in experiments])
    ]
    with ExitStack() as until_done:
        for folder in folders if team.leads else ():
            until_done.enter_context(locked(folder))
        until_done.enter_context(told_of_the_lost(folders[0]))
        again = f"`{files.resuming(folders[0], experiments[0].data_dir)}`" if alone else "the same command"
        until_done.enter_context(told_how_to_go_on(folders[0], again, say))
        until_done.enter_context(setup.torch_set(prepared.threads, experiments[0].deterministic, prepared.device))
        until_done.enter_context(prepared.engine.precision.set())
        followed = until_done.enter_context(Followed(trackers if team.leads else (), folders[0], say))

        def after(epoch: Epoch) -> None:
            followed.after(epoch)
            on_epoch(epoch)

        progress = train(prepared, folders, say, after)
        results = [
            finish(prepared, progress, i, experiment, folder)
            for i, (experiment, folder) in enumerate(zip(experiments, folders, strict=True))
        ]
        followed.summary = results[0].summary
        return results


def train(
    p: Prepared, folders: list[Path], say: Callable[[str], None], on_epoch: Callable[[Epoch], None]
) -> Standing:
    """All runs of a stack, in groups that fit the memory of the device."""
    fitting = p.group or fitting_group(p.problem, p.method, p.plan, p.build, p.engine, p.view)
    group_size = p.team.least(fitting)
    progress = Progress(p, folders, group_size, say) if p.team.leads else Standing()
    if p.team.size > 1:
        refuse_different(p.team, progress.configs if isinstance(progress, Progress) else p.configs(group_size))
        progress.share(p.team)

    def train_group(group: range) -> Training:
        def after(epoch: Epoch) -> None:
            progress.after_epoch(epoch, group)
            on_epoch(epoch)

        since = progress.take_since()
        part = p.problem.part(group)
        with told_of_memory(p.team.size):
            return fit(
                part,
                p.method,
                p.plan,
                p.build,
                engine=p.engine,
                view=p.view,
                team=p.team,
                ledger=p.experiments[0].ledger and not p.method.in_rounds,
                since=since,
                on_epoch=after,
            )

    in_groups(progress.waiting, train_group, progress.after_group, progress.after_halving)
    return progress


@contextmanager
def told_of_memory(processes: int) -> Iterator[None]:
    """One process alone goes on with fewer runs at a time; of several, all would have to at once."""
    try:
        yield
    except RuntimeError as error:
        if processes > 1 and out_of_memory(error):
            raise ValueError(
                "the runs do not fit into memory together: begin anew with a smaller --group."
            ) from error
        raise


@contextmanager
def told_of_the_lost(folder: Path) -> Iterator[None]:
    try:
        yield
    except ProcessLost as lost:
        raise ValueError(f"{lost} The same command with `--resume {folder}` goes on.") from lost


def finish(p: Prepared, progress: Standing, i: int, experiment: Experiment, folder: Path) -> Result:
    def end() -> tuple[list[dict], dict[str, Any]]:
        assert isinstance(progress, Progress)
        rows = progress.record.rows[i]
        summary = {"dataset": p.dataset.name}
        summary |= summarise(experiment, p.plan, rows, p.draws[i], p.device, progress.seconds)
        files.write_summary(folder, summary)
        if i == len(p.experiments) - 1:  # until then the stack goes on together
            progress.checkpoints.remove()
        return rows, summary

    rows, summary = p.team.told(end)
    return Result(folder, rows, summary, p.method.networks, p.build, p.device)


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
        if experiment.resume is None:
            files.refuse_if_taken(experiment.out, experiment.data_dir)
        if differing := differing_fields(experiments[0], experiment) - MAY_DIFFER:
            raise ValueError(f"experiments that run together must have the same {', '.join(sorted(differing))}.")
    if dataset is None and len({repr(setup.dataset_options(experiment)) for experiment in experiments}) > 1:
        raise ValueError("open-sets of another rate or noise_seed are other images: run them one by one.")
    if len({experiment.resume is None for experiment in experiments}) > 1:
        raise ValueError("experiments that run together go on together: set resume in all of them, or in none.")
    outs = [experiment.out for experiment in experiments if experiment.out is not None]
    if len(set(outs)) < len(outs):
        raise ValueError("two experiments have the same out: give each a folder of its own.")
    return experiments
