"""A plugin's own spec is as good as the core's: a run on it is used in every way, in another process too."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
from crowd import install
from pegboard import Classes, DataSpec, PegboardError, Vector
from pegboard.cli import main
from pegboard.inference.trained import Trained
from pegboard.registry.discovery import Registry, import_file, was_run
from pegboard.registry.spec_names import UnknownSpec, from_json, to_json
from pegboard.testing import Kit
from pegboard.testing import checks as _checks  # noqa: F401  registers them
from pegboard.testing.runs import cut_and_resumed, differences, whole

VIDEO = Path(__file__).parents[1] / "support" / "parts" / "video.py"
CONFIG: dict[str, Any] = {
    "data": {"name": "clips", "batch_size": 8},
    "model": {"name": "clip_net"},
    "optimizer": {"name": "clip_descent"},
    "objective": {"name": "clip_guess"},
    "trainer": {"steps": 4, "save_every": 2, "device": "cpu"},
}
# Trains and uses runs, each word list a command; prints a line of JSON with what came of every command.
CHILD = """
import contextlib, io, json, sys, traceback
from pegboard.cli import main

came = {}
for name, words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            code = traceback.format_exc()
    came[name] = (code, out.getvalue(), err.getvalue())
print(json.dumps(came))
"""


def child(site: Path, folder: Path, commands: list[tuple[str, list[str]]]) -> dict[str, list[Any]]:
    """What came of commands in a process that has imported nothing yet."""
    env = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(commands), capture_output=True, text=True, env=env, cwd=folder, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Any]]]:
    """Runs of a local file and of an installed plugin, trained in one process and used in another."""
    folder = tmp_path_factory.mktemp("used")
    site = folder / "site"
    install(site, "pegboard-video", VIDEO.read_text())
    shutil.copy(VIDEO, folder / "mine.py")
    both = {"mine:": {**CONFIG, "plugins": {"local": ["mine.py"]}}, "video:": CONFIG}
    for name, (prefix, given) in zip(("local", "installed"), both.items(), strict=True):
        text = re.sub(r'"name": "', f'"name": "{prefix}', json.dumps(given))
        (folder / f"{name}.yaml").write_text(text)
    commands = []
    for name, prefix in (("local", "mine:"), ("installed", "video:")):
        track = ["data.track=true", f"model.name={prefix}clip_maker"]
        for target, words in (("classes", []), ("track", track)):
            given = [f"{name}.yaml", f"name={name}-{target}", "--quiet", *words]
            commands.append((f"{name}-{target}", ["train", *given]))
    trained = child(site, folder, commands)
    assert {name: came[0] for name, came in trained.items()} == dict.fromkeys(trained, 0), trained
    commands = []
    for name in trained:
        run, local = f"runs/{name}/latest", ["--local", "mine.py"] if name.startswith("local") else []
        probe = "mine:brightness" if local else "video:brightness"
        if name.endswith("track"):  # by a model that generates samples
            commands += [
                (f"{name} sample", ["sample", run, "-n", "3", "-o", f"{name}.npy", *local]),
                (f"{name} sample picture", ["sample", run, "-o", f"{name}.png", *local]),
            ]
        commands += [
            (f"{name} eval", ["eval", run, *local]),
            (f"{name} predict", ["predict", run, *local]),
            (f"{name} predict table", ["predict", run, "--input", "local.yaml", *local]),
            (f"{name} probe", ["probe", run, probe, *local]),
            (f"{name} report", ["report", run]),
            (f"{name} resume", ["resume", run, *local]),
        ]
    came = child(site, folder, commands)
    runs = {name: {"folder": [str(folder / "runs" / name / "latest")]} for name in trained}
    for name, outcome in came.items():
        run, _, command = name.partition(" ")
        runs[run][command] = outcome
    return runs


EACH = pytest.mark.parametrize(
    "run", ["local-classes", "local-track", "installed-classes", "installed-track"]
)


@EACH
def test_a_run_on_a_plugin_s_spec_is_used_in_a_fresh_process(run: str, used: dict[str, Any]) -> None:
    came = {command: outcome for command, outcome in used[run].items() if command != "folder"}
    fine = {
        command: outcome
        for command, outcome in came.items()
        if command.split()[-1] not in ("table", "picture")
    }
    assert {command: outcome[0] for command, outcome in fine.items()} == dict.fromkeys(fine, 0), came
    rows = list(csv.DictReader(came["predict"][1].splitlines()))
    name = "track" if run.endswith("track") else "class"
    assert len(rows) == 24 and list(rows[0]) == ["row", "target", name]
    assert re.fullmatch(r"\[\[.*\]\]" if run.endswith("track") else "dark|bright", rows[1][name])
    assert "mean" in came["probe"][1]


@pytest.mark.parametrize("run", ["local-track", "installed-track"])
def test_what_needs_to_know_a_spec_says_why_it_does_without(run: str, used: dict[str, Any]) -> None:
    code, _, said = used[run]["sample picture"]
    assert code == 2
    assert "samples that are Video(4, (6, 6)) have no picture: expected .npy or .csv" in said
    code, _, said = used[run]["predict table"]
    assert code == 2
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("run", "owner"), [("local-track", "mine.py"), ("installed-track", "pegboard-video")]
)
def test_files_of_a_run_name_specs_by_who_defines_them(run: str, owner: str, used: dict[str, Any]) -> None:
    manifest = json.loads(
        (Path(used[run]["folder"][0]) / "checkpoints" / "best" / "manifest.json").read_text()
    )
    assert [entry["type"] for entry in manifest["spec"]["inputs"]] == [f"{owner}:Video"]
    assert manifest["spec"]["target"]["type"] == f"{owner}:Track"


def copied(folder: Path, name: str = "video.py", old: str = "", new: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    text = VIDEO.read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new) if old else text)
    return folder / name


def trained(tmp_path: Path, local: Path, *words: str, **nodes: Any) -> pegboard.Run:
    config = {**CONFIG, **nodes, "plugins": {"local": [str(local)]}}
    return pegboard.train(config, *words, root=tmp_path / "runs", quiet=True)


# Specs that say how they are drawn and described.
DESCRIBED = """
    def describe(self, columns, **known):
        found = super().describe(columns, **known)
        for key, values in columns.items():
            found[key] = [f"{len(v)} places, the last at {v[-1, 0]:.1f}" for v in values]
        return found
"""
DRAWN = """
    def draw(self, figure, batches, data):
        for place, (split, batch) in enumerate(batches.items()):
            words = [""] * 3 if batch.target is None else data.target.caption(batch.target)
            for number, clip in enumerate(batch.inputs[0][:3]):
                axes = figure.add_subplot(len(batches), 3, 3 * place + number + 1)
                axes.imshow(clip[:, 0].flatten(0, 1).numpy())
                axes.set_title(f"{split} {words[number]}")

    def encode(self, cells):
        import torch

        return torch.tensor(cells, dtype=torch.float32).view(-1, self.frames, 1, *self.sides)
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pegboard.Run]:
    """A local plugin whose specs say how people see them, and a run on it of a model that makes samples."""
    folder = tmp_path_factory.mktemp("shown")
    field = "    sides: tuple[int, int] = (6, 6)  # height and width\n"
    path = copied(folder, "video.py", field, field + DRAWN)
    field = "    frames: int\n\n\n@dataclass(frozen=True)\nclass Clips"
    path.write_text(path.read_text().replace(field, field.replace("int\n", f"int\n{DESCRIBED}", 1)))
    return path, trained(folder, path, "data.track=true", model={"name": "clip_maker"})


def test_data_of_a_plugin_s_spec_is_drawn(
    shown: tuple[Path, pegboard.Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = shown
    monkeypatch.chdir(path.parent)
    assert main(["show", "data", "clips", "--plot", "--local", path.name]) == 0
    assert capsys.readouterr().out == "clips.png\n"
    assert Path("clips.png").read_bytes().startswith(b"\x89PNG")


def test_predictions_of_a_plugin_s_spec_are_in_its_words(
    shown: tuple[Path, pegboard.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = shown
    assert main(["predict", str(run.folder), "--local", str(path)]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    table = json.loads((run.folder / "tables.json").read_text())["predictions"]
    assert table["columns"] == ["sample", "target", "track"] and len(rows) == 24
    cells = [row[name] for row in rows for name in ("target", "track")] + [
        c for r in table["rows"] for c in r[1:]
    ]
    assert all(re.fullmatch(r"4 places, the last at -?\d\.\d", cell) for cell in cells)
    assert "4 places, the last at " in (run.folder / "report.html").read_text("utf-8")


def test_a_table_is_read_by_a_plugin_s_spec(
    shown: tuple[Path, pegboard.Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = shown
    monkeypatch.chdir(path.parent)
    clips = torch.randn(2, 4, 1, 6, 6)
    Path("rows.json").write_text(json.dumps([{"clip": clip.tolist()} for clip in clips]))
    assert main(["predict", str(run.folder), "--input", "rows.json", "--local", path.name]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    with torch.no_grad():
        ends = pegboard.load(run, local=[path])(clips)[:, -1, 0].tolist()
    assert [row["track"] for row in rows] == [f"4 places, the last at {end:.1f}" for end in ends]


def test_samples_of_a_plugin_s_spec_are_drawn(
    shown: tuple[Path, pegboard.Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = shown
    assert (run.folder / "figures" / "samples.png").is_file()
    monkeypatch.chdir(path.parent)
    assert main(["sample", str(run.folder), "-n", "3", "--local", path.name]) == 0
    assert capsys.readouterr().out == "3 samples in samples.png\n"
    assert Path("samples.png").read_bytes().startswith(b"\x89PNG")


def renamed(run: pegboard.Run, change: Callable[[str], str]) -> None:
    """Change the names of specs in the checkpoints of a run, as another release would have written them."""
    for path in (run.folder / "checkpoints").glob("step-*/manifest.json"):
        manifest = json.loads(path.read_text())
        for entry in (*manifest["spec"]["inputs"], manifest["spec"]["target"]):
            entry["type"] = change(entry["type"])
        path.write_text(json.dumps(manifest))


def test_runs_of_older_releases_with_bare_names_still_load(tmp_path: Path) -> None:
    run = trained(tmp_path, copied(tmp_path / "a"), "data.track=true")
    renamed(run, lambda name: name.rpartition(":")[2])
    x = torch.zeros(2, 4, 1, 6, 6)
    assert pegboard.load(run)(x).shape == (2, 4, 2)


def test_a_bare_name_of_several_plugins_is_that_of_the_run_s_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    for dist in ("acme-film", "acme-movie"):
        install(site, dist, VIDEO.read_text())
    monkeypatch.syspath_prepend(site)
    registry = Registry.discover()
    written = {"inputs": [{"type": "Video", "frames": 4}], "target": None, "names": []}
    found = from_json(written, lambda name, keys: registry.specs.find(name, keys, "acme-movie")).inputs[0]
    assert type(found).__module__ == "acme_movie"
    with pytest.raises(
        UnknownSpec, match="several specs are called 'Video': acme-film:acme_film.Video, acme-m"
    ):
        from_json(written, registry.specs.find)


def test_plugins_with_specs_of_one_name_each_get_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    install(site, "pegboard-video", VIDEO.read_text())
    install(
        site,
        "acme-reel",
        VIDEO.read_text().replace("Track", "Vector"),
    )
    monkeypatch.syspath_prepend(site)
    files = [copied(tmp_path / "a"), copied(tmp_path / "b"), copied(tmp_path / "a", "other.py")]
    registry = Registry.discover(local=files)
    assert [p.status for p in registry.plugins if p.version == "local"] == ["ready"] * 3
    modules = [importlib.import_module(name) for name in ("pegboard_video", "acme_reel")] + [
        import_file(f) for f in files
    ]
    specs = [DataSpec((m.Video(3),), Vector(2), ()) for m in modules]
    specs.append(DataSpec((modules[1].Vector(3),), Classes(2), ()))
    written = [json.loads(json.dumps(to_json(spec, registry.specs.name))) for spec in specs]
    assert [entry["inputs"][0]["type"] for entry in written] == [
        "pegboard-video:Video", "acme-reel:Video", "a/video.py:Video", "b/video.py:Video", "other.py:Video",
        "acme-reel:Vector",
    ]  # fmt: skip
    assert [entry["target"]["type"] for entry in written] == ["Vector"] * 5 + ["Classes"]
    for spec, entry in zip(specs, written, strict=True):
        again = from_json(entry, registry.specs.find)
        assert again == spec
        assert type(again.inputs[0]) is type(spec.inputs[0])


def test_a_local_file_that_moved_with_its_run_is_found_by_its_name(tmp_path: Path) -> None:
    run = trained(tmp_path, copied(tmp_path / "a"))
    (tmp_path / "a" / "video.py").unlink()
    moved = copied(tmp_path / "elsewhere")
    found = Trained(run.folder, device="cpu", local=[moved])
    assert type(found.plan.spec.inputs[0]) is import_file(moved).Video
    assert found.predict(found.source("test"))["class"][:2]


def test_a_spec_that_nobody_defines_is_named_with_the_remedy(tmp_path: Path) -> None:
    run = trained(tmp_path, local := copied(tmp_path / "a"))
    for change, remedy in (
        (
            "acme-video:Video",
            "unknown spec 'acme-video:Video': acme-video is not installed\npip install acme-video",
        ),
        (
            "video.py:Vidoe",
            "unknown spec 'video.py:Vidoe': it is of a local plugin, name the file: --local video.py",
        ),
        ("pegboard-mlp:Video", "defines no such spec; did you mean 'video.py:Video'?"),
        ("Vidoe", "unknown spec 'Vidoe': is the plugin that defines it installed?"),
    ):
        renamed(run, lambda name, to=change: to if "ideo" in name or "idoe" in name else name)  # type: ignore[misc]
        with pytest.raises(PegboardError, match=re.escape(remedy)):
            pegboard.load(run, local=[local])


def test_a_local_file_is_run_once_for_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "count.py"
    path.write_text("import builtins\nx = 1\n")
    first = import_file(path)
    assert import_file(tmp_path / "." / "count.py") is first
    assert was_run(path)
    stamp = path.stat().st_mtime_ns
    path.write_text("import builtins\nx = 2\n")  # as long, and within a second
    os.utime(path, ns=(stamp, stamp))
    assert not was_run(path)
    second = import_file(path)
    assert (first.x, second.x) == (1, 2)
    assert second is not first
    path.write_text("import builtins\nx = 1\n")
    assert import_file(path) is first


def test_classes_of_a_local_file_are_the_same_in_every_discovery(tmp_path: Path) -> None:
    path = copied(tmp_path / "a")
    parts = [
        next(e.part for e in Registry.discover(local=[path]).entries("model") if e.part.name == "clip_net")
        for _ in range(2)
    ]
    assert parts[0].config is parts[1].config
    run = trained(tmp_path, path)
    Registry.discover(local=[path])
    assert pegboard.load(run)(torch.zeros(1, 4, 1, 6, 6)).shape == (1, 2)


def test_a_local_file_that_is_named_twice_is_one_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    local = [p for p in Registry.discover(local=[path, "a/video.py"]).plugins if p.version == "local"]
    assert [(p.status, p.dist) for p in local] == [("ready", str(path))]


def test_a_student_learns_from_a_teacher_of_the_same_local_plugin(tmp_path: Path) -> None:
    path = copied(tmp_path / "a")
    teacher = trained(tmp_path, path)
    student = trained(tmp_path, path, regularizers={"distillation": {"teacher": str(teacher.folder)}})
    assert student.status == "finished"


def test_a_teacher_of_other_classes_on_a_plugin_s_spec_is_found_by_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = trained(tmp_path, copied(tmp_path / "a"))
    copied(tmp_path / "b", "video.py", 'Classes(2, ("dark", "bright"))', "Classes(3)")
    tricks = {"distillation": {"teacher": str(teacher.folder)}}
    given = {**CONFIG, "regularizers": tricks, "plugins": {"local": ["b/video.py"]}}
    monkeypatch.chdir(tmp_path)
    Path("student.yaml").write_text(json.dumps(given))
    assert main(["check", "student.yaml"]) == 2
    said = capsys.readouterr().err
    assert "regularizers.distillation.teacher" in said
    assert "was trained on Video(4, (6, 6)) -> Classes(2), and the data is Video(4, (6, 6)) ->" in said


def test_specs_of_one_name_that_do_not_fit_are_told_apart_by_their_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "acme-reel", VIDEO.read_text())
    install(tmp_path / "site", "pegboard-video", VIDEO.read_text())
    monkeypatch.syspath_prepend(tmp_path / "site")
    names = {key: {"name": f"acme-reel:{CONFIG[key]['name']}"} for key in ("model", "optimizer", "objective")}
    with pytest.raises(PegboardError) as caught:
        pegboard.plan({**CONFIG, **names, "data": {"name": "pegboard-video:clips"}})
    assert "gives Video(4, (6, 6)): acme-reel's Video is not pegboard-video's" in str(caught.value)


def test_a_spec_with_no_example_takes_the_shapes_of_the_data(tmp_path: Path) -> None:
    config = {**CONFIG, "plugins": {"local": [str(copied(tmp_path / "a"))]}}
    text = pegboard.plan(config, "data.batch_size=40").explain()  # more than there are samples
    assert "parameters  290" in text
    assert re.search(r"a step +[\d,]+ floating point operations", text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    return Splits(spec=spec,", """
    @dataclass(frozen=True)
    class Late(Video):
        pass

    spec = DataSpec((Late(4),), spec.target)
    return Splits(spec=spec,""", "the spec Late of video.py cannot be found again once the run is over"),
        ("sides: tuple[int, int] = (6, 6)", "sides: object = frozenset()", "cannot be written to a file"),
        ("sides: tuple[int, int] = (6, 6)", "sides: Any = field(default_factory=list)", "comes back from"),
    ],
)  # fmt: skip
def test_a_spec_that_no_file_can_hold_is_refused_before_training(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    path = copied(tmp_path / "a", "video.py", old, new)
    if "Late" in new:
        path.write_text(
            path.read_text().replace("if config.stated else None", "if not config.stated else None")
        )
        path.write_text(
            path.read_text().replace(
                "clips_spec(Clips(config.track))", "clips_spec(Clips(config.track, False))"
            )
        )
    with pytest.raises(PegboardError, match=said):
        trained(tmp_path, path)
    assert not list((tmp_path / "runs").glob("*/*")) if (tmp_path / "runs").exists() else True


def test_an_interrupted_run_on_a_plugin_s_spec_is_resumed(tmp_path: Path) -> None:
    config = {**CONFIG, "plugins": {"local": [str(copied(tmp_path / "a"))]}}
    reference, events = whole(config, tmp_path / "whole")
    resumed = cut_and_resumed(config, tmp_path / "cut", events.index("save") + 1)
    assert not differences(reference, resumed)


def test_the_kit_tries_samples_of_a_plugin_s_spec_with_the_plugin_s_models(tmp_path: Path) -> None:
    kit = Kit(str(copied(tmp_path / "a")))
    (case,) = [case for case in kit.cases() if case.id == "dataset-clips-own_spec_survives_a_run"]
    outcome = case.run()
    assert (outcome.status, outcome.message) == ("passed", "")
