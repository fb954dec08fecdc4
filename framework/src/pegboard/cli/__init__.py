"""The command line. Each command is a small module here; none imports torch before it runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = (
    "train", "resume", "eval", "predict", "compare", "explain", "check", "show", "plugins", "schema", "zoo",
)  # fmt: skip


def make_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser; only the module of the command that was called is imported."""
    from ..version import __version__

    parser = argparse.ArgumentParser(
        prog="pegboard",
        description="Compose, check, explain and train PyTorch models from plugins.",
        epilog="example: pegboard train configs/quickstart.yaml trainer.epochs=5",
    )
    parser.add_argument("--version", action="version", version=f"pegboard {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)
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
        sub.set_defaults(handler=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a mistake of the user's is one message on standard error and exit code 2."""
    from ..errors import PegboardError, no_memory

    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    words = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in words if word in COMMANDS), None)
    parser = make_parser(command)
    _suggest(parser, words)
    args, rest = parser.parse_known_args(words)
    if rest and hasattr(args, "overrides") and not any(word.startswith("-") for word in rest):
        args.overrides += rest  # overrides may stand on both sides of an option
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}; see pegboard {args.command} --help")
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return int(args.handler(args))
    except PegboardError as error:
        print(error, file=sys.stderr)
        number = getattr(error, "signal", None)
        return 2 if number is None else 128 + number
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError) as error:  # a folder that is not writable, a disk that is full
        what = getattr(error, "strerror", None) or str(error) or "out of memory"
        where = getattr(error, "filename", None)
        print(f"{what}: {where}" if where else what, file=sys.stderr)
        return 2
    except RuntimeError as error:
        if not no_memory(error):
            raise
        print(f"out of memory: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2


def _suggest(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """A misspelt command is answered with the nearest one."""
    word = next((w for w in words if not w.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        from ..nearest import nearest

        near = nearest(word, COMMANDS)
        hint = f", did you mean {near[0]!r}?" if near else ""
        parser.exit(2, f"unknown command {word!r}{hint}\ncommands: {', '.join(COMMANDS)}\n")
