"""Words of the command line, `a.b=value`, as configs of one key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .errors import Mistake
from .nodes import Origin
from .yaml_reader import Node, read

EXAMPLE = "key=value, as trainer.epochs=3"


def overrides(words: Sequence[str]) -> tuple[list[Node], list[Mistake]]:
    """A small config for each word, and what is wrong with the others."""
    nodes: list[Node] = []
    mistakes: list[Mistake] = []
    for word in _joined(list(words), mistakes):
        wrong = _malformed(word)
        if wrong is not None:
            mistakes.append(wrong)
            continue
        key, _, text = word.partition("=")
        origin = Origin(word=word)
        path = key.strip().split(".")
        data = text.strip().encode("utf-8", "surrogatepass")
        value, found = read(data, lambda *_, o=origin: o, tuple(path))
        if found or value is None:
            message = found[0].message if found else "not YAML"
            mistakes.append(_mistake(word, f"the value cannot be read: {message}", path=".".join(path)))
            continue
        if not text.strip():
            mistakes.append(
                _mistake(word, "nothing stands after '='", f"for none: {word.strip()}null", key.strip())
            )
            continue
        value.key = origin
        for name in reversed(path):
            value = Node({name: value}, origin, origin)
        nodes.append(value)
    return nodes, mistakes


def _joined(words: list[str], mistakes: list[Mistake]) -> Iterator[str]:
    """The words; those of `key = value`, written with spaces, are one mistake and not three."""
    at = 0
    while at < len(words):
        if at + 1 < len(words) and words[at + 1] == "=" and "=" not in words[at]:
            meant = words[at] + "=" + "".join(words[at + 2 : at + 3])
            mistakes.append(_mistake(f"{words[at]} =", "spaces around '='", f"write it as one word: {meant}"))
            at += 3
        else:
            yield words[at]
            at += 1


def _malformed(word: str) -> Mistake | None:
    key, equals, _ = word.partition("=")
    rest = word.lstrip("-+~")
    if word[:1] == "~":
        return _mistake(word, "overrides do not begin with '~'", f"switch a part off: {rest}=null")
    if word[:1] in ("-", "+"):
        meant = rest if "=" in rest else f"{rest}=value"
        return _mistake(word, f"overrides do not begin with {word[0]!r}", f"write {meant}")
    if not equals:
        hint = ""
        if match := re.fullmatch(r"([\w.]+):\s*(\S+)", word):
            hint = f"write {match[1]}={match[2]}"
        elif re.search(r"\.ya?ml$", word):
            hint = "a command takes one config; list the others under its key extends"
        return _mistake(word, "no '=' in it", hint)
    if not key.strip():
        return _mistake(word, "no key before '='")
    if not all(part.strip() and part == part.strip() for part in key.strip().split(".")):
        return _mistake(word, f"the key {key!r} has an empty part", "one dot between names: model.name")
    if key.strip().split(".")[0] == "extends":
        return _mistake(
            word, "'extends' cannot be set on the command line", "write it in a config", "extends"
        )
    return None


def _mistake(word: str, message: str, hint: str = "", path: str = "") -> Mistake:
    expected = "" if path else EXAMPLE
    return Mistake(path=path, message=message, expected=expected, hint=hint, origin=Origin(word=word))
