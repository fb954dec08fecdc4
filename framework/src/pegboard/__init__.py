"""Pegboard: a small core that wires plugins into a training run.

Importing this package imports neither torch nor numpy; names that need torch load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .contracts import (
    Batch,
    Codec,
    Decoding,
    Metric,
    Objective,
    Player,
    Probe,
    Reference,
    RunInfo,
    Source,
    Splits,
    Table,
    Tracker,
)
from .deprecation import PegboardDeprecationWarning
from .errors import PegboardError
from .hookspecs import hookimpl
from .parts import (
    Context,
    Dataset,
    Facts,
    Ge,
    Gt,
    Le,
    Length,
    Lt,
    Matches,
    Model,
    ObjectivePart,
    Optimizer,
    Prefixed,
    ProbePart,
    Problem,
    Regularizer,
    Role,
    RoleName,
    SavedModel,
    Schedule,
    Site,
    Stage,
    TrackerPart,
)
from .regularizer import Stop, Trick
from .specs import (
    Asked,
    Bounds,
    Classes,
    DataSpec,
    EdgeFeatures,
    Edges,
    Image,
    Labels,
    Masked,
    Nodes,
    Points,
    Series,
    Span,
    Spec,
    Tokens,
    Values,
    Vector,
    Views,
    Voxels,
)
from .version import __version__

if TYPE_CHECKING:
    from .api import Run, load, plan, resume, train
    from .data import Graph, GraphSet, Ragged, Resident, Sequences, Stream, WholeGraph, cut_fold, sampled
    from .generation import beam_search, extend
    from .pegs import Peg

_LAZY = {
    "Graph": "data",
    "GraphSet": "data",
    "Peg": "pegs",
    "Ragged": "data",
    "Resident": "data",
    "Run": "api",
    "Sequences": "data",
    "Stream": "data",
    "WholeGraph": "data",
    "beam_search": "generation",
    "cut_fold": "data",
    "extend": "generation",
    "load": "api",
    "resume": "api",
    "plan": "api",
    "sampled": "data",
    "train": "api",
}

__all__ = [
    "Asked",
    "Batch",
    "Bounds",
    "Classes",
    "Codec",
    "Context",
    "DataSpec",
    "Dataset",
    "Decoding",
    "EdgeFeatures",
    "Edges",
    "Facts",
    "Ge",
    "Graph",
    "GraphSet",
    "Gt",
    "Image",
    "Labels",
    "Le",
    "Length",
    "Lt",
    "Masked",
    "Matches",
    "Metric",
    "Model",
    "Nodes",
    "Objective",
    "ObjectivePart",
    "Optimizer",
    "Peg",
    "PegboardDeprecationWarning",
    "PegboardError",
    "Player",
    "Points",
    "Prefixed",
    "Probe",
    "ProbePart",
    "Problem",
    "Ragged",
    "Reference",
    "Regularizer",
    "Resident",
    "Role",
    "RoleName",
    "Run",
    "RunInfo",
    "SavedModel",
    "Schedule",
    "Sequences",
    "Series",
    "Site",
    "Source",
    "Span",
    "Spec",
    "Splits",
    "Stage",
    "Stop",
    "Stream",
    "Table",
    "Tokens",
    "Tracker",
    "TrackerPart",
    "Trick",
    "Values",
    "Vector",
    "Views",
    "Voxels",
    "WholeGraph",
    "__version__",
    "beam_search",
    "cut_fold",
    "extend",
    "hookimpl",
    "load",
    "plan",
    "resume",
    "sampled",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pegboard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
