"""What `coteach bench` is asked for: its flags, and the defaults of Python callers. No torch here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from coteach import names
from coteach.data import DATASETS
from coteach.flags import flag
from coteach.runs.experiment import Precisions, Stacks

# The open-sets cost what cifar10 does on their network, and the plain loops do not train as they are trained.
BENCHED = tuple(name for name in DATASETS if not name.startswith("openset-"))


@dataclass(frozen=True)
class Bench:
    """Time an epoch against two plain loops, and against what the device could do."""

    dataset: Annotated[tuple[str, ...], flag("[NAME ...]", "mnist; on a GPU also cifar10")] = ()
    """Data sets; nothing is downloaded, a stand-in of the same shape takes the place of what is not there."""
    method: Annotated[str, flag("NAME", "coteaching_plus")] = "coteaching_plus"
    """Method; the plain loops train coteaching_plus, so that another has only the floor beside it."""
    runs: Annotated[tuple[int, ...], flag("N [N ...]", "1")] = (1,)
    """Runs that are trained together, a line of the table for each number."""
    epochs: Annotated[int, flag("N", "5")] = 5
    """Epochs to time, after those that warm up."""
    scaling: bool = False
    """Instead of the plain loops: the cost against samples, batch size and runs."""
    precision: Annotated[Precisions, flag("NAME", "as `coteach run` chooses")] = "auto"
    """Precision of our networks: float32, tf32 or bf16."""
    stack: Stacks = "auto"
    """All networks in one batched call, or one after the other; auto is as `coteach run` chooses."""
    json: bool = False
    """Print a JSON list, a line of the table each, and nothing else to stdout."""
    device: Annotated[str, flag("NAME", "auto, a GPU if there is one")] = "auto"
    """auto, cpu, cuda or cuda:1."""
    data_dir: Annotated[Path | None, flag("PATH", "$COTEACH_DATA, else the user's cache")] = None
    """Folder with the published data files."""

    def check(self) -> None:
        for name in self.dataset:
            names.check_name("data set to time", name, BENCHED)
        names.check_name("method", self.method, names.METHODS)
        if self.epochs < 1:
            raise ValueError(f"epochs is {self.epochs}: give at least 1 to time.")
        if not self.runs or min(self.runs) < 1:
            raise ValueError(f"runs are {self.runs}: give one or more numbers of at least 1.")
