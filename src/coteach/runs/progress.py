"""How far the runs of a stack are: in memory, in their folders, and in the checkpoint between the two."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from safetensors.torch import load, load_file, save

from coteach.engine.distributed import Processes
from coteach.engine.setup import hardware
from coteach.engine.training import Epoch, State, Training, state_of
from coteach.files import remove_unfinished, write_atomically
from coteach.labels.ledger import average_precision
from coteach.measure import loss_histograms
from coteach.names import EVENTS
from coteach.networks.models import weights_of
from coteach.noise import Noise
from coteach.plan import Plan
from coteach.runs import checkpoint
from coteach.runs import folder as files
from coteach.runs.experiment import Experiment
from coteach.runs.folder import last_ten
from coteach.runs.prepare import Prepared, truth_is_known
from coteach.tensor_files import refuse_damaged, tensors_as_bytes

NOISE_NAME = "noise.safetensors"


class Queue:
    """The groups of runs that wait, and where the first of these stands: all that a process needs to compute."""

    def __init__(self) -> None:
        self.waiting: list[range] = []
        self.resume_from: State | None = None

    def take_state(self) -> State | None:
        """Where the first waiting group goes on from; asked a second time, it begins anew."""
        state, self.resume_from = self.resume_from, None
        return state

    def share(self, processes: Processes) -> None:
        """Every process goes on where the leading one does."""
        if processes.size == 1:
            return
        state = self.resume_from
        groups, at = processes.broadcast(
            lambda: [[[g.start, g.stop] for g in self.waiting], state and [state.phase, state.epoch]]
        )
        self.waiting = [range(*group) for group in groups]
        if at:
            phase, epoch = at
            tensors = processes.broadcast_bytes(save(dict(state.tensors)) if state else b"")
            self.resume_from = State(phase, epoch, load(tensors))

    def after_epoch(self, epoch: Epoch, group: range) -> None:
        pass

    def after_group(self, group: range, training: Training) -> None:
        pass

    def after_halving(self, group: range) -> None:
        pass


class RunProgress(Queue):
    """The groups of runs that are finished as well, in memory, in the folders and in the checkpoint."""

    def __init__(self, prepared: Prepared, folders: list[Path], group: int, say: Callable[[str], None]):
        super().__init__()
        runs = len(prepared.problem.seeds)
        configs = self.configs = prepared.configs(group)
        self.resumable = not prepared.method.in_rounds  # what rounds have judged is not kept
        self.checkpoints = checkpoint.Checkpoints(folders, configs[0])
        self.finished: list[range] = []
        self.waiting = [range(i, min(i + group, runs)) for i in range(0, runs, group)]
        halved, seconds, kept = [0] * runs, 0.0, None
        if prepared.experiments[0].resume:
            kept = reopened(folders, configs, prepared)
            if kept:
                self.finished, self.waiting, self.resume_from = kept.finished, kept.waiting, kept.state
                halved, seconds = kept.halved, kept.seconds
                say(f"going on {resume_point(kept)}")
                if kept.code not in (None, checkpoint.code_digest()):
                    say("the code of coteach has changed since the checkpoint: what follows may be otherwise")
        else:
            for folder, config in zip(folders, configs, strict=True):
                remove_unfinished(folder)
                files.write_config(folder, config)
        for folder, draw in zip(folders, prepared.draws, strict=True):
            if not (folder / NOISE_NAME).exists():
                draw.save(folder / NOISE_NAME)
        clean_RM = prepared.reference.clean_RM
        if clean_RM is None:
            clean_RM = torch.ones_like(prepared.problem.y_RM, dtype=torch.bool)
        self.writer = Writer(prepared.experiments, folders, say, clean_RM, halved)
        self.started = time.perf_counter() - seconds
        if kept is None:
            self._keep()  # from now on a config.toml that was changed is noticed

    @property
    def seconds(self) -> float:
        """That the runs have taken, those before an interruption included."""
        return time.perf_counter() - self.started

    def after_epoch(self, epoch: Epoch, group: range) -> None:
        self.writer.write(epoch, group)
        if self.resumable and self.checkpoints.due():
            self._keep((epoch.position, epoch.number), epoch)

    def after_group(self, group: range, training: Training) -> None:
        """Its networks are written; then it is done with."""
        self.writer.keep(training, group)
        self.finished.append(group)
        self._keep()

    def after_halving(self, group: range) -> None:
        self.writer.begin_again(group)
        self._keep()

    def _keep(self, at: tuple[int, int] | None = None, epoch: Epoch | None = None) -> None:
        tensors = state_of(epoch.training) if epoch else None
        self.checkpoints.write(self.finished, self.waiting, self.writer.halved, self.seconds, at, tensors)


def reopened(
    folders: list[Path], configs: list[dict[str, Any]], prepared: Prepared
) -> checkpoint.Checkpoint | None:
    """The checkpoint of a stack that was stopped, if all is as it was; what came after it is cut off.

    Everything is checked before anything is changed.
    """
    kept = checkpoint.read_checkpoint(folders[0])
    for folder, config in zip(folders, configs, strict=True):
        checkpoint.refuse_other(files.read_config(folder), config, folder)
    if kept:
        checkpoint.refuse_other(kept.config, configs[0], folders[0])
    for folder, draw in zip(folders, prepared.draws, strict=True):
        refuse_other_noise(folder / NOISE_NAME, draw)
    lengths = kept.lengths if kept else [dict.fromkeys(files.ROWS, 0)] * len(folders)
    digests = kept.digests if kept and kept.digests else [{}] * len(folders)
    for folder, length, digest in zip(folders, lengths, digests, strict=True):
        checkpoint.refuse_lost_rows(folder, length, digest)
    refuse_lost_networks(kept, folders, prepared)
    for folder, length in zip(folders, lengths, strict=True):
        checkpoint.cut_back(folder, length)
        remove_unfinished(folder)
    return kept


def refuse_other_noise(path: Path, draw: Noise) -> None:
    """The file must hold the labels of this run, or there is none yet."""
    if not path.exists():
        return
    try:
        same = Noise.load(path).sha256 == draw.sha256
    except ValueError as error:
        raise files.NotResumable(f"{path} is damaged: remove it, and it is drawn again.") from error
    if not same:
        raise files.NotResumable(f"{path} is of another run: remove it, and it is drawn again.")


def refuse_lost_networks(kept: checkpoint.Checkpoint | None, folders: list[Path], prepared: Prepared) -> None:
    """The files of the runs that are finished must be there, and sound."""
    if kept is None:
        return
    told = kept.digests or [{}] * len(folders)
    stack = zip(folders, prepared.experiments, told, strict=True)
    runs = [(folder, seed, digests) for folder, e, digests in stack for seed in e.seeds]
    for folder, seed, digests in [runs[r] for group in kept.finished for r in group]:
        judged = prepared.experiments[0].ledger and not prepared.method.in_rounds
        opinions = [opinions_file(folder, seed)] if judged else []
        for path in (networks_file(folder, seed), *opinions):
            try:
                refuse_damaged(path)
                digest = digests.get(path.relative_to(folder).as_posix())
                if digest not in (None, checkpoint.sha256(path.read_bytes())):
                    raise ValueError("it is of another run")
            except (OSError, ValueError) as error:
                raise files.NotResumable(f"{path} is lost or damaged: begin anew in another folder.") from error


def refuse_different(processes: Processes, configs: list[dict[str, Any]]) -> None:
    """All processes must have been given the same, or their sums would mean nothing."""
    for theirs, mine in zip(processes.broadcast(lambda: files.plain(configs)), configs, strict=True):
        if found := checkpoint.difference(theirs, mine):
            name, first, here = found
            raise ValueError(
                f"process {processes.rank} has {name} {here}, but the first has {first}: "
                "start all with the same command, data and versions."
            )


def resume_point(kept: checkpoint.Checkpoint) -> str:
    done = sum(map(len, kept.finished))
    runs = f"{done} runs are finished; " if done else ""
    return runs + (f"after epoch {kept.state.epoch}" if kept.state else "with the next")


# ---- what a run leaves behind ---------------------------------------------------------------------------------


class Writer:
    """Writes the rows of a stack to the folders of its experiments, and says what went wrong, once each."""

    def __init__(
        self,
        experiments: list[Experiment],
        folders: list[Path],
        say: Callable[[str], None],
        clean_RM: torch.Tensor,  # all of them, where nobody knows
        halved: list[int] | None = None,
    ):
        self.folders, self.say, self.clean_RM = folders, say, clean_RM
        self.seeds = [seed for experiment in experiments for seed in experiment.seeds]  # of each run
        self.owners = [i for i, experiment in enumerate(experiments) for _ in experiment.seeds]  # of each run
        self.rows = [files.read_rows(folder / "metrics.jsonl") for folder in folders]
        self.reported: set[str] = set()
        self.halved = halved or [0] * len(self.owners)  # how often each run was begun again
        there = {(i, row["seed"]) for i, rows in enumerate(self.rows) for row in rows}
        self.begun = {run for run, i in enumerate(self.owners) if (i, self.seeds[run]) in there}

    def write(self, epoch: Epoch, group: range) -> None:
        """The rows of one epoch of the runs of a group."""
        name = "estimate.jsonl" if epoch.preliminary else "metrics.jsonl"
        if not epoch.preliminary:
            for run, row in zip(group, epoch.rows, strict=True):
                if self.halved[run] and run not in self.begun:
                    row["events"]["out_of_memory"] = self.halved[run]
            self.begun |= set(group)
        for i, folder in enumerate(self.folders):
            mine = [row for run, row in zip(group, epoch.rows, strict=True) if self.owners[run] == i]
            if not epoch.preliminary:
                self.rows[i] += mine
            files.append_rows(folder / name, mine)
        if epoch.in_ledger and not epoch.preliminary:
            self.write_losses(epoch, group)
        for row in epoch.rows:
            self.report(row)

    def write_losses(self, epoch: Epoch, group: range) -> None:
        """Histograms of the losses of one epoch, a row for each run."""
        training, clean_RM = epoch.training, self.clean_RM[group.start : group.stop]
        found = loss_histograms(training.records, training.batches.in_batch_order(clean_RM))
        for run, histograms in zip(group, found, strict=True):
            row = {"seed": self.seeds[run], "epoch": epoch.number, **histograms}
            files.append_rows(self.folders[self.owners[run]] / "losses.jsonl", [row])

    def begin_again(self, group: range) -> None:
        """A group ran out of memory: what was written of its runs is taken back, and the event counted."""
        self.say(f"{len(group)} runs together do not fit into memory: going on with {len(group) // 2} at a time")
        self.begun -= set(group)
        for run in group:
            self.halved[run] += 1
            i = self.owners[run]
            self.rows[i] = [row for row in self.rows[i] if row["seed"] != self.seeds[run]]
            for name in files.ROWS:
                files.drop_rows(self.folders[i] / name, self.seeds[run])

    def keep(self, training: Training, group: range) -> None:
        """The trained networks of each run of a group, and what they think of the labels: files of its own."""
        stack, ledger = training.stack, training.ledger
        quality_RM, suggested_RM = (ledger.quality(), ledger.suggestion()) if ledger else ([], [])
        for r, run in enumerate(group):
            folder, seed = self.folders[self.owners[run]], self.seeds[run]
            networks = [stack.network(n, r) for n in range(stack.shape[0])]
            write_tensors(networks_file(folder, seed), weights_of(networks))
            if ledger:
                quality_M, suggested_M = torch.from_numpy(quality_RM[r]).float(), torch.from_numpy(suggested_RM[r])
                write_tensors(opinions_file(folder, seed), {"quality": quality_M, "suggested": suggested_M})

    def report(self, row: dict) -> None:
        for event, count in row["events"].items():
            if event not in self.reported:
                self.reported.add(event)
                self.say(f"seed {row['seed']}, epoch {row['epoch']}: {event} × {count} ({EVENTS[event]})")


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, tensors_as_bytes(None, tensors))


def read_written(path: Path) -> dict[str, torch.Tensor]:
    """What `write_tensors` wrote, if it is still the same."""
    refuse_damaged(path)
    return load_file(path)


def networks_file(folder: Path, seed: int) -> Path:
    return folder / "networks" / f"seed-{seed}.safetensors"


def opinions_file(folder: Path, seed: int) -> Path:
    """The quality of each training label, and the likeliest other one."""
    return folder / "opinions" / f"seed-{seed}.safetensors"


def precisions_of_seeds(folder: Path, experiment: Experiment, draw: Noise) -> list[float | None]:
    """The average precision of finding wrong labels by the quality that the ledger gave them, for each seed.

    None where it cannot be said: no label is known to be wrong, or no ledger was kept. Nor is it said of an
    open-set, whose outside images have no right label.
    """
    if draw.kind == "openset":
        return [None] * len(experiment.seeds)
    paths = [opinions_file(folder, seed) for seed in experiment.seeds]
    return [
        average_precision(read_written(p)["quality"].numpy(), ~draw.clean) if p.exists() else None for p in paths
    ]


def summarise_run(
    experiment: Experiment, plan: Plan, rows: list[dict], draw: Noise, folder: Path, device: str, seconds: float
) -> dict[str, Any]:
    """One cell of a table: means over networks, the last ten epochs and the seeds, in percent.

    `last` is the accuracy of the networks' mean softmax after the last epoch. `average_precision` is a share.
    """
    by_seed = [[row for row in rows if row["seed"] == seed] for seed in experiment.seeds]
    means, maxima = zip(*(last_ten(one) for one in by_seed), strict=True)
    last = [row for one in by_seed for row in one[-10:]]
    precisions = [row["label_precision"] for row in last if row["label_precision"] is not None]
    events: dict[str, int] = {}
    for row in rows:
        for name, count in row["events"].items():
            events[name] = events.get(name, 0) + count
    n_networks = len(rows[0]["test_accuracy"])
    finals = [100 * one[-1]["ensemble_accuracy"] for one in by_seed]
    found = precisions_of_seeds(folder, experiment, draw)
    known = [precision for precision in found if precision is not None]
    return {
        "network": experiment.network_name,
        "method": experiment.method,
        "loss": experiment.loss,
        "warmup_loss": experiment.warmup_loss,
        "fidelity": str(experiment.parsed_fidelity),
        "noise": draw.kind,
        "rate": draw.nominal_rate,
        "realised_rate": draw.rate if truth_is_known(experiment, draw) else None,
        "noise_seed": experiment.noise_seed,
        "noise_sha256": draw.sha256,
        "epochs": plan.epochs,
        "seeds": list(experiment.seeds),
        "mean": 100 * fmean(means),
        "std": 100 * stdev(means) if len(means) > 1 else None,
        "max": 100 * fmean(maxima),
        "mean_per_seed": [100 * mean for mean in means],
        "mean_per_network": [100 * fmean(row["test_accuracy"][n] for row in last) for n in range(n_networks)],
        "ensemble": 100 * fmean(row["ensemble_accuracy"] for row in last),
        "last": fmean(finals),
        "last_per_seed": finals,
        "label_precision": 100 * fmean(precisions) if precisions else None,
        "average_precision": fmean(known) if known else None,
        "average_precision_per_seed": found,
        "events": events,
        "seconds": round(seconds, 2),
        "hardware": hardware(device),
        "torch": torch.__version__,
    }
