"""The choice between online and offline, against small servers of our own."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from pegboard_wandb.connection import choose, find_key

KEY = "k" * 40


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def settings(server: str = "http://127.0.0.1:9", **others: object) -> SimpleNamespace:
    plain = {"mode": "online", "base_url": server, "api_key": None, "identity_token_file": None}
    return SimpleNamespace(**{**plain, **others})


@contextmanager
def server(status: int, seen: list[str] | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if seen is not None:
                seen.extend([self.path, self.headers["Authorization"]])
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


def test_offline_is_offline_without_a_reason() -> None:
    assert choose("offline", settings(api_key=KEY)) == ("offline", "")


@pytest.mark.parametrize("wanted", ["auto", "online"])
def test_no_key_is_offline_and_says_how_to_log_in(wanted: str) -> None:
    mode, reason = choose(wanted, settings())
    assert mode == "offline" and "wandb login" in reason and "WANDB_API_KEY" in reason


def test_a_server_that_takes_the_key_is_online() -> None:
    seen: list[str] = []
    with server(200, seen) as address:
        assert choose("auto", settings(address, api_key=KEY)) == ("online", "")
    assert seen == ["/graphql", "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()]


@pytest.mark.parametrize(("status", "said"), [(401, "does not take the API key"), (503, "error 503")])
def test_a_server_that_refuses_is_offline(status: int, said: str) -> None:
    with server(status) as address:
        mode, reason = choose("online", settings(address, api_key=KEY))
    assert mode == "offline" and said in reason and address in reason


def test_unreachable_server_is_offline_at_once() -> None:
    mode, reason = choose("auto", settings(api_key=KEY))
    assert mode == "offline" and "cannot be reached" in reason


def test_silent_server_is_given_up_after_the_patience() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        mode, reason = choose("online", settings(address, api_key=KEY), patience=0.3)
        assert mode == "offline" and address in reason


@pytest.mark.parametrize("word", ["offline", "dryrun", "disabled"])
def test_auto_follows_the_mode_of_wandb_itself(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "disabled" if word == "disabled" else "offline"
    assert choose("auto", settings(mode=word, api_key=KEY)) == (expected, "")
    monkeypatch.setenv("WANDB_MODE", word)
    assert choose("auto", settings(api_key=KEY)) == (expected, "")


def test_key_is_found_in_the_environment_and_in_netrc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_key("https://api.wandb.ai") == ""
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai\n  login user\n  password {KEY}\n")
    assert find_key("https://api.wandb.ai") == KEY
    assert find_key("https://elsewhere.example") == ""
    monkeypatch.setenv("WANDB_API_KEY", "other")
    assert find_key("https://elsewhere.example") == "other"
