"""Whether the parts of a whole config fit each other, its data and the length of the run; no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..contract.options import DataOptions
from ..contract.records import Facts
from ..contract.specs import DataSpec
from . import compatibility, no_effect, split_sizes
from .errors import Mistake, join, listed
from .load import Loaded, locate
from .nodes import Trainer
from .sections import Parts, Read, as_node
from .trained_models import fit_saved


class Fitting:
    """All parts together; `parts.found` collects what is wrong, `late` what a trial is too short for."""

    def __init__(
        self,
        loaded: Loaded,
        sections: Mapping[str, tuple[str, Any]],
        parts: Parts,
        reads: dict[str, Read],
        trainer: Trainer | None,
        begun: bool,
        asked: Trainer | None,
    ) -> None:
        self.monitor = (
            None if asked is None else asked.monitor
        )  # `trainer` is None where another field is wrong
        self.loaded, self.sections, self.parts, self.reads = loaded, sections, parts, reads
        self.trainer, self.begun, self.found = trainer, begun, parts.found
        self.late: list[Mistake] = []

    def _key(self, section: str) -> str:
        return self.sections.get(section, (section,))[0]

    def run(
        self, spec: DataSpec | None, samples: int | None, validated: bool | None = None
    ) -> DataSpec | None:
        """The spec of the data, as far as it is known; what does not fit is noted.

        Data that was read says how many `samples` train, and whether any validate.
        """
        sure = {path: read for path, read in self.reads.items() if not read.guessed}
        data, model, objective = sure.get("data"), sure.get("model"), sure.get("objective")
        was_read, unfit, sizes = spec is not None, set[str](), tuple[int, ...]()
        if spec is None and data is not None:
            spec = compatibility.read_spec(self.parts, data)
        if data is not None:
            self.found += compatibility.fit_batches(data, spec)
            sizes = (samples,) if samples is not None else ()
            if not (sizes or self.begun):
                sizes = split_sizes.training_sizes(self.parts, data, self.trainer, self._key("trainer"))
            if not self.begun:
                self.found += split_sizes.without_batches(data, self.trainer, sizes)
        if not self.begun:
            for path, read in sure.items():
                if not (was_read and path == "data"):
                    self.found += fit_saved(read, self.parts.registry, spec)
        if spec is not None and data is not None:
            source = repr(data.entry.part.name)
            objective = self._fit_data(sure, source, spec, unfit)
        tricks = {
            path.partition(".")[2]: (read, read.config, read.options.players)
            for path, read in sure.items()
            if path.startswith("regularizers.") and read.config is not None and read.options is not None
        }
        self.found += compatibility.fit_tricks(tricks, model)
        length = self._length(data, sizes)
        told = None if spec is None else compatibility.told(spec, objective)
        # Data that was read once met its own rules, and its files may be gone since.
        # What the rules of a part say that is wrong for the data anyway would follow from that.
        ruled = {
            path: read
            for path, read in sure.items()
            if path not in unfit and not (was_read and path == "data")
        }
        for seen, acts in ((spec, False), (told, True)):
            reads = [read for path, read in ruled.items() if path.startswith("regularizers.") == acts]
            known = compatibility.facts(sure, seen, objective, length)
            known = replace(
                known,
                model=None if "model" in unfit else known.model,
                objective=None if "objective" in unfit else known.objective,
            )
            self._add(
                compatibility.own_rules(self.parts, reads, known),
                partial(compatibility.own_rules, self.parts, reads, replace(known, steps=None, epochs=None)),
            )
        self._inherited()
        if data is not None and not (was_read or self.begun):
            self.found += split_sizes.nothing_to_train_on(self.parts, data)
        known = compatibility.facts(sure, spec, objective, length)
        self._narrow(replace(known, model=None) if "model" in unfit else known, told)
        if validated is None:
            validated = self.begun or data is None or self.trainer is None
            validated = validated or (
                data is not None and split_sizes.validated(self.parts, data, self.trainer)
            )
        known = replace(known, metrics=None, players=None) if unfit else known
        self._effects(sure, spec, length, known, validated)
        return spec

    def _inherited(self) -> None:
        """Take out what a player has from the optimizer of all players, where it was told already."""
        key = self._key("optimizer")
        told = {
            (m.path.removeprefix(f"{key}."), m.message) for m in self.found if m.path.startswith(f"{key}.")
        }

        def again(mistake: Mistake) -> bool:
            inside = mistake.path.removeprefix(f"{key}.players.")
            own = inside == mistake.path or mistake.path in self.loaded.origins
            return not own and (inside.partition(".")[2], mistake.message) in told

        self.found[:] = [mistake for mistake in self.found if not again(mistake)]

    def _fit_data(self, sure: dict[str, Read], source: str, spec: DataSpec, unfit: set[str]) -> Read | None:
        """The objective; notes the parts that do not work on the data, of those with one cause the first."""
        registry, model, objective = self.parts.registry, sure.get("model"), sure.get("objective")
        named = self.sections.get("objective", ("", None))[1] is not None
        aim: Any = objective.entry.part if objective is not None and named else None
        wrong = [] if model is None else list(compatibility.fit_model(model, source, spec, registry, aim))
        self._unfit("model", wrong, unfit)
        if not named:
            before = len(self.found)
            objective = self._default_objective(spec)
            sure |= {"objective": objective} if objective else {}
            if unfit:
                del self.found[before:]  # another model may have another objective
        elif objective is not None:
            beside = None if unfit else model
            wrong = list(compatibility.fit_target(objective, source, spec, registry, beside))
            if not (wrong and model is not None and unfit and compatibility.alike(model, objective)):
                self._unfit("objective", wrong, unfit)
        told = compatibility.told(spec, objective)
        for path, read in sure.items():
            if path.startswith("regularizers."):
                wrong = list(compatibility.fit_trick(read, source, told, registry))
                causes = [sure[cause] for cause in ("model", "objective") if cause in unfit and cause in sure]
                if not (wrong and any(compatibility.alike(read, cause) for cause in causes)):
                    self._unfit(path, wrong, unfit)
        return objective

    def _narrow(self, known: Facts, told: DataSpec | None) -> None:
        """Where a name is unknown, offer those alone that would be right in its place."""
        given = self.sections.get("objective", ("", None))[1] is not None
        for index, mistake in enumerate(self.found):
            kind = mistake.kind
            offered = mistake.expected.rpartition("one of ")
            if kind == "dataset" and offered[1]:
                aim = known.objective if given else None
                if names := compatibility.accepted_data(self.parts.registry, known.model, aim):
                    self.found[index] = replace(mistake, expected=f"{offered[0]}one of {listed(names)}")
            if kind not in ("model", "objective", "regularizer", "probe", "reference") or known.spec is None:
                continue
            if kind != "reference" and not offered[1]:  # its plugin is wrong, not its name
                continue
            beside = replace(known, spec=told if kind == "regularizer" else known.spec)
            if kind == "model" and not given:
                beside = replace(beside, objective=None)
            names = compatibility.accepted(self.parts.registry, kind, beside)
            if names:
                self.found[index] = replace(mistake, expected=f"{offered[0]}one of {listed(names)}")
            elif kind == "reference":
                none = "none: no reference that is installed knows an optimum of this model and objective"
                self.found[index] = replace(mistake, expected=none)

    def _unfit(self, path: str, wrong: Sequence[Mistake], unfit: set[str]) -> None:
        self.found += wrong
        if wrong:
            unfit.add(path)

    def _length(self, data: Read | None, sizes: tuple[int, ...]) -> no_effect.Length:
        """How long the run is; nothing is known of one that is over."""
        options = data.options if data is not None else None
        if self.begun or self.trainer is None or not isinstance(options, DataOptions):
            return no_effect.Length()
        return split_sizes.lengths(self.trainer, options, sizes)

    def _effects(
        self,
        sure: Mapping[str, Read],
        spec: DataSpec | None,
        length: no_effect.Length,
        known: Facts,
        validated: bool,
    ) -> None:
        """Names that the objective does not have, and settings that change nothing."""
        trainer, where = self.trainer, self._key("trainer")
        players = self.sections.get("optimizer", ("", None))[1]
        players = as_node(players).get("players") if isinstance(as_node(players), Mapping) else None
        named = {p: join(f"{self._key('optimizer')}.players", p) for p in players or ()}
        self.found += compatibility.fit_players(sure, named if isinstance(players, Mapping) else {}, known)
        self.found += compatibility.fit_monitor(self.monitor, where, known, validated)
        self.found += compatibility.fit_closure(trainer, where, sure.get("optimizer"))
        if trainer is None or self.begun:
            return
        data = sure.get("data")
        for mistake in no_effect.idle(trainer, where):
            switch = self.loaded.origins.get(f"{where}.{no_effect.SWITCHES[mistake.path.rpartition('.')[2]]}")
            place = locate(mistake, self.loaded).origin
            off = switch is not None and switch.word is not None and (place is None or place.word is None)
            (self.late if off else self.found).append(mistake)  # switched off on the command line alone
        self.found += no_effect.idle_layout(trainer.channels_last, where, spec)
        if data is not None and isinstance(data.options, DataOptions):
            self.found += no_effect.idle_data(data, spec, trainer.accumulate, where)
            drawn = "model" not in sure or getattr(sure["model"].entry.part, "samples", False)
            self._add(no_effect.beyond(trainer, where, data, length, drawn), list)
            self.late += no_effect.rare(trainer, where, length)

    def _add(self, mistakes: Iterable[Mistake], anyway: Callable[[], Iterable[Mistake]]) -> None:
        """Note mistakes; in a trial those that there are not `anyway`, of a run of any length, are warnings.

        A trial is a run whose length or data the command line changes: `trainer.steps=10`, `data.limit=100`.
        """
        noted, ends = list(mistakes), (f"{self._key('trainer')}.steps", f"{self._key('trainer')}.epochs")
        data = f"{self._key('data')}."
        words = (p for p, o in self.loaded.origins.items() if o.word is not None)
        if not noted or not any(path in ends or path.startswith(data) for path in words):
            self.found += noted
            return
        whole = {(m.path, m.message) for m in anyway()}
        for mistake in noted:
            place = locate(mistake, self.loaded).origin
            late = (mistake.path, mistake.message) not in whole and (place is None or place.word is None)
            (self.late if late else self.found).append(mistake)

    def noted(self, mistake: Mistake) -> str:
        """A warning of one line."""
        placed = locate(mistake, self.loaded)
        return f"{placed.origin}: {placed.path}: {placed.message}"

    def _default_objective(self, spec: DataSpec) -> Read | None:
        made = compatibility.default_objective(self.parts.registry, spec.target, self.reads.get("model"))
        if isinstance(made, Mistake):
            self.found.append(made)
            return None
        read = compatibility.defaults(made, "objective", self.parts)
        self.reads["objective"] = read
        return read
