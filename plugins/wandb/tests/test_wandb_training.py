"""A whole offline run: what W&B has of it is what metrics.jsonl has, and the weights do not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest

pytest.importorskip("pegboard_datasets", reason="needs the other plugins to train something")

CONFIG = {
    "name": "watched",
    "data": {"name": "moons", "samples": 200},
    "model": {"name": "mlp", "hidden": [8]},
    "optimizer": {"name": "adam", "lr": 0.01},
    "reference": "nothing",
    "regularizers": {"dropout": {"p": 0.1}},
    "plugins": {"local": [str(Path(__file__).with_name("nothing_parts.py"))]},
    "trainer": {"epochs": 3, "log_every": 2, "device": "cpu", "threads": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, own_wandb: Path) -> pegboard.Run:
    trackers = {
        "wandb": {"project": "demo", "group": "tests", "tags": ["a"], "notes": "hello", "mode": "offline"}
    }
    return pegboard.train({**CONFIG, "trackers": trackers}, root=tmp_path_factory.mktemp("runs"), quiet=True)


def record_of(run: pegboard.Run, read: Callable[[Path], Any]) -> Any:
    (path,) = run.folder.rglob("*.wandb")
    return read(path.parent)


@pytest.mark.sweep
def test_the_history_equals_metrics_jsonl_row_for_row(run: pegboard.Run, read: Callable[[Path], Any]) -> None:
    rows = record_of(run, read).rows
    tables = {"confusion", "predictions", "curves", "report"}
    figures = [row for row in rows if not any(name.split("/")[-1] in tables for name in row)]
    assert figures == run.history
    assert len(run.history) > 6


def test_config_environment_and_artifacts_are_there(run: pegboard.Run, read: Callable[[Path], Any]) -> None:
    record = record_of(run, read)
    assert record.config["model"]["hidden"] == [8]
    (first, *_) = record.of("run")
    assert (first.project, first.run_group, list(first.tags), first.notes) == (
        "demo",
        "tests",
        ["a"],
        "hello",
    )
    assert first.run_id == run.folder.name
    aliases = {alias for artifact in record.of("artifact") for alias in artifact.aliases}
    assert {"best", "last"} <= aliases


def test_the_summary_has_the_diagnosis_the_reference_and_the_page(
    run: pegboard.Run, read: Callable[[Path], Any]
) -> None:
    summary = record_of(run, read).summary
    assert summary["diagnosis/verdict"] == run.diagnosis["verdict"]
    assert summary["diagnosis/rule"] == run.diagnosis["rule"]
    for split in ("train", "val", "test"):
        assert summary[f"figures/{split}/loss"] == run.figures[f"{split}/loss"]
    assert summary["diagnosis/gap"] == run.figures["test/loss"] - run.figures["train/loss"]
    assert summary["reference/name"] == "nothing"
    assert summary["reference/gap"] == run.reference["gap"]
    assert summary["reference/figures/test/loss"] == run.reference["figures"]["test/loss"]
    assert not {"figures", "diagnosis", "reference"} & set(summary)
    page = summary["report"]
    assert page["_type"] == "html-file"
    (record,) = run.folder.rglob("*.wandb")
    assert (record.parent / "files" / page["path"]).read_text() == (run.folder / "report.html").read_text()


def test_a_run_that_was_followed_offline_can_be_resumed_and_reported(
    run: pegboard.Run, tmp_path: Path
) -> None:
    import shutil

    from pegboard.cli import main

    folder = shutil.copytree(run.folder, tmp_path / "run", symlinks=True)
    (logs,) = folder.glob("wandb/offline-run-*/logs")
    assert logs.is_dir()  # in which W&B has a link to a log of its own
    assert main(["report", str(folder)]) == 0
    assert main(["resume", str(folder), "--quiet"]) == 0


def test_watching_does_not_change_the_weights(run: pegboard.Run, tmp_path: Path) -> None:
    plain = pegboard.train(CONFIG, root=tmp_path, quiet=True)
    files = [(r.folder / "checkpoints/last/model.safetensors").read_bytes() for r in (run, plain)]
    assert files[0] == files[1]
    assert plain.history == run.history
