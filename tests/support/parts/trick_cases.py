"""Models beside data that they read, for tests of tricks on every model of some plugins."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pegboard import DataSpec, PegboardError
from pegboard.config.check import check
from pegboard.planning.plan import Assembly, assemble, make_plan
from pegboard.registry.discovery import Registry
from pegboard.testing import Subject, partner_config, partner_data
from pegboard.testing.partners import PartnerData, data_spec

Node = dict[str, Any]


class Case(NamedTuple):
    model: Node
    data: Node
    spec: DataSpec


def met(dists: Collection[str], room: Path) -> Iterator[tuple[str, Case]]:
    """Every model of the plugins, by its plugin, beside every partner's data whose spec it takes."""
    registry = Registry.discover()
    for entry in registry.entries("model"):
        if entry.plugin.dist not in dists:
            continue
        subject = Subject(entry.plugin, entry, registry, room)
        for data in sorted(partner_data(), key=lambda node: "form" not in node):  # padded data first
            fields = {k: v for k, v in data.items() if k not in ("name", "batch_size")}
            spec = data_spec(PartnerData(**fields))
            if subject._may_meet(None, spec):
                model = {"name": entry.part.name, **subject.fields}
                yield entry.plugin.dist, Case(model, {**data, "batch_size": 8}, spec)


def assembled(case: Case, **tricks: Any) -> Assembly:
    """The objects of a run of a model with tricks."""
    given = partner_config(data=case.data, model=case.model, objective=None, regularizers=tricks)
    return assemble(make_plan(check(given), read=True), "cpu")


def refused(case: Case, **tricks: Any) -> str:
    """Why the plan does not go, or nothing."""
    try:
        assembled(case, **tricks)
    except PegboardError as error:
        return str(error)
    return ""
