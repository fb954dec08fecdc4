"""A script: runs of the tracker against a server that plays W&B, in a process of their own.

The first argument names a scenario, the second a folder. What was seen goes to stdout as JSON.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROWS = [{"step": 10 * number, "train/loss": number / 7} for number in range(8)]


class Server(ThreadingHTTPServer):
    """As much of a W&B server as a run without artifacts needs."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.refuses = refuses  # the GraphQL operation that ends in an error
        self.runs: dict[str, Any] = {}
        self.history: list[str] = []
        self.uploaded: set[str] = set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *args: Any) -> None:
        """A client that has gone away is no matter."""

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p", "name": "demo", "entity": {"id": "e", "name": "me"}}
        if operation == self.refuses:
            return {"errors": [{"message": "no such entity"}]}
        if operation == "Viewer":
            return {"data": {"viewer": {"id": "u", "entity": "me", "username": "me", "flags": "{}"}}}
        if operation == "UpsertBucket":
            self.runs.setdefault(given["name"], given)
            bucket = {"id": "b", "name": given["name"], "config": "{}", "project": project}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
        if operation == "RunResumeStatus":
            return {"data": {"model": {**project, "bucket": self.bucket(given["name"])}}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.address}/{name}"} for name in given["files"]]
            return {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}}
        return {"errors": [{"message": f"{operation} is not played"}]}

    def bucket(self, name: str) -> dict[str, Any] | None:
        if name not in self.runs:
            return None
        lines = {"historyLineCount": len(self.history), "eventsLineCount": 0, "logLineCount": 0}
        tails = {"historyTail": json.dumps(self.history[-1:]), "eventsTail": "[]"}
        texts = {"summaryMetrics": "{}", "config": "{}", "wandbConfig": '{"t": 1}'}
        return {"id": "b", "name": name, "displayName": name, "tags": [], **lines, **tails, **texts}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path == "/graphql":
            asked = json.loads(body)
            operation = asked["query"].split("(")[0].split("{")[0].split()[1]
            self.reply(self.server.answer(operation, asked.get("variables") or {}))
        elif self.path.endswith("/file_stream"):
            chunk = (json.loads(body).get("files") or {}).get("wandb-history.jsonl")
            if chunk:
                end = chunk["offset"] + len(chunk["content"])
                self.server.history[chunk["offset"] : end] = chunk["content"]
            self.reply({})
        else:
            self.reply({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.uploaded.add(self.path[1:])
        self.reply({})

    def reply(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def follow(folder: Path, mode: str, given: list[Any], previous: list[Any] | None = None) -> Any:
    """A tracker that has started and was given rows."""
    from pegboard import RunInfo
    from pegboard_wandb import Wandb
    from pegboard_wandb.tracker import WandbTracker

    config = Wandb(mode=mode, timeout=5, finish_timeout=1, checkpoints="none")  # type: ignore[arg-type]
    tracker = WandbTracker(config)
    about: dict[str, Any] = {"name": "run", "id": "abc", "config": {}, "plan": "p", "environment": {}}
    tracker.start(RunInfo(folder=folder, resumed=previous is not None, previous=previous or [], **about))
    for row in given:
        tracker.log(row)
    return tracker


def resumed(folder: Path) -> dict[str, Any]:
    """Online; interrupted when five rows were sent and three were safe; then resumed."""
    server = use(Server())
    follow(folder, "auto", ROWS[:5]).finish("interrupted", {})
    follow(folder, "auto", ROWS[3:], previous=ROWS[:3]).finish("finished", {})
    lines = [json.loads(line) for line in server.history]
    return {
        "rows": [{k: v for k, v in line.items() if not k.startswith("_")} for line in lines],
        "steps": [line["_step"] for line in lines],
        "runs": list(server.runs),
        "files": sorted(server.uploaded),
    }


def unreachable(folder: Path) -> dict[str, Any]:
    """Nothing listens at the address, whatever the mode."""
    os.environ.update(WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="k" * 40)
    for mode in ("auto", "online"):
        follow(folder / mode, mode, ROWS).finish("finished", {})
    return {}


def refused(folder: Path) -> dict[str, Any]:
    """The server takes the key and refuses the run."""
    use(Server(refuses="UpsertBucket"))
    follow(folder, "online", ROWS).finish("finished", {})
    return {}


def gone(folder: Path) -> dict[str, Any]:
    """The server goes away while the run is under way."""
    from pegboard import Table

    server = use(Server())
    tracker = follow(folder, "online", ROWS[:4])
    server.shutdown()
    server.server_close()
    for row in ROWS[4:]:
        tracker.log(row)
    for name in ("one", "two"):
        tracker.table(name, Table(["a"], [[1]]))
    tracker.finish("finished", {})
    return {}


def use(server: Server) -> Server:
    os.environ.update(WANDB_BASE_URL=server.address, WANDB_API_KEY="k" * 40)
    return server


if __name__ == "__main__":
    hooks = sys.exit, sys.excepthook
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scenarios = {"resumed": resumed, "unreachable": unreachable, "refused": refused, "gone": gone}
        seen = scenarios[sys.argv[1]](Path(sys.argv[2]))
    seen["warnings"] = [str(w.message) for w in caught if "W&B" in str(w.message)]
    seen["hooks"] = (sys.exit, sys.excepthook) == hooks
    print(json.dumps(seen))
