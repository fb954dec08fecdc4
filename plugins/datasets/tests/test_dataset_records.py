"""What holds for every data set of the plugin, asked of the records themselves."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
import torch
from light import loaded
from pegboard import Classes, Dataset, Facts, Resident, Tokens, Values


def part_names() -> list[str]:
    from pegboard_datasets import pegboard_datasets

    return [part.name for part in pegboard_datasets()]


NAMES = [name for name in part_names() if name != "hub"]
SEQUENCES = ("copying", "recall", "adding")  # of symbols or of steps, which nobody scales
TIMED = ("seasons",)  # cut by time: windows across a cut are left out, and no seed moves a sample
CUT = {"val": 0.1, "test": 0.2}  # a few have one split alone by default


def test_the_light_module_imports_no_heavy_one():
    code = (
        "import pegboard_datasets as p; parts = p.pegboard_datasets();"
        "parts[0].spec(parts[0].config());"
        "hub = next(x for x in parts if x.name == 'hub');"
        "c = hub.config(path='./x.csv', inputs=('a',), target='b');"
        "hub.spec(c); list(hub.check(c, None))"
    )
    assert not loaded(code, ("torch", "numpy", "datasets", "sklearn", "PIL", "pyarrow", "tokenizers"))


def test_every_record_is_a_dataset_with_its_own_name(parts):
    assert len(parts) == 37
    assert all(isinstance(part, Dataset) and part.name == name for name, part in parts.items())


@pytest.mark.parametrize("name", part_names())
def test_no_field_takes_a_key_of_the_core(parts, name):
    assert not {f.name for f in fields(parts[name].config)} & Dataset.reserved


@pytest.mark.parametrize("name", part_names())
def test_every_field_has_a_comment_and_the_part_a_summary(parts, name):
    described = pytest.importorskip("pegboard.config.fields").describe(parts[name].config)
    assert parts[name].summary.endswith(".")
    assert [f.name for f in described if not f.comment] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_spec_without_reading_equals_the_built_one(parts, build, name):
    assert parts[name].spec(parts[name].config()) == build(name).spec


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("xor", {"bits": 5}),
        ("spirals", {"classes": 4}),
        ("blobs", {"classes": 7, "features": 3}),
        ("linear_teacher", {"features": 4, "outputs": 3}),
        ("polynomial_teacher", {"features": 2, "degree": 2, "outputs": 2}),
        ("objects", {"scene": "stacked", "size": 20}),
        ("sparse_fourier", {"length": 20, "measured": 5}),
        ("squares_and_line", {"size": 24}),
        ("texture", {"size": 12, "hole": 3}),
        ("relighting", {"size": 6, "target": "image"}),
        ("solids", {"size": 6, "form": "views", "views": 3}),
        ("blobs", {"labelled": 0.0}),
    ],
)
def test_the_spec_follows_the_fields(parts, build, name, values):
    assert parts[name].spec(parts[name].config(**values)) == build(name, **values).spec


@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_as_the_spec_says(build, name):
    splits = build(name, **CUT)
    for source in (splits.train, splits.val, splits.test):
        assert isinstance(source, Resident)
        for x, spec in zip(source.inputs, splits.spec.inputs, strict=True):
            expected = spec.example(len(source), "cpu")
            assert x.shape == expected.shape
            assert x.dtype == expected.dtype
            assert x.device.type == "cpu"
            assert torch.isfinite(x).all()
        y, target = source.target, splits.spec.target
        if isinstance(target, Classes):
            assert y.dtype == torch.int64
            assert y.shape == (len(source),)
            assert set(y.tolist()) <= set(range(target.count))
            assert len(target.names) == target.count
        elif isinstance(target, Tokens):
            assert y.shape == (len(source), target.length)
            assert set(y.unique().tolist()) <= set(range(target.vocab))
        else:
            assert isinstance(target, Values)
            assert y.dtype == torch.float32
            assert y.shape == (len(source), target.features)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_config_gives_the_same_bytes_and_moves_no_global_rng(build, quiet_rngs, name):
    assert build(name).notes["fingerprint"] == build(name).notes["fingerprint"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TIMED])
def test_split_seed_moves_samples(build, name):
    assert build(name).notes["fingerprint"] != build(name, split_seed=1).notes["fingerprint"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TIMED])
def test_no_sample_is_in_two_splits(build, name):
    # The other scene moves the objects of the test.
    fields = {"scene": "stacked"} if name == "objects" else {}
    fields |= {} if name in SEQUENCES else {"normalize": "none"}
    whole = build(name, val=0, test=0, **fields)
    cut = build(name, **CUT, **fields)

    def rows(source):
        return [
            tuple(r)
            for r in torch.cat([source.inputs[0].flatten(1), source.target[:, None].flatten(1)], 1).tolist()
        ]

    everyone = rows(cut.train) + rows(cut.val) + rows(cut.test)
    assert sorted(everyone) == sorted(rows(whole.train))


@pytest.mark.parametrize("name", NAMES)
def test_notes_say_where_the_data_comes_from_and_json_holds_them(build, name):
    notes = json.loads(json.dumps(build(name, **CUT).notes))
    assert notes["source"]
    assert notes["licence"]
    assert len(notes["fingerprint"]) == 64
    assert notes["sizes"].keys() == {"train", "val", "test"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*SEQUENCES, *TIMED)])
def test_a_written_table_becomes_the_training_inputs(build, name):
    raw, splits = build(name, normalize="none"), build(name, normalize="standard")
    scale = 16 if name == "digits" else 1
    x = raw.train.inputs[0][:5].flatten(1) * scale
    table = {column: [f"{v:.9g}" for v in x[:, i].tolist()] for i, column in enumerate(splits.columns)}
    (encoded,) = splits.encode(table)
    torch.testing.assert_close(encoded, splits.train.inputs[0][:5], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_shares_that_leave_nothing_are_a_problem(parts, name):
    problems = list(parts[name].check(parts[name].config(val=0.5, test=0.5), Facts()))
    assert [p.field for p in problems] == ["val"]
    assert not list(parts[name].check(parts[name].config(), Facts()))
