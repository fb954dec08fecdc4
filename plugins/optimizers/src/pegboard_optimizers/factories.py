"""From a config and parameter groups to an optimizer of torch.optim."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from pegboard import PegboardError

from . import descent
from .configs import Gd, Lbfgs, Muon, Nesterov, Perceptron
from .muon import MuonAdamW
from .perceptron import PerceptronRule
from .sgd import Sgd

Groups = list[dict[str, Any]]

# Devices for which torch has an optimizer in one kernel.
FUSED = {
    "SGD": ("cpu", "cuda", "mps"),
    "Adam": ("cpu", "cuda", "mps"),
    "AdamW": ("cpu", "cuda", "mps"),
    "Adagrad": ("cpu", "cuda"),
}
FOREACH = ("cuda",)
WITHOUT_DECAY = ("Rprop", "LBFGS")
PARALLEL = ("params", "names")  # keys of a group with an entry for each parameter


def variant(name: str, kernels: str, groups: Groups) -> dict[str, bool]:
    """Which of torch's implementations to take, as keywords of the class, from where the parameters are."""
    params = [p for group in groups for p in group["params"]]
    devices = {p.device.type for p in params}
    if devices == {"meta"}:  # where a plan explains itself, and no kernel runs
        return {"foreach": False}
    fusible = devices <= set(FUSED.get(name, ())) and all(p.is_floating_point() for p in params)
    short = ""
    if name == "SGD" and any(p.device.type == "cpu" and p.itemsize < 4 for p in params):
        # What torch 2.13 has moves such weights too little.
        fusible, short = False, " of at least 32 bits"
    if kernels == "fused" and not fusible:
        raise PegboardError(
            f"torch has no fused {name} for parameters on {', '.join(sorted(devices)) or 'no device'}: "
            f"it has one for real numbers{short} on {', '.join(FUSED.get(name, ())) or 'no device'}.\n"
            "Set optimizer.kernels to auto."
        )
    if kernels == "fused" or (kernels == "auto" and fusible):
        return {"fused": True}
    return {"foreach": kernels == "foreach" or (kernels == "auto" and devices <= set(FOREACH))}


def plain(name: str, config: Any, groups: Groups) -> torch.optim.Optimizer:
    """An optimizer whose config has the keywords of its class in torch.optim."""
    options = {f.name: getattr(config, f.name) for f in fields(config)}
    options |= variant(name, options.pop("kernels"), groups)
    if name == "Adafactor":
        options["eps"] = (options.pop("eps1"), options.pop("eps2"))
    if name in WITHOUT_DECAY:
        refuse_decay(name, groups)
    else:
        options["weight_decay"] = 0.0
    corrected = options.pop("bias_correction", True)
    # The constructor writes into groups, and those it is given are the caller's.
    kind = Sgd if name == "SGD" else getattr(torch.optim, name)
    optimizer: torch.optim.Optimizer = kind([dict(g) for g in groups], **options)
    if not corrected:
        leave_uncorrected(optimizer)
    return optimizer


def leave_uncorrected(optimizer: torch.optim.Optimizer) -> None:
    """Let Adam count its steps from infinity, where its correction 1 - beta^step is 1 to the bit."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            # torch keeps the count beside the weights for kernels that read it there.
            beside = p.device if group["fused"] or group["capturable"] else "cpu"
            means = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
            optimizer.state[p] = {
                "step": torch.tensor(torch.inf, device=beside),
                **{key: torch.zeros_like(p, memory_format=torch.preserve_format) for key in means},
            }


def refuse_decay(name: str, groups: Groups) -> None:
    """Such a group would be taken without a word, and nothing would decay."""
    if any(group.get("weight_decay") for group in groups):
        raise PegboardError(
            f"{name} has no weight decay of its own, and a parameter group asks for one.\n"
            "Use decay that does not need the optimizer, or another optimizer."
        )


def split(groups: Groups) -> tuple[Groups, Groups]:
    """Groups of the matrices and groups of all other parameters, each with the settings it had."""
    matrices: Groups = []
    others: Groups = []
    for group in groups:
        for into, chosen in ((matrices, True), (others, False)):
            kept = [i for i, p in enumerate(group["params"]) if (p.ndim == 2) == chosen]
            if kept:
                into.append(group | {k: [group[k][i] for i in kept] for k in PARALLEL if k in group})
    return matrices, others


def muon(config: Muon, groups: Groups) -> torch.optim.Optimizer:
    """Muon for the matrices and AdamW for the rest; each group becomes up to two."""
    matrices, others = split(groups)
    if not matrices:
        raise PegboardError("muon trains matrices, and the model has none.\nUse adamw instead.")
    rate = config.lr if config.adamw_lr is None else config.adamw_lr
    for group in others:
        if "lr" in group and config.lr:
            # A group with a rate of its own keeps its relation to the others.
            group["lr"] *= rate / config.lr
    for_muon = {
        "lr": config.lr,
        "weight_decay": 0.0,
        "momentum": config.momentum,
        "nesterov": config.nesterov,
        "eps": config.eps,
        "ns_steps": config.ns_steps,
        "adjust_lr_fn": config.adjust_lr_fn,
    }
    for_adamw = {"lr": rate, "weight_decay": 0.0, "betas": config.adamw_betas, "eps": config.adamw_eps}
    return MuonAdamW(matrices, others, for_muon, for_adamw | variant("AdamW", config.kernels, others))


def gd(config: Gd, groups: Groups) -> torch.optim.Optimizer:
    """Gradient descent with a tolerance and a line search."""
    refuse_decay("gd", groups)
    options = {f.name: getattr(config, f.name) for f in fields(config)}
    return descent.GradientDescent([dict(g) for g in groups], **options)


def nesterov(config: Nesterov, groups: Groups) -> torch.optim.Optimizer:
    """Nesterov's accelerated gradient."""
    refuse_decay("nesterov", groups)
    return descent.Nesterov([dict(g) for g in groups], config.lr, config.momentum)


def perceptron(config: Perceptron, groups: Groups) -> torch.optim.Optimizer:
    """The perceptron's rule."""
    refuse_decay("perceptron", groups)
    return PerceptronRule(groups, config.lr)


def lbfgs(config: Lbfgs, groups: Groups) -> torch.optim.Optimizer:
    """L-BFGS, which sees all parameters as one vector and so takes groups only if they agree."""
    refuse_decay("LBFGS", groups)
    shared = {k: v for k, v in groups[0].items() if k not in PARALLEL}
    for group in groups[1:]:
        if (other := {k: v for k, v in group.items() if k not in PARALLEL}) != shared:
            keys = sorted(k for k in shared | other if shared.get(k) != other.get(k))
            raise PegboardError(
                f"lbfgs treats all parameters alike, and parameter groups differ in {', '.join(keys)}.\n"
                "Leave out what gives groups different settings, or use another optimizer."
            )
    whole = shared | {k: [x for g in groups for x in g[k]] for k in PARALLEL if k in groups[0]}
    options = {f.name: getattr(config, f.name) for f in fields(config)}
    return torch.optim.LBFGS([whole], **options)
