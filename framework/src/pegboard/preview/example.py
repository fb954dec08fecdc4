"""A batch of the shapes that a plan trains on, on the meta device."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..contract.results import Batch
from ..contract.specs import NoExample
from ..planning.plan import Plan, read_data


def counted(plan: Plan) -> Plan:
    """The plan with its data read, where a batch is all of it."""
    if plan.splits is not None or largest(plan):
        return plan
    return replace(plan, splits=read_data(plan.settings))


def largest(plan: Plan) -> int:
    """Samples in the largest batch, which is the last; 0 while it is not known."""
    _, size = plan.settings.batches.stages()[-1]
    if size == "all":
        return 0 if plan.splits is None else len(plan.splits.train)
    return size


def example(plan: Plan, size: int | None = None) -> Batch:
    """A batch on the meta device: as the specs say, or of the shapes of the data where one does not."""
    size = size or largest(plan)
    try:
        return _by_spec(plan, size)
    except NoExample:
        source = (plan.splits or read_data(plan.settings)).train
    rows = torch.arange(size)
    try:
        batch = source.to("cpu").gather(rows % len(source))
    finally:
        source.close()
    inputs, *more = batch._replace(rows=rows)
    return Batch(tuple(x.to("meta") for x in inputs), *(None if x is None else x.to("meta") for x in more))


def _by_spec(plan: Plan, size: int) -> Batch:
    spec = plan.spec
    target = None if spec.target is None else spec.target.example(size, "meta")
    rows = torch.empty(size, dtype=torch.long, device="meta")
    return Batch(tuple(s.example(size, "meta") for s in spec.inputs), target, None, rows)
