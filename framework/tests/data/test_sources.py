"""What a source has by default, what a wrapper hands on, and what is made of a source of any class."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Batch, DataSpec, Ragged, Resident, Sequences, Source, Splits, Stream
from pegboard.contract import results
from pegboard.data import Wrapped, adapted, adapted_splits, data_warnings, padded_splits, unweighted
from pegboard.data.draw_weights import class_shares, weight_shares
from pegboard.testing.runs import Tapped, differences, lean, whole
from pegboard_gnn import Graph, WholeGraph
from torch import Tensor

CORE = Path(pegboard.__file__).parent
Config = Callable[..., dict[str, Any]]
X, Y = torch.arange(12.0).view(6, 2), torch.arange(6) % 2

LOOKER = '''
from dataclasses import dataclass

from pegboard import Regularizer, Trick, hookimpl


@dataclass(frozen=True)
class Nothing:
    """No fields."""


def build(config, context):
    class Scales(Trick):
        mean = None  # of all samples

        def prepare(self, train, size):
            self.mean = train.inputs[0].mean()

        def edit_loss(self, loss, output, batch):
            return loss * self.mean

    return Scales()


@hookimpl
def pegboard_regularizers():
    return [Regularizer("scales", Nothing, build, stages={"edit_loss": "term"})]
'''


class Least(Source):
    """What no source can do without, and nothing else."""

    def __len__(self) -> int:
        return len(X)

    def gather(self, index: Tensor) -> Batch:
        return Batch((X[index],), Y[index], None, index)

    def to(self, device: str) -> Least:
        return self


class Stranger:
    """The same, by a person who knows no base class."""

    def __init__(self, **more: Any) -> None:
        vars(self).update(more)

    def __len__(self) -> int:
        return len(X)

    def gather(self, index: Tensor) -> Batch:
        return Batch((X[index],), Y[index], torch.ones(len(index)), index)

    def to(self, device: str) -> Stranger:
        return self


@pytest.mark.parametrize("source", [Least(), adapted(Stranger())], ids=["derived", "stranger"])
def test_a_source_of_three_methods_has_a_default_for_all_else(source: Source) -> None:
    nothing = ("lengths", "widths", "target", "weight", "resident", "tensors", "nbytes")
    assert {name: getattr(source, name) for name in nothing} == dict.fromkeys(nothing)
    assert not (source.varied or source.whole or source.streamed or source.index_on_cpu)
    source.begin([torch.arange(2)], 0)
    source.close()
    assert source.padded(DataSpec()) is source and source.channels_last() is source
    assert source.targets() is None and type(source).picked([source], torch.arange(2)) is None


def test_a_source_that_overrides_begin_is_streamed_and_gets_numbers_on_the_cpu() -> None:
    class Announced(Least):
        def begin(self, order: Any, workers: int, epoch: int = 0) -> None: ...

    assert Announced().streamed and Announced().index_on_cpu
    assert Stream(len, 3).streamed and not Resident([X]).streamed
    ragged = Ragged([Sequences.join([[1], [1, 2]], 0)])
    assert ragged.index_on_cpu and not ragged.streamed


@pytest.mark.parametrize(
    "source",
    [
        Resident([X], Y, torch.ones(6)),
        Ragged([Sequences.join([[1], [1, 2]], 0)]),
        Stream(len, 3, lengths=torch.ones(3), varied=True),
        WholeGraph(Graph(X, torch.tensor([[0], [1]])), torch.arange(6), Y),
    ],
    ids=lambda source: type(source).__name__,
)
def test_a_wrapper_hands_on_whatever_a_source_has(source: Source) -> None:
    wrapped = Wrapped(Wrapped(source))
    public = {name: value for name, value in vars(Source).items() if name[0] != "_"}
    for name in (n for n, v in public.items() if not callable(v) and not isinstance(v, classmethod)):
        one, other = getattr(wrapped, name), getattr(source, name)
        assert one is other or (name == "tensors" and len(one) == len(other)) or one == other, name
    assert len(wrapped) == len(source) and wrapped.targets() is source.targets()
    assert public.keys() - vars(Wrapped).keys() == {"index_on_cpu", "picked"}  # made of others; of the class


def test_a_wrapper_stays_around_what_is_moved_padded_or_laid_out() -> None:
    source = Resident([torch.zeros(2, 3, 4, 4)])
    for made in (s := Wrapped(source)).to("meta"), s.padded(DataSpec()), s.channels_last():
        assert isinstance(made, Wrapped) and isinstance(made.source, Resident)
    assert s.to("meta").resident.inputs[0].is_meta
    assert s.channels_last().resident.inputs[0].is_contiguous(memory_format=torch.channels_last)


def test_a_wrapper_finds_what_its_source_has_besides_and_can_be_pickled() -> None:
    graph = Wrapped(WholeGraph(Graph(X, torch.tensor([[0], [1]])), torch.arange(6)))
    assert torch.equal(pickle.loads(pickle.dumps(graph)).nodes, torch.arange(6))
    with pytest.raises(AttributeError, match="colour"):
        graph.colour  # noqa: B018


def test_what_has_no_weights_any_more_keeps_the_path_that_it_had() -> None:
    heard: list[str] = []
    weighted = Resident([X], Y, torch.ones(6))
    tapped = unweighted(Tapped(weighted, lambda: heard.append("read")))
    assert isinstance(tapped, Tapped) and tapped.resident is not None and tapped.resident.weight is None
    assert tapped.gather(torch.arange(2)).weight is None and heard == ["read"]
    plain = unweighted(adapted(Stranger()))
    assert plain.resident is None and plain.weight is None and plain.gather(torch.arange(2)).weight is None


def test_what_a_stranger_has_besides_is_found_by_its_name() -> None:
    heard: list[Any] = []
    one = Stranger(
        lengths=Y,
        widths=X,
        varied=True,
        whole=True,
        target=Y,
        weight=None,
        tensors=(X, Y),
        begin=lambda *given: heard.append(given),
        close=lambda: heard.append("close"),
        padded=lambda spec: Stranger(colour="red"),
    )
    source = adapted(one)
    assert source.lengths is Y and source.widths is X and source.target is Y and source.tensors == (X, Y)
    assert source.varied and source.whole and source.streamed and source.index_on_cpu
    source.begin([], 2, 3)
    source.close()
    assert heard == [([], 2, 3), "close"]
    padded: Any = source.padded(DataSpec())
    assert isinstance(padded, Source) and padded.colour == "red" and isinstance(source.to("cpu"), Source)
    assert adapted(source) is source
    assert isinstance(source, Stranger) and len(pickle.loads(pickle.dumps(adapted(Stranger())))) == 6


def test_draws_read_a_stranger_that_tells_no_weights_and_no_other() -> None:
    ones = torch.full((6,), 1 / 6, dtype=torch.float64)
    told = adapted(Stranger(target=Y, weight=None))
    told.source.gather = None  # type: ignore[attr-defined]
    assert torch.allclose(class_shares(told, 4, 0), ones)
    for found in (Stranger(), Stranger(target=Y)):  # whose batches have weights
        assert torch.allclose(weight_shares(adapted(found), 4, 0), ones)
        assert torch.allclose(class_shares(adapted(found), 4, 0), ones)
    assert adapted(Stranger(target=Y)).targets() is Y


def test_splits_of_strangers_are_adapted_once_and_others_left() -> None:
    own, kept = Stranger(), Resident([X])
    splits = adapted_splits(Splits(spec=DataSpec(), train=own, val=kept))
    assert isinstance(splits.train, Source) and splits.val is kept and splits.test is None
    assert adapted_splits(splits).train is splits.train
    assert padded_splits(splits).train is splits.train and data_warnings(splits) == []


def test_type_checkers_know_all_fields_of_splits() -> None:
    tree = ast.parse(Path(results.__file__).read_text("utf-8"))
    splits = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Splits")
    init = next(n for n in ast.walk(splits) if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    shown = {of.arg: ast.unparse(of.annotation) for of in init.args.kwonlyargs if of.annotation}
    assert {name: text.replace("SourceLike", "Source") for name, text in shown.items()} == {
        f.name: str(f.type) for f in fields(Splits)
    }
    defaults = zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
    required = [of.arg for of, value in defaults if value is None]
    assert required == ["spec", "train"]


def test_a_watched_run_ends_with_the_bits_of_one_that_is_not(config: Config, tmp_path: Path) -> None:
    local = tmp_path / "looker.py"
    local.write_text(LOOKER)
    given = config(regularizers={"scales": {}})
    given["plugins"] = {"local": [*given["plugins"]["local"], str(local)]}
    with lean():
        plain = pegboard.train(given, root=tmp_path / "plain", quiet=True).folder
        watched, events = whole(given, tmp_path / "watched")
    assert differences(plain, watched) == []
    assert events.count("train") == 3 * 4  # batches, and none while the trick looked at the samples


def probes(file: Path) -> Iterator[str]:
    """Where a module asks what a source has or is, instead of reading an attribute of it."""
    unique = {n for n in vars(Source) if n[0] != "_"} - {"target", "targets", "to"}
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            of, what = (ast.unparse(arg) for arg in node.args[:2])
            by_name = node.func.id in ("getattr", "hasattr")
            if by_name and ("source" in of or (what.strip("'") in unique and of not in ("spec", "entry"))):
                yield f"{file.relative_to(CORE)}:{node.lineno}: {node.func.id}({of}, {what})"
            if node.func.id == "isinstance" and "Resident" in what and file.parent.name != "data":
                yield f"{file.relative_to(CORE)}:{node.lineno}: isinstance({of}, {what})"


def test_no_module_of_the_core_probes_a_source() -> None:
    found = {file: list(probes(file)) for file in CORE.rglob("*.py")}
    adapter = found.pop(CORE / "data" / "wrapping.py")
    assert adapter and not [line for lines in found.values() for line in lines]
