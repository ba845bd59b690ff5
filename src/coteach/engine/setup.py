"""Where and how a training runs, where the user has not said: device, precision, stacking, threads, placing.

Fixed rules, whose answers go into config.toml. Each number below was measured; benchmarks/README.md says how.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from coteach.data.base import Rows, Samples
from coteach.engine import Engine
from coteach.engine.distributed import world_size
from coteach.engine.pooling import pooled_convolution, pools_every_convolution
from coteach.engine.precision import Precision, cpu_multiplies_in_half
from coteach.engine.stack import batches_well
from coteach.engine.stream import Stream
from coteach.isolation import one_at_a_time
from coteach.methods import Method
from coteach.plan import Plan

# Operations of a step of one dense network below which a CPU is faster with all networks in one batched call.
SMALL_NETWORK_STEP = 3e7
# Operations of a step of all networks below which a second CPU thread costs more than it saves.
SMALL_STEP = 1e8
# Parameters up to which a GPU is faster with many convolutional networks as one grouped convolution.
SMALL_CONVOLUTIONS = 250_000
# A compilation of half a minute pays from this many steps of a training on, however small they are …
MANY_STEPS = 50_000
# … and from this many updates of single parameters, where each step is large.
MANY_UPDATES = 1.5e11


@dataclass(frozen=True)
class Options:
    """What a user may ask for, each "auto" unless given."""

    precision: str = "auto"
    stack: str = "auto"
    compile: str = "auto"
    deterministic: bool = False


AUTO = Options()


@dataclass(frozen=True)
class Setup:
    """Where and how a training runs."""

    device: str
    engine: Engine
    threads: int
    deterministic: bool = False

    @contextmanager
    def active(self) -> Iterator[None]:
        """torch's global settings inside the block, and its current GPU; then as they were before."""
        with one_at_a_time(), self._switched():
            yield

    @contextmanager
    def _switched(self) -> Iterator[None]:
        if self.deterministic:  # cuBLAS asks for this before its first product
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
        torch.set_num_threads(self.threads)
        if self.deterministic:
            torch.use_deterministic_algorithms(True)
        try:
            with (
                torch.inference_mode(False),
                torch.enable_grad(),
                current(self.device),
                self.engine.precision.set(),
            ):
                yield
        finally:
            torch.set_num_threads(before[0])
            torch.set_deterministic_debug_mode(before[1])


def set_up(
    network: nn.Module,
    runs: int,
    method: Method,
    plan: Plan,
    samples: int,
    device: str,
    options: Options = AUTO,
) -> Setup:
    """The setup of `runs` runs of a method, each of which trains such networks on so many samples."""
    networks = method.networks * runs
    engine = choose_engine(network, networks, method, plan, samples, device, options)
    return Setup(device, engine, choose_threads(network, networks, plan), options.deterministic)


# ---- device ---------------------------------------------------------------------------------------------------


def chosen_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return name
    if not isinstance(name, str) or not re.fullmatch(r"cuda(:\d+)?", name):
        raise ValueError(f"there is no device {name!r}: take auto, cpu, cuda or cuda:0.")
    if not torch.cuda.is_available() or int(name[5:] or 0) >= torch.cuda.device_count():
        raise ValueError(f"device is {name} but torch sees {torch.cuda.device_count()} GPUs: take cpu, or auto.")
    return name


def own_device(name: str) -> str:
    """The device that is asked for; of several processes on GPUs each takes its own, and calls it `cuda`."""
    name = chosen_device(name)
    if world_size() == 1 or name == "cpu":
        return name
    if name != "cuda":
        raise ValueError(f"device is {name}, but each process takes a GPU of its own: give cuda, cpu or auto.")
    local = int(os.environ.get("LOCAL_RANK", "-1"))  # else the caller has chosen
    if local >= torch.cuda.device_count():
        raise ValueError(
            f"there are more processes than the {torch.cuda.device_count()} GPUs of this machine: "
            "start one for each GPU, or give --device cpu."
        )
    if local >= 0:
        torch.cuda.set_device(local)
    return name


def current(device: str) -> AbstractContextManager:
    """Streams, graphs and Triton's kernels are those of the current GPU, wherever their tensors lie."""
    return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()


def hardware(device: str) -> str:
    """The processor or GPU in words, and how many processes share the work."""
    n = world_size()
    if device.startswith("cuda"):
        return f"{n} × " * (n > 1) + torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return f"{n} processes on " * (n > 1) + f"{name}, {os.cpu_count()} cores"


# ---- engine and threads ---------------------------------------------------------------------------------------


def choose_engine(
    network: nn.Module,
    networks: int,
    method: Method,
    plan: Plan,
    samples: int,
    device: str,
    options: Options = AUTO,
) -> Engine:
    """The engine of a group of `networks` in all, that is N × R."""
    on_gpu = device.startswith("cuda")
    captured = on_gpu and plan.capturable
    if options.compile == "yes" and not on_gpu:
        raise ValueError("compile is yes, but on a CPU it makes steps slower: leave --compile out.")
    precision = choose_precision(options.precision, network, on_gpu)
    if method.in_rounds:
        if options.stack == "batched" or options.compile == "yes":
            raise ValueError(
                f"{method.name} can be neither batched nor compiled: leave --stack and --compile out."
            )
        return Engine(batched=False, precision=precision, captured=captured)
    tf32 = on_gpu and precision is Precision.TF32
    pooled = tf32 and pools_every_convolution(network) and kernels_run(device)
    alone = 1 if pooled else 2  # so few convolutional networks are faster one after the other
    batched = {"auto": goes_batched(network, networks > alone, plan, on_gpu), "batched": True, "loop": False}
    steps = plan.epochs * plan.steps(samples)
    long = steps >= MANY_STEPS or steps * networks * parameters(network) >= MANY_UPDATES
    pays = on_gpu and long and not options.deterministic and can_compile()
    return Engine(
        batched=batched[options.stack],
        precision=precision,
        compiled={"auto": pays, "yes": True, "no": False}[options.compile],
        captured=captured,
        pooled=tf32 and batched[options.stack] and kernels_run(device),
    )


def goes_batched(network: nn.Module, several: bool, plan: Plan, on_gpu: bool) -> bool:
    if on_gpu and has_convolutions(network):
        return several and parameters(network) <= SMALL_CONVOLUTIONS and not has_recurrence(network)
    small = on_gpu or dense_step(network, plan) < SMALL_NETWORK_STEP
    return batches_well(network) and small


def choose_precision(asked: str, network: nn.Module, on_gpu: bool) -> Precision:
    if asked != "auto":
        return Precision(asked)
    if getattr(network, "half_precision", False) and (on_gpu or cpu_multiplies_in_half()):
        return Precision.BF16
    return Precision.TF32 if on_gpu and has_convolutions(network) else Precision.FLOAT32


def choose_threads(network: nn.Module, networks: int, plan: Plan) -> int:
    """One thread for small steps, where handing work out costs more than it saves, else all of torch's."""
    small = not has_convolutions(network) and networks * dense_step(network, plan) < SMALL_STEP
    return 1 if small else torch.get_num_threads()


def dense_step(network: nn.Module, plan: Plan) -> float:
    """Operations of forward and backward of dense layers, for a batch of one network."""
    return 6 * parameters(network) * plan.batch_size


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def has_convolutions(network: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.conv._ConvNd) for m in network.modules())


def has_recurrence(network: nn.Module) -> bool:
    """What cannot be stacked by vmap at all."""
    return any(isinstance(m, nn.RNNBase) for m in network.modules())


@cache
def kernels_run(device: str) -> bool:
    """Whether Triton can build a kernel and start it there: it wants a compiler, Python's headers and TF32."""
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        with torch.cuda.device(device):
            pooled_convolution(*(torch.zeros(s, device=device) for s in ((1, 1, 1, 1), (1,), (1, 1, 2, 2))))
    except Exception:  # whatever goes wrong in a compiler: convolutions are done without it
        return False
    return True


def can_compile() -> bool:
    """Whether torch.compile has what it needs for a GPU: Triton, and a C compiler for its launchers."""
    return find_spec("triton") is not None and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


# ---- placing --------------------------------------------------------------------------------------------------


def placed(sets: list[torch.Tensor | Samples], device: str) -> list[torch.Tensor | Stream]:
    """Tensors go to the device if all of them fit there; else they are streamed to it, as other samples are."""
    total = sum(x.nbytes for x in sets if isinstance(x, torch.Tensor))
    if device == "cpu" or fits(total, free_memory(device)):
        return [x.to(device) if isinstance(x, torch.Tensor) else Stream(x, device) for x in sets]
    return [Stream(Rows(x) if isinstance(x, torch.Tensor) else x, device) for x in sets]


def fits(data_bytes: int, free_bytes: int) -> bool:
    """Half of a device's free memory is left to the networks and what they compute."""
    return 2 * data_bytes <= free_bytes


def free_memory(device: str) -> int:
    """Free bytes of a GPU, with what torch holds but does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


# ---- batches that a network cannot take -----------------------------------------------------------------------


def normalises_over_the_batch(network: nn.Module) -> bool:
    return any("BatchNorm" in type(m).__name__ for m in network.modules())


def refuse_small_batches(network: nn.Module, plan: Plan, processes: int = 1) -> None:
    """A mini-batch needs a sample for each process that shares it; two where batch norm takes a variance."""
    least = processes * (2 if normalises_over_the_batch(network) else 1)
    if plan.batch_size >= least:
        return
    if processes == 1:
        raise ValueError("batch_size is 1, but this network normalises over the batch: give at least 2.")
    raise ValueError(f"batch_size is {plan.batch_size}, which {processes} processes share: give at least {least}.")
