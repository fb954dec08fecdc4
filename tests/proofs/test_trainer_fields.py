"""Precision, clipping, accumulation, averaging and compilation together, beside a loop written by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.cli import main
from pegboard.data import Resident, epoch_order
from pegboard.store import checkpoint
from proofs import FOLDER, LOCAL, cut_and_resumed, differences, unequal, whole
from safetensors.torch import load_file
from sweeps import first_of_each
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

pytestmark = pytest.mark.usefixtures("lean")
SEED, ROWS, BATCH, STEPS, RATE = 5, 70, 12, 12, 1e-2
NAMES = [
    "body.1.weight",
    "body.1.bias",
    "head.weight",
    "head.bias",
]  # in their order, and no compiler's prefix
ODD = [str(FOLDER / "odd_parts.py")]
# In bf16 the last bit of a weight turns the rounding of what is computed from it.
TOLERANCE = {"fp32": 1e-5, "bf16": 1e-3}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Combination:
    """A corner of the lattice."""

    precision: str = "fp32"
    clip: float | None = None
    clip_by: str = "norm"
    accumulate: int = 1
    ema: float | None = None
    compile: str = "off"

    def __str__(self) -> str:
        return "-".join(str(value) for value in vars(self).values())

    def config(self, **trainer: Any) -> dict[str, Any]:
        given = {
            **{name: getattr(self, name) for name in ("precision", "accumulate", "compile")},
            "steps": STEPS,
            "device": "cpu",
            "log_every": 5,
            "steps_per_call": 3 if self.compile in ("step", "auto") else 1,
            **trainer,
        }
        return {
            "seed": SEED,
            "data": {"name": "digits", "limit": ROWS, "batch_size": BATCH},
            "model": {"name": "mlp", "hidden": [8]},
            "optimizer": {"name": "adam", "lr": RATE},
            "regularizers": {
                "clip": self.clip and {"bound": self.clip, "by": self.clip_by},
                "ema": self.ema and {"decay": self.ema},
            },
            "trainer": given,
        }


def lattice(precisions: tuple[str, ...], compiled: str) -> list[Combination]:
    """All 8 ways to clip, accumulate and average, in each precision."""
    corners = itertools.product(precisions, (None, 0.3), (1, 2), (None, 0.9))
    return [Combination(p, clip, "norm", batches, ema, compiled) for p, clip, batches, ema in corners]


@dataclass
class Trained:
    """What a loop leaves."""

    weights: list[Tensor]
    averages: list[Tensor]
    state: list[dict[str, Tensor]]  # of the optimizer, for each weight


def by_hand(given: Combination) -> Trained:
    """The same training as a person writes it."""
    plan = pegboard.planning.plan.make_plan(pegboard.config.check.check(given.config()), read=True)
    source: Any = plan.splits.train if plan.splits is not None else None
    x, y = source.inputs[0], source.target
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    start = pegboard.planning.plan.assemble(plan, "cpu").model
    with torch.no_grad():
        for p, initial in zip(model.parameters(), start.parameters(), strict=True):
            p.copy_(initial)
    optimizer = torch.optim.Adam(model.parameters(), RATE, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=given.precision == "fp16")
    averages = [p.detach().clone() for p in model.parameters()]
    step = epoch = 0
    while step < STEPS:
        batches = epoch_order(ROWS, SEED, epoch, True).split(BATCH)
        for first in range(0, len(batches), given.accumulate):
            if step == STEPS:
                break
            group = batches[first : first + given.accumulate]
            for index in group:
                with torch.autocast("cpu", DTYPES.get(given.precision), enabled=given.precision in DTYPES):
                    loss = functional.cross_entropy(model(x[index]), y[index])
                scaler.scale(loss * (len(index) / sum(map(len, group)))).backward()
            scaler.unscale_(optimizer)
            if given.clip is not None:
                clip = clip_grad_norm_ if given.clip_by == "norm" else clip_grad_value_
                clip(model.parameters(), given.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            with torch.no_grad():
                for average, p in zip(averages, model.parameters(), strict=True):
                    average.lerp_(p, 1 - (given.ema or 0.0))
            step += 1
        epoch += 1
    weights = [p.detach() for p in model.parameters()]
    return Trained(weights, averages, [dict(optimizer.state[p]) for p in model.parameters()])


def trained(folder: Path) -> Trained:
    """What a run left in its last checkpoint."""
    place = folder / "checkpoints" / "last"
    saved, state = load_file(place / checkpoint.WEIGHTS), checkpoint.read_state(place)
    assert sorted(saved) == sorted(NAMES)
    weights = state["trained"] or saved  # with an average, that is what is saved as the weights
    assert list(weights) == NAMES or not state["trained"]
    optimizer = state["optimizers"][0]["state"]
    return Trained([weights[n] for n in NAMES], [saved[n] for n in NAMES], [optimizer[i] for i in range(4)])


def apart(given: Combination, one: Trained, two: Trained) -> float:
    """The largest difference of two trainings, relative to numbers above 1."""
    pairs = list(zip(one.weights, two.weights, strict=True))
    if given.ema is not None:
        pairs += zip(one.averages, two.averages, strict=True)
    for a, b in zip(one.state, two.state, strict=True):
        assert set(a) == set(b) == {"step", "exp_avg", "exp_avg_sq"}
        pairs += [(a[key], b[key]) for key in a]
    return max(float(((a - b).abs() / a.abs().clamp(min=1)).max()) for a, b in pairs)


EAGER = [
    *lattice(("fp32", "bf16"), "off"),
    *lattice(("fp16",), "off")[-2:],
    Combination(clip=0.01, clip_by="value", accumulate=2, ema=0.5),
    Combination("fp16", clip=0.01, clip_by="value"),
]


@pytest.mark.parametrize("given", EAGER, ids=str)
def test_a_run_equals_a_loop_written_by_hand_bit_for_bit(given: Combination, tmp_path: Path) -> None:
    run = pegboard.train(given.config(), root=tmp_path, quiet=True)
    assert apart(given, by_hand(given), trained(run.folder)) == 0


@pytest.mark.parametrize(
    "given", first_of_each(lattice(("fp32", "bf16"), "step")[::3]), ids=str
)  # each pair of two values
@pytest.mark.usefixtures("only_traced")
def test_a_traced_run_agrees_with_a_loop_written_by_hand(given: Combination, tmp_path: Path) -> None:
    run = pegboard.train(given.config(), root=tmp_path, quiet=True)
    made = run.summary["compiled"]
    assert (made["level"], made["why"], made["graphs"], made["recompiled"]) == ("step", "", 1, [])
    assert apart(given, by_hand(given), trained(run.folder)) <= TOLERANCE[given.precision]


RESUMED = [
    Combination(clip=0.3, accumulate=2, ema=0.9),
    Combination("bf16", clip=0.3, accumulate=2, ema=0.9),
    Combination("fp16", clip=0.3, ema=0.9),
    Combination(clip=0.3, accumulate=2, ema=0.9, compile="step"),
    Combination(ema=0.9, compile="model"),
]


@pytest.mark.parametrize("given", first_of_each(RESUMED), ids=str)
@pytest.mark.usefixtures("only_traced")
def test_a_run_that_was_interrupted_ends_in_the_same_bytes(given: Combination, tmp_path: Path) -> None:
    reference, events = whole(given.config(), tmp_path / "whole")
    resumed = cut_and_resumed(given.config(), tmp_path / "cut", len(events) // 2)
    assert differences(reference, resumed) == []


@pytest.mark.parametrize("compiled", ["model", "step"])
@pytest.mark.usefixtures("only_traced")
def test_a_compiler_leaves_its_name_nowhere(compiled: str, tmp_path: Path) -> None:
    run = pegboard.train(Combination(compile=compiled, ema=0.9).config(), root=tmp_path, quiet=True)
    assert run.summary["compiled"]["level"] == compiled
    state = str(checkpoint.read_state(run.folder / "checkpoints/last"))
    texts = [
        path.read_text()
        for path in run.folder.rglob("*")
        if path.suffix in (".json", ".jsonl", ".txt", ".yaml")
    ]
    assert len(texts) > 4
    assert "_orig_mod" not in "".join(
        [state, *texts, *load_file(run.folder / "checkpoints/last/model.safetensors")]
    )


def test_the_average_is_what_is_measured_and_saved(tmp_path: Path) -> None:
    run = pegboard.train(Combination(ema=0.9).config(), root=tmp_path, quiet=True)
    last = [row for row in run.history if "val/loss" in row][-1]
    model, plan = (
        pegboard.load(run.folder, which="last"),
        pegboard.planning.plan.make_plan(pegboard.config.check.check(Combination().config()), read=True),
    )
    assert plan.splits is not None and plan.splits.val is not None
    batch = plan.splits.val.gather(torch.arange(len(plan.splits.val)))
    assert batch.target is not None
    with torch.no_grad():
        loss = functional.cross_entropy(model.eval()(*batch.inputs), batch.target)
    assert last["val/loss"] == pytest.approx(float(loss), rel=1e-5)


def test_an_update_that_the_scaler_leaves_out_leaves_no_trace(tmp_path: Path) -> None:
    bad = 3
    given = Combination("fp16", clip=0.3, ema=0.9).config(steps=bad + 2, save_every=1, keep=9)
    row = int(epoch_order(ROWS, SEED, 0, True)[BATCH * (bad - 1)])
    given["plugins"] = {"local": LOCAL + ODD}
    given["regularizers"] |= {
        "overflow": {"row": row},
        "weight_decay": {"value": 0.1},
        "shrinking": {"name": "partner_after_step_constrain", "by": 0.99},
    }
    run = pegboard.train(given, root=tmp_path, quiet=True)
    places = [run.folder / f"checkpoints/step-{step:08d}" for step in (bad - 1, bad, bad + 1)]
    states = [checkpoint.read_state(place) for place in places]
    saved = [load_file(place / checkpoint.WEIGHTS) for place in places]
    kept = [{"saved": w, "trained": s["trained"], "state": s["optimizers"][0]["state"]}
            for w, s in zip(saved, states, strict=True)]  # fmt: skip
    assert list(unequal(kept[0], kept[1])) == []
    assert len(list(unequal(kept[1], kept[2]))) == 4 * 5  # both weights, both moments and the count
    assert [s["scaler"]["scale"] for s in states] == [65536.0, 32768.0, 32768.0]


def images(compiled: str, **trainer: Any) -> dict[str, Any]:
    given = Combination(compile=compiled).config(**trainer)
    given["data"] = {"name": "colours", "batch_size": 4}
    return given | {"model": {"name": "conv"}, "plugins": {"local": LOCAL + ODD}}


@pytest.mark.parametrize("compiled", first_of_each(["off", "step"]))
@pytest.mark.usefixtures("only_traced")
def test_images_with_their_channels_last_train_alike(
    compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    gather = Resident.gather

    def watched(source: Resident, index: Tensor) -> Any:
        batch = gather(source, index)
        seen.append(batch.inputs[0].is_contiguous(memory_format=torch.channels_last))
        return batch

    runs = []
    for last in (False, True):
        monkeypatch.setattr(Resident, "gather", watched if last and compiled == "off" else gather)
        runs.append(pegboard.train(images(compiled, channels_last=last), root=tmp_path, quiet=True).folder)
    one, two = (load_file(folder / "checkpoints/last/model.safetensors") for folder in runs)
    assert max(float((one[name] - two[name]).abs().max()) for name in one) <= 1e-5
    assert all(seen) and (seen or compiled == "step")


def test_a_convolution_keeps_its_layout_in_memory(tmp_path: Path) -> None:
    plan = pegboard.plan(images("off", channels_last=True))
    weight = pegboard.planning.plan.assemble(plan, "cpu").model[2].weight  # type: ignore[index]
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    reference, _ = whole(images("off", channels_last=True), tmp_path / "whole")
    resumed = cut_and_resumed(images("off", channels_last=True), tmp_path / "cut", 3)
    assert differences(reference, resumed) == []


def layout(given: dict[str, Any], **model: bool) -> bool:
    """Whether the pictures of a config have their channels innermost."""
    given["model"] = {"name": "conv", **model}
    return pegboard.planning.plan.assemble(pegboard.plan(given), "cpu").channels_last


def test_pictures_have_their_channels_innermost_where_that_is_faster() -> None:
    assert layout(images("off")) and layout(images("step")) and layout(images("off", channels_last=True))
    assert not layout(images("off", channels_last=False))
    assert not layout(images("step", channels_last=False))
    assert not layout(images("off"), groups=True)
    assert layout(images("step"), groups=True)
    assert not pegboard.planning.plan.assemble(pegboard.plan(Combination().config()), "cpu").channels_last


@pytest.mark.parametrize("compiled", ["off", "step"])
@pytest.mark.usefixtures("only_traced")
def test_a_model_that_views_pictures_keeps_their_usual_layout(compiled: str, tmp_path: Path) -> None:
    given = images(compiled)
    assert not layout(given, views=True)
    run = pegboard.train(given, root=tmp_path, quiet=True)
    assert run.summary.get("compiled", {}).get("level", "off") == compiled


def test_a_model_that_views_pictures_refuses_another_layout(tmp_path: Path) -> None:
    given = images("off", channels_last=True)
    given["model"] = {"name": "conv", "views": True}
    with pytest.raises(pegboard.PegboardError, match="model 'conv' takes pictures in the usual layout only"):
        pegboard.train(given, root=tmp_path, quiet=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tf32", "fp32"])
def test_tf32_and_order_of_sums_are_switches_that_are_put_back(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []
    log_softmax = torch.log_softmax

    def watched(*args: Any, **more: Any) -> Tensor:
        seen.append((torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()))
        return log_softmax(*args, **more)

    monkeypatch.setattr(torch, "log_softmax", watched)
    before = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    run = pegboard.train(Combination(name).config(deterministic=name == "fp32"), root=tmp_path, quiet=True)
    assert set(seen) == {("high", False) if name == "tf32" else ("highest", True)}
    assert before == (torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled())
    assert apart(Combination(), by_hand(Combination()), trained(run.folder)) == 0  # a CPU has no tf32


WRONG = {
    "accumulate=0": "expected a whole number (at least 1",
    "precision=fp8": "expected one of auto, fp32, tf32, bf16, fp16",
    "compile=steps": "did you mean 'step'?",
    "compile_mode=fast": "expected one of default, reduce-overhead, max-autotune",
    "steps_per_call=65": "expected a whole number (at least 1 and at most 64)",
    "channels_last=maybe": "expected true or false or null",
    "deterministic=2": "expected true or false",
    "device=gpu": "did you mean 'cuda'?",
}


@pytest.mark.parametrize("word", WRONG)
def test_a_wrong_value_gives_one_message(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(Combination().config()))
    assert main(["check", str(path), f"trainer.{word}"]) == 2
    said = "".join(capsys.readouterr())
    assert "1 mistake" in said and f"trainer.{word.partition('=')[0]}\n" in said and WRONG[word] in said


@pytest.mark.prove
@pytest.mark.parametrize("given", lattice(("fp32", "bf16"), "step"), ids=str)
@pytest.mark.usefixtures("compiler")
def test_a_compiled_run_agrees_and_resumes_exactly(
    given: Combination, tmp_path: Path, show: Callable[[str], None]
) -> None:
    reference, events = whole(given.config(), tmp_path / "whole")
    assert pegboard.Run(reference).summary["compiled"]["level"] == "step"
    assert apart(given, by_hand(given), trained(reference)) <= TOLERANCE[given.precision]
    resumed = cut_and_resumed(given.config(), tmp_path / "cut", len(events) // 2)
    assert differences(reference, resumed) == []
    show(f"a compiled run in {given.precision} as a loop written by hand, and resumed exactly")
