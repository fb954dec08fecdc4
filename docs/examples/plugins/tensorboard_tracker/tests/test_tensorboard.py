"""What TensorBoard reads of a run is what metrics.jsonl has of it."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pegboard
import pytest
import yaml
from pegboard import PegboardError, RunInfo, Table
from pegboard.testing import partner_config
from pegboard.testing.runs import cut_and_resumed
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.util.tensor_util import make_ndarray

from pegboard_example_tensorboard import TensorBoard
from pegboard_example_tensorboard.texts import flat, markdown
from pegboard_example_tensorboard.tracker import TensorBoardTracker

Points = dict[tuple[int, str], float]
CONFIG = partner_config(trackers={"tensorboard": {}})


class Read:
    """What is in a folder of event files, by TensorBoard's own reader."""

    def __init__(self, folder: Path) -> None:
        self.events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        self.tags = self.events.Tags()

    @property
    def points(self) -> list[tuple[int, str, float]]:
        found = [(tag, event) for tag in self.tags["scalars"] for event in self.events.Scalars(tag)]
        return [(event.step, tag, event.value) for tag, event in found]

    def text(self, name: str) -> str:
        (event,) = self.events.Tensors(f"{name}/text_summary")
        return str(make_ndarray(event.tensor_proto).item().decode())

    @property
    def table_of_runs(self) -> dict[str, bytes]:
        """What TensorBoard needs to show settings and figures of the run, by tag."""
        try:
            return dict(self.events.PluginTagToContent("hparams"))
        except KeyError:
            return {}

    def settings(self) -> dict[str, Any]:
        content = HParamsPluginData.FromString(self.table_of_runs["_hparams_/session_start_info"])
        values = content.session_start_info.hparams
        return {key: getattr(value, value.WhichOneof("kind")) for key, value in values.items()}


def single(value: float) -> float:
    """As a file in single precision has it."""
    return float(np.float32(value))


def rows_as_points(rows: Sequence[Mapping[str, Any]]) -> Points:
    return {(row["step"], tag): single(value) for row in rows for tag, value in row.items() if tag != "step"}


def once_each(points: list[tuple[int, str, float]]) -> Points:
    found = {(step, tag): value for step, tag, value in points}
    assert len(found) == len(points), "a point was written twice"
    return found


def of_rows(read: Read) -> Points:
    return {key: value for key, value in once_each(read.points).items() if not key[1].startswith("final/")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    return pegboard.train(CONFIG, root=tmp_path_factory.mktemp("runs"), quiet=True)


@pytest.fixture(scope="module")
def read(run: pegboard.Run) -> Read:
    return Read(run.folder / "tensorboard")


def test_every_number_of_every_row_is_one_point(run: pegboard.Run, read: Read) -> None:
    assert of_rows(read) == rows_as_points(run.history)
    assert {"train/loss", "val/loss", "test/loss", "lr", "epoch"} <= {tag for _, tag in of_rows(read)}
    assert len({row["step"] for row in run.history}) > 4


def test_config_and_plan_and_tables_are_texts(run: pegboard.Run, read: Read) -> None:
    text = read.text("config").removeprefix("```yaml\n").removesuffix("\n```")
    assert yaml.safe_load(text) == yaml.safe_load((run.folder / "config.yaml").read_text())
    assert (run.folder / "plan.txt").read_text().rstrip() in read.text("plan")
    assert read.text("predictions").startswith("| sample | target |")
    assert read.text("status") == "finished"


def test_curves_are_a_picture_with_the_same_pixels(run: pegboard.Run, read: Read) -> None:
    (event,) = read.events.Images("curves")
    shown = Image.open(io.BytesIO(event.encoded_image_string)).convert("RGBA")
    drawn = Image.open(run.folder / "figures" / "curves.png").convert("RGBA")
    assert np.array_equal(np.asarray(shown), np.asarray(drawn))


def test_table_of_runs_has_the_settings_and_the_last_figures(run: pegboard.Run, read: Read) -> None:
    settings = read.settings()
    assert settings["optimizer.lr"] == 0.01 and settings["data.batch_size"] == 4
    final = {tag.removeprefix("final/"): v for _, tag, v in read.points if tag.startswith("final/")}
    assert final == {name: single(value) for name, value in run.figures.items()}
    assert {"_hparams_/experiment", "_hparams_/session_end_info"} <= set(read.table_of_runs)


def test_interrupted_and_resumed_run_has_every_point_once_in_one_file(tmp_path: Path) -> None:
    for cut in (4, 13):
        folder = cut_and_resumed(CONFIG, tmp_path / str(cut), cut)
        assert of_rows(Read(folder / "tensorboard")) == rows_as_points(pegboard.Run(folder).history)
        sizes = [path.stat().st_size for path in (folder / "tensorboard").iterdir()]
        assert len(sizes) == 2 and min(sizes) == 0


def test_watching_does_not_change_the_weights(run: pegboard.Run, tmp_path: Path) -> None:
    plain = pegboard.train(partner_config(), root=tmp_path, quiet=True)
    files = [(r.folder / "checkpoints/last/model.safetensors").read_bytes() for r in (run, plain)]
    assert files[0] == files[1]
    assert plain.history == run.history


def info(folder: Path, **others: Any) -> RunInfo:
    return RunInfo(folder=folder, name="n", id="i", config={"seed": 1}, plan="", environment={}, **others)


def test_rows_that_a_killed_run_lost_or_repeats_are_there_once(tmp_path: Path) -> None:
    rows = [{"step": step, "train/loss": 1 / step} for step in range(1, 7)]
    killed = TensorBoardTracker(TensorBoard())
    killed.start(info(tmp_path))
    for row in (*rows[:2], {"step": 3, "train/loss": 9.0}, {"step": 4, "train/loss": 9.0}):  # to be undone
        killed.log(row)
    killed._writer.flush()
    beside = tmp_path / "tensorboard" / "notes.txt"
    beside.write_text("not ours")
    resumed = TensorBoardTracker(TensorBoard())
    resumed.start(info(tmp_path, resumed=True, previous=rows[:3]))
    for row in rows[3:]:
        resumed.log(row)
    resumed.finish("interrupted", {"status": "interrupted"})
    killed._writer.close()
    read = Read(tmp_path / "tensorboard")
    assert of_rows(read) == rows_as_points(rows)
    assert read.table_of_runs == {}  # a run that has not ended has no place in the table
    assert beside.read_text() == "not ours"


def test_values_that_are_no_plain_numbers(tmp_path: Path) -> None:
    tracker = TensorBoardTracker(TensorBoard(folder="a/b"))
    tracker.start(info(tmp_path))
    tracker.log({"step": 1, "up": math.inf, "lost": math.nan, "note": "größer", "none": None, "many": [1, 2]})
    tracker.figure("report", tmp_path / "report.html")
    tracker.finish("failed", {"why": "ValueError: no"})
    read = Read(tmp_path / "a" / "b")
    points = of_rows(read)
    assert set(points) == {(1, "up"), (1, "lost")}
    assert points[1, "up"] == math.inf and math.isnan(points[1, "lost"])
    assert "report.html" in read.text("report")
    assert read.text("status") == "failed: ValueError: no"


def test_tables_and_settings_in_words() -> None:
    table = Table(["true", "a|b"], [["one\ntwo", 3]])
    assert markdown(*table) == "| true | a\\|b |\n| --- | --- |\n| one two | 3 |"
    config = {"a": {"b": 1, "c": True, "d": None}, "e": [1, "x"], "f": "text", "g": 0.5}
    assert flat(config) == {"a.b": 1, "a.c": "true", "e": '[1, "x"]', "f": "text", "g": 0.5}


@pytest.mark.parametrize("folder", ["/tmp/elsewhere", "../shared"])
def test_folder_outside_the_run_folder_is_refused(folder: str) -> None:
    with pytest.raises(PegboardError, match="is outside the run folder"):
        pegboard.plan(partner_config(trackers={"tensorboard": {"folder": folder}}))


def test_light_module_does_not_import_tensorboard() -> None:
    code = "import sys, pegboard_example_tensorboard\nassert not {'tensorboard', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_picture_that_cannot_be_read_is_left_out_with_a_warning_and_rows_go_on(tmp_path: Path) -> None:
    said: list[str] = []
    tracker = TensorBoardTracker(TensorBoard())
    tracker.start(info(tmp_path, warn=said.append))
    (tmp_path / "broken.png").write_text("no picture")
    for name in ("broken", "gone"):
        tracker.figure(name, tmp_path / f"{name}.png")
    tracker.log({"step": 1, "train/loss": 0.5})
    tracker.finish("finished", {})
    assert [name in text for name, text in zip(("broken", "gone"), said, strict=True)] == [True, True]
    assert of_rows(Read(tmp_path / "tensorboard")) == {(1, "train/loss"): 0.5}
