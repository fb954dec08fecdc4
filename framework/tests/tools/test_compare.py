"""How `pegboard compare` finds what differs between two runs, and what it says of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pegboard.cli import main
from pegboard.tools.compare import compare, histories, same

TOY = Path(__file__).parents[1].joinpath("toy.py")
Capture = pytest.CaptureFixture[str]
Train = Callable[..., Path]


@pytest.fixture
def again(first: Path, tmp_path: Path) -> Path:
    """A copy of the first run, to plant a difference in."""
    return Path(shutil.copytree(first, tmp_path / "runs" / "cfg" / "again", symlinks=True))


def told(a: Path, b: Path, capsys: Capture) -> tuple[int, str, dict[str, Any]]:
    """Exit code, screen and JSON of a comparison."""
    capsys.readouterr()
    code = main(["compare", str(a), str(b)])
    screen = capsys.readouterr().out
    assert main(["compare", str(a), str(b), "--json"]) == code
    assert all(line == line.rstrip() for line in screen.splitlines())
    return code, screen, json.loads(capsys.readouterr().out)


def edit(path: Path, change: Callable[[Any], None]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def rewrite(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))


# Planted differences: each is named as the cause, with the first step that differs.
def test_two_equal_runs_are_equal(first: Path, train: Train, capsys: Capture) -> None:
    code, screen, found = told(first, train(), capsys)
    assert code == 0 and found["equal"] and found["different"] == []
    count = len(rows(first))
    assert count == 13 and f"the histories are equal for {count} rows" in screen
    assert "equal: config, plugins, data, history, weights and figures" in screen
    assert found["history"] == {"rows_a": count, "rows_b": count, "equal_rows": count}
    assert not any(found[name] for name in ("config", "plugins", "data", "environment", "weights", "notes"))


def test_a_field_that_has_left_the_core_is_a_difference_where_it_was_in_use(
    first: Path, again: Path, capsys: Capture
) -> None:
    config = yaml.safe_load((again / "config.yaml").read_text())
    config["trainer"] |= {"clip": None, "clip_by": "norm"}  # as releases before wrote it
    (again / "config.yaml").write_text(yaml.safe_dump(config))
    assert told(first, again, capsys)[0] == 0
    config["trainer"]["clip"] = 0.5
    (again / "config.yaml").write_text(yaml.safe_dump(config))
    assert [d["path"] for d in told(first, again, capsys)[2]["config"]] == ["trainer.clip"]


def test_seed_is_named(first: Path, train: Train, capsys: Capture) -> None:
    code, screen, found = told(first, train("seed=4"), capsys)
    assert code == 1
    [seed] = found["config"]
    assert (seed["path"], seed["a"], seed["b"]) == ("seed", 3, 4)
    assert seed["origin_a"] == "base.yaml:1:1" and seed["origin_b"] == "command line, 'seed=4'"
    assert found["different"] == ["config", "history", "weights", "figures"]
    assert found["history"]["step"] == 1 and found["history"]["differences"][0]["path"] == "train/loss"
    assert "likely cause: config (seed)" in screen and "the first difference is at step 1" in screen


def test_learning_rate_of_the_command_line_is_named(first: Path, train: Train, capsys: Capture) -> None:
    code, screen, found = told(first, train("optimizer.lr=0.2"), capsys)
    assert code == 1
    [lr] = found["config"]
    assert lr == {
        "path": "optimizer.lr", "a": 0.1, "b": 0.2,
        "origin_a": "base.yaml:7:3", "origin_b": "command line, 'optimizer.lr=0.2'",
    }  # fmt: skip
    assert "0.2  (command line, 'optimizer.lr=0.2')" in screen
    # The first loss is measured before the first update, so only the rate itself differs there.
    history = found["history"]
    assert history["step"] == 1 and [d["path"] for d in history["differences"]] == ["lr"]
    assert (history["later"]["step"], history["later"]["path"]) == (2, "train/loss")
    assert "the first loss that differs is of step 2" in screen
    assert "likely cause: config (optimizer.lr)" in screen


def test_batch_size_of_an_extended_file_is_named(first: Path, train: Train, capsys: Capture) -> None:
    base = Path("base.yaml")
    base.write_text("# smaller\n" + base.read_text().replace("batch_size: 16", "batch_size: 8"))
    code, screen, found = told(first, train(), capsys)
    assert code == 1
    [size] = found["config"]
    assert (size["path"], size["a"], size["b"]) == ("data.batch_size", 16, 8)
    assert size["origin_a"] == "base.yaml:4:3" and size["origin_b"] == "base.yaml:5:3"
    assert found["history"]["equal_rows"] == 0 and found["history"]["step"] == 1
    assert "likely cause: config (data.batch_size)" in screen


def test_version_of_a_plugin_is_named(first: Path, again: Path, capsys: Capture) -> None:
    for run, version in ((first, "0.1.0"), (again, "0.2.0")):
        edit(run / "environment.json", lambda e, v=version: e["plugins"].update({"pegboard-made-up": v}))
    try:
        code, screen, found = told(first, again, capsys)
    finally:
        edit(first / "environment.json", lambda e: e["plugins"].pop("pegboard-made-up"))
    assert code == 1 and found["different"] == ["plugins"]
    assert found["plugins"] == [{"path": "pegboard-made-up", "a": "0.1.0", "b": "0.2.0"}]
    assert "pegboard-made-up  A 0.1.0  B 0.2.0" in screen


def test_changed_local_plugin_is_named(first: Path, again: Path, capsys: Capture) -> None:
    assert json.loads((first / "environment.json").read_text())["local"] == {
        str(TOY): hashlib.sha256(TOY.read_bytes()).hexdigest()
    }
    edit(again / "environment.json", lambda e: e["local"].update({str(TOY): "0" * 64}))
    code, _, found = told(first, again, capsys)
    assert code == 1 and [d["path"] for d in found["plugins"]] == [str(TOY)]


def test_plugin_that_changed_before_a_resume_is_named(first: Path, again: Path, capsys: Capture) -> None:
    manifest = again / "checkpoints" / "last" / "manifest.json"
    edit(manifest, lambda m: m["plugins"].update({"pegboard-late": "2"}))
    edit(again / "environment.json", lambda e: e["plugins"].update({"pegboard-late": "1"}))
    code, _, found = told(first, again, capsys)
    assert code == 1 and found["plugins"] == [{"path": "pegboard-late", "b": "1, then 2"}]


def test_part_of_another_plugin_is_named(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "environment.json", lambda e: e["parts"].update({"model": "pegboard-other:net"}))
    code, _, found = told(first, again, capsys)
    assert code == 1 and [d["path"] for d in found["plugins"]] == ["model"]


def test_other_data_is_named(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "environment.json", lambda e: e["data"].update(fingerprint="other", remark="new"))
    lines = rows(again)
    lines[4]["train/loss"] += 1e-7
    rewrite(again, lines)
    code, screen, found = told(first, again, capsys)
    assert code == 1 and found["different"] == ["data", "history"]
    assert found["data"] == [{"path": "fingerprint", "a": "none", "b": "other"}]
    assert "likely cause: data (fingerprint)" in screen


def test_what_a_data_set_notes_besides_its_fingerprint_does_not_decide(
    first: Path, again: Path, capsys: Capture
) -> None:
    edit(again / "environment.json", lambda e: e["data"]["samples"].update(train=65))
    code, _, found = told(first, again, capsys)
    assert code == 0 and found["data"] == [{"path": "samples.train", "a": 64, "b": 65}]
    for run in (first, again):
        edit(run / "environment.json", lambda e: e["data"].pop("fingerprint"))
    try:
        assert told(first, again, capsys)[2]["different"] == ["data"]
    finally:
        edit(first / "environment.json", lambda e: e["data"].update(fingerprint="none"))


def test_changed_figure_is_found_at_its_step(first: Path, again: Path, capsys: Capture) -> None:
    lines = rows(again)
    changed = next(i for i, row in enumerate(lines) if row["step"] == 7)
    before = lines[changed]["train/loss"]
    for row in lines[changed:]:
        if "train/loss" in row:
            row["train/loss"] += 0.25
    rewrite(again, lines)
    code, screen, found = told(first, again, capsys)
    assert code == 1 and found["different"] == ["history"]
    assert found["history"]["equal_rows"] == changed and found["history"]["step"] == 7
    [difference] = found["history"]["differences"]
    assert difference == {"path": "train/loss", "a": before, "b": before + 0.25}
    assert "the first difference is at step 7" in screen and "differs by 0.25" in screen
    assert "likely cause: none is recorded" in screen


def test_missing_row_is_found_and_the_first_figure_after_it(
    first: Path, again: Path, capsys: Capture
) -> None:
    lines = [row for row in rows(again) if row["step"] != 5]
    rewrite(again, lines)
    code, screen, found = told(first, again, capsys)
    assert code == 1
    assert (found["history"]["step"], found["history"]["lacks"]) == (5, "b")
    assert found["history"]["equal_rows"] == 4 and "later" not in found["history"]
    assert "then B has no row for step 5, which A has" in screen
    lines[-1]["test/loss"] = 9.0
    rewrite(again, lines)
    _, screen, found = told(again, first, capsys)
    assert found["history"]["lacks"] == "a" and found["history"]["later"]["step"] == 12
    assert "the first loss that differs is of step 12" in screen


def test_other_weights_are_named(first: Path, again: Path, capsys: Capture) -> None:
    weights = again / "checkpoints" / "last" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    code, screen, found = told(first, again, capsys)
    assert code == 1 and found["different"] == ["weights"]
    assert "last" in [d["path"] for d in found["weights"]] or "best" in [d["path"] for d in found["weights"]]
    assert hashlib.sha256(data).hexdigest()[:12] in screen and "not the hash in its manifest" in screen


def test_the_same_weights_of_another_step_are_named(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "checkpoints" / "last" / "manifest.json", lambda m: m.update(step=99))
    code, screen, found = told(first, again, capsys)
    assert code == 1 and found["different"] == ["weights"] and "step 99" in screen


def test_remarks_in_the_header_of_weights_do_not_count(first: Path, again: Path, capsys: Capture) -> None:
    for weights in again.glob("checkpoints/step-*/model.safetensors"):
        data = weights.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        text = json.dumps({"__metadata__": {"b": "1", "a": "2"}, **header}).encode()
        weights.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    code, _, found = told(first, again, capsys)
    assert code == 0 and found["weights"] == []


def test_git_commit_is_named_but_does_not_decide(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "environment.json", lambda e: e.update(git={"commit": "f" * 40, "branch": "x"}))
    (again / "git.diff").write_text("-a\n+b\n")
    code, screen, found = told(first, again, capsys)
    assert code == 0 and found["different"] == []
    assert [d["path"] for d in found["environment"]] == ["git commit", "git diff"]
    assert "f" * 40 in screen and "2 lines in git.diff" in screen
    assert "what differs in environment had no effect" in screen


def test_threads_are_named_as_the_cause_of_other_losses(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "environment.json", lambda e: e.update(threads=64))
    code, _, found = told(first, again, capsys)
    assert code == 0
    assert found["environment"] == [{"path": "threads", "a": 1, "b": 64}]
    lines = rows(again)
    lines[2]["train/loss"] *= 1 + 1e-7
    rewrite(again, lines)
    code, screen, found = told(first, again, capsys)
    assert code == 1 and found["history"]["step"] == 3
    assert "likely cause: environment (threads)" in screen


def test_the_name_of_a_run_does_not_decide(first: Path, train: Train, capsys: Capture) -> None:
    code, screen, found = told(first, train("name=other"), capsys)
    assert code == 0 and [d["path"] for d in found["config"]] == ["name"]
    assert "equal: config, but for the name, plugins" in screen


def test_values_of_a_node_that_is_empty_in_the_other_run_are_named_alone(
    again: Path, tmp_path: Path, capsys: Capture
) -> None:
    other = Path(shutil.copytree(again, tmp_path / "other", symlinks=True))
    for run, value in ((again, {}), (other, {"x": 1})):
        node = yaml.safe_load((run / "config.yaml").read_text())
        (run / "config.yaml").write_text(yaml.safe_dump(node | {"model": {"name": "net", "more": value}}))
    assert told(again, other, capsys)[2]["config"] == [{"path": "model.more.x", "b": 1}]


def test_what_follows_from_a_value_comes_after_it(first: Path, train: Train, capsys: Capture) -> None:
    code, screen, found = told(first, train("regularizers.everything.name=everything"), capsys)
    paths = [d["path"] for d in found["config"]]
    assert code == 1 and paths == ["regularizers.everything", "model.infer_pegs"]
    assert "a" not in found["config"][0] and "A not there" in screen
    assert "likely cause: config (regularizers.everything)" in screen


@pytest.mark.sweep
def test_weights_a_run_starts_from_are_recorded(first: Path, train: Train, capsys: Capture) -> None:
    one, two = (train("trainer.epochs=1", f"model.weights={first}") for _ in range(2))
    used = first / "checkpoints" / "best" / "model.safetensors"
    record = json.loads((one / "environment.json").read_text())
    assert record["start"] == hashlib.sha256(used.read_bytes()).hexdigest()
    edit(two / "environment.json", lambda e: e.update(start="0" * 64))
    code, _, found = told(one, two, capsys)
    assert code == 1 and [d["path"] for d in found["data"]] == ["weights it starts from"]


# Runs that are not whole.
def test_unfinished_run_is_compared_as_far_as_it_goes(first: Path, again: Path, capsys: Capture) -> None:
    rewrite(again, rows(again)[:6])
    (again / "summary.json").unlink()
    with (again / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "train/lo')
    code, screen, found = told(first, again, capsys)
    assert code == 1 and found["b"]["status"] == "unfinished"
    assert found["history"]["step"] == 7 and found["history"]["lacks"] == "b"
    assert "equal for 6 rows; then B ends, and A has 7 more, the first of step 7" in screen
    assert f"is unfinished; go on with: pegboard resume {again}" in screen


@pytest.mark.parametrize("name", ["origins.json", "environment.json", "metrics.jsonl", "checkpoints"])
def test_run_of_an_older_version_says_what_it_lacks(
    first: Path, again: Path, capsys: Capture, name: str
) -> None:
    path = again / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    code, screen, found = told(first, again, capsys)
    if name == "metrics.jsonl":
        assert code == 1 and "then B ends" in screen
        return
    assert code == 0 and any(str(again) in note for note in found["notes"])
    assert "as far as both record it" in screen


def test_older_form_of_a_record_is_no_difference(first: Path, again: Path, capsys: Capture) -> None:
    def older(record: dict[str, Any]) -> None:
        record["hardware"] = "x86_64"
        record["git"] = {}
        del record["data"]["samples"], record["local"], record["threads"]

    edit(again / "environment.json", older)
    assert told(first, again, capsys)[0] == 0


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, "\x00", '"'])
@pytest.mark.parametrize("name", ["environment.json", "origins.json", "summary.json", "metrics.jsonl"])
def test_damaged_file_is_named(first: Path, again: Path, capsys: Capture, name: str, text: str) -> None:
    (again / name).write_text(text)
    code, screen, _ = told(first, again, capsys)
    assert code in (0, 1) and "Traceback" not in screen
    assert name == "metrics.jsonl" or f"{again / name} is damaged" in screen


def test_what_a_stranger_wrote_cannot_talk_to_the_terminal(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "environment.json", lambda e: e.update(platform="\x1b]0;title\x07\nequal"))
    _, screen, _ = told(first, again, capsys)
    assert "\x1b" not in screen and "\\x1b]0;title\\x07\\nequal" in screen


def test_many_differences_fit_on_a_screen(first: Path, again: Path, capsys: Capture) -> None:
    edit(again / "environment.json", lambda e: e["packages"].update({f"p{i}": "1" for i in range(40)}))
    _, screen, found = told(first, again, capsys)
    assert len(found["environment"]) == 40 and "and 32 more; --json lists them all" in screen
    assert len(screen.splitlines()) < 40


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("runs/cfg/agian", "no run at runs/cfg/agian; did you mean runs/cfg/again?"),
        ("runs/cfg", "is not a run folder: it has no config.yaml; did you mean runs/cfg/latest?"),
        ("runs/cfg/again/checkpoints/last", "did you mean runs/cfg/again?"),
        ("nowhere/at/all", "no run at nowhere/at/all\n"),
    ],
)
def test_folder_that_is_no_run_is_a_mistake(
    again: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, wrong: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/cfg/latest").symlink_to("again")
    assert main(["compare", "runs/cfg/again", wrong]) == 2
    assert message in capsys.readouterr().err


def test_comparing_needs_no_torch(first: Path, again: Path) -> None:
    code = (
        "import sys\nfrom pegboard.cli import main\n"
        f"assert main(['compare', {str(first)!r}, {str(again)!r}]) == 0\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_values_are_compared_to_the_last_bit() -> None:
    nan = float("nan")
    assert same(nan, nan) and same([nan, {"x": nan}], [nan, {"x": nan}]) and same(1, 1.0)
    assert not same(0.1 + 0.2, 0.3) and not same(nan, 1.0) and not same(1.0, nan)
    assert not same(True, 1) and not same(None, False) and not same([1], [1, 2]) and not same({"a": 1}, {})


def test_rows_of_one_step_are_told_apart() -> None:
    a = [{"step": 1, "train/loss": 1.0}, {"step": 1, "test/loss": 2.0}]
    assert histories(a, a).step is None and histories(a, a).equal == 2
    apart = histories(a, [a[0], {"step": 1, "test/loss": float("nan")}])
    assert (apart.equal, apart.step, apart.differences[0].path) == (1, 1, "test/loss")
    assert histories([], []).equal == 0 and histories([], a).ended


def test_losses_come_first_among_the_figures_of_a_row() -> None:
    a = [{"step": 1, "lr": 0.1, "train/loss": 1.0}, {"step": 2, "lr": 0.1, "train/loss": 1.0}]
    b = [{"step": 1, "lr": 0.2, "train/loss": 2.0}, {"step": 2, "lr": 0.2, "train/loss": 2.0}]
    apart = histories(a, b)
    assert [d.path for d in apart.differences] == ["train/loss", "lr"] and apart.later is None


def test_comparison_is_a_function_too(first: Path, again: Path) -> None:
    found = compare(first, again)
    assert found.equal and found.history.equal == 13
