"""Kill training processes at random instants, resume them, and compare their end with an untouched run.

Run as `python kills.py FOLDER KILLS SEED`. Starting Python with torch takes longer than a small run, so
processes are forked from this one, which has imported everything; each is killed by SIGKILL. Prints a
line of JSON with counts; an exception is a broken promise.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml
from pegboard.testing import PARTNERS

FOLDER = Path(__file__).parents[1] / "parts"
LOCAL = [str(PARTNERS), str(FOLDER / "proof_parts.py")]
SAVE_EVERY = 3
CONFIG: dict[str, Any] = {
    "data": {"batch_size": 4, "name": "partner"},
    "model": {"name": "mlp", "hidden": [16]},
    "optimizer": {"name": "adam", "lr": 0.01, "schedule": {"name": "cosine"}},
    "regularizers": {"dropout": {"p": 0.3}, "batchnorm": {}, "journal": {}},
    "trainer": {
        "epochs": 6,
        "accumulate": 1,
        "save_every": SAVE_EVERY,
        "keep": 1,
        "log_every": 2,
        "device": "cpu",
    },
}


def start(words: list[str], folder: Path) -> int:
    """A process that runs one command in a folder."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.chdir(folder)
        log = os.open("log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from pegboard.cli import main

        code = main(words)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def finish(words: list[str], folder: Path) -> None:
    _, status = os.waitpid(start(words, folder), 0)
    if status:
        raise RuntimeError(f"{' '.join(words)} ended with {status}:\n{(folder / 'log.txt').read_text()}")


def updates(pid: int, folder: Path, seconds: float) -> None:
    """Wait until a process has made its first update, or so long."""
    path, end = folder / "journal.txt", time.monotonic() + seconds
    while time.monotonic() < end and not (path.exists() and f"{pid} " in path.read_text()):
        time.sleep(0.001)


def kill(words: list[str], folder: Path, after: float, training: bool, seconds: float) -> bool:
    """Whether the process still ran when it was killed, so long after its start or its first update."""
    pid = start(words, folder)
    if training:
        updates(pid, folder, seconds)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and status:
        raise RuntimeError(f"{' '.join(words)} failed:\n{(folder / 'log.txt').read_text()}")
    return os.WIFSIGNALED(status)


def resume(run: Path) -> list[str]:
    return ["resume", str(run), "--quiet", *(word for path in LOCAL for word in ("--local", path))]


def journal(folder: Path) -> list[tuple[int, int]]:
    """Process and number of every update that was made, in order."""
    path = folder / "journal.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(a), int(b)) for a, b in (line.split() for line in lines)]


def run_folder(folder: Path) -> Path | None:
    return next(folder.glob("runs/*/2*"), None)


def newest(run: Path) -> int:
    """The step of the newest checkpoint that a resume takes up; one under its name must be whole."""
    from pegboard import PegboardError
    from pegboard.store import checkpoint

    steps = []
    for part in (run / "checkpoints").glob(".step-*.*"):  # complete, and not yet named when the kill came
        with suppress(PegboardError):
            checkpoint.verify(part, checkpoint.read_manifest(part))
            steps.append(int(part.name[1:].partition(".")[0].removeprefix("step-")))
    for place in checkpoint.history(run / "checkpoints"):
        checkpoint.verify(place, checkpoint.read_manifest(place))  # none is ever half written
        steps.append(int(place.name.removeprefix("step-")))
    return max(steps, default=-1)


def trial(
    folder: Path, config: Path, seconds: float, loop: float, dice: random.Random, left: int
) -> Counter[str]:
    """One run, killed up to four times in succession and resumed to its end."""
    counts: Counter[str] = Counter()
    folder.mkdir()
    train = ["train", str(config), "--quiet"]
    for _ in range(min(left, dice.randint(1, 4))):
        run = run_folder(folder)
        words = train if run is None else resume(run)
        training = dice.random() < 0.8  # to start takes longer than to train, and is killed often enough
        if not kill(words, folder, dice.uniform(0, loop if training else seconds), training, seconds):
            break  # it had ended
        run = run_folder(folder)
        if run is None:
            counts["more before the run folder"] += 1
            continue
        counts["kills"] += 1
        step, made = newest(run), journal(folder)
        hidden = [path.name for path in (run / "checkpoints").glob(".*")]
        counts["inside a save"] += bool(hidden)
        counts["before the first checkpoint"] += step < 0
        counts["after the last update"] += bool(made) and made[-1][1] == 48
        lost = made[-1][1] - max(step, 0) if made else 0
        counts["most updates made again"] = max(counts["most updates made again"], lost)
        if lost > SAVE_EVERY:
            raise RuntimeError(f"{lost} updates after the newest checkpoint, step {step}: {hidden}")
    run = run_folder(folder)
    finish(train if run is None else resume(run), folder)
    return counts


def check_end(folder: Path, reference: Path) -> None:
    from proofs import differences

    run = run_folder(folder)
    assert run is not None
    if wrong := differences(reference, run):
        raise RuntimeError(f"{run} differs from the untouched run: {wrong}")
    texts = [(path / "metrics.jsonl").read_bytes() for path in (reference, run)]
    if texts[0] != texts[1]:
        raise RuntimeError(f"metrics.jsonl of {run} differs from that of the untouched run")
    left = [path.name for path in (run / "checkpoints").glob(".*")]
    if left:
        raise RuntimeError(f"{run} keeps {left}")


def main(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Make so many kills; returns counts."""
    torch.set_num_threads(1)
    from pegboard.run import finish

    finish.draw_curves = lambda rows, path, *_: path  # type: ignore[assignment]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({**CONFIG, "plugins": {"local": LOCAL}}))
    from pegboard.cli import main as command

    os.chdir(folder)
    command(["train", str(config), "--quiet"])  # imports everything
    (folder / "whole").mkdir()
    begun = time.monotonic()
    pid = start(["train", str(config), "--quiet"], folder / "whole")
    updates(pid, folder / "whole", 60)
    first = time.monotonic()
    os.waitpid(pid, 0)
    seconds, loop = time.monotonic() - begun, time.monotonic() - first
    reference = run_folder(folder / "whole")
    assert reference is not None
    dice, counts = random.Random(seed), Counter[str]()
    while counts["kills"] < kills:
        place = folder / f"trial-{counts['trials']:03d}"
        found = trial(place, config, seconds, loop, dice, kills - counts["kills"])
        most = max(counts["most updates made again"], found.pop("most updates made again", 0))
        counts += found
        counts["trials"] += 1
        counts["most updates made again"] = most
        check_end(place, reference)
    return dict(counts)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))))
