"""What only the data, a device or a part itself can refuse has its place in the config all the same."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pegboard
import pytest
from pegboard.config.check import check
from pegboard.config.errors import ConfigError, Mistake

PARTS = """
from dataclasses import dataclass, field
from pegboard import *
from torch import nn

@dataclass(frozen=True)
class Column:
    name: str = "x"

@dataclass(frozen=True)
class Read:
    column: Column = field(default_factory=Column)
    what: str = "part"  # what it does not like
    inputs: tuple[str, ...] | dict[str, int] = ()

def read(config, context):
    if config.what == "part":
        raise PegboardError("the file is empty\\n  expected rows")
    if config.what == "text":
        raise PegboardError("data.column.name is no column of the file")
    if config.what == "keys":
        raise PegboardError("one sample is too few: set data.drop_last, or another data.batch_size")
    if config.what == "quoted":
        raise PegboardError("there is no column 'two', and 'one' is empty; nearest: 'y'")
    raise PegboardError("no such column", field="column.name")

@dataclass(frozen=True)
class Picky:
    late: bool = False  # refuse in a step, not when it is built

class PickyNet(nn.Linear):
    def forward(self, x):
        raise PegboardError("I do not like this batch")

def picky(config, context):
    if not config.late:
        raise PegboardError("I do not like this data")
    return PickyNet(8, context.outputs)

@hookimpl
def pegboard_datasets():
    return [Dataset("file", Read, read)]

@hookimpl
def pegboard_models():
    return [Model("picky", Picky, picky)]
"""

CONFIG = """\
data: {name: points, batch_size: 16}
model: {name: net}
optimizer: {name: plain, lr: 0.1}
objective: {name: guess}
trainer: {epochs: 3, device: cpu}
plugins: {local: [TOY, parts.py]}
"""


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Mistake]]:
    """The mistakes with which the training of a config is refused, which `check` accepts."""
    monkeypatch.chdir(tmp_path)
    Path("parts.py").write_text(textwrap.dedent(PARTS))
    toy = Path(__file__).parents[1].joinpath("toy.py")

    def run(*changes: tuple[str, str], words: tuple[str, ...] = ()) -> list[Mistake]:
        text = CONFIG.replace("TOY", str(toy))
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        Path("cfg.yaml").write_text(text)
        check("cfg.yaml", words)
        with pytest.raises(ConfigError) as raised:
            pegboard.train("cfg.yaml", *words, root="runs", quiet=True)
        assert not list(Path().glob("runs/*/*"))
        return list(raised.value.mistakes)

    return run


def found(mistakes: list[Mistake]) -> list[tuple[str, str]]:
    return [(m.path, str(m.origin)) for m in mistakes]


@pytest.mark.parametrize(
    ("what", "path", "place"),
    [
        ("part", "data", "cfg.yaml:1:1"),
        ("text", "data.column.name", "cfg.yaml:1:63"),
        ("field", "data.column.name", "cfg.yaml:1:64"),
        ("keys", "data.batch_size", "cfg.yaml:1:32"),  # the one that was written
    ],
)
def test_what_a_data_set_refuses_has_its_place(
    refused: Callable[..., list[Mistake]], what: str, path: str, place: str
) -> None:
    data = f"data: {{name: file, batch_size: 16, what: {what}, column: {{name: y}}}}"
    mistakes = refused(("data: {name: points, batch_size: 16}", data))
    assert found(mistakes) == [(path, place)]
    if what == "part":
        assert str(mistakes[0]).splitlines()[1:] == ["    the file is empty", "    expected rows"]


@pytest.mark.parametrize(
    ("inputs", "path", "place"),
    [
        ("[one, two]", "data.inputs.1", "cfg.yaml:1:64"),
        ("{one: 1, two: 2}", "data.inputs.two", "cfg.yaml:1:72"),
        ("[two, two]", "data", "cfg.yaml:1:1"),
        ("[]", "data", "cfg.yaml:1:1"),
    ],
)
def test_a_refused_value_has_its_own_place(
    refused: Callable[..., list[Mistake]], inputs: str, path: str, place: str
) -> None:
    data = f"data: {{name: file, batch_size: 16, what: quoted, inputs: {inputs}, column: {{name: y}}}}"
    assert found(refused(("data: {name: points, batch_size: 16}", data))) == [(path, place)]


@pytest.mark.parametrize(("late", "said"), [("false", "this data"), ("true", "this batch")])
def test_what_a_model_refuses_has_its_place(
    refused: Callable[..., list[Mistake]], late: str, said: str
) -> None:
    mistakes = refused(("name: net", f"name: picky, late: {late}"))
    assert found(mistakes) == [("model", "cfg.yaml:2:1")] and said in mistakes[0].message


def test_all_that_the_data_does_not_allow_is_told_at_once(refused: Callable[..., list[Mistake]]) -> None:
    mistakes = refused(
        ("batch_size: 16", "batch_size: 999, drop_last: true, sampling: weighted"),
    )
    assert found(mistakes) == [
        ("data.drop_last", "cfg.yaml:1:50"),
        ("data.sampling", "cfg.yaml:1:66"),
    ]


def test_a_place_on_the_command_line_is_named_too(refused: Callable[..., list[Mistake]]) -> None:
    (mistake,) = refused(words=("data.sampling=weighted",))
    assert str(mistake.origin) == "command line, 'data.sampling=weighted'"


def test_folds_beyond_the_data_have_their_place(refused: Callable[..., list[Mistake]]) -> None:
    mistakes = refused(("epochs: 3", "epochs: 3, folds: 5000"))
    assert found(mistakes) == [("trainer.folds", "cfg.yaml:5:29")]


def test_a_device_that_is_not_there_has_its_place(refused: Callable[..., list[Mistake]]) -> None:
    mistakes = refused(("device: cpu", "device: 'cuda:77'"))
    assert found(mistakes) == [("trainer.device", "cfg.yaml:5:30")]


def test_weights_a_figure_and_a_player_of_their_own_are_told_with_their_places(
    refused: Callable[..., list[Mistake]],
) -> None:
    Path("w.safetensors").write_bytes(b"nothing")
    mistakes = refused(
        ("name: net", "name: net, weights: w.safetensors"), ("epochs: 3", "epochs: 3, monitor: val/best")
    )
    assert found(mistakes) == [("model.weights", "cfg.yaml:2:29"), ("trainer.monitor", "cfg.yaml:5:31")]
    mistakes = refused(
        ("lr: 0.1", "lr: 0.1, players: {critic: {lr: 1}}"),
        ("objective:", "regularizers: {drop: {players: [critc]}}\nobjective:"),
    )
    assert sorted(found(mistakes)) == [
        ("optimizer.players.critic", "cfg.yaml:3:45"),
        ("regularizers.drop.players.0", "cfg.yaml:4:33"),
    ]


def test_explain_gives_places_as_training_does(
    refused: Callable[..., list[Mistake]], capsys: pytest.CaptureFixture[str]
) -> None:
    from pegboard.cli import main

    refused(("name: net", "name: picky"))
    assert main(["explain", "cfg.yaml"]) == 2
    assert "cfg.yaml:2:1: model\n    I do not like this data" in capsys.readouterr().err
