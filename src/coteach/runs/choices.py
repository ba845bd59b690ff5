"""How a training is to run, where the user has not said: fixed rules, whose answers go into config.toml.

Each number below was measured; benchmarks/README.md says how.
"""

import shutil
from functools import cache
from importlib.util import find_spec

import torch
from torch import nn

from coteach.engine import Engine
from coteach.engine.pooling import pooled_convolution, pools_every_convolution
from coteach.engine.precision import Precision
from coteach.engine.stack import batches_well
from coteach.methods import METHODS
from coteach.plan import Plan
from coteach.runs.experiment import Experiment

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


def choose_engine(
    experiment: Experiment, plan: Plan, network: nn.Module, networks: int, samples: int, device: str
) -> Engine:
    """The engine of a group of `networks` in all, that is N × R."""
    on_gpu = device.startswith("cuda")
    captured = on_gpu and plan.capturable
    if experiment.compile == "yes" and not on_gpu:
        raise ValueError("compile is yes, but on a CPU it makes steps slower: leave --compile out.")
    if METHODS[experiment.method].in_rounds:
        if experiment.stack == "batched" or experiment.compile == "yes":
            raise ValueError(
                f"{experiment.method} can be neither batched nor compiled: leave --stack and --compile out."
            )
        return Engine(batched=False, precision=choose_precision(experiment, network, on_gpu), captured=captured)
    precision = choose_precision(experiment, network, on_gpu)
    tf32 = on_gpu and precision is Precision.TF32
    pooled = tf32 and pools_every_convolution(network) and kernels_run(device)
    alone = 1 if pooled else 2  # so few convolutional networks are faster one after the other
    batched = {"auto": goes_batched(network, networks > alone, plan, on_gpu), "batched": True, "loop": False}
    steps = plan.epochs * plan.steps(samples)
    long = steps >= MANY_STEPS or steps * networks * parameters(network) >= MANY_UPDATES
    pays = on_gpu and long and not experiment.deterministic and can_compile()
    return Engine(
        batched=batched[experiment.stack],
        precision=precision,
        compiled={"auto": pays, "yes": True, "no": False}[experiment.compile],
        captured=captured,
        pooled=tf32 and batched[experiment.stack] and kernels_run(device),
    )


def goes_batched(network: nn.Module, several: bool, plan: Plan, on_gpu: bool) -> bool:
    if on_gpu and has_convolutions(network):
        return several and parameters(network) <= SMALL_CONVOLUTIONS and not has_recurrence(network)
    small = on_gpu or dense_step(network, plan) < SMALL_NETWORK_STEP
    return batches_well(network) and small


def choose_precision(experiment: Experiment, network: nn.Module, on_gpu: bool) -> Precision:
    if experiment.precision != "auto":
        return Precision(experiment.precision)
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
