"""The process in which a plugin is imported alone: it does what the registry does, and writes what it saw.

python -m pegboard.tools.import_child TARGET FOLDER LIMIT
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pluggy

from ..base.files import write_json
from ..contract import hookspecs
from ..contract.records import Problem
from ..registry.discovery import import_file, load_plugin
from ..registry.hook_checks import HEAVY
from ..registry.installed import GROUP, Plugin, find_installed, raised_at

MANY = 80  # modules of one package that make it a large library, whatever it is called


class Watch:
    """Listens to what is asked of the system."""

    def __init__(self) -> None:
        self.listening = False
        self.network: list[str] = []
        self.files: list[str] = []
        self.processes: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.listening:
            return
        match event:
            case "socket.connect" | "socket.sendto" | "socket.sendmsg":
                if isinstance(args[1], tuple) and isinstance(args[1][0], str):  # a host, not a file
                    self.network.append(":".join(map(str, args[1][:2])))
            case "socket.getaddrinfo" | "socket.gethostbyname" | "socket.gethostbyaddr":
                self.network.append(str(args[0]))
            case "subprocess.Popen" | "os.system" | "os.posix_spawn" | "os.fork" | "os.forkpty" | "os.exec":
                self.processes.append(str(args[0]) if args else event)
            case "open" if isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._wrote(args[0])
            case "os.mkdir" | "os.remove" | "os.rmdir" | "os.rename" | "os.link" | "os.symlink":
                self._wrote(args[0])

    def _wrote(self, path: Any) -> None:
        if isinstance(path, str | bytes | os.PathLike):
            name = os.fsdecode(path)
            if "__pycache__" not in name and ".pyc" not in name and not name.startswith("/dev/"):
                self.files.append(name)


def snapshot() -> dict[str, Any]:
    """What a plugin must leave as it is, in the words of a report."""
    import builtins
    import gc
    import locale
    import logging
    import multiprocessing
    import random
    import socket
    import threading

    root = logging.getLogger()
    return {
        "random": random.getstate(),
        "the environment": dict(os.environ),
        "the working folder": os.getcwd(),
        "sys.path": list(sys.path),
        "sys.meta_path": tuple(map(id, sys.meta_path)),
        "sys.argv": tuple(sys.argv),
        "sys.stdout or sys.stderr": (id(sys.stdout), id(sys.stderr)),
        "sys.excepthook": id(sys.excepthook),
        "the tracing of Python": (id(sys.gettrace()), id(sys.getprofile())),
        "the recursion limit": sys.getrecursionlimit(),
        "the builtins": {name: id(value) for name, value in vars(builtins).items()},
        "the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "warning filters": tuple(warnings.filters),
        "how warnings are shown": id(warnings.showwarning),
        "the logging of others": (
            root.level,
            tuple(map(id, root.handlers)),
            root.manager.disable,
            id(logging.getLoggerClass()),
        ),
        "signal handlers": {signal.Signals(s).name: str(signal.getsignal(s)) for s in signal.Signals},
        "threads": [t.name for t in threading.enumerate()],
        "the locale": locale.setlocale(locale.LC_ALL),
        "the timeout of sockets": socket.getdefaulttimeout(),
        "how processes are started": multiprocessing.get_start_method(allow_none=True),
        "the mask of file modes": _umask(),
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def changes(before: dict[str, Any], after: dict[str, Any], watch: Watch) -> list[str]:
    """What differs between two snapshots, with the names of what is new where there are such."""
    found = []
    for what, was in before.items():
        now = after[what]
        if now == was or what == "random":
            continue
        names: Iterable[Any] = ()
        if isinstance(was, dict):
            names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        elif isinstance(was, list):
            names = [name for name in now if name not in was]
        shown = ", ".join(map(str, list(names)[:4]))
        found.append(f"{what} ({shown})" if shown else what)
    found += [f"the file {name}" for name in dict.fromkeys(watch.files)]
    return found + [f"processes ({name})" for name in dict.fromkeys(watch.processes)]


def large(fresh: set[str], own: str) -> list[str]:
    """The large libraries among modules that were imported, the plugin's own package aside."""
    count = Counter(name.split(".")[0] for name in fresh)
    third = {name: n for name, n in count.items() if name not in sys.stdlib_module_names and name != own}
    return sorted(name for name, n in third.items() if name in HEAVY or n > MANY)


def deprecations() -> list[str]:
    """A list into which deprecations go from now on; other warnings are shown as usual."""
    heard: list[str] = []
    show = warnings.showwarning

    def note(message: Any, category: type[Warning], file: str, line: int, *more: Any) -> None:
        if issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
            heard.append(f"{file}:{line}: {message}")
        elif not issubclass(category, ImportWarning | ResourceWarning):  # which nobody is shown
            show(message, category, file, line, *more)

    warnings.simplefilter("always")
    warnings.showwarning = note  # type: ignore[assignment]
    return heard


def imported(target: str, limit: float, stack: Any) -> dict[str, Any]:
    """Import the plugin and ask its hooks, as the registry does; what was seen."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    plugin, load, spent = _plugin(target), _loader(target), [0.0]

    def timed() -> Any:
        started = time.process_time()
        try:
            return load()
        finally:
            spent[0] = (time.process_time() - started) * 1000

    heard, watch, before, known = deprecations(), Watch(), snapshot(), set(sys.modules)
    faulthandler.dump_traceback_later(limit, exit=True, file=stack)
    watch.listening = True
    load_plugin(plugin, timed, manager)
    watch.listening = False
    after = snapshot()
    seen = {
        "milliseconds": round(spent[0], 2),
        "error": plugin.reason if plugin.status == "broken" else "",
        "phase": plugin.phase,
        "where": plugin.where,
        "remarks": list(plugin.remarks),
        "heavy": large(set(sys.modules) - known, target.split(":")[0].split(".")[0]),
        "drew": before["random"] != after["random"],
        "network": list(dict.fromkeys(watch.network)),
        "changed": changes(before, after, watch),
        "warnings": list(dict.fromkeys(heard)),
        "parts": plugin.offered,
        "said": _said(),
    }
    return seen | (_health(manager) if plugin.status != "broken" else {})


def _plugin(target: str) -> Plugin:
    """What metadata say of it: records are read as the release of the core that it asks for had them."""
    installed = (plugin for plugin, _, _ in find_installed() if plugin.status == "found")
    local = Plugin(Path(target).stem, target, "local", target=target)
    return next((plugin for plugin in installed if plugin.target == target), local)


def _loader(target: str) -> Callable[[], Any]:
    from importlib.metadata import EntryPoint

    if target.endswith(".py"):
        return lambda: import_file(Path(target))
    return EntryPoint("plugin", target, GROUP).load


def _said() -> int:
    """How many bytes were printed so far; standard output is a file here."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # what a plugin put in its place
            continue
    return os.fstat(1).st_size


def _health(manager: pluggy.PluginManager) -> dict[str, Any]:
    """What the plugin's own health check says."""
    try:
        problems = [p for found in manager.hook.pegboard_health() for p in found or ()]
        if wrong := [p for p in problems if not isinstance(p, Problem)]:
            raise TypeError(f"it returned {wrong[0]!r}, expected a list of Problems")
    except BaseException as error:  # whatever it does, sys.exit included, is told
        text = f"pegboard_health: {type(error).__name__}: {error}"
        return {"error": text, "phase": "health", "where": raised_at(error)}
    return {"health": ["; ".join(filter(None, (p.message, p.expected, p.hint))) for p in problems]}


def main() -> None:
    target, folder, limit = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    sys.argv = ["pegboard"]
    with (folder / "stack").open("w") as stack:
        seen = imported(target, limit, stack)
        faulthandler.cancel_dump_traceback_later()
        write_json(folder / "report.json", seen)
        os._exit(0)  # what the plugin left running does not hold it up


if __name__ == "__main__":
    main()
