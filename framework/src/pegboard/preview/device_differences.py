"""What differs on the device of a run from the machine that explains its plan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from ..base.errors import PegboardError
from ..contract.records import Context
from ..contract.results import Batch
from ..engine.evaluate import eval_mode, on_cpu
from ..planning.plan import Assembly, Plan, PlayerKit, build, private_rng
from .determinism import Finding, refuses, scanning
from .sync_lint import culprit, declared, optimizer_path


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


def eager_waits(assembly: Assembly, device: str, precision: str) -> list[str]:
    """Why the core itself waits for an accelerator in a step that is not compiled, by what asks for it."""
    if device.partition(":")[0] in ("cpu", "meta"):
        return []
    trainer, found = assembly.plan.settings.trainer, []
    entries = dict(assembly.plan.entries())
    for kit in assembly.kits:
        path = optimizer_path(assembly.plan, kit)
        fused = _is_fused(assembly, path, kit.player.name)
        if precision != "fp16" and trainer.nonfinite == "skip" and not kit.closure:
            found.append("trainer.nonfinite=skip, as an update that is left out must not be begun")
        elif not fused and path not in declared(assembly.plan):
            name = entries[path].part.name
            found.append(f"{path} ({name}), whose step is not fused, and cannot leave an update out")
        elif fused and precision == "fp16" and (why := _leaves_traces(assembly, kit)):
            found.append(f"trainer.precision=fp16 with {why}, as an overflow must leave no trace")
    return list(dict.fromkeys(found))


def _is_fused(assembly: Assembly, path: str, player: str) -> bool:
    """Whether the optimizer takes its fused form, tried on a parameter that has numbers."""
    settings = assembly.plan.settings
    chosen = settings.player_optimizers.get(player, (settings.optimizer, None))[0]
    # Fused forms are those of the CPU and a few more; there a parameter has numbers.
    factory = build(chosen, Context(steps=assembly.plan.steps or 1, epochs=assembly.plan.epochs, key=path))
    made = factory([{"params": [torch.nn.Parameter(torch.zeros(2, 2))], "names": ["weight"]}])
    return all(group.get("fused") for group in made.param_groups)


def _leaves_traces(assembly: Assembly, kit: PlayerKit) -> str:
    """What acts in an update besides the optimizer."""
    acts = {
        "weight decay": any(group.get("decoupled_decay") for group in kit.groups),
        **{
            f"regularizers.{key}": True
            for stage in ("after_step", "eval_weights")
            for key, _ in assembly.linked(stage, kit.player.name)
        },
    }
    return " and ".join(name for name, does in acts.items() if does)


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
