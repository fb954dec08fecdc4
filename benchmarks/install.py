"""Puts the frameworks that the side-by-side compares into the environment that runs this file.

    .venv-bench/bin/python benchmarks/install.py      (what `make bench` does)

torch must be there already. It is looked at after every install: a peer that changed it is taken out
again. What could not be installed is written, with the reason, to `peers.json` beside the environment's
`bin`, from where the benchmark reports it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = Path(sys.prefix) / "peers.json"


@dataclass(frozen=True)
class Peer:
    """A framework: what pip installs, past its pins where `bare`, and what proves that it works."""

    install: tuple[str, ...]
    imports: str
    bare: tuple[str, ...] = ()  # installed with --no-deps, because they pin an older torch
    environ: tuple[tuple[str, str], ...] = ()


# Composer imports torchvision, which a CPU environment may lack: benchmarks/stubs stands in for it.
STUBS = (("PYTHONPATH", str(ROOT / "benchmarks" / "stubs")),)
PEERS = {  # by the name of the distribution whose version is shown
    "lightning": Peer(("lightning",), "lightning"),  # Fabric is in the same distribution
    "accelerate": Peer(("accelerate",), "accelerate"),
    "transformers": Peer(("transformers",), "transformers.trainer"),
    "pytorch-ignite": Peer(("pytorch-ignite",), "ignite.engine"),
    "skorch": Peer(("skorch",), "skorch"),
    "keras": Peer(("keras",), "keras", environ=(("KERAS_BACKEND", "torch"),)),
    "fastai": Peer(
        (
            *("fastcore", "fasttransform", "fastprogress", "plum-dispatch", "cloudpickle"),
            *("matplotlib", "pandas", "pillow", "scikit-learn", "scipy"),
        ),
        "fastai.learner, fastai.data.core",
        bare=("fastai", "fastdownload"),
    ),
    "mosaicml": Peer(  # Composer
        (
            *("torchmetrics", "coolname", "tabulate", "py-cpuinfo", "importlib-metadata", "pillow"),
            *("requests", "tqdm", "psutil", "numpy", "packaging", "mosaicml-cli"),
        ),
        "composer",
        bare=("mosaicml", "torch-optimizer", "pytorch-ranger"),
        environ=STUBS,
    ),
}


def run(*words: str, environ: tuple[tuple[str, str], ...] = ()) -> tuple[bool, str]:
    """Whether a Python command succeeded, and what it said last."""
    env = {**os.environ, **dict(environ)}
    outcome = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env)
    said = (outcome.stdout if outcome.returncode == 0 else outcome.stderr).strip().splitlines()
    errors = [line for line in said if line.startswith("ERROR")]
    return outcome.returncode == 0, (errors or said or [""])[-1]


def pip(*words: str) -> tuple[bool, str]:
    return run("-m", "pip", "--disable-pip-version-check", "-qq", *words)


def torch_version() -> str:
    return run("-c", "from importlib.metadata import version as v; print(v('torch'))")[1]


def install(peer: Peer, torch: str, pinned: Path) -> str:
    """Install one peer; returns "" or why there is none."""
    for words in (("-c", str(pinned), *peer.install), ("--no-deps", *peer.bare)):
        if words[-1] == "--no-deps":
            continue
        done, said = pip("install", *words)
        if not done:
            return said
    if (now := torch_version()) != torch:
        pip("uninstall", "-y", *(peer.bare or peer.install))
        pip("install", f"torch=={torch.split('+')[0]}")
        return f"it replaces torch {torch} by {now}"
    done, said = run("-c", f"import {peer.imports}", environ=peer.environ)
    return "" if done else said


def main() -> None:
    torch = torch_version()
    print(f"==> torch is {torch}, and stays so")
    pinned = Path(sys.prefix) / "torch-pinned.txt"
    pinned.write_text(f"torch=={torch}\n")
    problems = {}
    for name, peer in PEERS.items():
        problem = install(peer, torch, pinned)
        print(f"==> {name}: {problem or 'installed'}", flush=True)
        if problem:
            problems[name] = problem
    REPORT.write_text(json.dumps(problems, indent=1) + "\n")
    if (now := torch_version()) != torch:
        raise SystemExit(f"torch was {torch} and is {now} now: remove {sys.prefix} and begin anew")


if __name__ == "__main__":
    main()
