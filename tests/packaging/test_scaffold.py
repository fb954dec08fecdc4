"""`pegboard new`: what it writes for every kind of part works, untouched."""

from __future__ import annotations

import csv
import importlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pegboard import Context, DataSpec, PegboardError, Resident, RunInfo, Splits, Vector, __version__
from pegboard.cli import main
from pegboard.contract.kinds import KINDS as PARTS
from pegboard.tools.scaffold import LONGEST, TEMPLATES, Draft, core_range
from pegboard.tools.scaffold import WRITTEN as KINDS
from sandbox import ROOT, Sandbox, build_wheels

NAMES = {
    "model": "ladder",
    "optimizer": "sign_step",
    "schedule": "power_fall",
    "regularizer": "max-norm",
    "dataset": "rings",
    "objective": "focal",
    "stepper": "prefetch",
    "tracker": "csv_file",
    "probe": "sensitivity",
    "recipe": "first-one",
}
EACH = pytest.mark.parametrize("kind", KINDS)
SOMETIMES = ("tracker", "model", "regularizer", "dataset")  # in the long run, the other kinds as a proof
SOME = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=[pytest.mark.sweep if kind in SOMETIMES else pytest.mark.prove],
        )
        for kind in KINDS
    ],
)
BESIDE = [
    ROOT / "framework",
    *(ROOT / "plugins" / p for p in ("datasets", "mlp", "objectives", "optimizers")),
]

# What an author does with a new plugin: check, test, train, and run what the card shows, in a fork for each
# folder, so that what all of them import is imported once.
EVENINGS = """
import json, os, pathlib, re, sys
import pytest, sklearn.datasets, torch._dynamo
import pegboard.testing.runs
from pegboard.cli import main

def evening():
    codes = {"check": main(["check", "config.yaml"])}
    codes["test"] = int(pytest.main(["-q", "--pegboard-strict"]))
    codes["train"] = main(["train", "config.yaml"])
    for block in re.findall(r"^```python\\n(.*?)^```$", pathlib.Path("README.md").read_text(), re.M | re.S):
        exec(block, {})
    print(json.dumps(codes), flush=True)

for folder in map(str.strip, sys.stdin):
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(folder)
    said = open("said.txt", "w")
    os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
    evening()
    sys.exit()
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A new plugin of every kind."""
    root = tmp_path_factory.mktemp("made")
    for kind, name in NAMES.items():
        assert main(["new", kind, name, "--folder", str(root / kind)]) == 0
    return {kind: root / kind for kind in NAMES}


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of the core and of what the configs name."""
    return list(build_wheels(tmp_path_factory.mktemp("beside"), BESIDE).values())


@pytest.fixture(scope="session")
def wheels(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    built = build_wheels(tmp_path_factory.mktemp("wheels"), made.values())
    return {kind: built[Draft(kind, name).dist] for kind, name in NAMES.items()}


@pytest.fixture(scope="session")
def crowd(beside: list[Path], wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """The plugins of all kinds together."""
    folder = tmp_path_factory.mktemp("crowd") / "env"
    return Sandbox.create(folder, [*beside, *wheels.values()], tools=["pytest"])


@pytest.fixture(scope="session")
def evening(crowd: Sandbox) -> Iterator[Callable[[Path], str]]:
    """Spends an evening in a folder, and returns what was said."""
    with crowd.start("python", "-c", EVENINGS) as process:
        assert process.stdin and process.stdout and process.stderr

        def spend(folder: Path) -> str:
            print(folder, file=process.stdin, flush=True)
            code = process.stdout.readline().strip()
            assert code, process.stderr.read()
            said = (folder / "said.txt").read_text()
            assert code == "0", said
            return said

        yield spend
        process.stdin.close()


def test_there_is_a_template_for_every_kind_and_a_test_for_every_template() -> None:
    assert set(KINDS) == {*PARTS, "recipe"} == set(NAMES)
    assert {path.name for path in TEMPLATES.iterdir()} == {*KINDS, "common"}


@SOME
def test_new_plugin_passes_every_check_and_trains(
    kind: str, made: dict[str, Path], evening: Callable[[Path], str]
) -> None:
    said = evening(made[kind])
    assert json.loads(said.splitlines()[-1]) == {"check": 0, "test": 0, "train": 0}, said
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None and int(passed[1]) > 8
    runs = made[kind] / "runs" / Draft(kind, NAMES[kind]).name
    assert json.loads((runs / "latest" / "summary.json").read_text())["status"] == "finished"


@pytest.mark.sweep
def test_new_tracker_writes_what_was_logged(made: dict[str, Path], evening: Callable[[Path], str]) -> None:
    latest = made["tracker"] / "runs" / "csv_file" / "latest"
    if not latest.exists():
        evening(made["tracker"])
    logged = [json.loads(line) for line in (latest / "metrics.jsonl").read_text().splitlines()]
    expected = [(row["step"], name, row[name]) for row in logged for name in row if "/" in name]
    with (latest / "numbers.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "name", "value"] and len(expected) > 5
    assert [(int(step), name, float(value)) for step, name, value in rows] == expected


def test_new_recipe_is_listed(crowd: Sandbox) -> None:
    said = crowd.run("pegboard", "zoo", "list").stdout
    assert re.search(r"iris/mlp-first-one +not recorded yet +pegboard-first-one", said), said


def test_new_configs_are_what_editors_expect(made: dict[str, Path], crowd: Sandbox) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(crowd.run("pegboard", "schema").stdout))
    for folder in made.values():
        config = yaml.safe_load((folder / "config.yaml").read_text())
        assert [error.message for error in validator.iter_errors(config)] == []
    assert not validator.is_valid({"regularizers": {"max_norm": {"bound": -1}}})


@pytest.mark.sweep
def test_new_plugin_works_beside_the_core_and_what_its_config_names(
    beside: list[Path], tmp_path: Path
) -> None:
    sandbox = Sandbox.create(tmp_path / "env", beside, tools=["pytest", "hatchling", "editables"])
    words = ("regularizer", "max-norm", "--dist", "acme-max-norm")
    written = sandbox.run("pegboard", "new", *words, cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    folder = tmp_path / "acme-max-norm"
    sandbox.install(folder, "test")
    assert "acme" not in sandbox.pip("check").stdout
    for command in (("python", "-m", "pytest", "-q"), ("pegboard", "train", "config.yaml")):
        outcome = sandbox.run(*command, cwd=folder, env={"PYTHONDONTWRITEBYTECODE": ""})
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    build = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "dist"))
    assert sandbox.pip("wheel", *build, str(folder)).returncode == 0
    assert [path.name for path in (folder / "dist").iterdir()] == ["acme_max_norm-0.1.0-py3-none-any.whl"]


@EACH
def test_wheel_holds_the_package_alone(kind: str, made: dict[str, Path], wheels: dict[str, Path]) -> None:
    draft = Draft(kind, NAMES[kind])
    held = zipfile.ZipFile(wheels[kind])
    files = {name for name in held.namelist() if ".dist-info/" not in name}
    source = made[kind] / "src"
    assert files == {
        str(p.relative_to(source)) for p in source.rglob("*") if p.is_file() and p.suffix != ".pyc"
    }
    assert f"{draft.module}/py.typed" in files
    points = next(name for name in held.namelist() if name.endswith("entry_points.txt"))
    assert held.read(points).decode().split() == ["[pegboard]", draft.name, "=", draft.module]


@pytest.fixture
def code(made: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """A module of a new plugin."""

    def module(kind: str, name: str) -> Any:
        monkeypatch.syspath_prepend(made[kind] / "src")
        return importlib.import_module(f"{Draft(kind, NAMES[kind]).module}.{name}")

    return module


def test_new_optimizer_makes_the_update_of_its_card_step_by_step_and_as_a_function(
    code: Callable[[str, str], Any],
) -> None:
    new = code("optimizer", "optimizer")
    start, grads = torch.randn(2, 3), [torch.randn(2, 3) for _ in range(4)]
    pair = [torch.nn.Parameter(start.clone()) for _ in range(2)]
    made = [new.SignStepOptimizer([{"params": [p]}], lr=0.1, mix=0.8, keep=0.5) for p in pair]
    w, m = start.double(), torch.zeros(2, 3, dtype=torch.float64)
    for number, grad in enumerate(grads):
        w, m = w - 0.1 * torch.sign(0.8 * m + 0.2 * grad), 0.5 * m + 0.5 * grad
        update = new.as_function(made[1]) if number else None
        for p, optimizer in zip(pair, made, strict=True):
            p.grad = grad
            if optimizer is made[1] and update is not None:
                with torch.no_grad():
                    update([grad], [torch.tensor(0.1)])
            else:
                optimizer.step()
    torch.testing.assert_close(pair[0].detach().double(), w, rtol=1e-5, atol=1e-5)
    assert torch.equal(*pair)
    assert new.as_function(new.SignStepOptimizer([{"params": [pair[0]]}], lr=0.1)) is None


def test_new_objective_is_cross_entropy_weighed_by_what_is_wrong(code: Callable[[str, str], Any]) -> None:
    new = code("objective", "objective")
    output, target = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    plain = torch.nn.functional.cross_entropy(output, target, reduction="none")
    right = output.softmax(-1).gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(new.focal_loss(output, target, 0.0), plain)
    torch.testing.assert_close(new.focal_loss(output, target, 2.0), (1 - right) ** 2 * plain)
    sure = torch.tensor([[200.0, 0.0]], requires_grad=True)
    new.focal_loss(sure, torch.tensor([0]), 0.5).sum().backward()
    assert sure.grad is not None and sure.grad.isfinite().all()
    metric = new.Accuracy()
    for half in (slice(0, 4), slice(4, 6)):
        metric.update(output[half], target[half])
    assert metric.compute() == (output.argmax(-1) == target).float().mean()


def test_new_tracker_of_a_resumed_run_goes_on_where_it_was(
    tmp_path: Path, code: Callable[[str, str], Any]
) -> None:
    tracker = code("tracker", "tracker").CsvFileTracker("numbers.csv")
    (tmp_path / "numbers.csv").write_text("step,name,value\n1,train/loss,3.0\n2,train/loss,9.0\n")
    kept = [{"step": 1, "epoch": 0, "train/loss": 3.0}]
    tracker.start(
        RunInfo(folder=tmp_path, name="x", id="1", config={}, plan="", environment={}, previous=kept)
    )
    tracker.log({"step": 2, "epoch": 1, "val/loss": 2.5, "val/accuracy": 0.5})
    assert (tmp_path / "numbers.csv").read_text().split() == [
        "step,name,value", "1,train/loss,3.0", "2,val/loss,2.5", "2,val/accuracy,0.5",
    ]  # fmt: skip


def test_new_parts_say_what_they_lack(code: Callable[[str, str], Any], made: dict[str, Path]) -> None:
    norms = code("regularizer", "trick").MaxNormTrick(1.0)
    with pytest.raises(PegboardError, match="max_norm found no weights"):
        norms.after_step(torch.nn.BatchNorm1d(3))
    schedule = importlib.import_module(code("schedule", "schedule").__package__)
    with pytest.raises(PegboardError, match="trainer.steps"):
        schedule.build(schedule.PowerFall(), Context())
    probe = importlib.import_module(code("probe", "probe").__package__)
    splits = Splits(spec=DataSpec(), train=Resident([torch.zeros(2, 1)]))
    with pytest.raises(PegboardError, match="measures on val"):
        probe.build(probe.Sensitivity(), Context()).measure(
            torch.nn.Linear(1, 1), splits, torch.device("cpu")
        )
    model = importlib.import_module(code("model", "network").__package__)
    with pytest.raises(PegboardError, match="needs the sizes"):
        model.build(model.Ladder(), Context(spec=DataSpec((Vector(),)), outputs=2))


def test_new_probe_measures_the_weights_of_a_linear_model(code: Callable[[str, str], Any]) -> None:
    new = code("probe", "probe")
    layer = torch.nn.Linear(1, 1)
    moved = new.sensitivity(layer, [torch.zeros(20000, 1)], 0.01, torch.Generator().manual_seed(0))
    assert moved == pytest.approx(abs(layer.weight.item()), rel=0.03)


def python_lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))


def test_a_working_trick_is_at_most_60_lines_of_python(tmp_path: Path) -> None:
    assert main(["new", "regularizer", "max_norm", "--folder", str(tmp_path / "new")]) == 0
    assert python_lines(tmp_path / "new") <= 60
    assert len((tmp_path / "new" / "tests" / "test_conformance.py").read_text().splitlines()) == 3


@pytest.fixture(scope="session")
def lengthy(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same with the longest name that is allowed."""
    root = tmp_path_factory.mktemp("lengthy")
    for kind in KINDS:
        Draft(kind, f"{kind[0]}" * LONGEST, folder=root / kind).write()
    return [root / kind for kind in KINDS]


@pytest.mark.parametrize(
    "settings", [["--config", str(ROOT / "pyproject.toml")], []], ids=["ours", "its own"]
)
def test_code_is_formatted_and_clean(settings: list[str], made: dict[str, Path], lengthy: list[Path]) -> None:
    folders = [*map(str, made.values()), *map(str, lengthy)]
    for command in (["check"], ["format", "--check"]):
        words = [sys.executable, "-m", "ruff", *command, "--no-cache", *settings, *folders]
        outcome = subprocess.run(words, capture_output=True, text=True, cwd=made["model"])
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.sweep
def test_code_is_typed(made: dict[str, Path]) -> None:
    checked = [*(folder / "src" for folder in made.values()), made["model"] / "tests"]
    # From the root, with the settings and the cache of `make lint`: torch takes a while to be read anew.
    words = [sys.executable, "-m", "mypy", "--strict", *map(str, checked)]
    outcome = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@EACH
def test_project_says_what_it_needs(kind: str, made: dict[str, Path]) -> None:
    table = tomllib.loads((made[kind] / "pyproject.toml").read_text())
    project = table["project"]
    needs = {need.name: need.specifier for need in map(Requirement, project["dependencies"])}
    assert needs["pegboard"].contains(__version__, prereleases=True)
    assert not needs["pegboard"].contains(f"{int(__version__.split('.')[0]) + 1}.0")
    code = "".join(path.read_text() for path in made[kind].rglob("src/**/*.py"))
    assert ("torch" in needs) == bool(re.search(r"^(import|from) torch", code, re.M))
    assert project["license"] and project["classifiers"] and len(project["description"]) > 20
    extra = {Requirement(text).name for text in project["optional-dependencies"]["test"]}
    assert extra == {"pytest", *(f"pegboard-{path.name}" for path in BESIDE[1:])}
    assert ("pegboard-mlp" in needs) == (kind == "recipe")
    assert table["tool"]["pytest"]["ini_options"]["addopts"] == "-p pegboard.testing"


@EACH
def test_card_shows_the_config_that_runs(kind: str, made: dict[str, Path]) -> None:
    card = (made[kind] / "README.md").read_text()
    shown = re.search(r"^```yaml\n(.*?)^```$", card, re.M | re.S)
    path = made[kind] / "config.yaml"
    if kind == "recipe":
        (path,) = made[kind].rglob("recipe.yaml")
    else:
        header = "# yaml-language-server: $schema=pegboard.schema.json"
        assert path.read_text().splitlines()[0] == header
        assert "pegboard.schema.json" in (made[kind] / ".gitignore").read_text().split()
    assert shown is not None and yaml.safe_load(shown[1]) == yaml.safe_load(path.read_text())


def test_workflow_tests_the_oldest_and_the_newest_core_and_builds_the_wheel(made: dict[str, Path]) -> None:
    jobs = yaml.safe_load((made["model"] / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    oldest, newest = map(Requirement, jobs["test"]["strategy"]["matrix"]["core"])
    assert oldest.name == newest.name == "pegboard" and not newest.specifier
    project = tomllib.loads((made["model"] / "pyproject.toml").read_text())["project"]
    least = re.search(r"pegboard>=([\w.]+)", project["dependencies"][0])
    assert least is not None and oldest.specifier.contains(least[1])
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    assert any("pytest" in step for step in steps) and any("pip wheel" in step for step in steps)


@pytest.mark.parametrize(
    ("version", "inside", "outside", "oldest"),
    [
        ("0.2.0", ["0.2.0", "0.2.7", "0.9"], ["0.1.9", "1.0"], "0.2.3"),
        ("1.4.2", ["1.4.2", "1.9"], ["1.3", "2.0"], "1.4.0"),
        ("0.3.0.dev1", ["0.3.0.dev1", "0.3.0"], ["0.2", "1.0"], "0.3.0.dev1"),
    ],
)
def test_range_follows_from_the_core_that_writes_it(
    version: str, inside: list[str], outside: list[str], oldest: str
) -> None:
    least, below, pattern = core_range(version)
    fits = SpecifierSet(f">={least},<{below}")
    assert [v for v in (*inside, *outside) if fits.contains(v, prereleases=True)] == inside
    assert SpecifierSet(f"=={pattern}").contains(oldest, prereleases=True)


def test_command_tells_what_it_wrote_and_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "schedule", "slow_start"]) == 0
    said = capsys.readouterr().out
    tree, _, after = said.partition("\nnext:\n")
    folder = tmp_path / "pegboard-slow-start"
    listed = {line.split()[0] for line in tree.splitlines()[1:]}
    assert tree.splitlines()[0] == "pegboard-slow-start/"
    assert listed == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert [line.strip() for line in after.splitlines()][:4] == [
        "cd pegboard-slow-start", 'pip install -e ".[test]"', "pytest", "pegboard train config.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["regulariser", "max_norm"], ["unknown kind 'regulariser', did you mean 'regularizer'?"]),
        (["trick", "max_norm"], ["did you mean 'regularizer'?", "kinds: model, optimizer"]),
        (["model", "MaxNorm"], ["'MaxNorm' is no name for a part, did you mean 'max_norm'?"]),
        (["model", "2d"], ["'2d' is no name for a part\n    expected words"]),
        (["model", "a" * 33], ["32 characters at most"]),
        (["model", "lambda"], ["'lambda' is a word of Python or YAML"]),
        (["model", "none"], ["'none' is a word of Python or YAML"]),
        (["model", "off"], ["'off' is a word of Python or YAML"]),
        (["model", "json"], ["'json' is that of a module of Python"]),
        (["regularizer", "trick"], ["would make a class Trick"]),
        (["model", "warning"], ["would make a class Warning"]),
        (["model", "block"], ["would make a class Block"]),
        (["model", "mlp"], ["pegboard-mlp has a model 'mlp' already", "--dist acme-mlp"]),
        (["model", "net", "--dist", "Acme_Net"], ["distribution, did you mean 'acme-net'?"]),
        (["model", "net", "--dist", "logging"], ["would hide what Python has"]),
        (["model", "net", "--dist", "pegboard"], ["there is a distribution 'pegboard' already"]),
        (["model", "net", "--folder", "full"], ["the folder 'full' is not empty"]),
        (["model", "net", "--folder", "full/file"], ["'full/file' is a file"]),
        (
            ["modle", "Net", "--dist", "Net", "--folder", "full"],
            ["did you mean 'model'?", "'Net' is no name for a part", "for a distribution", "is not empty"],
        ),
    ],
)
def test_mistakes_are_told_all_at_once_and_nothing_is_written(
    words: list[str],
    messages: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["new", *words]) == 2
    said = capsys.readouterr().err
    assert not [message for message in messages if message not in said], said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert main(["new", "probe", "depth", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "src" / "pegboard_depth" / "__init__.py").is_file()


def test_names_that_stand_in_templates_are_names_like_others() -> None:
    text = "".join(Draft("regularizer", "part_name", "part-module").files().values())
    assert 'Regularizer(\n            "part_name",\n            PartName' in text
    assert 'conformance("part-module")' in text


def test_command_imports_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pegboard.cli import main\nassert main(['new', 'model', 'net']) == 0\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    outcome = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
