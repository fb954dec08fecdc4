"""Train two steps with every part of one plugin, each beside the kit's partners.

Run in a sandbox as `python try_parts.py DISTRIBUTION`; prints a line of JSON for each part: its name, and
what went wrong or null.
"""

from __future__ import annotations

import json
import sys
import traceback


def main(distribution: str) -> None:
    import pegboard
    from pegboard.testing import Kit
    from pegboard.testing.runs import lean

    for subject in Kit(distribution).subjects()[1:]:
        wrong = None
        try:
            with lean():
                pegboard.train(subject.with_trainer(epochs=None, steps=2))
        except BaseException:
            wrong = traceback.format_exc()
        print(json.dumps({"part": f"{subject.part.kind} {subject.part.name}", "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
