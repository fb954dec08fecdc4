"""One short training of a part in memory, watched: what several checks look at is done once."""

from __future__ import annotations

import copy
import os
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..contract.results import Batch, Source
from ..engine.evaluate import Evaluator
from ..engine.precision import choose_precision
from ..engine.step import make_step
from ..planning.plan import Assembly, assemble, make_plan
from .runs import unequal

if TYPE_CHECKING:
    from ..config.nodes import Settings
    from .subjects import Subject


# Beginnings of variables that libraries set for themselves when they are first used.
LIBRARIES = (
    "TORCH",
    "KMP_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "TOKENIZERS_",
    "HF_",
    "TF_",
    "MPL",
    "PYTORCH_",
    "CUBLAS_",
)


@dataclass
class Observed:
    """What a config built after three updates and an evaluation, and what these did not leave as it was."""

    assembly: Assembly
    batch: list[str]  # fields of a batch that a step changed in place
    process: list[str]  # global settings of the process
    configs: list[str]  # places of the config


def observe(subject: Subject) -> Observed:
    """Build all that the config of a part names, make three updates on the CPU, and evaluate a batch."""
    from ..config.check import check

    settings = check({**subject.config, "seed": 5})
    stir()
    given, streams = configs(settings), random_streams()
    assembly = assemble(make_plan(settings, read=True, quiet=True), "cpu")
    built = random_streams()
    process = [what for what, value in streams.items() if not same(value, built[what])]
    splits = assembly.plan.splits
    assert splits is not None
    streams.pop("torch")  # from which modules draw in training
    assembly.model.train()
    updates = [make_step(assembly, kit, choose_precision("fp32", "cpu")).update for kit in assembly.kits]
    changed: list[str] = []
    for step in range(3):
        for update in updates:
            batch = rows_of(splits.train, range(4 * step, 4 * step + 4))
            before = cloned(batch)
            update([batch], step)
            changed += edited(before, batch)
    changed += _evaluated(assembly)
    after = random_streams()
    process += [what for what, value in streams.items() if not same(value, after[what])]
    process = [f"the random stream of {name}" for name in dict.fromkeys(process)]
    now = process_state()
    process += [what for what in {**subject.process, **now} if subject.process.get(what) != now.get(what)]
    return Observed(
        assembly,
        list(dict.fromkeys(changed)),
        process,
        [place for place, value in given.items() if value != configs(assembly.plan.settings)[place]],
    )


@dataclass
class OneBatch(Source):
    """A source of nothing but a batch."""

    batch: Batch

    def __len__(self) -> int:
        return self.batch.samples

    def gather(self, index: torch.Tensor) -> Batch:
        return self.batch

    def to(self, device: str) -> OneBatch:
        return self


def _evaluated(assembly: Assembly) -> list[str]:
    """Fields of a batch that an evaluation changes in place: the model, the loss, metrics, predictions."""
    splits, objective = assembly.plan.splits, assembly.objective
    assert splits is not None
    batch = rows_of(splits.val or splits.train, range(4))
    before = cloned(batch)

    def predict(output: Any, batch: Batch) -> None:
        objective.predict(output)

    outputs: list[tuple[Any, Any]] = []

    def keep(model: Any, inputs: Any, output: Any) -> None:
        outputs.append((output, copy.deepcopy(output)))

    precision, source = choose_precision("fp32", "cpu"), OneBatch(batch)
    evaluator = Evaluator(
        objective=objective, precision=precision, metrics=objective.metrics(), batch_size=len(source)
    )
    handle = assembly.model.register_forward_hook(keep)
    try:
        evaluator.measure(assembly.model, source, watch=predict)
    finally:
        handle.remove()
    changed = edited(before, batch)
    if not all(same(output, kept) for output, kept in outputs):
        changed.append("outputs")
    return [f"{name} (in an evaluation)" for name in changed]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, tensors by all their numbers."""
    return not list(unequal(one, other))


def rows_of(source: Source, rows: Iterable[int]) -> Batch:
    """Samples of a source, by number; numbers past its end begin again."""
    index = torch.tensor([row % len(source) for row in rows])
    source.begin([index], 0)
    return source.gather(index)


def cloned(batch: Batch) -> Batch:
    """The batch with memory of its own."""

    def clone(tensor: Any) -> Any:
        return tensor.clone() if isinstance(tensor, torch.Tensor) else copy.deepcopy(tensor)

    return Batch(tuple([clone(x) for x in batch.inputs]), *(clone(field) for field in batch[1:]))


def edited(before: Batch, after: Batch) -> list[str]:
    """Names of the fields of a batch that are not as they were."""
    return [name for name in Batch._fields if list(unequal(getattr(before, name), getattr(after, name)))]


def configs(settings: Settings) -> dict[str, Any]:
    """A copy of the config of every part, by its place."""
    parts: dict[str, Any] = {"data": settings.data, "model": settings.model, "optimizer": settings.optimizer}
    parts |= {"objective": settings.objective, "optimizer.schedule": settings.schedule}
    parts |= {f"regularizers.{key}": chosen for key, chosen in settings.regularizers.items()}
    return {place: copy.deepcopy(chosen.config) for place, chosen in parts.items() if chosen is not None}


def stir() -> None:
    """Draw from every global random stream: one that is seeded anew is then another one."""
    random.random()
    torch.rand(())
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.random()


def random_streams() -> dict[str, Any]:
    """The states of the global random streams."""
    streams: dict[str, Any] = {"Python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, key, *more = sys.modules["numpy"].random.get_state()
        streams["NumPy"] = [kind, key.tobytes(), *more]
    return streams


def process_state() -> dict[str, Any]:
    """What parts share with all else that runs in the process, and must leave as it is."""
    return {
        **{f"${k} of the environment": v for k, v in os.environ.items() if not k.startswith(LIBRARIES)},
        "the working folder": os.getcwd(),
        "sys.path": list(sys.path),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": torch.get_default_device(),
        "torch's number of threads": torch.get_num_threads(),
        "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's gradients": torch.is_grad_enabled(),
        "torch's precision of products": torch.get_float32_matmul_precision(),
    }
