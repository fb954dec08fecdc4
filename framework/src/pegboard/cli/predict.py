"""`pegboard predict`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..contract.results import Decoding
    from ..inference.trained import Trained

HELP = "Predict with a trained run: for a table, pictures or texts, or for a split of its data."
EXAMPLE = """pegboard predict runs/quickstart/latest --input rows.csv -o predictions.csv
         pegboard predict runs/pictures/latest --input photos/ more/one.png
         pegboard predict runs/questions/latest --text 'how far is it to Rome?'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder, a checkpoint folder or zoo:NAME")
    parser.add_argument(
        "--input",
        nargs="+",
        metavar="PATH",
        help="a .csv, .json or .jsonl table with the columns of the data; or files of pictures, of text "
        "or of what else the data set reads, or folders with such files",
    )
    parser.add_argument("--text", action="append", metavar="TEXT", help="a text; may be given again")
    parser.add_argument("--lines", action="store_true", help="each line of a text file is a text of its own")
    parser.add_argument("--split", choices=("train", "val", "test"), default="test", help="without --input")
    parser.add_argument(
        "--beams", type=int, default=1, help="of a translation, followed at once (default: 1)"
    )
    parser.add_argument("-o", "--output", help="a .csv or .json file (default: print CSV)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: best")
    parser.add_argument("--device", default="auto", help="default: a GPU where there is one")
    parser.add_argument("--local", action="append", default=[], metavar="FILE", help="a local plugin to run")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from ..base.errors import PegboardError
    from ..inference.tables import TABLES, write_table

    if args.beams < 1:
        raise PegboardError(f"--beams: found {args.beams}, expected at least 1")
    if args.input and args.text:
        raise PegboardError("give --input or --text, not both")
    paths = list(args.input or ())
    tables = [path for path in paths if Path(path).suffix.lower() in TABLES]
    if args.lines and (not paths or tables):
        raise PegboardError("--lines is for text files: name them after --input")
    from ..inference.trained import Trained

    trained = Trained(args.run, args.checkpoint, args.device, args.local)
    table = _table(trained, paths, tables)
    columns = _answers(args, trained, table, paths)
    text = write_table(columns, Path(args.output) if args.output else None)
    count = len(next(iter(columns.values())))
    print(f"{count} predictions in {args.output}" if args.output else text, end="\n" if args.output else "")
    return 0


def _table(trained: Trained, paths: list[str], tables: list[str]) -> Mapping[str, Sequence[Any]] | None:
    """The rows to answer, as the data set of the run reads files, or from a table; None: from other files."""
    from pathlib import Path

    from ..base.errors import PegboardError
    from ..inference.tables import read_table

    found = trained.read(paths) if paths else None
    if found is not None or not tables:
        return found
    if len(paths) > 1:
        raise PegboardError(f"{tables[0]} is a table, and one table is read at a time: name it alone")
    return read_table(Path(paths[0]))


def _answers(
    args: argparse.Namespace, trained: Trained, table: Mapping[str, Sequence[Any]] | None, paths: list[str]
) -> dict[str, list[Any]]:
    from ..base.errors import PegboardError
    from ..contract.specs import Spec
    from ..inference.tables import given_files, given_texts
    from ..report.console import working

    how = _decoding(trained, args.beams)
    trained.refuse_generator(given=bool(paths or args.text))
    if table is not None or not (paths or args.text):
        source = trained.source(args.split) if table is None else trained.encode(table, paths[0])
        with working(len(source), "sample") as advance:
            found = trained.predict(source, how, advance, truth=table is None)
        return dict(trained.table(args.split if table is None else table, found))
    first = trained.plan.spec.inputs[0] if trained.plan.spec.inputs else Spec()
    kind = (paths and first.file_kind) or "text"
    try:
        trained.column(kind)  # files that the model cannot read need not be looked for
    except PegboardError as error:
        raise PegboardError(f"{paths[0]} is not a table, and {error}" if paths else str(error)) from None
    given = given_files(paths, kind, first.file_suffixes, args.lines) if paths else given_texts(args.text)
    with working(len(given.values), kind) as advance:
        return trained.answer(given, kind, how, advance)


def _decoding(trained: Trained, beams: int) -> Decoding | None:
    """How a text is answered with a text: by the likeliest symbols."""
    from ..base.errors import PegboardError
    from ..contract.results import Decoding

    if trained.translates:
        return Decoding(length=trained.longest, temperature=0.0, beams=beams)
    if beams > 1:
        name = trained.plan.settings.model.entry.part.name
        raise PegboardError(f"--beams is for models that answer with a text, and {name!r} does not")
    return None
