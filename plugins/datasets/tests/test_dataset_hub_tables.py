"""`hub` on files of rows: numbers, categories, classes, labels and values."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from pegboard import Classes, DataSpec, Facts, Labels, PegboardError, Values, Vector
from pegboard_datasets import Hub, Input, SplitNames, Target, check_hub, hub_spec


def rows(count=40):
    """Rows whose every column follows from their number."""
    return [
        {
            "id": i,
            "width": i * 0.5,
            "height": float(i % 7),
            "colour": ("red", "green", "blue")[i % 3],
            "tall": i % 2 == 0,
            "grade": 10 * (i % 4),
            "price": 2.0 * i + 1,
        }
        for i in range(count)
    ]


def write(path: Path, table: list[dict]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(table)
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    else:
        path.write_text("\n".join(map(json.dumps, table)))
    return str(path)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".json", ".jsonl"])
def test_every_kind_of_file_gives_the_same_samples(hub, tmp_path, suffix):
    path = write(tmp_path / f"table{suffix}", rows())
    splits = hub(path=path, inputs=("width", "height"), target="colour", normalize="none")
    assert splits.spec == DataSpec((Vector(2),), Classes(3, ("blue", "green", "red")), ("features",))
    assert (len(splits.train), len(splits.val), len(splits.test)) == (28, 4, 8)
    for source in (splits.train, splits.val, splits.test):
        number = (source.inputs[0][:, 0] * 2).long()
        assert torch.equal(source.inputs[0][:, 1], (number % 7).float())
        assert torch.equal(source.target, torch.tensor([2, 1, 0])[number % 3])


def test_the_same_config_twice_gives_the_same_bytes_and_moves_no_rng(hub, tmp_path, quiet_rngs):
    path = write(tmp_path / "t.csv", rows())
    prints = {
        seed: hub(path=path, inputs=("width",), target="colour", split_seed=seed).notes["fingerprint"]
        for seed in (0, 0, 1)
    }
    again = hub(path=path, inputs=("width",), target="colour").notes["fingerprint"]
    assert prints[0] == again != prints[1]


def test_numbers_and_categories_are_joined_in_the_order_of_the_config(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows())
    inputs = {"width": Input(), "colour": Input(kind="category"), "tall": Input()}
    splits = hub(path=path, inputs=inputs, target="price", normalize="none")
    x = splits.train.inputs[0]
    assert splits.spec.inputs == (Vector(5),)
    number = (x[:, 0] * 2).long()
    one_hot = torch.nn.functional.one_hot(torch.tensor([2, 1, 0])[number % 3], 3).float()
    assert torch.equal(x[:, 1:4], one_hot)
    assert torch.equal(x[:, 4], (number % 2 == 0).float())


def test_only_numbers_are_scaled_and_by_training_rows_alone(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows())
    inputs = {"width": Input(), "colour": Input(kind="category")}
    raw = hub(path=path, inputs=inputs, target="price", normalize="none")
    scaled = hub(path=path, inputs=inputs, target="price")
    train = raw.train.inputs[0][:, 0]
    expected = (raw.test.inputs[0][:, 0] - train.mean()) / train.std(correction=0)
    torch.testing.assert_close(scaled.test.inputs[0][:, 0], expected)
    assert torch.equal(scaled.test.inputs[0][:, 1:], raw.test.inputs[0][:, 1:])


def test_a_category_that_training_never_showed_is_all_zeros(hub, tmp_path):
    write(tmp_path / "d" / "train.csv", rows(30))
    write(tmp_path / "d" / "test.csv", [row | {"colour": "pink"} for row in rows(5)])
    splits = hub(path=str(tmp_path / "d"), inputs={"colour": Input(kind="category")}, target="price")
    assert splits.spec.inputs == (Vector(3),)
    assert torch.equal(splits.test.inputs[0], torch.zeros(5, 3))


def test_categories_of_rows_that_were_cut_off_are_not_known(hub, tmp_path):
    path = write(tmp_path / "t.csv", [{"who": f"person {i}", "y": 1.0 * i} for i in range(20)])
    splits = hub(path=path, inputs={"who": Input(kind="category")}, target="y")
    assert splits.spec.inputs == (Vector(14),)
    assert splits.train.inputs[0].sum() == 14
    assert splits.test.inputs[0].sum() == 0


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("colour", Classes(3, ("blue", "green", "red"))),
        ("tall", Classes(2, ("false", "true"))),
        ("grade", Classes(4, ("0", "10", "20", "30"))),
        ("price", Values(1, ("price",))),
        (Target(column="grade", kind="values"), Values(1, ("grade",))),
        (Target(column=("price", "width"), kind="values"), Values(2, ("price", "width"))),
    ],
)
def test_the_kind_of_a_target_follows_from_its_type_unless_it_is_named(hub, tmp_path, target, expected):
    path = write(tmp_path / "t.parquet", rows())
    assert hub(path=path, inputs=("height",), target=target).spec.target == expected


def test_integers_with_many_values_are_numbers(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows(200))
    splits = hub(path=path, inputs=("height",), target="id", normalize_target=True)
    target = splits.spec.target
    assert (target.features, target.names) == (1, ("id",)) and target.scale[0] > 1
    assert target.invert(splits.train.target).round().unique().tolist() == sorted(
        target.invert(splits.train.target).round()[:, 0].tolist()
    )
    assert abs(splits.train.target.mean()) < 1e-6
    assert abs(splits.train.target.std(correction=0) - 1) < 1e-5


def test_classes_are_stratified_unless_told_otherwise(hub, tmp_path):
    table = [row | {"rare": "yes" if i % 10 == 0 else "no"} for i, row in enumerate(rows(200))]
    path = write(tmp_path / "t.csv", table)
    splits = hub(path=path, inputs=("width",), target="rare")
    assert splits.notes["train_classes"] == {"no": 126, "yes": 14}
    assert splits.val.target.sum() == 2
    assert splits.test.target.sum() == 4


def test_lists_of_numbers_and_of_labels(hub, tmp_path):
    tags = [[], ["a"], ["a", "c"], ["b"]]
    table = [{"x": [float(i), 2.0 * i, 3.0], "tags": tags[i % 4]} for i in range(20)]
    path = write(tmp_path / "t.parquet", table)
    splits = hub(path=path, inputs=("x",), target="tags", normalize="none")
    assert splits.spec == DataSpec((Vector(3),), Labels(3, ("a", "b", "c")), ("x",))
    number = splits.train.inputs[0][:, 0].long()
    expected = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 0]])[number % 4]
    assert torch.equal(splits.train.target, expected)


def test_labels_in_columns_of_zero_and_one(hub, tmp_path):
    table = [{"x": float(i), "big": int(i > 10), "even": i % 2 == 0} for i in range(20)]
    path = write(tmp_path / "t.csv", table)
    target = Target(column=("big", "even"), kind="labels")
    splits = hub(path=path, inputs=("x",), target=target, normalize="none")
    assert splits.spec.target == Labels(2, ("big", "even"))
    x = splits.train.inputs[0][:, 0]
    assert torch.equal(splits.train.target, torch.stack([x > 10, x % 2 == 0], 1).float())
    with pytest.raises(PegboardError, match=r"'grade', split 'train', row \d+ .*: [123]0"):
        hub(
            path=write(tmp_path / "g.csv", rows()),
            inputs=("width",),
            target=Target(column=("tall", "grade"), kind="labels"),
        )


def test_splits_of_the_source_serve_under_their_usual_names(hub, tmp_path):
    for name, start, count in (("train", 0, 30), ("validation", 30, 6), ("test", 36, 4)):
        write(tmp_path / "d" / f"{name}.csv", rows(40)[start : start + count])
    splits = hub(path=str(tmp_path / "d"), inputs=("width",), target="price", normalize="none")
    assert sorted((splits.train.inputs[0] * 2).flatten().tolist()) == list(range(30))
    assert (splits.val.inputs[0] * 2).flatten().tolist() == list(range(30, 36))
    assert (splits.test.inputs[0] * 2).flatten().tolist() == list(range(36, 40))


def test_a_split_that_is_missing_or_not_wanted_is_cut_off_train(hub, tmp_path):
    for name, start, count in (("train", 0, 30), ("test", 30, 10)):
        write(tmp_path / "d" / f"{name}.csv", rows(40)[start : start + count])
    common = {"path": str(tmp_path / "d"), "inputs": ("width",), "target": "price"}
    splits = hub(**common, val=0.2)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (24, 6, 10)
    splits = hub(**common, splits=SplitNames(test="cut"))
    assert (len(splits.train), len(splits.val), len(splits.test)) == (21, 3, 6)
    splits = hub(**common, splits=SplitNames(val="test"), test=0)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (30, 10, 10)


def test_files_are_named_by_split(hub, tmp_path):
    write(tmp_path / "a" / "one.csv", rows(20))
    write(tmp_path / "a" / "two.csv", rows(5))
    splits = hub(
        path=str(tmp_path / "a"),
        files={"train": "one.csv", "test": "t*.csv"},
        inputs=("width",),
        target="price",
    )
    assert (len(splits.train), len(splits.val), len(splits.test)) == (18, 2, 5)


def test_a_pattern_reads_all_its_files(hub, tmp_path):
    write(tmp_path / "part1.csv", rows(10))
    write(tmp_path / "part2.csv", rows(10))
    splits = hub(path=str(tmp_path / "part*.csv"), inputs=("width",), target="price", val=0, test=0)
    assert len(splits.train) == 20
    assert splits.val is None
    assert splits.test is None


def test_limits_keep_the_first_in_the_order_of_the_split_seed(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows(100))
    common = {"path": path, "inputs": ("width",), "target": "colour", "normalize": "none"}
    whole, few = hub(**common), hub(**common, limit=9, eval_limit=6)
    assert torch.equal(few.train.inputs[0], whole.train.inputs[0][:9])
    assert torch.equal(few.test.inputs[0], whole.test.inputs[0][:6])
    assert len(few.val) == 6
    assert torch.bincount(few.train.target).tolist() == [3, 3, 3]


def test_a_written_table_becomes_the_training_inputs(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows())
    inputs = {"width": Input(), "colour": Input(kind="category"), "height": Input()}
    splits = hub(path=path, inputs=inputs, target="price")
    assert splits.columns == ("width", "colour", "height")
    test = hub(path=path, inputs=inputs, target="price", normalize="none").test.inputs[0]
    names = ("blue", "green", "red")
    table = {
        "width": [str(v) for v in test[:, 0].tolist()],
        "colour": [names[k] for k in test[:, 1:4].argmax(1).tolist()],
        "height": test[:, 4].tolist(),
        "unused": [0] * len(test),
    }
    torch.testing.assert_close(splits.encode(table)[0], splits.test.inputs[0])


def test_a_written_table_may_hold_lists_or_one_column_for_each_number(hub, tmp_path):
    path = write(tmp_path / "t.parquet", [{"x": [float(i), -i], "y": 1.0 * i} for i in range(20)])
    splits = hub(path=path, inputs=("x",), target="y")
    (a,) = splits.encode({"x": ["[3, -3]", [4, -4]]})
    (b,) = splits.encode({"x_0": [3, 4], "x_1": [-3, -4]})
    assert torch.equal(a, b)
    with pytest.raises(PegboardError, match="row 0: 3 numbers"):
        splits.encode({"x": [[1, 2, 3]]})


def test_notes_say_what_was_learned(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows())
    notes = hub(path=path, inputs=("width", "height"), target="colour").notes
    json.dumps(notes)
    assert notes["source"] == path
    assert notes["licence"] == "not stated"
    assert notes["statistics"]["features"].keys() == {"width", "height"}
    assert notes["sizes"] == {"train": 28, "val": 4, "test": 8}


WRONG = [
    ({"inputs": ("widht",)}, "there is no column 'widht' in split 'train'; nearest: 'width'"),
    ({"target": "Colour"}, "there is no column 'Colour' in split 'train'; nearest: 'colour'"),
    ({"splits": SplitNames(val="dev")}, "there is no split 'dev'"),
    ({"inputs": {"colour": Input(kind="numbers")}}, "column 'colour' of split 'train' holds"),
    ({"inputs": {"width": Input(kind="text")}}, "column 'width' of split 'train' holds"),
    (
        {"inputs": {"width": Input(kind="image")}},
        "split 'train', row 30 (0 is the first): 15.0",
    ),
    ({"target": Target(column="colour", kind="values")}, "expected: numbers"),
    ({"target": Target(column="colour", kind="labels")}, "a list of labels"),
    ({"inputs": {"width": Input(length=5)}}, "length means nothing for a column of numbers"),
    (
        {"val": 0.6, "test": 0.39, "limit": 1, "path": "./nowhere.csv"},
        "there is no file or folder './nowhere",
    ),
    ({"files": {"train": "none*.csv"}, "path": "."}, "no file 'none*.csv'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_mistakes_are_explained(hub, tmp_path, change, message):
    path = write(tmp_path / "t.csv", rows())
    fields = {"path": path, "inputs": ("width",), "target": "colour"} | change
    with pytest.raises(PegboardError) as caught:
        hub(**fields)
    assert message in str(caught.value)


def test_all_columns_that_are_not_there_are_told_at_once(hub, tmp_path):
    path = write(tmp_path / "t.csv", rows())
    with pytest.raises(PegboardError) as caught:
        hub(path=path, inputs=("widht", "width", "zzz"), target="Colour")
    first, *others, expected = str(caught.value).splitlines()
    assert "'widht'" in first and expected.startswith("  expected: 'id', 'width'")
    assert others == ["  nor 'zzz'", "  nor 'Colour'; nearest: 'colour'"]


def test_an_empty_place_is_an_error_that_says_where(hub, tmp_path):
    table = rows()
    table[7]["width"] = None
    path = write(tmp_path / "t.parquet", table)
    with pytest.raises(PegboardError, match=r"column 'width', split 'train', row 7 .*: nothing"):
        hub(path=path, inputs=("width",), target="colour", test=0, val=0)
    table = [{"x": [1.0, 2.0]}] * 5 + [{"x": [1.0]}] * 5
    table = [row | {"y": 1.0} for row in table]
    with pytest.raises(PegboardError, match=r"column 'x', split 'train', row \d .*: [12] numbers"):
        hub(path=write(tmp_path / "l.parquet", table), inputs={"x": Input(kind="numbers")}, target="y")


def test_an_id_that_cannot_be_loaded_is_explained(hub, monkeypatch, tmp_path):
    import datasets

    def refuse(*args, **kwargs):
        raise ConnectionError("no network here")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    monkeypatch.delenv("PEGBOARD_DATA", raising=False)
    with pytest.raises(PegboardError, match="'someone/something' could not be loaded: ConnectionError"):
        hub(path="someone/something", inputs=("x",), target="y")
    (tmp_path / "hub" / "someone" / "somethings").mkdir(parents=True)
    monkeypatch.setenv("PEGBOARD_DATA", str(tmp_path))
    with pytest.raises(PegboardError, match=r"has no 'someone/something' in .*'someone/somethings'"):
        hub(path="someone/something", inputs=("x",), target="y")


def test_an_id_is_loaded_with_subset_and_revision(hub, monkeypatch, tmp_path):
    import datasets

    real, calls = datasets.load_dataset, []

    def spy(path, **options):
        calls.append((path, options))
        return real("csv", data_files=write(tmp_path / "t.csv", rows()))

    monkeypatch.setattr(datasets, "load_dataset", spy)
    monkeypatch.setenv("PEGBOARD_DATA", str(tmp_path))
    hub(path="someone/something", subset="small", revision="v1", inputs=("width",), target="price")
    assert calls == [("someone/something", {"name": "small", "revision": "v1"})]


def test_an_id_is_found_in_the_mirror_with_or_without_the_name_of_its_subset(hub, monkeypatch, tmp_path):
    write(tmp_path / "hub" / "some" / "thing" / "train.csv", rows())
    monkeypatch.setenv("PEGBOARD_DATA", str(tmp_path))
    for subset in (None, "small"):
        splits = hub(path="some/thing", subset=subset, inputs=("width",), target="price")
        assert len(splits.train) == 28
        assert splits.notes["source"] == "some/thing"


def test_a_folder_with_subsets_needs_the_name_of_one(hub, tmp_path):
    for name, count in (("small", 10), ("large", 30)):
        write(tmp_path / "d" / name / "train.csv", rows(count))
    listed = "".join(f"- config_name: {n}\n  data_files: {n}/*.csv\n" for n in ("small", "large"))
    (tmp_path / "d" / "README.md").write_text(f"---\nconfigs:\n{listed}---\n")
    common = {"path": str(tmp_path / "d"), "inputs": ("width",), "target": "price", "val": 0, "test": 0}
    assert len(hub(**common, subset="large").train) == 30
    with pytest.raises(PegboardError, match="there is no subset 'larg'; nearest: 'large'"):
        hub(**common, subset="larg")
    with pytest.raises(PegboardError, match=r"\['small', 'large'\]"):
        hub(**common)
    (tmp_path / "d" / "README.md").unlink()
    with pytest.raises(PegboardError, match="there is no subset 'large'"):
        hub(**common, subset="large")


@pytest.mark.parametrize("text", ["", "width,price\n"], ids=["no bytes", "only a head"])
def test_a_local_file_without_rows_is_not_sought_on_the_hub(hub, tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(
        PegboardError, match=r"t.csv' could not be loaded: .*\n  expected: files with rows"
    ) as e:
        hub(path=str(tmp_path / "t.csv"), inputs=("width",), target="price")
    assert "hub" not in str(e.value).lower() and len(str(e.value).splitlines()) == 2


def test_what_only_a_hub_id_or_a_folder_has_is_refused_beside_local_files(tmp_path):
    def fields(path, **more):
        return [p.field for p in check_hub(config(path=str(path), **more), Facts())]

    path = write(tmp_path / "t.csv", rows())
    assert fields(path, files={"train": "t.csv"}, subset="small") == ["files", "subset"]
    assert fields(path, revision="v1") == fields(tmp_path, revision="v1") == ["revision"]
    assert fields(tmp_path, files={"train": "t.csv"}, subset="small") == []


def config(**fields) -> Hub:
    return Hub(**({"path": "owner/name", "inputs": ("x",), "target": "y"} | fields))


GOOD = [
    {},
    {"path": "name"},
    {"inputs": {"x": Input(kind="text", tokens="bpe", vocab=300)}},
    {"inputs": {"x": Input(length=8)}, "target": Target(kind="next")},
    {"target": Target(column=("a", "b"), kind="values")},
    {"files": {"train": "a.csv", "test": "b.csv"}},
]
BAD = [
    ({"path": "./nope.csv"}, "path"),
    ({"path": "nope.parquet"}, "path"),
    ({"path": "/no/such/folder"}, "path"),
    ({"path": "data/*.json"}, "path"),
    ({"path": "a/b/c"}, "path"),
    ({"path": __file__}, "path"),
    ({"files": {"train": "a.csv", "test": "b.json"}}, "files"),
    ({"target": Target()}, "target.column"),
    ({"target": "x"}, "target.column"),
    ({"target": Target(column=("a", "b"))}, "target.kind"),
    ({"inputs": {"x": Input(kind="numbers", size=(2, 2))}}, "inputs.x.size"),
    ({"inputs": {"x": Input(kind="image", lowercase=True)}}, "inputs.x.lowercase"),
    ({"inputs": {"x": Input(tokens="bpe", vocab=100)}}, "inputs.x.vocab"),
    ({"inputs": {"x": Input(tokens="unigram", unknown=False)}}, "inputs.x.unknown"),
    ({"target": Target(kind="next")}, "inputs.x.length"),
    ({"inputs": {"x": Input(length=8)}, "target": Target(kind="next", column="y")}, "target.column"),
    ({"inputs": {"x": Input(length=8), "z": Input(length=8)}, "target": Target(kind="next")}, "inputs"),
    ({"val": 0.7, "test": 0.4}, "val"),
]


@pytest.mark.parametrize("fields", GOOD)
def test_good_configs_have_no_problem(fields):
    assert list(check_hub(config(**fields), Facts())) == []


@pytest.mark.parametrize(("fields", "where"), BAD)
def test_bad_configs_have_a_problem_at_the_field(fields, where):
    assert where in [p.field for p in check_hub(config(**fields), Facts())]


def test_the_spec_is_known_where_kinds_are_named(hub, tmp_path):
    assert hub_spec(config()) is None
    path = write(tmp_path / "t.csv", rows())
    inputs = {"width": Input(kind="numbers"), "colour": Input(kind="category")}
    for target in ("classes", "values"):
        fields = {"path": path, "inputs": inputs, "target": Target(column="grade", kind=target)}
        light, built = hub_spec(config(**fields)), hub(**fields).spec
        assert light.names == built.names
        assert [type(s) for s in light.inputs] == [type(s) for s in built.inputs]
        assert type(light.target) is type(built.target)
        assert not light.known
        assert built.known
