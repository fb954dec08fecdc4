"""Private names of torch stand in one file of the core; a run does without each."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard.engine import torch_private
from pegboard.engine.torch_private import Private
from pegboard.testing.runs import lean
from pegboard_averaging import functional as averaging
from pegboard_objectives import functional as objectives
from pegboard_optimizers import updates
from safetensors.torch import load_file
from sandbox import ROOT

CORE = ROOT / "framework" / "src" / "pegboard"
HOME = "torch_private.py"  # of the core, and of the plugin that needs most of them
# The table that `nn.Module` is made of: to ask it for its children costs an empty peg two calls more.
ALLOWED = {"pegs.py": "self._modules"}
CONFIG: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "iris", "batch_size": 16},
    "model": {"name": "mlp", "hidden": [8]},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "regularizers": {"weight_decay": {"value": 0.1}, "clip": {"bound": 1.0}, "ema": {"decay": 0.9}},
    "trainer": {"steps": 6, "accumulate": 2, "device": "cpu", "log_every": 1},
}
Outcome = tuple[dict[str, torch.Tensor], list[Any], str, dict[str, Any]]
Without = Callable[[Private], None]


def outcome(folder: Path, quiet: bool = True, optimizer: Any = None, **trainer: Any) -> Outcome:
    """Weights, losses, plan and summary of a short run."""
    given = {**CONFIG, "trainer": CONFIG["trainer"] | trainer}
    given["optimizer"] = optimizer or CONFIG["optimizer"]
    run = pegboard.train(given, root=folder, quiet=quiet)
    weights = load_file(run.folder / "checkpoints" / "last" / "model.safetensors")
    rows = [{k: v for k, v in row.items() if "loss" in k} for row in run.history]
    return weights, rows, (run.folder / "plan.txt").read_text(), dict(run.summary)


def assert_alike(one: Outcome, two: Outcome, *, exact: bool) -> None:
    assert one[0].keys() == two[0].keys()
    for key, value in one[0].items():
        assert torch.equal(value, two[0][key]) if exact else torch.allclose(value, two[0][key], atol=1e-5)
    if exact:
        assert one[1] == two[1]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Without]:
    """Takes a name away from what the core looks up."""
    find = torch_private.find

    def take(name: Private) -> None:
        monkeypatch.setattr(torch_private, "find", lambda path: None if path == name.path else find(path))
        torch_private.bind()

    yield take
    monkeypatch.undo()
    torch_private.bind()


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("eager")
    return {precision: outcome(folder, precision=precision) for precision in ("fp32", "fp16")}


@pytest.mark.parametrize("name", torch_private.NAMES, ids=lambda name: name.path)
def test_every_name_is_there_in_the_torch_that_is_tested(name: Private) -> None:
    assert torch_private.find(name.path) is not None
    assert torch_private.gone([name]) == []


@pytest.mark.parametrize("name", torch_private.NAMES, ids=lambda name: name.path)
def test_a_run_without_a_name_ends_with_the_same_bits_and_says_so(
    name: Private,
    eager: dict[str, Outcome],
    without: Without,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    without(name)
    precision = "fp16" if "Scaler" in name.path else "fp32"
    found = outcome(tmp_path, precision=precision)
    assert_alike(found, eager[precision], exact=True)
    assert f"has no {name.path}: {name.without}" in " ".join(capsys.readouterr().err.split())
    if "dispatch" not in name.path and "schema" not in name.path:
        assert found[2] == eager[precision][2]  # the plan


@pytest.mark.parametrize(
    ("holder", "changes", "optimizer"),
    [
        (objectives, {"KERNEL": None}, "adamw"),
        (averaging, {"lerp": averaging.one_by_one}, "adamw"),
        *((updates, {"KERNELS": dict.fromkeys(updates.KERNELS)}, name) for name in ("adam", "adamw", "sgd")),
        (updates, {"FUNCTIONS": {}}, "muon"),
    ],
)
def test_a_plugin_without_a_private_name_of_torch_trains_to_the_same_bits(
    holder: Any, changes: dict[str, Any], optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = {"optimizer": {"name": optimizer, "lr": 0.01}}
    with lean():
        whole = outcome(tmp_path, **node)
        for name, value in changes.items():
            assert getattr(holder, name)
            monkeypatch.setattr(holder, name, value)
        assert_alike(outcome(tmp_path, **node), whole, exact=True)


def executed_again(name: str) -> Any:
    """A module of a plugin as an import of it would make it now."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


# What is taken away, the module of a plugin that looks it up, and its name there.
LOOKED_UP = [
    ("torch._C._nn.cross_entropy_loss", "pegboard_objectives.functional", "KERNEL", None),
    ("torch._foreach_lerp_", "pegboard_averaging.functional", "FOREACH", None),
    ("torch._fused_adamw_", "pegboard_optimizers.updates", "KERNELS", None),
    ("torch.optim._muon", "pegboard_optimizers.updates", "FUNCTIONS", None),
    ("torch._compile._disable_dynamo", "pegboard_rnn.cells", "_uncompiled", torch.compiler.disable),
    ("torch.Tensor._version", "pegboard_gnn.memo", "VERSIONS", False),
    ("torch.nn.Conv2d._conv_forward", "pegboard_dropout.connect", "CONVOLUTION", False),
]


@pytest.mark.parametrize(("path", "module", "where", "instead"), LOOKED_UP, ids=[row[0] for row in LOOKED_UP])
def test_a_plugin_says_in_one_line_which_private_name_is_gone(
    path: str, module: str, where: str, instead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module(module)
    if path.startswith("torch.Tensor."):
        monkeypatch.setattr(torch, "Tensor", object)  # of C, from which nothing can be taken
    else:
        monkeypatch.delattr(path)
        monkeypatch.delattr(path.replace("Conv2d", "modules.conv._ConvNd"), raising=False)
    with pytest.warns(UserWarning, match=re.escape(f"has no {path}: ")) as lines:
        found = getattr(executed_again(module), where)
    assert len(lines) == 1
    if where == "KERNELS":
        found = found["adamw"]
    elif where == "FUNCTIONS":
        found = found.get(torch.optim.Muon)
    assert found is instead


def test_what_is_made_of_a_graph_is_made_anew_where_nobody_tells_that_it_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pegboard_gnn import memo

    kept, key = memo.Memo[int](), (torch.zeros(1),)
    assert [kept.get(key, lambda at=at: at) for at in (1, 2)] == [1, 1]  # type: ignore[misc]
    monkeypatch.setattr(memo, "VERSIONS", False)
    assert [kept.get(key, lambda at=at: at) for at in (3, 4)] == [3, 4]  # type: ignore[misc]


def test_operations_are_not_counted_without_what_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("pegboard_mlp.operations")
    monkeypatch.setitem(sys.modules, "torch.utils._python_dispatch", None)
    again = executed_again("pegboard_mlp.operations")
    with pytest.raises(pegboard.PegboardError, match=r"has no torch\.utils\._python_dispatch"):
        again.operations(lambda: torch.ones(1) + 1)


def test_weights_of_layers_are_dropped_without_private_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from pegboard_dropout import DropConnect, connect

    monkeypatch.setattr(connect, "CONVOLUTION", False)
    connect.dropping.cache_clear()
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3))
    trick, x = (
        connect.DropConnectTrick(DropConnect(p=0.5, layers=("convolution", "recurrent"))),
        torch.randn(1, 2, 5, 5),
    )
    whole = layer(x)
    trick.edit_model(layer)
    assert not torch.equal(layer(x), layer(x)) and torch.equal(layer.eval()(x), whole)
    connect.dropping.cache_clear()
    monkeypatch.setattr(connect, "RECURRENT", ("_gone",))
    with pytest.raises(pegboard.PegboardError, match=r"has no torch\.nn\.RNNBase\._gone, by which"):
        trick.edit_model(torch.nn.Sequential(torch.nn.LSTM(2, 3)))


def test_recurrent_layers_read_their_weights_by_name_where_there_is_no_list() -> None:
    from pegboard_rnn.cells import Fused

    cell = Fused("lstm", 2, 3)
    assert cell.affine is not None
    cell.affine.add_module("own", torch.nn.Tanh())
    x = torch.randn(1, 4, 2)
    before, _ = cell(x)
    del vars(cell.kernel)["_flat_weights"]
    assert torch.equal(cell(x)[0], before)


def test_dropout_of_attention_is_called_where_nobody_tells_who_watches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pegboard_transformer import blocks

    peg = pegboard.Peg("attention", 2, "NHWC")
    peg.add_module("dropout", torch.nn.Dropout(0.5))
    assert blocks._dropped(peg) == 0.5
    monkeypatch.setattr(blocks, "HOOKS", ("_gone",))
    assert blocks._dropped(peg) is None


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


# Where private names are: what a dotted name, an import, a method or a name for getattr may mean.
OWNERS = (
    torch,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.Module(),
    torch.nn.Conv2d,
    torch.nn.RNN(1, 1, device="meta"),
    torch.optim.Optimizer,
    torch.optim.SGD([torch.zeros(1)]),
    torch.amp.GradScaler,
    torch.UntypedStorage,
    torch.ops.aten.add.Tensor,
    torch.fx.GraphModule,
    torch.autograd,
)
PRIVATE = {
    name
    for owner in OWNERS
    for name in (*dir(owner), *getattr(owner, "__annotations__", ()), "_should_skip_dynamo")
    if name.startswith("_") and not name.startswith("__")
}
# Methods that torch calls where a class has them.
OVERRIDDEN = {name for name in dir(torch.nn.Module) if is_private(name)} | {"_should_skip_dynamo"}
LOOKUPS = ("getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller", "import_module")


def chain(node: ast.expr) -> list[str]:
    """The parts of a dotted name; what is not a name stands as ""."""
    if isinstance(node, ast.Attribute):
        return [*chain(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Underscored names of torch that a module uses, with their lines."""
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "torch":
                full = [f"{module}.{name.name}" for name in node.names]
                yield from ((node.lineno, name) for name in full if any(map(is_private, name.split("."))))
            case ast.Import():
                full = [name.name for name in node.names if name.name.startswith("torch.")]
                yield from ((node.lineno, name) for name in full if any(map(is_private, name.split("."))))
            case ast.Attribute(attr=attr) if is_private(attr):
                parts = chain(node)
                if parts[0] == "torch" or (attr in PRIVATE and attr not in own):
                    yield node.lineno, ".".join(parts)
            case ast.Attribute():
                parts = chain(node)
                if parts[0] == "torch" and any(map(is_private, parts)):
                    yield node.lineno, ".".join(parts)
            case ast.FunctionDef(name=name) if name in OVERRIDDEN:
                yield node.lineno, name
            case ast.Call(func=func) if chain(func)[-1] in LOOKUPS:
                words = [
                    a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                ]
                yield from ((node.lineno, word) for word in words if word in PRIVATE)
            case ast.Subscript(slice=ast.Constant(value=str(word))) if word in PRIVATE:
                yield node.lineno, word
            case ast.Constant(value=str(word)) if word.startswith("torch.") and " " not in word:
                if any(map(is_private, word.split("."))):
                    yield node.lineno, word


def test_the_core_uses_private_names_of_torch_in_one_file_alone() -> None:
    found = {
        f"{path.relative_to(CORE)}:{line}: {name}"
        for path in sorted(CORE.rglob("*.py"))
        if path.name != HOME
        for line, name in private_names(path.read_text("utf-8"))
        if ALLOWED.get(path.name) != name
    }
    assert not found


# The tables that `nn.Module` is made of, which models read for the same reason as pegs do.
TABLES = ("_modules", "_parameters", "_buffers")
# Where plugins use other ones; each is taken away in a test above.
PLUGINS = {
    "connect.py": {"_conv_forward", "_flat_weights", "_flat_weights_names"},
    "memo.py": {"_version"},
    "operations.py": {"torch.utils._python_dispatch.TorchDispatchMode"},
    "functional.py": {"torch._C", "_foreach_lerp_"},
    "updates.py": {"torch.optim._muon", "torch._fused_"},
    "cells.py": {"torch._compile._disable_dynamo", "_flat_weights"},
}


def test_plugins_use_no_private_name_of_torch_that_no_test_takes_away() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "plugins").glob("*/src/**/*.py"))
        if path.name != HOME
        for line, name in private_names(path.read_text("utf-8"))
        if name.rpartition(".")[2] not in TABLES
        and not {name, name.rpartition(".")[2]} & PLUGINS.get(path.name, set())
    }
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "from torch._C import DispatchKey",
        "import torch._dynamo",
        "torch._foreach_mul_(x, 2)",
        "x = torch._C._nn.cross_entropy_loss",
        "model._modules.pop('norm')",
        "getattr(optimizer, '_optimizer_step_pre_hooks', None)",
        "vars(module)['_parameters']",
        "name = 'torch._inductor.lowering'",
        "def _should_skip_dynamo(cls): return False",
    ],
)
def test_a_private_name_is_found_however_it_is_written(line: str) -> None:
    assert list(private_names(line))


@pytest.mark.parametrize(
    "line",
    ["torch.add(x, 1)", "self._rows(x)", "batch._replace(rows=None)", "x.__dict__", "hasattr(x, '_fields')"],
)
def test_other_names_are_not_taken_for_private_ones_of_torch(line: str) -> None:
    assert not list(private_names(line))
