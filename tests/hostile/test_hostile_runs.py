"""Checkpoints and run folders from a stranger are data: refused with the reason, never run."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from hostile import CONFIG, Payload, Said
from pegboard import PegboardError
from pegboard.store import checkpoint


def put(run: Path, name: str, data: bytes, signed: bool = True) -> None:
    """Put a file into every checkpoint; a stranger signs it in the manifest as well."""
    for place in checkpoint.history(run / "checkpoints"):
        (place / name).write_bytes(data)
        if signed:
            manifest = json.loads((place / "manifest.json").read_text())
            manifest["sha256"][name] = hashlib.sha256(data).hexdigest()
            (place / "manifest.json").write_text(json.dumps(manifest))


def saved(value: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def swapped(entry: str, data: bytes, compress: int = zipfile.ZIP_STORED) -> bytes:
    """The archive that torch writes, with one of its files replaced."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved({"a": torch.zeros(3)}))) as old,
        zipfile.ZipFile(stream, "w") as new,
    ):
        for name in old.namelist():
            replaced = name.endswith(entry)
            kind = compress if replaced else zipfile.ZIP_STORED
            new.writestr(name, data if replaced else old.read(name), kind)
    return stream.getvalue()


STATES = {
    "a bare pickle": (pickle.dumps(Payload()), "not a zip file"),
    "the format of old": (saved(Payload(), _use_new_zipfile_serialization=False), "not a zip file"),
    "a pickle in an archive": (saved(Payload()), "nothing in it was executed"),
    "a pickle put into an archive": (swapped("data.pkl", pickle.dumps(Payload())), "cannot read"),
    "an archive that grows": (swapped("data/0", bytes(2**24), zipfile.ZIP_DEFLATED), "unpacks to more"),
    "a list": (saved([1, 2]), "cannot read"),
    "nothing": (b"", "not a zip file"),
    "an empty state": (saved({}), "holds other things"),
    "numbers as words": (saved({"progress": {"best_step": "../../x"}}), "holds other things"),
    "a state of another": (
        saved({"progress": {"best_step": 0, "best": None, "logged": 0, "step": 0, "epoch": "a"}}),
        "holds other things",
    ),
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", STATES)
def test_a_hostile_state_is_refused_by_resume(run: Path, said: Said, name: str) -> None:
    data, reason = STATES[name]
    put(run, "state.pt", data)
    assert reason in said("resume", run)


def tensors(header: Any, data: bytes = bytes(16)) -> bytes:
    """A safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(start: int, end: int, shape: list[int], kind: str = "F32") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


WEIGHTS = {
    "a pickle": pickle.dumps(Payload()),
    "an archive with a pickle": saved(Payload()),
    "a giant header": struct.pack("<Q", 2**63) + b"{}",
    "a header longer than the file": struct.pack("<Q", 2**20) + b"{}",
    "overlapping tensors": tensors({"a": entry(0, 16, [4]), "b": entry(8, 16, [2])}),
    "a negative offset": tensors({"a": entry(-16, 0, [4])}),
    "an offset beyond the end": tensors({"a": entry(0, 64, [16])}),
    "a shape that is not its bytes": tensors({"a": entry(0, 16, [2**40])}),
    "a shape that overflows": tensors({"a": entry(0, 16, [2**62, 2**62])}),
    "a type nobody knows": tensors({"a": entry(0, 16, [4], "OBJECT")}),
    "a header nested deep": tensors(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "a header that is no text": tensors(b"\xff" * 40),
    "a file cut off": tensors({"a": entry(0, 16, [4])})[:-8],
    "nothing": b"",
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_hostile_weights_are_refused_by_every_command_that_reads_them(
    run: Path, said: Said, name: str
) -> None:
    put(run, "model.safetensors", WEIGHTS[name])
    for command in ("eval", "predict", "resume"):
        assert "cannot read weights" in said(command, run)
    given = CONFIG | {"model": {"name": "mlp", "hidden": [4], "weights": str(run)}}
    with pytest.raises(PegboardError, match="cannot read weights"):
        pegboard.train(given, root="runs", quiet=True)
    with pytest.raises(PegboardError, match="cannot read weights"):
        pegboard.load(run)


def test_files_that_are_not_those_of_the_manifest_are_refused(run: Path, said: Said) -> None:
    data = (run / "checkpoints/last/model.safetensors").read_bytes()
    put(run, "model.safetensors", data[:-4] + bytes(4), signed=False)
    assert "its hash is not the one in the manifest" in said("eval", run)
    assert "no checkpoint of" in said("resume", run)


def test_a_config_cannot_ask_for_more_memory_than_its_weights_have(run: Path, said: Said) -> None:
    text = yaml.safe_load((run / "config.yaml").read_text())
    text["model"]["hidden"] = [2_000_000, 2_000_000]  # 16 TB
    (run / "config.yaml").write_text(yaml.safe_dump(text))
    assert "do not fit the model" in said("eval", run)


MANIFESTS: dict[str, Any] = {
    "a path out of the folder": {"sha256": {"../../../etc/passwd": "0" * 64}},
    "an absolute path": {"sha256": {"/etc/passwd": "0" * 64}},
    "hashes of the wrong type": {"sha256": {"model.safetensors": 5, "state.pt": None}},
    "a list of hashes": {"sha256": ["model.safetensors"]},
    "a step that is a word": {"step": "../../x"},
    "a negative step": {"step": -1},
    "an epoch that is a list": {"epoch": [1]},
    "figures that are a number": {"figures": 3},
    "plugins that are a text": {"plugins": "x"},
    "a spec that is a text": {"spec": "x"},
    "a spec of texts": {"spec": {"inputs": "abc", "target": None, "names": []}},
    "a spec that names what is no spec": {
        "spec": {"inputs": [{"type": "os.system"}], "target": None, "names": []}
    },
    "a spec with unknown fields": {
        "spec": {"inputs": [{"type": "Vector", "run": 1}], "target": None, "names": []}
    },
    "a spec of negative size": {
        "spec": {"inputs": [{"type": "Vector", "features": -9}], "target": None, "names": []}
    },
    "a spec of giant size": {
        "spec": {"inputs": [{"type": "Vector", "features": 10**30}], "target": None, "names": []}
    },
    "a format from the future": {"format": 99},
    "a format that is a list": {"format": [[1]]},
}
RAW = {
    "deep nesting": b'{"format":' * 200_000,
    "no text": b"\xff\xfe\x00{",
    "no object": b"[1]",
    "a number": b"1",
    "cut off": b'{"format": 1, "ste',
    "a giant number": b'{"format": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("name", [*MANIFESTS, *RAW])
def test_a_hostile_manifest_is_refused(run: Path, said: Said, name: str) -> None:
    for place in checkpoint.history(run / "checkpoints"):
        path = place / "manifest.json"
        whole = json.loads(path.read_text())
        path.write_bytes(RAW[name] if name in RAW else json.dumps(whole | MANIFESTS[name]).encode())
    text = said("eval", run)
    assert any(word in text for word in ("damaged", "does not say what the data holds", "has format"))
    with pytest.raises(PegboardError):
        pegboard.load(run)
    if "spec" not in name:  # a run that goes on asks its data for the spec
        assert "no checkpoint of" in said("resume", run)


def test_links_of_a_run_folder_are_read_at_most(run: Path, said: Said, here: Path) -> None:
    outside = here / "outside"
    outside.mkdir()
    (outside / "diary.txt").write_text("mine")
    for alias in ("last", "best"):
        (run / "checkpoints" / alias).unlink()
        (run / "checkpoints" / alias).symlink_to("/etc")
    assert pegboard.load(run)  # the checkpoints are found without the links
    assert "a link that leads out of the run folder" in said("resume", run)
    for name in ("metrics.part", ".summary.json.part", "checkpoints/step-00000099", "figures/curves.png"):
        fresh = Path(shutil.copytree(run, here / "copy", symlinks=True))
        for alias in ("last", "best"):
            (fresh / "checkpoints" / alias).unlink()
        (fresh / name).unlink(missing_ok=True)
        (fresh / name).symlink_to(outside if "step" in name else outside / "diary.txt")
        assert "a link that leads out of the run folder" in said("resume", fresh)
        shutil.rmtree(fresh)
    assert (outside / "diary.txt").read_text() == "mine"


def test_a_link_anywhere_in_a_run_folder_is_refused_where_its_file_would_go_on_a_page(
    run: Path, said: Said, here: Path
) -> None:
    secret = here / "secret"
    secret.write_text('{"token": "very secret"}')
    names = [
        "figures/holiday.png", "tables.json", "plan.txt", "environment.json", "wandb/x",
        "checkpoints/step-00000006/extra",
    ]  # fmt: skip
    for name in names:
        fresh = Path(shutil.copytree(run, here / "copy", symlinks=True))
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).unlink(missing_ok=True)
        (fresh / name).symlink_to(secret)
        for command in ("report", "resume"):
            text = said(command, fresh)
            assert f"{name} is a link that leads out of the run folder, to {secret}" in text
        assert not any("very secret" in p.read_text(errors="replace") for p in fresh.rglob("*.html"))
        shutil.rmtree(fresh)


def test_a_saved_config_extends_no_file_outside_of_its_folder(run: Path, said: Said, here: Path) -> None:
    (here / "credentials").write_text("very secret\n  : text : that is no YAML")
    (run / "inner.yaml").write_text("seed: 5\n")
    text = (run / "config.yaml").read_text()
    for outside in ("../credentials", str(here / "credentials")):
        (run / "config.yaml").write_text(f"extends: {outside}\n{text}")
        for words in (
            ["eval", run],
            ["predict", run],
            ["resume", run],
            ["report", run],
            ["compare", run, run],
        ):
            refused = said(*words)
            assert "out of the folder that the config came in" in refused and "secret" not in refused
        with pytest.raises(PegboardError, match="out of the folder"):
            pegboard.load(run)
    (run / "config.yaml").write_text(f"extends: inner.yaml\n{text}")
    assert pegboard.load(run)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("metrics.jsonl", b"[1]\n"),
        ("metrics.jsonl", b'{"steps": 1}\n'),
        ("metrics.jsonl", b'{"step": "x"}\n'),
        ("metrics.jsonl", b"\xff\xfe\n"),
        ("metrics.jsonl", b"[" * 100_000 + b"\n"),
        ("environment.json", b"[" * 100_000),
        ("environment.json", b"\xff"),
        ("plan.txt", None),
    ],
)
def test_other_files_of_a_run_folder_are_data_too(
    run: Path, said: Said, name: str, data: bytes | None
) -> None:
    (run / name).unlink()
    if data is not None:
        (run / name).write_bytes(data)
    assert name.split(".")[0] in said("resume", run)
