"""Whatever is typed: an exit code, words for a person, and no half-made run folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pegboard.cli import COMMANDS, main
from pegboard.registry.discovery import Registry
from proofs import LOCAL, plain

GOOD = plain(
    trainer={"steps": 1, "device": "cpu"},
    regularizers={"dropout": {"p": 0.1}, "weight_decay": {}},
    plugins={"local": LOCAL},
)
KEYS = """
name seed data model optimizer objective regularizers trainer trackers plugins schedule players lr hidden p
sites epochs steps weights betas batch_size shuffle drop_last workers accumulate eval_every log_every monitor
mode nonfinite save_every save_minutes keep threads deterministic precision device local disable extends
target inputs path teacher value epsilon dropout batchnorm weight_decay label_smoothing distillation
""".split()
WORDS = """
mlp linear toy digits iris moons xor hub adam sgd lbfgs cosine step cross_entropy mse hinge relu tanh auto cpu
cuda meta fp32 bf16 fp16 min max stop skip val/loss val/accuracy train/loss ${seed} ${model} ??? null true
classes values labels tokens image series ../x /dev/null ~ . zoo:none !!python/object:os.system
""".split()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.floats(-2, 2),
    st.sampled_from([float("nan"), float("inf"), 1e-300, 1e300, "", "\\0", "é"]),
    st.sampled_from(WORDS),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
# Places of a config that runs, and what to put there; most of what comes of it is close to right.
PLACES = [
    "seed", "name", "data", "data.name", "data.batch_size", "data.target", "data.inputs", "data.drop_last",
    "data.workers", "data.eval_batch_size", "model", "model.name", "model.hidden", "model.weights",
    "model.infer_pegs", "optimizer", "optimizer.name", "optimizer.lr", "optimizer.schedule",
    "optimizer.players", "objective", "objective.name", "regularizers", "regularizers.dropout",
    "regularizers.dropout.p", "regularizers.dropout.sites", "regularizers.dropout.players",
    "regularizers.batchnorm", "regularizers.label_smoothing", "regularizers.distillation",
    "regularizers.weight_decay.value", "trainer", "trainer.accumulate", "trainer.monitor", "trainer.mode",
    "trainer.nonfinite", "trainer.precision", "trainer.device", "trainer.save_every", "trainer.keep",
    "trainer.log_every", "trainer.eval_every", "trainer.threads", "trackers", "plugins.disable", "extends",
]  # fmt: skip
CHANGES = st.lists(st.tuples(st.sampled_from(PLACES), TREES), max_size=3)
SHORT, LONG = 40, 1500


def changed(changes: list[tuple[str, Any]]) -> dict[str, Any]:
    """The good config with some places changed."""
    tree: dict[str, Any] = yaml.safe_load(yaml.safe_dump(GOOD))
    for place, value in changes:
        *path, last = place.split(".")
        inner = tree
        for key in path:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[last] = value
    if isinstance(tree.get("trainer"), dict) and isinstance(tree["trainer"].get("steps"), int):
        tree["trainer"]["steps"] = 1  # whatever it is, it must not take long
    return tree


def whole_folders(root: Path) -> None:
    """Every folder of a run below `root` has what a resumed run needs; nothing hidden stands beside it."""
    for folder in root.glob("*/*"):
        if folder.is_symlink():
            continue
        assert not folder.name.startswith("."), folder
        names = {path.name for path in folder.iterdir()}
        assert names >= {"config.yaml", "plan.txt", "environment.json"}, (folder, names)


def survive(words: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = main(words)
        except SystemExit as left:  # argparse leaves so
            code = int(left.code or 0)
    out, err = capsys.readouterr()
    assert code in ((0, 1, 2) if "compare" in words else (0, 2)), (code, words)  # 1: two runs differ
    assert "Traceback" not in out + err, words
    assert code == 0 or (out + err).strip(), words
    return code


def try_config(changes: list[tuple[str, Any]], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, root = folder / "fuzz.yaml", folder / "runs"
    path.write_text(yaml.safe_dump(changed(changes), allow_unicode=True), "utf-8")
    survive(["train", str(path), "--root", str(root), "--quiet"], capsys)
    whole_folders(root)


FLAGS = "--help --quiet --root --local --version -h -- --format --json --nothing -q".split()
ARGUMENTS = st.one_of(
    st.sampled_from(
        ["good.yaml", "bad.yaml", "nothing.yaml", "runs", "runs/x", ".", "", "mlp", "dropout", "list"]
    ),
    st.sampled_from(FLAGS),
    st.sampled_from(COMMANDS),
    st.tuples(st.sampled_from(PLACES), st.sampled_from(WORDS)).map("=".join),
    st.text(alphabet="ab=.:[]{}-_/\\'\"$0 é\n", max_size=8),
)
LINES = st.tuples(st.sampled_from([*COMMANDS, "tarin", ""]), st.lists(ARGUMENTS, max_size=4))


def try_line(line: tuple[str, list[str]], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [line[0], *line[1]]
    if words[0] == "zoo" and "train" in words:
        return  # recipes take as long as they take
    survive(words, capsys)
    whole_folders(folder / "runs")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a config that runs and one that does not."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(yaml.safe_dump(GOOD))
    Path("bad.yaml").write_text("model: [mlp\n")
    return tmp_path


def fuzzing(count: int) -> Callable[[Any], Any]:
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, database=None,
                    derandomize=True)  # fmt: skip


@pytest.mark.usefixtures("lean")
@fuzzing(SHORT)
@given(changes=CHANGES)
def test_no_config_leads_to_anything_else(
    changes: list[tuple[str, Any]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try_config(changes, place, capsys)


@pytest.mark.usefixtures("lean")
@fuzzing(SHORT)
@given(line=LINES)
def test_no_command_line_leads_to_anything_else(
    line: tuple[str, list[str]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try_line(line, place, capsys)


def test_the_good_config_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert survive(["train", "good.yaml", "--quiet"], capsys) == 0
    whole_folders(place / "runs")
    (run,) = place.glob("runs/good/2*")
    (run / "plan.txt").unlink()
    with pytest.raises(AssertionError):
        whole_folders(place / "runs")


@pytest.mark.prove
@pytest.mark.usefixtures("lean")
@fuzzing(LONG)
@given(changes=CHANGES)
def test_no_config_leads_to_anything_else_at_length(
    changes: list[tuple[str, Any]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try_config(changes, place, capsys)


@pytest.mark.prove
@pytest.mark.usefixtures("lean")
@fuzzing(LONG)
@given(line=LINES)
def test_no_command_line_leads_to_anything_else_at_length(
    line: tuple[str, list[str]], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try_line(line, place, capsys)


@pytest.mark.prove
def test_the_counts_are_shown(show: Callable[[str], None]) -> None:
    show(f"{LONG} configs and {LONG} command lines made by hypothesis: no traceback, no half-made folder")
    assert Registry.discover().plugins
