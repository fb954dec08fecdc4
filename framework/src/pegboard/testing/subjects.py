"""What a check is given: a plugin, one of its parts, and configs that train with it beside partners."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import PegboardError
from ..config.sections import home
from ..contract.kinds import KINDS
from ..contract.records import Facts, Model, Part
from ..contract.specs import DataSpec, fits
from ..registry.discovery import Entry, Registry
from ..registry.installed import Plugin

if TYPE_CHECKING:
    from ..contract.results import Splits
    from ..planning.plan import Assembly, Plan
    from .observed import Observed

PARTNERS = Path(__file__).with_name("partners.py")
PARTNER = "partners:partner"  # the reference partner of every kind
Config = dict[str, Any]
WATCHED = ("model", "optimizer", "regularizer", "objective", "dataset")  # kinds that are observed in a step

# Three updates an epoch, the last of two batches; rows, saves and evaluations at different steps.
TRAINER = {"epochs": 3, "accumulate": 3, "log_every": 2, "save_every": 4, "device": "cpu"}


def partner_config(**nodes: Any) -> Config:
    """A config that is made of partners alone; keyword arguments replace its nodes."""
    base: Config = {
        "seed": 5,
        "data": {"name": PARTNER, "batch_size": 4},
        "model": {"name": PARTNER},
        "optimizer": {"name": PARTNER, "lr": 0.01},
        "objective": {"name": PARTNER},
        "trainer": dict(TRAINER),
        "plugins": {"local": [str(PARTNERS)]},
    }
    return base | nodes


def partner_data() -> Iterator[Config]:
    """Every kind of input and target that the reference data has."""
    from .partners import INPUTS, TARGETS, forms

    for inputs, target in itertools.product(INPUTS, TARGETS):
        yield {"name": PARTNER, "inputs": inputs, "target": target, "batch_size": 4}
    for form in forms():
        yield {"name": PARTNER, "form": form, "batch_size": 4}


def partner_run(folder: Path, **nodes: Any) -> Path:
    """The folder of a short finished run of partners, for a part that needs one (a teacher)."""
    from ..tools.api import train

    given = partner_config(trainer={"steps": 2, "device": "cpu"}, **nodes)
    return train(given, root=folder, quiet=True).folder.resolve()


def required_fields(part: Part[Any, Any]) -> list[str]:
    """The fields of a part's config that have no default."""
    missing = dataclasses.MISSING
    found = dataclasses.fields(part.config)
    return [f.name for f in found if f.default is missing and f.default_factory is missing]


def _computes(config: Config, part: Part[Any, Any]) -> bool:
    """Whether the parts of a config give a finite loss of a few samples, and what a trick or probe reads."""
    import torch

    from ..config.check import check
    from ..contract.records import Context
    from ..engine.precision import choose_precision
    from ..engine.step import make_step
    from ..planning.plan import assemble, make_plan
    from .observed import rows_of

    try:
        assembly = assemble(make_plan(check(config), read=True, quiet=True), "cpu")
        assert assembly.plan.splits is not None
        batch = rows_of(assembly.plan.splits.train, range(3))
        for kit in assembly.kits:
            target = kit.player.target
            told = batch if target is None else batch.replace(target=target(batch))
            loss, _ = kit.player.loss(assembly.model, told)
            if loss.dim() or not bool(torch.isfinite(loss)):
                return False
            if part.kind == "regularizer":
                make_step(assembly, kit, choose_precision("fp32", "cpu")).update([batch], 0)
        if (chosen := assembly.plan.settings.probes.get(part.name)) and part.kind == "probe":
            context = Context(spec=assembly.plan.spec, outputs=assembly.plan.outputs, seed=5, key="probe")
            probe = part.build(chosen.config, context)
            probe.measure(assembly.model.eval(), assembly.plan.splits, torch.device("cpu"))
    except Exception:  # of parts that do not fit each other
        return False
    return True


@dataclasses.dataclass
class Subject:
    """A part with the plugin it is of, or the plugin as a whole."""

    plugin: Plugin
    entry: Entry | None
    registry: Registry
    folder: Path  # for what checks write; all checks of a plugin share it
    shared: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)  # what its checks share
    # No parts of other plugins may stand beside it any more.
    _own_alone: bool = dataclasses.field(default=False, init=False, repr=False)
    _refused: str = dataclasses.field(default="", init=False, repr=False)  # why it has no config

    @property
    def part(self) -> Part[Any, Any]:
        assert self.entry is not None, "a check of the plugin as a whole asks for a part"
        return self.entry.part

    @property
    def what(self) -> str:
        """How messages call it."""
        if self.entry is None:
            return f"{self._owner} {self.plugin.version}"
        return f"{self.part.kind} {self.part.name!r} of {self._owner}"

    @property
    def _owner(self) -> str:
        """The distribution, or the path of a local file as short as it may be."""
        dist, here = self.plugin.dist, os.getcwd() + os.sep
        return dist.removeprefix(here) if self.plugin.version == "local" else dist

    @property
    def folders(self) -> tuple[str, ...]:
        """Where the sources of the plugin are: its package, or its one file."""
        file = getattr(self.module, "__file__", None) or self.plugin.dist
        return (os.path.dirname(file) + os.sep,) if os.path.basename(file) == "__init__.py" else (file,)

    @cached_property
    def fields(self) -> Config:
        """The fields with which the part is tried: what its record's `trial` gives, else its defaults."""
        place = self.folder / f"{self.part.kind}-{self.part.name}"
        place.mkdir(parents=True, exist_ok=True)
        given = dict(self.part.trial(place)) if self.part.trial else {}
        if lacking := [name for name in required_fields(self.part) if name not in given]:
            raise PegboardError(
                f"{self.what} cannot be tried: {', '.join(lacking)} has no default. Its record says which "
                f"fields to try: {type(self.part).__name__}({self.part.name!r}, ..., "
                f"trial=lambda folder: {{{lacking[0]!r}: ...}})"
            )
        return given

    @property
    def node(self) -> Config:
        """The node of a config that names the part."""
        assert self.entry is not None
        return {"name": self.entry.qualified, **self.fields}

    @property
    def local(self) -> list[str]:
        """The local plugins that a config with this part registers."""
        return [str(PARTNERS), *([self.plugin.dist] if self.plugin.version == "local" else [])]

    @cached_property
    def config(self) -> Config:
        """A config that trains with the part, beside partners: the first that the planner accepts."""
        if self._refused:
            raise PegboardError(f"{self.what} cannot be tried: {self._refused}")
        _ = self.process  # as it is before anything is built
        config = self.__dict__["config"] = self._accepted()
        if self.part.kind in WATCHED:
            with suppress(Exception):  # the checks that look at it tell
                _ = self.observed
        return config

    def _accepted(self) -> Config:
        """The first config that the planner accepts and, where that may differ, that computes a loss."""
        from ..config.check import check
        from ..planning.plan import make_plan

        wrong, accepted = "there was nothing to try", None
        for config in self._configs():
            if accepted is not None and not self._of_its_plugin(config):
                continue
            try:
                make_plan(check(config), read=False, quiet=True)
            except PegboardError as error:
                wrong = str(error)
                continue
            # What needs a partner of its own plugin may be accepted beside another, and fail there.
            if not self._company or _computes(config, self.part):
                return config
            accepted = accepted or config
            self._own_alone = True
        if accepted is not None:
            return accepted  # the checks tell what fails
        self._refused = "the planner accepts no config with it, as its first check that failed tells"
        raise PegboardError(
            f"{self.what} fits none of the reference partners, nor of the parts beside it. "
            f"The planner said last:\n{wrong}"
        )

    @cached_property
    def _company(self) -> bool:
        """Whether its plugin brings what it may have to stand beside."""
        wanted = KINDS[self.part.kind].beside
        return any(part.kind in wanted for part in self.plugin.parts)

    def _of_its_plugin(self, config: Config) -> bool:
        """Whether a config names another part of its plugin."""
        names = [config[place]["name"] for place in ("data", "model", "objective")]
        assert self.entry is not None
        return any(n.startswith(f"{self.plugin.dist}:") for n in names if n != self.entry.qualified)

    @cached_property
    def process(self) -> dict[str, Any]:
        """Global settings of the process before anything was built with it."""
        from .observed import process_state

        return process_state()

    @cached_property
    def observed(self) -> Observed:
        """A short training with it, watched; checks that look at it may not train it further."""
        from .observed import observe

        return observe(self)

    def with_trainer(self, **fields: Any) -> Config:
        """The same config with other fields of the trainer."""
        return {**self.config, "trainer": {**self.config["trainer"], **fields}}

    def with_node(self, **fields: Any) -> Config:
        """The same config with more fields of the part."""
        node = {**self.node, **fields}
        if self.part.kind == "dataset":
            node = {**self.config["data"], **node}
        return {**self.config, **self._placed(node, self.config)}

    def _placed(self, node: Config, beside: Config) -> Config:
        """The section of a config in which the node of the part stands, with what stands beside it there."""
        section = home(self.part)
        above, _, key = section.name.rpartition(".")
        if above:
            return {above: {**beside[above], key: node}}
        return {section.name: {self.part.name: node} if section.keyed else node}

    def plan(self, **trainer: Any) -> Plan:
        """The plan of its config, with fields of the trainer."""
        from ..config.check import check
        from ..planning.plan import make_plan

        return make_plan(check(self.with_trainer(**trainer)), read=False, quiet=True)

    def assembly(self, seed: int = 5) -> Assembly:
        """All that its config builds, on the CPU, with the data read."""
        from ..config.check import check
        from ..planning.plan import assemble, make_plan

        return assemble(make_plan(check({**self.config, "seed": seed}), read=True, quiet=True), "cpu")

    def splits(self) -> Splits:
        """The data of its config."""
        from ..config.check import check
        from ..planning.plan import read_data

        return read_data(check(self.config), quiet=True)

    def built_config(self) -> Any:
        """The config class of the part, with the fields it is tried with."""
        from ..config.check import check

        section = home(self.part)
        path = f"{section.name}.{self.part.name}" if section.keyed else section.name
        return check(self.config).parts[path].config

    @property
    def module(self) -> Any:
        """The light module of the plugin."""
        return self.plugin.module

    def _configs(self) -> Iterable[Config]:
        node = self.node
        match self.part.kind:
            case "model":
                return (
                    self._beside(model=node, data=data, **own)
                    for own in self._objectives(self.part)
                    for data in self.data()
                )
            case "dataset":
                steps = {**TRAINER, "epochs": None, "steps": 7}
                data = node | {"batch_size": 8}
                return (
                    self._beside(data=data, model=model, trainer=steps, **own)
                    for part, model in self._models()
                    for own in self._objectives(part)
                )
        placed = self._placed(node, partner_config())
        return self._with_models(**placed) if KINDS[self.part.kind].beside else [self._beside(**placed)]

    def _beside(self, **nodes: Any) -> Config:
        return partner_config(plugins={"local": self.local}, **nodes)

    def _objective(self, model: Part[Any, Any]) -> Config:
        """The objective that a model asks for, where it does, in place of the partner."""
        name = getattr(model, "objective", "")
        return {"objective": {"name": name}} if name else {}

    def _objectives(self, model: Part[Any, Any]) -> Iterator[Config]:
        """The objective that a model asks for, or the partner; then those of the same plugin."""
        yield self._objective(model)
        for part in self.plugin.parts if self._company else ():
            if part.kind == "objective" and (part.trial is not None or not required_fields(part)):
                yield {"objective": {"name": f"{self.plugin.dist}:{part.name}"}}

    def _with_models(self, **nodes: Any) -> Iterator[Config]:
        for part, model in self._models():
            if self._may_meet(part, None):
                objectives = self._objectives(part) if self.part.kind != "objective" else [{}]
                yield from (
                    self._beside(data=data, model=model, **own | nodes)
                    for own in objectives
                    for data in self.data(part)
                )

    def data(self, model: Part[Any, Any] | None = None) -> Iterator[Config]:
        """Data that may suit the part, beside a model."""
        from .partners import PartnerData, data_spec

        for node in partner_data():
            fields = {name: value for name, value in node.items() if name not in ("name", "batch_size")}
            if self._may_meet(model, data_spec(PartnerData(**fields))):
                yield node
        for other in self._others("dataset"):
            if self._may_meet(model, other._said()):
                yield other.node | {"batch_size": 4}

    def _said(self) -> DataSpec | None:
        """What a data set says that it holds, None where that is not known without the planner."""
        spec: Any = getattr(self.part, "spec", None)
        try:
            said: DataSpec | None = spec and spec(self.part.config(**self.fields))
        except Exception:  # of fields that are no values of its types yet
            return None
        return said

    def _models(self) -> Iterator[tuple[Part[Any, Any], Config]]:
        from .partners import pegboard_models

        if self.part.kind == "dataset":  # samples of its plugin's own spec are for its plugin's models
            yield from ((o.part, o.node) for o in self._others("model") if self._shares_spec(o))
        for other in self._others("model") if self.part.kind == "objective" else ():
            if other.plugin is self.plugin and getattr(other.part, "objective", "") == self.part.name:
                yield other.part, other.node  # it was made for this one
        yield from ((part, {"name": f"{PARTNERS.stem}:{part.name}"}) for part in pegboard_models())
        yield from ((other.part, other.node) for other in self._others("model"))

    def _shares_spec(self, other: Subject) -> bool:
        """Whether another part of the same plugin names a spec that the plugin defines."""
        inputs: tuple[Any, ...] = getattr(other.part, "inputs", ())
        return other.plugin is self.plugin and any(cls in self.plugin.specs for cls in inputs)

    def _may_meet(self, model: Part[Any, Any] | None, spec: DataSpec | None) -> bool:
        """Whether records alone have nothing against it; a plan, which tells surely, takes far longer."""
        own, parts = self.part, [p for p in (self.part, model) if p is not None]
        if spec is not None:
            targets = all(fits(getattr(p, "targets", ()), spec.target) for p in parts)
            if not targets or not all(fits(getattr(p, "inputs", ()), s) for p in parts for s in spec.inputs):
                return False
        try:
            known = Facts(spec=spec, model=model if isinstance(model, Model) else None)
            return own.check is None or not any(True for _ in own.check(own.config(**self.fields), known))
        except Exception:
            return True  # the planner says what is wrong with its rules

    def _others(self, kind: str) -> Iterator[Subject]:
        """Parts of a kind that may stand beside it: those of the same plugin first, then all installed."""
        found = self.registry.entries(kind)
        own = [e for e in found if e.plugin is self.plugin and e is not self.entry]
        rest = [e for e in found if e.plugin is not self.plugin and e.plugin.version != "local"]
        for entry in (*own, *rest):
            if self._own_alone and entry.plugin is not self.plugin:
                return
            if entry.part.trial is not None or not required_fields(entry.part):
                yield Subject(entry.plugin, entry, self.registry, self.folder)
