"""Whether a model has the pegs that its record declares, and the sizes that the data asks for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ...base.errors import PegboardError
from ...contract.specs import (
    Classes,
    DataSpec,
    Image,
    Labels,
    Series,
    Spec,
    Tokens,
    Values,
    Vector,
    Views,
    Voxels,
)
from ..kit import Failed, Skipped, check
from ..subjects import Subject

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...planning.pegs import Peg
    from ...planning.plan import Assembly

ROWS = 11  # a batch; no other size in the partners' data is this number

# The same kind of data in another size: what is added to fields of a spec, or what they are multiplied by.
LARGER: dict[type[Spec], Callable[[Any], dict[str, int]]] = {
    Vector: lambda s: {"features": s.features + 3},
    Image: lambda s: {"channels": s.channels + 2, "height": 2 * s.height, "width": 3 * s.width},
    Voxels: lambda s: {"channels": s.channels + 2},
    Views: lambda s: {"channels": s.channels + 2},
    Series: lambda s: {"length": s.length + 5, "features": s.features + 2},
    Tokens: lambda s: {"vocab": s.vocab + 4, "length": s.length + 5},
}
MORE: dict[type[Spec], Callable[[Any], dict[str, int]]] = {
    Classes: lambda s: {"count": s.count + 2},
    Labels: lambda s: {"count": s.count + 2},
    Values: lambda s: {"count": s.count + 2},
}


def _changed(spec: Spec, by: dict[type[Spec], Callable[[Any], dict[str, int]]]) -> Spec:
    wider = LARGER[Vector] if by is LARGER and isinstance(getattr(spec, "features", None), int) else None
    change = by.get(type(spec), None if type(spec).__module__ == Spec.__module__ else wider)
    if change is None or not spec.known:
        return spec
    fields: dict[str, Any] = change(spec)
    if getattr(spec, "names", ()):
        fields["names"] = ()
    return dataclasses.replace(spec, **fields)


def others(spec: DataSpec) -> Iterator[DataSpec]:
    """Data of the same kind in other sizes: with other inputs and targets, then with other targets alone."""
    target = spec.target
    if target is None or len({type(s) for s in (*spec.inputs, target)}) <= len(spec.inputs):
        return  # what is predicted is of the kind that is read: sizes of the two hang together
    more = _changed(target, MORE)
    larger = tuple(_changed(s, LARGER) for s in spec.inputs)
    yield from dict.fromkeys((DataSpec(larger, more), DataSpec(spec.inputs, more)))


class Seen:
    """Notes what is sent through the pegs of a model, and changes what comes out of one where it is asked."""

    def __init__(self, model: nn.Module) -> None:
        from ...planning.pegs import find

        self.found: list[tuple[str, Peg]] = list(find(model))
        self.shapes: dict[str, set[tuple[int, ...]]] = {name: set() for name, _ in self.found}
        for name, peg in self.found:
            peg.add_module("kit_shape", _acting(partial(self._pass, name)))
        self._disturbed = ""
        self._added: list[Tensor] = []

    def _pass(self, name: str, x: Tensor) -> Tensor:
        import torch

        self.shapes[name].add(tuple(x.shape))
        if name != self._disturbed or not x.is_floating_point():
            return x
        noise = 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).to(x.dtype)
        self._added.append(noise.requires_grad_())
        return x + noise

    @contextmanager
    def disturbed(self, name: str) -> Iterator[None]:
        """Let one peg return something else than it is given."""
        self._disturbed, self._added = name, []
        try:
            yield
        finally:
            self._disturbed = ""

    def reach(self, losses: list[Tensor]) -> bool:
        """Whether losses are computed with what a disturbed peg returned, be it times zero."""
        import torch

        whole = torch.stack([loss for loss in losses if loss.requires_grad]).sum() if losses else None
        if whole is None or not self._added:
            return False
        return any(g is not None for g in torch.autograd.grad(whole, self._added, allow_unused=True))


def _acting(act: Callable[[Tensor], Tensor]) -> nn.Module:
    from torch import nn

    class Acting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return act(x)

    return Acting()


@check("model")
def pegs_are_as_declared(subject: Subject) -> None:
    """Its pegs are at the sites that its record names, each is called, with the features and axes it says."""
    import torch

    assembly = subject.assembly()
    seen = Seen(assembly.model)
    declared = set(subject.part.pegs)  # type: ignore[attr-defined]
    there: set[str] = {peg.site for _, peg in seen.found}
    if extra := sorted(there - declared):
        raise Failed(
            f"{subject.what} has pegs at {', '.join(extra)}, which its record does not declare: "
            f"pegs={tuple(sorted(there | declared))}"
        )
    if missing := sorted(declared - there):
        for sites in _elsewhere(subject):
            missing = [site for site in missing if site not in sites]
            if not missing:
                break
        if missing:
            has = f"; it has them at {', '.join(sorted(there))}" if there else ""
            raise Failed(
                f"{subject.what} declares pegs at {', '.join(missing)}, and has none there, with no choice "
                f"of its fields and on no data that it was tried on{has}"
            )
    if not seen.found:
        raise Skipped("it has no pegs")
    _run(assembly)
    assert assembly.plan.splits is not None
    with torch.no_grad():
        from ..observed import rows_of

        assembly.model.eval()(*rows_of(assembly.plan.splits.train, range(ROWS)).inputs)
    if (other := _other(subject)) is not None and (larger := Seen(other.model)).found:
        _forward(subject, other)
        _compare(subject, larger)
    _compare(subject, seen)
    if unused := [f"{name} ({peg.site})" for name, peg in seen.found if not seen.shapes[name]]:
        raise Failed(
            f"{subject.what}: nothing is sent through {', '.join(unused[:3])}: what hangs there never acts. "
            "Call the peg in the forward pass, or leave it out"
        )
    if idle := _idle(assembly, seen):
        raise Failed(
            f"{subject.what}: what comes out of {', '.join(idle[:3])} is not used: what hangs there never "
            "acts. Go on with what the peg returns: x = self.peg(x)"
        )


def _idle(assembly: Assembly, seen: Seen) -> list[str]:
    """Pegs whose answer changes neither the outputs nor a loss, whatever it is."""
    import torch

    from ...planning.plan import private_rng
    from ..observed import rows_of, same

    model, splits = assembly.model, assembly.plan.splits
    assert splits is not None
    inputs = rows_of(splits.train, range(ROWS)).inputs
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def outputs() -> Any:
        with torch.no_grad(), private_rng(0, "kit"):
            return model.eval()(*inputs)

    def losses() -> list[Tensor]:
        model.load_state_dict(state)
        with private_rng(0, "kit"):
            return _run(assembly)

    plain, still = outputs(), []
    for name, peg in seen.found:
        with seen.disturbed(name):
            if same(plain, outputs()):
                still.append((name, peg))
    plain = losses() if still else []
    for name, peg in list(still):
        with seen.disturbed(name):
            found = losses()
            if not same(plain, found) or seen.reach(found):
                still.remove((name, peg))
    return [f"{name} ({peg.site})" for name, peg in still]


def _elsewhere(subject: Subject) -> Iterator[set[str]]:
    """The sites of the model's pegs with other choices in its fields, then on other data."""
    from ...config.check import check as check_config
    from ...planning.pegs import find
    from ...planning.plan import assemble, make_plan

    configs = itertools.chain(
        (subject.with_node(**{name: value}) for name, value in _choices(subject.part.config)),
        ({**subject.config, "data": data} for data in subject.data()),
    )
    for config in configs:
        try:
            assembly = assemble(make_plan(check_config(config), read=False, quiet=True), "meta")
        except PegboardError:  # choices that do not fit each other, or data that it does not read
            continue
        yield {peg.site for _, peg in find(assembly.model)}


def _choices(config: type[Any]) -> Iterator[tuple[str, Any]]:
    """Every other value of the fields that have choices, those with few first."""
    from ...config.fields import describe, options

    found = [(f, (True, False) if f.hint is bool else options(f.hint)) for f in describe(config)]
    for field, values in sorted(found, key=lambda pair: len(pair[1])):
        yield from ((field.name, value) for value in values if value != field.default)


def _run(assembly: Assembly) -> list[Tensor]:
    """The losses of all players, in training."""
    from ..observed import rows_of

    assert assembly.plan.splits is not None
    batch = rows_of(assembly.plan.splits.train, range(ROWS))
    assembly.model.train()
    losses = []
    for kit in assembly.kits:
        own = kit.player.target
        told = batch if own is None else batch.replace(target=own(batch))
        losses.append(kit.player.loss(assembly.model, told)[0])
    return losses


def _compare(subject: Subject, seen: Seen) -> None:
    for name, peg in seen.found:
        for shape in seen.shapes[name]:
            if len(shape) != len(peg.layout):
                raise Failed(
                    f"{subject.what}: the peg {name} ({peg.site}) says the layout {peg.layout!r}, but is "
                    f"given a tensor {shape}"
                )
            if "C" in peg.layout and shape[peg.axis] != peg.features:
                like = [i for i, size in enumerate(shape) if size == peg.features and i]
                hint = f"; axis {like[0]} has so many: is the layout another one?" if like else ""
                raise Failed(
                    f"{subject.what}: the peg {name} ({peg.site}) says {peg.features} features on the axis C "
                    f"of {peg.layout!r}, but is given a tensor {shape}{hint}"
                )


def _other(subject: Subject) -> Assembly | None:
    """The model for data of another size; None where it or its data is for one size alone, and says so."""
    from ...config.check import check as check_config
    from ...planning.plan import assemble, make_plan

    settings = check_config(subject.config)
    spec = subject.plan().spec
    for other in others(spec):
        if other == spec:
            continue
        try:
            return assemble(make_plan(settings, read=False, spec=other, quiet=True), "cpu")
        except PegboardError:  # of its own rules
            continue
    return None


def _forward(subject: Subject, assembly: Assembly) -> Any:
    import torch

    inputs = [spec.example(ROWS, "cpu") for spec in assembly.plan.spec.inputs]
    with torch.no_grad():
        return assembly.model.eval()(*inputs)


def _answer(subject: Subject, other: Assembly) -> Any:
    """What the model gives for data of another size."""
    from ..kit import told

    try:
        return _forward(subject, other)
    except PegboardError:
        raise
    except Exception as error:
        raise Failed(
            f"{subject.what} fits {subject.plan().spec}, but not {other.plan.spec}: "
            f"{told(error, subject.folders)}; build it from context.spec, or say in `check` of its record "
            "what it cannot read"
        ) from error


@check("model")
def follows_the_spec(subject: Subject) -> None:
    """It is built for the sizes of the data, whatever they are, and gives the outputs that are asked for."""
    import torch

    from ..observed import rows_of
    from .stepping import trained

    first = trained(subject)
    plan = first.plan
    assert plan.splits is not None
    with torch.no_grad():
        output = first.model.eval()(*rows_of(plan.splits.train, range(ROWS)).inputs)
    if not isinstance(output, torch.Tensor) or plan.outputs is None:
        if (other := _other(subject)) is not None:
            _answer(subject, other)
        raise Skipped("its output is no tensor whose size the objective asks for")
    if output.dtype != torch.float32:
        raise Failed(f"{subject.what} gives {output.dtype} from inputs of single precision, expected float32")
    if output.shape[-1:] != (plan.outputs,):
        if getattr(subject.part, "objective", ""):
            raise Skipped("its objective reads something else than one output for each number of the target")
        raise Failed(
            f"{subject.what} gives outputs {tuple(output.shape)} for {plan.spec}, expected {plan.outputs} in "
            "the last axis: build it from context.outputs"
        )
    if (other := _other(subject)) is None:
        raise Skipped(f"it says that it is for {plan.spec} alone, or its data has one size")
    asked, answer = other.plan.outputs, _answer(subject, other)
    if answer.shape[-1:] != (asked,) or answer.dim() != output.dim():
        raise Failed(
            f"{subject.what} gives outputs {tuple(answer.shape)} for {other.plan.spec}, expected {asked} in "
            f"the last axis (for {plan.spec} it gives {tuple(output.shape)}): build it from context.spec and "
            "context.outputs"
        )
