"""YAML's own complaints, said so that a person sees what to mend."""

from __future__ import annotations

import re

import yaml

Explained = tuple[int, int, str, str]  # line and column from 1, message, hint

_GLUED = re.compile(r"\s*(- )?[\w.-]+:[^\s:/]")
_QUOTE = "quote a text that begins with this character"


def explain(error: yaml.YAMLError, text: str) -> Explained:
    """Where the mistake is, what it is, and how to mend it."""
    if not isinstance(error, yaml.MarkedYAMLError):
        place = getattr(error, "position", 0)
        place = place if isinstance(place, int) else 0
        line = text.count("\n", 0, place) + 1
        column = place - (text.rfind("\n", 0, place) + 1) + 1
        code = getattr(error, "character", 0)
        return line, column, f"found a control character (#x{code:04x})", "remove it"
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = error.problem or error.context or "not valid YAML"
    lines = text.splitlines()
    if "cannot start any token" in problem:
        return _token(line, column, problem, lines)
    if "mapping values are not allowed" in problem or "could not find expected ':'" in problem:
        return _colon(line, column, problem, lines, error)
    if "expected a single document" in (error.context or ""):
        return line, column, "found a second document after '---'", "a config is one document"
    opened = error.context_mark
    if opened and "scanning a quoted scalar" in (error.context or ""):
        return opened.line + 1, opened.column + 1, "the quote that opens here is never closed", ""
    if opened and "parsing a flow" in (error.context or ""):
        return _bracket(line, column, problem, opened.line + 1, opened.column + 1, error)
    if "block end" in problem:
        return _indentation(line, column, problem, lines)
    if "undefined alias" in problem:
        hint = "an unquoted * refers to an anchor (&name): quote the text if it is meant"
        return line, column, f"YAML: {problem}", hint
    if "sequence entries are not allowed" in problem:
        return line, column, "a list entry '-' on the line of its key", "begin a new line, or write [a, b]"
    return line, column, f"YAML: {problem}", ""


def _token(line: int, column: int, problem: str, lines: list[str]) -> Explained:
    if r"'\t'" in problem:
        return line, column, "found a tab where YAML wants spaces", "indent with spaces"
    found = lines[line - 1][column - 1 :][:1] if line <= len(lines) else ""
    return line, column, f"no YAML value begins with {found!r}", _QUOTE


def _colon(line: int, column: int, problem: str, lines: list[str], error: yaml.MarkedYAMLError) -> Explained:
    """A colon too many or too few; often the line before is the one to mend."""
    start = error.context_mark
    if start is not None:  # a key without its colon
        line, column = start.line + 1, start.column + 1
        here = lines[line - 1] if line <= len(lines) else ""
        if _GLUED.match(here):
            return line, column, "no space after the colon", "write 'key: value'"
        return line, column, f"found {here.strip()[:60]!r} where a key was expected", "write 'key: value'"
    here = lines[line - 1] if line <= len(lines) else ""
    above = next((n for n in range(line - 1, 0, -1) if lines[n - 1].strip()), 0)
    before = lines[above - 1] if above else ""
    if above and _GLUED.match(before) and ": " not in before:
        return above, _indent(before) + 1, "no space after the colon", "write 'key: value'"
    if above and here[: column - 1].count(":") == 0:
        if _indent(here) > _indent(before):
            message = f"indented deeper than line {above}, whose key already has a value"
            return line, _indent(here) + 1, message, f"indent it as line {above}"
        return (
            above,
            _indent(before) + 1,
            f"found {before.strip()[:60]!r} without a colon",
            "write 'key: value'",
        )
    hint = "begin a new line, or quote a text that contains ': '"
    return line, column, "a second colon in one line", hint


def _bracket(
    line: int, column: int, problem: str, start: int, at: int, error: yaml.MarkedYAMLError
) -> Explained:
    if "but got" in problem:
        kind = "{" if "mapping" in (error.context or "") else "["
        return (
            start,
            at,
            f"the {kind!r} that opens here is not closed, or a comma is missing",
            (f"YAML gave up in line {line}, column {column}"),
        )
    if "stream end" in problem:
        return line, column, "the text ends before a bracket is closed", ""
    if "'?'" in problem:
        return line, column, "a value begins with '?'", 'the value is still to be given, or quote it: "???"'
    return line, column, f"YAML: {problem}", "a value is missing between two commas or brackets"


def _indentation(line: int, column: int, problem: str, lines: list[str]) -> Explained:
    here = lines[line - 1].strip()[:1] if line <= len(lines) else ""
    if here in ("]", "}") or "']'" in problem or "'}'" in problem:
        return line, column, "a bracket is closed that was never opened", "remove it"
    hint = "keys of one mapping begin in the same column"
    if "'-'" in problem or here == "-":
        hint = "a list and keys cannot stand side by side"
    return line, column, "the indentation of this line fits no line above it", hint


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
