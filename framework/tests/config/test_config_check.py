"""Settings of right configs, how parts fit each other, and the report as a whole."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pegboard.config.check import ConfigError, check, refine
from pegboard.config.load import load
from pegboard.contract.records import Dataset, Model, ObjectivePart, Optimizer, Problem, Regularizer
from pegboard.contract.specs import Classes, DataSpec, Image, Labels, Values, Vector
from pegboard.registry.discovery import Plugin, Registry

BASE: dict[str, Any] = {
    "data": "spots",
    "model": "dense",
    "optimizer": {"name": "descent", "lr": 0.1},
}


@dataclass(frozen=True)
class NoKeys:
    """Nothing to set."""


def build(config: Any, context: Any) -> Any:
    raise AssertionError


def only(*parts: Any, base: Registry) -> Registry:
    return Registry([*base.plugins, Plugin("more", "acme-more", "2.0", status="ready", parts=list(parts))])


def with_(**changes: Any) -> dict[str, Any]:
    return {**BASE, **changes}


def test_settings_hold_every_part_with_its_config(
    accept: Callable[..., Any], save_run: Callable[[str], None]
) -> None:
    save_run("w")
    settings = accept(
        "extends: base.yaml\ntrainer: {steps: 5}\n"
        "regularizers: {norm: {}, mine: {name: soften, players: [a]}}\n",
        "seed=4",
        base="data: {name: spots, batch_size: 8, noise: 1}\nmodel: {name: dense, hidden: [3], weights: w}\n"
        "optimizer: {name: descent, lr: 1, schedule: wave,"
        " players: {b: {lr: 2}, c: {name: adaptive, schedule: null}}}\n",
    )
    assert (settings.name, settings.seed, settings.weights) == ("cfg", 4, "w")
    assert settings.batches.batch_size == 8 and settings.data.config.noise == 1.0
    assert settings.model.config.hidden == (3,)
    assert settings.schedule.entry.part.name == "wave"
    assert list(settings.regularizers) == ["mine", "norm"]
    assert settings.regularizers["mine"].players == ("a",)
    assert settings.regularizers["mine"].entry.qualified == "pegboard-fakes:soften"
    own, schedule = settings.player_optimizers["b"]
    assert own.config.lr == 2.0 and schedule.entry.part.name == "wave"
    own, schedule = settings.player_optimizers["c"]
    assert own.entry.part.name == "adaptive" and own.config.lr == 1e-3 and schedule is None
    assert settings.trainer.steps == 5
    assert settings.objective.entry.part.name == "entropy"
    assert settings.spec == DataSpec((Vector(2),), Classes(3))
    assert settings.infer_pegs  # as norm hangs modules
    assert str(settings.origins["model.hidden"]) == "base.yaml:2:22"


def test_plain_is_complete_and_short(accept: Callable[..., Any]) -> None:
    plain = accept(with_(regularizers={"drop": {}}, trackers={"mine": {"name": "board"}})).plain
    assert plain["name"] == "run"
    assert plain["model"] == {
        "name": "dense",
        "weights": None,
        "infer_pegs": True,
        "hidden": [64],
        "activation": "relu",
        "bias": True,
    }
    assert plain["optimizer"] == {"name": "descent", "lr": 0.1, "momentum": 0.0, "schedule": None}
    assert plain["regularizers"] == {"drop": {"p": 0.5, "sites": ["hidden"]}}
    assert plain["trackers"] == {"mine": {"name": "board", "project": None, "mode": "online"}}
    assert plain["objective"] == {"name": "entropy"}


def test_infer_pegs_is_off_where_nothing_hangs(accept: Callable[..., Any]) -> None:
    assert not accept(with_(regularizers={"soften": {}})).infer_pegs
    assert not accept(
        with_(regularizers={"drop": {}}, model={"name": "dense", "infer_pegs": False})
    ).infer_pegs


def test_the_name_of_a_run_comes_from_the_file(registry: Registry, tmp_path: Path) -> None:
    text = "data: spots\nmodel: dense\noptimizer: {name: descent, lr: 1}\n"
    for stem, name in (("base-1", "base-1"), ("my run (2)", "my-run-2"), ("___", "run")):
        path = tmp_path / f"{stem}.yaml"
        path.write_text(text)
        assert check(path, (), registry).name == name


def test_loaded_configs_can_be_checked(registry: Registry) -> None:
    assert check(load(BASE), registry=registry).name == "run"


def test_a_name_that_two_plugins_offer_must_be_qualified(registry: Registry) -> None:
    both = only(Model("dense", NoKeys, build), base=registry)
    with pytest.raises(ConfigError) as raised:
        check(BASE, registry=both)
    (mistake,) = raised.value.mistakes
    assert "2 plugins offer the model 'dense'" in mistake.message
    assert "acme-more:dense" in mistake.expected
    settings = check(with_(model="acme-more:dense"), registry=both)
    assert settings.plain["model"]["name"] == "acme-more:dense"
    assert check(settings.plain, registry=both).model == settings.model


def test_a_model_that_cannot_read_the_data_names_those_that_can(refuse: Callable[..., list[Any]]) -> None:
    (mistake,) = refuse(with_(model="conv"))
    assert mistake.message == "model 'conv' reads Image, but 'spots' gives Vector(2)"
    assert mistake.expected == "a model for Vector(2) -> Classes(3): anything, dense"


def test_a_model_that_predicts_something_else(registry: Registry) -> None:
    more = only(Model("labels_only", NoKeys, build, targets=(Labels,)), base=registry)
    with pytest.raises(ConfigError, match=r"predicts Labels, but the target of 'spots' is Classes\(3\)"):
        check(with_(model="labels_only"), registry=more)


def test_a_trick_for_other_targets_is_told(refuse: Callable[..., list[Any]]) -> None:
    (mistake,) = refuse(with_(data="prices", regularizers={"soften": {}}))
    assert "regularizer 'soften' works on Classes, but the target of 'prices' is Values(1)" in str(mistake)
    assert "take it out: soften: null" in str(mistake)


def test_no_objective_for_a_target(refuse: Callable[..., list[Any]]) -> None:
    (mistake,) = refuse(with_(data="tags"))
    assert "no installed objective is the default for the target Labels(3)" in mistake.message
    assert mistake.expected == "an objective that takes it; none is installed"


def test_without_a_target_only_objectives_that_need_none_are_named(registry: Registry) -> None:
    data = Dataset("bare", NoKeys, build, spec=lambda config: DataSpec((Vector(2),), None))
    more = only(data, ObjectivePart("free", NoKeys, build), base=registry)
    with pytest.raises(ConfigError) as caught:
        check(with_(data="bare"), registry=more)
    assert [m.expected for m in caught.value.mistakes] == ["free, by name"]
    with pytest.raises(ConfigError) as caught:
        check(with_(data="bare", objective="entropy"), registry=more)
    (mistake,) = caught.value.mistakes
    assert mistake.expected == "objectives for data without a target: free" and not mistake.hint


def test_several_objectives_for_a_target(registry: Registry) -> None:
    more = only(ObjectivePart("other", NoKeys, build, default_for=(Classes,)), base=registry)
    with pytest.raises(
        ConfigError, match=r"2 objectives are made for the target Classes\(3\): entropy, other"
    ):
        check(BASE, registry=more)
    assert check(with_(objective="other"), registry=more).objective.entry.part.name == "other"


def test_the_rules_of_the_default_objective_are_asked_too(registry: Registry) -> None:
    def look(config: Any, facts: Any) -> list[Problem]:
        return [Problem(f"not with {facts.model.name}")]

    more = only(ObjectivePart("own", NoKeys, build, default_for=(Labels,), check=look), base=registry)
    with pytest.raises(ConfigError, match="not with dense"):
        check(with_(data="tags"), registry=more)


def test_the_objective_for_the_exact_target_wins(registry: Registry) -> None:
    @dataclass(frozen=True)
    class Grades(Classes):
        """Ordered classes."""

    def spec(config: Any) -> DataSpec:
        return DataSpec((Vector(2),), Grades(5))

    data = Dataset("grades", NoKeys, build, spec=spec)
    assert (
        check(with_(data="grades"), registry=only(data, base=registry)).objective.entry.part.name == "entropy"
    )
    ordinal = ObjectivePart("ordinal", NoKeys, build, default_for=(Grades,))
    settings = check(with_(data="grades"), registry=only(data, ordinal, base=registry))
    assert settings.objective.entry.part.name == "ordinal"


def test_what_waits_for_the_data_is_checked_once_it_is_read(accept: Callable[..., Any]) -> None:
    settings = accept(with_(data={"name": "table", "path": "x"}, regularizers={"soften": {}}))
    assert settings.spec is None and settings.objective is None and "objective" not in settings.plain
    spec = DataSpec((Image(1, 4, 4),), Classes(2))
    assert refine(settings, spec).objective.entry.part.name == "entropy"
    refined = refine(settings, spec)
    assert refined.spec == spec and refined.plain["objective"] == {"name": "entropy"}
    assert refined.regularizers == settings.regularizers
    with pytest.raises(ConfigError, match="now that its data is read") as raised:
        refine(settings, DataSpec((Vector(2),), Values(1)))
    assert "regularizers.soften" in str(raised.value)


def test_what_a_config_leaves_out_has_a_place_once_the_data_is_read(accept: Callable[..., Any]) -> None:
    settings = accept("data: {name: table, path: x}\nmodel: dense\noptimizer: {name: descent, lr: 1}\n")
    with pytest.raises(ConfigError) as raised:
        refine(settings, DataSpec((Vector(2),), None))
    assert [(m.path, str(m.origin)) for m in raised.value.mistakes] == [("objective", "cfg.yaml:1:1")]


def test_checks_of_records_see_the_rest_of_the_plan(registry: Registry) -> None:
    seen = []

    def look(config: Any, facts: Any) -> list[Problem]:
        seen.append(facts)
        return [Problem("no good", field="", expected="better", hint="try")]

    more = only(Regularizer("looks", NoKeys, build, check=look), base=registry)
    with pytest.raises(ConfigError, match="no good\n    expected better\n    try"):
        check(with_(regularizers={"looks": {}, "drop": {}}), registry=more)
    (facts,) = seen
    assert facts.tricks == ("drop", "looks")
    assert (facts.model.name, facts.optimizer.name, facts.objective.name) == ("dense", "descent", "entropy")
    assert facts.spec == DataSpec((Vector(2),), Classes(3))


@pytest.mark.parametrize("answer", [["text"], 5, [None]])
def test_a_check_that_answers_nonsense_is_the_plugins_defect(registry: Registry, answer: Any) -> None:
    more = only(Regularizer("odd", NoKeys, build, check=lambda c, f: answer), base=registry)
    with pytest.raises(ConfigError, match=r"regularizer 'odd' of acme-more 2.0: TypeError"):
        check(with_(regularizers={"odd": {}}), registry=more)


def test_a_check_may_answer_none(registry: Registry) -> None:
    fine = Regularizer("fine", NoKeys, build, check=lambda c, f: None, stages={"after_eval": "stop"})  # type: ignore[arg-type, return-value]
    assert check(with_(regularizers={"fine": {}}), registry=only(fine, base=registry))


def test_a_config_class_with_a_broken_annotation_is_the_plugins_defect(registry: Registry) -> None:
    @dataclass(frozen=True)
    class Broken:
        x: Nowhere = None  # type: ignore[name-defined]  # noqa: F821

    more = only(Model("broken", Broken, build), base=registry)
    with pytest.raises(ConfigError, match=r"its config class failed in model 'broken'.*Nowhere"):
        check(with_(model="broken"), registry=more)
    with pytest.raises(ConfigError, match="unknown model 'brokn'"):
        check(with_(model={"name": "brokn", "x": 1}), registry=more)


def test_a_spec_of_the_wrong_type_is_the_plugins_defect(registry: Registry) -> None:
    more = only(Dataset("odd", NoKeys, build, spec=lambda c: 5), base=registry)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="expected a DataSpec"):
        check(with_(data="odd"), registry=more)


def test_a_deprecated_part_warns_where_it_is_named(registry: Registry) -> None:
    more = only(Optimizer("old", NoKeys, build, deprecated="use descent"), base=registry)
    with pytest.warns(FutureWarning, match="optimizer 'old' is deprecated: use descent"):
        check(with_(optimizer="old"), registry=more)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(BASE, registry=more)


def test_a_file_that_cannot_be_read_leaves_no_mistakes_about_what_it_might_hold(refuse: Any) -> None:
    mistakes = refuse(
        "extends: [nope.yaml, bad.yaml]\ntrainer: {epoch: 2}\noptimizer: {lr: x}\n", bad="data: [\n"
    )
    assert [m.path for m in mistakes] == ["extends", "trainer.epoch", ""]


def test_a_repaired_value_is_not_complained_about_twice(refuse: Any) -> None:
    text = "data: spots\nmodel: {name: !!x dense, hidden: 3}\noptimizer: {name: descent, lr: ${x}, lr: 2}\n"
    assert [m.path for m in refuse(text)] == ["model.name", "optimizer.lr", "optimizer.lr"]


def test_inherited_mistakes_of_an_optimizer_are_told_once(refuse: Any) -> None:
    mistakes = refuse(
        with_(
            optimizer={
                "name": "descent",
                "lr": -1,
                "players": {"a": {"momentum": 2}, "b": {"lr": -2}, "c": 5},
            }
        )
    )
    assert {m.path for m in mistakes} == {
        "optimizer.lr",
        "optimizer.players.a.momentum",
        "optimizer.players.b.lr",
        "optimizer.players.c",
    }
    assert len(mistakes) == 4
    (mistake,) = refuse(with_(optimizer={"name": "descent", "lr": 1, "players": [1]}))
    assert "a mapping of players" in mistake.expected
    (mistake,) = refuse(with_(optimizer={"name": "descent", "lr": 1, "players": {"a": {"schedule": "wav"}}}))
    assert mistake.nearest == ("wave",)


def test_a_key_of_a_regularizer_must_fit_into_names_of_parameters(refuse: Any) -> None:
    (mistake,) = refuse(with_(regularizers={"a.b": {"name": "drop"}}))
    assert "'a.b' cannot be a key" in mistake.message


def test_the_report_counts_and_heads(refuse: Any, accept: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        accept("sed: 1\ndata: spots\nmodel: dense\noptimizer: {name: descent, lr: x}\n")
    assert str(raised.value).splitlines()[:4] == [
        "2 mistakes in cfg.yaml",
        "",
        "cfg.yaml:1:1: sed",
        "    unknown key 'sed' at the top of the config; did you mean 'seed'?",
    ]
    with pytest.raises(ConfigError, match=r"^1 mistake in the config\n\nconfig: optimizer.lr\n"):
        accept(with_(optimizer={"name": "descent", "lr": "x"}))


PLUGIN = """
from dataclasses import dataclass
from pegboard import Model, hookimpl

@dataclass(frozen=True)
class Tiny:
    '''A tiny model.'''

    size: int = 1  # how tiny

@hookimpl
def pegboard_models():
    return [Model("tiny-local-model", Tiny, lambda config, context: None)]
"""


@pytest.mark.parametrize(
    ("changes", "pieces"),
    [
        ({"regularizers": {"two": {}, "one": {}}}, ("'one' works on", "'two' works on")),
        (
            {
                "data": {"name": "spots", "nois": 1, "batch_size": 0},
                "regularizers": {"nothing": {}, "norm": {"p": 1, "q": 2}},
                "trainer": {"steps": 0, "epoks": 1},
                "seeed": 1,
            },
            ("'nois'", "'nothing'", "'q'", "'epoks'", "'seeed'"),
        ),
    ],
    ids=("tricks that do not fit", "keys and values"),
)
def test_the_order_of_a_mapping_never_changes_the_report(
    registry: Registry, changes: dict[str, Any], pieces: tuple[str, ...]
) -> None:
    def backwards(node: Any) -> Any:
        return {k: backwards(node[k]) for k in reversed(node)} if isinstance(node, dict) else node

    misfits = (
        Regularizer("one", config=NoKeys, build=build, stages={}, inputs=(Image,)),
        Regularizer("two", config=NoKeys, build=build, stages={}, targets=(Values,)),
    )
    config, reports = with_(**changes), []
    for given in (config, backwards(config)):
        with pytest.raises(ConfigError) as caught:
            check(given, registry=only(*misfits, base=registry))
        reports.append(str(caught.value))
    assert all(piece in reports[0] for piece in pieces)
    assert reports[0] == reports[1]


def test_local_plugins_are_found_beside_the_config_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.py").write_text(PLUGIN)
    config = tmp_path / "sub" / "cfg.yaml"
    config.write_text("plugins: {local: [mine.py]}\nmodel: {name: tiny-local-model, sise: 3}\n")
    with pytest.raises(ConfigError) as raised:
        check(config)
    told = {m.path: m for m in raised.value.mistakes}
    assert told["model.sise"].nearest == ("size",)
    assert set(told) == {"model.sise", "data", "optimizer"}


@pytest.mark.parametrize(
    ("plugins", "path", "piece"),
    [
        ("{local: [mien.py]}", "plugins.local.0", "did you mean 'mine.py'?"),
        ("{local: [broken.py]}", "plugins.local.0", "did not load (import): SyntaxError"),
        ("{local: mine.py}", "plugins.local", "in brackets: local: [mine.py]"),
        ("{disable: [no-such-plugin]}", "plugins.disable.0", "not installed"),
        ("{disabled: []}", "plugins.disabled", "did you mean 'disable'?"),
        ("[mine.py]", "plugins", "found the list"),
    ],
)
def test_plugins_that_are_not_there(tmp_path: Path, plugins: str, path: str, piece: str) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    (tmp_path / "broken.py").write_text("def (")
    config = tmp_path / "cfg.yaml"
    config.write_text(f"plugins: {plugins}\n")
    with pytest.raises(ConfigError) as raised:
        check(config)
    (mistake,) = [m for m in raised.value.mistakes if m.path.startswith("plugins")]
    assert mistake.path == path and piece in str(mistake)


def test_the_strict_switch_of_the_environment_is_no_mistake_of_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pegboard.base.errors import PegboardError

    monkeypatch.setenv("PEGBOARD_PLUGINS", "no-such-plugin")
    with pytest.raises(PegboardError, match="PEGBOARD_PLUGINS names the plugin") as raised:
        check(BASE)
    assert not isinstance(raised.value, ConfigError)
