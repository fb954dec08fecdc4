"""A local plugin: the workloads' data and networks as parts of Pegboard. No torch at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pegboard import (
    Classes,
    Context,
    Dataset,
    DataSpec,
    Image,
    Model,
    Series,
    Splits,
    Tokens,
    Vector,
    hookimpl,
)


@dataclass(frozen=True)
class Named:
    """A row of the table of workloads."""

    workload: str = "mlp"  # its name


def build_data(config: Named, context: Context) -> Splits:
    from pegboard import Resident
    from workloads import WORKLOADS

    work = WORKLOADS[config.workload]
    x, y = work.data()
    source = Resident([x], y)
    if y.ndim == 2:
        symbols = max(work.classes, int(x.max()) + 1)  # nodes are more than their classes
        spec = DataSpec((Tokens(symbols, x.shape[1]),), Tokens(work.classes, y.shape[1]))
        return Splits(spec=spec, train=source)
    kind: Any = {2: Vector, 3: Series, 4: Image}[x.ndim]
    return Splits(spec=DataSpec((kind(*x.shape[1:]),), Classes(work.classes)), train=source)


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
