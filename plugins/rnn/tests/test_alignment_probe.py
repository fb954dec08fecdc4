"""The probe that shows where a model looks when it writes: its figures and its picture."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from pegboard import Context, DataSpec, Decoding, PegboardError, Resident, Splits, Tokens
from pegboard.cli import main
from pegboard.testing import runs
from pegboard_datasets.copying import copies
from pegboard_rnn import Alignment
from pegboard_rnn.alignment import AlignmentProbe, _words, summary
from torch import Tensor, nn
from torch.nn import functional as F

END = 2


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pegboard.Run]:
    """A model with attention that has learned to copy texts of five letters."""
    given: dict[str, Any] = {
        "data": {"name": "copying", "samples": 10_000, "val": 0.01, "test": 0.02, "batch_size": 64},
        "model": {"name": "seq2seq", "hidden": 48, "bidirectional": False},
        "optimizer": {"name": "adam", "lr": 0.01, "schedule": "linear"},
        "trainer": {"steps": 150},
    }
    with runs.lean():
        yield pegboard.train(given, root=tmp_path_factory.mktemp("copying"), quiet=True)


@pytest.mark.catalogue("S4-092", "S4-093")
def test_a_trained_model_copies_by_looking_at_one_place_after_the_other(copying: pegboard.Run) -> None:
    source, copy = copies(300, 8, 5, 5, generator=torch.Generator().manual_seed(99))
    for how in (Decoding(length=6, temperature=0), Decoding(length=6, beams=3)):
        made = copying.model.eval().generate(source, how=how)  # type: ignore[operator]
        made = F.pad(made, (0, 6 - made.shape[1]), value=END)
        assert (made == copy).float().mean() >= 0.95
    shifted = copy.roll(1, 1)
    shifted[:, 0] = 1
    weights = copying.model.align(source, shifted)  # type: ignore[operator]
    assert (weights[:, :5].argmax(-1) == torch.arange(5)).float().mean() >= 0.9


@pytest.mark.catalogue("S4-093")
def test_figures_and_picture_from_the_command_line(
    copying: pegboard.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["probe", str(copying.folder), "alignment", "shown=3", "--plot", "--out", str(tmp_path / "a.png")]
    assert main([*words, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) == {"peak", "entropy", "monotone", "diagonal"}
    assert figures["diagonal"] >= 0.9 and figures["monotone"] >= 0.9 and figures["peak"] > 0.5
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


class Looks(nn.Module):
    """Looks where it is told, whatever it reads."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def align(self, read: Tensor, shifted: Tensor) -> Tensor:
        return self.weights[: len(read)]


TEXT, COPY = Tokens(9, 3, 0), Tokens(9, 4, 0, 1, 2)
SPEC = DataSpec((TEXT, COPY), COPY)


def splits(**more: Any) -> Splits:
    """Two texts, of three letters and of two, and their copies."""
    read, copy = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[3, 4, 5, 2], [6, 7, 2, 0]])
    shifted = torch.tensor([[1, 3, 4, 5], [1, 6, 7, 0]])
    source = Resident([read, shifted], copy)
    return Splits(spec=SPEC, train=source, test=source, **more)


def test_figures_are_over_the_steps_that_are_there() -> None:
    weights = torch.tensor(
        [
            [[1, 0, 0], [0, 1, 0], [0.5, 0, 0.5], [0, 0.2, 0.8]],
            [[0.5, 0.5, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
        ]
    )
    steps = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    places = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    found = {name: (total / n).item() for name, (total, n) in summary(weights, steps, places).items()}
    assert found["peak"] == pytest.approx((1 + 1 + 0.5 + 0.8 + 0.5 + 1 + 1) / 7)
    eight = -0.2 * math.log(0.2) - 0.8 * math.log(0.8)
    assert found["entropy"] == pytest.approx((2 * math.log(2) + eight) / 7, rel=1e-6)
    assert found["monotone"] == pytest.approx(4 / 5)  # one steps back, from the second place to the first
    assert found["diagonal"] == pytest.approx(3 / 5)  # of the steps whose own place is there
    measured = AlignmentProbe(Alignment(), Context(spec=SPEC)).measure(
        Looks(weights), splits(), torch.device("cpu")
    )
    assert measured == pytest.approx(found)


def test_the_picture_has_a_panel_for_each_text_with_the_words_of_both() -> None:
    from matplotlib.figure import Figure

    weights = torch.rand(2, 4, 3).softmax(-1)
    letters = splits(
        decode=lambda symbols: ["?" if row[0] < 3 else "abcdef"[row[0] - 3] for row in symbols.tolist()],
        decode_input=lambda number, symbols: [f"w{row[0]}" for row in symbols.tolist()],
    )
    probe = AlignmentProbe(Alignment(shown=2), Context(spec=SPEC))
    probe.measure(Looks(weights), letters, torch.device("cpu"))
    assert [(look.source, look.target) for look in probe.looks] == [
        (["w3", "w4", "w5"], ["a", "b", "c", "(end)"]),
        (["w6", "w7"], ["d", "e", "(end)"]),
    ]
    assert torch.equal(probe.looks[1].weights, weights[1, :3, :2])
    figure = Figure()
    probe.plot(figure)
    first, second = figure.axes
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["w3", "w4", "w5"]
    assert [tick.get_text() for tick in second.get_yticklabels()] == ["d", "e", "(end)"]
    [drawn] = second.images
    torch.testing.assert_close(torch.tensor(drawn.get_array().tolist()), weights[1, :3, :2])


def test_words_of_no_codec_are_numbers_and_long_ones_are_cut() -> None:
    assert _words(torch.tensor([4, 5, 2]), None, 2) == ["4", "5", "(end)"]
    assert _words(torch.tensor([4, 5]), lambda symbols: ["$" + 40 * "x", ""]) == [r"\$" + 23 * "x", "5"]


@pytest.mark.parametrize(
    ("fields", "model", "message"),
    [
        ({"split": "val"}, Looks(torch.zeros(2, 4, 3)), "no split 'val'"),
        ({}, nn.Linear(1, 1), "no attention to look with"),
        ({"first": 2}, Looks(torch.zeros(2, 4, 3)), "there are 2 texts"),
    ],
)
def test_what_cannot_be_looked_at_is_said(fields: dict[str, Any], model: nn.Module, message: str) -> None:
    probe = AlignmentProbe(Alignment(**fields), Context(spec=SPEC))
    with pytest.raises(PegboardError, match=message):
        probe.measure(model, splits(), torch.device("cpu"))


def test_a_model_without_attention_says_that_it_looks_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {
        "data": {"name": "copying", "samples": 60, "batch_size": 8},
        "model": {"name": "seq2seq", "hidden": 4, "attention": "none"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "trainer": {"steps": 1},
    }
    with runs.lean():
        run = pegboard.train(given, root=tmp_path, quiet=True)
    assert main(["probe", str(run.folder), "alignment"]) == 2
    told = capsys.readouterr().err
    assert "built with attention: none" in told and "Traceback" not in told
