"""What the processes of test_distributed.py do, and a program that starts them.

On its standard input are lines of JSON: how many processes, one of the functions below, its arguments, and a
folder for what they print; it answers each with the exit codes. Processes are forked from a parent that has loaded
all they need but never used it, to save their loading it.
"""

import json
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import sklearn.datasets
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from coteach.augment import CROP_DRAWS, Augment, random_crop_flip, unit_range
from coteach.cli import run as command
from coteach.data.base import Rows
from coteach.engine import Engine
from coteach.engine.distributed import Processes, join
from coteach.engine.stream import Stream
from coteach.engine.training import Epoch, state_of
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs import checkpoint
from coteach.train import fit
from killed import die_at
from tiny import BY_RULE, EVERYTHING, FIDELITIES, PLAN, C, Known, mlp, normed, pictured, pictures, problem

LOADED = sklearn.datasets, command
SOON = 100  # seconds; a process that does not notice the end of another would wait for ten minutes
UNEVEN = replace(PLAN, epochs=4, warmup=1, ramp=2, batch_size=17)  # in parts of 8 and 9, or 4, 4, 4 and 5


def few() -> Known:
    return problem(n=40, runs=2)


@dataclass(frozen=True)
class Case:
    name: str
    method: str
    plan: Plan = UNEVEN
    problem: Callable[[], Known] = few
    build: Callable[[], nn.Module] = mlp
    batched: bool | None = None
    ledger: bool = False


def images() -> Known:
    p = few()
    shift = Augment(CROP_DRAWS, train=lambda x, u: random_crop_flip(x, u, padding=1), test=unit_range, size=4)
    return replace(p, x_M=p.x_M.view(-1, 1, 2, 4), x_test=p.x_test.view(-1, 1, 2, 4), augment=shift)


def flat_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), *mlp())


def streamed() -> Known:
    p = images()
    return replace(p, x_M=Stream(Rows(p.x_M), "cpu"), x_test=Stream(Rows(p.x_test), "cpu"))


def poisoned() -> Known:
    """One sample is not finite: whoever has it in its part, all networks sit the batch out in all processes."""
    p = few()
    x_M = p.x_M.clone()
    x_M[7] = torch.inf
    return replace(p, x_M=x_M)


def cases() -> Iterator[Case]:
    for fidelity, switches in FIDELITIES.items():
        for method in (name for name in BY_RULE if name != "dividemix"):  # which needs all samples in one place
            yield Case(f"{method} {fidelity}", method, replace(UNEVEN, fidelity=switches))
    short = replace(UNEVEN, epochs=2)
    plus = "coteaching_plus"
    yield Case("looped", plus, short, batched=False, ledger=True)
    yield Case("weight decay", "jocor", replace(short, weight_decay=1e-3), ledger=True)
    yield Case("per class", "coteaching", replace(short, keep_per_class=True))
    yield Case("augmented", plus, short, images, flat_mlp)
    yield Case("streamed", plus, short, streamed, flat_mlp)
    yield Case("poisoned", "coteaching", short, poisoned)
    yield Case("fewer than processes", "coteaching", replace(short, batch_size=3))
    unmixed = replace(EVERYTHING, epochs=2, warmup=1, ramp=2, batch_size=17, mixup=0.0)
    for method in ("coteaching", "jocor", "cotraining"):
        yield Case(f"modern {method}", method, unmixed, modern, flat_pictured)
    yield Case("modern streamed", plus, unmixed, modern_streamed, flat_pictured, batched=False)
    yield Case("normed and modern", plus, unmixed, modern, pictured)
    yield Case("normed", plus, short, build=normed)
    yield Case("normed and still", "standard", replace(short, batch_size=20, lr=0.0), build=normed)


def modern() -> Known:
    return pictures(n=40, runs=2)


def modern_streamed() -> Known:
    p = modern()
    return replace(p, x_M=Stream(Rows(p.x_M), "cpu"), x_test=Stream(Rows(p.x_test), "cpu"))


def flat_pictured() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(60, 8), nn.Tanh(), nn.Linear(8, C))


def trained(case: Case, processes: Processes) -> dict[str, Tensor]:
    """The picks of every step, the rows as text, and all that was learnt."""
    picks: list[Tensor] = []
    rows: list[list[dict]] = []

    def after(epoch: Epoch) -> None:
        picks.append(epoch.training.records.learnt_SNRB.clone())
        rows.append(p.rows(epoch))

    p = case.problem()
    training = fit(p, METHODS[case.method], case.plan, case.build, processes=processes, ledger=case.ledger,
                   engine=Engine(torch.float64, case.batched), on_epoch=after)  # fmt: skip
    text = torch.tensor(list(json.dumps(rows).encode()), dtype=torch.uint8)
    state = {name: t.detach().clone() for name, t in state_of(training).items() if not name.startswith("gen")}
    return {"picks": torch.stack(picks), "rows": text, **state}


def all_trained(processes: Processes) -> dict[str, Tensor]:
    return {f"{case.name}/{key}": t for case in cases() for key, t in trained(case, processes).items()}


# ---- what a process is asked to do ----------------------------------------------------------------------------


def fits(folder: str) -> None:
    """Train every case and write what came of it."""
    processes = join("cpu")
    assert join("cpu").size == processes.size  # the group is there already, and is left alone
    save_file(all_trained(processes), Path(folder) / f"{processes.rank}.safetensors")


def command(*arguments: str) -> None:
    sys.argv[1:] = arguments
    runpy.run_module("coteach", run_name="__main__")


def dying(step: str, *arguments: str) -> None:
    """The same, but the second process kills itself at a step."""
    checkpoint.COST = 1e9  # keep every epoch, however short
    if os.environ["RANK"] == "1":
        die_at("step", int(step))
    command(*arguments)


def example(path: str, *arguments: str) -> None:
    sys.argv[1:] = arguments
    runpy.run_path(path, run_name="__main__")


# ---- processes ------------------------------------------------------------------------------------------------


def together(size: int, what: str, arguments: list[str], folder: Path) -> list[int]:
    """The exit codes of as many processes, told of each other as torchrun does it; their words are in files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            signal.alarm(SOON)
            told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": size, "RANK": rank}
            os.environ |= {name: str(value) for name, value in told.items()}
            for stream in ("out", "err"):
                number = os.open(folder / f"{rank}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(number, {"out": 1, "err": 2}[stream])
            _work(globals()[what], arguments)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def _work(what: Callable, arguments: list[str]) -> NoReturn:
    code = 0
    try:
        what(*arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        size, what, arguments, folder = json.loads(line)
        print(json.dumps(together(size, what, arguments, Path(folder))), flush=True)
