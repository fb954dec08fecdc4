"""What a run folder records of its making."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard.config.check import check
from pegboard.contract.results import Splits
from pegboard.contract.specs import Classes, DataSpec, Vector
from pegboard.data import Resident
from pegboard.run import provenance

Config = Callable[..., dict[str, Any]]


def test_every_value_has_its_origin(first: Path) -> None:
    origins = json.loads((first / "origins.json").read_text())
    config = yaml.safe_load((first / "config.yaml").read_text())
    assert {path.split(".")[0] for path in origins} == {k for k, v in config.items() if v != {}}
    assert origins["seed"] == "base.yaml:1:1"
    assert origins["optimizer.lr"] == "base.yaml:7:3"
    assert origins["model.name"] == "cfg.yaml:3:3"
    assert origins["model.width"] == origins["optimizer.schedule"] == origins["name"] == "default"


def test_origins_of_python_overrides_and_players(config: Config) -> None:
    node = config(
        optimizer={"name": "plain", "lr": 0.3, "players": {"second": {"momentum": 0.5}}},
        objective={"name": "guess", "players": 2},
    )
    origins = provenance.origins(check(node, ["model.width=5", "regularizers.patience={}"]))
    assert origins["optimizer.lr"] == origins["optimizer.players.second.lr"] == "python"
    assert origins["optimizer.players.second.momentum"] == "python"
    assert origins["optimizer.momentum"] == "default"
    assert origins["model.width"] == "command line, 'model.width=5'"
    assert origins["regularizers.patience.evaluations"] == "default"


def test_origins_do_not_tell_whose_home_a_file_lies_in(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / "somebody"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (home / "cfg.yaml").write_text(yaml.safe_dump(config(), sort_keys=False))
    (home / "runs" / "a").mkdir(parents=True)
    (home / "runs" / "a" / "manifest.json").write_text("{}")
    words = [f"model.weights={home}/runs/a"]
    origins = provenance.origins(check(home / "cfg.yaml", words))
    assert origins["seed"] == "~/cfg.yaml:1:1"
    assert origins["model.weights"] == "command line, 'model.weights=~/runs/a'"
    assert "somebody" not in "".join(origins.values())


def test_environment_says_versions_and_hardware_but_no_names_of_people_or_machines(
    first: Path, config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = json.loads((first / "environment.json").read_text())
    assert record["torch"] == torch.__version__ and record["threads"] == 1
    assert {"numpy", "safetensors", "pluggy"} <= record["packages"].keys()
    assert record["hardware"]["cpu"] and record["hardware"]["cores"] == os.cpu_count()
    assert record["data"]["samples"] == {"train": 64, "val": 16, "test": 16}
    home = tmp_path / "home" / "somebody"
    monkeypatch.setattr(sys, "argv", [f"{home}/bin/pegboard", "train", f"{home}/cfg.yaml"])
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SECRET", "do-not-tell")
    monkeypatch.setattr("platform.node", lambda: "my-own-machine")
    plan = pegboard.plan(config())
    text = json.dumps(provenance.environment(plan, "cpu"))
    assert json.loads(text)["command"] == ["pegboard", "train", "~/cfg.yaml"]
    for private in ("somebody", "do-not-tell", "my-own-machine"):
        assert private not in text


def test_environment_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    about = SimpleNamespace(name="A GPU", total_memory=8 << 30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = provenance.hardware("cuda:1")
    assert (found["gpu"], found["gpus"], found["capability"]) == ("A GPU", 2, "9.0")


def samples(seed: int = 0, dtype: torch.dtype = torch.float32) -> Resident:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(seed))
    return Resident([x.to(dtype)], torch.arange(50) % 2)


def test_a_split_of_one_sample_out_of_every_second_has_a_fingerprint() -> None:
    one = Resident([torch.arange(2.0)[::2]])  # one element, with a stride of two
    assert provenance.fingerprint({"test": one}) == provenance.fingerprint(
        {"test": Resident([torch.zeros(1)])}
    )


def test_data_without_a_fingerprint_is_given_one() -> None:
    spec = DataSpec((Vector(4),), Classes(2))
    one, two, three = (
        provenance.data_record(Splits(spec=spec, train=samples(s), val=samples(9)))["fingerprint"]
        for s in (0, 0, 1)
    )
    assert one == two != three and len(one) == 64
    given = Splits(spec=spec, train=samples(), notes={"fingerprint": "own", "sizes": {"a": 1}})
    assert provenance.data_record(given) == {"fingerprint": "own", "samples": {"train": 50}}


def test_fingerprint_tells_every_tensor_apart() -> None:
    plain = samples()
    swapped = Resident([plain.inputs[0].flip(0)], plain.target)
    weighed = Resident(plain.inputs, plain.target, torch.ones(50))
    reshaped = Resident([plain.inputs[0].reshape(50, 2, 2)], plain.target)
    strided = Resident([plain.inputs[0].T.contiguous().T], plain.target)
    made = [provenance.fingerprint({"train": s}) for s in (plain, swapped, weighed, reshaped)]
    half = provenance.fingerprint({"train": samples(dtype=torch.bfloat16)})
    assert len({*made, half, provenance.fingerprint({"val": plain})}) == 6
    assert provenance.fingerprint({"train": strided}) == made[0]


def test_fingerprint_of_large_data_reads_its_beginning_and_its_end() -> None:
    x = torch.zeros(1 << 20)  # 4 MiB
    plain = provenance.fingerprint({"train": Resident([x])}, whole=2)
    for place in (0, len(x) - 1):
        x[place] = 1
        assert provenance.fingerprint({"train": Resident([x])}, whole=2) != plain
        x[place] = 0
    assert provenance.fingerprint({"train": Resident([x])}, whole=2) == plain


# Git.
def git(*words: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "trunk")
    Path("a.txt").write_text("one\n")
    Path("b.txt").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path


def test_git_state_has_commit_branch_and_the_diff_with_what_is_staged(repository: Path) -> None:
    state, diff = provenance.git_state()
    assert len(state["commit"]) == 40 and state["branch"] == "trunk"
    assert state["changed"] == [] and diff == ""
    Path("a.txt").write_text("two\n")
    Path("b.txt").write_bytes(b"\xff three\n")
    git("add", "b.txt")
    Path("c.txt").write_text("new\n")
    state, diff = provenance.git_state()
    assert state["changed"] == [" M a.txt", "M  b.txt", "?? c.txt"]
    assert "+two" in diff and "three" in diff and "-one" in diff


def test_run_folder_keeps_the_diff_only_where_there_is_one(
    repository: Path, train: Callable[..., Path]
) -> None:
    assert not (train("trainer.epochs=1") / "git.diff").exists()
    Path("a.txt").write_text("two\n")
    run = train("trainer.epochs=1")
    assert "+two" in (run / "git.diff").read_text()
    git_record = json.loads((run / "environment.json").read_text())["git"]
    assert git_record["branch"] == "trunk" and " M a.txt" in git_record["changed"]


def test_long_diff_is_cut_with_a_note(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.txt").write_text("line\n" * 400_000)
    for i in range(5):
        Path(f"new-{i}").write_text("")
    monkeypatch.setattr(provenance, "GIT_FILES", 3)
    state, diff = provenance.git_state()
    assert len(diff) < provenance.GIT_BYTES + 200
    assert diff.endswith("the rest is left out: the diff is longer than 1048576 bytes\n")
    assert len(state["changed"]) == 4 and state["changed"][-1] == "and 3 more"


def test_folder_without_a_repository_has_no_git_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git_state() == ({}, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git_state() == ({}, "")


def test_git_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\n/bin/sleep 60 &\n/bin/sleep 60\n: > {tmp_path}/ended\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(provenance, "GIT_SECONDS", 0.3)
    assert provenance.git_state() == ({}, "")
    assert not (tmp_path / "ended").exists()
