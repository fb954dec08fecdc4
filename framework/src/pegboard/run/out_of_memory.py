"""Out of memory, in words: what did not fit, how large the plan says that it is, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import walk_tb
from typing import Literal

from ..base.errors import PegboardError, no_memory
from ..data import shown_bytes
from ..engine.precision import choose_device, choose_precision
from ..planning.plan import Plan
from ..preview.explain import measure_memory

What = Literal["weights", "gradients", "optimizer", "activations", "batch", "data", "checkpoint", ""]

# File of the core and function in it -> what is allocated there; the innermost call of one of them counts.
PLACES: dict[tuple[str, str], What] = {
    ("planning/plan.py", "read_data"): "data",
    ("data/device_placement.py", "place"): "data",
    ("planning/channels_last.py", "lay_out"): "data",
    ("planning/plan.py", "build_network"): "weights",
    ("planning/plan.py", "_assembled"): "weights",
    ("planning/plan.py", "begin_eval_weights"): "weights",
    ("planning/plan.py", "_kit"): "optimizer",
    ("inference/loading.py", "load_into"): "weights",
    ("engine/step.py", "Step.forward"): "activations",
    ("engine/step.py", "Step.differentiate"): "gradients",
    ("engine/step.py", "Step.gradients"): "gradients",
    ("engine/step.py", "Step.move"): "optimizer",
    ("engine/step.py", "Step.update"): "optimizer",
    ("engine/evaluate.py", "Evaluator.measure"): "activations",
    ("engine/loop.py", "Loop.span"): "activations",  # of what makes updates in place of the ordinary step
    ("engine/loop.py", "Loop.load_state_dict"): "optimizer",
    ("engine/loop.py", "Loop.save"): "checkpoint",
}
GATHER = "gather"  # of any source: what it allocates is the batch
EVALUATING = ("engine/evaluate.py", "Evaluator.measure")
CORE = Path(__file__).parents[1]


def explain_shortage(error: BaseException, plan: Plan | None) -> str:
    """What does not fit into memory, the figures of the plan, and what helps."""
    what, evaluating = _locate(error)
    figures: dict[str, int] = {}
    if plan is not None and what != "data":
        with suppress(Exception):  # it may have no step on meta, and even this may be too much now
            figures = measure_memory(plan)
    if what == "gradients" and figures.get("activations", 0) > figures.get("gradients", 0):
        what = "activations"  # the backward pass has both, and they are the larger part
    words = {"optimizer": "the state of the optimizer", "checkpoint": "a copy of the state for a checkpoint"}
    name = words.get(what, f"the {what}")
    size = f" ({shown_bytes(figures[what])})" if what in figures else ""
    verb = "do" if what in ("weights", "gradients", "activations") else "does"
    lines = [
        f"out of memory: {name}{size} {verb} not fit: {_said(error)}"
        if what
        else f"out of memory: {_said(error)}"
    ]
    if evaluating:
        lines[0] += "; it was evaluating"
    if figures:
        names = ("weights", "gradients", "optimizer", "activations")
        total = sum(figures[name] for name in names)
        parts = ", ".join(f"{name} {shown_bytes(figures[name])}" for name in names)
        lines.append(f"a step takes {shown_bytes(total)}: {parts}; a batch {shown_bytes(figures['batch'])}")
    helps = _helps(what, evaluating, plan)
    return "\n".join(
        [*lines, *(f"{'what helps: ' if not at else '            '}{h}" for at, h in enumerate(helps))]
    )


@contextmanager
def explained(plan: Plan, before: str) -> Iterator[None]:
    """Inside, an error that says there is no memory becomes one that explains it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PegboardError) or not no_memory(error):
            raise
        raise PegboardError(f"{before}: {explain_shortage(error, plan)}") from error


def _locate(error: BaseException) -> tuple[What, bool]:
    """What was being allocated, by the calls that the error passed; and whether in an evaluation."""
    calls = []
    for frame, _ in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(CORE):
            calls.append((path.relative_to(CORE).as_posix(), frame.f_code.co_qualname))
    found: What = ""
    for file, name in reversed(calls):
        if file.startswith("data/") and name.rpartition(".")[2] == GATHER:
            found = "batch"
        found = found or PLACES.get((file, name), "")
        if found:
            break
    return found, EVALUATING in calls


def _said(error: BaseException) -> str:
    """What torch or Python says of it, in one line."""
    text = str(error).strip()
    return text.splitlines()[0] if text else "there is no more to be had"


def _helps(what: What, evaluating: bool, plan: Plan | None) -> list[str]:
    if what == "data":
        return ["data that is read as the run goes instead of held, or fewer samples (docs/data.md)"]
    batches = None if plan is None else plan.settings.batches
    helps = []
    if evaluating and what in ("activations", "batch"):
        size = "" if batches is None else f"={max(batches.eval_size // 2, 1)}"
        return [f"smaller batches in evaluations: data.eval_batch_size{size}"]
    if what in ("activations", "gradients", "batch", ""):
        helps.append(_smaller_batches(plan))
    if what in ("activations", "") and plan is not None:
        device = choose_device(plan.settings.trainer.device)
        if choose_precision(plan.settings.trainer.precision, device).name == "fp32":
            helps.append("trainer.precision=bf16 keeps about half of the activations' bytes")
    if what in ("weights", "gradients", "optimizer", "checkpoint", ""):
        helps.append("a smaller model: its weights, their gradients and the optimizer's state shrink with it")
    if what in ("optimizer", "checkpoint"):
        helps.append("an optimizer that keeps less for every weight: pegboard show optimizers")
    return helps


def _smaller_batches(plan: Plan | None) -> str:
    """The same updates from smaller batches."""
    words = "a smaller data.batch_size with trainer.accumulate gives the same updates in less memory"
    if plan is None or plan.sampler is None:
        return words
    stages = plan.settings.batches.stages()
    size = plan.sampler.size(stages[-1][0])
    if size < 2 or len(stages) > 1:
        return words
    fields = f"data.batch_size={size // 2} trainer.accumulate={2 * plan.settings.trainer.accumulate}"
    return f"{words}: {fields}"
