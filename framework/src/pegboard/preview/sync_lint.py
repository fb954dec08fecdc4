"""What waits for the device, found on the meta device and told by the name of the part that does it.

On a GPU a step only queues work. It stops to wait where Python must know a number (`.item()`, `if tensor:`,
`print`), where the shape of a result depends on numbers (a boolean mask, `nonzero`), and where something
comes from the host (`torch.tensor(..., device=...)`, a tensor on the CPU). The meta device has no numbers, so
most of these fail there; what it would let pass is looked for in every operation.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..base.errors import PegboardError, no_numbers
from ..contract.tricks import ROLES
from ..engine import torch_private
from ..engine.torch_private import schema
from ..planning.plan import Assembly, Plan, PlayerKit, overrides
from ..registry.discovery import Entry
from .determinism import Culprit

READS = "reads numbers from the device", "keep them there as tensors: torch.where instead of if"
SHAPES = "needs a shape that depends on numbers", "keep index tensors, or multiply by the mask"
COPIES = (
    "copies from the host to the device",
    "make the tensor once, before the first step or as a buffer, or on the device: torch.full, torch.arange",
)
STRAY = (
    "mixes a tensor on the CPU with those on the device",
    "make it on the device: device=x.device, or a buffer of a module",
)
SAID = {"same device": STRAY, "item() cannot be called on meta": READS}  # how torch says it

HOST_ONLY = (torch_private.PACK, "aten::tensor_split")  # take some arguments on the CPU by design
TELLING = ("__repr__", "__format__", "numpy", "__array__")  # show numbers, and on meta nothing
MAKING = ("tensor", "as_tensor", "asarray", "new_tensor")  # make tensors of what is in Python
# Kernels that read what they made, as their documentation or source says.
READING = (
    *torch_private.CHECKS,
    *("linalg_eig", "linalg_pinv", "linalg_matrix_exp", "cholesky"),
    *("embedding_renorm_", "masked_scatter_backward"),
)
ALIKE = ("where", "clamp", "clamp_")  # elementwise, and a number on the CPU is copied or refused
INDEXING = ("index", "index_put", "index_put_", torch_private.PUT)
META = torch.device("meta")
OURS = tuple(f"{folder}/" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))


class Waits(BaseException):
    """Something in a step waits for the device.

    No `Exception`, which parts may catch, and logging does.
    """

    def __init__(self, why: tuple[str, str], what: str) -> None:
        super().__init__(f"{why[0]} ({what})")
        self.fix = why[1]


class NotOnMeta(PegboardError):
    """A step cannot be tried on the meta device; on a GPU it would wait, or with `stray` not run at all."""

    def __init__(self, message: str, stray: bool = False) -> None:
        super().__init__(message)
        self.stray = stray


class Looking(torch_private.SeenMode):
    """Raises where an operation on meta tensors would wait for a device, were they on one.

    Copies from the host count only once the step is `steady`: to make a tensor once is no harm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steady = False

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        if any(t.is_meta for t in tensors):
            self._look(call, args, kwargs, tensors)
        elif schema(call).name == torch_private.COPY and torch.device(kwargs.get("device") or "cpu") == META:
            self._copied(kwargs.get("non_blocking", False), "to")
        return call(*args, **kwargs)

    def _look(self, call: Any, args: Any, kwargs: Mapping[str, Any], tensors: Sequence[Tensor]) -> None:
        name = schema(call).name
        short = name.removeprefix("aten::")
        if name == torch_private.COPY:
            if torch.device(kwargs.get("device") or META) != META:
                raise Waits(READS, "a copy to the CPU")
        elif short == "copy_":
            if not args[0].is_meta:
                raise Waits(READS, "a copy to the CPU")
            if not args[1].is_meta:
                self._copied(args[2] if len(args) > 2 else kwargs.get("non_blocking", False), "copy_")
        elif short == torch_private.READ:
            raise Waits(READS, "item, float, int, bool or if")
        elif short in READING or torch.Tag.data_dependent_output in call.tags or _reads(call, args, kwargs):
            raise Waits(READS, short)
        elif short in ("prod", "cumprod") and tensors[0].requires_grad and torch.is_grad_enabled():
            raise Waits(READS, f"the gradient of {short}, which looks for zeros")
        elif short in INDEXING:
            self._indexed(short, args, tensors)
        elif torch.Tag.dynamic_output_shape in call.tags:
            if (
                short != "repeat_interleave" or kwargs.get("output_size") is None
            ):  # which says how much there is
                raise Waits(SHAPES, short)
        elif name not in HOST_ONLY:
            # A single number on the CPU becomes an argument of the kernel, unless the result goes there.
            number = (torch.Tag.pointwise in call.tags and short not in ALIKE) or short == "fill_"
            stray = [t for t in tensors if not t.is_meta and (t.dim() or not number)]
            if stray or any(not t.is_meta for t in _written(call, args, kwargs)):
                raise Waits(STRAY, short)

    def _indexed(self, short: str, args: Any, tensors: Sequence[Tensor]) -> None:
        masks = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if masks and (short == "index" or args[2].numel() != 1):  # to set one number takes no indices
            raise Waits(SHAPES, "indexing by a mask")
        if any(not t.is_meta and t.dim() for t in tensors):
            raise Waits(STRAY, "indexing")

    def _copied(self, on_its_own: bool, what: str) -> None:
        if self.steady and not on_its_own:
            raise Waits(COPIES, what)


class _Calls(TorchFunctionMode):
    """The same for what never becomes an operation on the meta device."""

    def __init__(self, looking: Looking) -> None:
        super().__init__()
        self.looking = looking

    def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(call, "__name__", "")
        if name in TELLING and args[0].is_meta:
            raise Waits(READS, {"__repr__": "print", "__format__": "print"}.get(name, "numpy"))
        if name == "__setitem__" and _masked(args[1]) and any(t.is_meta for t in _tensors(args[2])):
            raise Waits(SHAPES, "indexing by a mask")
        result = call(*args, **kwargs)
        if name in MAKING and result.is_meta and not any(t.is_meta for t in _tensors((args[-1:], kwargs))):
            self.looking._copied(False, f"torch.{name}")
        if name == "new" and result.is_meta and any(isinstance(data, list) for data in args[1:]):
            self.looking._copied(False, "new")
        if name in ("__getitem__", "__setitem__") and args[0].is_meta and _listed(args[1]):
            self.looking._copied(False, "indexing by a list")
        return result


@contextmanager
def looking() -> Iterator[Looking]:
    """Whatever would wait for a device raises `Waits` in here."""
    operations = Looking()
    with _Calls(operations), torch_private.watching(operations):
        yield operations


def _tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested containers."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _mapped(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """Nested containers with all their tensors changed."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, list | tuple):
        found = [_mapped(change, value) for value in values]
        return type(values)(*found) if hasattr(values, "_fields") else type(values)(found)
    if isinstance(values, dict):
        return type(values)({key: _mapped(change, value) for key, value in values.items()})
    return values


def _reads(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a kernel that need not read numbers does so with these arguments."""
    names = [argument.name for argument in schema(call).arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    match schema(call).name.removeprefix("aten::"):
        case "masked_fill" | "masked_fill_":
            return any(t.is_meta for t in _tensors(given["value"]))
        case "linspace" | "logspace":
            return any(t.is_meta for t in _tensors([given["start"], given["end"]]))
        case "histc":
            return bool(given.get("min", 0) == given.get("max", 0))
        case "multinomial":
            return not given.get("replacement", False) or given["num_samples"] == 1
        case "segment_reduce":
            return not given.get("unsafe", False)
    return False


def _written(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation changes in place."""
    for at, argument in enumerate(schema(call).arguments if schema(call).is_mutable else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[at] if at < len(args) else kwargs.get(argument.name))


def _listed(index: Any) -> bool:
    """Whether numbers in Python say which elements are meant."""
    return any(isinstance(i, Sequence) for i in (index if isinstance(index, tuple) else (index,)))


def _masked(index: Any) -> bool:
    """Whether truth values on the device say which elements are meant."""
    return any(t.is_meta and t.dtype in (torch.bool, torch.uint8) for t in _tensors(index))


def declared(plan: Plan) -> dict[str, tuple[Entry, str]]:
    """Parts that declare to wait for the device, by their place in the config, with the reason."""
    found = {path: (entry, getattr(entry.part, "synchronizes", "")) for path, entry in plan.entries()}
    return {path: (entry, why) for path, (entry, why) in found.items() if why}


def optimizer_path(plan: Plan, kit: PlayerKit) -> str:
    """Where the config chooses the optimizer of a player."""
    name = kit.player.name
    return f"optimizer.players.{name}" if name in plan.settings.player_optimizers else "optimizer"


def schedule_path(plan: Plan, kit: PlayerKit) -> str:
    """Where the config chooses the schedule of a player's rate."""
    own = f"{optimizer_path(plan, kit)}.schedule"
    return own if own in dict(plan.entries()) else "optimizer.schedule"


def leave_behind(model: nn.Module) -> None:
    """Put on the CPU what modules hold without having registered it, where it stays when a model is moved."""
    known = {id(t) for t in (*model.parameters(), *model.buffers())}

    def left(tensor: Tensor) -> Tensor:
        held = id(tensor) in known or not tensor.is_meta
        return tensor if held else torch.zeros_like(tensor, device="cpu")

    for module in model.modules():
        for name, value in vars(module).items():
            if any(left(t) is not t for t in _tensors(value)):
                vars(module)[name] = _mapped(left, value)
    model.to(META)  # some see to theirs by themselves


@contextmanager
def stand_ins(assembly: Assembly) -> Iterator[None]:
    """In place of the parts that are declared to wait: what changes nothing and needs no numbers."""
    known = declared(assembly.plan)
    with ExitStack() as after:
        for kit in assembly.kits:
            path = optimizer_path(assembly.plan, kit)
            if path in known:
                after.callback(setattr, kit, "functional", kit.functional)
                kit.functional = None
                _instead(after, kit.optimizer, "step", lambda closure=None: closure and closure())
            if kit.schedule is not None and schedule_path(assembly.plan, kit) in known:
                after.callback(setattr, kit, "schedule", kit.schedule)
                kit.schedule = lambda step: 1.0
        hung = [(key, peg.get_submodule(key)) for _, peg, keys in assembly.hung for key in keys]
        for key, module in hung:
            if f"regularizers.{key}" in known:
                _instead(after, module, "forward", _first)
        for key, trick in assembly.tricks.items():
            for stage in ROLES if f"regularizers.{key}" in known else ():
                if overrides(trick, stage):
                    _instead(after, trick, stage, _first)
        yield


def _first(value: Any, *more: Any) -> Any:
    return value


def _instead(after: ExitStack, thing: Any, name: str, method: Any) -> None:
    vars(thing)[name] = method
    after.callback(vars(thing).pop, name)


@contextmanager
def telling(assembly: Assembly, inside: Sequence[str]) -> Iterator[None]:
    """What cannot run on the meta device is told by the part it is in; `inside` is what was being called."""
    try:
        yield
    except (Exception, Waits) as error:
        waits = _waits(error)
        if waits is None and not no_numbers(error):
            raise
        raise _told(error, waits, assembly, inside) from error


@contextmanager
def building(plan: Plan) -> Iterator[None]:
    """A part that needs numbers while it is built on the meta device is named."""
    try:
        yield
    except Exception as error:
        frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
        theirs = [(file, line, part) for file, line in frames[::-1] if (part := plan.part_in(file))]
        if not no_numbers(error) or not theirs:
            raise
        file, line, (path, entry) = theirs[0]
        raise NotOnMeta(
            f"{path} ({entry.part.name} of {entry.plugin.dist}) cannot be built on the meta device, where a "
            f"step is tried first: {str(error).splitlines()[0]}\n"
            f"  {file}:{line}: {linecache.getline(file, line).strip()}\n"
            '  tensors whose numbers it reads come from the CPU: torch.linspace(0, 1, 5, device="cpu")'
        ) from error


def _waits(error: BaseException) -> Waits | None:
    """What was found, by us or by torch."""
    if isinstance(error, Waits):
        return error
    said = str(error)
    return next((Waits(why, said.splitlines()[0]) for text, why in SAID.items() if text in said), None)


def _told(error: BaseException, waits: Waits | None, assembly: Assembly, inside: Sequence[str]) -> NotOnMeta:
    """One message: which part, what it does, where, and how to mend it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)][::-1]
    lines = {id(frame): line for frame, line in walk_tb(error.__traceback__)}
    path = _culprit(frames, assembly, inside)
    entry = dict(assembly.plan.entries()).get(path)
    who = f"{path} ({entry.part.name} of {entry.plugin.dist})" if entry else path
    if waits is not None:
        text = [f"{who} waits for the device in every step: it {waits}"]
        fixes = [waits.fix]
    else:
        said = str(error).splitlines()[0]
        text = [f"{who} cannot run on the meta device, where a step is tried first: {said}"]
        fixes = ["give the operation a shape of its own: torch.library.register_fake"]
    if entry is not None and (frame := _theirs(frames, assembly.plan)) is not None:
        file, line = frame.f_code.co_filename, lines[id(frame)]
        text.append(f"  {file}:{line}: {linecache.getline(file, line).strip()}")
    if entry is not None:
        kind, name = type(entry.part).__name__, entry.part.name
        fixes.append(f'where it must be, its record says why: {kind}("{name}", ..., synchronizes="why")')
    stray = waits is not None and waits.fix == STRAY[1]
    return NotOnMeta("\n".join([*text, *(f"  {fix}" for fix in fixes)]), stray)


def _theirs(frames: Sequence[FrameType], plan: Plan) -> FrameType | None:
    """The innermost call that is written in a part, or at least outside torch and the core."""
    theirs = [frame for frame in frames if not frame.f_code.co_filename.startswith(OURS)]
    known = [frame for frame in theirs if plan.part_in(frame.f_code.co_filename)]
    return next(iter(known or theirs), None)


def culprit(assembly: Assembly, inside: Sequence[str]) -> Culprit:
    """For `scanning`: which part of an assembly is at work, and where."""

    def found(frames: Sequence[FrameType]) -> tuple[str, FrameType | None]:
        path = _culprit(frames, assembly, inside)
        at_part = path in dict(assembly.plan.entries())
        return path, _theirs(frames, assembly.plan) if at_part else None

    return found


def _culprit(frames: Sequence[FrameType], assembly: Assembly, inside: Sequence[str]) -> str:
    """The place in the config of the part that was at work, or what was being done."""
    owners = {id(assembly.objective): "objective"} | {id(m): "model" for m in assembly.model.modules()}
    for _, peg, keys in assembly.hung:
        owners |= {id(m): f"regularizers.{key}" for key in keys for m in peg.get_submodule(key).modules()}
    owners |= {id(trick): f"regularizers.{key}" for key, trick in assembly.tricks.items()}
    owners |= {id(kit.optimizer): optimizer_path(assembly.plan, kit) for kit in assembly.kits}
    entries, hooked = dict(assembly.plan.entries()), None
    for frame in frames:
        if (found := owners.get(id(frame.f_locals.get("self")))) is not None:
            # What another plugin hooked into a module is its own.
            return found if hooked is None or hooked[1].plugin is entries[found].plugin else hooked[0]
        hooked = hooked or assembly.plan.part_in(frame.f_code.co_filename)
    what = inside[-1] if inside else "the step"
    return hooked[0] if what not in entries and hooked else what  # a backward pass of their own


def place(plan: Plan, kit: PlayerKit, name: str) -> str:
    """Where the config chooses what a step calls by this name; the name itself, where it is the core's."""
    stage, _, key = name.partition(" ")
    if stage in ROLES:
        return f"regularizers.{key}"
    own = {"update": optimizer_path(plan, kit), "schedule": schedule_path(plan, kit), "forward": "objective"}
    return own.get(stage, f"the {name}")
