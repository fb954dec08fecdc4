"""Whether a run can be online: is there an API key, and does the server take it?"""

from __future__ import annotations

import base64
import json
import netrc
import os
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

Mode = Literal["online", "offline", "disabled"]

PATIENCE = 3.0  # seconds for the first answer of a server
STANDING: dict[str, Mode] = {"offline": "offline", "dryrun": "offline", "disabled": "disabled"}
QUESTION = json.dumps({"query": "query Viewer { viewer { id } }"}).encode()


MODES = (*STANDING, "online", "run", "shared")  # that W&B knows


@contextmanager
def usable_mode() -> Iterator[str]:
    """Without the variable WANDB_MODE where W&B would refuse it; gives what is wrong with it, or ""."""
    given = os.environ.get("WANDB_MODE")
    if given is None or given in MODES:
        yield ""
        return
    del os.environ["WANDB_MODE"]
    try:
        known = ", ".join(sorted(MODES))
        yield f"WANDB_MODE is {given!r}, expected one of {known}; taken as offline" if given.strip() else ""
    finally:
        os.environ["WANDB_MODE"] = given


def choose(wanted: str, settings: Any, patience: float = PATIENCE) -> tuple[Mode, str]:
    """The mode to start in, and why it is not online where that was wanted ("" otherwise).

    `settings` are those of W&B's session: WANDB_* variables and its settings files.
    """
    if wanted == "offline":
        return "offline", ""
    if wanted == "auto":
        standing = STANDING.get(os.environ.get("WANDB_MODE") or str(settings.mode))
        if standing:
            return standing, ""
    server = str(settings.base_url)
    key = settings.api_key or find_key(server)
    if not (key or settings.identity_token_file):
        return "offline", "there is no API key (`wandb login`, or the variable WANDB_API_KEY)"
    reason = obstacle(server, key or "", settings, patience)
    return ("offline" if reason else "online"), reason


def find_key(server: str) -> str:
    """The key for the server in the environment or a netrc file, "" without one."""
    if key := os.environ.get("WANDB_API_KEY"):
        return key
    home, named = Path.home(), os.environ.get("NETRC")
    for path in [Path(named)] if named else [home / ".netrc", home / "_netrc"]:
        try:
            entry = netrc.netrc(str(path)).authenticators(urlsplit(server).hostname or "")
        except (OSError, netrc.NetrcParseError):
            continue
        if entry and entry[2]:
            return entry[2]
    return ""


def obstacle(server: str, key: str, settings: Any = None, patience: float = PATIENCE) -> str:
    """Why the server cannot be used now, "" where nothing speaks against it.

    W&B itself would try again for as long as its timeout allows, so it is asked only afterwards.
    """
    found = [f"{server} did not answer within {patience:g} s"]

    def ask() -> None:
        found[0] = _ask(server, key, settings, patience)

    # A thread, since looking up the name of a host has no time limit of its own.
    asking = threading.Thread(target=ask, name="wandb-probe", daemon=True)
    asking.start()
    asking.join(patience)
    return found[0]


def _ask(server: str, key: str, settings: Any, patience: float) -> str:
    headers = {"Content-Type": "application/json", **(getattr(settings, "x_extra_http_headers", None) or {})}
    if key:
        headers["Authorization"] = f"Basic {base64.b64encode(f'api:{key}'.encode()).decode()}"
    proxies = {kind: getattr(settings, f"{kind}_proxy", None) for kind in ("http", "https")}
    handlers = (
        [urllib.request.ProxyHandler({k: v for k, v in proxies.items() if v})]
        if any(proxies.values())
        else []
    )
    try:
        request = urllib.request.Request(f"{server.rstrip('/')}/graphql", QUESTION, headers)
        urllib.request.build_opener(*handlers).open(request, timeout=patience).close()
    except urllib.error.HTTPError as error:
        if key and error.code in (401, 403):
            return f"{server} does not take the API key"
        return f"{server} answered with error {error.code}" if error.code >= 500 else ""
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLError):  # W&B may know certificates that we do not
            return ""
        return f"{server} cannot be reached ({error.reason})"
    except (OSError, ValueError) as error:
        return f"{server} cannot be reached ({error})"
    return ""
