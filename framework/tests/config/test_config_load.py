"""Reading, merging and resolving configs, before anything is checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard.config.dump import to_yaml
from pegboard.config.errors import ConfigError
from pegboard.config.load import Loaded, load, read_yaml
from sweeps import first_of_each_row


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.chdir(tmp_path)

    def write(**texts: str) -> None:
        for name, text in texts.items():
            path = Path(f"{name.replace('__', '/')}.yaml")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")

    return write


def place(loaded: Loaded, path: str, *, at_key: bool = False) -> str:
    return str(loaded.locate(path, at_key=at_key))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("+1", 1),
        ("1.", 1.0),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        (".inf", float("inf")),
        ("-.inf", -float("inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("12:30:45", "12:30:45"),
        ("2024-01-02", "2024-01-02"),
        ("1_000", "1_000"),
        ("1e", "1e"),
        ('"1e-3"', "1e-3"),
        ("'true'", "true"),
        ("é", "é"),
        ("|-\n  two\n  lines", "two\nlines"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(files: Any, text: str, value: object) -> None:
    files(a=f"x: {text}\n")
    found = load("a.yaml").tree["x"]
    assert found == value and type(found) is type(value)


def test_positions_of_keys_and_values_in_block_and_flow(files: Any) -> None:
    files(a="model:\n  name: x\n  deep: {a: 1, b: [2, {c: 3}]}\nlist:\n- p\n-   q\n")
    loaded = load("a.yaml")
    assert place(loaded, "model", at_key=True) == "a.yaml:1:1"
    assert place(loaded, "model.name", at_key=True) == "a.yaml:2:3"
    assert place(loaded, "model.name") == "a.yaml:2:9"
    assert place(loaded, "model.deep.b.1.c", at_key=True) == "a.yaml:3:24"
    assert place(loaded, "model.deep.b.1.c") == "a.yaml:3:27"
    assert place(loaded, "list.1") == "a.yaml:6:5"
    assert place(loaded, "model.deep.nothing.here") == "a.yaml:3:3"
    assert place(loaded, "elsewhere") == "a.yaml:1:1"


def test_anchors_and_merge_keys_are_written_out(files: Any) -> None:
    files(a="base: &b {lr: 1, deep: {x: 1}}\none: *b\ntwo: {<<: *b, lr: 2}\nthree: {<<: [{lr: 3}, *b]}\n")
    tree = load("a.yaml").tree
    assert tree["one"] == {"lr": 1, "deep": {"x": 1}}
    assert tree["two"] == {"lr": 2, "deep": {"x": 1}}
    assert tree["three"] == {"lr": 3, "deep": {"x": 1}}


def test_extends_merges_left_to_right_then_the_file_then_the_command_line(files: Any) -> None:
    files(
        one="a: {x: 1, y: 1, z: 1, w: 1}\nl: [1, 2]\n",
        two="a: {y: 2, z: 2, w: 2}\nl: [3]\n",
        cfg="extends: [one.yaml, two.yaml]\na: {z: 3, w: 3}\n",
    )
    loaded = load("cfg.yaml", ["a.w=4"])
    assert loaded.tree == {"a": {"x": 1, "y": 2, "z": 3, "w": 4}, "l": [3]}
    assert [place(loaded, f"a.{k}") for k in "xyz"] == ["one.yaml:1:8", "two.yaml:1:8", "cfg.yaml:2:8"]
    assert place(loaded, "a.w") == "command line, 'a.w=4'"


def test_extends_is_relative_to_the_file_that_says_it_and_a_diamond_is_fine(files: Any) -> None:
    files(
        sub__top="extends: ../root.yaml\nb: 2\n",
        sub__side="extends: ../root.yaml\nc: 3\n",
        root="a: 1\n",
        cfg="extends: [sub/top.yaml, sub/side.yaml]\n",
    )
    loaded = load("cfg.yaml")
    assert loaded.tree == {"a": 1, "b": 2, "c": 3} and not loaded.mistakes
    assert place(loaded, "a") == "root.yaml:1:4"
    assert place(loaded, "b") == "sub/top.yaml:2:4"


def test_a_mapping_is_taken_as_it_is_and_may_extend_files(files: Any) -> None:
    files(base="a: {x: 1}\n")
    source = {"extends": "base.yaml", "a": {"y": (1, 2)}, "p": Path("q")}
    assert load(source).tree == {"a": {"x": 1, "y": [1, 2]}, "p": "q"}
    assert source["a"] == {"y": (1, 2)}


def test_a_mapping_with_other_things_in_it_is_a_mistake() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"], cycle["b"] = cycle, [cycle]
    messages = [m.message for m in load({"x": object(), 3: 4, "c": cycle}).mistakes]
    assert len(messages) == 4
    assert "the key 3 is not a text" in messages
    assert "found a object, expected plain data: text, numbers, lists and mappings" in messages


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ({"name": "a", "x": 1}, {"x": 2}, {"name": "a", "x": 2}),
        ({"name": "a", "x": 1, "weights": "w"}, {"name": "b"}, {"name": "b", "weights": "w"}),
        ({"name": "a", "x": 1}, {"name": "a", "y": 1}, {"name": "a", "x": 1, "y": 1}),
        ({"name": "a", "x": 1}, {"name": "plugin:a"}, {"name": "plugin:a", "x": 1}),
        ({"name": "a", "x": 1}, "b", {"name": "b"}),
        ({"name": "a", "x": 1}, "a", {"name": "a", "x": 1}),
        ("a", {"x": 1}, {"name": "a", "x": 1}),
    ],
)
def test_another_name_leaves_the_keys_of_the_other_part_behind(
    files: Any, base: Any, over: Any, expected: Any
) -> None:
    files(base=to_yaml({"model": base}), cfg="extends: base.yaml\n" + to_yaml({"model": over}))
    assert load("cfg.yaml").tree["model"] == expected


def test_another_optimizer_keeps_schedule_and_players_but_not_what_they_say_of_its_keys(files: Any) -> None:
    files(
        base="optimizer: {name: a, lr: 1, schedule: {name: s, end: 2},"
        " players: {p: {beta: 3}, q: {name: c, z: 1}}}\n",
        cfg="extends: base.yaml\n",
    )
    tree = load("cfg.yaml", ["optimizer.name=b", "optimizer.schedule.name=t"]).tree["optimizer"]
    assert tree == {"name": "b", "schedule": {"name": "t"}, "players": {"p": {}, "q": {"name": "c", "z": 1}}}


def test_the_order_of_overrides_does_not_matter(files: Any) -> None:
    files(cfg="model: {name: a, x: 1}\nregularizers: {r: {name: drop, p: 1}}\n")
    words = ["model.name=b", "model.y=2", "regularizers.r.q=3", "regularizers.r.name=norm"]
    tree = load("cfg.yaml", words).tree
    assert tree == {"model": {"name": "b", "y": 2}, "regularizers": {"r": {"name": "norm", "q": 3}}}
    assert load("cfg.yaml", words[::-1]).tree == tree


def test_null_takes_an_inherited_regularizer_out_and_a_later_file_starts_afresh(files: Any) -> None:
    files(
        one="regularizers: {drop: {p: 1, sites: [a]}, norm: {}}\n",
        two="extends: one.yaml\nregularizers: {drop: null}\n",
        three="extends: two.yaml\nregularizers: {drop: {p: 2}}\n",
    )
    assert load("two.yaml").tree == {"regularizers": {"norm": {}}}
    assert load("three.yaml").tree == {"regularizers": {"norm": {}, "drop": {"p": 2}}}
    assert load("one.yaml", ["regularizers.drop=false"]).tree == {"regularizers": {"norm": {}}}
    assert load("one.yaml", ["regularizers.drop=true"]).tree["regularizers"]["drop"] == {
        "p": 1,
        "sites": ["a"],
    }


def test_a_section_whose_lines_are_commented_out_inherits(files: Any) -> None:
    files(base="trainer: {epochs: 3}\n", cfg="extends: base.yaml\ntrainer:\n  # epochs: 4\n")
    assert load("cfg.yaml").tree["trainer"] == {"epochs": 3}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a.b=3", 3),
        ("a.b=1e-3", 0.001),
        ("a.b=[64, 32]", [64, 32]),
        ("a.b={x: 1}", {"x": 1}),
        ("a.b=null", None),
        ("a.b=text with = sign", "text with = sign"),
        ("a.b='3'", "3"),
        (" a.b = 3", 3),
    ],
)
def test_overrides_are_yaml(word: str, value: object) -> None:
    loaded = load({}, [word])
    assert loaded.tree == {"a": {"b": value}} and not loaded.mistakes


def test_interpolations_are_resolved_after_the_merge(files: Any) -> None:
    files(
        base="n: 1\nm: ${n}\nt: run-${n}\nw: ${d}\nd: {k: ${n}, l: ['${..k}', '${d.k}']}\n",
        cfg="extends: base.yaml\nn: 2\nf: {g: ${n}, h: a${n}b}\nx: \\${n}\n",
    )
    loaded = load("cfg.yaml", ["o=${n}"])
    assert not loaded.mistakes
    tree = loaded.tree
    assert (tree["m"], tree["t"], tree["o"]) == (2, "run-2", 2)
    assert tree["f"] == {"g": 2, "h": "a2b"}
    assert tree["w"]["k"] == 2
    assert tree["x"] == "${n}"


@pytest.mark.parametrize(
    ("text", "piece"),
    first_of_each_row(
        [
            ("a: &x [*x]\n", "contains it"),
            ("a: &x {b: *x}\n", "contains it"),
            ("a: &x {<<: *x}\n", "contains it"),
            (
                "".join(
                    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9 if i else ['x'] * 9)}]\n" for i in range(9)
                ),
                "more than",
            ),
            ("a: " + "[" * 1500 + "]" * 1500, "nested deeper"),
            ("a: " + "{b: " * 100 + "1" + "}" * 100, "nested deeper"),
            ("a: !!python/object/apply:os.system ['true']\n", "tag !!python"),
            ("!!python/object:os.x {}\n", "tag !!python"),
            ("a: !!binary aGVsbG8=\n", "tag !!binary"),
            ("!!str a: 1\n", "tag on a key"),
            ("a: ! x\n", "the YAML tag !"),
            ("? [a, b]\n: 1\n", "a list or mapping as a key"),
            ("? {a: b}\n: 1\n", "a list or mapping as a key"),
            ("true: 1\n", "not a text"),
            ("null: 1\n", "an empty key"),
            ("1.5: 1\n", "not a text"),
            ("<<: 5\n", "found no mapping after '<<'"),
            ("a: \x00\n", "control character"),
            ("%YAML 9.9\n---\na: 1\n", "YAML"),
            ('a: "\\q"\n', "YAML"),
            ("--- a\n--- b\n", "second document"),
        ]
    ),
)
def test_hostile_yaml_is_a_mistake_and_runs_nothing(files: Any, text: str, piece: str) -> None:
    files(a=text)
    mistakes = load("a.yaml").mistakes
    assert any(piece in m.message for m in mistakes), mistakes
    assert all(m.origin is not None and m.origin.file == "a.yaml" for m in mistakes)


def test_a_file_that_is_not_utf_8_is_told_at_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \xe9\n")
    (mistake,) = load(path).mistakes
    assert str(mistake.origin) == f"{path}:2:4" and "0xe9" in mistake.message
    path.write_bytes("a: 1\n".encode("utf-16"))
    assert "UTF-8" in load(path).mistakes[0].message
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load(path).tree == {"a": 1}


@pytest.mark.parametrize(
    ("extends", "meant", "piece"),
    [
        ("bse.yaml", "base.yaml", "no file 'bse.yaml'"),
        ("base", "base.yaml", "configs in '.': base.yaml, cfg.yaml"),
        ("base.yml", "base.yaml", ""),
        ("sbu/inner.yaml", "sub/inner.yaml", "there is no folder 'sbu'"),
        ("sub", "", "is a folder, not a config"),
        ("nothing-like-it.yaml", "", "no file"),
        ('"a\\0b"', "", "no file"),
        ("5", "", "found 5, expected the path of a config"),
        ("[base.yaml, [x]]", "", "found the list [x]"),
        ("{a: b}", "", "found a mapping with a"),
    ],
)
def test_a_file_to_extend_that_is_not_there(files: Any, extends: str, meant: str, piece: str) -> None:
    files(base="a: 1\n", sub__inner="a: 1\n", cfg=f"b: 1\nextends: {extends}\n")
    loaded = load("cfg.yaml")
    (mistake,) = loaded.mistakes
    assert not loaded.complete
    assert mistake.path == "extends" and str(mistake.origin).startswith("cfg.yaml:2:")
    assert (mistake.nearest[:1] or ("",))[0] == meant
    assert piece in str(mistake)


def test_extends_in_a_circle_shows_the_chain(files: Any) -> None:
    files(cfg="extends: a.yaml\n", a="extends: b.yaml\n", b="extends: [a.yaml]\n")
    (mistake,) = load("cfg.yaml").mistakes
    assert "cfg.yaml -> a.yaml -> b.yaml -> a.yaml" in mistake.message
    assert str(mistake.origin) == "b.yaml:1:11"
    files(cfg="extends: ./cfg.yaml\n")
    assert "cfg.yaml -> cfg.yaml" in load("cfg.yaml").mistakes[0].message


def test_a_config_that_is_not_there_names_the_nearest(files: Any) -> None:
    files(conf__quickstart="a: 1\n")
    (mistake,) = load("conf/quickstrat.yaml").mistakes
    assert mistake.nearest == ("conf/quickstart.yaml",)
    assert str(mistake).startswith("conf/quickstrat.yaml\n    no file 'conf/quickstrat.yaml'; did you mean")
    assert load("conf").mistakes[0].hint == "configs in it: quickstart.yaml"
    assert load("cnof/quickstart.yaml").mistakes[0].nearest == ("conf/quickstart.yaml",)


def test_syntax_errors_of_several_files_are_all_reported(files: Any) -> None:
    files(a="data: [1\n", b="seed: 1\n\ty: 1\n", cfg="extends: [a.yaml, b.yaml]\nz: 1\n")
    assert [str(m.origin) for m in load("cfg.yaml").mistakes] == ["a.yaml:1:7", "b.yaml:2:1"]


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        1e-5,
        1 / 3,
        1e300,
        5e-324,
        float("inf"),
        -0.0,
        12345678901234567890,
        "1e-3",
        "true",
        "null",
        "",
        "~",
        "0x1f",
        "yes",
        "2024-01-01",
        "a: b",
        "# no",
        "*x",
        "!x",
        "${a}",
        "\\${a}",
        "x\\\\${a}${b}",
        "two\nlines",
        " edge ",
        "é ☃ \U0001f600",
        "\x07",
        "'",
        '"',
        [1, [2, {"a": None}]],
        {"a": {}, "b": []},
        {"<<": 1, "1": 2, "a.b": 3},
    ],
)
def test_a_value_survives_being_written_and_read(files: Any, value: object) -> None:
    files(a=to_yaml({"x": value}))
    loaded = load("a.yaml")
    assert not loaded.mistakes
    assert repr(loaded.tree["x"]) == repr(value)


def test_read_yaml_raises_what_is_wrong(files: Any) -> None:
    files(good="a: 1\n", bad="a: [\n")
    assert read_yaml("good.yaml") == {"a": 1}
    with pytest.raises(ConfigError, match=r"1 mistake in bad.yaml\n\nbad.yaml:2:1\n    the text ends"):
        read_yaml("bad.yaml")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('name: "a\\ud800"\n', "name"),
        ('data: {"a\\udc00b": 1}\n', "data"),
        ('"\\ud800": 1\n', ""),
        ('model: {hidden: [1, "\\ud800"]}\n', "model.hidden.1"),
    ],
)
def test_half_of_a_character_is_a_mistake_that_can_be_printed(files: Any, text: str, path: str) -> None:
    files(cfg=text)
    (mistake,) = load("cfg.yaml").mistakes
    assert mistake.path == path and "half of a character" in mistake.message
    assert mistake.origin is not None and mistake.origin.line == 1
    str(mistake).encode("utf-8")
    (mistake,) = load({"data": {"x": "\ud800"}}).mistakes
    assert mistake.path == "data.x"


@pytest.mark.parametrize("word", ["name=a\udcff", "a\udcff=1", "model.hidden=[1, \udcff]", "data.\udcff={}"])
def test_bytes_of_the_command_line_that_are_no_text_can_be_printed(files: Any, word: str) -> None:
    files(cfg="seed: 1\n")
    (mistake,) = load("cfg.yaml", [word]).mistakes
    str(mistake).encode("utf-8")
    assert mistake.origin is not None and mistake.origin.word == word
