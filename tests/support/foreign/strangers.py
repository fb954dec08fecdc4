"""Plugins of strangers that do what a plugin should not, each the code of a light module."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from crowd import MODULE, install

# These never become ready.
BROKEN = {
    "missing": "import surely_not_installed_anywhere\n",
    "exits": "import sys\nsys.exit(3)\n",
    "raises": "def fail():\n    raise RuntimeError('boom')\n\nfail()\n",
    "typo": "x = (\n",
    "leaves": "import os\nprint('bye', flush=True)\nos._exit(7)\n",
    "crashes": "import os, signal\n\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "hangs": "import threading\n\nthreading.Event().wait()\n",
}
DEADLY = ("leaves", "crashes", "hangs")  # what a process does not survive

# These are ready, and do something besides.
RUDE = {
    "heavy": "import mlflow.sklearn\n",  # a module of that name stands beside them
    "bulky": "import bulky\n",
    "prints": "print('hello')\nimport sys\nprint('there', file=sys.stderr)\n",
    "warns": "import warnings\nwarnings.warn('mind the gap')\n",
    "deprecated": "import warnings\n\nwarnings.warn('that is old', DeprecationWarning)\n",
    "draws": "import random\nrandom.random()\n",
    "calls": """import socket
with socket.socket() as line:
    try:
        line.connect(('127.0.0.1', 9))
    except OSError:
        pass
""",
    "changes": """import builtins, gc, logging, os, signal, socket, subprocess, sys, threading, warnings
os.environ['ACME_HOME'] = 'x'
sys.path.append('/acme')
os.chdir('/')
warnings.filterwarnings('ignore', 'acme')
logging.basicConfig()
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
sys.excepthook = print
socket.setdefaulttimeout(3)
builtins.acme = 1
gc.disable()
os.umask(0o77)
sys.setrecursionlimit(5000)
threading.Thread(target=threading.Event().wait, name='acme-worker').start()
sleeper = subprocess.Popen(['sleep', '600'])
open(os.environ['ACME_FILE'], 'w').write(str(sleeper.pid))
""",
}
CHANGES = """the environment (ACME_HOME)|sys.path (/acme)|the working folder|warning filters
the logging of others|signal handlers (SIGUSR1)|sys.excepthook|the timeout of sockets|the builtins (acme)
the garbage collector|the mask of file modes|the recursion limit|threads (acme-worker)|processes (sleep)"""

HEALTH = """
from pegboard import Problem

@hookimpl
def pegboard_health():
    print('looking')
    {what}
"""
ILL = {
    "unwell": "return [Problem('no licence', expected='a file acme.key', hint='ask Acme')]",
    "sick": "raise OSError('no answer')",
    "fainting": "raise SystemExit(3)",
    "mistaken": "return ['all is lost']",
}


def code(kind: str, part: str = "") -> str:
    """The light module of a stranger; one of no known kind is well."""
    part = part or f"part_{kind}"
    if kind in BROKEN:
        return BROKEN[kind]
    ill = HEALTH.format(what=ILL[kind]) if kind in ILL else ""
    return RUDE.get(kind, "") + MODULE.format(name=part) + ill


def move_in(site: Path, *kinds: str) -> None:
    """Install strangers of these kinds, and the large libraries that some of them import."""
    for kind in kinds:
        install(site, f"acme-{kind}", code(kind))
    (site / "mlflow").mkdir(exist_ok=True)
    (site / "mlflow" / "__init__.py").touch()
    (site / "mlflow" / "sklearn.py").touch()
    (site / "bulky").mkdir(exist_ok=True)
    names = [f"part{i}" for i in range(100)]
    (site / "bulky" / "__init__.py").write_text("".join(f"from . import {name}\n" for name in names))
    for name in names:
        (site / "bulky" / f"{name}.py").touch()


def only_these(sites: list[Path], patch: pytest.MonkeyPatch) -> None:
    """Nothing is installed but what stands in these folders, which are on the path; first comes first."""
    forget()
    places = list(map(str, sites))
    for place in reversed(places):
        patch.syspath_prepend(place)
    every = metadata.Distribution.discover
    patch.setattr(metadata, "distributions", lambda: every(path=places))


def forget() -> None:
    """Strangers that were imported may be others of the same name in the next test."""
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]
