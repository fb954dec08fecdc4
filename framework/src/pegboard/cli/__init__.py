"""The command line. Each command is a small module here; none imports torch before it runs."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

COMMANDS = (
    "train", "resume", "eval", "predict", "sample", "probe", "report", "compare", "explain", "check", "show",
    "plugins", "schema", "zoo", "new",
)  # fmt: skip
NO_PLUGINS = "--no-plugins"


def make_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser; only the module of the command that was called is imported."""
    from ..base.version import __version__

    parser = argparse.ArgumentParser(
        prog="pegboard",
        description="Compose, check, explain and train PyTorch models from plugins.",
        epilog="example: pegboard train configs/quickstart.yaml trainer.epochs=5",
    )
    parser.add_argument("--version", action="version", version=f"pegboard {__version__}")
    _add_no_plugins(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        module = _module(name)
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"example: {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == command or command is None:
            module.add_arguments(sub)
        _add_no_plugins(sub)
        sub.set_defaults(handler=module.run)
    return parser


def _module(command: str) -> Any:
    return importlib.import_module(f".{command}", __name__)


def _add_no_plugins(parser: argparse.ArgumentParser) -> None:
    """For the help alone: the word is taken out before the others are read, as it may stand anywhere."""
    parser.add_argument(NO_PLUGINS, action="store_true", help="import no installed plugin")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a mistake of the user's is one message on standard error and exit code 2.

    A reader of its output that leaves, as `head` does, has what it wanted: the exit code stays what it is.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what no encoding has
    from ..run.interruption import until_exit

    try:
        with until_exit() if argv is None else nullcontext():
            return _main(argv)
    finally:
        for stream in (sys.stdout, sys.stderr):  # what waits in them would fail when Python ends
            _flush(stream)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _main(argv: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    words = [word for word in given if word != NO_PLUGINS]
    command = next((word for word in words if word in COMMANDS), None)
    parser = make_parser(command)
    _suggest(parser, words)
    args, rest = parser.parse_known_args(words)
    if rest and hasattr(args, "overrides") and not any(word.startswith("-") for word in rest):
        args.overrides += rest  # overrides may stand on both sides of an option
    elif rest:
        parser.exit(2, _unknown(parser, args, words, rest))
    args.process = argv is None  # whether the process is this command and nothing else
    if args.command is None:
        parser.print_help()
        return 0
    with _switched(len(words) < len(given)), _plain_warnings():
        return _handle(args)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """What the core warns of in a config is a line for a person, without the core's own source."""
    core, before = str(Path(__file__).parents[1]) + os.sep, warnings.showwarning

    def show(message: Warning | str, category: type[Warning], file: str, *rest: Any) -> None:
        if issubclass(category, FutureWarning) and file.startswith(core):
            print(f"warning: {message}", file=sys.stderr)
        else:
            before(message, category, file, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield


@contextmanager
def _switched(off: bool) -> Iterator[None]:
    """Plugins off for as long as the command takes, and for the processes that it starts."""
    from ..registry.enabled import NONE

    before = os.environ.get(NONE)
    if off:
        os.environ[NONE] = "1"
    try:
        yield
    finally:
        if off:
            del os.environ[NONE]
            if before is not None:
                os.environ[NONE] = before


def _handle(args: argparse.Namespace) -> int:
    from ..base.errors import PegboardError, no_memory, system_words

    try:
        return int(args.handler(args))
    except PegboardError as error:
        _say(error)
        number = getattr(error, "signal", None)
        return 2 if number is None else 128 + number
    except KeyboardInterrupt as error:
        return 128 + getattr(error, "signal", signal.SIGINT)
    except BrokenPipeError:
        return 0
    except (OSError, MemoryError) as error:  # a folder that is not writable, a disk that is full
        what = (system_words(error) if isinstance(error, OSError) else str(error)) or "out of memory"
        where = getattr(error, "filename", None)
        _say(f"{what}: {where}" if where else what)
        return 2
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("pegboard_"):
            raise
        _say(f"this needs a plugin that is not installed\npip install {str(error.name).replace('_', '-')}")
        return 2
    except RuntimeError as error:
        if not no_memory(error):
            raise
        _say(f"out of memory: {str(error).splitlines()[0]}")
        return 2


def _say(text: object) -> None:
    with suppress(OSError):  # nobody may be there to read it
        print(str(text).encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)


def _unknown(
    parser: argparse.ArgumentParser, args: argparse.Namespace, words: Sequence[str], rest: Sequence[str]
) -> str:
    """What is said of options that a command has not, and of words that it does not take."""
    from ..config.other_trainers import option

    (commands,) = (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    known = [name for name in commands[args.command]._option_string_actions if name.startswith("--")]
    lines = []
    for word in rest:
        if word.startswith("-"):
            after = words[words.index(word) + 1 :]
            hint = option([word, *after], known) if hasattr(args, "config") else ""
            lines.append(f"pegboard {args.command} has no option {word}" + (f": {hint}" if hint else ""))
    if not lines:
        lines = [f"pegboard {args.command} takes no more words: {' '.join(rest)}"]
    return "\n".join([*lines, f"all options: pegboard {args.command} --help", ""])


def _suggest(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """A misspelt command, or action of a command, is answered with the nearest one."""
    plain = [word for word in words if not word.startswith("-")]
    for what, word, names in _named(plain):
        if word not in names:
            from ..base.nearest import nearest

            near = nearest(word, names)
            hint = f", did you mean {near[0]!r}?" if near else ""
            kind = what.rpartition(" ")[2]
            parser.exit(2, f"unknown {what} {word!r}{hint}\n{kind}s: {', '.join(names)}\n")


def _named(plain: Sequence[str]) -> Iterator[tuple[str, str, Sequence[str]]]:
    """What the first words name, and what there is of that."""
    if plain:
        yield "command", plain[0], COMMANDS
    if len(plain) > 1 and (actions := getattr(_module(plain[0]), "ACTIONS", ())):
        yield f"{plain[0]} action", plain[1], actions
