"""What pytest sees of the kit."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import PegboardError
from .kit import Case, Kit, Outcome

if TYPE_CHECKING:
    import pytest

ADVICE: list[Outcome] = []  # what was advised and is not so, for the summary


class ConformanceWarning(UserWarning):
    """A check that is advised, or new in this release, found something."""


def conformance(
    plugin: str, fails: Mapping[str, str] | None = None, *, strict: bool = False
) -> Callable[..., None]:
    """A test of every part of a plugin against every check that applies.

    `plugin` is the name of a distribution, of an entry point, or the path of a local file. `fails` maps the
    ids of checks that are known to fail to the reason; one that passes after all is an error. With `strict`,
    or pytest's option `--pegboard-strict`, what is advised fails too.
    """
    import pytest

    file = sys._getframe(1).f_globals.get("__file__")  # of the test
    try:
        cases = Kit(_found(plugin, file), fails).cases()
    except PegboardError as error:
        pytest.fail(str(error), pytrace=False)

    @pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])
    def test_part(case: Case, request: pytest.FixtureRequest) -> None:
        outcome = case.run()
        if case is cases[-1]:
            from .checks.samples import end_workers

            end_workers()
        if outcome.status == "skipped":
            pytest.skip(outcome.message)
        if outcome.status == "declared":
            pytest.xfail(f"{case.declared}: {outcome.message}")
        if outcome.status == "failed":
            if strict or outcome.stops or request.config.getoption("pegboard_strict", default=False):
                pytest.fail(f"{outcome.id} ({outcome.level}): {outcome.message}", pytrace=False)
            ADVICE.append(outcome)
            warnings.warn(
                f"{outcome.id} ({outcome.level}): {outcome.message}", ConformanceWarning, stacklevel=1
            )

    return test_part


def _found(plugin: str, test: str | None) -> str:
    """The path of a local file, which may stand beside the test or in the folder that pytest runs in."""
    if not plugin.endswith(".py"):
        return plugin
    places = [Path(test).absolute().parent / plugin] if test else []
    places.append(Path(plugin).absolute())
    for path in places:
        if path.is_file():
            return str(path)
    looked = " and ".join(dict.fromkeys(str(path.parent) for path in places))
    raise PegboardError(f"no file {plugin!r}: looked in {looked}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pegboard")
    group.addoption(
        "--pegboard-strict", action="store_true", help="fail on what is advised and on new checks too"
    )


def pytest_configure(config: pytest.Config) -> None:
    ADVICE.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was advised, once more, where it is read."""
    if ADVICE:
        terminalreporter.section("pegboard: advised, and new checks that will be required")
        for outcome in ADVICE:
            terminalreporter.line(f"{outcome.id}: {outcome.message}")
