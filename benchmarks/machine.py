"""What the figures were measured on, and with."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from peers import PEERS


def machine() -> dict[str, Any]:
    """Facts about the machine; no names and no dates."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", info)
    return {
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def versions(names: Iterable[str]) -> dict[str, str]:
    """The version of each framework that was measured."""
    return {name: version(PEERS[name].package) for name in names if PEERS[name].package}


def left_out(names: Iterable[str]) -> dict[str, str]:
    """Those that are not installed, and why."""
    report = Path(sys.prefix) / "peers.json"
    reasons = json.loads(report.read_text()) if report.exists() else {}
    missing = {}
    for name in names:
        package = PEERS[name].package
        try:
            version(package or "torch")
        except PackageNotFoundError:
            missing[name] = reasons.get(package, f"{package} is not installed")
        else:
            if package in reasons:
                missing[name] = reasons[package]
    return missing
