"""What a run was made from: values with their origins, versions, hardware, data and the state of git.

Names of machines and people and environment variables are left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement
from torch import Tensor

from ..base.version import __version__
from ..config.dump import to_yaml
from ..config.errors import leaves
from ..config.nodes import Origin, Settings
from ..contract.results import Splits
from ..inference.loading import weights_file
from ..planning.plan import Plan, private_rng
from ..store.checkpoint import digest
from ..store.names import DATA, DIFF, ENVIRONMENT, ORIGINS

GIT_SECONDS = 5.0  # that git may take, all in all
GIT_BYTES = 1 << 20  # of the diff that is kept
GIT_FILES = 200  # that are listed as changed
WHOLE = 256  # MiB of a tensor that are hashed in full; of a larger one as many, evenly spaced
READ = 256  # samples of a split that are read for the fingerprint of data that is not in memory


def provenance(plan: Plan, device: str) -> dict[str, str]:
    """The files of a run folder that say what it was made from: name -> text."""
    git, diff = git_state()
    files = {
        ORIGINS: json.dumps(origins(plan.settings), indent=1) + "\n",
        ENVIRONMENT: json.dumps({**environment(plan, device), "git": git}, indent=1) + "\n",
    }
    return files | ({DIFF: diff} if diff else {})


def origins(settings: Settings) -> dict[str, str]:
    """Where each value of the resolved config came from."""
    values = dict(leaves(settings.plain))
    return {path: _origin(path, values, settings.origins) for path in values}


def _origin(path: str, values: Mapping[str, Any], written: Mapping[str, Origin]) -> str:
    if path in written:
        origin = written[path]
        return _private(str(origin)) if origin.file or origin.word else "python"
    # What a player does not say itself it has from the optimizer.
    if player := re.fullmatch(r'optimizer\.players\.(?:"[^"]*"|[^.]*)\.(.*)', path):
        shared = f"optimizer.{player[1]}"
        if shared in written and values.get(shared) == values[path]:
            return _origin(shared, values, written)
    return "default"


def environment(plan: Plan, device: str) -> dict[str, Any]:
    """Versions, plugins, hardware and data, for `environment.json`."""
    plugins = plan.fingerprint()
    local = {dist: digest(Path(dist)) for dist in plugins if Path(dist).is_file()}
    start = {} if plan.settings.weights is None else {"start": digest(weights_file(plan.settings.weights))}
    return {
        "pegboard": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": dict(sorted(_packages(plugins))),
        "plugins": plugins,
        "local": local,  # local plugins have no version, so their files are hashed
        "parts": {path: entry.qualified for path, entry in plan.entries()},
        "config": hashlib.sha256(to_yaml(plan.settings.plain).encode()).hexdigest(),
        "platform": platform.platform(),
        "device": device,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "data": {} if plan.splits is None else data_record(plan.splits),
        **start,
        "command": [*(Path(word).name for word in sys.argv[:1]), *map(_private, sys.argv[1:])],
    }


def _private(text: str) -> str:
    """A text without the name of a person's home folder."""
    home = os.path.expanduser("~")
    return text.replace(home + os.sep, "~" + os.sep) if len(home) > 1 else text


def _packages(plugins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and version of what the core and the plugins in use say that they need."""
    for dist in ("pegboard", *plugins):
        try:
            lines = metadata.requires(dist) or []
        except (metadata.PackageNotFoundError, ValueError):
            continue  # a local file
        for line in lines:
            with suppress(ValueError, metadata.PackageNotFoundError):  # a line or a package that is not right
                need = Requirement(line)
                wanted = need.marker is None or need.marker.evaluate({"extra": ""})
                if wanted and need.name not in ("pegboard", "torch", *plugins):
                    yield need.name.lower(), metadata.version(need.name)


def hardware(device: str) -> dict[str, Any]:
    """The processor, its memory and, where the run is on one, the GPU."""
    found: dict[str, Any] = {
        "cpu": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
    }
    with suppress(AttributeError, ValueError, OSError):  # not every system says
        found["memory_gib"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    if device.startswith("cuda"):
        about = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": about.name,
            "gpus": torch.cuda.device_count(),
            "gpu_memory_gib": round(about.total_memory / 2**30, 1),
            "capability": f"{about.major}.{about.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        }
    return found


def _processor() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
        if named := re.search(r"^model name\s*:\s*(.+)$", text, re.M):
            return named[1].strip()
    return platform.processor() or platform.machine()


def data_record(splits: Splits) -> dict[str, Any]:
    """What the data set notes, the number of samples, and a fingerprint: of all tensors or, where some of
    them are read from disk, of samples that are evenly spaced."""
    notes = splits.notes
    there = {n: s for n in ("train", "val", "test") if (s := getattr(splits, n)) is not None}
    record = {key: notes[key] for key in sorted(notes) if isinstance(notes[key], str | int | float)}
    record["samples"] = {name: len(source) for name, source in there.items()}
    if splits.files:  # by which a run reads and writes samples later
        record["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in splits.files.items()}
    resident = {name: source for name, source in there.items() if source.tensors is not None}
    if "fingerprint" not in record and len(resident) == len(there):
        record["fingerprint"] = fingerprint(resident)
    elif "fingerprint" not in record:
        with suppress(Exception):  # a sample that cannot be read ends the run where it is needed, or never is
            record["fingerprint"] = spaced_fingerprint(there)
    return record


def data_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for everything in which two records of data show that they are not the same data."""
    pairs = []
    if comparable(then, now):
        pairs.append(("fingerprint", then["fingerprint"], now["fingerprint"]))
    sizes, files = (
        [found if isinstance(found := record.get(name), dict) else {} for record in (then, now)]
        for name in ("samples", "files")
    )
    if all(sizes):
        splits = dict.fromkeys([*sizes[0], *sizes[1]])
        pairs += [(f"{name} samples", *(found.get(name, 0) for found in sizes)) for name in splits]
    pairs += [(f"{DATA}/{name}", files[0][name], files[1][name]) for name in files[0] if name in files[1]]
    return [f"{name}: {old} then, {new} now" for name, old, new in pairs if old != new]


def comparable(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if both records hold a fingerprint of one form; `spaced-...` is another than that of a whole."""
    forms = [
        found.rpartition("-")[0] if isinstance(found := record.get("fingerprint"), str) else None
        for record in (then, now)
    ]
    return None not in forms and forms[0] == forms[1]


def spaced_fingerprint(splits: Mapping[str, Any], count: int = READ) -> str:
    """A sha256 of the sizes of all splits and of so many samples of each, evenly spaced; marked as such."""
    digest = hashlib.sha256()
    for name, source in splits.items():
        size = len(source)
        index = torch.linspace(0, size - 1, min(size, count), dtype=torch.float64).round().long()
        with private_rng(0, "fingerprint"):
            batch = source.gather(index)
        digest.update(f"{name} {size}\n".encode())
        _add_tensors(digest, name, (*batch.inputs, batch.target, batch.weight))
    return f"spaced-{digest.hexdigest()}"


def fingerprint(splits: Mapping[str, Any], whole: int = WHOLE) -> str:
    """A sha256 of the tensors of all splits with their names, types and shapes."""
    digest = hashlib.sha256()
    for name, source in splits.items():
        _add_tensors(digest, name, source.tensors, whole)
    return digest.hexdigest()


def _add_tensors(digest: Any, name: str, tensors: Sequence[Tensor | None], whole: int = WHOLE) -> None:
    for tensor in tensors:
        if tensor is None:
            digest.update(f"{name} none\n".encode())
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for block in _blocks(tensor, whole):
            digest.update(block.numpy().data)


def _blocks(tensor: Tensor, whole: int) -> Iterator[Tensor]:
    """The bytes of a tensor; of a large one so many MiB, evenly spaced, that it takes a moment at most."""
    data = tensor.detach().cpu().contiguous()
    # A tensor of one element counts as contiguous whatever its stride, which a view as bytes minds.
    data = data.as_strided((data.numel(),), (1,)).view(torch.uint8)
    size = 1 << 20
    if len(data) <= whole * size:
        yield data
        return
    for i in range(whole):
        start = i * (len(data) - size) // max(whole - 1, 1)
        yield data[start : start + size]


def git_state() -> tuple[dict[str, Any], str]:
    """Commit, branch and changed files of the repository around the current folder, and the diff."""
    end = time.monotonic() + GIT_SECONDS
    commit = _git(end, "rev-parse", "HEAD").decode("ascii", "replace").strip()
    if not commit:
        return {}, ""
    branch = _git(end, "branch", "--show-current").decode("utf-8", "replace").strip()
    changed = _git(end, "status", "--porcelain").decode("utf-8", "replace").splitlines()
    more = [f"and {len(changed) - GIT_FILES} more"] if len(changed) > GIT_FILES else []
    state = {"commit": commit, "branch": branch, "changed": [*changed[:GIT_FILES], *more]}
    diff = _git(end, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD")
    text = diff[:GIT_BYTES].decode("utf-8", "replace")
    if len(diff) > GIT_BYTES:
        text += f"\nthe rest is left out: the diff is longer than {GIT_BYTES} bytes\n"
    return state, text


def _git(end: float, *words: str) -> bytes:
    """What git prints, up to a byte more than is kept; nothing where it fails or takes too long."""
    try:
        process = subprocess.Popen(
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that what git starts ends with it
        )
    except OSError:
        return b""
    timer = threading.Timer(max(end - time.monotonic(), 0.0), _end, [process])
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout as stream:
            out = stream.read(GIT_BYTES + 1)
        if len(out) > GIT_BYTES:
            _end(process)
            return out
        return out if process.wait() == 0 else b""
    finally:
        timer.cancel()
        _end(process)
        process.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it started, where it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
