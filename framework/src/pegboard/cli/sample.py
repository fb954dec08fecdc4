"""`pegboard sample`"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

HELP = "Let a trained model generate: texts, pictures or points."
EXAMPLE = """pegboard sample runs/shakespeare/latest --prompt 'ROMEO:' --length 200 --temperature 0.8 -n 3
         pegboard sample runs/translate/latest --prompt 'Ein Hund schläft.' --beams 4
         pegboard sample runs/faces/latest -n 64 -o grid.png
         pegboard sample runs/faces/latest --kind interpolate -o ways.png"""
KINDS = ("samples", "reconstruct", "interpolate", "traverse")
DECODING = ("length", "temperature", "top_k", "top_p", "beams")  # options that say how symbols are chosen


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
    from ..contract.sampling import SampleRequest
    from ..inference.sample_methods import choose_method
    from ..inference.trained import Trained

    trained = Trained(args.run, args.checkpoint, args.device, args.local)
    given = {name: getattr(args, name) for name in DECODING if getattr(args, name) is not None}
    request = SampleRequest(
        prompts=args.prompt,
        count=args.count,
        kind=args.kind,
        split=args.split,
        seed=args.seed,
        output=args.output,
        decoding=given,
    )
    for line in choose_method(trained, request).sample(trained, request):
        print(line, flush=True)
    return 0
