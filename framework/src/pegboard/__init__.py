"""Pegboard: a small core that wires plugins into a training run.

Importing this package imports neither torch nor numpy; names that need torch load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base.deprecation import PegboardDeprecationWarning, moved
from .base.errors import PegboardError
from .base.moved import MOVED as _MOVED
from .base.version import __version__
from .contract.hookspecs import hookimpl
from .contract.records import (
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
    Stepper,
    TrackerPart,
)
from .contract.results import (
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
from .contract.sampling import SampleMethod, SampleRequest
from .contract.specs import (
    Choices,
    Classes,
    DataSpec,
    Image,
    Labels,
    Points,
    Series,
    Spec,
    Tokens,
    Values,
    Vector,
    Views,
    Voxels,
)
from .contract.stepping import Stepping
from .contract.tricks import EvalWeights, Stop, Trick

if TYPE_CHECKING:
    from .data import Ragged, Resident, Sequences, Stream, cut_fold
    from .planning import pegs as pegs
    from .planning.pegs import Peg
    from .tools.api import Run, load, plan, resume, train

_LAZY = {
    "Peg": "planning.pegs",
    "Ragged": "data",
    "Resident": "data",
    "Run": "tools.api",
    "Sequences": "data",
    "Stream": "data",
    "cut_fold": "data",
    "load": "tools.api",
    "pegs": "planning.pegs",
    "resume": "tools.api",
    "plan": "tools.api",
    "train": "tools.api",
}

__all__ = [
    "Batch",
    "Choices",
    "Classes",
    "Codec",
    "Context",
    "DataSpec",
    "Dataset",
    "Decoding",
    "EvalWeights",
    "Facts",
    "Ge",
    "Gt",
    "Image",
    "Labels",
    "Le",
    "Length",
    "Lt",
    "Matches",
    "Metric",
    "Model",
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
    "SampleMethod",
    "SampleRequest",
    "SavedModel",
    "Schedule",
    "Sequences",
    "Series",
    "Site",
    "Source",
    "Spec",
    "Splits",
    "Stage",
    "Stepper",
    "Stepping",
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
    "__version__",
    "cut_fold",
    "hookimpl",
    "load",
    "plan",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module = importlib.import_module(f".{_LAZY[name]}", __name__)
        value = module if _LAZY[name].endswith(f".{name}") else getattr(module, name)
        globals()[name] = value
        return value
    if name in _MOVED:
        return moved(name, *_MOVED[name])
    raise AttributeError(f"module 'pegboard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
