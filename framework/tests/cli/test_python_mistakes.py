"""What is no config, given from Python, is answered with what to do instead."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard import PegboardError
from pegboard.config.check import check
from pegboard.planning.plan import make_plan
from pegboard.preview.explain import explain
from torch import nn

Config = Callable[..., dict[str, Any]]
TOY = str(Path(__file__).parents[1].joinpath("toy.py"))
ENTRIES: dict[str, Callable[..., Any]] = {
    "train": pegboard.train,
    "plan": pegboard.plan,
    "check": lambda source, *words: check(source, words),
    "explain": lambda source, *words: explain(make_plan(check(source, words), read=False)),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            nn.Linear(2, 2),
            "found the torch.nn.Module Linear, expected a config: the path of a YAML file, or a dict",
        ),
        (nn.Linear, "found the torch.nn.Module Linear"),
        (
            ["a.yaml", "b.yaml"],
            "several configs are several runs: for config in configs: pegboard.train(config)",
        ),
        ([{"seed": 1}], "several configs are several runs"),
        (["a.yaml", "seed=1"], "give its texts one by one: 'a.yaml', 'seed=1'"),
        (None, "found None, expected a config"),
        (3, "found a int, 3, expected a config"),
        (b"a.yaml", "found a bytes, b'a.yaml', expected a config"),
    ],
)
def test_what_is_no_config_is_answered_with_what_is_one(entry: str, source: Any, said: str) -> None:
    with pytest.raises(PegboardError) as caught:
        ENTRIES[entry](source)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ({"trainer": {"epochs": 3}}, "expected overrides as texts: 'trainer.epochs=3'"),
        (["seed=1", "seed=2"], "given with a star"),
        (nn.Linear(2, 2), "a module becomes a part of a config"),
    ],
)
def test_overrides_are_texts(config: Config, word: Any, said: str) -> None:
    with pytest.raises(PegboardError) as caught:
        pegboard.plan(config(), word)
    assert said in str(caught.value)


def test_a_module_inside_a_config_has_its_place_and_the_way_to_a_part(config: Config) -> None:
    with pytest.raises(PegboardError) as caught:
        pegboard.plan(config(model={"name": "net", "width": nn.Linear(2, 2)}))
    assert "model.width" in str(caught.value) and "a module becomes a part" in str(caught.value)


def test_the_part_that_the_message_shows_trains(
    config: Config, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Net(nn.Linear):
        """Two inputs, two classes."""

    with pytest.raises(PegboardError) as caught:
        pegboard.train(Net(2, 2))
    lines = str(caught.value).split("my_model.py:\n\n")[1].split("\n\nand a config")[0]
    (tmp_path / "my_model.py").write_text(textwrap.dedent(lines))
    (tmp_path / "my_code.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(2, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = config(model="my_model", plugins={"local": [TOY, str(tmp_path / "my_model.py")]})
    assert pegboard.train(given, root=root, quiet=True).status == "finished"


@pytest.mark.parametrize("given", [["a"], None, nn.Linear(2, 2)])
def test_what_is_no_run_folder_is_told(given: Any) -> None:
    with pytest.raises(PegboardError, match="expected the path of a run folder"):
        pegboard.resume(given)
    with pytest.raises(PegboardError, match="expected what was trained"):
        pegboard.load(given)
