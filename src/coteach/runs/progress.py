"""How far the runs of a stack are: in memory, in their folders, and in the checkpoint between the two."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from coteach.engine.distributed import Team
from coteach.engine.state import State, state_of
from coteach.files import remove_unfinished
from coteach.runs import checkpoint
from coteach.runs import folder as files
from coteach.runs.prepare import Prepared
from coteach.runs.record import Record
from coteach.train import Epoch, Training


class Standing:
    """The groups of runs that wait, and where the first of these stands: all that a process needs to compute."""

    def __init__(self) -> None:
        self.waiting: list[range] = []
        self.since: State | None = None

    def take_since(self) -> State | None:
        """Where the first waiting group goes on from; asked a second time, it begins anew."""
        since, self.since = self.since, None
        return since

    def share(self, team: Team) -> None:
        """Every process of a team stands where the leading one does."""
        if team.size == 1:
            return
        since = self.since
        groups, at = team.told(
            lambda: [[[g.start, g.stop] for g in self.waiting], since and [since.phase, since.epoch]]
        )
        self.waiting = [range(*group) for group in groups]
        if at:
            phase, epoch = at
            self.since = State(phase, epoch, load(team.handed(save(dict(since.tensors)) if since else b"")))

    def after_epoch(self, epoch: Epoch, group: range) -> None:
        pass

    def after_group(self, group: range, training: Training) -> None:
        pass

    def after_halving(self, group: range) -> None:
        pass


class Progress(Standing):
    """The groups of runs that are finished as well, in memory, in the folders and in the checkpoint."""

    def __init__(self, prepared: Prepared, folders: list[Path], group: int, say: Callable[[str], None]):
        super().__init__()
        runs = len(prepared.problem.seeds)
        configs = self.configs = prepared.configs(group)
        self.resumable = not prepared.method.in_rounds  # what rounds have judged is not kept
        self.checkpoints = checkpoint.Checkpoints(folders, configs[0])
        self.finished: list[range] = []
        self.waiting = [range(i, min(i + group, runs)) for i in range(0, runs, group)]
        halved, seconds = [0] * runs, 0.0
        if prepared.experiments[0].resume:
            kept = reopened(folders, configs)
            if kept:
                self.finished, self.waiting, self.since = kept.finished, kept.waiting, kept.state
                halved, seconds = kept.halved, kept.seconds
                say(f"going on {where(kept)}")
        else:
            for folder, config in zip(folders, configs, strict=True):
                remove_unfinished(folder)
                files.write_config(folder, config)
        for folder, draw in zip(folders, prepared.draws, strict=True):
            if not (folder / "noise.safetensors").exists():
                draw.save(folder / "noise.safetensors")
        self.record = Record(prepared.experiments, folders, say, halved)
        self.started = time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        """That the runs have taken, those before an interruption included."""
        return time.perf_counter() - self.started

    def after_epoch(self, epoch: Epoch, group: range) -> None:
        self.record.write(epoch, group)
        if self.resumable and self.checkpoints.due():
            self._keep((epoch.phase, epoch.number), epoch)

    def after_group(self, group: range, training: Training) -> None:
        """Its networks are written; then it is done with."""
        self.record.keep(training, group)
        self.finished.append(group)
        self._keep()

    def after_halving(self, group: range) -> None:
        self.record.begin_again(group)
        self._keep()

    def _keep(self, at: tuple[int, int] | None = None, epoch: Epoch | None = None) -> None:
        tensors = state_of(epoch.training) if epoch else None
        self.checkpoints.write(self.finished, self.waiting, self.record.halved, self.seconds, at, tensors)


def reopened(folders: list[Path], configs: list[dict[str, Any]]) -> checkpoint.Checkpoint | None:
    """The checkpoint of a stack that was stopped, if all is as it was; what came after it is cut off."""
    kept = checkpoint.read(folders[0])
    for folder, config in zip(folders, configs, strict=True):
        checkpoint.refuse_other(files.read_config(folder), config, folder)
    if kept:
        checkpoint.refuse_other(kept.config, configs[0], folders[0])
    lengths = kept.lengths if kept else [dict.fromkeys(files.ROWS, 0)] * len(folders)
    for folder, length in zip(folders, lengths, strict=True):
        checkpoint.cut_back(folder, length)
        remove_unfinished(folder)
    return kept


def refuse_different(team: Team, configs: list[dict[str, Any]]) -> None:
    """The processes of a team must have been given the same, or their sums would mean nothing."""
    for theirs, mine in zip(team.told(lambda: files.plain(configs)), configs, strict=True):
        if found := checkpoint.difference(theirs, mine):
            name, first, here = found
            raise ValueError(
                f"process {team.rank} has {name} {here}, but the first has {first}: "
                "start all with the same command, data and versions."
            )


def where(kept: checkpoint.Checkpoint) -> str:
    done = sum(map(len, kept.finished))
    runs = f"{done} runs are finished; " if done else ""
    return runs + (f"after epoch {kept.state.epoch}" if kept.state else "with the next")
