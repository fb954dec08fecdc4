"""What may be given as a config, and what to do with what may not; no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import PegboardError

SHOWN = 60  # characters of a value in a message
MODULE = """a module becomes a part of a config in a file of its own, say my_model.py:

    from dataclasses import dataclass
    from pegboard import Model, hookimpl

    @dataclass(frozen=True)
    class Config:
        \"\"\"What the model can be told, as `width: int = 64`.\"\"\"

    def build(config, context):  # context.spec says what the data holds, context.outputs how many to predict
        from my_code import {name}
        return {name}()

    @hookimpl
    def pegboard_models():
        return [Model("my_model", Config, build)]

and a config names both: {{"model": "my_model", "plugins": {{"local": ["my_model.py"]}}, ...}}"""


def is_module(value: object) -> bool:
    """True for a torch.nn.Module, or a class of them."""
    kind = value if isinstance(value, type) else type(value)
    return any(
        f"{base.__module__}.{base.__qualname__}" == "torch.nn.modules.module.Module" for base in kind.__mro__
    )


def refuse_source(source: object) -> None:
    """Refuse what is neither the path of a config nor a mapping, with what was perhaps meant."""
    if not isinstance(source, str | os.PathLike | Mapping):
        raise PegboardError(
            f"found {kind_of(source)}, expected a config: the path of a YAML file, or a dict\n"
            f"{_instead(source)}"
        )


def refuse_words(words: Sequence[Any]) -> None:
    """Refuse overrides that are no texts."""
    wrong = [word for word in words if not isinstance(word, str)]
    if wrong and is_module(wrong[0]):
        raise PegboardError(f"found {kind_of(wrong[0])} after the config\n{module_hint(wrong[0])}")
    if wrong:
        raise PegboardError(
            f"found {kind_of(wrong[0])}, expected overrides as texts: 'trainer.epochs=3', 'seed=1'\n"
            "a dict of changes is merged into a config before it is given; several texts of a list are "
            "given with a star: *words"
        )


def kind_of(value: object) -> str:
    """What a value is, in a few words."""
    if is_module(value):
        name = (value if isinstance(value, type) else type(value)).__name__
        return f"the torch.nn.Module {name}"
    if value is None:
        return "None"
    text = " ".join(repr(value).split())
    return f"a {type(value).__name__}, {text[:SHOWN] + '...' if len(text) > SHOWN else text}"


def module_hint(value: object) -> str:
    """How a module becomes a part."""
    return MODULE.format(name=(value if isinstance(value, type) else type(value)).__name__)


def _instead(source: object) -> str:
    if is_module(source):
        return module_hint(source)
    if isinstance(source, list | tuple | set):
        items = list(source)
        if items and all(isinstance(item, str) for item in items) and any("=" in item for item in items):
            return f"give its texts one by one: {', '.join(map(repr, items))}"
        return "several configs are several runs: for config in configs: pegboard.train(config)"
    return "what a config may hold: pegboard show"
