"""`pegboard show data NAME --plot`: what the spec of the samples says is what is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from pegboard import (
    Batch,
    Classes,
    DataSpec,
    Image,
    Labels,
    PegboardError,
    Resident,
    Series,
    Spec,
    Splits,
    Stream,
    Tokens,
    Values,
    Vector,
)
from pegboard.cli import main
from pegboard.inference.pictures import MOST_ROWS, draw_by_spec, draw_data
from pegboard_plots.specs import GREY, PALETTE
from sandbox import ROOT

Capture = pytest.CaptureFixture[str]
TOY = ROOT / "framework" / "tests" / "toy.py"
PLOTTED = """
from dataclasses import dataclass
from pegboard import Dataset, DataSpec, Splits, Vector, hookimpl

@dataclass(frozen=True)
class Drawn:
    '''Points with a picture of their own.'''

def build(config, context):
    import torch
    from pegboard import Resident

    return Splits(spec=DataSpec((Vector(2),)), train=Resident([torch.zeros(7, 2)]))

def plot(splits, figure):
    figure.add_subplot().set_title(f"the {len(splits.train)} points are one")

@hookimpl
def pegboard_datasets():
    return [Dataset("drawn", Drawn, build, plot=plot)]
"""


def drawn(
    x: torch.Tensor, spec: Spec, target: Spec | None = None, y: Any = None, weight: Any = None, test: int = 0
) -> Figure:
    """What is drawn of samples, the last `test` of them held out."""

    def part(rows: slice) -> Resident:
        return Resident([x[rows]], *(None if t is None else t[rows] for t in (y, weight)))

    end = len(x) - test
    splits = Splits(spec=DataSpec((spec,), target), train=part(slice(end)))
    if test:
        splits.test = part(slice(end, None))
    figure = Figure()
    draw_by_spec(splits, figure)
    return figure


def marks(figure: Figure) -> dict[tuple[str, bool], int]:
    """How many marks there are of a colour, filled or hollow."""
    found: dict[tuple[str, bool], int] = {}
    for one in figure.axes[0].collections:
        filled = len(one.get_facecolor()) > 0
        colour = to_hex((one.get_facecolor() if filled else one.get_edgecolor())[0])
        found[colour, filled] = found.get((colour, filled), 0) + len(one.get_offsets())
    return {key: count for key, count in found.items() if count}


def legend(figure: Figure) -> list[str]:
    shown = figure.axes[0].get_legend()
    return [] if shown is None else [text.get_text() for text in shown.get_texts()]


def test_classes_in_the_plane_have_colours_and_held_out_samples_are_hollow() -> None:
    x, y = torch.randn(10, 2), torch.arange(10) % 2
    figure = drawn(x, Vector(2), Classes(2, ("left", "right")), y, test=4)
    assert marks(figure) == {
        (PALETTE[0], True): 3,
        (PALETTE[1], True): 3,
        (PALETTE[0], False): 2,
        (PALETTE[1], False): 2,
    }
    assert legend(figure) == ["left", "right", "test"]
    assert figure.axes[0].get_aspect() == 1
    places = torch.cat([torch.tensor(one.get_offsets().tolist()) for one in figure.axes[0].collections])
    assert torch.allclose(places.sort(0)[0], x.sort(0)[0])


def test_samples_without_weight_are_grey() -> None:
    x, y, weight = torch.randn(9, 2), torch.zeros(9).long(), torch.tensor([1.0] * 2 + [0.0] * 7)
    figure = drawn(x, Vector(2), Classes(2), y, weight)
    assert marks(figure) == {(GREY, True): 7, (PALETTE[0], True): 2}
    assert "unlabelled" in legend(figure)
    assert marks(drawn(x, Vector(2), Classes(2), y, torch.zeros(9))) == {(GREY, True): 9}
    assert marks(drawn(x[:, :1], Vector(1), Values(1), x[:, 1:], weight))[GREY, True] == 7


def test_many_classes_and_values_are_shown_by_a_scale_of_colours() -> None:
    x = torch.randn(30, 2)
    for target, y in ((Classes(30), torch.arange(30)), (Values(1, ("height",)), torch.arange(30.0)[:, None])):
        figure = drawn(x, Vector(2), target, y)
        (dots,) = figure.axes[0].collections
        assert dots.get_array().tolist() == list(range(30))
        assert figure.axes[1].get_ylabel() == ("class" if isinstance(target, Classes) else "height")


def test_a_set_of_labels_is_a_class() -> None:
    y = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    figure = drawn(torch.randn(4, 2), Vector(2), Labels(2, ("cat", "dog")), y)
    assert legend(figure) == ["none", "cat", "cat + dog"]


def test_more_features_are_drawn_in_the_plane_where_they_vary_most() -> None:
    scale = torch.tensor([0.1, 5.0, 0.2, 2.0])
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) * scale
    figure = drawn(x, Vector(4))
    assert "first two principal components of 4 features" in figure.get_suptitle()
    drawn_at = torch.tensor(figure.axes[0].collections[0].get_offsets().tolist())
    centred = x - x.mean(0)
    _, scales, axes = torch.linalg.svd(centred, full_matrices=False)
    assert torch.allclose(drawn_at.abs(), (centred @ axes[:2].T).abs(), atol=1e-4)
    share = 100 * float(scales[0] ** 2 / (scales**2).sum())
    assert figure.axes[0].get_xlabel() == f"component 1, {share:.0f} % of the variance"


def test_one_feature_is_drawn_against_the_target_and_splits_have_colours() -> None:
    x = torch.linspace(0, 1, 6)[:, None]
    values = drawn(x, Vector(1), Values(2), torch.cat([x, -x], 1), test=2)
    assert [axes.get_ylabel() for axes in values.axes] == ["value 0", "value 1"]
    assert sorted(marks(values).values()) == [2, 4] and legend(values) == ["train", "test"]
    classes = drawn(x, Vector(1), Classes(2, ("no", "yes")), torch.arange(6) % 2)
    assert [label.get_text() for label in classes.axes[0].get_yticklabels()] == ["no", "yes"]
    assert sum(bar.get_height() for bar in drawn(x, Vector(1)).axes[0].patches) == 6


def test_images_stand_in_a_grid_with_their_labels() -> None:
    y = torch.arange(10) % 3
    weight = torch.tensor([1.0] * 9 + [0.0])
    figure = drawn(torch.rand(10, 3, 5, 5), Image(3, 5, 5), Classes(3, ("a", "b", "c")), y, weight)
    assert [axes.get_title() for axes in figure.axes] == [*"abcabcabc", "unlabelled"]
    assert all(len(axes.images) == 1 for axes in figure.axes)
    plain = drawn(torch.rand(2, 1, 5, 5), Image(1, 5, 5), Values(1), torch.tensor([[1.5], [2.0]]))
    assert [axes.get_title() for axes in plain.axes] == ["1.5", "2"]
    several = drawn(torch.rand(2, 1, 5, 5), Image(1, 5, 5), Values(2), torch.rand(2, 2))
    assert [axes.get_title() for axes in several.axes] == ["", ""]  # one of them would not say what it is


def test_series_are_lines_and_symbols_are_counted() -> None:
    x = torch.randn(3, 7, 2)
    lines = drawn(x, Series(7, 2), Classes(2, ("up", "down")), torch.tensor([0, 1, 1]))
    assert [len(axes.lines) for axes in lines.axes] == [3, 3] and legend(lines) == ["up", "down"]
    assert lines.axes[1].lines[2].get_ydata() == pytest.approx(x[2, :, 1].tolist())
    tokens = drawn(torch.tensor([[4, 4, 5, 0], [4, 0, 0, 0]]), Tokens(6, 4, padding=0))
    lengths, symbols = tokens.axes
    assert sum(bar.get_height() for bar in lengths.patches) == 2
    assert [label.get_text() for label in symbols.get_xticklabels()] == ["4", "5"]
    assert [bar.get_height() for bar in symbols.patches] == [3, 1]


def test_what_the_core_cannot_draw_is_said_with_the_way_out() -> None:
    class Graph(Spec):
        pass

    with pytest.raises(
        PegboardError, match="the core draws Vector, Image, .*Series, Tokens.*\n.*plot=function"
    ):
        drawn(torch.zeros(3, 2), Graph())


def test_of_many_samples_the_first_are_drawn_and_of_a_stream_no_more_are_read(tmp_path: Path) -> None:
    asked: list[int] = []

    def read(rows: list[int]) -> Batch:
        asked.extend(rows)
        return Batch((torch.tensor(rows, dtype=torch.float32)[:, None].expand(-1, 2),))

    splits = Splits(spec=DataSpec((Vector(2),)), train=Stream(read, 10**6), test=Resident([torch.rand(9, 2)]))
    said = draw_data(splits, tmp_path / "x.png", "x")
    assert said == [f"only the first {MOST_ROWS:,} of 1,000,000 train samples are drawn"]
    assert asked == list(range(MOST_ROWS))


# The command.
def show(*words: str) -> int:
    return main(["show", "data", *words, "--local", str(TOY)])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_picture_is_a_file_named_after_the_data_set(folder: Path, capsys: Capture) -> None:
    assert show("points", "count=20", "--plot") == 0
    assert capsys.readouterr().out == "points.png\n"
    assert (folder / "points.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_is_replaced_only_where_it_is_named(folder: Path, capsys: Capture) -> None:
    (folder / "points.png").write_text("precious")
    assert show("points", "--plot") == 2
    assert "points.png is there already\nreplace it: --out points.png" in capsys.readouterr().err
    assert (folder / "points.png").read_text() == "precious"
    assert show("points", "--plot", "--out", "points.png") == 0
    assert (folder / "points.png").read_bytes().startswith(b"\x89PNG")


def test_a_vector_picture_says_name_fields_sizes_and_seed_and_is_the_same_again(folder: Path) -> None:
    assert show("points", "count=20", "--plot", "--out", "a.svg") == 0
    assert show("points", "count=20", "--plot", "--out", "b.svg") == 0
    text = (folder / "a.svg").read_text()
    assert "<!-- points count=20 -->" in text and "<!-- 20 train, 16 val, 16 test, seed 0 -->" in text
    assert text == (folder / "b.svg").read_text()


CONFIG = {
    "seed": 3,
    "data": {"name": "points", "batch_size": 16},
    "model": "net",
    "optimizer": {"name": "plain", "lr": 0.1},
    "objective": "guess",
    "trainer": {"epochs": 3, "device": "cpu"},
    "plugins": {"local": [str(TOY)]},
}


def test_a_config_is_drawn_with_its_own_data_and_seed(folder: Path) -> None:
    (folder / "cfg.yaml").write_text(json.dumps(CONFIG))
    assert main(["show", "data", "cfg.yaml", "data.count=30", "--plot", "--out", "a.svg"]) == 0
    assert "<!-- 30 train, 16 val, 16 test, seed 3 -->" in (folder / "a.svg").read_text()


def test_a_config_that_names_a_fold_is_drawn_as_that_fold_cuts_it(folder: Path) -> None:
    (folder / "cfg.yaml").write_text(json.dumps(CONFIG))
    words = ["data.count=30", "trainer.folds=2", "trainer.fold=1", "--plot", "--out", "a.SVG"]
    assert main(["show", "data", "cfg.yaml", *words]) == 0
    assert "<!-- 23 train, 23 val, 16 test, seed 3 -->" in (folder / "a.SVG").read_text()


def test_a_record_draws_its_own_picture_below_the_title(folder: Path) -> None:
    (folder / "mine.py").write_text(PLOTTED)
    assert main(["show", "data", "drawn", "--plot", "--out", "a.svg", "--local", "mine.py"]) == 0
    text = (folder / "a.svg").read_text()
    assert "<!-- the 7 points are one -->" in text and "<!-- 7 train, seed 0 -->" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["points", "cuont=3", "--plot"],
            "'cuont=3': data.cuont\n    unknown key 'cuont' of dataset 'points'",
        ),
        (["points", "count=-3", "held_out=7", "--plot"], "2 mistakes in dataset 'points'"),
        (["pionts", "--plot"], "did you mean 'points'?"),
        (["pionts"], "no data set is called 'pionts'; did you mean 'points'?"),
        (["net"], "no data set is called 'net'"),
        (["points", "--plot", "--out", "a.doc"], "--out a.doc: found no .png or .svg"),
        (["points", "--plot", "--out", "no/a.png"], "--out no/a.png: no folder 'no'"),
        (["--plot"], "no data set is named: pegboard show data NAME --plot"),
        (["points", "--out", "a.png"], "--out is for a picture: add --plot"),
        (["points", "count=3"], "'count=3' is for a picture: add --plot"),
        (["points", "name=other", "--plot"], "'name=other': data.name\n    the name is 'points' already"),
        (["mine.yaml"], "the data of a config is drawn: pegboard show data mine.yaml --plot"),
    ],
)
def test_mistakes_are_said_before_anything_is_built(words: list[str], message: str, capsys: Capture) -> None:
    assert show(*words) == 2
    assert message in capsys.readouterr().err


def test_a_picture_of_no_data_set_is_refused(capsys: Capture) -> None:
    assert main(["show", "net", "--plot", "--local", str(TOY)]) == 2
    assert "a picture of a data set: pegboard show data net --plot" in capsys.readouterr().err


def test_show_data_shows_a_data_set_alone(capsys: Capture) -> None:
    assert show("points") == 0
    assert capsys.readouterr().out.startswith("dataset 'points'")
