"""How a step is run over and over: its parts as they are or compiled, the whole in a CUDA graph or not."""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from coteach.signals import Step

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
SIDE_STREAMS = 8


def uncompiled(part: Callable[..., Any]) -> Callable[..., Any]:
    return part


def compiled(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a step with its many small kernels fused into a few; as it is where the compiler fails."""
    function = torch.compile(part, dynamic=False)

    def call(*arguments: Any) -> Any:
        # a process may train many methods and shapes, each with a part of its own: torch's usual limit is 8
        with torch._dynamo.config.patch(
            recompile_limit=1000, accumulated_recompile_limit=1000, suppress_errors=True
        ):
            return function(*arguments)

    return call


def side_by_side(calls: Sequence[Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Each call on its input; on a GPU on streams of their own, where small kernels fill the gaps of others."""
    if not inputs[0].is_cuda or len(calls) == 1:
        return [call(x) for call, x in zip(calls, inputs, strict=True)]
    main = torch.cuda.current_stream()
    outputs = []
    for i, (call, x) in enumerate(zip(calls, inputs, strict=True)):
        stream = side_stream(i % SIDE_STREAMS, x.device)
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            outputs.append(call(x))
    for i in range(min(len(calls), SIDE_STREAMS)):
        main.wait_stream(side_stream(i, inputs[0].device))
    return outputs


@cache
def side_stream(i: int, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Captured:
    """A step as a CUDA graph: its kernels are recorded once, and then started all together.

    The first runs are the step as it is, so that libraries set themselves up outside of the recording. A step that
    cannot be recorded, because a network asks for a value in its middle, goes on as it is.
    """

    RUNS_BEFORE = 3

    def __init__(self, step: Step):
        self.step = step
        self.runs = 0
        # the same for all: every stream that ever multiplies keeps a workspace of 32 MiB for itself
        self.stream = side_stream(SIDE_STREAMS, torch.device("cuda", torch.cuda.current_device()))
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.runs == self.RUNS_BEFORE:
            self.graph = self._recorded()
        self.runs += 1
        if self.graph:
            self.graph.replay()
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.step()
        torch.cuda.current_stream().wait_stream(self.stream)

    def _recorded(self) -> torch.cuda.CUDAGraph | None:
        graph = torch.cuda.CUDAGraph()
        try:
            # other threads may go on using the device, for instance one that prefetches
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.step()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            warnings.warn(f"steps run uncaptured, and slower, on the GPU: {reason}", stacklevel=2)
            return None
        return graph
