"""`probes:` of a config: checked like all parts, measured at the end of a run on its best weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.config.schema import schema
from pegboard.registry.discovery import Registry
from pegboard.tools.compare import compare

Config = Callable[..., dict[str, Any]]
TOY, TEXTS = (str(Path(__file__).parents[1].joinpath(name)) for name in ("toy.py", "toy_texts.py"))
PLUGINS = {"local": [TOY, TEXTS]}


@pytest.fixture(scope="module")
def probed(config: Config, tmp_path_factory: pytest.TempPathFactory) -> pegboard.Run:
    probes = {
        "counts": {"factor": 2},
        "again": {"name": "counts"},
        "broken": {"name": "counts", "fail": True},
        "drawing": {},
    }
    given = config(probes=probes, plugins=PLUGINS, trackers={"note": {"path": ""}})
    given["trackers"]["note"]["path"] = str(tmp_path_factory.mktemp("note") / "told")
    return pegboard.train(given, root=tmp_path_factory.mktemp("probed"))


def test_figures_of_probes_join_those_of_the_run(probed: pegboard.Run, capsys: Any) -> None:
    figures = probed.figures
    assert figures["counts/train"] == 128 and figures["again/train"] == figures["drawing/train"] == 64
    assert list(figures)[:2] == ["val/loss", "val/right"] and "test/right" in figures
    assert probed.status == "finished"
    assert probed.summary["failed_probes"] == {"broken": "ValueError('nothing to count')"}
    page = (probed.folder / "report.html").read_text("utf-8")
    assert "<td>counts/train</td><td>128</td>" in page and "<b>broken</b>ValueError" in page
    head = "<th>split</th><th>samples</th><th>loss</th><th>right</th></tr>"
    assert page.count(head) == 1  # splits alone are its rows
    assert (probed.folder / "figures" / "probe-drawing.png").is_file() and page.count("data:image/png") == 2
    assert "figure" in Path(probed_note(probed)).read_text()
    # A finished run gives the same figures again, to what is drawn.
    words = ["probe", str(probed.folder), "counts", "--json", "--local", TOY, "--local", TEXTS]
    capsys.readouterr()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["drawn"] == figures["again/drawn"] == figures["counts/drawn"]


def probed_note(run: pegboard.Run) -> str:
    from pegboard.store.run_reader import Recorded

    return str(Recorded(run.folder).config["trackers.note.path"])


def test_a_failing_probe_is_told_and_the_rest_is_shown(config: Config, root: Path, capsys: Any) -> None:
    probes = {"counts": {"fail": True}, "second": {"name": "counts"}}
    trainer = {"epochs": 1, "device": "cpu"}
    run = pegboard.train(config(probes=probes, plugins=PLUGINS, trainer=trainer), root=root)
    said = capsys.readouterr()
    assert "warning: probe counts failed, and is left out: ValueError('nothing to count')" in said.err
    assert "second/train  64" in said.out and run.status == "finished"
    with_probe, without = run.folder, pegboard.train(config(trainer=trainer), root=root, quiet=True).folder
    found = {d.path: d for d in compare(with_probe, without).found["figures"]}
    assert found["second/train"].a == 64 and not found["second/train"].both
    assert all(d.path.startswith("second/") for d in found.values())  # a probe changes no other figure


def test_probes_of_folds_have_means(config: Config, root: Path) -> None:
    trainer = {"epochs": 1, "device": "cpu", "folds": 2}
    probes = {"counts": {}, "broken": {"name": "counts", "fail": True}}
    run = pegboard.train(config(probes=probes, plugins=PLUGINS, trainer=trainer), root=root, quiet=True)
    assert run.summary["statistics"]["counts/train"]["values"] == [40.0, 40.0]
    assert "counts/train" in (run.folder / "report.html").read_text("utf-8")


def mistakes(config: Config, probes: Any, *words: str) -> str:
    with pytest.raises(PegboardError) as error:
        check(config(probes=probes, plugins=PLUGINS), words)
    return str(error.value)


def test_mistakes_in_probes_are_found_before_anything_is_built(config: Config) -> None:
    assert "did you mean 'counts'" in mistakes(config, {"count": {}})
    assert "'factor'" in mistakes(config, {"counts": {"facto": 2.0}})
    assert "expected a number" in mistakes(config, {"counts": {"factor": "two"}})
    assert "a mapping of names to settings" in mistakes(config, ["counts"])
    assert "'test' is a split" in mistakes(config, {"test": {"name": "counts"}})
    assert "a model stands under model" in mistakes(config, {"net": {}})
    told = mistakes(config, {}, "regularizers.counts={}")
    assert "a probe stands under probes: probes: {counts: {}}" in told
    told = mistakes(config, {}, "reference=counts")
    assert "probe 'counts' is no reference" in told and "probes: {counts: {}}" in told


def test_probes_merge_switch_off_and_are_explained(config: Config, tmp_path: Path) -> None:
    given = config(probes={"counts": {"factor": 2}, "mine": {"name": "counts"}}, plugins=PLUGINS)
    settings = check(given, ["probes.mine=null", "probes.counts.factor=3"])
    assert list(settings.probes) == ["counts"] and settings.probes["counts"].config.factor == 3
    assert check(settings.plain).plain == settings.plain
    assert "probes" not in check(config()).plain
    text = pegboard.plan(given).explain()
    assert "probes.mine" in text and "counts: Counts samples, or fails." in text


def test_editors_are_offered_every_probe() -> None:
    made = schema(Registry.discover(local=[TOY, TEXTS]))
    assert {"counts", "drawing"} <= set(made["properties"]["probes"]["properties"])
