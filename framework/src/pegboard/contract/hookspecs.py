"""The hooks a plugin may implement, one for each kind of part. This file is the manual.

A plugin is a distribution with one entry point in the group `pegboard`, which names a light
module: a module that imports neither torch nor numpy. Each hook below is a function of that
module, decorated with `pegboard.hookimpl`. It is called once a process, when the catalogue of
parts is first needed, takes no arguments, and returns a list of records. Whatever goes wrong in
it becomes the status of the plugin and nothing else.

What acts in a training step must not wait for the device. A model, objective, trick, optimizer or
schedule that cannot do without says why in `synchronizes` of its record, and `explain` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pluggy

from .records import (
    Dataset,
    Model,
    ObjectivePart,
    Optimizer,
    ProbePart,
    Problem,
    Regularizer,
    Schedule,
    Stepper,
    TrackerPart,
)
from .sampling import SampleMethod

hookspec = pluggy.HookspecMarker("pegboard")
hookimpl = pluggy.HookimplMarker("pegboard")


@hookspec
def pegboard_models() -> Sequence[Model[Any]]:
    """Models: `build(config, context)` returns an `nn.Module` called as `model(*batch.inputs)`.

    Sizes come from `context.spec` (inputs) and `context.outputs`, never from the config. `inputs`
    names the specs that it reads, `pegs` the sites where tricks may hang modules.
    """
    raise NotImplementedError


@hookspec
def pegboard_optimizers() -> Sequence[Optimizer[Any] | Schedule[Any]]:
    """Optimizers and learning rate schedules.

    An optimizer's `build` returns a function from parameter groups to a `torch.optim.Optimizer`,
    fused or foreach as `context.device` allows; a schedule's returns a function from the number of
    the step (0 first; `context.steps` in all) to a factor of every group's rate. `closure=True` on
    a record says that `step` takes a closure; `functional` gives the update as a function of tensors,
    which makes a step shorter and lets it be compiled whole.
    """
    raise NotImplementedError


@hookspec
def pegboard_regularizers() -> Sequence[Regularizer[Any]]:
    """Tricks: `build` returns a `Trick` that overrides the methods named in `stages`.

    Each stage has roles in a fixed order (`pegboard.contract.tricks.ROLES`); the record names the
    trick's role in each stage, and may say `after`, `before` and `conflicts`.
    """
    raise NotImplementedError


@hookspec
def pegboard_datasets() -> Sequence[Dataset[Any]]:
    """Data sets: `build` returns `Splits`; `spec(config)` says what they hold without reading them."""
    raise NotImplementedError


@hookspec
def pegboard_objectives() -> Sequence[ObjectivePart[Any]]:
    """Objectives: `build` returns an `Objective`: loss, metrics and players.

    `default_for` names the target specs for which it is taken when a config names none;
    `outputs(config, target)` how many numbers a sample the model must give, where that is not the
    target's own size.
    """
    raise NotImplementedError


@hookspec
def pegboard_steppers() -> Sequence[Stepper[Any]]:
    """Steppers: `build` returns a `Stepping`, which makes the updates of a run; a config names one."""
    raise NotImplementedError


@hookspec
def pegboard_trackers() -> Sequence[TrackerPart[Any]]:
    """Trackers: `build` returns a `Tracker`. metrics.jsonl is always written and needs none."""
    raise NotImplementedError


@hookspec
def pegboard_probes() -> Sequence[ProbePart[Any]]:
    """Probes: `build` returns a `Probe`, a measurement on a trained run."""
    raise NotImplementedError


@hookspec
def pegboard_sample_methods() -> Sequence[SampleMethod]:
    """What `pegboard sample` does with trained models whose module has a method of its name.

    A model of text has `generate`, as `Decoding` says, and a model with `samples` in its record is sampled
    by the core. This is for models with another way: `SampleMethod("compose", sample)` is asked where the
    module has a method `compose`; that of the model's own plugin before those of others.
    """
    raise NotImplementedError


@hookspec
def pegboard_recipes() -> Sequence[Path]:
    """Folders of recipes: below each, `data/model-variant/recipe.yaml` is the recipe of that name."""
    raise NotImplementedError


@hookspec
def pegboard_health() -> Sequence[Problem]:
    """What is wrong with the machine or the account, as far as this plugin needs them; nothing is well.

    Called by `pegboard plugins doctor` alone, in a process of its own, so it may import what it likes, but
    it should answer in seconds: a missing licence file, a server that does not answer, a key that is not set.
    """
    raise NotImplementedError
