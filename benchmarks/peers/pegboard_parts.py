"""A local plugin: the workloads' data and networks as parts of Pegboard. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pegboard import Classes, Context, Dataset, DataSpec, Image, Model, Splits, Vector, hookimpl


@dataclass(frozen=True)
class Named:
    """A row of the table of workloads."""

    workload: str = "mlp"  # its name


def build_data(config: Named, context: Context) -> Splits:
    from clock import CLOCK
    from pegboard import Batch, Resident
    from torch import Tensor
    from workloads import WORKLOADS

    class Clocked(Resident):
        """Resident data; drawing a batch begins a step."""

        def gather(self, index: Tensor) -> Batch:
            CLOCK.tick()
            return super().gather(index)

        def to(self, device: str) -> Resident:
            return self if device == "cpu" else super().to(device)

    work = WORKLOADS[config.workload]
    x, y = work.data()
    spec = Vector(x.shape[1]) if x.ndim == 2 else Image(*x.shape[1:])
    return Splits(spec=DataSpec((spec,), Classes(work.classes)), train=Clocked([x], y))


def build_model(config: Named, context: Context) -> Any:
    from workloads import WORKLOADS

    network: Any = WORKLOADS[config.workload].network()
    return network.layers  # without the tick of its own


@hookimpl
def pegboard_datasets() -> list[Dataset[Named]]:
    return [Dataset("bench_data", Named, build_data)]


@hookimpl
def pegboard_models() -> list[Model[Named]]:
    return [Model("bench_model", Named, build_model)]
