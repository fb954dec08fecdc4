"""A function of the core is read on one screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pegboard
import pytest

CORE = Path(pegboard.__file__).parent
MOST = 80  # lines, with decorators and docstring


def too_long(text: str) -> Iterator[tuple[int, str, int]]:
    """Line, name and length of functions with too many lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            length = (node.end_lineno or first) - first + 1
            if length > MOST:
                yield first, node.name, length


def test_no_function_of_the_core_is_longer() -> None:
    found = {str(path): [*too_long(path.read_text("utf-8"))] for path in CORE.rglob("*.py")}
    assert len(found) > 100 and {path: long for path, long in found.items() if long} == {}


@pytest.mark.parametrize("lines", [MOST - 2, MOST - 1])
def test_a_longer_one_is_found(lines: int) -> None:
    text = "class A:\n    @property\n    async def f(self):\n" + "        x = 1\n" * lines
    assert [*too_long(text)] == ([] if lines == MOST - 2 else [(2, "f", MOST + 1)])
