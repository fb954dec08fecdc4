"""The optimizers of torch.optim that train dense parameters, and schedules. No torch at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pegboard import Context, Facts, Optimizer, PegboardError, Problem, Schedule, hookimpl

from . import configs, schedules
from .schedules import Factor

if TYPE_CHECKING:
    import torch

    from .updates import Update

    Factory = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def factory(name: str) -> Callable[[Any, Context], Factory]:
    """A build function for the optimizer that torch.optim has under this name, or one of our own."""

    def build(config: Any, context: Context) -> Factory:
        from . import factories

        if name in ("Muon", "LBFGS", "gd", "nesterov"):
            return partial(getattr(factories, name.lower()), config)
        return partial(factories.plain, name, config)

    return build


def functional(optimizer: torch.optim.Optimizer, traced: bool) -> Update | None:
    from .updates import functional as made

    return made(optimizer, traced)


def build_perceptron(config: configs.Perceptron, context: Context) -> Factory:
    from . import factories

    return partial(factories.perceptron, config)


def perceptron_update(optimizer: torch.optim.Optimizer, traced: bool) -> Update | None:
    from . import perceptron

    return perceptron.functional(optimizer) if isinstance(optimizer, perceptron.PerceptronRule) else None


def check_sgd(config: configs.Sgd, facts: Facts) -> Iterable[Problem]:
    if config.nesterov and config.momentum == 0:
        yield Problem(
            "nesterov needs momentum, and there is none", "nesterov", hint="set momentum, as in 0.9"
        )
    elif config.dampening != 0 and config.momentum == 0:
        yield Problem(
            f"dampening is {config.dampening}, and there is no momentum to dampen",
            "dampening",
            expected="0",
            hint="set momentum, as in 0.9",
        )
    if config.nesterov and config.dampening != 0:
        yield Problem(
            f"nesterov allows no dampening, and it is {config.dampening}", "dampening", expected="0"
        )


def check_rprop(config: configs.Rprop, facts: Facts) -> Iterable[Problem]:
    if config.step_sizes[0] > config.step_sizes[1]:
        yield Problem(
            f"the smallest step {config.step_sizes[0]} is larger than the largest {config.step_sizes[1]}",
            "step_sizes",
            expected="the smallest first",
        )


def check_warmup(config: Any, facts: Facts) -> Iterable[Problem]:
    """A ramp that the run does not come to the end of."""
    if facts.steps is not None and config.warmup and config.warmup >= facts.steps:
        yield Problem(
            f"a ramp of {config.warmup} steps in a run of {facts.steps}: the full rate is never reached",
            "warmup",
            expected=f"at most {facts.steps - 1}",
            hint="a shorter ramp, or a longer run: trainer.epochs or trainer.steps",
        )


def check_step(config: schedules.Step, facts: Facts) -> Iterable[Problem]:
    yield from check_warmup(config, facts)
    first = (
        min(config.at, default=None) if config.at or config.every is None else config.warmup + config.every
    )
    if facts.steps is not None and first is not None and first >= facts.steps:
        yield Problem(
            f"the first drop is at step {first}, and the run has {facts.steps}: the rate never falls",
            "at" if config.at else "every",
            expected=f"a drop before step {facts.steps}",
        )
    elif facts.steps is not None and (late := [step for step in config.at if step >= facts.steps]):
        yield Problem(
            f"the drop at step {late[0]} is never reached: the run has {facts.steps}",
            f"at.{config.at.index(late[0])}",
            expected=f"steps below {facts.steps}",
        )
    if config.at and config.every is not None:
        yield Problem("both every and at say when to drop", "at", hint="leave one of them out")
    if config.at and min(config.at) <= config.warmup:
        yield Problem(
            f"the drop at step {min(config.at)} is not after the ramp of {config.warmup} steps",
            "at",
            expected=f"steps above {config.warmup}",
        )


def _remaining(part: str, warmup: int, context: Context, instead: str = "") -> int:
    """How many steps are left after the ramp."""
    if context.steps is None:
        raise PegboardError(
            f"the schedule {part} needs to know how many updates the run will make, and nothing says it.\n"
            f"Set trainer.steps or trainer.epochs{instead}."
        )
    return max(context.steps - warmup, 1)


def build_constant(config: schedules.Constant, context: Context) -> Factor:
    return schedules.warm(schedules.constant, config.warmup)


def build_linear(config: schedules.Linear, context: Context) -> Factor:
    steps = config.steps or _remaining("linear", config.warmup, context, ", or the schedule's own steps")
    return schedules.warm(partial(schedules.linear, steps=steps, end=config.end), config.warmup)


def build_cosine(config: schedules.Cosine, context: Context) -> Factor:
    steps = config.steps or _remaining("cosine", config.warmup, context, ", or the schedule's own steps")
    return schedules.warm(partial(schedules.cosine, steps=steps, end=config.end), config.warmup)


def build_step(config: schedules.Step, context: Context) -> Factor:
    if config.at:
        # Places are counted from the start of the run, the schedule from the end of the ramp.
        at = tuple(sorted(place - config.warmup for place in config.at))
        return schedules.warm(partial(schedules.drops_at, at=at, gamma=config.gamma), config.warmup)
    every = config.every
    if every is None:
        every = max(_remaining("step", config.warmup, context, ", or the schedule's every or at") // 3, 1)
    return schedules.warm(partial(schedules.drops, every=every, gamma=config.gamma), config.warmup)


def build_exponential(config: schedules.Exponential, context: Context) -> Factor:
    gamma = config.gamma
    if gamma is None:
        gamma = config.end ** (
            1 / _remaining("exponential", config.warmup, context, ", or the schedule's gamma")
        )
    return schedules.warm(partial(schedules.exponential, gamma=gamma), config.warmup)


def build_inverse_time(config: schedules.InverseTime, context: Context) -> Factor:
    function = schedules.recursive_inverse_time if config.recursive else schedules.inverse_time
    return schedules.warm(partial(function, rate=config.rate, power=config.power), config.warmup)


def build_one_cycle(config: schedules.OneCycle, context: Context) -> Factor:
    cycle = partial(
        schedules.one_cycle,
        steps=_remaining("one_cycle", config.warmup, context),
        pct_start=config.pct_start,
        anneal=config.anneal,
        div_factor=config.div_factor,
        final_div_factor=config.final_div_factor,
    )
    return schedules.warm(cycle, config.warmup)


COMPARES = "close to an optimum it compares losses and slopes that differ by less than 16 bits tell apart"


@hookimpl
def pegboard_optimizers() -> list[Optimizer[Any] | Schedule[Any]]:
    return [
        Optimizer("sgd", configs.Sgd, factory("SGD"), check=check_sgd, functional=functional),
        Optimizer(
            "gd",
            configs.Gd,
            factory("gd"),
            closure=True,
            synchronizes="it reads the length of the gradient, and losses to choose how far it goes",
            full_precision=COMPARES,
        ),
        Optimizer("nesterov", configs.Nesterov, factory("nesterov"), closure=True),
        Optimizer("adam", configs.Adam, factory("Adam"), functional=functional),
        Optimizer("adamw", configs.AdamW, factory("AdamW"), functional=functional),
        Optimizer("nadam", configs.NAdam, factory("NAdam"), functional=functional),
        Optimizer("radam", configs.RAdam, factory("RAdam"), functional=functional),
        Optimizer("adamax", configs.Adamax, factory("Adamax"), functional=functional),
        Optimizer("adadelta", configs.Adadelta, factory("Adadelta"), functional=functional),
        Optimizer("adagrad", configs.Adagrad, factory("Adagrad"), functional=functional),
        Optimizer(
            "asgd",
            configs.Asgd,
            factory("ASGD"),
            synchronizes="it reads its rate and its decay, which it keeps on the device",
            functional=functional,
        ),
        Optimizer("rmsprop", configs.RmsProp, factory("RMSprop"), functional=functional),
        Optimizer("rprop", configs.Rprop, factory("Rprop"), check=check_rprop, functional=functional),
        Optimizer(
            "adafactor",
            configs.Adafactor,
            factory("Adafactor"),
            synchronizes="it reads the size of the weights to choose the length of its step",
            functional=functional,
        ),
        Optimizer("muon", configs.Muon, factory("Muon"), functional=functional),
        Optimizer(
            "lbfgs",
            configs.Lbfgs,
            factory("LBFGS"),
            closure=True,
            synchronizes="it compares losses and slopes to choose how far it goes",
            full_precision=COMPARES,
        ),
        Optimizer(
            "perceptron",
            configs.Perceptron,
            build_perceptron,
            functional=perceptron_update,
            full_precision="its rule adds the samples themselves, which 16 bits would round",
            trial=lambda folder: {"lr": 0.1},
        ),
        Schedule("constant", schedules.Constant, build_constant, check=check_warmup),
        Schedule("linear", schedules.Linear, build_linear, check=check_warmup),
        Schedule("step", schedules.Step, build_step, check=check_step),
        Schedule("cosine", schedules.Cosine, build_cosine, check=check_warmup),
        Schedule("exponential", schedules.Exponential, build_exponential, check=check_warmup),
        Schedule("inverse_time", schedules.InverseTime, build_inverse_time, check=check_warmup),
        Schedule("one_cycle", schedules.OneCycle, build_one_cycle, check=check_warmup),
    ]
