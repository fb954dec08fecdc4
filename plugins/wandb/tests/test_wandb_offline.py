"""Real offline runs, driven from a thread and read back from their files."""

from __future__ import annotations

import json
import math
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pegboard import RunInfo, Table
from pegboard_wandb import Wandb
from pegboard_wandb.record import ended, wait_for_end
from pegboard_wandb.tracker import WandbTracker

CONFIG = {"seed": 0, "model": {"name": "pegboard-mlp:mlp", "hidden": [8, 8]}, "weights": None}
ROWS: list[dict[str, Any]] = [
    {"step": 0, "epoch": 0, "train/loss": 2.302585092994046, "lr": 1e-3},
    {"step": 0, "epoch": 0, "val/loss": math.nan, "val/accuracy": 0.0},  # the same step: a row of its own
    {"step": 50, "epoch": 1, "train/loss": math.inf, "note": "größer"},
    {"epoch": 1, "val/loss": -math.inf, "val/best": True, "val/none": None, "counts": [1, 2]},
    *({"step": step, "epoch": 2, "train/loss": 1 / step} for step in range(60, 1000)),
]


def info(folder: Path, **others: Any) -> RunInfo:
    plain = {"name": "digits mlp", "id": "20260102-abc", "config": CONFIG, "plan": "the plan\n"}
    return RunInfo(folder=folder, **{**plain, "environment": {"python": "3.11", "torch": "2"}, **others})


def in_thread(work: Callable[[], None]) -> None:
    """As the core calls a tracker, with errors passed on."""
    failed: list[BaseException] = []

    def call() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def text(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows in a form in which NaN equals itself; 0.0 and 0 are one number in W&B's JSON."""
    whole = [
        {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in row.items()} for row in rows
    ]
    return [json.dumps(row, sort_keys=True) for row in whole]


def picture(path: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (4, 3)).save(path)
    return path


def generators() -> list[str]:
    return [str(random.getstate()), str(np.random.get_state()), str(torch.get_rng_state().tolist())]


@dataclass
class Done:
    folder: Path
    written: list[dict[str, Any]]  # metrics.jsonl, read back
    changed: dict[str, bool]
    shown: str

    @property
    def record(self) -> Path:
        (found,) = (self.folder / "wandb").glob("offline-run-*")
        return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, own_wandb: Path) -> Done:
    folder = tmp_path_factory.mktemp("run")
    best, last = folder / "best.safetensors", folder / "last"
    last.mkdir()
    best.write_bytes(b"best")
    for name in ("weights", "state"):
        (last / name).write_text(name)
    page = folder / "report.html"
    page.write_text("<p>report</p>")
    config = Wandb(project="demo", group="g", tags=("a", "b"), notes="why", mode="offline")
    tracker = WandbTracker(config)

    def work() -> None:
        tracker.start(info(folder))
        for row in ROWS:
            # As a careless objective would leave them: numbers of numpy and torch.
            tracker.log(
                {
                    k: np.float64(v) if k == "lr" else torch.tensor(v) if k == "epoch" else v
                    for k, v in row.items()
                }
            )
        tracker.checkpoint(last, ["last", "best"])
        tracker.checkpoint(best, ["best"])
        tracker.table(
            "test/confusion", Table(["true", "0", "1"], [["zero", np.int64(9), 1], ["one", 0, None]])
        )
        tracker.figure("curves", picture(folder / "curves.png"))
        tracker.figure("report", page)
        tracker.figure("paper", folder / "best.safetensors")  # a format that W&B has no view of
        tracker.finish("finished", {"test/accuracy": np.float32(0.5), "best": {"step": 50}})

    before, hooks, shown = generators(), (sys.exit, sys.excepthook), Shown()
    sys.stdout, sys.stderr, streams = shown, shown, (sys.stdout, sys.stderr)
    try:
        in_thread(work)
    finally:
        sys.stdout, sys.stderr = streams
    metrics = folder / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    changed = {"rng": generators() != before, "hooks": (sys.exit, sys.excepthook) != hooks}
    written = [json.loads(line) for line in metrics.read_text().splitlines()]
    return Done(folder, written, changed, shown.text)


class Shown:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


Reader = Callable[[Path], Any]


def models(record: Any) -> list[list[str]]:
    """The aliases of each checkpoint; W&B itself adds `latest`."""
    found = [artifact for artifact in record.of("artifact") if artifact.type == "model"]
    return [sorted(set(artifact.aliases) - {"latest"}) for artifact in found]


def test_history_equals_metrics_jsonl_row_for_row(done: Done, read: Reader) -> None:
    assert text(read(done.record).rows) == text(done.written)


def test_steps_of_wandb_are_the_numbers_of_the_rows(done: Done, read: Reader) -> None:
    assert read(done.record).steps == list(range(len(ROWS)))


def test_charts_have_the_step_of_the_run_as_their_axis(done: Done, read: Reader) -> None:
    axes = {metric.glob_name or metric.name: metric.step_metric for metric in read(done.record).of("metric")}
    assert axes["*"] == "step" and axes["step"] == ""


@pytest.mark.parametrize(("own", "group"), [(None, "cv"), ("mine", "mine")])
def test_the_folds_of_a_cross_validation_are_a_group_and_tell_which_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, group: str
) -> None:
    import wandb

    given: dict[str, Any] = {}
    monkeypatch.setattr(wandb, "init", lambda **words: given.update(words))
    tracker = WandbTracker(Wandb(project="demo", group=own, mode="offline"))
    tracker._init(info(tmp_path / "fold-1", group="cv"), "cv-fold-1", tmp_path)
    assert (given["group"], given["name"]) == (group, "digits mlp fold-1")
    tracker._init(info(tmp_path / "fold-1"), "other", tmp_path)
    assert (given["group"], given["name"]) == (own, "digits mlp")


def test_run_has_id_name_config_group_tags_and_notes(done: Done, read: Reader) -> None:
    record = read(done.record)
    run = record.of("run")[0]
    assert (run.run_id, run.display_name, run.project) == ("20260102-abc", "digits mlp", "demo")
    assert (run.run_group, list(run.tags), run.notes) == ("g", ["a", "b"], "why")
    assert record.config == CONFIG


def test_plan_and_environment_are_files_of_the_run(done: Done, read: Reader) -> None:
    assert {"plan.txt", "environment.json", "best.safetensors"} <= read(done.record).files
    files = done.record / "files"
    assert (files / "plan.txt").read_text() == "the plan\n"
    assert json.loads((files / "environment.json").read_text()) == {"python": "3.11", "torch": "2"}


def test_best_and_last_are_versions_of_one_model_artifact(done: Done, read: Reader) -> None:
    versions = [artifact for artifact in read(done.record).of("artifact") if artifact.type == "model"]
    assert len({artifact.name for artifact in versions}) == 1
    assert versions[0].name.startswith("digits-mlp-20260102-abc")
    files = [sorted(entry.path for entry in artifact.manifest.contents) for artifact in versions]
    found = dict(zip(map(tuple, models(read(done.record))), files, strict=True))
    assert found == {("last",): ["state", "weights"], ("best",): ["best.safetensors"]}


def test_table_is_a_wandb_table_with_its_rows(done: Done, read: Reader) -> None:
    entry = read(done.record).summary["test/confusion"]
    assert (entry["_type"], entry["nrows"], entry["ncols"]) == ("table-file", 2, 3)
    table = json.loads((done.record / "files" / entry["path"]).read_text())
    assert table["columns"] == ["true", "0", "1"]
    assert table["data"] == [["zero", 9, 1], ["one", 0, None]]
    assert "run_table" in {artifact.type for artifact in read(done.record).of("artifact")}


def test_figures_are_pictures_and_pages(done: Done, read: Reader) -> None:
    summary = read(done.record).summary
    assert (summary["curves"]["_type"], summary["curves"]["width"]) == ("image-file", 4)
    assert summary["report"]["_type"] == "html-file"
    for name in ("curves", "report"):
        assert (done.record / "files" / summary[name]["path"]).exists()
    assert (done.folder / "curves.png").exists()


def test_summary_has_the_last_figures_and_the_status(done: Done, read: Reader) -> None:
    summary = read(done.record).summary
    assert (summary["test/accuracy"], summary["status"]) == (0.5, "finished")
    assert read(done.record).of("exit")[0].exit_code == 0


def test_rng_and_exit_hooks_are_left_alone_and_nothing_is_printed(done: Done) -> None:
    assert done.changed == {"rng": False, "hooks": False}
    assert done.shown == ""


def test_resumed_run_keeps_its_id_and_holds_every_row_once(
    tmp_path: Path, own_wandb: Path, read: Reader
) -> None:
    rows = [row for row in ROWS if "step" in row][:8]
    best = checkpoint_of(tmp_path, 3)

    def first() -> None:  # killed after row 5, with a checkpoint at row 3
        tracker = WandbTracker(Wandb(mode="offline"))
        tracker.start(info(tmp_path))
        for row in rows[:5]:
            tracker.log(row)
        tracker.checkpoint(best, ["best"])
        assert tracker._run is not None
        tracker._run.finish()

    def second() -> None:
        tracker = WandbTracker(Wandb(mode="offline"))
        tracker.start(info(tmp_path, resumed=True, previous=rows[:3]))
        for row in rows[3:]:
            tracker.log(row)
        tracker.finish("interrupted", {})

    in_thread(first)
    in_thread(second)
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    record = read(folder)
    assert record.of("run")[0].run_id == "20260102-abc"
    assert text(record.rows) == text(rows)
    assert record.steps == list(range(8))
    assert models(record) == [["best"]]
    assert record.of("exit")[0].exit_code == 255
    (older,) = (tmp_path / "wandb" / "superseded").iterdir()
    assert len(read(older).rows) == 5


def checkpoint_of(run: Path, step: int) -> Path:
    place = run / "checkpoints" / f"step-{step:08d}"
    place.mkdir(parents=True)
    (place / "weights").write_text(f"weights of step {step}")
    return place


def uploaded(record: Any) -> set[str]:
    """The files that became artifacts, by what is in them."""
    import base64

    entries = [
        e
        for artifact in record.of("artifact")
        if artifact.type == "model"
        for e in artifact.manifest.contents
    ]
    assert all(base64.b64decode(entry.digest) for entry in entries)
    return {Path(entry.local_path).read_text() for entry in entries}


def resumed(run: Path, read: Reader) -> tuple[Any, list[str]]:
    """What a run that was taken up again leaves, and what it warned of."""
    told: list[str] = []

    def work() -> None:
        tracker = WandbTracker(Wandb(mode="offline"))
        tracker.start(info(run, resumed=True, previous=[], warn=told.append))
        tracker.finish("finished", {})

    in_thread(work)
    (folder,) = (run / "wandb").glob("offline-run-*")
    return read(folder), told


def test_the_best_checkpoint_goes_with_a_folder_that_was_moved(
    tmp_path: Path, own_wandb: Path, read: Reader
) -> None:
    def killed() -> None:
        tracker = WandbTracker(Wandb(mode="offline"))
        tracker.start(info(tmp_path / "old"))
        tracker.checkpoint(checkpoint_of(tmp_path / "old", 3), ["best"])
        tracker.checkpoint(checkpoint_of(tmp_path / "old", 7), ["last"])
        assert tracker._run is not None
        tracker._run.finish()

    in_thread(killed)
    (state,) = (tmp_path / "old" / "wandb").glob("checkpoints-*.json")
    assert json.loads(state.read_text()) == {"best": "step-00000003", "last": "step-00000007"}
    (tmp_path / "old").rename(tmp_path / "new")
    record, _ = resumed(tmp_path / "new", read)
    assert models(record) == [["best"], ["last"]]
    assert uploaded(record) == {"weights of step 3", "weights of step 7"}


def test_without_a_record_of_aliases_the_links_say_which_checkpoints_they_mean(
    tmp_path: Path, own_wandb: Path, read: Reader
) -> None:
    checkpoint_of(tmp_path, 3)
    (tmp_path / "checkpoints" / "best").symlink_to("step-00000003")
    (tmp_path / "wandb").mkdir()
    state = tmp_path / "wandb" / "checkpoints-20260102-abc.json"
    state.write_text('{"best": "step-00000001"}')  # as of a process that was killed before it wrote the next
    record, _ = resumed(tmp_path, read)
    assert models(record) == [["best"]]


def test_the_record_of_aliases_is_not_written_through_a_link(tmp_path: Path, own_wandb: Path) -> None:
    (tmp_path / "diary").write_text("mine")
    (tmp_path / "wandb").mkdir()
    state = tmp_path / "wandb" / "checkpoints-20260102-abc.json"
    for link in (state, state.with_suffix(".part")):
        link.symlink_to(tmp_path / "diary")

    def work() -> None:
        tracker = WandbTracker(Wandb(mode="offline"))
        tracker.start(info(tmp_path))
        tracker.checkpoint(checkpoint_of(tmp_path, 3), ["best"])
        tracker.finish("finished", {})

    in_thread(work)
    assert (tmp_path / "diary").read_text() == "mine"
    assert json.loads(state.read_text()) == {"best": "step-00000003"}


def test_a_run_folder_from_a_stranger_uploads_no_file_outside_of_it(
    tmp_path: Path, own_wandb: Path, read: Reader
) -> None:
    diary = tmp_path / "diary"
    diary.mkdir()
    (diary / "secret").write_text("secret")
    run = tmp_path / "run"
    checkpoint_of(run, 3)
    (run / "checkpoints" / "linked").symlink_to(diary)
    for name, target in (("extra", diary / "secret"), ("deep/extra", diary)):
        step = checkpoint_of(run, len(name))
        (step / name).parent.mkdir(exist_ok=True)
        (step / name).symlink_to(target)
    for alias, target in (("best", diary), ("last", "../../diary")):
        (run / "checkpoints" / alias).symlink_to(target)
    state = {
        "absolute": str(diary), "a file": str(diary / "secret"), "up": "../../diary", "link": "linked",
        "with a link in it": "step-00000005", "deeper": "step-00000010", "number": 3, "none": None,
        "list": ["x"], "dot": ".", "dots": "..", "empty": "", "null": "a\0b", "gone": "step-00000009",
        "own": "step-00000003",
    }  # fmt: skip
    (run / "wandb").mkdir()
    (run / "wandb" / "checkpoints-20260102-abc.json").write_text(json.dumps(state))
    record, told = resumed(run, read)
    assert models(record) == [["own"]]
    assert uploaded(record) == {"weights of step 3"}
    assert len([line for line in told if "no checkpoint below" in line]) == len(state) + 1


@pytest.mark.parametrize("data", [b"[1]", b"\xff", b"[" * 100_000, b"3"])
def test_a_record_of_aliases_of_another_form_is_left_out(
    tmp_path: Path, own_wandb: Path, read: Reader, data: bytes
) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "checkpoints-20260102-abc.json").write_bytes(data)
    record, _ = resumed(tmp_path, read)
    assert models(record) == []


@pytest.mark.parametrize(
    ("mode", "wanted", "said"),
    [
        ("", "offline", ""),
        (" ", "offline", ""),
        (
            "ofline",
            "auto",
            "WANDB_MODE is 'ofline', expected one of disabled, dryrun, offline, online",
        ),
        ("nonsense", "offline", ""),
    ],
)
def test_a_wrong_wandb_mode_ends_no_tracker(
    tmp_path: Path,
    own_wandb: Path,
    read: Reader,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    wanted: str,
    said: str,
) -> None:
    import os

    import wandb

    wandb.teardown()  # of settings that were read before
    monkeypatch.setenv("WANDB_MODE", mode)
    told: list[str] = []

    def work() -> None:
        tracker = WandbTracker(Wandb(mode=wanted))  # type: ignore[arg-type]
        tracker.start(info(tmp_path, warn=told.append))
        tracker.log({"step": 1, "train/loss": 0.5})
        tracker.checkpoint(checkpoint_of(tmp_path, 3), ["best"])
        tracker.table("t", Table(["a"], [[1]]))
        tracker.finish("finished", {})

    in_thread(work)
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    record = read(folder)
    assert len(record.rows) == 1 and models(record) == [["best"]]
    assert len(told) == bool(said) and said in "".join(told)
    assert os.environ["WANDB_MODE"] == mode


def test_every_checkpoint_or_none_on_request(tmp_path: Path, own_wandb: Path, read: Reader) -> None:
    for name, wanted in (("all", [["last"], ["best", "last"]]), ("none", [])):
        folder = tmp_path / name
        folder.mkdir()
        tracker = WandbTracker(Wandb(mode="offline", checkpoints=name))  # type: ignore[arg-type]
        tracker.start(info(folder, id=f"some/{name}"))
        for content, aliases in (("1", ["last"]), ("2", ["best", "last"])):
            (folder / "weights").write_text(content)
            tracker.checkpoint(folder / "weights", aliases)
        tracker.checkpoint(folder / "gone", ["last"])  # replaced before W&B came to it
        tracker.finish("failed", {})
        (found,) = (folder / "wandb").glob("offline-run-*")
        record = read(found)
        assert models(record) == wanted
        assert record.of("exit")[0].exit_code == 1
        assert "/" not in record.of("run")[0].run_id


def test_table_that_wandb_refuses_warns_once_and_rows_go_on(
    tmp_path: Path, own_wandb: Path, read: Reader
) -> None:
    tracker = WandbTracker(Wandb(mode="offline"))
    tracker.start(info(tmp_path))
    with pytest.warns(UserWarning, match="W&B did not take a table") as caught:
        for _ in range(2):
            tracker.table("ragged", Table(["a", "b"], [[1]]))
    assert len(caught) == 1
    tracker.log(ROWS[0])
    tracker.finish("finished", {})
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    assert text(read(folder).rows) == text(ROWS[:1])


def test_record_is_known_to_be_complete_only_when_it_is(done: Done, tmp_path: Path) -> None:
    (path,) = done.record.glob("*.wandb")
    data, cut = path.read_bytes(), tmp_path / "cut.wandb"
    assert len(data) > 2 * 32 * 1024  # several blocks, with messages cut at their ends
    assert ended(path)
    for length in (0, 7, 20, 32 * 1024, 64 * 1024 + 3, len(data) - 40, len(data) - 1):
        cut.write_bytes(data[:length])
        assert not ended(cut)
    assert not wait_for_end(cut, 0.02)
