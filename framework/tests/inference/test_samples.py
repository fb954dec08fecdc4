"""Models that generate: objectives that see the inputs, draws in evaluations, `pegboard sample`, pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pegboard
import pytest
import torch
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.inference.trained import Trained
from pegboard.report.trackers import Dispatch
from pegboard.testing.runs import cut_and_resumed, differences, lean, points, whole
from pegboard_plots import raster

HERE = Path(__file__).parents[1]
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def cloudy() -> Make:
    def make(**nodes: Any) -> dict[str, Any]:
        base: dict[str, Any] = {
            "seed": 3,
            "data": {"name": "bare", "batch_size": 16},
            "model": {"name": "cloud"},
            "optimizer": {"name": "plain", "lr": 0.05, "momentum": 0.5},
            "trainer": {"epochs": 2, "device": "cpu", "threads": 1},
            "plugins": {"local": [str(HERE / "toy.py"), str(HERE / "toy_samples.py")]},
        }
        return base | nodes

    return make


@pytest.fixture
def run(cloudy: Make, root: Path) -> Path:
    return pegboard.train(cloudy(), root=root, quiet=True).folder


@pytest.fixture
def pictures(cloudy: Make, root: Path) -> Path:
    return pegboard.train(cloudy(data={"name": "bare", "pictures": True}), root=root, quiet=True).folder


def sample(folder: Path, *words: str) -> int:
    local = [w for name in ("toy.py", "toy_samples.py") for w in ("--local", str(HERE / name))]
    return main(["sample", str(folder), *local, *words])


def trained(folder: Path) -> Trained:
    return Trained(folder, device="cpu", local=[HERE / "toy.py", HERE / "toy_samples.py"])


def test_the_model_says_which_objective_trains_it(cloudy: Make) -> None:
    assert pegboard.plan(cloudy()).objective.entry.part.name == "near"


def test_two_evaluations_of_the_same_weights_agree_to_the_bit(run: Path) -> None:
    model, before = trained(run), torch.get_rng_state()
    first, second = model.evaluate("test"), model.evaluate("test")
    assert first == second == {"loss": pegboard.Run(run).summary["figures"]["test/loss"]}
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.sweep
def test_evaluations_do_not_touch_what_training_draws(cloudy: Make, root: Path) -> None:
    often, once = ({"steps": 6, "device": "cpu", "eval_every": n, "sample_every": 1} for n in (1, 3))
    runs = [pegboard.train(cloudy(trainer=t), root=root, quiet=True).folder for t in (often, once)]
    one, two = (pegboard.load(r, which="last", local=trained_files()).state_dict() for r in runs)
    assert all(torch.equal(one[k], two[k]) for k in one)


def trained_files() -> list[Path]:
    return [HERE / "toy.py", HERE / "toy_samples.py"]


@pytest.mark.parametrize("players", [1, 2])
def test_a_run_that_draws_resumes_exactly(cloudy: Make, tmp_path: Path, players: int) -> None:
    config = cloudy(
        objective={"name": "near", "players": players},
        regularizers={"halfway": {}},
        trainer={"epochs": 3, "accumulate": 2, "device": "cpu", "save_every": 2},
    )
    with lean():
        reference, events = whole(config, tmp_path / "whole")
        for cut in points(events, 2):
            assert not differences(reference, cut_and_resumed(config, tmp_path / str(cut), cut))


def test_without_a_target_a_run_ends_with_its_figures_and_no_table(run: Path) -> None:
    summary = pegboard.Run(run).summary
    assert summary["status"] == "finished" and "test/loss" in summary["figures"]
    assert json.loads((run / "tables.json").read_text()) == {}
    assert "no target" in summary["diagnosis"]["rule"]


def test_predictions_are_columns_of_the_nest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [w for name in trained_files() for w in ("--local", str(name))]
    assert main(["predict", str(run), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row,error" and len(lines) == 17


def test_an_objective_that_says_nothing_of_a_sample_is_told(cloudy: Make, root: Path) -> None:
    folder = pegboard.train(cloudy(objective={"name": "near", "players": 2}), root=root, quiet=True).folder
    model = trained(folder)
    with pytest.raises(
        PegboardError, match="'near' of .* says nothing of a single sample\nwhat it generates"
    ):
        model.predict(model.source("test"))


def test_an_objective_may_refuse_data_before_there_is_a_folder(cloudy: Make, root: Path) -> None:
    with pytest.raises(PegboardError, match="no numbers below -50: data.low=0"):
        pegboard.train(cloudy(data={"name": "bare", "low": -100.0}), root=root, quiet=True)
    assert not root.exists()


def test_the_same_seed_gives_the_same_bytes(pictures: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for file, seed in zip(files, ("0", "0", "1"), strict=True):
        assert sample(pictures, "-n", "9", "-o", str(file), "--seed", seed) == 0
    one, two, other = (f.read_bytes() for f in files)
    assert one == two != other and one.startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_drawn_points_are_the_same_bytes_on_another_day(
    run: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{n}.{suffix}" for n in "ab"]
    for file, day in zip(files, ("86400", "172800"), strict=True):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)  # what drawing takes for the time
        assert sample(run, "-n", "3", "-o", str(file)) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_numbers_are_unscaled_where_the_data_reads_no_tables(
    cloudy: Make, root: Path, tmp_path: Path
) -> None:
    folder = pegboard.train(cloudy(data={"name": "bare", "tables": False}), root=root, quiet=True).folder
    assert sample(folder, "-n", "5", "-o", str(tmp_path / "x.npy")) == 0
    from pegboard.inference.sampling import draw_samples

    drawn = draw_samples(trained(folder).model, 5, 0, "cpu")
    assert numpy.allclose(numpy.load(tmp_path / "x.npy"), drawn / 2)


def test_a_way_between_samples_needs_two(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pegboard.inference.sample_files import Generator

    model = trained(run)
    model._splits = replace(model.splits, test=pegboard.Resident([torch.zeros(1, 2)]))
    with pytest.raises(PegboardError, match="interpolate needs two samples, and the test split has one"):
        Generator(model).make("interpolate", 8)


def test_a_traversal_goes_as_far_as_codes_of_the_model_do(run: Path) -> None:
    from pegboard.inference.sample_files import Generator

    model = trained(run)
    plain, _ = Generator(model).make("traverse", 8)
    model.model.spread = lambda: (torch.tensor([5.0, 0.0, 0.0]), torch.tensor([2.0, 1.0, 1.0]))
    far, _ = Generator(model).make("traverse", 8)
    with torch.no_grad():
        code = model.model.encode(model.source("test").gather(torch.arange(1)).inputs[0])
        for made, ends in ((plain, (-3.0, 3.0)), (far, (-1.0, 11.0))):
            for place, end in zip((0, 7), ends, strict=True):
                code[0, 0] = end
                assert torch.allclose(made[place], model.model.decode(code)[0], atol=1e-5)


def test_numbers_are_those_before_scaling(run: Path, tmp_path: Path) -> None:
    for name in ("x.npy", "x.csv", "x.png"):
        assert sample(run, "-n", "5", "-o", str(tmp_path / name)) == 0
    numbers = numpy.load(tmp_path / "x.npy")
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert numbers.shape == (5, 2) and lines[0] == "x0,x1" and len(lines) == 6
    from pegboard.inference.sampling import draw_samples

    drawn = draw_samples(trained(run).model, 5, 0, "cpu")
    assert numpy.allclose(numbers, drawn / 2)


@pytest.mark.parametrize("kind", ["reconstruct", "interpolate", "traverse"])
def test_codes_make_pictures(pictures: Path, tmp_path: Path, kind: str) -> None:
    assert sample(pictures, "--kind", kind, "-n", "16", "-o", str(tmp_path / "x.npy")) == 0
    made = torch.from_numpy(numpy.load(tmp_path / "x.npy"))
    model = trained(pictures)
    real = model.source("test").gather(torch.arange(16)).inputs[0] / 2
    with torch.no_grad():
        back = model.model.decode(model.model.encode(real * 2)) / 2
    if kind == "reconstruct":
        assert torch.allclose(made[:8], real[:8]) and torch.allclose(made[8:16], back[:8])
    elif kind == "interpolate":
        assert len(made) == 16
        assert torch.allclose(made[[0, 7, 8, 15]], back[:4], atol=1e-5)
    else:
        assert len(made) == 16 and not torch.allclose(made[0], made[7])
    assert sample(pictures, "--kind", kind, "-n", "16", "-o", str(tmp_path / "x.png")) == 0


def test_a_model_without_codes_says_so(cloudy: Make, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pegboard.train(cloudy(model={"name": "cloud", "codes": False}), root=root, quiet=True).folder
    assert sample(folder, "--kind", "reconstruct") == 2
    assert "'cloud' has no encode" in capsys.readouterr().err


def test_options_of_texts_mean_nothing_for_samples(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample(run, "--prompt", "Once") == 2
    assert "--prompt is for models of text" in capsys.readouterr().err
    assert sample(run, "--temperature", "0") == 2
    assert "--temperature is for models of text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "said"),
    [("x.doc", "found the suffix '.doc', expected .png"), ("nowhere/x.png", "there is no folder '")],
)
def test_a_file_that_cannot_be_is_told_before_anything_is_drawn(
    run: Path, tmp_path: Path, file: str, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("pegboard.inference.sample_files.draw_samples", lambda *given: pytest.fail("drawn"))
    assert sample(run, "-o", str(tmp_path / file)) == 2
    assert said in capsys.readouterr().err


def test_a_run_draws_samples_at_its_end_and_every_few_epochs(cloudy: Make, root: Path) -> None:
    trainer = {"epochs": 4, "device": "cpu", "sample_every": 2}
    folder = pegboard.train(cloudy(trainer=trainer), root=root, quiet=True).folder
    found = sorted(p.name for p in (folder / "figures").glob("samples*"))
    assert found == ["samples-0002.png", "samples-0004.png", "samples.png"]


def test_trackers_keep_the_samples_of_every_time_apart(
    cloudy: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        Dispatch, "send", lambda self, *what: told.append(what[1]) if what[0] == "figure" else None
    )
    trainer = {"epochs": 4, "device": "cpu", "sample_every": 2}
    pegboard.train(cloudy(trainer=trainer), root=root, quiet=True)
    assert [name for name in told if "samples" in name] == ["samples-0002", "samples-0004", "samples"]


@pytest.mark.sweep
def test_pictures_of_samples_that_no_model_generates_are_a_mistake(config: Make) -> None:
    with pytest.raises(PegboardError, match="found 2, but the model 'net' generates no samples to draw"):
        pegboard.plan(config(trainer={"epochs": 1, "sample_every": 2}))


def test_a_trick_hangs_on_the_pegs_of_the_players_it_names(cloudy: Make, root: Path) -> None:
    config = cloudy(
        objective={"name": "near", "players": 2},
        regularizers={"drop": {"players": ["two"], "sites": ["hidden"]}},
    )
    plan = pegboard.plan(config)
    lines = [line.split() for line in plan.explain().splitlines() if " hidden " in line]
    assert [(line[0], "drop" in line) for line in lines] == [("first.1", False), ("second.1", True)]
    folder = pegboard.train(config, root=root, quiet=True).folder
    assert any("second.1" in n for n, m in trained(folder).model.named_modules() if "drop" in n)


def test_players_may_learn_labels_of_their_own(cloudy: Make, root: Path) -> None:
    config = cloudy(objective={"name": "near_told", "told": True, "players": 2})
    assert pegboard.train(config, root=root, quiet=True).status == "finished"


def test_a_grid_has_a_border_and_repeats_pixels() -> None:
    pixels = raster(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1), 2, (0.0, 1.0))
    assert pixels.shape[0] >= 480 and pixels.shape[2] == 3
    step = pixels.shape[0] // 3
    assert pixels[step + 1, step + 1].tolist() == [0, 0, 0]
    assert pixels[step + 1, 3 * step + 1].tolist() == [255, 255, 255]
