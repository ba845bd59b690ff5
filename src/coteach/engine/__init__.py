"""How a training runs fast: where the data lie, what is batched, captured, compiled, and in which precision."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import torch

from coteach.engine.precision import Precision
from coteach.engine.steps import Compiler, compiled, uncompiled


@dataclass(frozen=True)
class Engine:
    """How a training runs. Apart from `dtype` and `precision` nothing here changes a result beyond round-off.

    Attributes
    ----------
    batched : bool, optional
        All networks in one batched call, or one after the other; by the kind of network unless given.
    compiled : bool
        The many small kernels of a step fused into a few by torch.compile, which takes half a minute.
    captured : bool
        Each phase's step as a CUDA graph, so that the host only says "again".
    pooled : bool
        In a batched call on a GPU, convolution, ReLU and max-pool as one kernel in TF32, where it can do them.
    """

    dtype: torch.dtype = torch.float32
    batched: bool | None = None
    precision: Precision = Precision.FLOAT32
    compiled: bool = False
    captured: bool = False
    pooled: bool = False

    @property
    def compiler(self) -> Compiler:
        return compiled if self.compiled else uncompiled

    def table(self) -> dict[str, Any]:
        """As files have it; the numbers are always float32 there."""
        flags = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("dtype", "precision")}
        return {"precision": self.precision.value} | flags

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Reads a table, also one from before `pooled`. A damaged one raises a KeyError or ValueError."""
        return cls(
            batched=bool(table["batched"]),
            precision=Precision(table["precision"]),
            compiled=bool(table["compiled"]),
            captured=bool(table["captured"]),
            pooled=bool(table.get("pooled", False)),
        )


PLAIN_ENGINE = Engine()
