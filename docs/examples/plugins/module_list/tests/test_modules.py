"""The list brings in what it names, with the arguments it names, and nothing else ever."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from pegboard import Classes, Context, DataSpec, Image, PegboardError, Series, Spec, Vector, pegs, plan
from pegboard.testing import partner_config

import acme_networks
from pegboard_example_modules import LISTED, Listed

EACH = pytest.mark.parametrize("one", LISTED, ids=lambda one: one.part)
SPECS: dict[type[Spec], Spec] = {Vector: Vector(5), Image: Image(2, 12, 12), Series: Series(7, 3)}


def context(spec: Spec) -> Context:
    return Context(spec=DataSpec((spec,), Classes(4)), outputs=4)


@EACH
def test_fields_are_the_arguments_of_the_class_that_the_data_does_not_give(one: Listed) -> None:
    made = getattr(importlib.import_module(one.module), one.name)
    sizes = {*one.sizes(SPECS[one.inputs[0]]), "num_classes"}
    arguments = inspect.signature(made).parameters
    assert sizes <= set(arguments)
    chosen = {name: a.default for name, a in arguments.items() if name not in sizes}
    assert chosen == {f.name: f.default for f in fields(one.config)}
    assert MISSING not in chosen.values()


@EACH
def test_every_input_that_is_declared_is_read(one: Listed) -> None:
    for kind in one.inputs:
        network = one.build(one.config(), context(SPECS[kind]))
        assert type(network) is getattr(acme_networks, one.name)
        assert network(SPECS[kind].example(3, "cpu")).shape == (3, 4)


@EACH
def test_pegs_change_neither_numbers_nor_names(one: Listed) -> None:
    spec = SPECS[one.inputs[0]]
    torch.manual_seed(0)
    network = one.build(one.config(), context(spec))
    torch.manual_seed(0)
    sizes: Any = {**one.sizes(spec), "num_classes": 4}
    plain = getattr(acme_networks, one.name)(**sizes)
    assert {peg.site for _, peg in pegs.find(network)} == {"input", "affine", "hidden"}
    assert list(network.state_dict()) == list(plain.state_dict())
    x = torch.randn_like(spec.example(3, "cpu"))
    assert torch.equal(network(x), plain(x))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"name": "mixer", "patch": 5}, "pieces of 5 pixels do not cover 8"),
        ({"name": "temporal", "kernel": 2}, "a kernel of 2 has no middle"),
        ({"name": "highway", "width": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_built(model: dict[str, Any], told: str) -> None:
    reads = {"mixer": "image", "temporal": "series", "highway": "vector"}[model["name"]]
    with pytest.raises(PegboardError, match=told):
        plan(partner_config(model=model, data={"name": "partners:partner", "inputs": reads}))


@pytest.mark.parametrize(
    "model",
    [
        {"name": "trap.Network"},
        {"name": "trap:Network"},
        {"name": "MixerBlock"},
        {"name": "acme_networks:MixerBlock"},
        {"name": "highway", "module": "trap"},
        {"name": "highway", "config": "trap.Network"},
    ],
    ids=str,
)
def test_nothing_that_a_config_says_is_imported(
    model: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('a config was followed to a module')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PegboardError, match="unknown|not installed|is not|no "):
        plan(partner_config(model=model))
    assert "trap" not in sys.modules


def test_a_config_is_checked_without_torch_and_without_the_package(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pegboard.config.check import check\nfrom pegboard.testing import partner_config\n"
        "check(partner_config(model={'name': 'highway', 'width': 8}))\n"
        "print(sorted({'torch', 'numpy', 'acme_networks'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert outcome.stdout == "[]\n", outcome.stderr
