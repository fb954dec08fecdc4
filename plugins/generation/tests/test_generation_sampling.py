"""Who samples a model: what its module offers decides, and a stranger's way needs nothing of the core."""

from __future__ import annotations

from pathlib import Path

import pegboard
import pytest
from light import loaded
from pegboard.cli import main
from pegboard.registry.discovery import Registry

STRANGER = '''
"""A model that composes."""
from dataclasses import dataclass
from pegboard import Model, SampleMethod, hookimpl

@dataclass(frozen=True)
class Melody:
    """Linear, with a way of its own to generate."""

def build(config, context):
    import torch

    class Composer(torch.nn.Linear):
        def compose(self, count):
            return " ".join("cdefgab"[i % 7] for i in range(count))

    return Composer(context.spec.inputs[0].features, context.outputs)

def sample(trained, request):
    yield trained.model.compose(request.count or 3)

@hookimpl
def pegboard_models():
    return [Model("melody", Melody, build)]

@hookimpl
def pegboard_sample_methods():
    return [SampleMethod("compose", sample)]
'''


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    path = tmp_path / "melodies.py"
    path.write_text(STRANGER)
    return path


def trained(root: Path, plugin: Path, model: str = "melody") -> str:
    config = {
        "data": "iris", "model": model, "optimizer": "sgd", "trainer": {"epochs": 1, "device": "cpu"},
        "plugins": {"local": [str(plugin)]},
    }  # fmt: skip
    return str(pegboard.train(config, root=root, quiet=True).folder)


def test_a_model_with_a_way_of_its_own_is_sampled(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "runs", stranger)
    assert main(["sample", run, "-n", "5", "--local", str(stranger)]) == 0
    assert capsys.readouterr().out.endswith("c d e f g\n")
    assert main(["sample", run, "--kind", "samples", "--local", str(stranger)]) == 2
    assert "--kind is for models that generate samples, and 'melody'" in capsys.readouterr().err


def test_its_own_plugin_goes_before_others(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger.write_text(STRANGER.replace("compose", "generate"))
    run = trained(tmp_path / "runs", stranger)
    assert main(["sample", run, "--local", str(stranger)]) == 0
    assert capsys.readouterr().out.endswith("c d e\n")


def test_where_what_samples_it_is_not_ready_the_message_names_it(
    stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STRANGER.replace("compose", "generate").replace("def pegboard_sample_methods", "def unused")
    stranger.write_text(text.replace("@hookimpl\ndef unused", "def unused"))
    run = trained(tmp_path / "runs", stranger)
    monkeypatch.setenv("PEGBOARD_PLUGINS_DISABLE", "pegboard-generation")
    assert main(["sample", run, "--local", str(stranger)]) == 2
    message = capsys.readouterr().err
    assert "has a method 'generate', and what samples models by it is part of pegboard-generation" in message
    assert "pip install pegboard-generation, or see: pegboard plugins list" in message


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("'generate'", "returned 'generate', expected SampleMethod records"),
        ("SampleMethod('two words', sample)", "'two words' is not the name of a method"),
        ("SampleMethod('compose', lambda trained: ())", "expected a function of (trained, request)"),
    ],
)
def test_a_record_that_cannot_be_used_is_told(stranger: Path, record: str, reason: str) -> None:
    stranger.write_text(STRANGER.replace('SampleMethod("compose", sample)', record))
    (broken,) = Registry.discover(local=[stranger]).failed([stranger])
    assert reason in broken.reason


def test_a_list_of_plugins_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list"]) == 0
    assert "sample_method generate" in " ".join(capsys.readouterr().out.split())


def test_its_light_module_needs_no_torch() -> None:
    assert not loaded("import pegboard_generation; pegboard_generation.pegboard_sample_methods()")


def test_a_name_that_it_has_not_is_an_attribute_error() -> None:
    import pegboard_generation

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pegboard_generation.nothing  # noqa: B018
