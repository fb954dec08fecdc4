"""What a config extends: of a file that is no config nothing is shown, as messages end in logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pegboard.config.errors import Mistake

Refuse = Callable[..., list[Mistake]]
SECRET = "hunter2"
OTHERS = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nhunter2:x:1:1::/:/bin/sh\n",
    "shadow": "root:*:20228:0:99999:7:::\nhunter2:$6$hunter2:20228:0:99999:7:::\n",
    "one line": "hunter2\n",
    "netrc": "machine hunter2 login hunter2 password hunter2\n",
    "environment": "TOKEN=hunter2\nexport OTHER='hunter2\n",
    "list": "- hunter2\n- b\n",
    "json": '{"token": "hunter2", "hunter2": 1}\n',
    "keys": "TOKEN: hunter2\nhunter2: 3\n",
    "number": "1234: hunter2\n",
    "quote": 'a: "hunter2\n',
    "colons": "hunter2: 1: 2\n",
    "bracket": "a: [hunter2\nb: hunter2\n",
    "alias": "a: *hunter2\n",
    "tag": "!hunter2 a\n",
    "indent": "a: b\n   hunter2: c\n  d: e\n",
    "table": "name,hunter2\n1,hunter2\n",
    "python": "import os\ntoken = 'hunter2'\ndata: int = 3\n".replace("data", "size"),
    "binary": "\0\1hunter2\2",
    "tabs": "a:\n\thunter2: 1\n",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_nothing_of_a_file_that_is_no_config_is_shown(refuse: Refuse, base: str, text: str) -> None:
    Path("other").write_text(text)
    (mistake,) = refuse(f"extends: other\n{base}")
    assert SECRET not in str(mistake) and "TOKEN" not in str(mistake)
    assert mistake.message.startswith("'other' is not a config") and str(mistake.origin) == "cfg.yaml:1:10"


def test_a_config_with_a_mistake_is_shown_as_before(refuse: Refuse, base: str) -> None:
    Path("base.yaml").write_text("data: {name: spots}\nmodel dense\n")
    (mistake,) = refuse(f"extends: base.yaml\n{base}")
    assert str(mistake.origin) == "base.yaml:2:1" and "model dense" in mistake.message
    Path("base.yaml").write_text("modle: {name: dense}\n")
    (mistake,) = refuse(f"extends: base.yaml\n{base}")
    assert str(mistake.origin) == "base.yaml:1:1" and mistake.nearest == ("model",)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "\ufeffseed: 1\n", "seed: 1\r\n"])
def test_an_empty_file_or_one_from_another_editor_may_be_extended(accept: Any, base: str, text: str) -> None:
    Path("base.yaml").write_text(text, "utf-8")
    assert accept(f"extends: base.yaml\n{base}").data.entry.part.name == "spots"


def test_a_folder_a_pipe_and_a_large_file_are_no_configs(
    refuse: Refuse, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("folder").mkdir()
    os.mkfifo("pipe")
    with open("large", "wb") as file:
        file.truncate(2**40)  # it takes no room on disk, and would take all memory
    for name, said in (("folder", "is a folder"), ("pipe", "no file 'pipe'"), ("large", "not a config")):
        (mistake,) = refuse(f"extends: {name}\n{base}")
        assert said in str(mistake) and str(mistake.origin) == "cfg.yaml:1:10"
