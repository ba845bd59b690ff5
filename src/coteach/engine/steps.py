"""How a step is run over and over: as it is, or captured once as a CUDA graph and replayed."""

from collections.abc import Callable

import torch

Step = Callable[[], None]


class Captured:
    """A step as a CUDA graph: its kernels are recorded once, and then started all together.

    The first runs are the step as it is, so that libraries set themselves up outside of the recording.
    """

    RUNS_BEFORE = 3

    def __init__(self, step: Step):
        self.step = step
        self.runs = 0
        self.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()

    def __call__(self) -> None:
        if self.runs < self.RUNS_BEFORE:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step()
            torch.cuda.current_stream().wait_stream(self.stream)
        else:
            if self.runs == self.RUNS_BEFORE:
                # other threads may go on using the device, for instance one that prefetches
                with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                    self.step()
            self.graph.replay()
        self.runs += 1
