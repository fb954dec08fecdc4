"""A config, checkpoint, recipe or data file from a stranger is data: refused with the reason, never run."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import textwrap
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pegboard
import pytest
import torch
import yaml
from pegboard import PegboardError
from pegboard.cli import main
from pegboard.config.check import check
from pegboard.engine import checkpoint

CONFIG = {
    "name": "hostile",
    "data": {"name": "iris", "batch_size": 50},
    "model": {"name": "mlp", "hidden": [4]},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "trainer": {"epochs": 2, "device": "cpu"},
}
Said = Callable[..., str]


class Payload:
    """What pickle runs when it is read."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch EXECUTED",)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return pegboard.train(CONFIG, root=tmp_path_factory.mktemp("trained"), quiet=True).folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, in which no payload may leave its mark."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.rglob("EXECUTED"))


@pytest.fixture
def run(trained: Path, here: Path) -> Path:
    """A stranger's run folder."""
    return Path(shutil.copytree(trained, here / "stranger", symlinks=True))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command that must be refused; gives what it said."""

    def ask(*words: str | Path) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        text = capsys.readouterr().err
        assert text.strip() and "Traceback" not in text
        return text

    return ask


def put(run: Path, name: str, data: bytes, signed: bool = True) -> None:
    """Put a file into every checkpoint; a stranger signs it in the manifest as well."""
    for place in checkpoint.history(run / "checkpoints"):
        (place / name).write_bytes(data)
        if signed:
            manifest = json.loads((place / "manifest.json").read_text())
            manifest["sha256"][name] = hashlib.sha256(data).hexdigest()
            (place / "manifest.json").write_text(json.dumps(manifest))


# Checkpoints.
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


# Configs.
EVIL = "import os\nos.system('touch EXECUTED')\n"


@pytest.mark.parametrize("place", ["beside", "absolute", "nested"])
def test_a_saved_config_never_runs_the_files_it_names(run: Path, said: Said, place: str) -> None:
    (run / "evil.py").write_text(EVIL)
    config = yaml.safe_load((run / "config.yaml").read_text())
    named = {"beside": "evil.py", "absolute": str(run / "evil.py"), "nested": "checkpoints/../evil.py"}
    config["plugins"] = {"local": [named[place]]}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    for command in ("eval", "predict", "resume"):
        assert "if you trust it, name it: --local" in said(command, run)
    with pytest.raises(PegboardError, match="runs no files by itself"):
        pegboard.load(run)
    given = CONFIG | {"regularizers": {"distillation": {"teacher": str(run)}}}
    with pytest.raises(PegboardError, match="runs no files by itself"):
        pegboard.train(given, root="runs", quiet=True)
    weights = CONFIG | {"model": {"name": "mlp", "hidden": [4], "weights": str(run)}}
    pegboard.train(weights, root="runs", quiet=True)  # which takes tensors and nothing else


@pytest.mark.parametrize("plugins", ["evil.py", 5, {"local": "evil.py"}, {"local": {"a": "evil.py"}}, [1]])
def test_local_plugins_written_in_another_way_are_not_run_either(run: Path, said: Said, plugins: Any) -> None:
    (run / "evil.py").write_text(EVIL)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"plugins": plugins}))
    for command in ("eval", "resume"):
        assert "plugins.local" in said(command, run)


GOOD = """
    from dataclasses import dataclass
    from pegboard import Model, hookimpl

    @dataclass(frozen=True)
    class Own:
        '''A model of one's own.'''

    def build(config, context):
        from torch import nn
        return nn.Linear(context.spec.inputs[0].size, context.outputs)

    @hookimpl
    def pegboard_models():
        return [Model("own", Own, build)]
"""


def test_a_local_plugin_that_the_user_names_is_run(here: Path, said: Said) -> None:
    for name in ("own_first.py", "own_second.py"):
        (here / name).write_text(textwrap.dedent(GOOD))
    given = CONFIG | {"model": {"name": "own"}, "plugins": {"local": ["own_first.py"]}}
    run = pegboard.train(given, root="runs", quiet=True).folder
    assert pegboard.load(run)  # it was named in this process
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("own_first", "own_second"))
    with pytest.raises(PegboardError, match=r"own_second\.py"):
        pegboard.load(run)
    assert "no file" in said("eval", run, "--local", "absent.py")
    assert main(["eval", str(run), "--local", "own_second.py"]) == 0
    assert pegboard.load(run, local=["own_second.py"])
    assert pegboard.resume(run, quiet=True, local=["own_first.py"]).status == "finished"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("seed: !!python/object/apply:os.system ['touch EXECUTED']", "YAML tag"),
        ("seed: !!python/name:os.system", "YAML tag"),
        ("seed: !evil 1", "YAML tag"),
        ("? !!python/object/apply:os.system ['touch EXECUTED']\n: 1", "as a key"),
        ("seed: 1\nseed: 2", "stands twice"),
        ("seed: &a [*a]", "contains it"),
        ("a: &a {b: 1}\nseed: {<<: 5}", "no mapping after '<<'"),
        ("\n".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9 if i else '1'}]" for i in range(12)), "values once"),
        ("seed: " + "[" * 5000, "nested deeper"),
        ("seed: " + "9" * 10_000, "expected"),
        ("seed: 1e999", "expected"),
        ("seed: \0", "character"),
        ("model: {_target_: os.system, command: touch EXECUTED}", "does not say which model"),
        ("model: {name: os.system}", "unknown model 'os.system'"),
        ("model: {name: 'subprocess:run'}", "subprocess"),
        ("optimizer: {name: 'torch.optim:SGD'}", "offers no optimizer"),
        ("name: ../../etc/cron.d/x", "a folder name"),
        ("name: /etc/x", "a folder name"),
        ("name: ..", "a folder name"),
        ("name: 'a\0b'", "a"),
        ("extends: [/etc/shadow-of-nothing]", "no file"),
        ("extends: /dev/zero", "no file"),
        ("extends: cfg.yaml", "leads back to itself"),
        ("seed: ${oc.env:HOME}", "a resolver"),
        ("name: a${oc.env:SECRET,x}", "a resolver"),
        ("name: ${oc.${a}:SECRET}\na: env", "inside an interpolation"),
        ("name: '\\\\${oc.env:SECRET}'", "a resolver"),
        ("seed: ${oc.decode:'1'}", "a resolver"),
    ],
)
def test_a_hostile_config_is_refused(
    said: Said, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setenv("SECRET", "open-sesame")
    taken = {line.split(":")[0] for line in text.splitlines()}
    rest = {k: v for k, v in CONFIG.items() if k not in taken}
    Path("cfg.yaml").write_bytes((yaml.safe_dump(rest) + text + "\n").encode())
    for command in ("check", "train"):
        told = said(command, "cfg.yaml")
        assert reason in told and "sesame" not in told and len(told) < 20_000
    assert not Path("runs").exists()


def test_a_config_that_is_no_text_is_refused(said: Said) -> None:
    Path("cfg.yaml").write_bytes(yaml.safe_dump(CONFIG).encode() + b"seed: \xff\n")
    assert "not a UTF-8 text" in said("check", "cfg.yaml")
    Path("cfg.yaml").write_bytes(yaml.safe_dump(CONFIG).encode("utf-16"))
    assert "not a UTF-8 text" in said("check", "cfg.yaml")
    Path("cfg.yaml").write_bytes(yaml.safe_dump(CONFIG).encode() + b"#" * 2**20)
    assert "larger than 1 MiB" in said("check", "cfg.yaml")
    Path("cfg.yaml").write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(CONFIG).encode())
    assert main(["check", "cfg.yaml"]) == 0  # a mark that editors write is no mistake


@pytest.mark.parametrize(
    "grow",
    [
        lambda i: f"${{a{i - 1}}}${{a{i - 1}}}",
        lambda i: [f"${{a{i - 1}}}"] * 2,
        lambda i: {"x": f"${{a{i - 1}}}", "y": f"${{.z}}{'x' * i}", "z": f"${{a{i - 1}}}"},
    ],
)
def test_interpolations_cannot_grow_without_end(grow: Callable[[int], Any]) -> None:
    config = {**CONFIG, "a0": "xxxxxxxx", **{f"a{i}": grow(i) for i in range(1, 60)}}
    with pytest.raises(PegboardError, match="grows to more than"):
        check(config)


def test_a_run_folder_leaks_nothing_of_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "open-sesame")
    run = pegboard.train(CONFIG, "name=plain", root="runs", quiet=True).folder
    assert not [p for p in run.rglob("*") if p.is_file() and b"sesame" in p.read_bytes()]


# Recipes.
@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "digits/../digits/mlp", "..", "", "a:b:c", "\0"])
def test_a_recipe_is_a_name_and_no_path(said: Said, name: str) -> None:
    assert "no recipe" in said("zoo", "show", name)
    assert "no recipe" in said("eval", f"zoo:{name}")


@pytest.mark.parametrize("data", [b"[" * 100_000, b"\xff", b"5", b'{"spec": 5}', b"{}"])
def test_the_result_of_a_recipe_is_data(
    run: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    from pegboard import zoo

    shutil.copyfile(run / "checkpoints/last/model.safetensors", here / "model.safetensors")
    (here / "recipe.yaml").write_text(yaml.safe_dump(CONFIG))
    (here / "result.json").write_bytes(data)
    monkeypatch.setattr(zoo, "recipes", lambda registry=None: [zoo.Recipe("a/b", here, "somebody")])
    with pytest.raises(PegboardError):
        pegboard.load("zoo:a/b")
    assert main(["zoo", "list"]) == (0 if data == b"{}" else 2)


# Tables for predict.
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("deep.json", b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        ("deep.jsonl", b'{"a":' * 100_000, "nested too deep"),
        ("wide.csv", b"a,b\n" + b"x" * (csv.field_size_limit() + 1) + b",1\n", "field larger"),
        ("bytes.csv", b"a,b\n\xff,1\n", "cannot read"),
        ("zero.csv", b"a,b\n\0,1\n", ""),
        ("ragged.csv", b"a,b\n1,2,3\n", "more cells"),
        ("packed.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "cannot read"),
        ("text.json", b'"text"', "holds no rows"),
        ("odd.json", b'{"a": 5}', "lists of the same length"),
        ("odd2.json", b'{"a": [1, 2], "b": [1]}', "lists of the same length"),
        ("pickle.pkl", pickle.dumps(Payload()), "not a table"),
        ("pickle.csv", pickle.dumps(Payload()), "cannot read"),
        ("pickle.json", pickle.dumps(Payload()), "cannot read"),
        ("array.npy", b"\x93NUMPY", "not a table"),
    ],
)
def test_a_hostile_table_is_refused_by_predict(
    run: Path, said: Said, name: str, data: bytes, reason: str
) -> None:
    Path(name).write_bytes(data)
    assert reason in said("predict", run, "--input", name)


@pytest.mark.parametrize("cell", ["[" * 100_000, 10**400, "1" * 5000, {"a": 1}, [[1]] * 3, None, True, "nan"])
def test_a_hostile_cell_is_refused_by_predict(run: Path, said: Said, cell: Any) -> None:
    names = ["sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"]
    Path("rows.json").write_text(json.dumps([dict.fromkeys(names, cell)]))
    if cell is not True:
        said("predict", run, "--input", "rows.json")


# Data files.
def hub(path: str, **more: Any) -> dict[str, Any]:
    data = {"name": "hub", "path": path, "inputs": ["a"], "target": "b", **more}
    return CONFIG | {"data": data}


@pytest.fixture(autouse=True)
def cache(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", here / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def parquet() -> bytes:
    import pyarrow
    from pyarrow import parquet as files

    stream = io.BytesIO()
    table = pyarrow.table({"a": [pickle.dumps(Payload())] * 20, "b": [0, 1] * 10})
    files.write_table(table, stream)
    return stream.getvalue()


ROWS = b"a,b\n" + b"1,0\n2,1\n" * 20


def zipped(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../rows.csv", data)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("rows.csv", lambda: gzip.compress(ROWS, mtime=0), "is a gzip file"),
        ("rows.csv", lambda: zipped(ROWS), "is a zip file"),
        ("rows.csv.gz", lambda: gzip.compress(ROWS, mtime=0), "no reader"),
        ("rows.zip", lambda: zipped(ROWS), "no reader"),
        ("rows.pkl", lambda: pickle.dumps(Payload()), "no reader"),
        ("rows.npy", lambda: b"\x93NUMPY", "no reader"),
        ("rows.py", lambda: EVIL.encode(), "no reader"),
        ("rows.csv", lambda: pickle.dumps(Payload()), "could not be loaded"),
        ("rows.parquet", lambda: pickle.dumps(Payload()), "could not be loaded"),
        ("rows.parquet", parquet, "binary"),
        ("rows.json", lambda: b"[" * 100_000, "nested deeper"),
        ("rows.jsonl", lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested deeper"),
    ],
)
def test_a_hostile_data_file_is_refused(name: str, make: Callable[[], bytes], reason: str) -> None:
    Path(name).write_bytes(make())
    with pytest.raises(PegboardError, match=reason):
        pegboard.train(hub(f"./{name}"), root="runs", quiet=True)


def test_brackets_in_texts_are_no_nesting(here: Path) -> None:
    rows = [{"a": "[{" * 300, "b": '\\"['}, {"a": "plain", "b": "y"}] * 10
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = hub("./rows.jsonl", inputs={"a": {"kind": "category"}})
    assert pegboard.train(given, root="runs", quiet=True).status == "finished"


@pytest.mark.parametrize("beside", [False, True])
def test_a_data_set_with_a_loading_script_is_refused(here: Path, beside: bool) -> None:
    folder = here / "cats"
    folder.mkdir()
    (folder / "cats.py").write_text(EVIL)
    if beside:
        (folder / "rows.csv").write_bytes(ROWS)
    with pytest.raises(PegboardError, match="scripts are no longer supported"):
        pegboard.train(hub("./cats"), root="runs", quiet=True)


@pytest.mark.parametrize(
    "pattern", ["../secret.csv", "/etc/secret.csv", "a/../../x.csv", "https://e.org/x.csv"]
)
def test_files_of_a_data_set_stay_below_its_folder(here: Path, pattern: str) -> None:
    (here / "cats").mkdir()
    (here / "secret.csv").write_bytes(ROWS)
    with pytest.raises(PegboardError, match="leads out of"):
        check(hub("./cats", files={"train": pattern}))


@pytest.mark.parametrize("path", ["a/..", "../..", "a/b/c", "a b", "https://example.org/x"])
def test_a_hub_id_is_no_path(path: str) -> None:
    with pytest.raises(PegboardError):
        pegboard.train(hub(path), root="runs", quiet=True)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png(60_000, 60_000), "pixels"),
        (png(100, 100)[:60], "row 0"),
        (png(100, 100), "row 0"),
        (pickle.dumps(Payload()), "cannot identify"),
    ],
)
def test_a_hostile_picture_is_refused(here: Path, data: bytes, reason: str) -> None:
    Path("bad.png").write_bytes(data)
    Path("rows.csv").write_text("a,b\n" + "bad.png,0\nbad.png,1\n" * 10)
    with pytest.raises(PegboardError, match=reason):
        pegboard.train(hub("./rows.csv", inputs={"a": {"kind": "image"}}), root="runs", quiet=True)
