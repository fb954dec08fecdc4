"""Settings without effect, and names that the objective does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from pegboard.config.check import ConfigError, check, refine
from pegboard.config.errors import Mistake
from pegboard.contract.records import Dataset, Facts, Ge, ObjectivePart, Problem, Regularizer, Schedule
from pegboard.contract.specs import Classes, DataSpec, Vector
from pegboard.registry.discovery import Plugin, Registry

Refuse = Callable[..., list[Mistake]]


@dataclass(frozen=True)
class Plain:
    """No keys at all."""


@dataclass(frozen=True)
class Ramp:
    """Grows for some steps."""

    steps: Annotated[int, Ge(0)] = 0


def ramp(config: Ramp, facts: Facts) -> Iterable[Problem]:
    if facts.steps is not None and config.steps >= facts.steps:
        yield Problem(f"a ramp of {config.steps} steps in a run of {facts.steps}", "steps")


def alone(config: Plain, facts: Facts) -> Iterable[Problem]:
    if facts.smallest_batch == 1:
        yield Problem("one sample has no variance")


def none(config: Any, context: Any) -> None:
    return None


@pytest.fixture
def knowing(registry: Registry) -> Registry:
    """Fakes of which more is known before the data is read."""
    spec = DataSpec((Vector(2),), Classes(3))
    parts = [
        Dataset("counted", Plain, none, spec=lambda c: spec, samples=lambda c, fold: (101, 20, 30)),
        ObjectivePart(
            "game",
            Plain,
            none,
            targets=(Classes,),
            players=("critic", "maker"),
            metrics=lambda c, target: ("distance", f"top{target.size}"),
        ),
        Schedule("ramp", Ramp, none, check=ramp),
        Regularizer("variance", Plain, none, check=alone, stages={"edit_loss": "term"}),
    ]
    return Registry([*registry.plugins, Plugin("more", "acme-more", "1", status="ready", parts=parts)])


@pytest.mark.parametrize(
    ("old", "new", "path", "said"),
    [
        ("epochs: 2", "epochs: 2, steps_per_call: 8", "steps_per_call", "compile is off"),
        ("epochs: 2", "epochs: 2, steps_per_call: 8, compile: model", "steps_per_call", "compile is model"),
        ("epochs: 2", "epochs: 2, compile_mode: max-autotune", "compile_mode", "nothing is compiled"),
        ("epochs: 2", "epochs: 2, clip_by: value", "clip_by", "it has no effect"),
        ("epochs: 2", "epochs: 2, mode: max", "mode", "no figure is named"),
        ("epochs: 2", "epochs: 2, channels_last: true", "channels_last", "no pictures"),
    ],
)
def test_a_setting_of_the_trainer_without_effect_is_a_mistake(
    refuse: Refuse, base: str, old: str, new: str, path: str, said: str
) -> None:
    (mistake,) = refuse(base.replace(old, new))
    assert mistake.path == f"trainer.{path}" and said in mistake.message
    assert mistake.origin is not None and mistake.origin.line == 10 and mistake.expected


@pytest.mark.parametrize(
    ("new", "path", "said"),
    [
        ("batch_size: 64, batch_schedule: {2: 128}", "batch_schedule.2", "the last is epoch 1"),
        ("batch_size: all, drop_last: true", "drop_last", "whole training split"),
        ("batch_size: 64, lengths: pad", "lengths", "one shape"),
    ],
)
def test_a_setting_of_the_data_without_effect_is_a_mistake(
    refuse: Refuse, base: str, new: str, path: str, said: str
) -> None:
    (mistake,) = refuse(base.replace("batch_size: 64", new))
    assert mistake.path == f"data.{path}" and said in mistake.message
    assert mistake.origin is not None and mistake.origin.line == 2


@pytest.mark.parametrize(
    ("trainer", "beyond"),
    [
        ("steps: 6", False),  # two updates an epoch: the last is epoch 2
        ("steps: 4", True),
        ("steps: 4, epochs: 9", True),
        ("steps: 2, accumulate: 2", True),
        ("steps: 3, accumulate: 2", False),
    ],
)
def test_a_schedule_of_batches_past_the_last_update_is_a_mistake(
    accept: Any, base: str, knowing: Registry, trainer: str, beyond: bool
) -> None:
    text = base.replace("spots", "counted").replace(
        "batch_size: 64", "batch_size: 64, batch_schedule: {2: 128}"
    )
    text = text.replace("epochs: 2", trainer)
    if not beyond:
        assert run(text, knowing).trainer.steps
        return
    with pytest.raises(
        ConfigError, match=r"data.batch_schedule.2\n.*epoch 2 on, but .*the last is epoch 1"
    ) as raised:
        run(text, knowing)
    (mistake,) = raised.value.mistakes
    assert "more trainer.steps" in mistake.hint


def test_a_wrong_field_of_the_trainer_hides_no_mistake_of_the_others(
    accept: Any, base: str, knowing: Registry
) -> None:
    wrong = "epochs: 0, device: gpu, monitor: val/top2, steps_per_call: 8"
    for trainer, also in (
        (wrong, []),
        (wrong.replace("steps_per_call", "compil: step, steps_per_call"), ["compil"]),
    ):
        with pytest.raises(ConfigError) as raised:
            run(base.replace("epochs: 2", trainer) + "objective: game\n", knowing)
        found = {m.path.removeprefix("trainer.") for m in raised.value.mistakes}
        assert found == {
            "epochs",
            "device",
            "monitor",
            *also,
        }  # whether a step is one graph is not known then
    with pytest.raises(ConfigError) as raised:
        run(base.replace("epochs: 2", "epochs: 2, device: gpu, steps_per_call: 8"), knowing)
    assert [m.path for m in raised.value.mistakes] == ["trainer.device", "trainer.steps_per_call"]


def test_what_players_have_from_all_is_one_mistake(accept: Any, base: str, knowing: Registry) -> None:
    text = base.replace("spots", "counted").replace(
        "lr: 1e-3", "lr: 1e-3, schedule: {name: ramp, steps: 90}, players: {maker: {lr: 1}, critic: {lr: 2}}"
    )
    with pytest.raises(ConfigError) as raised:
        run(text + "objective: game\n", knowing)
    assert [m.path for m in raised.value.mistakes] == ["optimizer.schedule.steps"]
    own = text.replace("critic: {lr: 2}", "critic: {schedule: {steps: 80}}")
    with pytest.raises(ConfigError) as raised:
        run(own + "objective: game\n", knowing)
    paths = [m.path for m in raised.value.mistakes]
    assert paths == ["optimizer.schedule.steps", "optimizer.players.critic.schedule.steps"]


def test_an_unknown_key_hides_no_mistake_of_the_keys_beside_it(refuse: Refuse, base: str) -> None:
    trainer = "epochs: 2, zebra: 1, steps_per_call: 8, folds: 3, fold: 7"
    found = refuse(base.replace("epochs: 2", trainer))
    keys = ("zebra", "steps_per_call", "fold")
    assert {m.path for m in found} == {f"trainer.{key}" for key in keys}


def test_a_key_that_was_meant_for_another_is_one_mistake(refuse: Refuse, base: str) -> None:
    (mistake,) = refuse(base.replace("epochs: 2", "epochz: 2"))  # and not the lack of epochs beside it
    assert mistake.path == "trainer.epochz" and mistake.nearest == ("epochs",)


def test_pictures_of_a_model_without_samples_are_one_mistake(refuse: Refuse, base: str) -> None:
    (mistake,) = refuse(base.replace("epochs: 2", "epochs: 2, sample_every: 9"))
    assert mistake.path == "trainer.sample_every" and "generates no samples" in mistake.message


def test_summing_up_one_batch_has_no_effect(refuse: Refuse, base: str) -> None:
    text = base.replace("batch_size: 64", "batch_size: all").replace("epochs: 2", "epochs: 2, accumulate: 4")
    (mistake,) = refuse(text)
    assert mistake.path == "trainer.accumulate" and "one batch" in mistake.message


@pytest.mark.parametrize(
    "trainer",
    [
        "epochs: 2, steps_per_call: 8, compile: step",
        "epochs: 2, steps_per_call: 8, compile: auto",
        "epochs: 2, compile: model, compile_mode: max-autotune",
        "epochs: 2, clip_by: value, clip: 1",
        "epochs: 2, mode: max, monitor: val/accuracy",
        "epochs: 2, precision: tf32",
        "epochs: 2, eval_every: 2",
        "epochs: 2, save_every: 2",
        "steps: 20, save_every: 20",
        "steps: 20, eval_every: 200",
        "steps: 20, log_every: 20",
        "steps: 20",
    ],
)
def test_a_setting_that_acts_is_right(accept: Any, base: str, trainer: str) -> None:
    settings = accept(base.replace("epochs: 2", trainer))
    assert settings.notes == ()


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ("epochs: 2, eval_every: 3", "trainer.eval_every: found 3, and the run has 2 epochs"),
        ("epochs: 1, eval_every: 3", "the run has 1 epoch: it is evaluated at its end alone"),
        ("steps: 20, log_every: 21", "the run has 20 updates: its loss is logged at its end alone"),
        ("steps: 20, save_every: 21", "it is saved after evaluations and at its end alone"),
    ],
)
def test_what_happens_at_the_end_alone_is_warned_of(accept: Any, base: str, trainer: str, said: str) -> None:
    (note,) = accept(base.replace("epochs: 2", trainer)).notes
    assert note.startswith("cfg.yaml:10:") and said in note


def run(text: str, registry: Registry, *words: str) -> Any:
    from pathlib import Path

    Path("cfg.yaml").write_text(text, "utf-8")
    return check("cfg.yaml", words, registry)


def test_a_part_hears_how_long_the_run_is(accept: Any, base: str, knowing: Registry) -> None:
    ramped = base.replace("lr: 1e-3", "lr: 1e-3, schedule: {name: ramp, steps: 4}").replace(
        "spots", "counted"
    )
    run(ramped.replace("epochs: 2", "epochs: 3"), knowing)  # two batches an epoch
    with pytest.raises(ConfigError, match=r"cfg.yaml:7:68: .*schedule.steps\n.*4 steps in a run of 4"):
        run(ramped, knowing)


def test_a_trial_is_warned_of_what_it_does_not_reach(accept: Any, base: str, knowing: Registry) -> None:
    """A run that the command line makes shorter is a trial, and may be shorter than what its config has."""
    text = base.replace("lr: 1e-3", "lr: 1e-3, schedule: {name: ramp, steps: 40}")
    text = text.replace("batch_size: 64", "batch_size: 64, batch_schedule: {5: 128}").replace(
        "epochs: 2", "epochs: 50, save_every: 60"
    )
    assert run(text, knowing).notes == ()
    notes = run(text, knowing, "trainer.steps=10", "trainer.epochs=1").notes
    assert [note.split(": ")[1] for note in notes] == [
        "optimizer.schedule.steps",
        "data.batch_schedule.5",
        "trainer.save_every",
    ]
    assert notes[0].startswith("cfg.yaml:7:68: ") and "a run of 10" in notes[0]
    with pytest.raises(ConfigError, match="command line, 'optimizer.schedule.steps=99'"):
        run(text, knowing, "trainer.steps=10", "optimizer.schedule.steps=99")  # said together, both are meant


def test_the_data_says_what_only_it_knows(accept: Any, base: str, knowing: Registry) -> None:
    """Once the training split is counted, its mistakes have their places all the same, all at once."""
    text = base.replace("lr: 1e-3", "lr: 1e-3, schedule: {name: ramp, steps: 40}")
    text = text + "  # end\n"
    text = text.replace("drop: {p: 0.2}", "variance: {}").replace("batch_size: 64", "batch_size: 10")
    settings = run(text, knowing)
    refine(settings, settings.spec, 1000)
    with pytest.raises(ConfigError, match="now that its data is read") as raised:
        refine(settings, settings.spec, 101)
    assert [(m.path, str(m.origin)) for m in raised.value.mistakes] == [
        ("optimizer.schedule.steps", "cfg.yaml:7:68"),
        ("regularizers.variance", "cfg.yaml:9:3"),
    ]


@pytest.mark.parametrize(
    ("size", "more", "wrong"),
    [
        ("1", "", True),
        ("50", "", True),
        ("100", ", drop_last: true", False),
        ("25", "", True),
        ("64", "", False),
    ],
)
def test_a_part_hears_of_the_smallest_batch(
    accept: Any, base: str, knowing: Registry, size: str, more: str, wrong: bool
) -> None:
    text = base.replace("drop: {p: 0.2}", "variance: {}").replace(
        "batch_size: 64", f"batch_size: {size}{more}"
    )
    text = text.replace("spots", "counted")
    if wrong:
        with pytest.raises(ConfigError, match="no variance"):
            run(text, knowing)
    else:
        run(text, knowing)


def test_a_run_that_goes_on_is_not_judged_again(accept: Any, base: str, knowing: Registry) -> None:
    text = base.replace("epochs: 2", "epochs: 2, clip_by: value, compile_mode: max-autotune")
    with pytest.raises(ConfigError):
        run(text, knowing)
    assert check("cfg.yaml", (), knowing, begun=True).trainer.compile_mode == "max-autotune"


@pytest.mark.parametrize("word", ["monitor: val/distanc", "monitor: distance", "monitor: test/distance"])
def test_a_figure_that_the_objective_does_not_give_is_a_mistake(
    accept: Any, base: str, knowing: Registry, word: str
) -> None:
    text = base.replace("epochs: 2", f"epochs: 2, {word}") + "objective: game\n"
    with pytest.raises(ConfigError) as raised:
        run(text, knowing)
    (mistake,) = raised.value.mistakes
    assert str(mistake.origin) == "cfg.yaml:10:31" and mistake.path == "trainer.monitor"
    assert mistake.nearest[0] == "val/distance"
    assert "train/critic/loss" in mistake.expected and "val/top3" in mistake.expected
    for right in ("val/distance", "val/loss", "train/maker/loss", "val/top3"):
        run(text.replace(word, f"monitor: {right}"), knowing)


def test_no_figure_of_an_empty_validation_split_chooses(accept: Any, base: str, knowing: Registry) -> None:
    spec = DataSpec((Vector(2),), Classes(3))
    parts = [Dataset("whole", Plain, none, spec=lambda c: spec, samples=lambda c, fold: (101, 0, 30))]
    whole = Registry([*knowing.plugins, Plugin("whole", "whole", "1", status="ready", parts=parts)])
    text = base.replace("epochs: 2", "epochs: 2, monitor: val/loss") + "objective: game\n"
    settings = run(text, whole)  # spots do not say how many validate
    refine(settings, spec, 101, (), True)
    folds = text.replace("monitor", "folds: 3, monitor").replace("spots", "whole")
    assert run(folds, whole).trainer.folds == 3  # each of them validates
    for late in (False, True):
        with pytest.raises(ConfigError) as raised:
            if late:
                refine(settings, spec, 101, (), False)
            else:
                run(text.replace("spots", "whole"), whole)
        (mistake,) = raised.value.mistakes
        assert str(mistake.origin) == "cfg.yaml:10:31" and mistake.message.endswith("split is empty")
        assert mistake.expected == "one of train/critic/loss, train/maker/loss"


def test_players_that_the_objective_does_not_have_are_mistakes(
    accept: Any, base: str, knowing: Registry
) -> None:
    text = base.replace("lr: 1e-3", "lr: 1e-3, players: {makr: {lr: 1}, critic: {lr: 1}}")
    text = text.replace("drop: {p: 0.2}", "drop: {p: 0.2, players: [critic, model]}") + "objective: game\n"
    with pytest.raises(ConfigError) as raised:
        run(text, knowing)
    found = [(m.path, str(m.origin), m.nearest) for m in raised.value.mistakes]
    assert found == [
        ("optimizer.players.makr", "cfg.yaml:7:48", ("maker",)),
        ("regularizers.drop.players.1", "cfg.yaml:9:36", ()),
    ]
    assert all("critic, maker" in m.expected for m in raised.value.mistakes)


def test_half_precision_needs_an_optimizer_of_one_loss(accept: Any, base: str, knowing: Registry) -> None:
    (entry,) = [e for e in knowing.entries("optimizer") if e.part.name == "descent"]
    again = replace(entry.part, name="search", closure=True)
    more = Registry([*knowing.plugins, Plugin("c", "acme-c", "1", status="ready", parts=[again])])
    text = base.replace("descent", "search").replace("epochs: 2", "epochs: 2, precision: fp16")
    with pytest.raises(ConfigError, match=r"10:33: trainer.precision\n.*evaluates the loss again"):
        run(text, more)


def test_what_is_switched_off_on_the_command_line_is_a_warning(accept: Any, base: str) -> None:
    text = base.replace("epochs: 2", "epochs: 2, compile: step, steps_per_call: 8, clip: 1, clip_by: value")
    assert accept(text).notes == ()
    (note,) = accept(text, "trainer.compile=off").notes
    assert "trainer.steps_per_call: found 8, but trainer.compile is off" in note
    assert len(accept(text, "trainer.clip=null").notes) == 1
