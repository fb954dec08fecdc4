"""The number format that `auto` becomes, why, and torch's switches for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pegboard
import pytest
import torch
from pegboard.config.nodes import Trainer
from pegboard.config.one_part import choose
from pegboard.contract.records import ProbePart
from pegboard.engine.precision import choose_precision, full_precision, numeric_settings, rounding
from pegboard.inference.sample_files import Generator
from pegboard.inference.trained import Trained
from pegboard.planning.plan import assemble
from pegboard.registry.discovery import Registry

Config = Callable[..., dict[str, Any]]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Fakes two GPUs, of which the second alone computes bf16 natively; the first is the current one."""
    native, current = [False, True], [0]

    @contextmanager
    def device(name: str) -> Iterator[None]:
        before, current[0] = current[0], int(name.partition(":")[2] or 0)
        yield
        current[0] = before

    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or native[current[0]]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    return native


def test_auto_is_bf16_where_it_is_native_and_not_where_it_is_emulated(gpus: list[bool]) -> None:
    emulated, native = (choose_precision("auto", device) for device in ("cuda:0", "cuda:1"))
    assert (emulated.name, native.name) == ("fp32", "bf16")
    assert emulated.why == "auto: cuda:0 does not compute bf16 natively"
    assert native.why == "auto: cuda:1 computes it natively"


def test_the_device_of_the_run_is_asked_and_not_the_current_one(gpus: list[bool]) -> None:
    gpus[:] = [True, False]
    assert choose_precision("auto", "cuda:1").name == "fp32"
    assert choose_precision("auto", "cuda").name == "bf16"


def test_other_accelerators_are_asked_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextmanager
    def device(name: str) -> Iterator[None]:
        asked.append(name)
        yield

    there = SimpleNamespace(
        is_available=lambda: True, device=device, is_bf16_supported=lambda including_emulation: True
    )
    monkeypatch.setattr(torch, "xpu", there)
    assert choose_precision("auto", "xpu:2").name == "bf16" and asked == ["xpu:2"]
    assert choose_precision("auto", "mps").name == choose_precision("auto", "cpu").name == "fp32"


def test_a_config_that_names_one_gets_it(gpus: list[bool]) -> None:
    found = [choose_precision(name, "cuda:1", "it must") for name in ("fp32", "tf32", "bf16")]
    assert [(p.name, p.why) for p in found] == [("fp32", ""), ("tf32", ""), ("bf16", "")]


def reason(given: dict[str, Any]) -> str:
    plan = pegboard.plan(given)
    return full_precision(plan, assemble(plan, "meta").model)


LINEAR = {"data": {"name": "diabetes"}, "model": {"name": "linear"}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"reference": "least_squares"}, "reference (least_squares) is an exact optimum"),
        ({"optimizer": {"name": "lbfgs"}}, "optimizer (lbfgs): close to an optimum"),
        ({"optimizer": {"name": "gd"}}, "optimizer (gd): close to an optimum"),
        (
            {"data": {"name": "moons"}, "objective": "perceptron", "optimizer": "perceptron"},
            "optimizer (perceptron): its rule adds the samples themselves",
        ),
        ({"data": {"name": "iris"}, "model": {"name": "mlp"}}, ""),
        ({}, ""),
    ],
)
def test_what_would_be_wrong_in_16_bits_stays_in_32(more: dict[str, Any], why: str, gpus: list[bool]) -> None:
    found = reason({**LINEAR, "optimizer": {"name": "adam"}, **more})
    assert found.startswith(why) and bool(found) == bool(why)
    assert choose_precision("auto", "cuda:1", found).name == ("fp32" if why else "bf16")


def test_weights_in_double_precision_stay_as_they_are() -> None:
    plan = pegboard.plan({**LINEAR, "optimizer": {"name": "adam"}})
    model = assemble(plan, "meta").model.double()
    assert full_precision(plan, model) == "the model has weights in double precision"


def test_explain_says_what_auto_became_and_why(gpus: list[bool]) -> None:
    del gpus
    given = {**LINEAR, "optimizer": {"name": "adam"}, "trainer": {"steps": 2, "device": "cuda:1"}}
    assert "on cuda:1 in bf16 (auto: cuda:1 computes it natively)" in pegboard.plan(given).explain()
    said = pegboard.plan({**given, "reference": "least_squares"}).explain()
    assert "in fp32 (auto: reference (least_squares) is an exact optimum" in said


SWITCHES = """
import os, sys, torch
from pegboard.engine.precision import rounding
b = torch.backends
NEW = {"matmul": b.cuda.matmul, "conv": b.cudnn.conv, "rnn": b.cudnn.rnn, "cudnn": b.cudnn, "all": b,
       "cpu matmul": b.mkldnn.matmul, "cpu conv": b.mkldnn.conv, "cpu rnn": b.mkldnn.rnn}
OLD = {"high": torch.get_float32_matmul_precision, "old matmul": lambda: b.cuda.matmul.allow_tf32,
       "old conv": lambda: b.cudnn.allow_tf32}

def tried(read):
    try:
        return read()
    except RuntimeError:
        return "refused"

def state():
    return {k: v.fp32_precision for k, v in NEW.items()} | {k: tried(v) for k, v in OLD.items()}

def check():
    before = state()
    for on, name in ((False, "ieee"), (True, "tf32")):
        with rounding(on):
            inside = state()
            parts = {inside[cpu + k] for cpu in ("", "cpu ") for k in ("matmul", "conv", "rnn")}
            assert parts == {name}, inside
            if "refused" not in before.values():
                assert inside["old matmul"] == inside["old conv"] == on, inside
                assert inside["high"] == ("high" if on else "highest"), inside
        assert state() == before, (before, state())
    if before["all"] != "none":
        b.fp32_precision = "ieee" if before["all"] == "tf32" else "tf32"
        assert b.cuda.matmul.fp32_precision == b.fp32_precision  # it still follows

for text in sys.argv[1:]:
    if os.fork() == 0:  # each from the state in which torch begins
        exec(text)
        check()
        os._exit(0)
    assert os.wait()[1] == 0, text
"""
BEFORE = [
    "pass",
    "torch.set_float32_matmul_precision('high')",
    "b.cudnn.allow_tf32 = False; b.cuda.matmul.allow_tf32 = True",
    "b.fp32_precision = 'tf32'",
    "b.fp32_precision = 'ieee'",
    "b.mkldnn.conv.fp32_precision = 'bf16'; b.mkldnn.rnn.fp32_precision = 'bf16'",
    "b.cuda.matmul.fp32_precision = 'tf32'; b.cudnn.conv.fp32_precision = 'ieee'",
]


def test_tf32_is_off_or_on_everywhere_and_the_switches_are_put_back() -> None:
    """However they were set before: by the older names, by the newer, by both."""
    done = subprocess.run([sys.executable, "-c", SWITCHES, *BEFORE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("precision", "there"), [("fp32", "ieee"), ("auto", "ieee"), ("tf32", "tf32")])
def test_a_run_sets_the_switches(precision: Any, there: str) -> None:
    parts = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before = [part.fp32_precision for part in parts]
    with pytest.raises(ZeroDivisionError), numeric_settings(Trainer(precision=precision)):
        assert [part.fp32_precision for part in parts] == [there] * 3
        raise ZeroDivisionError
    assert [part.fp32_precision for part in parts] == before


def test_a_torch_without_the_newer_switches_has_the_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.engine.precision._newer", list)
    with rounding(True):
        assert torch.backends.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "high"
    assert not torch.backends.cuda.matmul.allow_tf32


def test_a_run_says_nothing_of_precision_on_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**LINEAR, "optimizer": {"name": "adam"}, "trainer": {"steps": 2, "device": "cpu"}}
    pegboard.train(given, root=tmp_path)
    assert "precision" not in capsys.readouterr().out


@pytest.mark.parametrize(("precision", "there"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_a_run_is_used_later_with_its_switches(precision: str, there: str, tmp_path: Path) -> None:
    given = {
        "data": {"name": "moons"},
        "model": {"name": "vae"},
        "objective": "elbo",
        "optimizer": {"name": "adam"},
    }
    trainer = {"steps": 2, "device": "cpu", "precision": precision}
    run = pegboard.train({**given, "trainer": trainer}, root=tmp_path, quiet=True)
    trained = Trained(run.folder)
    seen: list[str] = []

    def note(*given: Any) -> None:
        seen.append(torch.backends.cudnn.conv.fp32_precision)

    for layer in trained.model.modules():
        layer.register_forward_hook(note)
    uses = (
        lambda: trained.evaluate("test"),
        lambda: trained.predict(trained.source("test")),
        lambda: trained.probe(choose(ProbePart, "latent_codes", [], Registry.discover())),
        lambda: Generator(trained).make("samples", 2),
        lambda: Generator(trained).make("reconstruct", 2),
    )
    for use in uses:
        seen.clear()
        use()
        assert {*seen} == {there}
