"""A `pegboard` command whose process begins with everything imported, for pages with many commands.

`python warm.py SOCKET` imports what commands need and waits. The command, a script of the same file on PATH,
hands over its folder, environment, words and streams, and a fork goes on from there as a new process would:
plugins are found anew, nothing of an earlier command is left.
"""

from __future__ import annotations

import array
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def warm_commands() -> Iterator[Path]:
    """A folder to put first on PATH, with a `pegboard` that starts warm."""
    folder = Path(tempfile.mkdtemp())  # a socket's path must be short
    place, script = folder / "socket", folder / "pegboard"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} {place} call "$@"\n', "utf-8")
    script.chmod(0o700)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "offline"}
    server = subprocess.Popen([sys.executable, __file__, str(place)], env=env, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        yield folder
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def serve(place: str) -> None:
    """Wait for commands, each in a process of its own."""
    import datasets  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torchmetrics  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks after those that watch
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen()
        print("ready", flush=True)
        while True:
            talk, _ = door.accept()
            if os.fork() == 0:
                door.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                watch(talk)
            talk.close()


def watch(talk: socket.socket) -> None:
    """Fork the command and tell how it ended."""
    streams = array.array("i")
    size = streams.itemsize
    told, ancillary, _, _ = talk.recvmsg(1 << 20, socket.CMSG_LEN(3 * size))
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(data[: len(data) - len(data) % size])
    worker = os.fork()
    if worker == 0:
        talk.close()
        command(json.loads(told), list(streams))
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with suppress(OSError):
        talk.send(str(code).encode())
    os._exit(0)


def command(told: dict[str, object], streams: list[int]) -> None:
    """Become the command: its folder, environment, words and streams."""
    import atexit
    import importlib
    import threading
    import traceback

    for stream, number in zip(streams, (0, 1, 2), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(str(told["folder"]))
    os.environ.clear()
    os.environ.update(dict(told["environment"]))  # type: ignore[call-overload]
    more = os.environ.get("PYTHONPATH", "")
    sys.path[:0] = [os.path.abspath(p) for p in more.split(os.pathsep) if p]
    sys.argv = ["pegboard", *list(told["words"])]  # type: ignore[call-overload]
    importlib.invalidate_caches()
    from pegboard.cli import main

    code = 1
    try:
        code = main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def call(place: str, words: list[str]) -> int:
    """What stands on PATH as `pegboard`."""
    told = {"folder": os.getcwd(), "environment": dict(os.environ), "words": words}
    with socket.socket(socket.AF_UNIX) as talk:
        talk.connect(place)
        streams = array.array("i", [0, 1, 2])
        talk.sendmsg([json.dumps(told).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        code = int(talk.recv(16) or b"1")
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    if sys.argv[2:3] == ["call"]:
        sys.exit(call(sys.argv[1], sys.argv[3:]))
    serve(sys.argv[1])
