"""What a check is given: a plugin, one of its parts, and configs that train with it beside partners."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.sections import in_configs, section
from ..errors import PegboardError
from ..installed import Plugin
from ..parts import Facts, Part
from ..registry import Entry, Registry

if TYPE_CHECKING:
    from ..contracts import Splits
    from ..planning import Assembly, Plan

PARTNERS = Path(__file__).with_name("partners.py")
PARTNER = "partners:partner"  # the reference partner of every kind
Config = dict[str, Any]

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
    from .partners import FORMS, INPUTS, TARGETS

    for inputs, target in itertools.product(INPUTS, TARGETS):
        yield {"name": PARTNER, "inputs": inputs, "target": target, "batch_size": 4}
    for form in FORMS:
        yield {"name": PARTNER, "form": form, "batch_size": 4}


def partner_run(folder: Path, **nodes: Any) -> Path:
    """The folder of a short finished run of partners, for a part that needs one (a teacher)."""
    from ..api import train

    given = partner_config(trainer={"steps": 2, "device": "cpu"}, **nodes)
    return train(given, root=folder, quiet=True).folder.resolve()


def required_fields(part: Part[Any, Any]) -> list[str]:
    """The fields of a part's config that have no default."""
    missing = dataclasses.MISSING
    found = dataclasses.fields(part.config)
    return [f.name for f in found if f.default is missing and f.default_factory is missing]


@dataclasses.dataclass
class Subject:
    """A part with the plugin it is of, or the plugin as a whole."""

    plugin: Plugin
    entry: Entry | None
    registry: Registry
    folder: Path  # for what checks write; all checks of a plugin share it

    @property
    def part(self) -> Part[Any, Any]:
        assert self.entry is not None, "a check of the plugin as a whole asks for a part"
        return self.entry.part

    @property
    def what(self) -> str:
        """How messages call it."""
        if self.entry is None:
            return f"{self.plugin.dist} {self.plugin.version}"
        return f"{self.part.kind} {self.part.name!r} of {self.plugin.dist}"

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
        from ..api import plan

        wrong = "there was nothing to try"
        for config in self._configs():
            try:
                self._suits(plan(config))
            except PegboardError as error:
                wrong = str(error)
            else:
                return config
        raise PegboardError(
            f"{self.what} fits none of the reference partners, nor of the parts beside it. "
            f"The planner said last:\n{wrong}"
        )

    def with_trainer(self, **fields: Any) -> Config:
        """The same config with other fields of the trainer."""
        return {**self.config, "trainer": {**self.config["trainer"], **fields}}

    def with_node(self, **fields: Any) -> Config:
        """The same config with more fields of the part."""
        node = {**self.node, **fields}
        match self.part.kind:
            case "regularizer" | "tracker" as kind:
                return {**self.config, f"{kind}s": {self.part.name: node}}
            case "schedule":
                return {**self.config, "optimizer": {**self.config["optimizer"], "schedule": node}}
            case "dataset":
                return {**self.config, "data": {**self.config["data"], **node}}
            case kind:
                return {**self.config, section(kind): node}

    def plan(self, **trainer: Any) -> Plan:
        """The plan of its config, with fields of the trainer."""
        from ..api import plan

        return plan(self.with_trainer(**trainer))

    def assembly(self, seed: int = 5) -> Assembly:
        """All that its config builds, on the CPU, with the data read."""
        from ..config.check import check
        from ..planning import assemble, make_plan

        return assemble(make_plan(check({**self.config, "seed": seed}), read=True), "cpu")

    def splits(self) -> Splits:
        """The data of its config."""
        from ..config.check import check
        from ..planning import read_data

        return read_data(check(self.config))

    def built_config(self) -> Any:
        """The config class of the part, with the fields it is tried with."""
        from ..config.check import check

        if not in_configs(self.part):
            return self.part.config(**self.fields)
        settings = check(self.config)
        chosen = {
            "dataset": settings.data,
            "schedule": settings.schedule,
            "optimizer": settings.optimizer,
            "probe": settings.reference,
        }
        found = chosen[self.part.kind]
        assert found is not None
        return found.config

    @property
    def module(self) -> Any:
        """The light module of the plugin."""
        return self.plugin.module

    def _configs(self) -> Iterable[Config]:
        node = self.node
        match self.part.kind:
            case "model":
                return (self._beside(model=node, data=data) for data in self._data())
            case "optimizer":
                return [self._beside(optimizer=node)]
            case "schedule":
                return [self._beside(optimizer={"name": PARTNER, "lr": 0.01, "schedule": node})]
            case "objective":
                return (
                    self._beside(objective=node, data=data, model=model)
                    for model in self._models()
                    for data in self._data()
                )
            case "regularizer":
                return (
                    self._beside(regularizers={self.part.name: node}, data=data, model=model)
                    for model in self._models()
                    for data in self._data()
                )
            case "dataset":
                steps = {**TRAINER, "epochs": None, "steps": 7}
                data = node | {"batch_size": 8}
                return (self._beside(data=data, model=model, trainer=steps) for model in self._models())
            case "tracker":
                return [self._beside(trackers={self.part.name: node})]
            case "probe" if in_configs(self.part):
                return (
                    self._beside(reference=node, data=data, model=model)
                    for model in self._models()
                    for data in self._data()
                )
            case _:  # a probe measures what others trained
                return (
                    self._beside(data=data, model=model) for model in self._models() for data in self._data()
                )

    def _suits(self, made: Plan) -> None:
        """Ask a probe that no config names what it says of a plan; of all others the planner asks."""
        if in_configs(self.part) or self.part.check is None:
            return
        model: Any = made.settings.model.entry.part
        facts = Facts(spec=made.spec, model=model, objective=made.objective.entry.part)  # type: ignore[arg-type]
        for problem in self.part.check(self.built_config(), facts):
            raise PegboardError(problem.message)

    def _beside(self, **nodes: Any) -> Config:
        return partner_config(plugins={"local": self.local}, **nodes)

    def _data(self) -> Iterator[Config]:
        yield from partner_data()
        yield from (other.node | {"batch_size": 4} for other in self._others("dataset"))

    def _models(self) -> Iterator[Config]:
        yield {"name": PARTNER}
        yield from (other.node for other in self._others("model"))

    def _others(self, kind: str) -> Iterator[Subject]:
        """Parts of a kind that may stand beside it: those of the same plugin first, then all installed."""
        found = self.registry.entries(kind)
        own = [e for e in found if e.plugin is self.plugin and e is not self.entry]
        rest = [e for e in found if e.plugin is not self.plugin and e.plugin.version != "local"]
        for entry in (*own, *rest):
            if entry.part.trial is not None or not required_fields(entry.part):
                yield Subject(entry.plugin, entry, self.registry, self.folder)
