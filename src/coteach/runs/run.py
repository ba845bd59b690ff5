"""Running experiments: data, noise, networks and method come together here, and the run folder is filled.

Experiments that differ only in noise, τ and seeds can run together, as one stack of networks.
"""

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coteach.data import Dataset
from coteach.engine import Engine
from coteach.engine.batches import View, same_view
from coteach.engine.distributed import ProcessLost
from coteach.engine.stream import closing_streams
from coteach.engine.training import Epoch, Problem, Training, start
from coteach.isolation import generators_restored
from coteach.iterative import fit_iterative
from coteach.measure import measure
from coteach.methods import Method
from coteach.networks.models import take_weights
from coteach.plan import Plan
from coteach.runs import folder as files
from coteach.runs.callbacks import TrackedRun, Tracker
from coteach.runs.checkpoint import advising_resume
from coteach.runs.experiment import Experiment, differing_fields
from coteach.runs.folder import locked, stored_experiment
from coteach.runs.prepare import Prepared, dataset_options, named_after, prepare
from coteach.runs.progress import Queue, RunProgress, networks_file, read_written, refuse_different, summarise_run
from coteach.train import fit, mini_batch

MAY_DIFFER = {"noise", "rate", "matrix", "labels", "noise_seed", "noise_stream", "tau", "seeds", "out", "resume"}

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
        """The n-th network of a seed as a plain torch module in evaluation mode; by default of the first seed."""
        seeds = self.summary["seeds"]
        if seed is not None and seed not in seeds:
            raise ValueError(f"there is no run with seed {seed}: give one of {', '.join(map(str, seeds))}.")
        if n not in range(self.networks):
            raise ValueError(f"there is no network {n}: give one of {', '.join(map(str, range(self.networks)))}.")
        path = networks_file(self.folder, seeds[0] if seed is None else seed)
        with generators_restored():
            networks = [self.build() for _ in range(self.networks)]
        take_weights(networks, read_written(path), path)
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
    """Do what `coteach run` does. In a script started by torchrun, the processes share the work.

    Parameters
    ----------
    experiment : Experiment
    dataset : Dataset, optional
        Your own data, instead of those that the experiment names: `Dataset.from_arrays(x, y, x_test, y_test)`, or
        `Dataset.from_samples(train, test)` for data that are no arrays or do not fit into memory.
    view : callable, optional
        (x_RB…, N) → x_NRB…: what each of the N networks sees of a sample, for Co-training on your own views.
    trackers : sequence of Tracker
        Called after every epoch, such as `TensorBoard()`; one that fails is left out, and the run continues.
    say : callable
        Called with each line that the user should read; by default these are logged as warnings.
    on_epoch : callable
        Called after every epoch, for a progress bar; with several processes only in the first.

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
    """Train experiments with the same data set, network and method together; each fills its own folder.

    To continue an earlier call that was stopped, set `resume` and `out` of each experiment to its folder.

    Parameters
    ----------
    experiments : list of Experiment
        They may differ in noise, rate, labels, τ, seeds and folder.
    dataset, view, trackers, say, on_epoch
        As for `run`; trackers follow only one experiment.

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
    processes = prepared.processes
    if not processes.is_leader:  # it writes nothing and says nothing
        say, on_epoch = lambda line: None, lambda epoch: None
    for line in prepared.notes:
        say(line)
    claimed = processes.broadcast(lambda: [str(opened(e)) for e in experiments])
    folders = [Path(folder) for folder in claimed]
    with ExitStack() as until_done:
        for folder in folders if processes.is_leader else ():
            until_done.enter_context(locked(folder))
            if experiments[0].resume is None:
                files.refuse_if_taken(folder)  # by another run, which was there a moment ago
        until_done.enter_context(naming_the_folder(folders[0]))
        again = f"`{files.resuming(folders[0], experiments[0].data_dir)}`" if alone else "the same command"
        until_done.enter_context(advising_resume(folders[0], again, say))
        until_done.enter_context(generators_restored(prepared.device))
        until_done.enter_context(prepared.setup.active())
        followed = until_done.enter_context(TrackedRun(trackers if processes.is_leader else (), folders[0], say))

        def after(epoch: Epoch) -> None:
            followed.after(epoch)
            on_epoch(epoch)

        progress = train_in_groups(prepared, folders, say, after)
        results = [
            finish(prepared, progress, i, experiment, folder)
            for i, (experiment, folder) in enumerate(zip(experiments, folders, strict=True))
        ]
        followed.summary = results[0].summary
        return results


def opened(experiment: Experiment) -> Path:
    """The folder to write to: a new one, or that of the run to go on with."""
    if experiment.resume is None:
        return files.claim(experiment)
    files.refuse_links(experiment.resume)
    return experiment.resume


def train_in_groups(
    p: Prepared, folders: list[Path], say: Callable[[str], None], on_epoch: Callable[[Epoch], None]
) -> Queue:
    """All runs of a stack, in groups that fit the memory of the device."""
    fitting = p.group or fitting_group(p.problem, p.method, p.plan, p.build, p.engine, p.view)
    group_size = p.processes.minimum(fitting)
    progress = RunProgress(p, folders, group_size, say) if p.processes.is_leader else Queue()
    if p.processes.size > 1:
        mine = progress.configs if isinstance(progress, RunProgress) else p.configs(group_size)
        refuse_different(p.processes, mine)
        progress.share(p.processes)

    def train_group(group: range) -> Training:
        problem, reference = p.problem.part(group), p.reference.part(group)
        torch.manual_seed(problem.seeds[0])  # for networks with dropout

        def after(epoch: Epoch) -> None:
            epoch = replace(epoch, rows=measure(epoch, reference))
            progress.after_epoch(epoch, group)
            on_epoch(epoch)

        if p.method.in_rounds:
            return fit_iterative(problem, p.plan, p.build, engine=p.engine, on_epoch=after)
        with refusing_to_halve(p.processes.size):
            return fit(
                problem,
                p.method,
                p.plan,
                p.build,
                engine=p.engine,
                view=p.view,
                processes=p.processes,
                ledger=p.experiments[0].ledger,
                resume_from=progress.take_state(),
                on_epoch=after,
            )

    with closing_streams(p.reference.x_test):
        in_groups(progress.waiting, train_group, progress.after_group, progress.after_halving)
    return progress


@contextmanager
def refusing_to_halve(processes: int) -> Iterator[None]:
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
def naming_the_folder(folder: Path) -> Iterator[None]:
    try:
        yield
    except ProcessLost as lost:
        raise ValueError(f"{lost} The same command with `--resume {folder}` goes on.") from lost


def finish(p: Prepared, progress: Queue, i: int, experiment: Experiment, folder: Path) -> Result:
    def end() -> tuple[list[dict], dict[str, Any]]:
        assert isinstance(progress, RunProgress)
        rows = progress.writer.rows[i]
        summary: dict[str, Any] = {"dataset": p.dataset.name}
        summary |= summarise_run(experiment, p.plan, rows, p.draws[i], folder, p.device, progress.seconds)
        summary["sha256"] = files.summary_digests(folder, summary)
        files.write_summary(folder, summary)
        if i == len(p.experiments) - 1:  # until then the stack goes on together
            progress.checkpoints.remove()
        return rows, summary

    rows, summary = p.processes.broadcast(end)
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
        experiments = [named_after(dataset, experiment) for experiment in experiments]
    for experiment in experiments:
        experiment.check()
        if experiment.resume is None:
            files.refuse_if_taken(experiment.out, experiment.data_dir)
        if differing := differing_fields(experiments[0], experiment) - MAY_DIFFER:
            raise ValueError(f"experiments that run together must have the same {', '.join(sorted(differing))}.")
    if dataset is None and len({repr(dataset_options(experiment)) for experiment in experiments}) > 1:
        raise ValueError("open-sets of another rate or noise_seed are other images: run them one by one.")
    if len({experiment.resume is None for experiment in experiments}) > 1:
        raise ValueError("experiments that run together go on together: set resume in all of them, or in none.")
    outs = [experiment.out for experiment in experiments if experiment.out is not None]
    if len(set(outs)) < len(outs):
        raise ValueError("two experiments have the same out: give each a folder of its own.")
    return experiments


# ---- groups of runs that fit into memory ----------------------------------------------------------------------


def in_groups(
    waiting: list[range],
    train: Callable[[range], Training],
    done: Callable[[range, Training], None],
    halved: Callable[[range], None],
) -> None:
    """Train the groups of runs that are waiting; one that runs out of memory is halved and begun again.

    A run is a function of its seed, so beginning again repeats it. The list is what still waits: a group is off it
    before `done` is called, and replaced there by its halves, as are those after it, before `halved` is.
    """
    while waiting:
        group = waiting[0]
        try:
            trained = train(group)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not out_of_memory(error) or len(group) == 1:
                raise
        else:
            waiting.remove(group)
            done(group, trained)
            del trained  # its memory is for the next
            continue
        free_cached_memory()  # outside of the except clause, whose traceback holds on to the tensors
        waiting[:] = [piece for g in waiting for piece in halves(g, len(group) // 2)]
        halved(group)


def halves(group: range, size: int) -> list[range]:
    return [group[i : i + size] for i in range(0, len(group), size)]


def out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the machine itself is out of memory; torch says the latter only in words."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def free_cached_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def fitting_group(
    problem: Problem,
    method: Method,
    plan: Plan,
    build: Callable[[], nn.Module],
    engine: Engine,
    view: View | None,
) -> int:
    """How many runs go into four fifths of a GPU's free memory, if each takes as much as one that is tried."""
    runs, device = len(problem.seeds), problem.y_RM.device
    if device.type == "cpu" or runs == 1:
        return runs
    free_cached_memory()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    engine = replace(engine, compiled=False)  # not for one step
    training = start(problem.part(range(1)), method.networks, plan, build, engine, view or same_view)
    training.clock.set_epoch(1)
    for _ in training.batches.deal(1):
        mini_batch(training, method.planned(plan)[0])()
        break
    taken = torch.cuda.max_memory_allocated(device) - before
    del training
    free_cached_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(runs, int(0.8 * free) // taken))
