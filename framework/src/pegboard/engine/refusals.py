"""What a plan calls that the device of its run refuses in deterministic mode."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from ..contracts import Batch
from ..errors import PegboardError
from ..planning import Assembly, Plan, private_rng
from .determinism import Finding, refuses, scanning
from .evaluate import eval_mode, on_cpu
from .waiting import culprit


def refused_in_evaluation(assembly: Assembly, batch: Batch) -> list[Finding]:
    """What an evaluation calls without a deterministic kernel on CUDA; nothing where it cannot be tried."""
    scan = scanning(culprit(assembly, ["objective"]))
    # It may read numbers, which there are none of on the meta device.
    with private_rng(0, "explain"), scan as refused, suppress(Exception), eval_mode(assembly.model):
        _, output = assembly.objective.evaluate(assembly.model, batch)
        output = on_cpu(output, _numbers)
        target = None if batch.target is None else _numbers(batch.target)
        for metric in assembly.objective.metrics().values():
            with suppress(Exception):  # of numbers that mean nothing
                metric.update(output, target)  # type: ignore[arg-type]
                metric.compute()
    return list(refused)


def _numbers(tensor: Tensor) -> Tensor:
    """Some numbers in place of a tensor on the meta device."""
    like = torch.empty_like(tensor, device="cpu")
    return like.uniform_() if tensor.is_floating_point() else like.random_(0, 2)


def repeatability(plan: Plan, found: Sequence[Finding], device: str) -> str:
    """What has no deterministic kernel where the run will be; an error where the config asks for one."""
    trainer, entries = plan.settings.trainer, dict(plan.entries())
    if not found or not refuses(device):
        return ""
    told = []
    for finding in dict.fromkeys(found):
        entry = entries.get(finding.path)
        who = f"{finding.path} ({entry.part.name} of {entry.plugin.dist})" if entry else finding.path
        why = getattr(entry.part, "nondeterministic", "") if entry else ""
        told.append(f"{who} calls {finding.operation}" + (f": {why}" if why else ""))
        told += [f"  {finding.where}"] if finding.where else []
    if not trainer.deterministic:
        return "\n  ".join([f"not the same twice, for {device} has no deterministic kernel", *told])
    lines = "\n".join(told)
    raise PegboardError(
        f"trainer.deterministic asks for what {device} has no deterministic kernel for:\n{lines}\n"
        "  trainer.deterministic=false trains all the same, and ends a little otherwise each time"
    )
