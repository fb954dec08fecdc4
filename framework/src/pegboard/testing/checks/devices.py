"""What a part would meet on a device that is not at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from ...base.errors import PegboardError
from ..kit import STEP, Failed, Skipped, check
from ..partners import TARGETS
from ..subjects import Config, Subject
from .building import _rows

if TYPE_CHECKING:
    from ...preview.determinism import Finding


@check(*STEP, "probe", since="0.2")
def has_deterministic_kernels(subject: Subject) -> None:
    """All it calls in training and evaluation has deterministic kernels on CUDA, or its record says why."""
    part = subject.part
    if getattr(part, "reference", False):
        raise Skipped("a reference is computed on the CPU")
    found = refused(subject, subject.config)
    for config in variants(subject, subject.config):
        try:
            found += refused(subject, config)
        except PegboardError:  # it may not fit the partners beside it
            continue
    if found and not getattr(part, "nondeterministic", ""):
        calls = dict.fromkeys(f.operation + (f" ({f.where})" if f.where else "") for f in found)
        raise Failed(
            f"{subject.what} calls what has no deterministic kernel on CUDA, where a run ends there unless "
            f"trainer.deterministic is off: {'; '.join(calls)}. Compute it in another way, or let its record "
            f'say why: {type(part).__name__}("{part.name}", ..., nondeterministic="why")'
        )


def variants(subject: Subject, config: Config) -> Iterator[Config]:
    """The config with other choices of the part's fields, one at a time, and with every kind of target."""
    hints, given = get_type_hints(subject.part.config), subject.fields
    for field in dataclasses.fields(subject.part.config):
        hint, now = hints[field.name], given.get(field.name, field.default)
        choices = (True, False) if hint is bool else get_args(hint) if get_origin(hint) is Literal else ()
        for choice in choices:
            if choice != now:
                yield {**config, **_node(subject, {field.name: choice})}
    if subject.part.kind == "objective":
        yield from ({**config, "data": {**config["data"], "target": target}} for target in TARGETS)


def _node(subject: Subject, fields: Config) -> Config:
    """The sections of a config in which the part has more fields."""
    whole = subject.with_node(**fields)
    return {key: node for key, node in whole.items() if node is not subject.config.get(key)}


def refused(subject: Subject, config: Config) -> list[Finding]:
    """What the part calls in a step and an evaluation that CUDA has no deterministic kernel for."""
    import torch

    from ...config.check import check
    from ...engine.evaluate import Evaluator
    from ...engine.precision import choose_precision
    from ...engine.step import make_step
    from ...planning.plan import assemble, make_plan, private_rng
    from ...preview.determinism import scanning
    from ...preview.sync_lint import culprit

    part = subject.part
    assembly = assemble(make_plan(check(config), read=True, quiet=True), "cpu")
    plan, splits = assembly.plan, assembly.plan.splits
    assert splits is not None
    precision = choose_precision("fp32", "cpu")
    with private_rng(0, "kit"), scanning(culprit(assembly, [part.kind])) as found:
        if part.kind == "probe":
            _measure(subject, assembly)
        else:
            assembly.model.train()
            for kit in assembly.kits:
                make_step(assembly, kit, precision).update([_rows(splits.train, range(4))], 0)
            objective = assembly.objective
            evaluator = Evaluator(
                objective=objective, precision=precision, metrics=objective.metrics(), batch_size=4
            )
            evaluator.measure(assembly.model, splits.val or splits.train)
            model: Any = assembly.model.eval()
            if getattr(part, "samples", False):
                with torch.no_grad():
                    model.sample(2, torch.Generator().manual_seed(1))
    whose = {path: (entry.part.kind, entry.qualified) for path, entry in plan.entries()}
    own = (part.kind, subject.entry.qualified if subject.entry else "")
    return [finding for finding in found if whose.get(finding.path, own) == own]


def _measure(subject: Subject, assembly: Any) -> None:
    import torch

    from ...contract.records import Context

    plan = assembly.plan
    context = Context(spec=plan.spec, outputs=plan.outputs, seed=5, key="probe")
    probe = subject.part.build(subject.built_config(), context)
    try:
        probe.measure(assembly.model.eval(), plan.splits, torch.device("cpu"))
    except PegboardError as error:
        raise Skipped(f"it does not measure the reference data: {error}") from error
