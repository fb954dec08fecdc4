"""`pegboard sample`"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ..inference.texts import Written
    from ..inference.trained import Trained

HELP = "Let a trained model generate: texts, pictures or points."
EXAMPLE = """pegboard sample runs/shakespeare/latest --prompt 'ROMEO:' --length 200 --temperature 0.8 -n 3
         pegboard sample runs/translate/latest --prompt 'Ein Hund schläft.' --beams 4
         pegboard sample runs/faces/latest -n 64 -o grid.png
         pegboard sample runs/faces/latest --kind interpolate -o ways.png"""
KINDS = ("samples", "reconstruct", "interpolate", "traverse")
OF_TEXT = ("prompt", "length", "temperature", "top_k", "top_p", "beams")  # options that mean nothing else
BETWEEN = "-" * 20  # two texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole = _number(int, 1)
    parser.add_argument("run", help="a run folder, a checkpoint folder or zoo:NAME")
    parser.add_argument(
        "--prompt",
        action="append",
        default=[],
        metavar="TEXT",
        help="what it goes on from; may be repeated",
    )
    parser.add_argument(
        "-n", "--count", type=whole, help="samples (default: 64), or texts for each prompt (default: 1)"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="new samples, or by the model's codes: samples of the data beside what it makes of them, "
        "ways between two, one number of a code changed (default: samples)",
    )
    parser.add_argument(
        "--split", choices=("train", "val", "test"), default="test", help="of the data (default: test)"
    )
    parser.add_argument("--length", type=whole, help="most symbols (default: 256, or those of the data)")
    parser.add_argument(
        "--temperature", type=_number(float, 0), help="divides the logits; 0 takes the likeliest (default: 1)"
    )
    parser.add_argument("--top-k", type=whole, help="draw among so many of the likeliest symbols")
    parser.add_argument(
        "--top-p", type=_number(float, 1e-6, 1), help="draw among the likeliest of this probability"
    )
    parser.add_argument("--beams", type=whole, help="texts followed at once; nothing is drawn (default: 1)")
    parser.add_argument("--seed", type=_number(int, 0), default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture, a table, .npy, or a text file")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: best")
    parser.add_argument("--device", default="auto", help="default: a GPU where there is one")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")


def _number(kind: type[Any], least: float, most: float | None = None) -> Callable[[str], Any]:
    """A reader of numbers in a range."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= (float("inf") if most is None else most):
            what = "a whole number" if kind is int else "a number"
            upper = "" if most is None else f" and at most {most:g}"
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {what} of at least {least:g}{upper}")
        return value

    return read


def run(args: argparse.Namespace) -> int:
    import sys
    from pathlib import Path

    from ..base.errors import PegboardError
    from ..inference.texts import Writer
    from ..inference.trained import Trained

    trained = Trained(args.run, args.checkpoint, args.device, args.local)
    part: Any = trained.plan.settings.model.entry.part
    if part.samples:
        return _generate(args, trained)
    if args.kind is not None:
        raise PegboardError(
            f"--kind is for models that generate samples, and {part.name!r} of {args.run} does not"
        )
    writer = Writer(trained, args.seed)
    options = {name: getattr(args, name) for name in ("length", "temperature", "top_k", "top_p", "beams")}
    if not args.prompt:
        print(f"without a prompt it begins after {writer.beginning[1]}", file=sys.stderr)
    written = []
    for place, text in enumerate(writer.write(args.prompt, args.count or 1, writer.decoding(**options))):
        written.append(text)
        if not args.output:
            print(*([BETWEEN] if place else []), _shown(text, trained.translates), sep="\n", flush=True)
    if args.output:
        _save(written, Path(args.output), trained.translates)
        print(f"{len(written)} texts in {args.output}")
    return 0


def _generate(args: argparse.Namespace, trained: Trained) -> int:
    """Samples of a model that generates them, in a file."""
    from pathlib import Path

    from ..base.errors import PegboardError
    from ..inference.sample_files import Generator

    if given := [name for name in OF_TEXT if getattr(args, name) not in (None, [])]:
        raise PegboardError(f"--{given[0].replace('_', '-')} is for models of text, and {args.run} is none")
    generator, kind = Generator(trained, args.seed), args.kind or "samples"
    path = Path(args.output or f"{kind}.{'png' if generator.spec.draws_samples() else 'npy'}")
    generator.check(path)
    x, columns = generator.make(kind, args.count or 64, args.split)
    generator.write(x, path, columns)
    print(f"{len(x)} samples in {path}" if kind == "samples" else f"{kind}: {len(x)} in {path}")
    return 0


def _shown(written: Written, translated: bool) -> str:
    return written.text if translated else written.prompt + written.text


def _save(written: list[Written], path: Path, translated: bool) -> None:
    from ..inference.tables import write_table

    if path.suffix in (".csv", ".json"):
        columns = {"prompt": [w.prompt for w in written], "text": [w.text for w in written]}
        write_table(columns, path)
    else:
        path.write_text(f"\n{BETWEEN}\n".join(_shown(w, translated) for w in written) + "\n", "utf-8")
